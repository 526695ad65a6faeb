// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialization sections: `ftyp` and `moov` of the tracks of a rendition.
//!
//! Sources: RFC 8216 §3.3 (Media Initialization Section), ISO/IEC 23000-19 §7.2 (CMAF header).
//! Does not read a file, except the first samples of tracks whose parameters are not in the file's
//! header.

use std::io;

use super::TrackSegments;
use super::common_encryption::{CommonEncryption, is_protectable};
use crate::mux::{TrackHeader, describe, needs_first_unit, write_movie_header};
use crate::tracks::{Codec, Presentation, Track, TrackMedia};

/// Reason why a rendition has no initialization section.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoInitSection {
    /// Neither the file's header nor the first sample of the track has its parameters.
    #[error("track {track} ({codec}) begins without the parameters that a decoder needs")]
    NoParameters {
        /// Its number in the file.
        track: u32,
        /// Name of its codec.
        codec: String,
    },
    /// The codec has no encrypted form here.
    #[error(
        "track {track} ({codec}) cannot be enciphered with cbcs, which is made for H.264, H.265 \
         and sound here; serve it with --hls-cipher aes-128, or clear"
    )]
    NotProtectable {
        /// Its number in the file.
        track: u32,
        /// Name of its codec.
        codec: String,
    },
    /// The first sample cannot be read.
    #[error("reading the first sample of track {track}: {error}")]
    Unreadable {
        /// Its number in the file.
        track: u32,
        /// Error of the disk.
        error: io::Error,
    },
}

/// The initialization section of a rendition's tracks, which `encryption` protects if it is set.
/// `read` returns a sample of a track (index in the presentation, number of the sample) as the
/// segments carry it.
///
/// # Errors
/// A track's parameters are unknown, or it cannot be encrypted.
pub fn init_section(
    presentation: &Presentation,
    tracks: &[usize],
    encryption: Option<&CommonEncryption>,
    mut read: impl FnMut(usize, usize) -> io::Result<Vec<u8>>,
) -> Result<Vec<u8>, NoInitSection> {
    let mut headers = Vec::new();
    for &index in tracks {
        let track = &presentation.tracks()[index];
        if encryption.is_some() && !is_protectable(&track.codec) {
            let codec = track.codec.name();
            return Err(NoInitSection::NotProtectable { track: track.id, codec });
        }
        let first = needs_first_unit(&track.codec).then(|| read(index, 0)).transpose();
        let first = first.map_err(|error| NoInitSection::Unreadable { track: track.id, error })?;
        let first = first.map(|sample| with_four_byte_lengths(&track.codec, sample));
        let (entry, size) = describe(&track.codec, first.as_deref()).ok_or_else(|| {
            NoInitSection::NoParameters { track: track.id, codec: track.codec.name() }
        })?;
        headers.push(TrackHeader {
            id: TrackSegments::track_id(index),
            is_video: track.codec.media() == TrackMedia::Video,
            timescale: track.samples.timescale(),
            language: track.language,
            size,
            display: track.display,
            entry: with_lengths_of(track, entry),
        });
    }
    let mut out = Vec::new();
    // cmfc: a CMAF track; iso6: offsets from the fragment, and times of more than 32 bits.
    write_movie_header(&[*b"iso6", *b"cmfc", *b"mp41"], headers, &mut out);
    Ok(match encryption {
        Some(encryption) => encryption.protected(&out),
        None => out,
    })
}

/// Bytes of the lengths before the NAL units of a track's samples.
pub(super) fn length_bytes(codec: &Codec) -> Option<u8> {
    match codec {
        Codec::H264(config) => Some(config.length_bytes),
        Codec::H265(config) => Some(config.length_bytes),
        _ => None,
    }
}

/// Returns the description for samples whose lengths stay as in the file.
fn with_lengths_of(track: &Track, mut entry: mp4_atom::Codec) -> mp4_atom::Codec {
    if let Some(bytes) = length_bytes(&track.codec) {
        match &mut entry {
            mp4_atom::Codec::Avc1(entry) => entry.avcc.length_size = bytes,
            mp4_atom::Codec::Hvc1(entry) => entry.hvcc.length_size_minus_one = bytes - 1,
            _ => {}
        }
    }
    entry
}

/// Converts a sample to NAL units with lengths of four bytes; a part that does not fit its lengths
/// is dropped.
fn with_four_byte_lengths(codec: &Codec, sample: Vec<u8>) -> Vec<u8> {
    let Some(length_bytes) = length_bytes(codec).filter(|&bytes| bytes != 4) else {
        return sample;
    };
    let (mut out, mut rest) = (Vec::with_capacity(sample.len() * 2), &sample[..]);
    while let Some((length, behind)) = rest.split_at_checked(length_bytes.into()) {
        let length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        let Some((nal, behind)) = behind.split_at_checked(length) else { break };
        out.extend((length as u32).to_be_bytes());
        out.extend_from_slice(nal);
        rest = behind;
    }
    out
}
