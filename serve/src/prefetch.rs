// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resident pages: threads that keep each session's coming seconds in the page cache, so that the
//! pacer never waits for a disk.
//!
//! A pacer asks for a window of a file and goes on; a reader thread makes the window resident and
//! moves the session's mark; the pacer sends up to the mark and no further. A session whose pages
//! do not come is late alone. At most one thread works on one file at a time, so a file on a
//! stalled disk holds one thread however many sessions want it. What one session had made resident
//! is known to all sessions of the asset for a second ([`Residency`]), so an asset that many play
//! costs a `madvise(MADV_POPULATE_READ)` a window, not one a window and session.
//!
//! Sources: madvise(2), DESIGN "A streamed byte's journey".
//! Blocks of a wire image are compared with their checksums here ([`crate::wire_image`]).
//!
//! Does not do: pin pages. Under memory pressure a page can go between the mark and the send; the
//! send then waits for it. Measured cost of pinning every session's window was not worth it: none
//! was seen.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use media::plan::PacketPlan;

use crate::asset::Source;
use crate::error::Error;

/// How far a session's pages are known to be in memory, in one form of its asset.
#[derive(Default)]
pub(crate) struct ReadyRange(Mutex<ReadyRangeState>);

#[derive(Default)]
struct ReadyRangeState {
    ready: Range<u64>,
    asked: bool,
    failed: bool,
}

impl ReadyRange {
    /// One past the last sendable packet, as seen from `packet`; `packet` itself when nothing is
    /// known.
    pub(crate) fn ready_to(&self, packet: u64) -> u64 {
        let state = self.0.lock().unwrap();
        if state.ready.contains(&packet) { state.ready.end } else { packet }
    }

    /// True when no request is under way, and notes that one is now.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        !std::mem::replace(&mut state.asked, true)
    }

    /// True when the pages cannot be had: the file is shorter than its plan, or the disk failed.
    pub(crate) fn failed(&self) -> bool {
        self.0.lock().unwrap().failed
    }

    /// The pages of these packets are there, or (not `good`) cannot be had.
    pub(crate) fn answer(&self, packets: Range<u64>, good: bool) {
        let mut state = self.0.lock().unwrap();
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

/// Which bytes hold the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendForm {
    Source,
    Image,
}

/// When which part of an asset was last made resident, in one form of it, for all its sessions.
pub(crate) struct Residency {
    began: Instant,
    /// A second since `began`, plus one, for each [`PART_PACKETS`]; 0 for never.
    stamps: Vec<AtomicU32>,
}

impl Residency {
    pub(crate) fn new(packets: u64) -> Residency {
        let parts = packets.div_ceil(PART_PACKETS) as usize;
        let stamps = (0..parts).map(|_| AtomicU32::new(0)).collect();
        Residency { began: Instant::now(), stamps }
    }

    /// Whether all of these packets were made resident within the last second or two.
    pub(crate) fn is_fresh(&self, packets: &Range<u64>) -> bool {
        let now = self.now();
        self.parts(packets).iter().all(|stamp| {
            let stamp = stamp.load(Ordering::Relaxed);
            stamp > 0 && now - stamp.min(now) <= FRESH_S
        })
    }

