// SPDX-License-Identifier: MIT OR Apache-2.0
//! stream_session: one client's stream on the control side, and the table of all sessions.
//!
//! A session is found by its RTSP identifier (128 random bits, and only from the address that
//! created it), by its RTCP address, and by its number (pacer events). It ends once, by
//! [`StreamSessions::end`], which frees the port, the socket and the pacer's entry. Costs about 1
//! KiB a session here, plus its socket in the kernel.
//!
//! Sources: RFC 2326 §3.4, §12.37 (session identifiers), RFC 3550 §6.
//! Does no I/O.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use media::TICKS_PER_SECOND;

use crate::library::asset::Source;
use crate::limits::SessionPermit;
use crate::pacer::Handle;
use crate::prefetch::{ReadyRange, SendForm};
use crate::rtsp::icmp_faults::{Fault, FaultKind};
use crate::rtsp::session_transport::{SessionTransport, UdpTransport};

/// Maps wall-clock time to media ticks from one reference point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MediaClock {
    pub(crate) moment: Instant,
    pub(crate) ticks: u64,
}

impl MediaClock {
    pub(crate) fn ticks_at(&self, moment: Instant) -> u64 {
        let passed = crate::pacer::ticks(moment.saturating_duration_since(self.moment));
        self.ticks.saturating_add(passed)
    }

    pub(crate) fn moment_of(&self, ticks: u64) -> Instant {
        let ahead = u128::from(ticks.saturating_sub(self.ticks));
        let ns = ahead * 1_000_000_000 / u128::from(TICKS_PER_SECOND);
        self.moment + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Offset that a session adds to sequence numbers and timestamps of its asset's packets.
///
/// Both are continuous and monotonic across jumps (RFC 2326, appendix B): a receiver by RFC 3550
/// §A.1 discards a packet 3000 numbers ahead or 100 behind, and ffmpeg drops everything after a
/// jump back until the numbers have caught up. The shift is zero until the first jump, so the wire
/// image, which holds the asset's own numbers, serves all sessions that play straight on; after a
/// jump a session is served from the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
}

impl Shift {
    /// Returns the shift with which packet `to` continues in place of packet `from`.
    pub(crate) fn jump(self, source: &Arc<Source>, from: u64, to: u64) -> Shift {
        let start = |packet: u64| source.holding(packet).timestamp_of(packet);
        Shift {
            sequence: self.sequence.wrapping_add(from.wrapping_sub(to) as u16),
            timestamp: self.timestamp.wrapping_add(start(from).wrapping_sub(start(to))),
        }
    }
}

/// State of one session that pacer, readers and control share.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) source: Arc<ReadyRange>,
    pub(crate) image: Arc<ReadyRange>,
    progress: Mutex<Progress>,
}

/// Progress of a session's sending.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The next packet of the file or channel to send.
    pub(crate) next: u64,
    /// Packets and payload octets sent, as RTCP counts them.
    pub(crate) packets: u64,
    pub(crate) octets: u64,
    pub(crate) late_max: Duration,
    pub(crate) stalls: u64,
    /// Packets that a slow reader has missed.
    pub(crate) skipped: u64,
    /// Clock of the running play, or of the last one while paused, in ticks of the file or channel.
    pub(crate) clock: Option<MediaClock>,
    /// Path fault claimed by verified ICMP reports.
    pub(crate) fault: Option<Fault>,
}

/// Packets sent by one step of the pacer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    /// Payload octets.
    pub(crate) octets: u64,
    pub(crate) late_max: Duration,
}

impl Sent {
    /// Adds the packets of one call.
    pub(crate) fn add(&mut self, packets: u64, octets: u64, late: Duration) {
        self.packets += packets;
        self.octets += octets;
        self.late_max = self.late_max.max(late);
    }
}

impl Link {
    pub(crate) fn mark(&self, form: SendForm) -> Arc<ReadyRange> {
        match form {
            SendForm::Source => self.source.clone(),
            SendForm::Image(_) => self.image.clone(),
        }
    }

    pub(crate) fn start_clock(&self, clock: MediaClock) {
        self.progress.lock().unwrap().clock = Some(clock);
    }

    /// Adds the packets of one step; `next` follows them.
    pub(crate) fn count(&self, next: u64, sent: Sent) {
        let mut progress = self.progress.lock().unwrap();
        progress.next = next;
        progress.packets += sent.packets;
        progress.octets += sent.octets;
        progress.late_max = progress.late_max.max(sent.late_max);
    }

    /// Counts packets that a slow reader has missed; `next` follows them.
    pub(crate) fn skip(&self, next: u64, packets: u64) {
        let mut progress = self.progress.lock().unwrap();
        progress.next = next;
        progress.skipped += packets;
    }

    /// Sets the position of a play about to begin. Called while the pacer does not send.
    pub(crate) fn start_at(&self, next: u64) {
        self.progress.lock().unwrap().next = next;
    }

    pub(crate) fn count_stall(&self) {
        self.progress.lock().unwrap().stalls += 1;
    }

    pub(crate) fn report_fault(&self, kind: FaultKind, now: Instant) {
        let mut progress = self.progress.lock().unwrap();
        progress.fault = Some(Fault::after(progress.fault, kind, now));
    }

    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock().unwrap()
    }
}

