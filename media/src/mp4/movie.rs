// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the movie box: tracks, their descriptions, edits and times, and the places of their
//! tables.
//!
//! Sources: ISO/IEC 14496-12 §8.2 (moov, mvhd), §8.3 (trak, tkhd), §8.4 (mdia, mdhd), §8.7.2
//! (dref), §8.8.1 (mvex), §8.8.3 (trex).
//! Reads no table of samples.

use mp4_atom::{Elst, Matrix, Mdhd, Mvhd, Tkhd, Trex};

use super::boxes::{CONTAINER, FileBox, FourCode, Input, broken, spelled};
use super::edits::Edit;
use super::entries::{Description, descriptions};
use super::odd_tables::OddTables;
use super::pcm_blocks::PcmBlocks;
use super::tables::{Described, TableBoxes};
use super::track_boxes::{chapter_tracks, handler_type, language, name, outside_references};
use crate::plan::RtpIdentity;
use crate::text::{CUES_MAX, FoundTtmlTracks, TextCoding, TextTrack, TtmlTrack};
use crate::tracks::reasons::{NO_SAMPLES, NO_START};
use crate::tracks::{
    Display, LeftOut, MediaSample, SAMPLES_MAX, SampleFault, SampleTable, SampleTableBuilder,
    TABLE_CHECK_SAMPLES, TRACKS_MAX, TRACKS_READ_MAX, Track, TrackLabel, TrackMedia, Turn,
    check_table_bytes,
};
use crate::{DemuxError, Refusal};

/// Samples of a track of text, or of all tracks of TTML: between two cues is a sample without any.
const TEXT_SAMPLES_MAX: u32 = 2 * CUES_MAX as u32;

/// Reason for a track that was not requested.
const NOT_READ: &str = "not the text that is read";

/// Tracks whose samples are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collected {
    /// Tracks that are sent.
    Sent,
    /// The track of this number, if it is text with cues.
    Text(u32),
    /// Tracks of TTML.
    Ttml,
}

/// Tracks and time scale of `moov`.
#[derive(Debug, Clone)]
pub(super) struct Movie {
    /// Units of a second of edit lists; at least 1.
    timescale: u32,
    pub(super) tracks: Vec<TrackState>,
    /// Defaults of fragments.
    pub(super) defaults: Vec<Trex>,
    file_bytes: u64,
    /// Samples of all tracks so far, and at most.
    samples: u32,
    samples_max: u32,
    /// Samples that were read of tracks that are not sent.
    passed_over: u32,
    /// True if `moov` announces fragments.
    pub(super) is_fragmented: bool,
    /// Samples that the file lacks because it was cut off.
    pub(super) lacking_samples: u64,
}

/// A track while its samples are collected.
#[derive(Debug, Clone)]
pub(super) struct TrackState {
    pub(super) id: u32,
    language: Option<[u8; 3]>,
    label: TrackLabel,
    edit: Edit,
    pub(super) descriptions: Vec<Description>,
    /// References of data that are in another file, by number from 1 on.
    outside: Vec<u16>,
    /// Number of the description that the samples have, from 1 on; none before the first sample.
    pub(super) chosen: Option<u32>,
    /// True if every sample is a random-access point: for sound and text.
    is_sound: bool,
    /// Frames that are not in a block yet; only for PCM.
    pub(super) blocks: Option<PcmBlocks>,
    collected: Collected,
    /// Tracks of chapters to which this one refers; only for text.
    chapters: Vec<u32>,
    /// Turn of pictures before they are shown.
    turn: Turn,
    pub(super) tables: TableBoxes,
    /// True if the file was cut off within the track's samples.
    is_ended: bool,
    /// Findings about its tables.
    pub(super) odd: OddTables,
    /// Samples so far, or why the track is left out.
    pub(super) samples: Result<SampleTableBuilder, String>,
}

