// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last minutes of a channel, kept for viewers over RTSP and HLS.
//!
//! A channel's packets are also written to a row of parts, each a file without a name with a packet
//! plan of its own; the oldest are dropped. To a session a part is an asset that grows, and the
//! next part continues its sequence numbers, timestamps and time. So viewers cost as much as
//! viewers of a file, share its paths, and may go back as far as the window reaches.
//!
//! [`WindowWriter`] belongs to the channel's thread; [`WindowPlanner`] is one thread for all
//! channels. It also cuts segments of HLS ([`cutter`], [`live`]).
//!
//! Numbers of packets and times here count from the channel's start; those of a plan count from its
//! part's. A viewer joins at the last place to start that is some seconds old, so that plans, made
//! a few times a second, are always ahead of it ([`crate::library::part_starts`]).
//!
//! Memory: the rate times (`time_shift_s`, a grace of ten seconds or as long as a group of
//! pictures, and a part), in the page cache. Costs one write a
//! burst and one read of what was written.
//!
//! Sources: RFC 2326 §3.6 (`now`), memfd_create(2), open(2) (`O_TMPFILE`).
//! Does not keep anything over a restart.

mod cutter;
mod live;
mod planner;
mod writer;

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use clock::Clock;
use media::plan::RtpIdentity;
use parking_lot::Mutex;

pub(crate) use self::live::{HeldRange, WindowLive};
pub(crate) use self::planner::WindowPlanner;
pub(crate) use self::writer::WindowWriter;
use crate::http::open_files::OpenFile;
use crate::library::channel_parts::ChannelParts;
use crate::library::growing_file::Growth;

/// The parts of one channel that viewers may see.
pub(crate) struct ChannelWindow {
    /// Its parts as assets.
    pub(crate) assets: Arc<ChannelParts>,
    /// Segments of HLS.
    pub(crate) live: WindowLive,
    clock: Clock,
    /// Longest distance of the key frames of the channel's files.
    apart_ticks: AtomicU64,
    /// Reason why it is shorter than configured.
    fault: Mutex<Option<String>>,
    /// Changed only by [`ChannelWindow::change_parts`], which keeps `assets` the same.
    parts: Mutex<VecDeque<Arc<WindowPart>>>,
}

/// A part of a window: a file of whole transport stream packets.
pub(crate) struct WindowPart {
    /// RTP packets and time of the channel before this part.
    first_packet: u64,
    first_ticks: u64,
    /// Bytes of the channel before this part.
    first_byte: u64,
    /// Wall time at which its first packet was sent.
    began: SystemTime,
    identity: RtpIdentity,
    file: File,
    /// The same file for downloads, with its size at the time of the request.
    opened: Mutex<Option<Arc<OpenFile>>>,
    /// Bytes at which another programme begins, until they are cut.
    joins: Mutex<Vec<u64>>,
    is_in_memory: bool,
    /// Bytes written so far.
    written: AtomicU64,
    /// Time of the channel at which the next part begins; 0 until it is known.
    ends: AtomicU64,
    /// True if nothing more will be written.
    is_closed: AtomicBool,
    /// True when its bytes are gone.
    is_dropped: AtomicBool,
    growth: Arc<Growth>,
}

impl ChannelWindow {
    /// Creates the empty window of a channel; viewers may go back by `shift`.
    pub(crate) fn new(
        channel: &str,
        title: String,
        shift: Duration,
        clock: &Clock,
    ) -> ChannelWindow {
        ChannelWindow {
            assets: Arc::new(ChannelParts::new(channel, title, shift)),
            live: WindowLive::new(clock),
            clock: clock.clone(),
            apart_ticks: AtomicU64::new(0),
            fault: Mutex::default(),
            parts: Mutex::default(),
        }
    }

    /// Records the distance of key frames of the channel's files.
    pub(crate) fn note_apart(&self, ticks: u64) {
        self.apart_ticks.fetch_max(ticks, Ordering::Relaxed);
    }

    /// Returns the reason why it is shorter than configured, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock() = fault;
    }

    /// Changes the parts, and the assets with them.
    fn change_parts<T>(&self, change: impl FnOnce(&mut VecDeque<Arc<WindowPart>>) -> T) -> T {
        let mut parts = self.parts.lock();
        let result = change(&mut parts);
        self.assets.set(parts.iter().map(|part| part.growth.clone()).collect());
        result
    }

    /// Drops all parts: their viewers end.
    pub(crate) fn clear(&self) {
        let parts = self.change_parts(std::mem::take);
        parts.iter().for_each(|part| part.drop_bytes());
        self.live.begin_anew();
    }
}

impl WindowPart {
    /// Frees the memory, also of sessions that still hold the file: their next send fails.
    fn drop_bytes(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.is_dropped.store(true, Ordering::Release);
        // It refers to itself through its source.
        self.growth.set_newest(None);
        *self.opened.lock() = None;
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!("freeing a part of a channel's window: {error}");
        }
    }

    /// Returns the file for downloads of its first `bytes`; `None` where it is gone. One open file
    /// serves all downloads until the part has grown.
    fn opened(&self, name: &str, bytes: u64) -> Option<Arc<OpenFile>> {
        let mut opened = self.opened.lock();
        if let Some(file) = opened.as_ref().filter(|file| file.entity().bytes >= bytes) {
            return Some(file.clone());
        }
        let made = self.file.try_clone().and_then(|file| OpenFile::made(name, file));
        let made = made.inspect_err(|error| tracing::warn!("{name}: {error}")).ok()?;
        if made.entity().bytes < bytes {
            return None;
        }
        let made = Arc::new(made);
        // A part that is dropped meanwhile keeps none.
        let is_kept = !self.is_dropped.load(Ordering::Acquire);
        *opened = is_kept.then(|| made.clone());
        Some(made)
    }

    fn note_join(&self, byte: u64) {
        self.joins.lock().push(byte);
    }

    /// Removes the bytes from `start` on at which another programme begins; returns them counted
    /// from `start`.
    fn joins_from(&self, start: u64) -> Vec<u64> {
        let mut joins = self.joins.lock();
        let from = joins.partition_point(|&byte| byte < start);
        joins.drain(from..).map(|byte| byte - start).collect()
    }

    /// Returns the bytes before `end` at which another programme begins, each once.
    fn take_joins(&self, end: u64) -> Vec<u64> {
        let mut joins = self.joins.lock();
        let until = joins.partition_point(|&byte| byte < end);
        joins.drain(..until).collect()
    }
}

/// Parts of a window with time shift; each holds a descriptor or two.
const PARTS: u64 = 30;
/// Shortest part.
const PART_SECONDS_MIN: u64 = 10;
#[cfg(test)]
pub(crate) mod tests;
