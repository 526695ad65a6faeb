// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP of a recorder: sender reports and BYE in, receiver reports out, one task a stream.
//!
//! The port is the one after that of RTP (RFC 3550 §11), where it is free and no other stream's;
//! else reports leave from any port and sender reports are not heard. Reports go where the last
//! sender report came from, and before one has come to the port after the sender's; to a group that
//! anybody may send to they go as RFC 3550 §6 wants, to the group, and for source-specific groups
//! straight to the sender (RFC 5760 §7.2). Nothing is sent before RTP was received. Costs one
//! datagram of 60 bytes in five seconds.
//!
//! Sources: RFC 3550 §6.2, §6.4.2, §6.6, §11; RFC 5760.
//! Does not do: widen the interval for a large group (§6.3).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use paths::Port;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, sleep_until};
use wire::rtcp::{self, Seen, Sender};

use crate::receiver::lock;
use crate::stream::Stream;

/// What has gone and come; shared with those who show it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exchanged {
    pub(crate) sent: u64,
    pub(crate) sender_reports: u64,
    pub(crate) byes: u64,
    last: Option<(Sender, std::time::Instant)>,
    /// Where the last report of the source came from, or SETUP said that it is.
    pub(crate) to: Option<SocketAddr>,
}

/// This receiver, as senders see it.
pub(crate) struct Reporter<'a> {
    pub(crate) socket: UdpSocket,
    pub(crate) stream: &'a Mutex<Stream>,
    pub(crate) exchanged: &'a Mutex<Exchanged>,
    /// The group reports go to, if they do.
    pub(crate) group: Option<SocketAddr>,
    pub(crate) ssrc: u32,
}

/// The reports of what is sent to a port; `is_free` says that the port after it is no stream's.
/// Ends never.
pub(crate) async fn of_port(
    port: &Port,
    is_free: bool,
    stream: &Mutex<Stream>,
    exchanged: &Mutex<Exchanged>,
) {
    // A bare stream has no RTCP.
    while lock(stream).sources.followed().is_none() {
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
    Reporter { socket, stream, exchanged, group, ssrc: random() }.exchange().await;
}

impl Reporter<'_> {
    /// Listens and reports until it is dropped.
    pub(crate) async fn exchange(&self) {
        let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
        let mut next = Instant::now() + rtcp::report_interval(true, random());
        loop {
            tokio::select! {
                received = self.socket.recv_from(&mut datagram) => match received {
                    Ok((bytes, from)) => self.hear(&datagram[..bytes], from),
                    // What an ICMP message left behind, or memory that is short: RTCP can wait.
                    Err(_) => sleep(PAUSE_AFTER_ERROR).await,
                },
                () = sleep_until(next) => {
                    self.report();
                    next = Instant::now() + rtcp::report_interval(false, random());
                }
            }
        }
    }

    fn hear(&self, datagram: &[u8], from: SocketAddr) {
        let Ok(seen) = rtcp::parse(datagram) else { return };
        let mut stream = lock(self.stream);
        let followed = stream.sources.followed().map(|source| source.ssrc);
        for item in seen {
            match item {
                Seen::Sender(sender) if followed == Some(sender.ssrc) => {
                    let mut exchanged = lock(self.exchanged);
                    exchanged.sender_reports += 1;
                    exchanged.last = Some((sender, std::time::Instant::now()));
                    exchanged.to = Some(from);
                }
                Seen::Bye { ssrc } if followed == Some(ssrc) => {
                    lock(self.exchanged).byes += 1;
                    stream.sources.leave(ssrc);
                }
                _ => {}
            }
        }
    }

    fn report(&self) {
        let (report, heard) = {
            let mut stream = lock(self.stream);
            let heard = stream.heard;
            let followed = stream.sources.followed().map(|source| source.ssrc);
            let source = followed.and_then(|ssrc| stream.sources.find(ssrc));
            (source.map(|source| source.reception.report(source.ssrc)), heard)
        };
        let Some(((_, sender), mut report)) = heard.zip(report) else { return };
        let mut exchanged = lock(self.exchanged);
        if let Some((said, arrival)) = exchanged.last.filter(|(said, _)| said.ssrc == report.ssrc) {
            report.last_sender_report = rtcp::ntp_middle(said.ntp);
            report.delay_since_last_sender_report = rtcp::delay_units(arrival.elapsed());
        }
        let to = self.group.or(exchanged.to).unwrap_or_else(|| after(sender));
        let datagram = rtcp::receiver_report(self.ssrc, &[report], &self.cname());
        // One that does not get out is made up for by the next.
        exchanged.sent += u64::from(self.socket.try_send_to(&datagram, to).is_ok());
    }

    fn cname(&self) -> String {
        format!("receive-{:08x}", self.ssrc)
    }
}

impl Drop for Reporter<'_> {
    /// The last report, and BYE (§6.6).
    fn drop(&mut self) {
        self.report();
        let sender = lock(self.stream).heard.map(|(_, sender)| after(sender));
        let mut exchanged = lock(self.exchanged);
        if let Some(to) = self.group.or(exchanged.to).or(sender).filter(|_| exchanged.sent > 0) {
            let datagram = rtcp::receiver_bye(self.ssrc, &self.cname(), "");
            exchanged.sent += u64::from(self.socket.try_send_to(&datagram, to).is_ok());
        }
    }
}

/// The port for RTCP beside that for RTP, or any.
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
        let interface = port.interface.as_deref().and_then(crate::receiver::interface_number);
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

/// §11: RTCP is at the next port.
fn after(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port().wrapping_add(1))
}

pub(crate) fn random() -> u32 {
    getrandom::u32().expect("the kernel has random bits once it runs")
}

const DATAGRAM_BYTES_MAX: usize = 2048;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
