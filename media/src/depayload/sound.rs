// SPDX-License-Identifier: MIT OR Apache-2.0
//! Depayloader of MPEG audio, AC-3, Enhanced AC-3 and Opus: whole frames, or fragments of one
//! frame.
//!
//! Frames that share a packet are split by the sizes in their own headers, which also give their
//! durations.
//!
//! Sources: RFC 2250 §3.5; RFC 4184 §4.1; RFC 4598 §4.1; RFC 7587 §4.2; RFC 6716 §3.1 (table of
//! contents of Opus); ETSI TS 102 366 §5.4.1 and table 4.13 (AC-3), §E.1.3 (Enhanced AC-3).
//! Does not decode.

use super::{Output, TimedPacket, UNIT_BYTES_MAX};
use crate::frames::mpeg_audio_frame;
use crate::tracks::Codec;

/// One of the four codecs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    MpegAudio,
    Ac3,
    Eac3,
    Opus,
}

/// Size and duration of a frame, from its header.
#[derive(Debug, Clone, Copy)]
struct FrameSize {
    bytes: usize,
    /// Samples of the frame, at `rate_hz`; 0 for a substream that adds channels to the frame
    /// before.
    samples: u32,
    rate_hz: u32,
}

/// Assembles frames.
#[derive(Debug)]
pub(super) struct Frames {
    kind: FrameKind,
    codec: Option<Codec>,
    /// Clock rate of the RTP timestamps, in hertz.
    clock_rate_hz: u32,
    /// A partly received frame: its time and the bytes so far.
    open: Option<(i64, Vec<u8>)>,
}

impl Frames {
    pub(super) fn new(kind: FrameKind, codec: Option<Codec>, clock_rate_hz: u32) -> Frames {
        Frames { kind, codec, clock_rate_hz, open: None }
    }

    pub(super) fn codec(&self) -> Option<&Codec> {
        self.codec.as_ref()
    }

    pub(super) fn push(&mut self, packet: TimedPacket<'_>, output: &mut Output) {
        if packet.is_after_gap {
            self.finish(output);
        }
        if self.take(packet, output).is_none() {
            output.malformed();
        }
    }

    /// Drops an incomplete frame and counts it as broken.
    pub(super) fn finish(&mut self, output: &mut Output) {
        if self.open.take().is_some() {
            output.broken_unit();
        }
    }

    /// Parses a packet; `None` if it is malformed.
    fn take(&mut self, packet: TimedPacket<'_>, output: &mut Output) -> Option<()> {
        let payload = packet.payload;
        match self.kind {
            FrameKind::Opus => {
                // Bit 2 of the table of contents means stereo.
                let channels = 1 + (payload.first()? >> 2 & 1);
                self.codec.get_or_insert(Codec::Opus { channels });
                output.unit(packet.time, payload.to_vec(), true);
            }
            FrameKind::MpegAudio => {
                let (head, body) = payload.split_first_chunk::<4>()?;
                let offset = usize::from(u16::from_be_bytes([head[2], head[3]]));
                self.take_at(packet, offset, body, output)?;
            }
            FrameKind::Ac3 => {
                let (head, body) = payload.split_first_chunk::<2>()?;
                match head[0] & 3 {
                    0 => self.take_frames(packet, body, output)?,
                    // Types 1 and 2 are first fragments, type 3 is a later one.
                    1 | 2 => self.begin(packet.time, body, output),
                    _ => self.append_fragment(packet, body, output)?,
                }
            }
            FrameKind::Eac3 => {
                let (head, body) = payload.split_first_chunk::<2>()?;
                let is_fragment = head[0] & 1 == 1;
                let is_open = self.open.as_ref().is_some_and(|(time, _)| *time == packet.time);
                // Only the sync word marks a first fragment.
                match is_fragment {
                    false => self.take_frames(packet, body, output)?,
                    true if !is_open && body.starts_with(&[0x0b, 0x77]) => {
                        self.begin(packet.time, body, output);
                    }
                    true => self.append_fragment(packet, body, output)?,
                }
            }
        }
        Some(())
    }

