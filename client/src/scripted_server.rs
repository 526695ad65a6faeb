// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small RTSP server for the tests of the client, with scripted faults.
//!
//! It parses requests by hand and shares no code with `wire`'s server side, so that a mistake there
//! does not hide one here. Packet n has sequence number first + n and timestamp n × interval. It
//! sends over UDP, or interleaved, also through a tunnel: a first request GET opens one, and the
//! next connection must carry its POST.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep_until;
use tokio_rustls::TlsAcceptor;
use wire::rtcp::{self, RtcpItem, SenderInfo};
use wire::rtp::Header;
use wire::rtsp::interleaved_header;

use super::scripted_login::{LoginGate, ScriptedLogin, Verified, authorization};
use super::scripted_tunnel::{decode_groups, http_head};
use super::trial_sockets::skips_for_drops;
use super::verdict::Verdict;
use super::{Play, PlayProgress, play};

/// Packets to send, and faults.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) packets: u16,
    pub(super) interval: Duration,
    pub(super) first_sequence: u16,
    /// Packets that are counted as sent but not sent.
    pub(super) lose: Vec<u16>,
    /// Initial packet count, as of a relay that has sent to other receivers.
    pub(super) counted_before: u32,
    /// Packets that are sent twice.
    pub(super) repeat: Vec<u16>,
    /// Packets that are sent after the next one.
    pub(super) delay: Vec<u16>,
    /// Datagrams sent before the first packet, from the right port.
    pub(super) noise: Vec<Vec<u8>>,
    /// A wrong sequence number for RTP-Info.
    pub(super) announced: Option<u16>,
    /// Answers to PLAY contain Range and RTP-Info.
    pub(super) sends_rtp_info: bool,
    pub(super) sends_bye: bool,
    /// Answers to PLAY have a range without an end.
    pub(super) is_endless: bool,
    /// Closes the connection before this packet.
    pub(super) close_at: Option<u16>,
    /// Answers this method with this status line, headers and body.
    pub(super) refuse: Option<(&'static str, &'static str)>,
    /// Leaves requests of this method unanswered.
    pub(super) ignore: Option<&'static str>,
    /// Sends an interim answer before each final one.
    pub(super) continues: bool,
    pub(super) session_timeout_s: u64,
    /// SETUP of UDP is answered with 461.
    pub(super) refuses_udp: bool,
    /// SETUP of interleaved channels is answered with these.
    pub(super) channels: Option<(u8, u8)>,
    /// The answer to SETUP of interleaved channels names none.
    pub(super) names_no_channels: bool,
    /// Number of packets after which the SSRC changes; it never equals the one of SETUP.
    pub(super) ssrc_packets: Option<u16>,
    /// Raw bytes written on the connection before packets of these numbers.
    pub(super) between: Vec<(u16, Vec<u8>)>,
    /// Nothing is sent over UDP.
    pub(super) blocks_udp: bool,
    /// The answer to SETUP of multicast names the sender.
    pub(super) names_source: bool,
    /// Length in the description; the stream is live if none.
    pub(super) duration_s: Option<u32>,
    pub(super) login: Option<ScriptedLogin>,
    /// Connections are those of TLS.
    pub(super) tls: Option<Arc<ServerConfig>>,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            packets: 200,
            interval: Duration::from_millis(2),
            first_sequence: 65_450,
            lose: Vec::new(),
            counted_before: 0,
            repeat: Vec::new(),
            delay: Vec::new(),
            noise: Vec::new(),
            announced: None,
            sends_rtp_info: true,
            sends_bye: true,
            is_endless: false,
            close_at: None,
            refuse: None,
            ignore: None,
            continues: false,
            session_timeout_s: 60,
            refuses_udp: false,
            channels: None,
            names_no_channels: false,
            ssrc_packets: None,
            between: Vec::new(),
            blocks_udp: false,
            names_source: false,
            duration_s: None,
            login: None,
            tls: None,
        }
    }
}

/// The verdict, the server's record, and the file.
pub(super) type Played = (Verdict, ServerRecord, Vec<u8>);

/// Requests and RTCP received by the server.
#[derive(Debug, Default)]
pub(super) struct ServerRecord {
    /// Methods, in order.
    pub(super) methods: Vec<String>,
    /// Requests with an Authorization field.
    pub(super) authorized: u32,
    /// Responses that were not those of the password.
    pub(super) wrong_passwords: u32,
    /// The Range headers of PLAY.
    pub(super) ranges: Vec<Option<String>>,
    pub(super) rtcp: Vec<RtcpItem>,
    /// The Transport headers of SETUP.
    pub(super) transports: Vec<String>,
    /// Errors of handshakes of TLS.
    pub(super) tls_faults: Vec<String>,
    /// Heads of the HTTP requests of tunnels.
    pub(super) tunnels: Vec<String>,
}

