// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal RTSP client that only performs the steps of a test: it sends no reports, no
//! keep-alives, and no TEARDOWN when it is dropped.
//!
//! Sources: RFC 2326 §10, RFC 3550 §6.6.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answer::{Answer, Line};
use super::clip::PAYLOAD_BYTES;

/// A control connection.
pub(crate) struct Control {
    pub(crate) line: Line,
    server: SocketAddr,
    cseq: u32,
}

impl Control {
    pub(crate) fn to(server: SocketAddr) -> Control {
        Control { line: Line::to(server), server, cseq: 0 }
    }

    pub(crate) fn from_address(local: IpAddr, server: SocketAddr) -> Control {
        Control { line: Line::from_address(local, server), server, cseq: 0 }
    }

    /// Sends a request and returns its answer; `headers` are whole lines.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, name: &str, headers: &[&str]) -> Answer {
        let answer = self.try_ask(method, name, headers);
        answer.unwrap_or_else(|| panic!("{method} {name}: closed without an answer"))
    }

    /// As [`Control::ask`]; returns `None` when the connection ends instead.
    #[track_caller]
    pub(crate) fn try_ask(&mut self, method: &str, name: &str, headers: &[&str]) -> Option<Answer> {
        self.cseq += 1;
        let (server, cseq) = (self.server, self.cseq);
        let mut request = format!("{method} rtsp://{server}/{name} RTSP/1.0\r\nCSeq: {cseq}\r\n");
        for header in headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        self.line.send(request);
        let answer = self.line.answer()?;
        if let Some(found) = answer.header("CSeq") {
            assert_eq!(found, cseq.to_string(), "{method} {name}: {answer:?}");
        }
        Some(answer)
    }
}

/// Two neighbouring UDP ports of the client, the first even.
pub(crate) struct PortPair {
    pub(crate) rtp: UdpSocket,
    pub(crate) rtcp: UdpSocket,
}

impl PortPair {
    pub(crate) fn on(address: IpAddr) -> PortPair {
        for _ in 0..1000 {
            let rtp = UdpSocket::bind((address, 0)).expect("a free port");
            let port = port_of(&rtp);
            if !port.is_multiple_of(2) {
                continue;
            }
            if let Ok(rtcp) = UdpSocket::bind((address, port + 1)) {
                // As large as the limit allows, unlimited for administrators, because a test
                // machine is sometimes slow.
                let _ = socket2::SockRef::from(&rtp).set_recv_buffer_size(ROOM_BYTES);
                let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&rtp, ROOM_BYTES);
                for socket in [&rtp, &rtcp] {
                    socket.set_read_timeout(Some(LOOK_EVERY)).expect("a time limit");
                }
                return PortPair { rtp, rtcp };
            }
        }
        panic!("no two neighbouring ports are free");
    }

    pub(crate) fn transport(&self) -> String {
        let (rtp, rtcp) = (port_of(&self.rtp), port_of(&self.rtcp));
        format!("Transport: RTP/AVP;unicast;client_port={rtp}-{rtcp}")
    }
}

fn port_of(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("it is bound").port()
}

/// A client with a session.
pub(crate) struct Player {
    pub(crate) control: Control,
    pub(crate) session: String,
    /// Address at which the server receives reports.
    pub(crate) server_rtcp: SocketAddr,
    pub(crate) ssrc: u32,
    /// Name of the film.
    pub(crate) name: String,
    ears: Ears,
}

impl Player {
    /// Connects and sets a session up, without DESCRIBE.
    #[track_caller]
    pub(crate) fn set_up(server: SocketAddr, name: &str) -> Player {
        match Player::try_set_up(Control::to(server), name) {
            Ok(player) => player,
            Err(refused) => panic!("SETUP {name}: {:?}", refused.1),
        }
    }