    /// Appends a payload of MPEG audio that begins at this offset of a frame.
    fn take_at(
        &mut self,
        packet: TimedPacket<'_>,
        offset: usize,
        body: &[u8],
        output: &mut Output,
    ) -> Option<()> {
        if offset > 0 {
            let is_next = self.open.as_ref().is_some_and(|(_, bytes)| bytes.len() == offset);
            if !is_next {
                self.finish(output);
                return None;
            }
            return self.append_fragment(packet, body, output);
        }
        self.finish(output);
        let size = self.size(body)?;
        match size.bytes > body.len() {
            true => self.begin(packet.time, body, output),
            false => self.take_frames(packet, body, output)?,
        }
        Some(())
    }

    /// Emits the whole frames of a payload.
    fn take_frames(
        &mut self,
        packet: TimedPacket<'_>,
        body: &[u8],
        output: &mut Output,
    ) -> Option<()> {
        self.finish(output);
        let (mut rest, mut passed) = (body, 0_u64);
        while !rest.is_empty() {
            let first = self.size(rest)?;
            let mut bytes = first.bytes;
            // Substreams with more channels belong to the frame before them.
            while let Some(more) = rest.get(bytes..).filter(|more| !more.is_empty())
                && let Some(next) = self.size(more).filter(|next| next.samples == 0)
            {
                bytes += next.bytes;
            }
            let (frame, behind) = rest.split_at_checked(bytes)?;
            let units = passed * u64::from(self.clock_rate_hz) / u64::from(first.rate_hz);
            output.unit(packet.time + units as i64, frame.to_vec(), true);
            passed += u64::from(first.samples);
            rest = behind;
        }
        Some(())
    }

    /// Starts a frame with its first fragment.
    fn begin(&mut self, time: i64, body: &[u8], output: &mut Output) {
        self.finish(output);
        // The call sets the codec from the header; the size is not needed yet.
        let _ = self.size(body);
        self.open = Some((time, body.to_vec()));
    }

    /// Appends a later fragment; emits the frame when all its bytes are there, or at the marker
    /// bit.
    fn append_fragment(
        &mut self,
        packet: TimedPacket<'_>,
        body: &[u8],
        output: &mut Output,
    ) -> Option<()> {
        let Some((time, mut bytes)) = self.open.take() else {
            // The first fragment was lost.
            output.is_after_loss = true;
            return Some(());
        };
        if time != packet.time || bytes.len() + body.len() > UNIT_BYTES_MAX {
            output.broken_unit();
            return None;
        }
        bytes.extend_from_slice(body);
        let is_whole = match self.size(&bytes) {
            Some(size) => bytes.len() >= size.bytes,
            None => packet.marker,
        };
        match is_whole || packet.marker {
            true => output.unit(time, bytes, true),
            false => self.open = Some((time, bytes)),
        }
        Some(())
    }

    /// Parses the header of a frame; the first one sets the codec. `None` if it is not a frame.
    fn size(&mut self, frame: &[u8]) -> Option<FrameSize> {
        let (size, codec) = match self.kind {
            FrameKind::MpegAudio => {
                let (bytes, samples, rate_hz) = mpeg_audio_frame(frame)?;
                (FrameSize { bytes: bytes as usize, samples, rate_hz }, Codec::MpegAudio)
            }
            FrameKind::Ac3 => ac3(frame)?,
            FrameKind::Eac3 => eac3(frame)?,
            FrameKind::Opus => return None,
        };
        if size.samples > 0 {
            self.codec.get_or_insert(codec);
        }
        Some(size)
    }
}

/// Channels by audio coding mode (table 4.3), without the low-frequency channel.
const CHANNELS: [u8; 8] = [2, 1, 2, 3, 3, 4, 4, 5];
/// Sample rate in hertz by `fscod`.
const RATES_HZ: [u32; 3] = [48_000, 44_100, 32_000];
/// Bit rate in kbit/s by `frmsizecod` / 2 (table 4.13).
const KILOBITS: [u32; 19] =
    [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];

