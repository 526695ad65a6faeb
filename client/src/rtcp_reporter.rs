// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP of a play: reads sender reports and BYE, sends receiver reports.
//!
//! Packets travel over UDP or on a channel of the RTSP connection ([`RtcpLink`]). Costs one packet
//! of about 60 bytes each way in five seconds.
//!
//! Sources: RFC 3550 §6.2, §6.3.1 (interval), §6.4.2 (receiver report), §6.6 (BYE).
//! Does not widen the interval for many participants: there is one sender and one receiver.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clock::Clock;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use wire::rtcp::{self, RtcpItem};
use wire::rtp::Reception;
use wire::rtsp::client::SetupReply;

use super::channel_rtcp::ChannelRtcp;
use super::refused_senders::RefusalReason;
use super::stream_stats::{StreamStats, lock};
use crate::error::Error;
use crate::random::{random_cname, random_u32};

/// Transport of RTCP packets.
pub(super) enum RtcpLink {
    Udp(UdpRtcp),
    /// A channel of the RTSP connection.
    Channel(ChannelRtcp),
}

/// RTCP on a socket.
pub(super) struct UdpRtcp {
    socket: UdpSocket,
    /// Host whose packets are accepted; any host if none.
    host: Option<IpAddr>,
    /// Target of reports: the address of SETUP ([`report_target`]), otherwise the source of the
    /// first sender report.
    to: Mutex<Option<SocketAddr>>,
}

impl RtcpLink {
    /// RTCP with a host over a socket.
    pub(super) fn udp(
        socket: std::net::UdpSocket,
        host: Option<IpAddr>,
        to: Option<SocketAddr>,
    ) -> Result<RtcpLink, Error> {
        let failed =
            |call| move |source| Error::Host { call, object: "RTCP socket".into(), source };
        socket.set_nonblocking(true).map_err(failed("fcntl"))?;
        let socket = UdpSocket::from_std(socket).map_err(failed("epoll_ctl"))?;
        Ok(RtcpLink::Udp(UdpRtcp { socket, host, to: Mutex::new(to) }))
    }

    /// Waits for a packet of the sender's host. Dropping the future loses none.
    pub(super) async fn receive(&self) -> (Vec<u8>, Option<SocketAddr>) {
        match self {
            RtcpLink::Channel(channel) => (channel.receive().await, None),
            RtcpLink::Udp(UdpRtcp { socket, host, .. }) => {
                loop {
                    // Neither call yields to other tasks under a flood of datagrams.
                    consume_budget().await;
                    // No buffer is allocated while nothing arrives: a load has thousands of these.
                    // The next read clears a pending ICMP error.
                    let _ = socket.readable().await;
                    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
                    match socket.try_recv_from(&mut datagram) {
                        Ok((bytes, from))
                            if host.is_none_or(|host| {
                                from.ip().to_canonical() == host.to_canonical()
                            }) =>
                        {
                            datagram.truncate(bytes);
                            return (datagram, Some(from));
                        }
                        Ok(_) => {}
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        // The kernel is short of memory: RTCP can wait.
                        Err(_) => tokio::time::sleep(PAUSE_AFTER_ERROR).await,
                    }
                }
            }
        }
    }

    /// True for the address to which reports go, and for the port before it: that of RTP. Any
    /// address before there is one, and where the host is unknown.
    fn is_peer(&self, from: Option<SocketAddr>) -> bool {
        let (RtcpLink::Udp(UdpRtcp { to, host: Some(_), .. }), Some(from)) = (self, from) else {
            return true;
        };
        let to = *to.lock().unwrap_or_else(|e| e.into_inner());
        to.is_none_or(|to| from.port() == to.port() || from.port() == to.port().wrapping_sub(1))
    }

    /// Records the source of a sender report: reports go there where SETUP has named no address.
    pub(super) fn note_source(&self, from: Option<SocketAddr>) {
        if let (RtcpLink::Udp(UdpRtcp { to, .. }), Some(from)) = (self, from) {
            to.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(from);
        }
    }

    /// Sends a packet; returns false where it was not sent.
    pub(super) async fn send(&self, packet: &[u8]) -> bool {
        match self {
            RtcpLink::Channel(channel) => channel.send(packet).await,
            RtcpLink::Udp(UdpRtcp { socket, to, .. }) => {
                let to = *to.lock().unwrap_or_else(|e| e.into_inner());
                match to {
                    Some(to) => socket.send_to(packet, to).await.is_ok(),
                    None => false,
                }
            }
        }
    }
}

