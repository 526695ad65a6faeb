// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that keep each session's coming seconds in the page cache, so that the pacer never waits
//! for a disk.
//!
//! A pacer requests a window of a file and continues; a reader thread makes the window resident and
//! advances the session's mark; the pacer sends up to the mark only. A missing page delays only its
//! session. At most one thread works on one file at a time, so a file on a stalled disk blocks one
//! thread however many sessions want it. A part made resident for one session is known to all
//! sessions of the asset for a second ([`Residency`]), so an asset with many sessions costs one
//! `madvise(MADV_POPULATE_READ)` a window, not one a window and session. Blocks of a wire image are
//! compared with their checksums here ([`crate::wire_image`]).
//!
//! Sources: madvise(2), ARCHITECTURE.md, "A streamed byte's journey".
//! Does not pin pages. Under memory pressure a page can be evicted between the mark and the send;
//! the send then waits for it. Pinning every session's window showed no measurable benefit.

mod residency;

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use media::plan::PacketPlan;
use parking_lot::{Condvar, Mutex};

pub(crate) use self::residency::{ReadyRange, Residency, SendForm, whole_parts};
use crate::error::Error;
use crate::library::asset::Source;
use crate::library::track_asset::{Chapter, ChapterKey, TrackSource};

/// A request to make packets of a file resident for a session.
pub(crate) struct Window {
    pub(crate) source: Arc<Source>,
    pub(crate) form: SendForm,
    pub(crate) packets: Range<u64>,
    pub(crate) mark: Arc<ReadyRange>,
}

/// Answer of a reader thread to the request for a chapter, shared with the session that asked.
#[derive(Default)]
pub(crate) struct ChapterMark(Mutex<ChapterMarkState>);

#[derive(Default)]
struct ChapterMarkState {
    asked: bool,
    answer: Option<Result<Arc<Chapter>, String>>,
}

impl ChapterMark {
    /// Returns the answer if it is there: the chapter, or why there is none.
    pub(crate) fn answer(&self) -> Option<Result<Arc<Chapter>, String>> {
        self.0.lock().answer.clone()
    }

    /// Returns true and marks a request as pending, unless one is pending already.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.0.lock();
        !std::mem::replace(&mut state.asked, true)
    }

    pub(crate) fn set(&self, answer: Result<Arc<Chapter>, String>) {
        self.0.lock().answer = Some(answer);
    }
}

/// A request for a chapter of a track.
pub(crate) struct ChapterRequest {
    pub(crate) source: Arc<TrackSource>,
    pub(crate) key: ChapterKey,
    pub(crate) mark: Arc<ChapterMark>,
}

/// Work of the reader threads.
enum ReadRequest {
    Window(Window),
    Chapter(ChapterRequest),
}

impl ReadRequest {
    /// Returns the address of its file: at most one thread works on one file at a time.
    fn address(&self) -> usize {
        match self {
            ReadRequest::Window(window) => Arc::as_ptr(&window.source) as usize,
            ReadRequest::Chapter(request) => Arc::as_ptr(&request.source) as usize,
        }
    }

    fn carry_out(&self, fetch: Fetch) {
        match self {
            ReadRequest::Window(window) => {
                let good = fetch(window);
                if good {
                    window.source.residence(window.form).note(&window.packets);
                }
                window.mark.answer(window.packets.clone(), good);
            }
            ReadRequest::Chapter(ChapterRequest { source, key, mark }) => {
                mark.set(source.make_ready(*key));
            }
        }
    }
}

/// Function that makes a window resident; it blocks. Tests substitute a slow one.
pub(crate) type Fetch = fn(&Window) -> bool;

/// The reader threads and their queue.
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
    waiting: VecDeque<ReadRequest>,
    /// Addresses of the sources in work; the request in work keeps each alive.
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

    /// Returns a handle for pacers.
    pub(crate) fn prefetch_handle(&self) -> PrefetchHandle {
        PrefetchHandle(self.shared.clone())
    }

    pub(crate) fn stop(self) {
        self.shared.queue.lock().stopped = true;
        self.shared.wake.notify_all();
        for thread in self.threads {
            // A thread that panicked has logged it; stopping continues.
            let _ = thread.join();
        }
    }
}

/// Queues requests; never blocks on a disk.
#[derive(Clone)]
pub(crate) struct PrefetchHandle(Arc<PrefetchQueue>);

impl PrefetchHandle {
    pub(crate) fn ask(&self, window: Window) {
        self.push(ReadRequest::Window(window));
    }

    pub(crate) fn ask_chapter(&self, request: ChapterRequest) {
        self.push(ReadRequest::Chapter(request));
    }

    fn push(&self, request: ReadRequest) {
        self.0.queue.lock().waiting.push_back(request);
        self.0.wake.notify_one();
    }
}

impl PrefetchQueue {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return;
            }
            let free = |request: &ReadRequest| !queue.busy.contains(&request.address());
            let Some(index) = queue.waiting.iter().position(free) else {
                self.wake.wait(&mut queue);
                continue;
            };
            let request = queue.waiting.remove(index).expect("position is in range");
            queue.busy.insert(request.address());
            drop(queue);
            request.carry_out(self.fetch);
            queue = self.queue.lock();
            queue.busy.remove(&request.address());
            // Other threads skipped requests for this file while it was busy.
            self.wake.notify_one();
        }
    }
}

/// [`Fetch`] of a running server.
pub(crate) fn fetch(window: &Window) -> bool {
    let (plan, packets) = (&window.source.asset.plan, &window.packets);
    let fetched = match window.form {
        SendForm::Source => window.source.media.prefetch(file_range(plan, packets)),
        SendForm::Image(layout) => {
            let range = layout.offset(plan, packets.start)..layout.offset(plan, packets.end);
            return window.source.image(layout).is_some_and(|image| image.make_ready(range));
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

/// Returns one past the last packet of a window that begins at `packets.start`: as many of
/// `packets` as fit `bytes_max` bytes of this form of the asset.
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
            SendForm::Image(layout) => layout.offset(plan, start)..layout.offset(plan, end),
        };
        bytes.end - bytes.start <= bytes_max
    };
    // The usual case: two seconds fit at all but the largest rates.
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

/// Returns the byte range of the file from the first packet's payload to the last one's.
fn file_range(plan: &PacketPlan, packets: &Range<u64>) -> Range<u64> {
    if packets.is_empty() {
        return 0..0;
    }
    let last = plan.payload(packets.end - 1);
    let end = last.file_offset + last.ts_packets * plan.stride();
    plan.payload(packets.start).file_offset..end.min(plan.file_bytes())
}

/// Reader threads. Each waits for one disk request at a time; more than a disk's queue depth are
/// useless.
const READERS: usize = 4;
