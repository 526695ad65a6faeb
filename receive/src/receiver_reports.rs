// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP of a recorder: reads sender reports and BYE, sends receiver reports, with one task per
//! stream.
//!
//! The task binds the port after the RTP port (RFC 3550 §11) if that port is free and belongs to no
//! other stream. Otherwise it sends reports from any port and receives no sender reports. Reports
//! are sent to the source of the last sender report, or before the first one to the port after the
//! sender's. For an any-source group they are sent to the group (RFC 3550 §6), for a
//! source-specific group to the sender (RFC 5760 §7.2). In each session, no report is sent before
//! RTP was received: a server that names another host (`source=` of Transport) cannot direct
//! reports there unless that host sends RTP. Costs one datagram of 60 bytes every five seconds.
//!
//! Reports and BYE for the stream's SSRC are accepted only from the sender of the stream: from the
//! address that SETUP has named, or from the RTP host at the RTP port or the next. Another port of
//! that host is accepted after two reports a second apart, unless the usual port is in use. RTCP
//! for that SSRC from other addresses is refused, counted and listed by sender.
//!
//! Sources: RFC 3550 §6.2, §6.4.2, §6.6, §11; RFC 5760; RFC 7022.
//! Does not widen the interval for a large group (§6.3).

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use client::{ChannelRtcp, RefusalReason, random_cname, random_u32};
use paths::Port;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, sleep_until};
use wire::rtcp::{self, RtcpItem, SenderInfo};

use crate::receiving_thread::lock;
use crate::recorded_stream::RecordedStream;

/// Counts and addresses of RTCP, shared with the figures of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RtcpStats {
    pub(crate) sent: u64,
    pub(crate) sender_reports: u64,
    pub(crate) byes: u64,
    /// BYE packets from another address, or followed by more packets of the stream.
    pub(crate) byes_refused: u64,
    last: Option<(SenderInfo, std::time::Instant)>,
    /// Source of the last report, or the address of SETUP.
    pub(crate) to: Option<SocketAddr>,
    /// Source of reports that SETUP has named.
    pub(crate) named: Option<SocketAddr>,
    /// Unusual port of the sender's host from which reports are accepted.
    unusual: Option<SocketAddr>,
    /// Candidate for `unusual`: its address, the time of its first report, and the packet count in
    /// it.
    candidate: Option<(SocketAddr, std::time::Instant, u32)>,
}

impl RtcpStats {
    /// True if RTCP from `from` belongs to the RTP sender at `peer`.
    fn is_of(&self, peer: SocketAddr, from: SocketAddr) -> bool {
        let is_usual = from == peer || from == after(peer);
        self.named == Some(from) || is_usual || self.unusual == Some(from)
    }

    /// Accepts an unusual port as the sender's, after two reports from that port.
    fn adopts(&mut self, peer: SocketAddr, from: SocketAddr, sender: &SenderInfo) -> bool {
        let is_open = self.named.is_none() && self.sender_reports == 0;
        if !is_open || from.ip() != peer.ip() {
            return false;
        }
        match self.candidate {
            Some((address, since, packets)) if address == from => {
                let is_due = since.elapsed() >= ADOPT_AFTER && sender.packets > packets;
                if is_due {
                    self.unusual = Some(from);
                }
                is_due
            }
            _ => {
                self.candidate = Some((from, std::time::Instant::now(), sender.packets));
                false
            }
        }
    }
}

/// Transport of reports.
pub(crate) enum ReportLink {
    Udp(UdpSocket),
    /// A channel of the RTSP connection, and the address of the server.
    Channel(ChannelRtcp, SocketAddr),
    /// No transport: tracks exchange their own reports (`client`).
    Tracks,
}