impl RtcpLink {
    /// Sends a packet if that is possible without waiting.
    pub(super) fn try_send(&self, packet: &[u8]) {
        match self {
            RtcpLink::Channel(channel) => drop(channel.try_send(packet)),
            RtcpLink::Udp(UdpRtcp { socket, to, .. }) => {
                if let Some(to) = *to.lock().unwrap_or_else(|e| e.into_inner()) {
                    let _ = socket.try_send_to(packet, to);
                }
            }
        }
    }
}

/// The RTCP side of this receiver.
pub(super) struct RtcpReporter {
    link: RtcpLink,
    ssrc: u32,
    cname: String,
    stats: Arc<Mutex<StreamStats>>,
    clock: Clock,
    /// BYE of other ports of the sender's host is refused.
    is_strict: bool,
    /// Notified once when the sender sends BYE.
    pub(super) bye: Notify,
}

impl RtcpReporter {
    pub(super) fn new(link: RtcpLink, stats: Arc<Mutex<StreamStats>>) -> RtcpReporter {
        let (ssrc, cname) = (random_u32(), random_cname());
        let (clock, bye) = (Clock::HOST, Notify::new());
        RtcpReporter { link, ssrc, cname, stats, clock, is_strict: false, bye }
    }

    /// A reporter of a recorder, for which a forged BYE would end a recording.
    pub(super) fn of_recorder(
        link: RtcpLink,
        stats: Arc<Mutex<StreamStats>>,
        clock: &Clock,
    ) -> RtcpReporter {
        let clock = clock.clone();
        RtcpReporter { is_strict: true, clock, ..RtcpReporter::new(link, stats) }
    }

    /// Number of reports sent.
    pub(super) fn sent(&self) -> u64 {
        lock(&self.stats).rtcp.sent
    }

    /// Receives RTCP until it is dropped, and sends nothing.
    pub(super) async fn listen(&self) -> Infallible {
        loop {
            let (packet, from) = self.link.receive().await;
            self.receive_report(&packet, from);
        }
    }

    /// Receives and reports until it is dropped.
    pub(super) async fn exchange(&self) -> Infallible {
        let mut next = tokio::time::Instant::now() + rtcp::report_interval(true, random_u32());
        loop {
            tokio::select! {
                (packet, from) = self.link.receive() => self.receive_report(&packet, from),
                () = tokio::time::sleep_until(next) => {
                    self.report().await;
                    next = tokio::time::Instant::now() + rtcp::report_interval(false, random_u32());
                }
            }
        }
    }

    /// Sends a last report, and BYE.
    pub(super) async fn leave(&self) {
        self.report().await;
        self.send(&rtcp::receiver_bye(self.ssrc, &self.cname, "")).await;
    }

    fn receive_report(&self, datagram: &[u8], from: Option<SocketAddr>) {
        let arrival = self.clock.now();
        let mut stats = lock(&self.stats);
        let Ok(seen) = rtcp::parse(datagram) else {
            stats.rtcp.malformed += 1;
            return;
        };
        for item in seen {
            match item {
                RtcpItem::Sender(sender) if stats.ssrc().is_none_or(|ssrc| ssrc == sender.ssrc) => {
                    stats.rtcp.sender_reports += 1;
                    stats.rtcp.last_sender = Some((sender, arrival));
                    self.link.note_source(from);
                }
                // Its packets may wait in the socket.
                RtcpItem::Sender(sender) => stats.rtcp.ahead = Some((sender, arrival)),
                RtcpItem::Bye { ssrc } if stats.ssrc().is_none_or(|source| source == ssrc) => {
                    let is_refused = self.is_strict && !self.link.is_peer(from);
                    if let Some(stranger) = from.filter(|_| is_refused) {
                        stats.rtcp.byes_refuted += 1;
                        stats.packets.refused.note(stranger, 1, RefusalReason::Bye);
                        continue;
                    }
                    stats.note_bye(ssrc, arrival);
                    self.bye.notify_one();
                }
                _ => {}
            }
        }
    }

    async fn report(&self) {
        let reports = {
            let mut stats = lock(&self.stats);
            let sender = stats.rtcp.last_sender;
            let source = stats.ssrc().filter(|_| stats.reception().received() > 0);
            let reception = &mut stats.receiver.sources.reception;
            source.map(|ssrc| block(reception, ssrc, sender, self.clock.now()))
        };
        self.send(&rtcp::receiver_report(self.ssrc, reports.as_slice(), &self.cname)).await;
    }

