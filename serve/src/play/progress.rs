// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a play: the state that pacer, readers and control side share.
//!
//! Uses one lock a session; the pacer acquires it once a step, the control side once a report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::clock::MediaClock;
use super::icmp_faults::{Fault, FaultKind};
use super::late_buckets::LateBuckets;
use super::shift::Shift;
use crate::prefetch::{ReadyRange, SendForm};

/// State of one session that pacer, readers and control side share.
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
    /// Lateness of the packets, without those of a slow reader.
    pub(crate) late: LateBuckets,
    pub(crate) stalls: u64,
    /// Send calls that the kernel refused for lack of buffer space.
    pub(crate) refused: u64,
    /// Name of the path that sent last; empty before the first packet.
    pub(crate) path: &'static str,
    /// Packets that a slow reader has missed.
    pub(crate) skipped: u64,
    /// Number of the current or last play.
    pub(crate) play: u64,
    /// Shift of that play, if it is one of a transport stream.
    pub(crate) shift: Shift,
    /// Sequence numbers by which that shift is ahead of the next packet: those of a lead that is
    /// still to be sent before it.
    pub(crate) ahead: u16,
    /// Clock of that play, in ticks of the file or channel; `None` until it has started.
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
    pub(crate) late: LateBuckets,
    /// Send calls that the kernel refused for lack of buffer space.
    pub(crate) refused: u64,
    /// Name of the path.
    pub(crate) path: &'static str,
    /// See [`Progress::ahead`].
    pub(crate) ahead: u16,
}

impl Sent {
    /// True if there is nothing to publish.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0 && self.refused == 0
    }

    /// Adds the packets of one call.
    pub(crate) fn add(&mut self, packets: u64, octets: u64, late: Duration) {
        self.late.add(late, packets);
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
        self.progress.lock().clock = Some(clock);
    }

    /// Adds the packets of one step; `next` is the packet after them.
    pub(crate) fn count(&self, next: u64, sent: Sent) {
        let mut progress = self.progress.lock();
        progress.next = next;
        progress.packets += sent.packets;
        progress.octets += sent.octets;
        progress.late_max = progress.late_max.max(sent.late_max);
        progress.late.merge(&sent.late);
        progress.refused += sent.refused;
        progress.path = sent.path;
        progress.ahead = sent.ahead;
    }

    /// Counts packets that a slow reader has missed; `next` is the packet after them.
    pub(crate) fn skip(&self, next: u64, packets: u64) {
        let mut progress = self.progress.lock();
        (progress.next, progress.ahead) = (next, 0);
        progress.skipped += packets;
    }

    /// Sets the position of a play that is about to begin, and the sequence numbers that its lead
    /// adds. Called while the pacer does not send.
    pub(crate) fn start_at(&self, next: u64, ahead: u16) {
        let mut progress = self.progress.lock();
        (progress.next, progress.ahead) = (next, ahead);
    }

    /// Records the play that begins.
    pub(crate) fn note_play(&self, play: u64, shift: Shift) {
        let mut progress = self.progress.lock();
        (progress.play, progress.shift, progress.clock) = (play, shift, None);
    }

    pub(crate) fn count_stall(&self) {
        self.progress.lock().stalls += 1;
    }

    pub(crate) fn report_fault(&self, kind: FaultKind, now: Instant) {
        let mut progress = self.progress.lock();
        progress.fault = Some(Fault::after(progress.fault, kind, now));
    }

    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock()
    }
}