impl Movie {
    pub(super) fn read(
        input: &Input<'_>,
        found: &FileBox,
        collected: Collected,
    ) -> Result<Movie, DemuxError> {
        let [header, fragments] = found.find(input, [b"mvhd", b"mvex"])?;
        let header = found.needed(header, b"mvhd")?;
        let timescale = header.decode::<Mvhd>(input)?.timescale;
        if timescale == 0 {
            return Err(broken(header.start, "mvhd with a time scale of 0"));
        }
        let mut tracks: Vec<TrackState> = Vec::new();
        found.children(input, |child| {
            if &child.code != b"trak" {
                return Ok(());
            }
            let track = TrackState::read(input, &child, collected)?;
            if tracks.iter().any(|other| other.id == track.id) {
                return Err(broken(child.start, format!("a second track {}", track.id)));
            }
            tracks.push(track);
            if tracks.len() > TRACKS_READ_MAX {
                let (found, limit) = (tracks.len(), TRACKS_MAX);
                return Err(Refusal::TooManyTracks { container: CONTAINER, found, limit }.into());
            }
            Ok(())
        })?;
        // Before any table is read: one costs memory by the million of samples.
        let found = tracks.iter().filter(|track| !track.is_left_out()).count();
        // Text tracks have few samples in total.
        if found > TRACKS_MAX && collected == Collected::Sent {
            let limit = TRACKS_MAX;
            return Err(Refusal::TooManyTracks { container: CONTAINER, found, limit }.into());
        }
        let mut defaults = Vec::new();
        let is_fragmented = fragments.is_some();
        if let Some(fragments) = fragments {
            fragments.children(input, |child| {
                let is_known = |track: u32| tracks.iter().any(|state| state.id == track);
                if &child.code == b"trex" && defaults.len() < TRACKS_READ_MAX {
                    defaults.extend(
                        Some(child.decode::<Trex>(input)?).filter(|found| is_known(found.track_id)),
                    );
                }
                Ok(())
            })?;
        }
        let file_bytes = input.bytes();
        Ok(Movie {
            timescale,
            tracks,
            defaults,
            file_bytes,
            samples: 0,
            samples_max: match collected {
                Collected::Sent => SAMPLES_MAX,
                Collected::Text(_) | Collected::Ttml => TEXT_SAMPLES_MAX,
            },
            passed_over: 0,
            is_fragmented,
            lacking_samples: 0,
        })
    }

    /// Lets samples lie in bytes that the file has by now.
    pub(super) fn grow(&mut self, file_bytes: u64) {
        self.file_bytes = file_bytes;
        let collected = self.tracks.iter_mut().filter_map(|track| track.samples.as_mut().ok());
        collected.for_each(|samples| samples.grow(file_bytes));
    }

    /// True if a track has a sample.
    pub(super) fn has_samples(&self) -> bool {
        self.samples > 0
    }

    /// True if samples of this track are collected. Not at its end in a file that was cut off.
    pub(super) fn is_collected(&self, index: usize) -> bool {
        !self.tracks[index].is_left_out() && !self.tracks[index].is_ended
    }

    /// Ends a track before a sample that is truncated in the file.
    pub(super) fn end_track(&mut self, index: usize) {
        self.tracks[index].is_ended = true;
        self.lacking_samples += 1;
    }

    /// Counts skipped samples of a track that has ended.
    pub(super) fn count_lacking(&mut self, index: usize, samples: u32) {
        if self.tracks[index].is_ended {
            self.lacking_samples += u64::from(samples);
        }
    }

    /// Adds a sample to a track; ignored if the track is omitted. The total number of samples in a
    /// file has the same limit as that of a track: tables of several tracks may refer to the same
    /// bytes.
    #[inline]
    pub(super) fn push(&mut self, index: usize, sample: Described) -> Result<(), DemuxError> {
        let track = &mut self.tracks[index];
        if track.is_left_out() {
            return Ok(());
        }
        let (number, counted) = (track.len(), self.samples);
        self.samples += 1;
        if self.samples > self.samples_max {
            return Err(track.refuse(number, SampleFault::TooMany { limit: self.samples_max }));
        }
        track.push(sample)?;
        // A sample of PCM may be many blocks.
        self.samples += (track.len().saturating_sub(number) as u32).saturating_sub(1);
        if self.samples / TABLE_CHECK_SAMPLES != counted / TABLE_CHECK_SAMPLES {
            self.check_tables(index)?;
        }
        Ok(())
    }

    /// Checks the memory of all tables, to which a track has added last.
    #[cold]
    fn check_tables(&self, last: usize) -> Result<(), DemuxError> {
        let tables = self.tracks.iter().filter_map(|track| track.samples.as_ref().ok());
        let bytes = tables.map(SampleTableBuilder::table_bytes).sum();
        let track = &self.tracks[last];
        check_table_bytes(bytes, self.file_bytes).map_err(|fault| track.refuse(track.len(), fault))
    }

    /// The tracks of text; chapters are none.
    pub(super) fn text_tracks(&self) -> Vec<TextTrack> {
        let is_chapters = |id: u32| self.tracks.iter().any(|other| other.chapters.contains(&id));
        let tracks = self.tracks.iter().filter(|track| !is_chapters(track.id));
        tracks.filter_map(TrackState::text).collect()
    }

