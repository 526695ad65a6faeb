// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the packets that a channel sends to the parts of its window.
//!
//! A part ends at a program association table once it is long enough: the next one then begins with
//! tables, and can be played by itself. The parts of one channel have one SSRC, and their first
//! sequence number and timestamp follow from the preceding part.
//!
//! Short windows lie in memory (memfd), longer ones in a file of the cache folder that has no name,
//! so that the kernel may write it out; neither leaves anything behind after a crash.
//!
//! Costs one write a burst. On a full disk the oldest part is dropped, and the present continues in
//! memory: parts of [`PART_SECONDS_MIN`], the last [`MEMORY_PARTS_MAX`] of them. So viewers can
//! always watch the present, and the time shift shrinks until the disk has room again.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4.3 (PAT, PID 0).
//! Does not make plans.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use media::plan::RtpIdentity;
use media::store::random_identity;
use media::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES, TS_PACKETS_PER_PAYLOAD};
use parking_lot::Mutex;

use super::{ChannelWindow, PART_SECONDS_MIN, PARTS, WindowPart};
use crate::library::growing_file::Growth;
use crate::nameless_file::nameless_file;

/// Writing end of a window.
pub(crate) struct WindowWriter {
    window: Arc<ChannelWindow>,
    /// Folder of long windows; memory where `None`.
    folder: Option<PathBuf>,
    part_ticks: u64,
    identity: RtpIdentity,
    /// Channel time at which the window began.
    origin: Option<u64>,
    part: Option<Writing>,
    /// RTP packets of the parts before.
    packets_before: u64,
    /// Bytes of the parts before.
    bytes_before: u64,
    /// Bytes of the burst that are not written yet, and the time of the channel of the first.
    burst: Vec<u8>,
    burst_ticks: u64,
    /// Time until which parts lie in memory, since the disk is full.
    in_memory_until: Option<Instant>,
    logged_at: Option<Instant>,
}

/// The part that is written.
struct Writing {
    part: Arc<WindowPart>,
    bytes: u64,
}

impl WindowWriter {
    /// Creates the writer of a window, whose time shift is `shift`.
    ///
    /// # Errors
    /// The host gives no memory or file.
    pub(crate) fn open(
        window: Arc<ChannelWindow>,
        shift: Duration,
        cache: Option<&Path>,
    ) -> io::Result<WindowWriter> {
        let folder = cache.filter(|_| shift > IN_MEMORY_MAX).map(Path::to_path_buf);
        // Tried at once, so that a fault shows at the start.
        nameless_file("channel-window", folder.as_deref())?;
        let part_seconds = (shift.as_secs() / PARTS).max(PART_SECONDS_MIN);
        Ok(WindowWriter {
            window,
            folder,
            part_ticks: part_seconds * TICKS_PER_SECOND,
            identity: random_identity(),
            origin: None,
            part: None,
            packets_before: 0,
            bytes_before: 0,
            burst: Vec::new(),
            burst_ticks: 0,
            in_memory_until: None,
            logged_at: None,
        })
    }

    /// Sets the least length of a part.
    #[cfg(test)]
    pub(super) fn set_part_ticks(&mut self, ticks: u64) {
        self.part_ticks = ticks;
    }

    /// Adds packets whose first is due at channel time `begins`; another programme begins with them
    /// if `is_join`.
    pub(crate) fn add(&mut self, payload: &[u8], begins: u64, is_join: bool) {
        let ticks = begins.saturating_sub(*self.origin.get_or_insert(begins));
        let is_long = |writing: &Writing| {
            let most = match writing.part.is_in_memory && self.folder.is_some() {
                true => self.part_ticks.min(PART_SECONDS_MIN * TICKS_PER_SECOND),
                false => self.part_ticks,
            };
            ticks - writing.part.first_ticks >= most
        };
        if self.part.as_ref().is_some_and(is_long) && begins_with_tables(payload) {
            self.flush();
            self.part.iter().for_each(|part| part.part.ends.store(ticks, Ordering::Relaxed));
            self.close();
            self.evict(ticks);
            self.limit_memory();
        }
        if self.part.is_none() && begins_with_tables(payload) {
            self.begin(ticks);
        }
        if let Some(writing) = &self.part {
            if self.burst.is_empty() {
                self.burst_ticks = ticks;
            }
            if is_join {
                writing.part.note_join(writing.bytes + self.burst.len() as u64);
            }
            self.burst.extend_from_slice(payload);
        }
    }

    /// Writes the added bytes.
    pub(crate) fn flush(&mut self) {
        let mut burst = std::mem::take(&mut self.burst);
        if self.part.is_some()
            && !burst.is_empty()
            && let Err(error) = self.write(&burst)
        {
            // The media that viewers read continues in memory, from this burst on.
            self.part.iter().for_each(|w| w.part.ends.store(self.burst_ticks, Ordering::Relaxed));
            let joins = self.part.as_ref().map(|w| w.part.joins_from(w.bytes));
            self.close();
            self.give_way(&error);
            self.begin(self.burst_ticks);
            if let (Some(writing), Some(joins)) = (&self.part, joins) {
                joins.into_iter().for_each(|byte| writing.part.note_join(byte));
            }
            if let Err(error) = self.write(&burst) {
                self.close();
                self.give_way(&error);
            }
        }
        // Keeps its capacity.
        burst.clear();
        self.burst = burst;
    }

