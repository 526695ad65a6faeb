// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that plans the parts of all windows as they are written.
//!
//! A few times a second it reads what was written to each newest part, scans it and publishes the
//! part's next plan; each extends the one before. A plan is made of a part alone, so its cost stays
//! the same however long the channel runs. What it reads is cut to segments of HLS, too
//! ([`super::cutter`]); while players wait for the next of them it reads more often.
//!
//! Costs one read of the written bytes from the page cache, and a plan of some milliseconds a
//! channel and look.
//!
//! Sources: `serve/src/library/following.rs`, which does the same for recordings.
//! Does not write.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clock::Clock;
use media::plan::{PacketPlan, PlanKey};
use media::{Scanner, TICKS_PER_SECOND, TS_PACKET_BYTES};
use paths::MappedFile;

use super::cutter::LiveCutter;
use super::{ChannelWindow, WindowPart};
use crate::error::Error;
use crate::library::asset::{Asset, LibrarySource};
use crate::library::channel_parts::PartPlace;
use crate::swapped::Swapped;

/// The planning thread.
pub(crate) struct WindowPlanner {
    windows: Arc<PlannedWindows>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Windows that the thread plans.
type PlannedWindows = Swapped<Vec<Arc<ChannelWindow>>>;

/// Scans of the parts of a window.
#[derive(Default)]
pub(super) struct PartScans {
    scans: Vec<PartScan>,
    cutter: LiveCutter,
}

/// Scan of a part.
struct PartScan {
    part: Arc<WindowPart>,
    scanner: Scanner,
    /// Bytes read.
    read: u64,
    /// True when there is more than the last plan has.
    has_news: bool,
    is_over: bool,
}

impl WindowPlanner {
    /// Starts the thread, which has no window to plan yet.
    ///
    /// # Errors
    /// The host gives no thread.
    pub(crate) fn start(clock: &Clock) -> Result<WindowPlanner, Error> {
        let windows = Arc::new(PlannedWindows::default());
        let planned = windows.clone();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stop = is_stopping.clone();
        let clock = clock.clone();
        let thread = std::thread::Builder::new()
            .name("channel-windows".to_owned())
            .spawn(move || plan_until(&planned, &stop, &clock))
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread channel-windows".to_owned(),
                source,
            })?;
        Ok(WindowPlanner { windows, is_stopping, thread: Some(thread) })
    }

    /// Plans these windows from now on; a window that is already planned continues.
    pub(crate) fn plan(&self, windows: Vec<Arc<ChannelWindow>>) {
        self.windows.replace(windows);
    }

    /// Stops the thread.
    pub(crate) fn stop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged it; stopping continues.
            let _ = thread.join();
        }
    }
}

fn plan_until(windows: &PlannedWindows, is_stopping: &AtomicBool, clock: &Clock) {
    let mut planning = Planning::new(clock.now());
    while !is_stopping.load(Ordering::Relaxed) {
        std::thread::sleep(planning.turn(&windows.current(), clock.now()));
    }
}

/// State of the thread.
struct Planning {
    planned: Vec<(Arc<ChannelWindow>, PartScans)>,
    /// Time at which plans were made last.
    looked: Instant,
    piece: Vec<u8>,
}

impl Planning {
    fn new(now: Instant) -> Planning {
        Planning { planned: Vec::new(), looked: now, piece: vec![0; PIECE_BYTES] }
    }

    /// Cuts, and plans if it is time, what was written to these windows; returns the wait until the
    /// next turn.
    fn turn(&mut self, windows: &[Arc<ChannelWindow>], now: Instant) -> Duration {
        let is_due = now.saturating_duration_since(self.looked) >= LOOK_EVERY;
        if is_due {
            self.looked = now;
        }
        follow(windows, &mut self.planned);
        for (window, scans) in &mut self.planned {
            scans.look(window, &mut self.piece, is_due);
        }
        let is_watched = windows.iter().any(|window| window.live.is_watched());
        if is_watched { LOOK_QUICKLY } else { LOOK_EVERY }
    }
}

/// Drops the scans of removed windows, and adds those of new ones.
fn follow(windows: &[Arc<ChannelWindow>], planned: &mut Vec<(Arc<ChannelWindow>, PartScans)>) {
    planned.retain(|(known, _)| windows.iter().any(|window| Arc::ptr_eq(window, known)));
    for window in windows {
        if !planned.iter().any(|(known, _)| Arc::ptr_eq(window, known)) {
            planned.push((window.clone(), PartScans::default()));
        }
    }
}