    /// Returns the samples of the track whose text was collected, or the reason for having none;
    /// `None` for a track without cues.
    pub(super) fn finish_text(self, id: u32) -> Option<Result<TextSamples, String>> {
        let has_cues =
            |track: &TrackState| track.text().is_some_and(|text| text.coding != TextCoding::Stpp);
        let mut tracks = self.tracks.into_iter();
        let mut track = tracks.find(|track| track.id == id && has_cues(track))?;
        let made = track.finish_samples(self.timescale).and_then(|(samples, shift, found)| {
            let coding = found.text.ok_or(NOT_READ)?;
            Ok(TextSamples { coding, samples, shift })
        });
        Some(made)
    }

    /// The tracks of TTML; chapters are none.
    pub(super) fn finish_ttml(mut self) -> FoundTtmlTracks {
        let listed: Vec<u32> = self.text_tracks().iter().map(|track| track.id).collect();
        self.tracks.retain(|track| {
            listed.contains(&track.id) && track.descriptions.iter().any(|one| one.ttml.is_some())
        });
        let timescale = self.timescale;
        self.tracks.into_iter().map(|track| (track.id, track.finish_ttml(timescale))).collect()
    }

    /// Counts samples of a track that is not sent, in the fragment at `start`: they cost time as
    /// well, and have the same limit in a file as the others.
    pub(super) fn pass_over(&mut self, samples: u32, start: u64) -> Result<(), DemuxError> {
        self.passed_over = self.passed_over.saturating_add(samples);
        if self.passed_over > SAMPLES_MAX {
            let what = format!("more than {SAMPLES_MAX} samples of tracks that are not sent");
            return Err(broken(start, what));
        }
        Ok(())
    }

    /// Returns the tracks that are sent, the omitted ones, and the warnings of the former.
    pub(super) fn finish(
        self,
        mut identity: impl FnMut() -> RtpIdentity,
    ) -> (Vec<Track>, Vec<LeftOut>, Vec<String>) {
        let (mut tracks, mut left_out, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        for state in self.tracks {
            let (id, code, turn) = (state.id, state.code(), state.turn);
            let odd = state.odd.clone();
            match state.finish(self.timescale, &mut identity) {
                Ok(track) => {
                    if turn != Turn::NONE && track.codec.media() == TrackMedia::Video {
                        warnings.push(turned(id, turn));
                    }
                    warnings.extend(odd.warnings(id, track.samples.timescale()));
                    tracks.push(track);
                }
                Err(reason) => {
                    let reason = format!("track {id} ({code}): {reason}");
                    left_out.push(LeftOut { id, reason });
                }
            }
        }
        (tracks, left_out, warnings)
    }
}

impl TrackState {
    fn read(
        input: &Input<'_>,
        found: &FileBox,
        collected: Collected,
    ) -> Result<TrackState, DemuxError> {
        let [header, edits, media, references, user_data] =
            found.find(input, [b"tkhd", b"edts", b"mdia", b"tref", b"udta"])?;
        let chapters = match (collected, references) {
            (Collected::Text(_) | Collected::Ttml, Some(references)) => {
                chapter_tracks(input, &references)?
            }
            _ => Vec::new(),
        };
        let header: Tkhd = found.needed(header, b"tkhd")?.decode(input)?;
        let id = header.track_id;
        let edits = match edits {
            Some(edits) => edits.find(input, [b"elst"])?[0],
            None => None,
        };
        let edit = match edits {
            Some(list) => Edit::of(&list.decode::<Elst>(input)?),
            None => Ok(Edit::default()),
        };
        let media = found.needed(media, b"mdia")?;
        let [times, information, handler] = media.find(input, [b"mdhd", b"minf", b"hdlr"])?;
        let handler = handler.map(|found| handler_type(input, &found)).transpose()?.flatten();
        let found = media.needed(times, b"mdhd")?;
        let times: Mdhd = found.decode(input)?;
        if times.timescale == 0 {
            return Err(broken(found.start, "mdhd with a time scale of 0"));
        }
        let information = media.needed(information, b"minf")?;
        let [table, data] = information.find(input, [b"stbl", b"dinf"])?;
        let table = information.needed(table, b"stbl")?;
        let (tables, descriptions) = find_tables(input, table, (handler, times.timescale))?;
        let outside = match data {
            Some(data) => outside_references(input, &data)?,
            None => Vec::new(),
        };
        let builder = SampleTableBuilder::new(times.timescale, input.bytes());
        let mut track = TrackState {
            id,
            language: language(&times.language),
            label: TrackLabel {
                name: user_data.and_then(|data| name(input, &data)),
                is_default: header.enabled,
                ..TrackLabel::default()
            },
            edit: edit.clone().unwrap_or_default(),
            descriptions,
            outside,
            chosen: None,
            is_sound: false,
            blocks: None,
            collected,
            chapters,
            turn: turn(&header.matrix).unwrap_or(Turn::NONE),
            tables,
            is_ended: false,
            odd: OddTables::default(),
            samples: edit.map(|_| builder),
        };
        // The tables of a track that cannot be sent are not read. The reason is that of the codec,
        // if there is one.
        let fits = |number| track.check_description(number).err();
        let reasons = (1..=track.descriptions.len() as u32).map(fits).collect::<Option<Vec<_>>>();
        if let Some(reasons) = reasons {
            let none = || "no sample description; remux it".to_owned();
            track.samples = Err(reasons.into_iter().next().unwrap_or_else(none));
        }
        Ok(track)
    }

