// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of the tracks of a file for HTTP Live Streaming and MPEG-DASH, without new media.
//!
//! [`TrackSegments`] is the segment plan of a file with tracks. It is created once from the sample
//! tables: the times at which the file is cut ([`cuts`]), the same for all its renditions. A
//! [`Rendition`] has the media of one playlist: a single track, or one of pictures and one of sound
//! that are sent together. A segment ([`SegmentParts`]) is a `moof` box, the header of an `mdat`
//! box, and ranges of the file in file order; tracks that are sent together and are adjacent in the
//! file give one range. An initialization section ([`init_section`]) describes the tracks. Media to
//! be encrypted is copied ([`CopiedSegment`]), with the positions of the bytes to encrypt
//! ([`common_encryption`]). Tracks of TTML have segments beside those of the film, with the same
//! borders ([`TtmlSegments`]).
//!
//! Times in segments are presentation times, moved by [`TrackSegments::origin_s`] seconds so that
//! no sample is decoded before zero: no edit list is written, because players interpret it
//! differently.
//!
//! Costs: creating a plan visits each sample twice, about 20 ns each, and stores 24 bytes a segment
//! and rendition. The boxes of a segment cost about 10 ns a sample.
//!
//! Sources: ISO/IEC 14496-12 §8.8; ISO/IEC 23000-19 (CMAF) §7; RFC 8216 §3.3; ISO/IEC 23009-1 §5.3.
//! Does not read media, write playlists, or encrypt.

mod common_encryption;
mod cuts;
mod init_section;
mod key_frames;
mod movie_fragment;
mod no_segments;
mod rendition;
#[cfg(test)]
mod tests;
mod ttml_init;
mod ttml_segments;

pub use common_encryption::{CommonEncryption, ProtectedBytes};
pub use init_section::{NoInitSection, init_section};
pub use key_frames::KeyFrame;
pub use movie_fragment::{CopiedSegment, ReadSamples, SegmentParts, copy_samples, fragment};
pub use no_segments::NoSegments;
pub use rendition::{Rendition, RenditionSegment, bits_per_second, peak_and_mean};
pub use ttml_segments::{NoTtmlSegments, TtmlSegments};

use cuts::{CUTS_MAX, Cuts};

use crate::tracks::{Codec, Presentation, Track, TrackMedia, reasons};

/// Target seconds of a segment, as far as key frames allow.
pub const TARGET_S: u64 = 6;

/// The segment plan of a file with tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackSegments {
    cuts: Cuts,
    origin_s: u64,
    /// True if samples are not stored in the file in the form that segments need.
    is_copied: bool,
    renditions: Vec<Rendition>,
    key_frames: Vec<KeyFrame>,
}

impl TrackSegments {
    /// Cuts a presentation into segments of `target_s` seconds, at least one. A sound with a
    /// segment of more than 256 MiB or 32,768 samples is left out where others are not.
    ///
    /// # Errors
    /// It has no track that segments support ([`is_carried`]), no such segment of its pictures, or
    /// more than 32,768 segments.
    pub fn of(presentation: &Presentation, target_s: u64) -> Result<TrackSegments, NoSegments> {
        Self::made(presentation, target_s, false)
    }

    /// Like [`TrackSegments::of`], for the elementary streams of a transport stream. Their samples
    /// are extracted from its packets for a segment ([`Rendition::copied`]); sizes are estimates.
    ///
    /// # Errors
    /// As [`TrackSegments::of`].
    pub fn of_elementary(
        presentation: &Presentation,
        target_s: u64,
    ) -> Result<TrackSegments, NoSegments> {
        Self::made(presentation, target_s, true)
    }