impl PartScans {
    /// Cuts the new bytes of a window; plans it if that `is_due`.
    pub(super) fn look(&mut self, window: &Arc<ChannelWindow>, piece: &mut [u8], is_due: bool) {
        let parts: Vec<_> = window.parts.lock().iter().cloned().collect();
        // Scans of dropped parts are removed.
        let mut before = std::mem::take(&mut self.scans);
        for part in parts {
            let known = before.iter().position(|scan| Arc::ptr_eq(&scan.part, &part));
            let known = known.map(|at| before.swap_remove(at));
            let mut scan = known.unwrap_or_else(|| PartScan::new(part));
            if !scan.is_over {
                scan.look(window, (piece, is_due), &mut self.cutter);
            }
            self.scans.push(scan);
        }
        self.cutter.cut(window);
    }
}

impl PartScan {
    fn new(part: Arc<WindowPart>) -> PartScan {
        PartScan { part, scanner: Scanner::new(), read: 0, has_news: false, is_over: false }
    }

    /// Reads the new bytes of a part and publishes its plan.
    fn look(
        &mut self,
        window: &Arc<ChannelWindow>,
        (piece, is_due): (&mut [u8], bool),
        cutter: &mut LiveCutter,
    ) {
        let part = &self.part;
        // The flag is read first: bytes written before the part was closed are read below.
        let is_closed = part.is_closed.load(Ordering::Acquire);
        let written = part.written.load(Ordering::Acquire);
        while self.read < written {
            // Whole packets, as they are written.
            let most = piece.len() / TS_PACKET_BYTES * TS_PACKET_BYTES;
            let piece = &mut piece[..most.min((written - self.read) as usize)];
            if part.file.read_exact_at(piece, self.read).is_err() {
                // It was dropped meanwhile.
                self.is_over = true;
                return;
            }
            self.scanner.feed(piece);
            cutter.feed(window, part, self.read, piece);
            self.read += piece.len() as u64;
            self.has_news = true;
        }
        if !(is_closed || is_due && self.has_news) {
            return;
        }
        (self.is_over, self.has_news) = (is_closed, false);
        if let Ok(plan) = self.scanner.plan_so_far(part.identity)
            && (is_closed || plan.ticks(plan.settled_packets()) >= LEAST_TICKS)
            && let Err(error) = publish(window, part, plan, (written, is_closed))
        {
            tracing::warn!("{}: its window for RTSP: {error}", window.assets.name);
        }
    }
}

/// Replaces the newest plan of a part.
fn publish(
    window: &Arc<ChannelWindow>,
    part: &WindowPart,
    plan: PacketPlan,
    (bytes, is_closed): (u64, bool),
) -> Result<(), Box<dyn std::error::Error>> {
    let media = MappedFile::open(part.file.try_clone()?, window.assets.name.as_str())?;
    let key = PlanKey {
        path: window.assets.name.as_bytes().to_vec(),
        bytes,
        modified_ns: 0,
        inode: part.first_packet,
    };
    let place = PartPlace {
        parts: window.assets.clone(),
        first_packet: part.first_packet,
        first_ticks: part.first_ticks,
    };
    // Without it, what follows the last clock reference is timed by the rate before.
    let ends = part.ends.load(Ordering::Relaxed).saturating_sub(part.first_ticks);
    let asset = match is_closed {
        true => Asset::new(window.assets.name.clone(), key, plan.ending_at(ends)),
        false => Asset::growing(window.assets.name.clone(), key, plan, &part.growth),
    };
    let source = Arc::new(asset.among_parts(place)).opened(media);
    // Under the lock: a part that is dropped meanwhile keeps no source.
    let parts = window.parts.lock();
    if parts.iter().any(|one| std::ptr::eq(&**one, part)) {
        part.growth.set_newest(Some(LibrarySource::Stream(source)));
    }
    Ok(())
}

const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_QUICKLY: Duration = Duration::from_millis(40);
const PIECE_BYTES: usize = 256 << 10;
/// A rate is measured over a second.
const LEAST_TICKS: u64 = TICKS_PER_SECOND;