    /// True if the track's samples are not collected.
    pub(super) fn is_left_out(&self) -> bool {
        self.samples.is_err()
    }

    /// Time of decoding of a sample that follows the last without a gap.
    pub(super) fn end(&self) -> u64 {
        let collected = || self.samples.as_ref().map_or(0, SampleTableBuilder::end);
        self.blocks.as_ref().and_then(PcmBlocks::end).unwrap_or_else(collected)
    }

    /// Number of samples so far.
    pub(super) fn len(&self) -> usize {
        self.samples.as_ref().map_or(0, SampleTableBuilder::len)
    }

    /// The code of the description in use, for people.
    fn code(&self) -> String {
        let index = self.chosen.map_or(0, |chosen| chosen as usize - 1);
        let description = self.descriptions.get(index).or(self.descriptions.first());
        description.map_or("no description".to_owned(), |found| spelled(found.code))
    }

    /// Adds a sample; ignored if the track is omitted.
    #[inline]
    fn push(&mut self, (sample, description): Described) -> Result<(), DemuxError> {
        if self.chosen != Some(description) {
            self.choose(description);
        }
        match self.blocks {
            Some(_) => self.push_frames(sample),
            None => self.push_sample(sample),
        }
    }

    /// Adds a sample, or a block of PCM.
    #[inline]
    pub(super) fn push_sample(&mut self, mut sample: MediaSample) -> Result<(), DemuxError> {
        // Flags of fragments often deny it of sound, of which every frame is one.
        sample.is_start |= self.is_sound;
        let Ok(samples) = &mut self.samples else { return Ok(()) };
        let number = samples.len();
        if sample.decode < samples.end() {
            self.odd.step_forward(&mut sample, (samples, !self.is_sound));
        }
        samples.push(sample).map_err(|fault| self.refuse(number, fault))
    }

    /// The refusal of a sample.
    pub(super) fn refuse(&self, sample: usize, fault: SampleFault) -> DemuxError {
        Refusal::Sample { container: CONTAINER, track: self.id, sample, fault }.into()
    }

    /// Sets the description of the samples that follow.
    fn choose(&mut self, description: u32) {
        if self.is_left_out() {
            return;
        }
        if let Some(chosen) = self.chosen {
            self.samples = Err(format!(
                "samples of descriptions {chosen} and {description}, and a stream has one; encode \
                 it anew (ffmpeg -i IN OUT.mp4)"
            ));
            return;
        }
        match self.check_description(description) {
            Ok(()) => {
                self.chosen = Some(description);
                let codec = self.descriptions[description as usize - 1].codec.as_ref();
                // Descriptions without a codec are text.
                self.is_sound = codec.map_or(true, |codec| codec.media() == TrackMedia::Audio);
                self.blocks = self
                    .pcm(description)
                    .zip(self.samples.as_ref().ok())
                    .map(|(config, samples)| PcmBlocks::new(&config, samples.so_far().timescale()));
            }
            Err(reason) => self.samples = Err(reason),
        }
    }