    /// These packets, whole parts of the asset, have been made resident now.
    fn note(&self, packets: &Range<u64>) {
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

/// `packets` grown to whole parts of an asset of `all` packets.
pub(crate) fn whole_parts(packets: Range<u64>, all: u64) -> Range<u64> {
    let end = packets.end.next_multiple_of(PART_PACKETS).min(all);
    packets.start - packets.start % PART_PACKETS..end
}

/// A request: these packets of this file, for this session.
pub(crate) struct Window {
    pub(crate) source: Arc<Source>,
    pub(crate) form: SendForm,
    pub(crate) packets: Range<u64>,
    pub(crate) mark: Arc<ReadyRange>,
}

/// The function that makes a window resident; blocks. Tests put a slow one in its place.
pub(crate) type Fetch = fn(&Window) -> bool;

/// The threads and their queue.
pub(crate) struct Readers {
    shared: Arc<PrefetchQueue>,
    threads: Vec<JoinHandle<()>>,
}

struct PrefetchQueue {
    queue: Mutex<Queue>,
    wake: Condvar,
    fetch: Fetch,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Window>,
    /// Addresses of the sources being worked on; each is kept alive by the window in work.
    busy: HashSet<usize>,
    stopped: bool,
}

impl Readers {
    pub(crate) fn start(fetch: Fetch) -> Result<Readers, Error> {
        let shared =
            Arc::new(PrefetchQueue { queue: Mutex::default(), wake: Condvar::new(), fetch });
        let mut threads = Vec::new();
        for index in 0..READERS {
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("reader-{index}"))
                .spawn(move || shared.work())
                .map_err(|source| Error::Host {
                    call: "clone",
                    object: format!("thread reader-{index}"),
                    source,
                })?;
            threads.push(thread);
        }
        Ok(Readers { shared, threads })
    }

    /// A handle for pacers.
    pub(crate) fn prefetch_handle(&self) -> PrefetchHandle {
        PrefetchHandle(self.shared.clone())
    }

    pub(crate) fn stop(self) {
        self.shared.queue.lock().unwrap().stopped = true;
        self.shared.wake.notify_all();
        for thread in self.threads {
            // A thread that panicked has said so; stopping goes on.
            let _ = thread.join();
        }
    }
}

/// Puts requests into the queue; never blocks on a disk.
#[derive(Clone)]
pub(crate) struct PrefetchHandle(Arc<PrefetchQueue>);

impl PrefetchHandle {
    pub(crate) fn ask(&self, window: Window) {
        self.0.queue.lock().unwrap().waiting.push_back(window);
        self.0.wake.notify_one();
    }
}

impl PrefetchQueue {
    fn work(&self) {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if queue.stopped {
                return;
            }
            let free = |w: &Window| !queue.busy.contains(&address(w));
            let Some(index) = queue.waiting.iter().position(free) else {
                queue = self.wake.wait(queue).unwrap();
                continue;
            };
            let window = queue.waiting.remove(index).expect("position is in range");
            queue.busy.insert(address(&window));
            drop(queue);
            let good = (self.fetch)(&window);
            if good {
                window.source.residence(window.form).note(&window.packets);
            }
            window.mark.answer(window.packets.clone(), good);
            queue = self.queue.lock().unwrap();
            queue.busy.remove(&address(&window));
            // Requests for this file were passed over by the others while it was busy.
            self.wake.notify_one();
        }
    }
}

fn address(window: &Window) -> usize {
    Arc::as_ptr(&window.source) as usize
}

/// The real [`Fetch`].
pub(crate) fn fetch(window: &Window) -> bool {
    let (plan, packets) = (&window.source.asset.plan, &window.packets);
    let fetched = match window.form {
        SendForm::Source => window.source.media.prefetch(file_range(plan, packets)),
        SendForm::Image => {
            let range = plan.wire_offset(packets.start)..plan.wire_offset(packets.end);
            return window.source.image().is_some_and(|image| image.make_ready(range));
        }
    };
    match fetched {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("{}: packets {packets:?}: {error}", window.source.asset.name);
            false
        }
    }
}

/// One past the last packet of a window that begins at `packets.start`: as many of `packets` as lie
/// in `bytes_max` bytes of this form of the asset.
pub(crate) fn within(
    plan: &PacketPlan,
    form: SendForm,
    packets: Range<u64>,
    bytes_max: u64,
) -> u64 {
    let Range { start, end } = packets;
    let fits = |end: u64| {
        let bytes = match form {
            SendForm::Source => file_range(plan, &(start..end)),
            SendForm::Image => plan.wire_offset(start)..plan.wire_offset(end),
        };
        bytes.end - bytes.start <= bytes_max
    };
    // Nearly always: two seconds of all but the largest rates.
    if fits(end) {
        return end;
    }
    let (mut most, mut too_many) = (start, end);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if fits(middle) { most = middle } else { too_many = middle }
    }
    most
}

/// The bytes of the file from the first packet's payload to the last one's.
fn file_range(plan: &PacketPlan, packets: &Range<u64>) -> Range<u64> {
    if packets.is_empty() {
        return 0..0;
    }
    let last = plan.payload(packets.end - 1);
    let end = last.file_offset + last.ts_packets * plan.stride();
    plan.payload(packets.start).file_offset..end.min(plan.file_bytes())
}

/// 340 kB at the usual packet size: a few loads say whether two seconds are there.
const PART_PACKETS: u64 = 256;
/// Pages used this lately are the last that a kernel short of memory takes.
const FRESH_S: u32 = 1;
/// Threads. Each waits for one disk request at a time; more than the queue depth of a disk is of no
/// use.
const READERS: usize = 4;

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
