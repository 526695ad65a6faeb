// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP of a stream of one session among thousands: the sender's count, BYE, and receiver reports.
//!
//! The sender's packet count makes a counted session accountable: its last report (with BYE) is
//! compared with the socket's own count. A verified session reports its reception; any other sends
//! an empty report (RFC 3550 §6.4.2).
//!
//! Costs a datagram of about 60 bytes each way in five seconds.
//!
//! Sources: RFC 3550 §6.2, §6.3.1, §6.4, §6.6.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use wire::rtcp::{self, RtcpItem};

use super::sampled_stats::SampledStats;
use crate::random::{random_cname, random_u32};
use crate::rtcp_reporter::{RtcpLink, block};
use crate::stream_stats::lock;

/// A stream's RTCP.
pub(super) struct SessionRtcp {
    link: RtcpLink,
    /// SSRC of this receiver.
    ssrc: u32,
    cname: String,
    /// SSRC of the sender, if SETUP has named it.
    sender: Option<u32>,
    last_report: Option<(rtcp::SenderInfo, Instant)>,
    /// Packets that the sender had counted at its first report.
    pub(super) first_count: Option<u32>,
    pub(super) has_sent_bye: bool,
}

impl SessionRtcp {
    pub(super) fn new(link: RtcpLink, sender: Option<u32>) -> SessionRtcp {
        let (ssrc, cname) = (random_u32(), random_cname());
        let (last_report, first_count, has_sent_bye) = (None, None, false);
        SessionRtcp { link, ssrc, cname, sender, last_report, first_count, has_sent_bye }
    }

    /// Waits for a packet and parses it. Dropping the future loses none.
    pub(super) async fn receive_report(&mut self) {
        let (packet, from) = self.receive().await;
        self.take(&packet, from);
    }

    /// Waits for a packet, for [`take`](Self::take). Dropping the future loses none.
    pub(super) async fn receive(&self) -> (Vec<u8>, Option<SocketAddr>) {
        self.link.receive().await
    }

    /// Parses a packet.
    pub(super) fn take(&mut self, datagram: &[u8], from: Option<SocketAddr>) {
        let Ok(seen) = rtcp::parse(datagram) else { return };
        let is_its = |ssrc: u32, sender: Option<u32>| sender.is_none_or(|sender| sender == ssrc);
        for item in seen {
            match item {
                RtcpItem::Sender(report) if is_its(report.ssrc, self.sender) => {
                    self.first_count.get_or_insert(report.packets);
                    self.last_report = Some((report, Instant::now()));
                    self.link.note_source(from);
                }
                RtcpItem::Bye { ssrc } if is_its(ssrc, self.sender) => self.has_sent_bye = true,
                _ => {}
            }
        }
    }

    /// Total packets that the sender has sent; known after its BYE.
    pub(super) fn sent_in_all(&self) -> Option<u32> {
        self.last_report.filter(|_| self.has_sent_bye).map(|(report, _)| report.packets)
    }

    /// Sends a report of the reception, if that is known.
    pub(super) fn report(&self, stats: Option<&Mutex<SampledStats>>) {
        let block = stats.and_then(|stats| {
            let mut stats = lock(stats);
            let ssrc = stats.ssrc().filter(|_| stats.reception().received() > 0)?;
            Some(block(
                &mut stats.receiver.sources.reception,
                ssrc,
                self.last_report,
                Instant::now(),
            ))
        });
        self.send(&rtcp::receiver_report(self.ssrc, block.as_slice(), &self.cname));
    }

    /// Time until the next report.
    pub(super) fn next_report_after() -> Duration {
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
        // The next report makes up for an unsent one.
        self.link.try_send(datagram);
    }
}