    /// Checks that samples of this description can be sent.
    fn check_description(&self, description: u32) -> Result<(), String> {
        let found = self.descriptions.get((description as usize).wrapping_sub(1));
        let Some(found) = found else {
            let count = self.descriptions.len();
            return Err(format!(
                "samples of description {description}, and {count} are known; remux it"
            ));
        };
        if self.outside.contains(&found.data_reference) {
            return Err("samples in another file; put them into one (ffmpeg -i IN -map 0 -c copy \
                        OUT.mp4)"
                .to_owned());
        }
        match self.collected {
            Collected::Sent => found.codec.as_ref().map(|_| ()).map_err(Clone::clone),
            Collected::Text(id) => {
                let is_wanted = id == self.id && found.text.is_some() && found.ttml.is_none();
                is_wanted.then_some(()).ok_or_else(|| NOT_READ.to_owned())
            }
            Collected::Ttml => match &found.ttml {
                Some(entry) => entry.as_ref().map(|_| ()).map_err(Clone::clone),
                None => Err(NOT_READ.to_owned()),
            },
        }
    }

    /// Its text, by the first description; `None` of another track.
    fn text(&self) -> Option<TextTrack> {
        let description = self.descriptions.first()?;
        let coding = description.text?;
        let is_here = !self.outside.contains(&description.data_reference);
        let letters = self.language.map(|name| name.iter().map(|&b| char::from(b)).collect());
        is_here.then(|| TextTrack::new(self.id, coding, letters))
    }

    fn finish_ttml(mut self, movie_timescale: u32) -> Result<TtmlTrack, String> {
        let (samples, shift, description) = self.finish_samples(movie_timescale)?;
        let entry = description.ttml.ok_or(NOT_READ)??;
        Ok(TtmlTrack { language: self.language, entry, samples, shift })
    }

    fn finish(
        mut self,
        movie_timescale: u32,
        identity: &mut impl FnMut() -> RtpIdentity,
    ) -> Result<Track, String> {
        let (samples, shift, description) = self.finish_samples(movie_timescale)?;
        let (id, language, codec) = (self.id, self.language, description.codec?);
        let display = match codec.media() {
            TrackMedia::Video => {
                Display { turn: self.turn, pixel_aspect: description.pixel_aspect }
            }
            TrackMedia::Audio => Display::default(),
        };
        let (label, identity) = (self.label, identity());
        Ok(Track { id, codec, language, label, display, samples, shift, identity })
    }

    /// Its samples, their shift by the edit list, and their description.
    fn finish_samples(
        &mut self,
        movie_timescale: u32,
    ) -> Result<(SampleTable, i64, Description), String> {
        let samples = std::mem::replace(&mut self.samples, Err(NO_SAMPLES.to_owned()))?;
        if samples.is_empty() {
            return Err(NO_SAMPLES.to_owned());
        }
        let samples = samples.finish().ok_or(NO_START)?;
        let shift = self.edit.shift(movie_timescale, &samples)?;
        let chosen = self.chosen.expect("a track with samples has one") as usize;
        Ok((samples, shift, self.descriptions.swap_remove(chosen - 1)))
    }
}

/// Samples of a track of text.
pub(crate) struct TextSamples {
    pub(crate) coding: TextCoding,
    pub(crate) samples: SampleTable,
    /// Shift of media time by the edit list, in units of the time scale.
    pub(crate) shift: i64,
}

/// Returns the rotation of a track's pictures; `None` if it is not by quarter turns.
fn turn(matrix: &Matrix) -> Option<Turn> {
    Turn::of_signs([matrix.a, matrix.b, matrix.c, matrix.d])
}

/// Warning for a track whose pictures have to be rotated.
fn turned(id: u32, turn: Turn) -> String {
    let how = match turn.degrees() {
        Some(degrees) => format!("turned by {degrees} degrees clockwise"),
        None => "mirrored".to_owned(),
    };
    format!(
        "track {id}: its pictures are to be {how} before they are shown, which RTP cannot tell a \
         player; encode them anew, which does it (ffmpeg -i IN -c:a copy OUT.mp4)"
    )
}

/// The places of the tables, and the sample descriptions, of a track with this handler and time
/// scale.
fn find_tables(
    input: &Input<'_>,
    table: FileBox,
    about: (Option<FourCode>, u32),
) -> Result<(TableBoxes, Vec<Description>), DemuxError> {
    let [of_samples, sizes, compact_sizes, chunks, offsets, long_offsets, durations] =
        table.find(input, [b"stsd", b"stsz", b"stz2", b"stsc", b"stco", b"co64", b"stts"])?;
    let [presentation, starts] = table.find(input, [b"ctts", b"stss"])?;
    let of_samples = table.needed(of_samples, b"stsd")?;
    let tables = TableBoxes {
        table,
        sizes,
        compact_sizes,
        chunks,
        offsets,
        long_offsets,
        durations,
        presentation,
        starts,
    };
    Ok((tables, descriptions(input, &of_samples, about)?))
}
