// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets that are in memory: those of one session ([`ReadyRange`]), and those of an asset
//! that were recently read for any of its sessions ([`Residency`]).
//!
//! Either is kept for the file and for a wire image apart ([`SendForm`]). Costs a lock for a
//! session, and an atomic load for each part of 256 packets of an asset.
//!
//! Does not read files ([`crate::prefetch`] does).

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::wire_image::ImageLayout;

/// Packets of a session that are in memory, in one form of its asset.
#[derive(Default)]
pub(crate) struct ReadyRange(Mutex<ReadyRangeState>);

#[derive(Default)]
struct ReadyRangeState {
    ready: Range<u64>,
    asked: bool,
    failed: bool,
}

impl ReadyRange {
    /// Returns one past the last sendable packet, seen from `packet`; `packet` itself when none is
    /// sendable.
    pub(crate) fn ready_to(&self, packet: u64) -> u64 {
        let state = self.0.lock();
        if state.ready.contains(&packet) { state.ready.end } else { packet }
    }

    /// Returns true and marks a request as pending, unless one is pending already.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.0.lock();
        !std::mem::replace(&mut state.asked, true)
    }

    /// True when the pages cannot be read: the file is shorter than its plan, or the disk failed.
    pub(crate) fn failed(&self) -> bool {
        self.0.lock().failed
    }

    /// Records that the pages of these packets are resident or (not `good`) cannot be read.
    pub(crate) fn answer(&self, packets: Range<u64>, good: bool) {
        let mut state = self.0.lock();
        state.asked = false;
        state.failed = !good;
        if !good {
            return;
        }
        let joins = (state.ready.start..=state.ready.end).contains(&packets.start);
        let start =
            if joins && !state.ready.is_empty() { state.ready.start } else { packets.start };
        state.ready = start..packets.end;
    }
}

/// File that holds the packets' bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendForm {
    Source,
    Image(ImageLayout),
}

impl SendForm {
    /// Returns 0 for the file and 1 for an image; a session has one image at most.
    pub(crate) const fn kind(self) -> usize {
        match self {
            SendForm::Source => 0,
            SendForm::Image(_) => 1,
        }
    }
}

/// Times at which parts of an asset were last made resident, in one form, for all its sessions.
pub(crate) struct Residency {
    began: Instant,
    /// Second since `began`, plus one, for each [`PART_PACKETS`]; 0 for never.
    stamps: Vec<AtomicU32>,
}

impl Residency {
    pub(crate) fn new(packets: u64) -> Residency {
        let parts = packets.div_ceil(PART_PACKETS) as usize;
        let stamps = (0..parts).map(|_| AtomicU32::new(0)).collect();
        Residency { began: Instant::now(), stamps }
    }

    /// True when all of these packets were made resident within the last second or two.
    pub(crate) fn is_fresh(&self, packets: &Range<u64>) -> bool {
        let now = self.now();
        self.parts(packets).iter().all(|stamp| {
            let stamp = stamp.load(Ordering::Relaxed);
            stamp > 0 && now - stamp.min(now) <= FRESH_S
        })
    }

    /// Records that these packets, whole parts of the asset, were made resident now.
    pub(super) fn note(&self, packets: &Range<u64>) {
        let now = self.now();
        for stamp in self.parts(packets) {
            stamp.store(now, Ordering::Relaxed);
        }
    }

    fn parts(&self, packets: &Range<u64>) -> &[AtomicU32] {
        let end = (packets.end.div_ceil(PART_PACKETS) as usize).min(self.stamps.len());
        let start = ((packets.start / PART_PACKETS) as usize).min(end);
        &self.stamps[start..end]
    }

    fn now(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs() + 1).unwrap_or(u32::MAX)
    }
}

/// Extends `packets` to whole parts of an asset of `all` packets.
pub(crate) fn whole_parts(packets: Range<u64>, all: u64) -> Range<u64> {
    let end = packets.end.next_multiple_of(PART_PACKETS).min(all);
    packets.start - packets.start % PART_PACKETS..end
}

/// Packets of a part: 340 kB at the usual packet size; a few loads check two seconds.
const PART_PACKETS: u64 = 256;
/// Age in seconds: the kernel evicts such recently used pages last.
const FRESH_S: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_resident_is_known_by_whole_parts() {
        let residence = Residency::new(1000);
        assert!(!residence.is_fresh(&(0..1)));
        residence.note(&whole_parts(300..400, 1000));
        assert!(residence.is_fresh(&(256..512)));
        assert!(!residence.is_fresh(&(255..257)), "the part before is not known");
        assert!(!residence.is_fresh(&(500..513)));
        residence.note(&whole_parts(600..1000, 1000));
        assert!(residence.is_fresh(&(256..1000)), "the last part may be a short one");
    }

    #[test]
    fn parts_are_whole_up_to_the_assets_end() {
        assert_eq!(whole_parts(0..1, 1000), 0..256);
        assert_eq!(whole_parts(256..512, 1000), 256..512);
        assert_eq!(whole_parts(511..513, 1000), 256..768);
        assert_eq!(whole_parts(999..1000, 1000), 768..1000);
    }

    #[test]
    fn a_mark_grows_by_what_joins_it_and_moves_by_what_does_not() {
        let mark = ReadyRange::default();
        mark.answer(0..256, true);
        mark.answer(256..512, true);
        assert_eq!((mark.ready_to(3), mark.ready_to(512)), (512, 512));
        mark.answer(1024..1280, true);
        assert_eq!((mark.ready_to(3), mark.ready_to(1030)), (3, 1280));
        mark.answer(768..1536, true);
        assert_eq!(mark.ready_to(1000), 1536);
        mark.answer(1536..1792, false);
        assert!(mark.failed());
    }
}
