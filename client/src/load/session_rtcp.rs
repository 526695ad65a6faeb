// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP of one session among thousands: the sender's count, BYE, and receiver reports.
//!
//! The sender's count of packets makes a session accountable whose packets are only counted: its
//! last report (with BYE) is compared with the socket's own count. A verified session reports what
//! it received; any other sends an empty report (RFC 3550 §6.4.2).
//!
//! Costs a datagram of about 60 bytes each way in five seconds.
//!
//! Sources: RFC 3550 §6.2, §6.3.1, §6.4, §6.6.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use wire::rtcp::{self, RtcpItem};

use super::sampled_stats::SampledStats;
use crate::error::Error;
use crate::random::{random_cname, random_u32};
use crate::receive_thread::lock;
use crate::rtcp_reporter::block;

/// A session's RTCP.
pub(super) struct SessionRtcp {
    socket: UdpSocket,
    host: IpAddr,
    /// Target of reports: the address of SETUP, else the source of the first sender report.
    to: Option<SocketAddr>,
    /// SSRC of this receiver.
    ssrc: u32,
    cname: String,
    /// SSRC of the sender, where SETUP has named it.
    sender: Option<u32>,
    last_report: Option<(rtcp::SenderInfo, Instant)>,
    /// Packets that the sender had counted at its first report.
    pub(super) first_count: Option<u32>,
    pub(super) has_sent_bye: bool,
}

impl SessionRtcp {
    pub(super) fn new(
        socket: std::net::UdpSocket,
        host: IpAddr,
        to: Option<SocketAddr>,
        sender: Option<u32>,
    ) -> Result<SessionRtcp, Error> {
        let failed =
            |call| move |source| Error::Host { call, object: "RTCP socket".into(), source };
        socket.set_nonblocking(true).map_err(failed("fcntl"))?;
        let socket = UdpSocket::from_std(socket).map_err(failed("epoll_ctl"))?;
        let (ssrc, cname) = (random_u32(), random_cname());
        let (last_report, first_count, has_sent_bye) = (None, None, false);
        Ok(SessionRtcp {
            socket,
            host,
            to,
            ssrc,
            cname,
            sender,
            last_report,
            first_count,
            has_sent_bye,
        })
    }

    /// Waits for datagrams and reads them. Dropping the future loses none.
    pub(super) async fn receive_report(&mut self) {
        // The next read removes an ICMP message that was left behind.
        let _ = self.socket.readable().await;
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        while let Ok((bytes, from)) = self.socket.try_recv_from(&mut datagram) {
            if from.ip().to_canonical() == self.host.to_canonical() {
                self.take(&datagram[..bytes], from);
            }
        }
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr) {
        let Ok(seen) = rtcp::parse(datagram) else { return };
        let is_its = |ssrc: u32, sender: Option<u32>| sender.is_none_or(|sender| sender == ssrc);
        for item in seen {
            match item {
                RtcpItem::Sender(report) if is_its(report.ssrc, self.sender) => {
                    self.first_count.get_or_insert(report.packets);
                    self.last_report = Some((report, Instant::now()));
                    self.to.get_or_insert(from);
                }
                RtcpItem::Bye { ssrc } if is_its(ssrc, self.sender) => self.has_sent_bye = true,
                _ => {}
            }
        }
    }

    /// Packets that the sender has sent in all; known once it has said BYE.
    pub(super) fn sent_in_all(&self) -> Option<u32> {
        self.last_report.filter(|_| self.has_sent_bye).map(|(report, _)| report.packets)
    }

    /// Sends a report of what was received, where that is known; returns the time until the next.
    pub(super) fn report(&self, stats: Option<&Mutex<SampledStats>>) -> Duration {
        let block = stats.and_then(|stats| {
            let mut stats = lock(stats);
            let ssrc = stats.ssrc().filter(|_| stats.reception().received() > 0)?;
            Some(block(&mut stats.receiver.sources.reception, ssrc, self.last_report))
        });
        self.send(&rtcp::receiver_report(self.ssrc, block.as_slice(), &self.cname));
        rtcp::report_interval(false, random_u32())
    }

    /// Time until the first report.
    pub(super) fn first_report_after() -> Duration {
        rtcp::report_interval(true, random_u32())
    }

    pub(super) fn leave(&self) {
        self.send(&rtcp::receiver_bye(self.ssrc, &self.cname, ""));
    }

    fn send(&self, datagram: &[u8]) {
        // The next report makes up for one that is not sent.
        if let Some(to) = self.to {
            let _ = self.socket.try_send_to(datagram, to);
        }
    }
}

const DATAGRAM_BYTES_MAX: usize = 1500;
