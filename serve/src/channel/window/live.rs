// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segments of a window for players of HLS and DASH, and the requests that wait for the next.
//!
//! A channel's bytes are numbered from the first of its window on, over all parts; segments are
//! ranges of these, so one may lie in two parts. Numbers of bytes and segments never repeat: when a
//! window is emptied (a standby whose primary has returned) another identity begins.
//!
//! Costs only memory (64 bytes a segment) while no client requests them.
//!
//! Does not cut ([`super::cutter`]) or answer ([`crate::web`]).

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clock::Clock;
use media::store::random_identity;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::ChannelWindow;
use crate::http::open_files::{FileContent, OpenFile};
use crate::web::{LiveDash, LiveState};

/// Segments of a window.
pub(crate) struct WindowLive {
    slot: Mutex<LiveSlot>,
    grown: Notify,
    /// True once a player has asked for a playlist.
    is_asked: AtomicBool,
    /// Time of the last request that waits for the next bytes.
    watched: Mutex<Option<Instant>>,
    clock: Clock,
}

/// The segments of one identity.
pub(super) struct LiveSlot {
    pub(super) identity: String,
    /// Identities before it.
    pub(super) generation: u64,
    /// Number of the byte from which the segments count.
    pub(super) first_byte: u64,
    pub(super) state: Option<LiveState>,
    /// Its fragments.
    dash: Arc<LiveDash>,
}

/// A part that holds bytes of a segment.
pub(crate) struct HeldRange {
    /// Number of the part's first byte.
    pub(crate) first_byte: u64,
    /// Wall time at which the part began.
    pub(crate) began: SystemTime,
    pub(crate) file: Arc<OpenFile>,
}

impl LiveSlot {
    fn new(generation: u64) -> LiveSlot {
        let random = random_identity();
        let (ssrc, sequence) = (random.ssrc, random.first_sequence);
        let identity = format!("{ssrc:x}-{sequence:x}-{:x}", random.first_timestamp);
        LiveSlot { identity, generation, first_byte: 0, state: None, dash: Arc::default() }
    }

    /// Returns the segments, if they are those of this identity.
    pub(super) fn state_of(&mut self, generation: u64) -> Option<&mut LiveState> {
        self.state.as_mut().filter(|_| self.generation == generation)
    }
}

impl WindowLive {
    pub(super) fn new(clock: &Clock) -> WindowLive {
        WindowLive {
            slot: Mutex::new(LiveSlot::new(0)),
            grown: Notify::new(),
            is_asked: AtomicBool::new(false),
            watched: Mutex::default(),
            clock: clock.clone(),
        }
    }

    /// Returns the identity of the channel in addresses, without the version.
    pub(crate) fn identity(&self) -> String {
        self.slot().identity.clone()
    }

    /// Returns the result of `look` for the segments and the number of the byte from which they
    /// count; `None` if there are none, or of another identity (with its version).
    pub(crate) fn with<T>(
        &self,
        identity: &str,
        look: impl FnOnce(&mut LiveState, u64) -> T,
    ) -> Option<T> {
        let mut slot = self.slot();
        let is_own = identity.split_once('.').is_some_and(|(own, _)| own == slot.identity);
        let first_byte = slot.first_byte;
        slot.state.as_mut().filter(|_| is_own).map(|state| look(state, first_byte))
    }

    /// Returns the fragments of an identity (with its version), if it is the present one.
    pub(crate) fn dash(&self, identity: &str) -> Option<Arc<LiveDash>> {
        let slot = self.slot();
        let is_own = identity.split_once('.').is_some_and(|(own, _)| own == slot.identity);
        is_own.then(|| slot.dash.clone())
    }

    /// Resolves when there are more segments or parts than at the time of this call.
    pub(crate) fn grown(&self) -> Notified<'_> {
        self.grown.notified()
    }

    pub(super) fn note_grown(&self) {
        self.grown.notify_waiters();
    }

    /// Records that a player uses a playlist.
    pub(crate) fn note_asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Records a request that waits for the next bytes.
    pub(crate) fn note_watched(&self) {
        *self.watched.lock() = Some(self.clock.now());
    }

    /// True while players wait for the next bytes.
    pub(super) fn is_watched(&self) -> bool {
        let watched = *self.watched.lock();
        watched.is_some_and(|at| self.clock.now().saturating_duration_since(at) < WATCHED)
    }

    /// Ends this identity and wakes requests that wait for more of it.
    pub(super) fn begin_anew(&self) {
        {
            let mut slot = self.slot();
            *slot = LiveSlot::new(slot.generation + 1);
        }
        self.note_grown();
    }

    pub(super) fn slot(&self) -> MutexGuard<'_, LiveSlot> {
        self.slot.lock()
    }
}

impl ChannelWindow {
    /// Returns the parts that hold these bytes of the channel, opened, at least one; `None` where
    /// some are gone, or none were asked for.
    pub(crate) fn held(&self, bytes: Range<u64>) -> Option<Vec<HeldRange>> {
        let (mut at, end) = (bytes.start, bytes.end);
        let parts: Vec<_> = self.parts.lock().iter().cloned().collect();
        let mut held = Vec::with_capacity(2);
        for part in parts {
            let written = part.first_byte + part.written.load(Ordering::Acquire);
            if at >= end || !(part.first_byte..written).contains(&at) {
                continue;
            }
            let until = written.min(end);
            let file = part.opened(&self.assets.name, until - part.first_byte)?;
            held.push(HeldRange { first_byte: part.first_byte, began: part.began, file });
            at = until;
        }
        (at >= end && !held.is_empty()).then_some(held)
    }

    /// Returns the number of bytes of the channel so far.
    pub(crate) fn written(&self) -> u64 {
        let parts = self.parts.lock();
        let last = parts.back();
        last.map_or(0, |part| part.first_byte + part.written.load(Ordering::Acquire))
    }

    /// Reads these bytes of the channel; `None` where some are gone. May wait for a disk.
    pub(super) fn read(&self, bytes: Range<u64>) -> Option<Vec<u8>> {
        let mut read = vec![0; (bytes.end - bytes.start) as usize];
        self.read_exact_at(&mut read, bytes.start).ok()?;
        Some(read)
    }

    /// Fills `bytes` with those of the channel from this one on. May wait for a disk.
    ///
    /// # Errors
    /// `UnexpectedEof` where some are gone; errors of the disk.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let held = self.held(at..at + bytes.len() as u64).ok_or_else(gone)?;
        let mut rest = bytes;
        for HeldRange { first_byte, file, .. } in held {
            let left = (first_byte + file.entity().bytes - at).min(rest.len() as u64);
            let (piece, behind) = rest.split_at_mut(left as usize);
            let FileContent::Open(media) = &file.content else { return Err(gone()) };
            media.file().read_exact_at(piece, at - first_byte)?;
            (at, rest) = (at + left, behind);
        }
        Ok(())
    }
}

/// Exceeds the time between two requests of a player that waits for the next bytes.
const WATCHED: Duration = Duration::from_secs(10);
