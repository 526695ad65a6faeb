// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key pictures of a file, in a form that a decoder accepts without other pictures: for posters and
//! thumbnails.
//!
//! A plan lists the place of every picture that needs no other. [`KeyPictures`] lists them with
//! their times; [`KeyPictures::read`] reads one and returns it in the byte stream format of its
//! coding, preceded by its parameter sets. Each picture begins a coded sequence of its own, so a
//! decoder that gets several of them shows them all, in this order: a clean random access picture
//! of H.265 is rewritten as one after a broken link, and a picture of H.264 with only intra coding
//! as an instantaneous decoding refresh ([`idr`]). Everything but parameter sets and slices is
//! dropped, so a decoder parses no more untrusted bytes than it needs.
//!
//! Costs one read of the picture and two copies; of a transport stream that of trick play
//! ([`crate::trick`]). Listing costs a look-up for each picture.
//!
//! Sources: ISO/IEC 14496-10 annex B, §7.4.1.2; ISO/IEC 23008-2 annex B, §7.4.2.2 (types of NAL
//! units), §8.1.3; AV1 Bitstream §7.5.
//! Does not decode, and finds no pictures of scrambled streams.

mod idr;

use std::io;

use crate::byte_stream::started_nals;
use crate::plan::PacketPlan;
use crate::tracks::{Codec, Presentation, Track, TrackMedia};
use crate::ts::{Coding, key_unit};
use crate::{ReadAt, TICKS_PER_SECOND};

/// Coding of key pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PictureCoding {
    /// MPEG-1 or MPEG-2 video.
    Mpeg2,
    /// H.264, byte stream format.
    H264,
    /// H.265, byte stream format.
    H265,
    /// AV1, temporal units.
    Av1,
}

/// A key picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPicture {
    /// Presentation time, from the title's start.
    pub presented_ticks: u64,
    /// Number of its sample, or of its place to start.
    number: usize,
}

/// The key pictures of a file.
pub struct KeyPictures<'a> {
    source: Source<'a>,
    coding: PictureCoding,
    duration_ticks: u64,
    list: Vec<KeyPicture>,
}