/// A session.
pub(crate) struct StreamSession {
    pub(crate) number: u64,
    pub(crate) id: String,
    /// The host that created the session; only this host may command it.
    pub(crate) peer: IpAddr,
    pub(crate) source: Arc<Source>,
    pub(crate) link: Arc<Link>,
    /// `None` for a session whose media goes to a group.
    pub(crate) pacer: Option<Handle>,
    pub(crate) transport: SessionTransport,
    /// Canonical name in the sender reports (RFC 7022).
    pub(crate) cname: String,
    /// Number of the control connection that created the session.
    pub(crate) connection: u64,
    pub(crate) control: Mutex<SessionControl>,
    /// Released when the session ends, before later holders drop the session.
    pub(crate) permit: Mutex<Option<SessionPermit>>,
}

impl StreamSession {
    /// Stops the session's media; returns the next packet once nothing more will be sent.
    pub(crate) async fn pause(&self) -> Option<u64> {
        self.pacer.as_ref()?.pause().await
    }
}

/// The part of a session that commands and time change.
pub(crate) struct SessionControl {
    pub(crate) state: wire::rtsp::RtspSession,
    pub(crate) receiver: wire::rtcp::ReceiverView,
    /// First packet of the next PLAY without a range, and its end.
    pub(crate) resume: u64,
    pub(crate) end: u64,
    /// Shift of the current or last play.
    pub(crate) shift: Shift,
    /// Time of the next sender report.
    pub(crate) report_at: Duration,
    pub(crate) bye_sent: bool,
    /// Number of PLAYs, so that the end of an earlier one is not taken for that of a later.
    pub(crate) play: u64,
}

/// Table of all sessions. One lock, held for look-ups only.
pub(crate) struct StreamSessions {
    tables: Mutex<Tables>,
    next_number: AtomicU64,
}

#[derive(Default)]
struct Tables {
    by_id: HashMap<String, Arc<StreamSession>>,
    by_number: HashMap<u64, Arc<StreamSession>>,
    by_rtcp: HashMap<SocketAddr, Arc<StreamSession>>,
}

impl StreamSessions {
    pub(crate) fn new() -> StreamSessions {
        StreamSessions { tables: Mutex::default(), next_number: AtomicU64::new(1) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, session: Arc<StreamSession>) {
        let mut tables = self.tables.lock().unwrap();
        if let Some(rtcp_peer) = session.transport.rtcp_peer() {
            tables.by_rtcp.insert(rtcp_peer, session.clone());
        }
        tables.by_number.insert(session.number, session.clone());
        tables.by_id.insert(session.id.clone(), session);
    }

    /// Finds a session by RTSP identifier for commands from `peer`; `None` for other hosts'
    /// sessions.
    pub(crate) fn find(&self, id: &str, peer: IpAddr) -> Option<Arc<StreamSession>> {
        let tables = self.tables.lock().unwrap();
        tables.by_id.get(id).filter(|session| session.peer == peer).cloned()
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<StreamSession>> {
        self.tables.lock().unwrap().by_number.get(&number).cloned()
    }

    pub(crate) fn by_rtcp(&self, from: SocketAddr) -> Option<Arc<StreamSession>> {
        self.tables.lock().unwrap().by_rtcp.get(&from).cloned()
    }

    /// Removes the session and stops its stream. False if it was removed before.
    pub(crate) fn end(&self, session: &Arc<StreamSession>) -> bool {
        let mut tables = self.tables.lock().unwrap();
        if tables.by_number.remove(&session.number).is_none() {
            return false;
        }
        tables.by_id.remove(&session.id);
        let same = |found: &Arc<StreamSession>| found.number == session.number;
        if let Some(rtcp_peer) = session.transport.rtcp_peer()
            && tables.by_rtcp.get(&rtcp_peer).is_some_and(same)
        {
            tables.by_rtcp.remove(&rtcp_peer);
        }
        session.pacer.iter().for_each(Handle::remove);
        drop(session.permit.lock().unwrap().take());
        if let SessionTransport::Udp(UdpTransport { rtcp_task: Some(task), .. }) =
            &session.transport
        {
            task.abort();
        }
        true
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamSession>> {
        self.tables.lock().unwrap().by_number.values().cloned().collect()
    }

    /// Returns the number of sessions whose media uses their RTSP connection.
    pub(crate) fn interleaved(&self) -> usize {
        let tables = self.tables.lock().unwrap();
        tables.by_number.values().filter(|session| session.transport.is_interleaved()).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.lock().unwrap().by_number.len()
    }
}

/// Returns a random canonical name (CNAME).
pub(crate) fn random_cname() -> String {
    let mut bits = [0_u8; 12];
    getrandom::fill(&mut bits).expect("the kernel has random bits once it runs");
    wire::rtcp::cname(bits)
}

/// Returns 128 random bits in hexadecimal: RFC 2326 §3.4 asks for at least 64.
pub(crate) fn random_id() -> String {
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).expect("the kernel has random bits once it runs");
    bits.iter().map(|byte| format!("{byte:02x}")).collect()
}