    async fn send(&self, datagram: &[u8]) {
        // The next report makes up for an unsent one.
        if self.link.send(datagram).await {
            lock(&self.stats).rtcp.sent += 1;
        }
    }
}

/// Returns the initial target of reports: the port of SETUP, at the server's own host. Another host
/// (`source=`) may be an uninvolved third party, and gets no report before it has sent a sender
/// report.
pub(super) fn report_target(
    set_up: &SetupReply,
    host: IpAddr,
    server: IpAddr,
) -> Option<SocketAddr> {
    let is_own = host.to_canonical() == server.to_canonical();
    set_up.server.filter(|_| is_own).map(|ports| SocketAddr::new(host, ports.rtcp))
}

/// Makes the report block of a source `now`, from its last sender report and the time of its
/// arrival.
pub(super) fn block(
    reception: &mut Reception,
    ssrc: u32,
    sender: Option<(rtcp::SenderInfo, Instant)>,
    now: Instant,
) -> rtcp::ReceptionReport {
    let mut report = reception.report(ssrc);
    if let Some((sender, arrival)) = sender {
        report.last_sender_report = rtcp::ntp_middle(sender.ntp);
        report.delay_since_last_sender_report =
            rtcp::delay_units(now.saturating_duration_since(arrival));
    }
    report
}

const DATAGRAM_BYTES_MAX: usize = 2048;
const PAUSE_AFTER_ERROR: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::rtp_receiver::{RtpReceiver, SingleSource};

    #[test]
    fn a_host_that_a_server_names_gets_no_reports_from_the_start() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let ports = wire::rtsp::PortPair { rtp: 5000, rtcp: 5001 };
        let timeout = std::time::Duration::ZERO;
        let set_up = SetupReply {
            server: Some(ports),
            source: None,
            is_interleaved: false,
            channels: None,
            multicast: None,
            ssrc: None,
            timeout,
            ignored: Vec::new(),
        };
        let to = |host: &str, server: &str| report_target(&set_up, ip(host), ip(server));
        assert_eq!(to("10.0.0.1", "::ffff:10.0.0.1"), Some("10.0.0.1:5001".parse().unwrap()));
        assert_eq!(to("10.0.0.2", "10.0.0.1"), None);
    }

    /// Regression: a BYE of another port of the camera's host ended a session that stood still for
    /// half a second.
    #[tokio::test]
    async fn bye_of_another_port_than_the_named_one_is_refused() {
        let at = |port: u16| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let link = |host, to| {
            RtcpLink::udp(std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), host, to).unwrap()
        };
        let host = Some(IpAddr::from([127, 0, 0, 1]));
        let named = link(host, at(5001));
        let found = [5001, 5000, 5002, 6001].map(|port| named.is_peer(at(port)));
        assert_eq!(found, [true, true, false, false]);
        assert!(link(host, None).is_peer(at(6001)), "no address is named");
        assert!(link(None, at(5001)).is_peer(at(6001)), "a description names no sender");
        let receiver = RtpReceiver::new(96, SingleSource::new(Some(7), 90_000), None);
        let stats = Arc::new(Mutex::new(StreamStats::new(receiver, 90_000)));
        let reporter = RtcpReporter::of_recorder(named, stats.clone(), &Clock::HOST);
        let sender = rtcp::SenderInfo { ssrc: 7, ntp: 1, rtp_timestamp: 0, packets: 1, octets: 1 };
        let bye = rtcp::sender_bye(&sender, "camera", "");
        for (port, has_left) in [(6001, false), (5001, true)] {
            reporter.receive_report(&bye, at(port));
            let stats = lock(&stats);
            assert_eq!((stats.has_sent_bye(), stats.rtcp.byes_refuted), (has_left, 1));
        }
    }

    /// A flood of reports from one sender must not starve other sessions.
    #[tokio::test]
    async fn reports_that_wait_are_not_all_read_in_one_turn() {
        let [own, sender] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        for _ in 0..REPORTS {
            sender.send_to(&[0; 8], own.local_addr().unwrap()).unwrap();
        }
        let link = RtcpLink::udp(own, None, None).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let count = received.clone();
        let listening = tokio::spawn(async move {
            loop {
                link.receive().await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (mut before, mut most) = (0, 0);
        while before < REPORTS {
            tokio::task::yield_now().await;
            let now = received.load(Ordering::Relaxed);
            most = most.max(now - before);
            before = now;
        }
        listening.abort();
        assert!(most < REPORTS, "{most} in a turn");
    }

    /// As many as fit in the buffer of a socket of the usual size.
    const REPORTS: u64 = 200;
}
