// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds the unsolicited input of an RTSP connection: frames of channels that SETUP has not named,
//! frames without media, unsolicited messages, bytes between frames.
//!
//! Honest servers send some of it for hours: a camera sends a track of metadata without SETUP, or a
//! report with each picture. So the bound is not on the sum but on the excess over media. One unit
//! is free for each packet of the stream, and [`FREE_A_SECOND`] in addition; the remainder may add
//! up to [`EXCESS_MAX`]. The client leaves a server that exceeds it.
//!
//! Costs a subtraction for each packet, and one clock comparison for each read.
//!
//! Sources: RFC 2326 §10.12.
//! Does not drop input itself (`frame_reader` and `rtsp_connection` do).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Counts of a connection, shared with the tasks that report them.
#[derive(Debug, Default)]
pub(crate) struct UnaskedCounts {
    /// Frames on channels that SETUP has not named, and the channel of the last.
    frames: AtomicU64,
    channel: AtomicU32,
    /// Frames of the stream's channels without media: reports and empty ones.
    bare: AtomicU64,
    /// Bytes of messages, including answers.
    message_bytes: AtomicU64,
    /// Bytes that belong to no frame and no message.
    stray_bytes: AtomicU64,
}

impl UnaskedCounts {
    /// Frames on channels that SETUP has not named, and the channel of the last.
    pub(crate) fn frames(&self) -> (u64, Option<u8>) {
        let frames = self.frames.load(Ordering::Relaxed);
        (frames, (frames > 0).then(|| self.channel.load(Ordering::Relaxed) as u8))
    }

    /// Bytes that belong to no frame and no message.
    pub(crate) fn stray_bytes(&self) -> u64 {
        self.stray_bytes.load(Ordering::Relaxed)
    }
}

/// Lists all counts, for the error about a server that is left.
impl fmt::Display for UnaskedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [frames, bare, messages, strays] =
            [&self.frames, &self.bare, &self.message_bytes, &self.stray_bytes]
                .map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{frames} frames on channels that SETUP has not named, {bare} frames without media, \
             {messages} bytes of messages, {strays} bytes between frames"
        )
    }
}

/// Balance of a connection, kept by its reader.
#[derive(Debug)]
pub(crate) struct UnaskedInput {
    pub(crate) counts: Arc<UnaskedCounts>,
    excess: u64,
    since: Instant,
}

/// The server has sent too much unsolicited input.
#[derive(Debug)]
pub(crate) struct ExcessInput;

impl UnaskedInput {
    pub(crate) fn new() -> UnaskedInput {
        UnaskedInput { counts: Arc::default(), excess: 0, since: Instant::now() }
    }

    /// Subtracts the free units since the last call.
    pub(crate) fn advance(&mut self, now: Instant) {
        let ms = now.saturating_duration_since(self.since).as_millis();
        let free = u64::try_from(ms).unwrap_or(u64::MAX).saturating_mul(FREE_A_SECOND) / 1000;
        if free > 0 {
            self.excess = self.excess.saturating_sub(free);
            self.since = now;
        }
    }

    /// Counts a packet of the stream.
    pub(crate) fn note_packet(&mut self) {
        self.excess = self.excess.saturating_sub(1);
    }

    /// Counts a frame on a channel that SETUP has not named.
    pub(crate) fn note_frame(&mut self, channel: u8, bytes: usize) -> Result<(), ExcessInput> {
        self.counts.channel.store(channel.into(), Ordering::Relaxed);
        self.counts.frames.fetch_add(1, Ordering::Relaxed);
        self.charge(1 + bytes as u64 / PACKET_BYTES)
    }

    /// Counts a report, or a frame that is too short for media.
    pub(crate) fn note_bare(&mut self, bytes: usize) -> Result<(), ExcessInput> {
        self.counts.bare.fetch_add(1, Ordering::Relaxed);
        self.charge(1 + bytes as u64 / PACKET_BYTES)
    }

    /// Counts bytes of a message, solicited or not: solicited ones are few.
    pub(crate) fn note_message(&mut self, bytes: usize) -> Result<(), ExcessInput> {
        let before = self.counts.message_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.charge((before + bytes as u64) / LINE_BYTES - before / LINE_BYTES)
    }

    /// Counts bytes that belong to no frame and no message.
    pub(crate) fn note_strays(&mut self, bytes: usize) -> Result<(), ExcessInput> {
        self.counts.stray_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.charge(1 + bytes as u64 / PACKET_BYTES)
    }

    fn charge(&mut self, units: u64) -> Result<(), ExcessInput> {
        self.excess += units;
        if self.excess > EXCESS_MAX { Err(ExcessInput) } else { Ok(()) }
    }

    /// Reason to leave the server.
    pub(crate) fn reason(&self) -> String {
        format!("the server sends more that belongs to nothing than media: {}", self.counts)
    }
}

/// Free units in a second: a unit is a frame, or 1500 bytes of one, or a line of a message. It is
/// the rate of a video track of 24 Mb/s without SETUP; it costs some milliseconds of CPU time a
/// second under attack.
pub(crate) const FREE_A_SECOND: u64 = 2000;
/// Five seconds of that, which a server may lag behind, and the largest description.
pub(crate) const EXCESS_MAX: u64 = 5 * FREE_A_SECOND;
/// A frame costs as much as packets of this size would.
const PACKET_BYTES: u64 = 1500;
/// A line of a message costs as much as a frame.
const LINE_BYTES: u64 = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Sends units one by one, each with `packets` of the stream, at this rate; returns the number
    /// accepted.
    fn passed(units: u64, packets: u64, a_second: u64) -> u64 {
        let mut input = UnaskedInput::new();
        let begun = Instant::now();
        input.since = begun;
        for unit in 0..units {
            input.advance(begun + Duration::from_micros(unit * 1_000_000 / a_second));
            if input.note_frame(7, 100).is_err() {
                return unit;
            }
            (0..packets).for_each(|_| input.note_packet());
        }
        units
    }

    #[test]
    fn a_track_that_was_not_set_up_may_come_for_hours_and_a_flood_may_not() {
        assert_eq!(passed(500_000, 0, 50), 500_000, "metadata");
        assert_eq!(passed(500_000, 0, FREE_A_SECOND), 500_000);
        assert_eq!(passed(500_000, 1, 1_000_000), 500_000, "one a packet of the stream");
        let flood = passed(500_000, 0, 1_000_000);
        assert!((EXCESS_MAX..EXCESS_MAX + 100).contains(&flood), "{flood}");
    }

    #[test]
    fn large_frames_and_messages_cost_what_they_are() {
        let mut input = UnaskedInput::new();
        let frames = (0..).take_while(|_| input.note_frame(1, 65_535).is_ok()).count() as u64;
        assert_eq!(frames, EXCESS_MAX / 44);
        let mut input = UnaskedInput::new();
        let bytes = (0..).take_while(|_| input.note_message(1).is_ok()).count() as u64;
        assert_eq!(bytes, EXCESS_MAX * LINE_BYTES + LINE_BYTES - 1);
        let reason = input.reason();
        assert!(reason.ends_with("160016 bytes of messages, 0 bytes between frames"), "{reason}");
        let mut input = UnaskedInput::new();
        let strays = (0..).take_while(|_| input.note_strays(1).is_ok()).count() as u64;
        assert_eq!((strays, input.counts.stray_bytes()), (EXCESS_MAX, EXCESS_MAX + 1));
    }
}