    /// Sets a session up on an existing connection; returns the connection with a refusal.
    #[track_caller]
    pub(crate) fn try_set_up(
        mut control: Control,
        name: &str,
    ) -> Result<Player, Box<(Control, Answer)>> {
        let ports = PortPair::on(control.line.local().ip());
        let answer = control.ask("SETUP", name, &[&ports.transport()]);
        if answer.status != 200 {
            return Err(Box::new((control, answer)));
        }
        let session = session_of(&answer);
        let transport = answer.header("Transport").expect("SETUP is answered with one");
        let rtcp_port = transport
            .split(';')
            .find_map(|part| part.strip_prefix("server_port=")?.split_once('-')?.1.parse().ok())
            .unwrap_or_else(|| panic!("server_port in {transport}"));
        let ssrc = transport.split(';').find_map(|part| part.strip_prefix("ssrc="));
        let ssrc = ssrc.and_then(|ssrc| u32::from_str_radix(ssrc, 16).ok());
        let ssrc = ssrc.unwrap_or_else(|| panic!("ssrc in {transport}"));
        let server_rtcp = SocketAddr::new(control.server.ip(), rtcp_port);
        let ears = Ears::open(ports, server_rtcp);
        Ok(Player { control, session, server_rtcp, ssrc, name: name.to_owned(), ears })
    }

    /// Sends a command in the session, with further headers.
    #[track_caller]
    pub(crate) fn command(&mut self, method: &str, headers: &[&str]) -> Answer {
        let session = format!("Session: {}", self.session);
        let mut all = vec![session.as_str()];
        all.extend_from_slice(headers);
        self.control.ask(method, &self.name, &all)
    }

    /// Sends PLAY from the current position; returns the sequence number of the first packet.
    #[track_caller]
    pub(crate) fn play(&mut self) -> u16 {
        let answer = self.command("PLAY", &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let info = answer.header("RTP-Info").expect("PLAY is answered with one");
        sequence_of(info)
    }

    /// Returns the packets and reports received so far.
    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.ears.heard.lock().unwrap()
    }

    /// Waits until `enough` is true of the received packets and reports.
    #[track_caller]
    pub(crate) fn hear(&self, what: &str, enough: impl Fn(&Heard) -> bool) {
        let deadline = Instant::now() + HEAR_WAIT;
        while !enough(&self.heard()) {
            let heard = self.heard();
            let (packets, byes) = (heard.packets.len(), &heard.byes);
            assert!(Instant::now() < deadline, "{what}: only {packets} packets, BYE {byes:?}");
            drop(heard);
            std::thread::sleep(HEAR_EVERY);
        }
    }

    /// Returns the client's RTCP socket.
    pub(crate) fn rtcp(&self) -> &UdpSocket {
        &self.ears.rtcp
    }

    /// Closes the control connection and keeps the ports open.
    pub(crate) fn hang_up(self) -> Ears {
        self.ears
    }
}

/// Returns the sequence number of an RTP-Info header.
#[track_caller]
pub(crate) fn sequence_of(info: &str) -> u16 {
    let sequence = info.split(';').find_map(|part| part.strip_prefix("seq=")?.parse().ok());
    sequence.unwrap_or_else(|| panic!("seq in {info}"))
}

/// Returns the identifier in the answer to SETUP.
pub(crate) fn session_of(answer: &Answer) -> String {
    let session = answer.header("Session").expect("SETUP is answered with one");
    session.split(';').next().expect("there is a first part").to_owned()
}

/// Packets and reports that a client received.
#[derive(Default)]
pub(crate) struct Heard {
    /// RTP packets, as received.
    pub(crate) packets: Vec<Vec<u8>>,
    /// Reasons of the BYEs.
    pub(crate) byes: Vec<String>,
    /// Canonical names in RTCP, one for each datagram.
    pub(crate) cnames: Vec<String>,
}

impl Heard {
    /// Asserts that the received packets are the asset from packet `first_packet` on, with none
    /// missing, and returns the payload.
    #[track_caller]
    pub(crate) fn assert_gapless(&self, asset: &[u8], first_sequence: u16) -> Vec<u8> {
        let mut payload = Vec::new();
        for (index, packet) in self.packets.iter().enumerate() {
            let sequence = u16::from_be_bytes([packet[2], packet[3]]);
            let expected = first_sequence.wrapping_add(index as u16);
            assert_eq!(sequence, expected, "packet {index} of {}", self.packets.len());
            payload.extend_from_slice(&packet[RTP_HEADER_BYTES..]);
        }
        assert!(asset.len() >= payload.len(), "more came than the asset has");
        let differs = payload.iter().zip(asset).position(|(found, expected)| found != expected);
        let place = differs.map(|at| format!("packet {} byte {}", at / PAYLOAD_BYTES, at));
        assert_eq!(place, None, "not what lies in the file");
        payload
    }
}