    fn made(
        presentation: &Presentation,
        target_s: u64,
        is_copied: bool,
    ) -> Result<TrackSegments, NoSegments> {
        let tracks = presentation.tracks();
        let carried = || (0..tracks.len()).filter(|&index| is_carried(&tracks[index].codec));
        let is_video = |&index: &usize| tracks[index].codec.media() == TrackMedia::Video;
        let video = carried().find(is_video);
        let sounds: Vec<usize> = carried().filter(|index| !is_video(index)).collect();
        let leading = video.or(sounds.first().copied()).ok_or(NoSegments::NoTrack)?;
        let begins = |&index: &usize| {
            let track = &tracks[index];
            track.presented_ticks(&track.samples.sample(0))
        };
        let earliest = carried().map(|index| begins(&index)).min().unwrap_or(0);
        let cuts = Cuts::of(presentation, leading, target_s.max(1), earliest);
        let cuts = cuts.ok_or(NoSegments::TooManySegments { limit: CUTS_MAX })?;
        let first =
            |index: usize| media_time(&tracks[index], tracks[index].samples.sample(0).decode);
        let before_zero = |index: usize| {
            let units = u64::try_from(-first(index)).unwrap_or(0);
            units.div_ceil(u64::from(tracks[index].samples.timescale()))
        };
        let used = || video.into_iter().chain(sounds.iter().copied());
        let origin_s = used().map(before_zero).max().unwrap_or(0);
        let (renditions, key_frames) = (Vec::new(), Vec::new());
        let mut plan = TrackSegments { cuts, origin_s, is_copied, renditions, key_frames };
        // Several sounds are alternatives beside the pictures.
        let together = match (video, &sounds[..]) {
            (Some(video), &[sound]) => Some(vec![video, sound]),
            _ => None,
        };
        let lists = used().map(|index| vec![index]).chain(together);
        let mut left_out = NoSegments::NoTrack;
        for list in lists {
            // Sound alone is not a film.
            let has_pictures = video.is_some_and(|video| list.contains(&video));
            match Rendition::of(presentation, &plan, list) {
                Ok(rendition) => plan.renditions.push(rendition),
                Err(reason) if has_pictures => return Err(reason),
                Err(reason) => left_out = reason,
            }
        }
        if plan.renditions.is_empty() {
            return Err(left_out);
        }
        if !is_copied {
            plan.key_frames = plan.find_key_frames(presentation);
        }
        Ok(plan)
    }

    /// Seconds by which times in segments are later than presentation times.
    pub fn origin_s(&self) -> u64 {
        self.origin_s
    }

    /// Returns all renditions: each track alone, in file order but pictures first; then the
    /// pictures with the sound, if there is any. A file may have several tracks of pictures: those
    /// after the first get none with sound.
    pub fn renditions(&self) -> &[Rendition] {
        &self.renditions
    }

    /// The rendition of these tracks, by their index in the presentation.
    pub fn rendition(&self, tracks: &[usize]) -> Option<&Rendition> {
        self.renditions.iter().find(|rendition| rendition.tracks() == tracks)
    }

    /// Value of EXT-X-TARGETDURATION, the same for all renditions, as RFC 8216 §6.2.4 demands: a
    /// segment of sound may be a frame longer than the pictures beside it.
    pub fn target_s(&self) -> u64 {
        self.renditions.iter().map(Rendition::target_s).max().unwrap_or(1)
    }

    /// Memory of the plan.
    pub fn memory_bytes(&self) -> usize {
        let renditions = self.renditions.iter().map(Rendition::memory_bytes).sum::<usize>();
        let key_frames = self.key_frames.capacity() * size_of::<KeyFrame>();
        size_of::<TrackSegments>() + self.cuts.memory_bytes() + renditions + key_frames
    }

    /// Number of a track in segments, from its index in the presentation.
    fn track_id(index: usize) -> u32 {
        index as u32 + 1
    }
}

/// Converts a decoding time (media time, in units of the time scale) to its value in segments.
fn base_media_decode_time(origin_s: u64, track: &Track, decode: u64) -> u64 {
    let origin = i64::try_from(origin_s).unwrap_or(i64::MAX);
    let origin = origin.saturating_mul(i64::from(track.samples.timescale()));
    u64::try_from(media_time(track, decode).saturating_add(origin)).unwrap_or(0)
}

/// True for a codec that segments support. PCM is not supported, because browsers do not play it.
pub fn is_carried(codec: &Codec) -> bool {
    !matches!(codec, Codec::Pcm(_) | Codec::Mp2t)
}

/// Names the sounds that segments of a film leave out, with the reason and the remedy; `None` if
/// they have all, or the file has no pictures.
pub fn unheard(presentation: &Presentation) -> Option<String> {
    let tracks = presentation.tracks();
    let has_pictures = tracks.iter().any(|track| track.codec.media() == TrackMedia::Video);
    let unheard = tracks.iter().filter(|track| has_pictures && !is_carried(&track.codec));
    let named: Vec<_> =
        unheard.map(|track| format!("track {} ({})", track.id, track.codec.name())).collect();
    let cure = reasons::encode_anew(TrackMedia::Audio, presentation.container());
    let names = named.join(", ");
    (!named.is_empty()).then(|| {
        format!(
            "{names}: PCM, which HLS and DASH leave out, because browsers do not play it; clients \
             of RTSP hear it; for the others {cure}"
        )
    })
}

/// The time of decoding on the timeline of presentation. Where samples are presented before they
/// are decoded, they are decoded earlier by as much: presentation offsets of segments are not
/// negative, which libavformat and the players on it need.
fn media_time(track: &Track, decode: u64) -> i64 {
    (decode as i64).saturating_add(track.shift).saturating_sub(lead(track))
}

/// Returns the time units by which samples are decoded before the decoding times in the file.
fn lead(track: &Track) -> i64 {
    i64::from(track.samples.offset_min()).min(0).abs()
}