enum Source<'a> {
    Track(&'a Track),
    Stream(&'a PacketPlan),
}

/// Most pictures listed of a file: those of nine hours, one a second. Of a file with more, every
/// second one is listed, or every third.
const LISTED_MAX: usize = 1 << 15;

impl<'a> KeyPictures<'a> {
    /// Lists the pictures of the first video track; `None` if there is no such track.
    pub fn of_tracks(presentation: &'a Presentation) -> Option<KeyPictures<'a>> {
        let track = presentation.leading_track();
        if track.codec.media() != TrackMedia::Video {
            return None;
        }
        let coding = match track.codec {
            Codec::H264(_) => PictureCoding::H264,
            Codec::H265(_) => PictureCoding::H265,
            Codec::Av1(_) => PictureCoding::Av1,
            _ => return None,
        };
        let samples = &track.samples;
        let step = samples.starts().div_ceil(LISTED_MAX).max(1);
        let picture = |index: usize| {
            let number = samples.start(index);
            let presented = track.presented_ticks(&samples.sample(number));
            KeyPicture { presented_ticks: u64::try_from(presented).unwrap_or(0), number }
        };
        let list = (0..samples.starts()).step_by(step).map(picture).collect();
        let duration_ticks = presentation.presented_end_ticks();
        Some(KeyPictures { source: Source::Track(track), coding, duration_ticks, list })
    }

    /// Lists the pictures of a transport stream; `None` if its programme has no pictures of a
    /// supported coding.
    pub fn of_stream(plan: &'a PacketPlan) -> Option<KeyPictures<'a>> {
        let coding = plan.streams().iter().find_map(|one| coding_of(one.stream_type))?;
        let step = plan.entries().len().div_ceil(LISTED_MAX).max(1);
        let picture = |(number, entry): (usize, &crate::EntryPoint)| KeyPicture {
            presented_ticks: entry.presented_ticks,
            number,
        };
        let list = plan.entries().iter().enumerate().step_by(step).map(picture).collect();
        let duration_ticks = plan.duration_ticks();
        Some(KeyPictures { source: Source::Stream(plan), coding, duration_ticks, list })
    }

    /// Coding of all of them.
    pub fn coding(&self) -> PictureCoding {
        self.coding
    }

    /// The pictures, in the order of the file.
    pub fn list(&self) -> &[KeyPicture] {
        &self.list
    }

    /// Duration of the title.
    pub fn duration_ticks(&self) -> u64 {
        self.duration_ticks
    }

    /// Divides the title into slots of `ticks` (at least a second) and returns the first picture of
    /// each slot that has one.
    pub fn spread(&self, ticks: u64) -> Vec<KeyPicture> {
        let ticks = ticks.max(TICKS_PER_SECOND);
        let mut chosen: Vec<KeyPicture> = Vec::new();
        for picture in &self.list {
            let slot = |picture: &KeyPicture| picture.presented_ticks / ticks;
            // The first picture of a slot: a tile shows the media after its time.
            if chosen.last().is_none_or(|last| slot(picture) > slot(last)) {
                chosen.push(*picture);
            }
        }
        chosen
    }

    /// Reads a picture, ready for a decoder; `None` if it cannot be found in the file, or is
    /// scrambled.
    ///
    /// # Errors
    /// `file` cannot be read.
    pub fn read(
        &self,
        picture: &KeyPicture,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<Option<Vec<u8>>> {
        match self.source {
            Source::Track(track) => {
                let sample = track.samples.sample(picture.number);
                let mut bytes = vec![0; sample.bytes as usize];
                file.read_exact_at(&mut bytes, sample.file_offset)?;
                Ok(of_sample(&track.codec, bytes))
            }
            Source::Stream(plan) => {
                let Some(entry) = plan.entries().get(picture.number) else { return Ok(None) };
                let Some((stream_type, bytes)) = key_unit(plan, *entry, file)? else {
                    return Ok(None);
                };
                let is_coding = coding_of(stream_type) == Some(self.coding);
                Ok(is_coding.then(|| of_byte_stream(self.coding, bytes)).flatten())
            }
        }
    }
}

fn coding_of(stream_type: u8) -> Option<PictureCoding> {
    match Coding::of(stream_type, &[]) {
        Coding::Mpeg2Video => Some(PictureCoding::Mpeg2),
        Coding::H264 => Some(PictureCoding::H264),
        Coding::H265 => Some(PictureCoding::H265),
        _ => None,
    }
}

/// Converts a sample to a picture.
fn of_sample(codec: &Codec, bytes: Vec<u8>) -> Option<Vec<u8>> {
    match codec {
        Codec::H264(config) => {
            let sets = config.sequence_sets.iter().chain(&config.picture_sets);
            let nals = sized_nals(&bytes, config.length_bytes)?;
            byte_stream(PictureCoding::H264, sets.map(Vec::as_slice).chain(nals))
        }
        Codec::H265(config) => {
            let sets = config.video_sets.iter().chain(&config.sequence_sets);
            let sets = sets.chain(&config.picture_sets);
            let nals = sized_nals(&bytes, config.length_bytes)?;
            byte_stream(PictureCoding::H265, sets.map(Vec::as_slice).chain(nals))
        }
        Codec::Av1(config) => Some([&config.units[..], &bytes].concat()),
        _ => None,
    }
}

/// Converts an access unit in byte stream format to a picture.
fn of_byte_stream(coding: PictureCoding, bytes: Vec<u8>) -> Option<Vec<u8>> {
    match coding {
        PictureCoding::H264 | PictureCoding::H265 => {
            byte_stream(coding, started_nals(&bytes).take(NALS_MAX))
        }
        PictureCoding::Mpeg2 | PictureCoding::Av1 => Some(bytes),
    }
}

/// Returns NAL units, each after its length; `None` if a length exceeds the bytes.
fn sized_nals(mut bytes: &[u8], length_bytes: u8) -> Option<Vec<&[u8]>> {
    let mut nals = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at_checked(usize::from(length_bytes))?;
        let length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        let (nal, rest) = rest.split_at_checked(length)?;
        nals.push(nal);
        bytes = rest;
        if nals.len() > NALS_MAX {
            return None;
        }
    }
    Some(nals)
}

/// Joins parameter sets and slices in byte stream format, as a sequence of their own; none without
/// a slice, or beyond [`PICTURE_BYTES_MAX`].
fn byte_stream<'a>(coding: PictureCoding, nals: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let nals: Vec<&[u8]> = nals.filter(|nal| nal.len() > 2).collect();
    let mut out = Vec::with_capacity(nals.iter().map(|nal| nal.len() + 4).sum::<usize>());
    let mut refresh = idr::Refresh::of(&nals);
    let mut slices = 0;
    for nal in &nals {
        let kind = match coding {
            PictureCoding::H265 => h265_kind(nal),
            _ => h264_kind(nal),
        };
        let is_slice = match kind {
            Kind::Other => continue,
            Kind::Set => false,
            Kind::Slice => true,
        };
        slices += usize::from(is_slice);
        out.extend([0, 0, 0, 1]);
        match coding {
            PictureCoding::H264 if is_slice => refresh.add(nal, &mut out),
            PictureCoding::H265 if is_slice && nal[0] >> 1 & 0x3f == H265_CRA => {
                out.push(nal[0] & 0x81 | H265_BLA_N_LP << 1);
                out.extend(&nal[1..]);
            }
            _ => out.extend_from_slice(nal),
        }
        if out.len() > PICTURE_BYTES_MAX {
            return None;
        }
    }
    (slices > 0).then_some(out)
}

/// Kinds of NAL units.
enum Kind {
    Set,
    Slice,
    /// A decoder does not need them.
    Other,
}

fn h264_kind(nal: &[u8]) -> Kind {
    match nal[0] & 0x1f {
        1 | 5 => Kind::Slice,
        7 | 8 => Kind::Set,
        _ => Kind::Other,
    }
}

fn h265_kind(nal: &[u8]) -> Kind {
    // Of several layers the first.
    if nal[0] & 1 != 0 || nal[1] >> 3 != 0 {
        return Kind::Other;
    }
    match nal[0] >> 1 & 0x3f {
        0..=31 => Kind::Slice,
        32..=34 => Kind::Set,
        _ => Kind::Other,
    }
}

/// Types of NAL units of H.265 (table 7-1).
const H265_CRA: u8 = 21;
const H265_BLA_N_LP: u8 = 18;

/// NAL units of an access unit.
const NALS_MAX: usize = 4096;

/// Largest picture: that of a sample.
const PICTURE_BYTES_MAX: usize = 17 << 20;

#[cfg(test)]
mod tests;
