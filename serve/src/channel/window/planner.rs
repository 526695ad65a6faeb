// SPDX-License-Identifier: MIT OR Apache-2.0
//! planner: the thread that plans the parts of all windows as they are written.
//!
//! A few times a second it reads what was written to each newest part, scans it and publishes the
//! part's next plan; each extends the one before. A plan is made of a part alone, so its cost stays
//! the same however long the channel runs.
//!
//! Costs one read of the written bytes from the page cache, and a plan of some milliseconds a
//! channel and look.
//!
//! Sources: `serve/src/library/following.rs`, which does the same for recordings.
//! Does not write.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use media::plan::{PacketPlan, PlanKey};
use media::{Scanner, TICKS_PER_SECOND};
use paths::MappedFile;

use super::{ChannelWindow, WindowPart, WindowPlace};
use crate::error::Error;
use crate::library::asset::Asset;

/// The planning thread.
pub(crate) struct WindowPlanner {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Scans of the parts of a window, by the parts' first packets.
#[derive(Default)]
pub(super) struct PartScans(HashMap<u64, PartScan>);

/// Scan of a part.
struct PartScan {
    scanner: Scanner,
    /// Bytes read.
    read: u64,
    is_over: bool,
}

impl WindowPlanner {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host gives no thread.
    pub(crate) fn start(windows: Vec<Arc<ChannelWindow>>) -> Result<WindowPlanner, Error> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stop = is_stopping.clone();
        let thread = std::thread::Builder::new()
            .name("channel-windows".to_owned())
            .spawn(move || plan_until(&windows, &stop))
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread channel-windows".to_owned(),
                source,
            })?;
        Ok(WindowPlanner { is_stopping, thread: Some(thread) })
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

fn plan_until(windows: &[Arc<ChannelWindow>], is_stopping: &AtomicBool) {
    let mut piece = vec![0; PIECE_BYTES];
    let mut scans: Vec<PartScans> = windows.iter().map(|_| PartScans::default()).collect();
    while !is_stopping.load(Ordering::Relaxed) {
        for (window, scans) in windows.iter().zip(&mut scans) {
            scans.look(window, &mut piece);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl PartScans {
    /// Plans what is new in a window.
    pub(super) fn look(&mut self, window: &Arc<ChannelWindow>, piece: &mut [u8]) {
        let parts: Vec<_> = window.lock().iter().cloned().collect();
        // Those of dropped parts go.
        let mut before = std::mem::take(&mut self.0);
        for part in parts {
            let mut scan = before.remove(&part.first_packet).unwrap_or_else(PartScan::new);
            if !scan.is_over {
                scan.look(window, &part, piece);
            }
            self.0.insert(part.first_packet, scan);
        }
    }
}

impl PartScan {
    fn new() -> PartScan {
        PartScan { scanner: Scanner::new(), read: 0, is_over: false }
    }

    /// Reads what is new of a part and publishes its plan.
    fn look(&mut self, window: &Arc<ChannelWindow>, part: &WindowPart, piece: &mut [u8]) {
        // Read first: bytes written before it was closed are read below.
        let is_closed = part.is_closed.load(Ordering::Acquire);
        let written = part.written.load(Ordering::Acquire);
        if written == self.read && !is_closed {
            return;
        }
        while self.read < written {
            let wanted = ((written - self.read) as usize).min(piece.len());
            match part.file.read_at(&mut piece[..wanted], self.read) {
                Ok(count @ 1..) => {
                    self.scanner.feed(&piece[..count]);
                    self.read += count as u64;
                }
                // It was dropped meanwhile.
                _ => {
                    self.is_over = true;
                    return;
                }
            }
        }
        self.is_over = is_closed;
        if let Ok(plan) = self.scanner.plan_so_far(part.identity)
            && (is_closed || plan.ticks(plan.settled_packets()) >= LEAST_TICKS)
            && let Err(error) = publish(window, part, plan, (written, is_closed))
        {
            tracing::warn!("{}: its window for RTSP: {error}", window.name);
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
    let media = MappedFile::open(part.file.try_clone()?, window.name.as_str())?;
    let key = PlanKey {
        path: window.name.as_bytes().to_vec(),
        bytes,
        modified_ns: 0,
        inode: part.first_packet,
    };
    let place = WindowPlace {
        window: window.clone(),
        first_packet: part.first_packet,
        first_ticks: part.first_ticks,
    };
    // Without it, what follows the last clock reference is timed by the rate before.
    let ends = part.ends.load(Ordering::Relaxed).saturating_sub(part.first_ticks);
    let asset = match is_closed {
        true => Asset::new(window.name.clone(), key, plan.ending_at(ends)),
        false => Asset::growing(window.name.clone(), key, plan, &part.growth),
    };
    let source = Arc::new(asset.in_window(place)).opened(media);
    // Under the lock: a part that is dropped meanwhile keeps no source.
    let parts = window.lock();
    if parts.iter().any(|one| std::ptr::eq(&**one, part)) {
        part.growth.set_newest(Some(source));
    }
    Ok(())
}

const LOOK_EVERY: Duration = Duration::from_millis(250);
const PIECE_BYTES: usize = 256 << 10;
/// A rate is measured over a second.
const LEAST_TICKS: u64 = TICKS_PER_SECOND;
