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
mod growing_cuts;
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
pub use rendition::{Rendition, RenditionSegment, SegmentTimes, bits_per_second, peak_and_mean};
pub use ttml_segments::{NoTtmlSegments, TtmlSegments};

use cuts::{CUTS_MAX, Cuts};
use growing_cuts::EXCESS_TICKS;

use crate::growing_times::{SEEN_TICKS, apart, growing_target_s};
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
    /// True of a whole file, or of a recording that is over.
    is_complete: bool,
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

    /// Cuts a recording that is still written into segments of `target_s` seconds at most,
    /// continuing the plan of a shorter presentation, `before`; `is_complete` when no more follows.
    /// Segments that are [`settled`](TrackSegments::settled) never change. There is no list of key
    /// frames.
    ///
    /// # Errors
    /// As [`TrackSegments::of`], but for more than 262,144 segments.
    pub fn of_growing(
        before: Option<&TrackSegments>,
        presentation: &Presentation,
        (target_s, is_complete): (u64, bool),
    ) -> Result<TrackSegments, NoSegments> {
        let found = CarriedTracks::of(presentation)?;
        let all: Vec<usize> = found.all().collect();
        let lead = (&all[..], found.leading);
        let cuts_before = before.map(|before| &before.cuts);
        let cuts = Cuts::extended(cuts_before, presentation, lead, (target_s, is_complete));
        let cuts = cuts.map_err(|limit| NoSegments::TooManySegments { limit })?;
        let origin_s = before.map_or_else(|| found.origin_s(presentation), TrackSegments::origin_s);
        let plan = TrackSegments::with_cuts(cuts, origin_s, false);
        let plan = TrackSegments { is_complete, ..plan };
        // Players that have the first sound with the pictures keep it when another begins.
        let together = found.video.zip(found.sounds.first().copied());
        plan.with_renditions(presentation, &found, (together, before))
    }

    /// Number of segments of a recording that no longer presentation changes; all of them when it
    /// is complete.
    pub fn settled(&self) -> usize {
        match self.is_complete {
            true => self.cuts.len(),
            false => self.cuts.final_cuts.saturating_sub(1),
        }
    }

    /// Returns the target duration of a recording that is still written, in seconds, by the first
    /// key frames; `None` while too little is recorded.
    ///
    /// # Errors
    /// It has no track that segments support.
    pub fn growing_target_s(presentation: &Presentation) -> Result<Option<u64>, NoSegments> {
        let leading = &presentation.tracks()[CarriedTracks::of(presentation)?.leading];
        let first = leading.presented_ticks(&leading.samples.sample(0));
        let since = |ticks: i64| u64::try_from(ticks.saturating_sub(first)).unwrap_or(0);
        let seen = since(cuts::media_ticks(leading, leading.samples.end()));
        if seen < SEEN_TICKS {
            return Ok(None);
        }
        let apart = match leading.codec.media() {
            TrackMedia::Video => {
                let samples = leading.samples.samples(0..leading.samples.len());
                let keys = samples.filter(|sample| sample.is_start);
                apart(keys.map(|key| since(leading.presented_ticks(&key))), 0, seen)
            }
            TrackMedia::Audio => 0,
        };
        Ok(Some(growing_target_s(apart, EXCESS_TICKS)))
    }

    fn made(
        presentation: &Presentation,
        target_s: u64,
        is_copied: bool,
    ) -> Result<TrackSegments, NoSegments> {
        let tracks = presentation.tracks();
        let found = CarriedTracks::of(presentation)?;
        let begins = |index: usize| {
            let track = &tracks[index];
            track.presented_ticks(&track.samples.sample(0))
        };
        let carried = (0..tracks.len()).filter(|&index| is_carried(&tracks[index].codec));
        let earliest = carried.map(begins).min().unwrap_or(0);
        let cuts = Cuts::of(presentation, found.leading, target_s.max(1), earliest);
        let cuts = cuts.ok_or(NoSegments::TooManySegments { limit: CUTS_MAX })?;
        let plan = TrackSegments::with_cuts(cuts, found.origin_s(presentation), is_copied);
        // Several sounds are alternatives beside the pictures.
        let together = match (found.video, &found.sounds[..]) {
            (Some(video), &[sound]) => Some((video, sound)),
            _ => None,
        };
        let mut plan = plan.with_renditions(presentation, &found, (together, None))?;
        if !is_copied {
            plan.key_frames = plan.find_key_frames(presentation);
        }
        Ok(plan)
    }

    fn with_cuts(cuts: Cuts, origin_s: u64, is_copied: bool) -> TrackSegments {
        let (renditions, key_frames) = (Vec::new(), Vec::new());
        TrackSegments { cuts, origin_s, is_copied, is_complete: true, renditions, key_frames }
    }

    /// Adds a rendition of each track, and one of pictures and sound `together`; those of a
    /// recording continue the plan `before`.
    fn with_renditions(
        mut self,
        presentation: &Presentation,
        found: &CarriedTracks,
        (together, before): (Option<(usize, usize)>, Option<&TrackSegments>),
    ) -> Result<TrackSegments, NoSegments> {
        let together = together.map(|(video, sound)| vec![video, sound]);
        let lists = found.all().map(|index| vec![index]).chain(together);
        let mut left_out = NoSegments::NoTrack;
        for list in lists {
            // Sound alone is not a film.
            let has_pictures = found.video.is_some_and(|video| list.contains(&video));
            let known = before
                .and_then(|before| Some((before.rendition(&list)?, before.cuts.final_cuts - 1)));
            match Rendition::of(presentation, &self, list, known) {
                Ok(rendition) => self.renditions.push(rendition),
                Err(reason) if has_pictures => return Err(reason),
                Err(reason) => left_out = reason,
            }
        }
        if self.renditions.is_empty() {
            return Err(left_out);
        }
        Ok(self)
    }

    /// True of a recording that is still written, or that was cut as one.
    fn is_recording(&self) -> bool {
        self.cuts.final_cuts > 0
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

/// The tracks of a file that segments support, by their index in the presentation.
struct CarriedTracks {
    video: Option<usize>,
    sounds: Vec<usize>,
    /// The pictures, or the first sound.
    leading: usize,
}

impl CarriedTracks {
    fn of(presentation: &Presentation) -> Result<CarriedTracks, NoSegments> {
        let tracks = presentation.tracks();
        let carried = || (0..tracks.len()).filter(|&index| is_carried(&tracks[index].codec));
        let is_video = |&index: &usize| tracks[index].codec.media() == TrackMedia::Video;
        let video = carried().find(is_video);
        let sounds: Vec<usize> = carried().filter(|index| !is_video(index)).collect();
        let leading = video.or(sounds.first().copied()).ok_or(NoSegments::NoTrack)?;
        Ok(CarriedTracks { video, sounds, leading })
    }

    /// The pictures, then the sounds.
    fn all(&self) -> impl Iterator<Item = usize> {
        self.video.into_iter().chain(self.sounds.iter().copied())
    }

    /// Seconds by which times in segments are later, so that none is negative.
    fn origin_s(&self, presentation: &Presentation) -> u64 {
        let before_zero = |index: usize| {
            let track = &presentation.tracks()[index];
            let first = media_time(track, track.samples.sample(0).decode);
            let units = u64::try_from(-first).unwrap_or(0);
            units.div_ceil(u64::from(track.samples.timescale()))
        };
        self.all().map(before_zero).max().unwrap_or(0)
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