fn ac3(frame: &[u8]) -> Option<(FrameSize, Codec)> {
    let &[0x0b, 0x77, _, _, sizes, ids, mode, ..] = frame else { return None };
    let rate_hz = *RATES_HZ.get(usize::from(sizes >> 6))?;
    let code = u32::from(sizes & 0x3f);
    let kilobits = *KILOBITS.get(code as usize / 2)?;
    // A frame has 1536 samples and is counted in 16-bit words; at 44.1 kHz odd codes have one more.
    let words = kilobits * 96_000 / rate_hz + if rate_hz == 44_100 { code & 1 } else { 0 };
    if ids >> 3 > 10 {
        return None;
    }
    let acmod = mode >> 5;
    // The mix levels between acmod and lfeon are present in some modes only (§5.3.2).
    let mut at = 3;
    at += if acmod & 1 == 1 && acmod != 1 { 2 } else { 0 };
    at += if acmod & 4 != 0 { 2 } else { 0 };
    at += if acmod == 2 { 2 } else { 0 };
    let two = u16::from_be_bytes([mode, *frame.get(7).unwrap_or(&0)]);
    let lfe = (two >> (15 - at) & 1) as u8;
    let channels = CHANNELS[usize::from(acmod)] + lfe;
    let size = FrameSize { bytes: words as usize * 2, samples: 1536, rate_hz };
    Some((size, Codec::Ac3 { rate_hz, channels }))
}

fn eac3(frame: &[u8]) -> Option<(FrameSize, Codec)> {
    let &[0x0b, 0x77, first, second, third, ids, ..] = frame else { return None };
    if !(11..=16).contains(&(ids >> 3)) {
        return None;
    }
    let bytes = (usize::from(first & 7) << 8 | usize::from(second)) * 2 + 2;
    let (is_dependent, substream) = (first >> 6 == 1, first >> 3 & 7);
    let (rate_hz, blocks) = match third >> 6 {
        3 => (RATES_HZ.get(usize::from(third >> 4 & 3))? / 2, 6),
        code => (RATES_HZ[usize::from(code)], [1, 2, 3, 6][usize::from(third >> 4 & 3)]),
    };
    let is_more = is_dependent || substream > 0;
    let samples = if is_more { 0 } else { 256 * blocks };
    let channels = CHANNELS[usize::from(third >> 1 & 7)] + (third & 1);
    Some((FrameSize { bytes, samples, rate_hz }, Codec::Eac3 { rate_hz, channels }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_frames_are_those_of_the_standard() {
        // 448 kbit/s with 5.1 channels at 48 kHz; 32 kbit/s at 44.1 kHz with padding.
        let (size, codec) = ac3(&[0x0b, 0x77, 0, 0, 0x1e, 0x40, 0xe1, 0]).unwrap();
        assert_eq!((size.bytes, size.samples), (1792, 1536));
        assert_eq!(codec, Codec::Ac3 { rate_hz: 48_000, channels: 6 });
        let (size, codec) = ac3(&[0x0b, 0x77, 0, 0, 0x41, 0x40, 0x40, 0]).unwrap();
        assert_eq!((size.bytes, size.rate_hz), (140, 44_100));
        assert_eq!(codec, Codec::Ac3 { rate_hz: 44_100, channels: 2 });
        assert!(ac3(&[0x0b, 0x77, 0, 0, 0xc0, 0x40, 0, 0]).is_none(), "a reserved rate");
        let (size, codec) = eac3(&[0x0b, 0x77, 0x02, 0xff, 0x3f, 0x80, 0]).unwrap();
        assert_eq!((size.bytes, size.samples, size.rate_hz), (1536, 1536, 48_000));
        assert_eq!(codec, Codec::Eac3 { rate_hz: 48_000, channels: 6 });
        let (size, _) = eac3(&[0x0b, 0x77, 0x42, 0xff, 0x3f, 0x80, 0]).unwrap();
        assert_eq!(size.samples, 0, "a dependent substream");
    }
}