/// A server for one client, or for several that all receive the same stream.
pub(super) struct ScriptedServer {
    pub(super) url: String,
    record: Arc<Mutex<ServerRecord>>,
    task: tokio::task::JoinHandle<()>,
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 47, 11);
pub(super) const SSRC: u32 = 0xFACE_0001;

/// Payload of packet n: seven TS packets.
pub(super) fn payload(n: u16) -> Vec<u8> {
    (0..7 * 188).map(|at| if at % 188 == 0 { 0x47 } else { (at as u16 ^ n) as u8 }).collect()
}

/// Payloads of packets, one after the other.
pub(super) fn asset(packets: impl Iterator<Item = u16>) -> Vec<u8> {
    packets.flat_map(payload).collect()
}

impl ScriptedServer {
    pub(super) async fn start(script: Script) -> ScriptedServer {
        ScriptedServer::for_connections(script, 1).await
    }

    /// Starts a server for this number of connections, which may be concurrent.
    pub(super) async fn for_connections(script: Script, connections: usize) -> ScriptedServer {
        ScriptedServer::at(Ipv4Addr::LOCALHOST.into(), script, connections).await
    }

    /// Starts a server at an address for this number of connections; a tunnel counts as one.
    pub(super) async fn at(host: IpAddr, script: Script, connections: usize) -> ScriptedServer {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let record = Arc::new(Mutex::new(ServerRecord::default()));
        let seen = record.clone();
        let scheme = if script.tls.is_some() { "rtsps" } else { "rtsp" };
        let task = tokio::spawn(async move {
            let mut conversations = tokio::task::JoinSet::new();
            for _ in 0..connections {
                let (stream, peer) = listener.accept().await.unwrap();
                let mut conversation = Conversation::new(script.clone(), peer, seen.clone());
                if let Some(tls) = &script.tls {
                    match TlsAcceptor::from(tls.clone()).accept(stream).await {
                        Err(error) => seen.lock().unwrap().tls_faults.push(error.to_string()),
                        Ok(stream) => {
                            let (reading, writing) = tokio::io::split(stream);
                            conversations.spawn(conversation.run(reading, writing, false));
                        }
                    }
                    continue;
                }
                let mut first = [0; 4];
                while stream.peek(&mut first).await.unwrap_or(4) < 4 {
                    tokio::task::yield_now().await;
                }
                if &first == b"GET " {
                    let mut get = stream;
                    let mut head = http_head(&mut get).await;
                    while let Some(field) = conversation.refusal(&head) {
                        let refused = format!("HTTP/1.0 401 Unauthorized\r\n{field}\r\n");
                        get.write_all(refused.as_bytes()).await.unwrap();
                        get = listener.accept().await.unwrap().0;
                        head = http_head(&mut get).await;
                    }
                    get.write_all(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n").await.unwrap();
                    let (mut post, _) = listener.accept().await.unwrap();
                    let heads = [head, http_head(&mut post).await];
                    assert_eq!(conversation.refusal(&heads[1]), None, "POST has no answer");
                    seen.lock().unwrap().tunnels.extend(heads);
                    conversations.spawn(conversation.run(post, get, true));
                } else {
                    let (reading, writing) = stream.into_split();
                    conversations.spawn(conversation.run(reading, writing, false));
                }
            }
            conversations.join_all().await;
        });
        let url = format!("{scheme}://{address}/clip.ts");
        ScriptedServer { url, record, task }
    }

    /// Locks the record of requests and RTCP received so far.
    pub(super) fn seen(&self) -> std::sync::MutexGuard<'_, ServerRecord> {
        self.record.lock().unwrap()
    }

    /// Returns the record, for a task that waits for an entry.
    pub(super) fn record(&self) -> Arc<Mutex<ServerRecord>> {
        self.record.clone()
    }