/// The client's UDP ports, with a thread that receives from them.
pub(crate) struct Ears {
    heard: Arc<Mutex<Heard>>,
    rtcp: Arc<UdpSocket>,
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ears {
    /// Packets of other servers are not accepted: a port that another test's client has just
    /// released may still receive some.
    fn open(ports: PortPair, server_rtcp: SocketAddr) -> Ears {
        let server_rtp = SocketAddr::new(server_rtcp.ip(), server_rtcp.port() - 1);
        let (heard, closed) = (Arc::<Mutex<Heard>>::default(), Arc::<AtomicBool>::default());
        let PortPair { rtp, rtcp } = ports;
        let rtcp = Arc::new(rtcp);
        for socket in [&rtp, &*rtcp] {
            socket.set_nonblocking(true).expect("an open socket");
        }
        let (into, ended, rtcp_ear) = (heard.clone(), closed.clone(), rtcp.clone());
        let thread = std::thread::spawn(move || {
            let mut datagram = vec![0; 65_536];
            while !ended.load(Ordering::Relaxed) {
                await_either(&rtp, &rtcp_ear);
                // Reads RTCP first: packets sent before a BYE are then in the other socket already,
                // and are recorded before it, however late this thread is.
                let reports = received(&rtcp_ear, server_rtcp, &mut datagram);
                let packets = received(&rtp, server_rtp, &mut datagram);
                let mut heard = into.lock().unwrap();
                heard.packets.extend(packets);
                heard.byes.extend(reports.iter().filter_map(|report| bye(report)));
                heard.cnames.extend(reports.iter().filter_map(|report| cname(report)));
            }
        });
        Ears { heard, rtcp, closed, thread: Some(thread) }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // A thread that panicked has printed a message.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits until a datagram is at one of them, for at most [`LOOK_EVERY`].
fn await_either(one: &UdpSocket, other: &UdpSocket) {
    let limit = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
    let mut both = [one, other].map(|socket| PollFd::new(socket, PollFlags::IN));
    // A signal has the same effect as the limit.
    let _ = poll(&mut both, Some(&limit));
}

/// Returns the datagrams of a server that wait at a socket.
fn received(socket: &UdpSocket, server: SocketAddr, datagram: &mut [u8]) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    loop {
        match socket.recv_from(datagram) {
            Ok((count, from)) if from == server => datagrams.push(datagram[..count].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return datagrams,
            // A datagram of another server, or an ICMP error after a send to a stopped one.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Returns the reason of a BYE in a compound packet; empty when it has none.
fn bye(mut datagram: &[u8]) -> Option<String> {
    while let [_, kind, high, low, ..] = *datagram {
        let bytes = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
        let packet = datagram.get(..bytes)?;
        if kind == 203 {
            let sources = usize::from(packet[0] & 31);
            let text = packet.get(4 + 4 * sources..).and_then(|rest| rest.split_first());
            let reason = text.and_then(|(length, rest)| rest.get(..usize::from(*length)));
            return Some(String::from_utf8_lossy(reason.unwrap_or_default()).into_owned());
        }
        datagram = &datagram[bytes..];
    }
    None
}

/// Returns the canonical name in a compound packet (RFC 3550 §6.5.1): the first item of SDES.
pub(crate) fn cname(mut datagram: &[u8]) -> Option<String> {
    while let [_, kind, high, low, ..] = *datagram {
        let bytes = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
        let packet = datagram.get(..bytes)?;
        if let (202, Some([1, length, rest @ ..])) = (kind, packet.get(8..)) {
            return Some(String::from_utf8_lossy(rest.get(..usize::from(*length))?).into_owned());
        }
        datagram = &datagram[bytes..];
    }
    None
}

/// Asserts that a canonical name is 96 bits in base64 (RFC 7022 §4.2).
#[track_caller]
pub(crate) fn assert_cname(name: &str) {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    assert!(name.len() == 16 && name.bytes().all(is_base64), "{name:?}");
}

/// Encodes base64 (RFC 4648 §4), for requests through a tunnel.
pub(crate) fn base64(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |index: usize| u32::from(*three.get(index).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = DIGITS[(bits >> shift & 63) as usize] as char;
            encoded.push(if index > three.len() { '=' } else { digit });
        }
    }
    encoded
}

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const RTP_HEADER_BYTES: usize = 12;
const ROOM_BYTES: usize = 4 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Guards against hanging; not a measure of speed.
const HEAR_WAIT: Duration = Duration::from_secs(60);
const HEAR_EVERY: Duration = Duration::from_millis(10);
