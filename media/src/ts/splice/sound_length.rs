// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the duration of the last PES packet of an audio stream from the frames that begin in
//! it.
//!
//! Multiplexers put many frames into a PES packet, and fewer into the last one of a file. The step
//! between previous packets would overestimate the last one: the audio would seem to end up to a
//! packet late, and the next file would begin after a gap.
//!
//! Costs a copy of each audio byte into a buffer; frames are counted only at the end of a file.
//! Bounded: 64 KiB per stream.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (the time of a packet is that of the first frame that begins
//! in it); the headers as in [`crate::frames`].
//! Does not count a frame that began in the previous packet: it belongs to that packet.

use crate::frames::{Frame, FrameParser, frame_at_start};
use crate::ts::TsPacket;
use crate::ts::elementary::PesPayload;

/// Longest PES packet whose frames are counted: the length field of a header has 16 bits.
const BYTES_MAX: usize = 1 << 16;

/// Audio data since the last timestamp of its stream.
#[derive(Debug)]
pub(super) struct SoundLength {
    parse: FrameParser,
    payload: PesPayload,
    /// Payload since the last timestamp; none after a loss or above the size limit.
    bytes: Option<Vec<u8>>,
}

impl SoundLength {
    /// Creates the state for a stream whose frame headers `parse` reads.
    pub(super) fn new(parse: FrameParser) -> SoundLength {
        SoundLength { parse, payload: PesPayload::default(), bytes: None }
    }

    /// Consumes the next packet of the stream.
    pub(super) fn add(&mut self, packet: &TsPacket<'_>) {
        let part = self.payload.feed(packet);
        if part.begins.and_then(|times| times.decoding()).is_some() {
            self.bytes.get_or_insert_default().clear();
        } else if part.is_after_loss {
            self.bytes = None;
        }
        let Some(bytes) = &mut self.bytes else { return };
        if bytes.len() + part.bytes.len() > BYTES_MAX {
            self.bytes = None;
        } else {
            bytes.extend_from_slice(part.bytes);
        }
    }

    /// Returns the duration of the frames that begin after the last timestamp, in units of 90 kHz;
    /// none if no frame is found.
    pub(super) fn ticks(&self) -> Option<u64> {
        let bytes = self.bytes.as_ref()?;
        let (mut at, mut samples, mut rate_hz, mut follows) = (0, 0, 0, false);
        while at < bytes.len() {
            let frame = self.frame(bytes, at);
            match frame.filter(|frame| follows || self.is_confirmed(bytes, at, frame)) {
                Some(frame) => {
                    samples += u64::from(frame.duration);
                    rate_hz = u64::from(frame.rate_hz);
                    at += frame.bytes as usize;
                    follows = true;
                }
                None => (at, follows) = (at + 1, false),
            }
        }
        (samples > 0 && rate_hz > 0).then(|| (samples * 90_000).div_ceil(rate_hz))
    }

    /// Parses the frame that begins at an offset.
    fn frame(&self, bytes: &[u8], at: usize) -> Option<Frame> {
        frame_at_start(&bytes[at..], self.parse).filter(|frame| frame.bytes > 0)
    }

    /// True if a frame ends at the end of the payload, or where the next frame begins. The check is
    /// needed because payload may resemble a header.
    fn is_confirmed(&self, bytes: &[u8], at: usize, frame: &Frame) -> bool {
        let end = at + frame.bytes as usize;
        end == bytes.len() || end < bytes.len() && self.frame(bytes, end).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TS_PACKET_BYTES;
    use crate::frames::parse_adts;
    use crate::frames::tests::adts_frame;
    use crate::ts::TsHeader;

    /// Returns the duration of this many frames, in units of 90 kHz.
    fn lasting(frames: u64) -> Option<u64> {
        Some((frames * 1024 * 90_000).div_ceil(44_100))
    }

    fn adts(bytes: usize) -> Vec<u8> {
        adts_frame(bytes, 0x55)
    }

    /// Feeds a PES packet, with or without a time, in packets that start at this counter; returns
    /// the counter after them.
    fn take(length: &mut SoundLength, is_timed: bool, payload: &[u8], mut counter: u8) -> u8 {
        let header: &[u8] = match is_timed {
            true => &[0, 0, 1, 0xc0, 0, 0, 0x80, 0x80, 5, 0x21, 0, 1, 0, 1],
            false => &[0, 0, 1, 0xc0, 0, 0, 0x80, 0, 0],
        };
        let unit = [header, payload].concat();
        for (number, piece) in unit.chunks(TS_PACKET_BYTES - 6).enumerate() {
            let mut bytes = [0xff; TS_PACKET_BYTES];
            let start = if number == 0 { 0x40 } else { 0 };
            bytes[..4].copy_from_slice(&[0x47, start, 0x33, 0x30 | counter & 0xf]);
            let stuffed = TS_PACKET_BYTES - 5 - piece.len();
            (bytes[4], bytes[5]) = (stuffed as u8, 0);
            bytes[5 + stuffed..].copy_from_slice(piece);
            length.add(&TsPacket { header: TsHeader::read(&bytes), bytes: &bytes });
            counter = counter.wrapping_add(1);
        }
        counter
    }

    #[test]
    fn frames_count_for_the_packet_in_which_they_begin() {
        let stream: Vec<u8> = [400, 9, 30, 700, 8].iter().flat_map(|&bytes| adts(bytes)).collect();
        // The second packet begins in the middle of the third frame, or of its header.
        for border in [400 + 9 + 20, 400 + 9 + 4] {
            let mut length = SoundLength::new(parse_adts);
            assert_eq!(length.ticks(), None);
            let (first, second) = stream.split_at(border);
            let counter = take(&mut length, true, first, 0);
            // Four bytes of a header do not suffice to find its frame.
            let begun = if border > 420 { 3 } else { 2 };
            assert_eq!(length.ticks(), lasting(begun), "{border}");
            take(&mut length, true, &[second, &adts(60)].concat(), counter);
            assert_eq!(length.ticks(), lasting(3), "{border}");
        }
    }

    #[test]
    fn packets_without_a_time_go_on_and_nothing_is_known_behind_a_loss() {
        let mut length = SoundLength::new(parse_adts);
        let counter = take(&mut length, true, &adts(400), 0);
        let counter = take(&mut length, false, &[adts(300), adts(30)].concat(), counter);
        assert_eq!(length.ticks(), lasting(3));
        take(&mut length, false, &adts(50), counter + 1);
        assert_eq!(length.ticks(), None);
        let lost = [&adts(300)[100..], &adts(50)[..], &adts(60)[..]].concat();
        take(&mut length, true, &lost, counter + 7);
        assert_eq!(length.ticks(), lasting(2));
        let counter = take(&mut length, true, &adts(400), 0);
        (0..10).fold(counter, |counter, _| take(&mut length, false, &adts(8000), counter));
        assert_eq!(length.ticks(), None, "more than a packet has");
    }
}