    /// Adds a burst to the part, if there is one.
    fn write(&mut self, burst: &[u8]) -> io::Result<()> {
        let Some(writing) = &mut self.part else { return Ok(()) };
        writing.part.file.write_all_at(burst, writing.bytes)?;
        writing.bytes += burst.len() as u64;
        writing.part.written.store(writing.bytes, Ordering::Release);
        Ok(())
    }

    /// Ends the part: the channel stops sending here for a while.
    pub(crate) fn close(&mut self) {
        if let Some(writing) = self.part.take() {
            // The next part has its numbers, where nothing of it was written.
            if writing.bytes == 0 {
                self.window
                    .change_parts(|parts| parts.retain(|part| !Arc::ptr_eq(part, &writing.part)));
                return writing.part.drop_bytes();
            }
            let ts_packets = writing.bytes / TS_PACKET_BYTES as u64;
            self.packets_before += ts_packets.div_ceil(TS_PACKETS_PER_PAYLOAD);
            self.bytes_before += writing.bytes;
            writing.part.is_closed.store(true, Ordering::Release);
        }
    }

    /// Begins a part at a time of the channel.
    fn begin(&mut self, ticks: u64) {
        let file = match nameless_file("channel-window", self.folder_now()) {
            Ok(file) => file,
            Err(error) => {
                self.give_way(&error);
                match nameless_file("channel-window", None) {
                    Ok(file) => file,
                    // Tried again with the next tables.
                    Err(_) => return,
                }
            }
        };
        self.begin_in(ticks, file);
    }

    /// Begins a part in this file.
    pub(super) fn begin_in(&mut self, ticks: u64, file: File) {
        let first = &self.identity;
        let identity = RtpIdentity {
            ssrc: first.ssrc,
            first_sequence: first.first_sequence.wrapping_add(self.packets_before as u16),
            first_timestamp: first
                .first_timestamp
                .wrapping_add((ticks / TICKS_PER_TIMESTAMP) as u32),
        };
        let part = Arc::new(WindowPart {
            first_packet: self.packets_before,
            first_ticks: ticks,
            first_byte: self.bytes_before,
            began: self.window.clock.wall(),
            identity,
            file,
            opened: Mutex::default(),
            joins: Mutex::default(),
            is_in_memory: self.folder_now().is_none(),
            written: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
            growth: Arc::new(Growth::new()),
        });
        if self.folder.is_some() && !part.is_in_memory {
            self.window.set_fault(None);
        }
        self.window.change_parts(|parts| parts.push_back(part.clone()));
        self.part = Some(Writing { part, bytes: 0 });
    }

    /// Drops the parts that ended before the window.
    fn evict(&self, now: u64) {
        let oldest = now.saturating_sub(self.window.assets.reach.kept_ticks());
        loop {
            let ended = self.window.change_parts(|parts| {
                // A part ends where the next one begins; the last of them has just ended.
                let ends_at = parts.get(1).map_or(now, |next| next.first_ticks);
                if ends_at <= oldest { parts.pop_front() } else { None }
            });
            let Some(part) = ended else { return };
            part.drop_bytes();
        }
    }

    /// Returns the folder of the next part; memory where `None`.
    fn folder_now(&self) -> Option<&Path> {
        let is_full = self.in_memory_until.is_some_and(|until| self.window.clock.now() < until);
        self.folder.as_deref().filter(|_| !is_full)
    }

    /// Makes room after a failure, which is mostly a full disk: the oldest part goes, but never the
    /// one that viewers of the present read.
    fn give_way(&mut self, error: &io::Error) {
        let now = self.window.clock.now();
        self.in_memory_until = Some(now + RETRY_EVERY);
        self.window.change_parts(|parts| {
            if parts.len() > 1
                && let Some(oldest) = parts.pop_front()
            {
                oldest.drop_bytes();
            }
        });
        self.window.set_fault(Some(format!(
            "time shift: {error}; the last minute is in memory and the time shift shrinks until \
             the cache folder has room"
        )));
        if self.logged_at.is_none_or(|at| now.saturating_duration_since(at) > LOG_EVERY) {
            self.logged_at = Some(now);
            let name = &self.window.assets.name;
            tracing::warn!(
                "{name}: time shift: {error}; its oldest part makes room and the present goes on \
                 in memory; make room in the cache folder"
            );
        }
    }

    /// Drops the oldest parts while too many lie in memory for lack of disk space.
    fn limit_memory(&self) {
        if self.folder.is_none() {
            return;
        }
        self.window.change_parts(|parts| {
            while parts.iter().filter(|part| part.is_in_memory).count() > MEMORY_PARTS_MAX {
                parts.pop_front().iter().for_each(|part| part.drop_bytes());
            }
        });
    }
}

/// True when the first transport stream packet has PID 0.
fn begins_with_tables(payload: &[u8]) -> bool {
    matches!(payload, [0x47, high, low, ..] if high & 0x1f == 0 && *low == 0)
}

/// Longest time shift kept in memory.
const IN_MEMORY_MAX: Duration = Duration::from_secs(600);
/// Time after which a disk that was full is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(30);
/// Most parts in memory in place of a full disk: a minute.
const MEMORY_PARTS_MAX: usize = 6;
const LOG_EVERY: Duration = Duration::from_secs(60);