impl ReportLink {
    /// Returns the next packet. Dropping the future loses no packet.
    async fn receive(&self) -> (Vec<u8>, SocketAddr) {
        match self {
            ReportLink::Channel(channel, server) => (channel.receive().await, *server),
            ReportLink::Tracks => std::future::pending().await,
            ReportLink::Udp(socket) => loop {
                let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
                match socket.recv_from(&mut datagram).await {
                    Ok((bytes, from)) => {
                        datagram.truncate(bytes);
                        return (datagram, from);
                    }
                    // A pending ICMP error, or a lack of memory: RTCP tolerates the delay.
                    Err(_) => sleep(PAUSE_AFTER_ERROR).await,
                }
            },
        }
    }

    /// Sends a packet, over UDP to address `to`; returns false if it was not sent.
    fn try_send(&self, packet: &[u8], to: SocketAddr) -> bool {
        match self {
            ReportLink::Channel(channel, _) => channel.try_send(packet),
            ReportLink::Tracks => false,
            ReportLink::Udp(socket) => socket.try_send_to(packet, to).is_ok(),
        }
    }
}

/// RTCP endpoint of one received stream.
pub(crate) struct ReceiverReporter<'a> {
    link: ReportLink,
    pub(crate) stream: &'a Mutex<RecordedStream>,
    pub(crate) rtcp: &'a Mutex<RtcpStats>,
    /// The group that reports go to, if any.
    pub(crate) group: Option<SocketAddr>,
    ssrc: u32,
    /// CNAME, chosen anew for each session (RFC 7022 §4.2).
    cname: String,
    /// True once a report was sent; BYE is sent only then.
    has_sent: Cell<bool>,
}

/// Exchanges RTCP for a stream to a port, for ever; `is_free` is true if no other stream uses the
/// next port.
pub(crate) async fn of_port(
    port: &Port,
    is_free: bool,
    stream: &Mutex<RecordedStream>,
    rtcp: &Mutex<RtcpStats>,
) {
    // A bare stream has no RTCP.
    while lock(stream).sources().followed().is_none_or(|source| source.ssrc.is_none()) {
        sleep(LOOK_EVERY).await;
    }
    let socket = match bind(port, is_free) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!("RTCP beside {}: {error}; no reports are sent", port.address);
            return std::future::pending().await;
        }
    };
    let is_open_group = port.address.ip().is_multicast() && port.sources.is_empty();
    let group = is_open_group.then(|| after(port.address));
    ReceiverReporter::new(ReportLink::Udp(socket), (stream, rtcp), group).exchange().await;
}

impl<'a> ReceiverReporter<'a> {
    /// Creates a reporter with its own SSRC and CNAME.
    pub(crate) fn new(
        link: ReportLink,
        (stream, rtcp): (&'a Mutex<RecordedStream>, &'a Mutex<RtcpStats>),
        group: Option<SocketAddr>,
    ) -> ReceiverReporter<'a> {
        let (ssrc, cname, has_sent) = (random_u32(), random_cname(), Cell::new(false));
        ReceiverReporter { link, stream, rtcp, group, ssrc, cname, has_sent }
    }

    /// Receives RTCP and sends reports until the future is dropped.
    pub(crate) async fn exchange(&self) {
        let mut next = Instant::now() + rtcp::report_interval(true, random_u32());
        loop {
            tokio::select! {
                (packet, from) = self.link.receive() => self.hear(&packet, from),
                () = sleep_until(next) => {
                    self.report();
                    next = Instant::now() + rtcp::report_interval(false, random_u32());
                }
            }
        }
    }

    fn hear(&self, datagram: &[u8], from: SocketAddr) {
        let Ok(seen) = rtcp::parse(datagram) else { return };
        let mut stream = lock(self.stream);
        let followed = stream.sources().followed().and_then(|source| source.ssrc.zip(source.from));
        let Some((ssrc, peer)) = followed else { return };
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let mut rtcp = lock(self.rtcp);
        for item in seen {
            let is_of = rtcp.is_of(peer, from);
            match item {
                RtcpItem::Sender(sender) if sender.ssrc == ssrc => {
                    if !is_of && !rtcp.adopts(peer, from, &sender) {
                        stream.refused().note(from, 1, RefusalReason::Report);
                        continue;
                    }
                    rtcp.sender_reports += 1;
                    rtcp.last = Some((sender, std::time::Instant::now()));
                    rtcp.to = Some(from);
                }
                RtcpItem::Bye { ssrc: leaving } if leaving == ssrc => {
                    if !is_of {
                        rtcp.byes_refused += 1;
                        stream.refused().note(from, 1, RefusalReason::Bye);
                        continue;
                    }
                    rtcp.byes += 1;
                    stream.sources_mut().leave(ssrc);
                }
                _ => {}
            }
        }
    }

    fn report(&self) {
        let (report, heard) = {
            let mut stream = lock(self.stream);
            // Only a packet of this session counts: an earlier session may have had another sender.
            let heard = stream.last_packet().filter(|_| stream.activity().at.is_some());
            let source = stream.sources_mut().followed_mut();
            let report = source.and_then(|source| Some(source.reception.report(source.ssrc?)));
            (report, heard)
        };
        let Some(((_, sender), mut report)) = heard.zip(report) else { return };
        let mut rtcp = lock(self.rtcp);
        if let Some((sender_info, arrival)) =
            rtcp.last.filter(|(sender_info, _)| sender_info.ssrc == report.ssrc)
        {
            report.last_sender_report = rtcp::ntp_middle(sender_info.ntp);
            report.delay_since_last_sender_report = rtcp::delay_units(arrival.elapsed());
        }
        let to = self.group.or(rtcp.to).unwrap_or_else(|| after(sender));
        let datagram = rtcp::receiver_report(self.ssrc, &[report], &self.cname);
        // The next report makes up for a report that was not sent.
        rtcp.sent += u64::from(self.link.try_send(&datagram, to));
        self.has_sent.set(true);
    }
}