    /// Plays from this server with these options, into a file. `None`, with the reason printed,
    /// where the kernel dropped datagrams.
    pub(super) async fn played(
        self,
        options: impl FnOnce(&mut Play),
        progress: impl FnMut(&PlayProgress),
    ) -> Option<Played> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ts");
        let mut asked = Play::new(&self.url);
        asked.output = Some(path.clone());
        options(&mut asked);
        let verdict = play(asked, progress).await.unwrap();
        let is_skipped = skips_for_drops(verdict.kernel_drops.unwrap_or(0));
        (!is_skipped).then_some((verdict, self.end().await, std::fs::read(path).unwrap()))
    }

    /// Waits until the client has left; returns the server's record.
    pub(super) async fn end(self) -> ServerRecord {
        self.task.await.unwrap();
        std::mem::take(&mut *self.record.lock().unwrap())
    }
}

struct Conversation {
    script: Script,
    peer: SocketAddr,
    record: Arc<Mutex<ServerRecord>>,
    rtp: UdpSocket,
    rtcp: UdpSocket,
    ports: (u16, u16),
    /// Channels of RTP and RTCP; none over UDP.
    channels: Option<(u8, u8)>,
    /// Frames to write.
    out: Vec<u8>,
    next: u16,
    has_played: bool,
    /// Time at which the next packet is due; none while paused.
    due: Option<Instant>,
    has_sent_bye: bool,
    is_closed: bool,
    gate: Option<LoginGate>,
}

impl Conversation {
    fn new(script: Script, peer: SocketAddr, record: Arc<Mutex<ServerRecord>>) -> Conversation {
        let host = if peer.is_ipv4() {
            IpAddr::from(Ipv4Addr::LOCALHOST)
        } else {
            Ipv6Addr::LOCALHOST.into()
        };
        let rtp = UdpSocket::bind((host, 0)).unwrap();
        let rtcp = UdpSocket::bind((host, 0)).unwrap();
        rtcp.set_nonblocking(true).unwrap();
        let (ports, due, has_sent_bye) = ((0, 0), None, false);
        let (next, has_played, is_closed) = (0, false, false);
        let (channels, out) = (None, Vec::new());
        let gate = script.login.map(LoginGate::new);
        Conversation {
            script,
            gate,
            peer,
            record,
            rtp,
            rtcp,
            ports,
            channels,
            out,
            next,
            has_played,
            due,
            has_sent_bye,
            is_closed,
        }
    }

