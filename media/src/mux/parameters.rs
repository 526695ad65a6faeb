// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of a track that a decoder needs before the first unit, read from the codec if it
//! holds them, else from the units.
//!
//! H.264 and H.265: the parameter sets last seen. AV1: the sequence header. Sound: the first frame,
//! whose header gives the fields that the codec lacks.
//!
//! Sources: ISO/IEC 14496-10 table 7-1, ISO/IEC 23008-2 table 7-1 (types of NAL units); AV1
//! Bitstream §5.3.
//! Does not check that the sets to which a picture refers are present.

use crate::payload::av1;
use crate::reorder::HELD_MAX;
use crate::sequence::{Av1Sequence, SequenceSet};
use crate::tracks::{Codec, PixelAspect, TrackMedia};

/// Most parameter sets stored of a kind: encoders use one or two.
const SETS_MAX: usize = 16;

/// Largest parameter set in bytes: records give its length in two bytes.
const SET_BYTES_MAX: usize = u16::MAX as usize;

/// Most NAL units of an access unit: a picture of the largest profile has 600 slices.
const NALS_MAX: usize = 4096;

/// Bytes stored from the start of a frame of sound: enough for an access unit of Enhanced AC-3 with
/// several substreams.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// Parameter sets by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ParameterSets {
    /// Video parameter sets; only H.265 has them.
    pub(super) video: Vec<Vec<u8>>,
    pub(super) sequence: Vec<Vec<u8>>,
    pub(super) picture: Vec<Vec<u8>>,
}

impl ParameterSets {
    /// Iterates over all sets in the order in which a decoder needs them.
    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.video.iter().chain(&self.sequence).chain(&self.picture).map(Vec::as_slice)
    }
}

/// Kinds of NAL units distinguished here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NalKind {
    Delimiter,
    VideoSet,
    SequenceSet,
    PictureSet,
    Other,
}

/// Returns the kind of a NAL unit, which must not be empty.
pub(super) fn nal_kind(is_h265: bool, nal: &[u8]) -> NalKind {
    match (is_h265, if is_h265 { nal[0] >> 1 & 0x3f } else { nal[0] & 0x1f }) {
        (false, 9) | (true, 35) => NalKind::Delimiter,
        (true, 32) => NalKind::VideoSet,
        (false, 7) | (true, 33) => NalKind::SequenceSet,
        (false, 8) | (true, 34) => NalKind::PictureSet,
        _ => NalKind::Other,
    }
}

/// True for a parameter set.
fn is_set(is_h265: bool, nal: &[u8]) -> bool {
    let kind = nal_kind(is_h265, nal);
    matches!(kind, NalKind::VideoSet | NalKind::SequenceSet | NalKind::PictureSet)
}