impl Drop for ReceiverReporter<'_> {
    /// Sends the last report, and BYE (§6.6).
    fn drop(&mut self) {
        self.report();
        let sender = lock(self.stream).last_packet().map(|(_, sender)| after(sender));
        let mut rtcp = lock(self.rtcp);
        if let Some(to) = self.group.or(rtcp.to).or(sender).filter(|_| self.has_sent.get()) {
            let datagram = rtcp::receiver_bye(self.ssrc, &self.cname, "");
            rtcp.sent += u64::from(self.link.try_send(&datagram, to));
        }
    }
}

/// Binds the port after the RTP port, or any port.
fn bind(port: &Port, is_free: bool) -> io::Result<UdpSocket> {
    let address = after(port.address);
    let socket = is_free.then(|| bound(address, port)).and_then(Result::ok);
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = match socket {
        Some(socket) => socket,
        None => bound(SocketAddr::new(any, 0), port)?,
    };
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

fn bound(address: SocketAddr, port: &Port) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    let is_group = address.ip().is_multicast();
    if is_group {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    if is_group {
        let interface =
            port.interface.as_deref().and_then(crate::receiving_thread::interface_number);
        let interface = interface.unwrap_or(0);
        match address.ip() {
            IpAddr::V4(group) => {
                let interface = socket2::InterfaceIndexOrAddress::Index(interface);
                socket.join_multicast_v4_n(&group, &interface)?;
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, interface)?,
        }
    }
    Ok(socket)
}

/// Returns the RTCP address: RTCP uses the next port (RFC 3550 §11).
fn after(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port().wrapping_add(1))
}