    async fn run(
        mut self,
        mut reading: impl AsyncRead + Unpin,
        mut writing: impl AsyncWrite + Unpin,
        is_base64: bool,
    ) {
        let (mut encoded, mut bytes) = (Vec::new(), Vec::new());
        while !self.is_closed {
            let due = self.due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                read = reading.read_buf(&mut encoded) => if read.unwrap_or(0) == 0 { break },
                () = sleep_until(due.into()) => self.send(),
            }
            if is_base64 {
                decode_groups(&mut encoded, &mut bytes);
            } else {
                bytes.append(&mut encoded);
            }
            self.take(&mut bytes);
            if writing.write_all(&std::mem::take(&mut self.out)).await.is_err() {
                break;
            }
        }
        let mut datagram = [0; 2048];
        while let Ok(count) = self.rtcp.recv(&mut datagram) {
            let seen = rtcp::parse(&datagram[..count]).unwrap();
            self.record.lock().unwrap().rtcp.extend(seen);
        }
    }

    /// Consumes complete requests and frames.
    fn take(&mut self, bytes: &mut Vec<u8>) {
        loop {
            if let [b'$', channel, high, low, ..] = bytes[..] {
                let end = 4 + usize::from(u16::from_be_bytes([high, low]));
                if bytes.len() < end {
                    return;
                }
                let frame: Vec<u8> = bytes.drain(..end).skip(4).collect();
                assert_eq!(Some(channel), self.channels.map(|(_, rtcp)| rtcp));
                self.record.lock().unwrap().rtcp.extend(rtcp::parse(&frame).unwrap());
                continue;
            }
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return };
            let request: Vec<u8> = bytes.drain(..end + 4).collect();
            let answer = self.answer(std::str::from_utf8(&request).unwrap());
            if self.script.continues {
                let cseq = answer.lines().find(|line| line.starts_with("CSeq")).unwrap();
                let interim = format!("RTSP/1.0 100 Continue\r\n{cseq}\r\n\r\n");
                self.out.extend_from_slice(interim.as_bytes());
            }
            self.out.extend_from_slice(answer.as_bytes());
        }
    }

    fn answer(&mut self, request: &str) -> String {
        let header = |name: &str| {
            let found = request.lines().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim_start_matches(':').trim().to_owned())
        };
        let method = request.split(' ').next().unwrap().to_owned();
        let cseq = header("CSeq").unwrap();
        self.record.lock().unwrap().methods.push(method.clone());
        if let Some(field) = self.refusal(request) {
            return format!("RTSP/1.0 401 Unauthorized\r\nCSeq: {cseq}\r\n{field}\r\n");
        }
        let asks_udp = || header("Transport").is_some_and(|offer| !offer.contains("TCP"));
        if method == "SETUP" && self.script.refuses_udp && asks_udp() {
            return format!("RTSP/1.0 461 Unsupported Transport\r\nCSeq: {cseq}\r\n\r\n");
        }
        if self.script.ignore == Some(method.as_str()) {
            return String::new();
        }
        if let Some((refused, answer)) = self.script.refuse
            && refused == method
        {
            return answer.replacen("\r\n", &format!("\r\nCSeq: {cseq}\r\n"), 1);
        }
        let rest = match method.as_str() {
            "DESCRIBE" => self.describe(),
            "SETUP" => self.setup(&header("Transport").unwrap()),
            "PLAY" => {
                self.record.lock().unwrap().ranges.push(header("Range"));
                self.play()
            }
            "PAUSE" => {
                self.due = None;
                "\r\n".to_owned()
            }
            "TEARDOWN" => {
                self.due = None;
                if self.has_played {
                    self.bye();
                }
                "\r\n".to_owned()
            }
            _ => "\r\n".to_owned(),
        };
        format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n{rest}")
    }

    /// The challenge to a request without the right answer to one.
    fn refusal(&mut self, request: &str) -> Option<String> {
        let mut record = self.record.lock().unwrap();
        record.authorized += u32::from(authorization(request).is_some());
        match self.gate.as_mut()?.verify(request) {
            Verified::Granted => None,
            Verified::Refused { field, is_wrong } => {
                record.wrong_passwords += u32::from(is_wrong);
                Some(field)
            }
        }
    }

    fn describe(&self) -> String {
        let range = self.script.duration_s.map(|seconds| format!("a=range:npt=0-{seconds}\r\n"));
        let sdp = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=clip.ts\r\nt=0 0\r\na=control:*\r\n{}\
             m=video 0 RTP/AVP 33\r\na=control:stream\r\n\
             m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\n\
             a=control:metadata\r\n",
            range.unwrap_or_default()
        );
        let base = "Content-Type: application/sdp\r\nContent-Base: rtsp://fake/clip.ts/";
        format!("{base}\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len())
    }

    fn setup(&mut self, transport: &str) -> String {
        self.record.lock().unwrap().transports.push(transport.to_owned());
        if let Some((_, offered)) = transport.split_once("interleaved=") {
            let (rtp, rtcp) = offered.split_once('-').unwrap();
            let offered = (rtp.parse().unwrap(), rtcp.parse().unwrap());
            let (rtp, rtcp) = self.script.channels.unwrap_or(offered);
            self.channels = Some((rtp, rtcp));
            let named = match self.script.names_no_channels {
                true => String::new(),
                false => format!(";interleaved={rtp}-{rtcp}"),
            };
            return format!(
                "Session: 4711;timeout={}\r\nTransport: RTP/AVP/TCP;unicast{named};\
                 ssrc={SSRC:08X}\r\n\r\n",
                self.script.session_timeout_s
            );
        }
        if transport.contains("multicast") {
            return self.set_up_group();
        }
        let ports = transport.split(';').find_map(|part| part.strip_prefix("client_port="));
        let (rtp, rtcp) = ports.unwrap().split_once('-').unwrap();
        self.ports = (rtp.parse().unwrap(), rtcp.parse().unwrap());
        let rtp = self.rtp.local_addr().unwrap().port();
        let rtcp = self.rtcp.local_addr().unwrap().port();
        format!(
            "Session: 4711;timeout={}\r\nTransport: {transport};server_port={rtp}-{rtcp};\
             ssrc={SSRC:08X}\r\n\r\n",
            self.script.session_timeout_s
        )
    }

    /// Sends to a group of the loopback interface from now on.
    fn set_up_group(&mut self) -> String {
        for socket in [&self.rtp, &self.rtcp] {
            socket2::SockRef::from(socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        }
        // An even port that no other socket uses at this moment.
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        self.ports = (port & !1, port | 1);
        self.peer.set_ip(GROUP.into());
        let source = match self.script.names_source {
            true => ";source=127.0.0.1",
            false => "",
        };
        let (rtp, rtcp) = self.ports;
        format!(
            "Session: 4711\r\nTransport: RTP/AVP;multicast;destination={GROUP}{source};\
             port={rtp}-{rtcp};ttl=1;ssrc={SSRC:08X}\r\n\r\n"
        )
    }

    fn play(&mut self) -> String {
        let script = &self.script;
        (self.due, self.has_played) = (Some(Instant::now()), true);
        if !script.sends_rtp_info {
            return "\r\n".to_owned();
        }
        let from = script.interval.as_secs_f64() * f64::from(self.next);
        let to = script.interval.as_secs_f64() * f64::from(script.packets);
        let to = if script.is_endless { String::new() } else { format!("{to:.3}") };
        let sequence = script.announced.unwrap_or(script.first_sequence.wrapping_add(self.next));
        let timestamp = self.timestamp(self.next);
        format!(
            "Range: npt={from:.3}-{to}\r\nRTP-Info: url=rtsp://fake/clip.ts/stream;\
             seq={sequence};rtptime={timestamp}\r\n\r\n"
        )
    }

    /// The timestamp wraps in mid-stream.
    fn timestamp(&self, n: u16) -> u32 {
        let interval = self.script.interval.as_millis() as u32 * 90;
        (u32::MAX - 100 * interval).wrapping_add(u32::from(n) * interval)
    }

    fn send(&mut self) {
        let n = self.next;
        if self.script.close_at == Some(n) {
            self.bye();
            self.is_closed = true;
            return;
        }
        for (_, bytes) in self.script.between.iter().filter(|(before, _)| *before == n) {
            self.out.extend_from_slice(bytes);
        }
        if n == 0 {
            for datagram in std::mem::take(&mut self.script.noise) {
                self.send_rtp(&datagram);
            }
            let report = rtcp::sender_report(&self.sender(), "fake");
            self.send_rtcp(&report);
        }
        if n == self.script.packets {
            self.due = None;
            self.bye();
            return;
        }
        if !self.script.delay.contains(&n) {
            self.packet(n);
        }
        if n > 0 && self.script.delay.contains(&(n - 1)) {
            self.packet(n - 1);
        }
        self.next += 1;
        self.due = self.due.map(|due| due + self.script.interval);
    }

    fn packet(&mut self, n: u16) {
        let sequence = self.script.first_sequence.wrapping_add(n);
        let (timestamp, payload_type) = (self.timestamp(n), 33);
        let ssrc = SSRC + self.script.ssrc_packets.map_or(0, |packets| 1 + u32::from(n / packets));
        let header = Header { marker: false, payload_type, sequence, timestamp, ssrc };
        let datagram = [&header.write()[..], &payload(n)].concat();
        if !self.script.lose.contains(&n) {
            self.send_rtp(&datagram);
        }
        if self.script.repeat.contains(&n) {
            self.send_rtp(&datagram);
        }
    }

    /// Sends BYE once, if the script has one.
    fn bye(&mut self) {
        if !self.script.sends_bye || std::mem::replace(&mut self.has_sent_bye, true) {
            return;
        }
        self.send_rtcp(&rtcp::sender_bye(&self.sender(), "fake", "end of stream"));
    }

    fn sender(&self) -> SenderInfo {
        let (ntp, rtp_timestamp) = (1 << 32, self.timestamp(self.next));
        let packets = self.script.counted_before.wrapping_add(u32::from(self.next));
        SenderInfo { ssrc: SSRC, ntp, rtp_timestamp, packets, octets: packets.wrapping_mul(1316) }
    }

    fn send_rtp(&mut self, datagram: &[u8]) {
        match self.channels {
            Some((rtp, _)) => self.frame(rtp, datagram),
            None if self.script.blocks_udp => {}
            None => drop(self.rtp.send_to(datagram, (self.peer.ip(), self.ports.0)).unwrap()),
        }
    }

    fn send_rtcp(&mut self, datagram: &[u8]) {
        match self.channels {
            Some((_, rtcp)) => self.frame(rtcp, datagram),
            None if self.script.blocks_udp => {}
            None => drop(self.rtcp.send_to(datagram, (self.peer.ip(), self.ports.1)).unwrap()),
        }
    }

    fn frame(&mut self, channel: u8, data: &[u8]) {
        self.out.extend(frame(channel, data));
    }
}

/// An interleaved frame.
pub(super) fn frame(channel: u8, data: &[u8]) -> Vec<u8> {
    [&interleaved_header(channel, data.len() as u16)[..], data].concat()
}