/// Returns the NAL units of an access unit, in which each follows its length in four bytes; empty
/// ones are skipped. `None` if a length is wrong or there are more than [`NALS_MAX`].
pub(super) fn nal_units(mut unit: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !unit.is_empty() {
        let (length, rest) = unit.split_first_chunk()?;
        let (nal, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if !nal.is_empty() {
            if all.len() == NALS_MAX {
                return None;
            }
            all.push(nal);
        }
        unit = rest;
    }
    Some(all)
}

/// Parameters of a track.
#[derive(Debug, Clone)]
pub(super) enum Parameters {
    /// Parameter sets of H.264 or H.265.
    Sets {
        is_h265: bool,
        sets: ParameterSets,
        /// Fields of the first sequence parameter set, if it can be parsed.
        sequence: Option<SequenceSet>,
    },
    Av1 {
        /// The sequence header OBU, with its OBU header and size.
        unit: Vec<u8>,
        sequence: Option<Av1Sequence>,
    },
    /// First frame of a track of sound.
    Frame(Option<Vec<u8>>),
}

impl Parameters {
    /// Returns the parameters that a codec holds.
    pub(super) fn of(codec: &Codec) -> Parameters {
        match codec {
            Codec::H264(config) => Parameters::sets(
                false,
                ParameterSets {
                    video: Vec::new(),
                    sequence: config.sequence_sets.clone(),
                    picture: config.picture_sets.clone(),
                },
            ),
            Codec::H265(config) => Parameters::sets(
                true,
                ParameterSets {
                    video: config.video_sets.clone(),
                    sequence: config.sequence_sets.clone(),
                    picture: config.picture_sets.clone(),
                },
            ),
            Codec::Av1(config) => {
                let mut parameters = Parameters::Av1 { unit: Vec::new(), sequence: None };
                // Invalid units are ignored, as if they were absent.
                let _ = parameters.observe(&config.units);
                parameters
            }
            _ => Parameters::Frame(None),
        }
    }

    fn sets(is_h265: bool, mut sets: ParameterSets) -> Parameters {
        for kind in [&mut sets.video, &mut sets.sequence, &mut sets.picture] {
            kind.retain(|set| (1..=SET_BYTES_MAX).contains(&set.len()));
            kind.truncate(SETS_MAX);
        }
        let sequence = sequence_of(is_h265, &sets);
        Parameters::Sets { is_h265, sets, sequence }
    }

    /// Stores the parameters in a unit.
    ///
    /// # Errors
    /// The unit does not match the codec. Nothing changes then.
    pub(super) fn observe(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        match self {
            Parameters::Sets { is_h265, sets, sequence } => {
                const BROKEN: &str = "NAL units longer than the access unit, or more than 4096";
                let nals = nal_units(bytes).ok_or(BROKEN)?;
                if nals.iter().any(|nal| is_set(*is_h265, nal)) {
                    let mut found = sets.clone();
                    take_sets(*is_h265, &nals, &mut found);
                    let found_sequence = sequence_of(*is_h265, &found);
                    // Sets that cannot be read describe no file.
                    if found_sequence.is_some() || sequence.is_none() {
                        (*sets, *sequence) = (found, found_sequence);
                    }
                }
            }
            Parameters::Av1 { unit, sequence } => {
                if let Some((found, fields)) = av1_sequence(bytes)? {
                    (*unit, *sequence) = (found.to_vec(), Some(fields));
                }
            }
            Parameters::Frame(Some(_)) => {}
            Parameters::Frame(frame) => {
                *frame = Some(bytes[..bytes.len().min(FRAME_BYTES_MAX)].to_vec());
            }
        }
        Ok(())
    }

    /// True if the parameters are sufficient for a decoder to begin.
    pub(super) fn are_known(&self) -> bool {
        match self {
            Parameters::Sets { is_h265, sets, sequence } => {
                let has_video = !is_h265 || !sets.video.is_empty();
                has_video && sequence.is_some() && !sets.picture.is_empty()
            }
            Parameters::Av1 { sequence, .. } => sequence.is_some(),
            Parameters::Frame(frame) => frame.is_some(),
        }
    }

    /// Classifies a picture after the first of a file: `Some(true)` if it refers to pictures before
    /// that one, `None` if it is presented before it as well but can be decoded, and `Some(false)`
    /// if no leading picture can follow it. H.264 does not mark leading pictures: it is one if it
    /// is presented `before` the first picture.
    pub(super) fn is_leading(&self, unit: &[u8], before: bool) -> Option<bool> {
        match self {
            Parameters::Sets { is_h265: true, .. } => {}
            Parameters::Sets { .. } => return Some(before),
            Parameters::Av1 { .. } | Parameters::Frame(_) => return Some(false),
        }
        let nals = nal_units(unit).unwrap_or_default();
        match nals.iter().map(|nal| nal[0] >> 1 & 0x3f).find(|&kind| kind < 32) {
            // RASL (random access skipped leading) pictures; then RADL (decodable) ones.
            Some(8 | 9) => Some(true),
            Some(6 | 7) => None,
            _ => Some(false),
        }
    }

    /// Returns the number of units that may be decoded before a unit and presented after it.
    pub(super) fn reordered(&self) -> usize {
        match self {
            Parameters::Sets { sequence, .. } => {
                let reordered = sequence.as_ref().and_then(|sequence| sequence.reordered);
                reordered.map_or(HELD_MAX, usize::from).min(HELD_MAX)
            }
            // A temporal unit is presented when it is decoded (AV1 Bitstream §7.5).
            Parameters::Av1 { .. } | Parameters::Frame(_) => 0,
        }
    }

    /// Returns the width and height of the picture.
    pub(super) fn size(&self) -> Option<(u32, u32)> {
        match self {
            Parameters::Sets { sequence, .. } => sequence.as_ref().map(|sequence| sequence.size),
            Parameters::Av1 { sequence, .. } => sequence.as_ref().map(|sequence| sequence.size),
            Parameters::Frame(_) => None,
        }
    }

    /// Returns the pixel aspect ratio; `None` if the parameters give none.
    pub(super) fn pixel_aspect(&self) -> Option<PixelAspect> {
        match self {
            Parameters::Sets { sequence, .. } => sequence.as_ref()?.pixel_aspect,
            _ => None,
        }
    }
}

/// True for a codec whose sample description needs the first unit.
pub(crate) fn needs_first_unit(codec: &Codec) -> bool {
    match codec {
        Codec::Aac(_) | Codec::Opus { .. } | Codec::Pcm(_) => false,
        _ if codec.media() == TrackMedia::Video => !Parameters::of(codec).are_known(),
        _ => true,
    }
}

/// Parses the first sequence parameter set.
fn sequence_of(is_h265: bool, sets: &ParameterSets) -> Option<SequenceSet> {
    let first = sets.sequence.first()?;
    if is_h265 { SequenceSet::h265(first) } else { SequenceSet::h264(first) }
}

/// Replaces the stored sets of each kind that occurs in `nals`.
fn take_sets(is_h265: bool, nals: &[&[u8]], sets: &mut ParameterSets) {
    let ParameterSets { video, sequence, picture } = sets;
    let kinds = [
        (NalKind::VideoSet, video),
        (NalKind::SequenceSet, sequence),
        (NalKind::PictureSet, picture),
    ];
    for (kind, kept) in kinds {
        let of_kind = nals.iter().filter(|nal| nal_kind(is_h265, nal) == kind);
        let fits = of_kind.filter(|nal| nal.len() <= SET_BYTES_MAX).take(SETS_MAX);
        let found: Vec<_> = fits.map(|nal| nal.to_vec()).collect();
        if !found.is_empty() {
            *kept = found;
        }
    }
}

/// Returns the first sequence header among open bitstream units, with its fields.
fn av1_sequence(mut units: &[u8]) -> Result<Option<(&[u8], Av1Sequence)>, &'static str> {
    const BROKEN: &str = "an open bitstream unit is longer than the temporal unit, or none";
    let mut found = None;
    while !units.is_empty() {
        let (header, before, bytes) = av1::parse(units, units.len() as u64).ok_or(BROKEN)?;
        let (unit, rest) = units.split_at_checked(before + bytes as usize).ok_or(BROKEN)?;
        if found.is_none() && header[0] >> 3 & 15 == av1::SEQUENCE_HEADER {
            found = Av1Sequence::read(&unit[before..]).map(|fields| (unit, fields));
        }
        units = rest;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracks::{Av1Config, H264Config};

    fn unit(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&(nal.len() as u32).to_be_bytes()[..], nal].concat()).collect()
    }

    /// Written by x264, 322 × 178.
    const SET: [u8; 24] = [
        0x67, 0x42, 0xc0, 0x0d, 0xd9, 0x01, 0x51, 0x9e, 0x22, 0x23, 0x01, 0x10, 0x00, 0x00, 0x03,
        0x00, 0x00, 0x03, 0x03, 0x20, 0xf1, 0x42, 0xa4, 0x80,
    ];

    fn h264(sequence: &[&[u8]], picture: &[&[u8]]) -> Codec {
        let vectors = |sets: &[&[u8]]| sets.iter().map(|set| set.to_vec()).collect();
        Codec::H264(H264Config {
            length_bytes: 4,
            profile: [0x42, 0xc0, 0x0d],
            sequence_sets: vectors(sequence),
            picture_sets: vectors(picture),
        })
    }

    #[test]
    fn sets_of_a_unit_take_the_place_of_those_of_the_codec() {
        let mut parameters = Parameters::of(&h264(&[&SET], &[&[0x68, 1]]));
        assert!(parameters.are_known() && !needs_first_unit(&h264(&[&SET], &[&[0x68, 1]])));
        assert_eq!((parameters.size(), parameters.reordered()), (Some((322, 178)), 0));
        parameters.observe(&unit(&[&[0x68, 2], &[0x68, 3], &[], &[0x65, 1]])).unwrap();
        let Parameters::Sets { sets, .. } = &parameters else { panic!("pictures") };
        assert_eq!(sets.sequence, [SET]);
        assert_eq!(sets.picture, [[0x68, 2], [0x68, 3]]);
        // A unit without sets changes nothing, and a broken one does not either.
        let before = sets.clone();
        parameters.observe(&unit(&[&[0x41, 2]])).unwrap();
        assert!(parameters.observe(&[0, 0, 0, 9, 0x67]).is_err());
        let Parameters::Sets { sets, .. } = &parameters else { panic!("pictures") };
        assert_eq!(*sets, before);
    }

    #[test]
    fn parameters_are_unknown_until_all_kinds_of_sets_can_be_read() {
        let codec = h264(&[], &[]);
        let mut parameters = Parameters::of(&codec);
        assert!(needs_first_unit(&codec) && !parameters.are_known());
        parameters.observe(&unit(&[&SET[..6], &[0x68, 1]])).unwrap();
        assert!(!parameters.are_known(), "a set that is cut off");
        parameters.observe(&unit(&[&SET])).unwrap();
        assert!(parameters.are_known());
    }

    #[test]
    fn sequence_headers_of_av1_are_found_and_broken_units_named() {
        // Written by SVT-AV1.
        let header = [0x0a, 0x0b, 0, 0, 0, 0x04, 0x3d, 0x06, 0xc4, 0x02, 0xf8, 0x00, 0x40];
        let config = Av1Config {
            profile: 0,
            level: 0,
            is_high_tier: false,
            bit_depth: 8,
            units: Vec::new(),
        };
        let mut parameters = Parameters::of(&Codec::Av1(config));
        assert!(!parameters.are_known());
        parameters.observe(&[&header[..], &[0x32, 1, 7]].concat()).unwrap();
        assert_eq!(parameters.size(), Some((322, 178)));
        assert!(parameters.observe(&[0x32, 9, 7]).is_err());
    }
}