const DATAGRAM_BYTES_MAX: usize = 2048;
/// Minimum time between the two reports that make an unusual port accepted.
const ADOPT_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded_stream::AnnouncedSession;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn reports_count_from_the_sender_of_rtp_alone() {
        let peer = at("10.0.0.1:5000");
        let mut rtcp = RtcpStats::default();
        assert!(rtcp.is_of(peer, peer) && rtcp.is_of(peer, at("10.0.0.1:5001")));
        assert!(!rtcp.is_of(peer, at("10.0.0.1:5002")));
        assert!(!rtcp.is_of(peer, at("10.0.0.2:5001")));
        rtcp.named = Some(at("10.0.0.1:7001"));
        assert!(rtcp.is_of(peer, at("10.0.0.1:7001")));
    }

    #[test]
    fn an_unusual_port_of_the_sender_is_adopted_unless_another_is_known() {
        let (peer, other) = (at("10.0.0.1:5000"), at("10.0.0.1:6000"));
        let sent = |packets| SenderInfo { packets, ..SenderInfo::default() };
        let mut rtcp = RtcpStats::default();
        assert!(!rtcp.adopts(peer, at("10.0.0.2:6000"), &sent(1)), "another host");
        assert!(!rtcp.adopts(peer, other, &sent(1)));
        assert!(!rtcp.adopts(peer, other, &sent(2)), "at once");
        let (address, since, packets) = rtcp.candidate.unwrap();
        rtcp.candidate = Some((address, since - ADOPT_AFTER, packets));
        assert!(!rtcp.adopts(peer, other, &sent(1)), "it has sent nothing meanwhile");
        assert!(rtcp.adopts(peer, other, &sent(2)) && rtcp.is_of(peer, other));
        let mut named = RtcpStats { named: Some(at("10.0.0.1:5001")), ..RtcpStats::default() };
        assert!(!named.adopts(peer, other, &sent(1)) && named.candidate.is_none());
    }

    /// An RTP packet, as its sender's socket sends it.
    fn rtp(sequence: u16) -> Vec<u8> {
        let (marker, payload_type, timestamp, ssrc) = (false, 33, 0, SSRC);
        let header = wire::rtp::Header { marker, payload_type, sequence, timestamp, ssrc };
        [&header.write()[..], &[0x47; 188]].concat()
    }

    /// A non-blocking socket that counts its datagrams.
    struct Ear(std::net::UdpSocket);

    impl Ear {
        fn at(host: &str) -> Ear {
            let socket = std::net::UdpSocket::bind((host, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            Ear(socket)
        }

        fn address(&self) -> SocketAddr {
            self.0.local_addr().unwrap()
        }

        fn datagrams(&self) -> usize {
            // The loopback device delivers within the sending call.
            std::iter::from_fn(|| self.0.recv(&mut [0; 100]).ok()).count()
        }
    }

    #[tokio::test]
    async fn a_host_that_a_server_names_gets_reports_when_rtp_comes_from_there() {
        let (server, third) = (Ear::at("127.0.0.1"), Ear::at("127.0.0.2"));
        let stream = Mutex::new(RecordedStream::new(Vec::new(), Duration::ZERO, None));
        let rtcp = Mutex::new(RtcpStats::default());
        let begin = |ear: &Ear| {
            let (host, ssrc) = (ear.address().ip(), Some(SSRC));
            let announced =
                AnnouncedSession { host, port: None, payload_type: 33, ssrc, is_resumed: false };
            lock(&stream).announce(announced);
            lock(&rtcp).to = Some(ear.address());
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let socket = UdpSocket::from_std(socket).unwrap();
            ReceiverReporter::new(ReportLink::Udp(socket), (&stream, &rtcp), None)
        };
        async fn writable(reporter: &ReceiverReporter<'_>) {
            let ReportLink::Udp(socket) = &reporter.link else { panic!("a channel") };
            socket.writable().await.unwrap();
        }
        let now = Duration::from_secs;
        let first = begin(&server);
        writable(&first).await;
        first.report();
        assert_eq!(server.datagrams(), 0, "nothing came");
        lock(&stream).take(&rtp(1), server.address(), now(1));
        first.report();
        assert_eq!(server.datagrams(), 1);
        drop(first);
        assert_eq!(server.datagrams(), 2, "the last report, and BYE");

        let second = begin(&third);
        writable(&second).await;
        second.report();
        drop(second);
        assert_eq!(third.datagrams(), 0, "it has sent nothing");

        let last = begin(&third);
        writable(&last).await;
        lock(&stream).take(&rtp(2), third.address(), now(20));
        last.report();
        assert_eq!((third.datagrams(), server.datagrams()), (1, 0));
    }

    const SSRC: u32 = 0x0bad_cafe;
}
