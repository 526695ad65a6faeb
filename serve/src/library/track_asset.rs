// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file whose tracks are RTP streams of their own, and the layouts of its chapters that sessions
//! share.
//!
//! The presentation of a file lists where its samples lie; the packets of a chapter (a second of a
//! track) are laid out by a reader thread when the first session comes near it, from pages that it
//! has just made resident. Costs the layouts' memory, at most [`LAYOUTS_BYTES_MAX`] an asset beside
//! those that sessions are sending, and [`LIVE_BYTES_MAX`] in all: about 9 MB an hour of pictures
//! at 25 a second and of AAC. A session that does not play holds none.
//!
//! The pictures that trick play shows of a file are such an asset, too, whether the file has tracks
//! or is a transport stream ([`TrackSource::trick`], [`Source::trick`]); all sessions at one scale
//! share them.
//!
//! So are the elementary streams of a transport stream. Their packets hold their media: the layouts
//! kept are then 100 s of 5 Mb/s.
//!
//! Sources: `media::tracks`, `media::payload`, `media::trick`, `media::ts::lay_out_elementary`;
//! madvise(2).
//! Does not choose when a chapter is asked for ([`crate::pacer`]) or read on threads of its own
//! ([`crate::prefetch`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use media::payload::{Layout, lay_out};
use media::plan::{PacketPlan, PlanKey};
use media::tracks::Presentation;
use media::{PlayScale, TrickPlan, TrickTimeline, lay_out_elementary};
use parking_lot::Mutex;
use paths::MappedFile;

use super::asset::{Asset, Source};
use super::growing_file::Growth;

/// A file with a presentation.
pub(crate) struct TrackAsset {
    /// Name below the served folder, `/`-separated, no leading slash.
    pub(crate) name: String,
    pub(crate) key: PlanKey,
    pub(crate) presentation: Arc<Presentation>,
    /// Set while the file is recorded.
    growth: Option<Arc<Growth>>,
    /// Due time before which all samples are known; of a whole file `u64::MAX`.
    settled_ticks: u64,
    source: Mutex<Weak<TrackSource>>,
    /// The transport stream of which these are elementary streams; unset for a file with tracks.
    stream: Option<Arc<Asset>>,
    /// Set for the pictures of trick play.
    trick: Option<TrickAsset>,
}

/// Pictures of a file at one scale.
struct TrickAsset {
    plan: Arc<TrickPlan>,
    /// The transport stream of which they are; unset for those of tracks.
    stream: Option<Arc<Source>>,
    /// Index of their track in the file.
    track: usize,
}

/// Trick play of a file by scale: plans, kept with the file's source, and the sources of sessions.
#[derive(Default)]
pub(crate) struct TrickSources(Mutex<HashMap<PlayScale, TrickSlot>>);

/// One scale of a file.
struct TrickSlot {
    /// None where the file has no pictures to show at this scale.
    plan: Option<Arc<TrickPlan>>,
    source: Weak<TrackSource>,
}

impl TrickSources {
    /// Returns the source of a scale: that of other sessions, or one that `open` makes of the plan.
    /// A plan looks at every random-access point of the file, so `choose` makes it once.
    fn get(
        &self,
        scale: PlayScale,
        choose: impl FnOnce() -> Option<TrickPlan>,
        open: impl FnOnce(Arc<TrickPlan>) -> Arc<TrackSource>,
    ) -> Option<Arc<TrackSource>> {
        let mut slots = self.0.lock();
        let slot = slots
            .entry(scale)
            .or_insert_with(|| TrickSlot { plan: choose().map(Arc::new), source: Weak::new() });
        if let Some(source) = slot.source.upgrade() {
            return Some(source);
        }
        let source = open(slot.plan.clone()?);
        slot.source = Arc::downgrade(&source);
        Some(source)
    }
}

/// The open file of such an asset, and the chapters laid out so far.
pub(crate) struct TrackSource {
    pub(crate) asset: Arc<TrackAsset>,
    pub(crate) media: Arc<MappedFile>,
    tricks: TrickSources,
    chapters: Mutex<Chapters>,
    began: Instant,
    /// Parts of samples that could not be laid out.
    faults: AtomicU64,
}

#[derive(Default)]
struct Chapters {
    by_key: HashMap<ChapterKey, Arc<Chapter>>,
    /// Memory of them all.
    bytes: usize,
}

/// A chapter of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChapterKey {
    /// Index of the track in the presentation.
    pub(crate) track: usize,
    pub(crate) chapter: u32,
}

/// A chapter laid out.
pub(crate) struct Chapter {
    pub(crate) layout: Layout,
    /// Second at which its pages were last made resident, plus one.
    resident_at: AtomicU32,
    /// Memory of the layout, in [`LIVE_BYTES`] as long as it lives.
    bytes: usize,
}

/// Memory of all layouts: those that assets keep, and those that sessions send. One number for the
/// process, whose memory they share.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

impl Chapter {
    fn new(layout: Layout, resident_at: u32) -> Chapter {
        let bytes = layout.memory_bytes();
        LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
        Chapter { layout, resident_at: AtomicU32::new(resident_at), bytes }
    }
}

/// Most memory of another chapter beside `live` bytes of layouts. The less is left, the shorter a
/// chapter has to be: so files with unusually many packets are refused, rather than the next viewer
/// of a usual file.
fn chapter_bytes_max(live: usize) -> usize {
    LIVE_BYTES_MAX.saturating_sub(live) / CHAPTER_SHARE
}

impl Drop for Chapter {
    fn drop(&mut self) {
        LIVE_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl TrackAsset {
    pub(crate) fn new(
        name: String,
        key: PlanKey,
        presentation: impl Into<Arc<Presentation>>,
    ) -> TrackAsset {
        let (presentation, source) = (presentation.into(), Mutex::default());
        TrackAsset {
            name,
            key,
            presentation,
            growth: None,
            settled_ticks: u64::MAX,
            source,
            stream: None,
            trick: None,
        }
    }

    /// Creates the asset of a recording from the part written so far, whose packets are known
    /// before this due time.
    pub(crate) fn growing(self, growth: &Arc<Growth>, settled_ticks: u64) -> TrackAsset {
        TrackAsset { growth: Some(growth.clone()), settled_ticks, ..self }
    }

    /// Returns the due time before which packets can be sent, a multiple of a chapter; `u64::MAX`
    /// for a file that does not grow.
    pub(crate) fn settled_ticks(&self) -> u64 {
        self.settled_ticks
    }

    /// Creates the asset of what is recorded so far, as if no more followed.
    pub(crate) fn so_far(&self) -> TrackAsset {
        TrackAsset::new(self.name.clone(), self.key.clone(), self.presentation.clone())
    }

    /// True when the file will have more samples.
    pub(crate) fn is_growing(&self) -> bool {
        self.growth.is_some()
    }

    /// Returns the newest state of a recording that is written.
    pub(crate) fn growth(&self) -> Option<&Arc<Growth>> {
        self.growth.as_ref()
    }

    /// Makes the asset of the elementary streams of a transport stream.
    pub(super) fn elementary(stream: Arc<Asset>, presentation: Presentation) -> TrackAsset {
        let (name, key) = (stream.name.clone(), stream.key.clone());
        TrackAsset { stream: Some(stream), ..TrackAsset::new(name, key, presentation) }
    }

    /// Returns the plan of the transport stream in which the media lies; `None` for a file with
    /// tracks. Where there is one, layouts hold all bytes of their packets.
    pub(crate) fn stream_plan(&self) -> Option<&PacketPlan> {
        let of_trick = self.trick.as_ref().and_then(|trick| trick.stream.as_ref());
        let stream = of_trick.map(|source| &source.asset).or(self.stream.as_ref());
        stream.map(|asset| &asset.plan)
    }

    /// Returns the timeline that maps times of the file to times of the sent media; equal in normal
    /// play.
    pub(crate) fn timeline(&self) -> TrickTimeline {
        match &self.trick {
            Some(trick) => trick.plan.timeline(),
            None => TrickTimeline::new(PlayScale::ONE, self.presentation.presented_end_ticks()),
        }
    }

    /// True for the pictures of trick play: one track alone is sent.
    pub(crate) fn is_trick(&self) -> bool {
        self.trick.is_some()
    }

    /// Returns the index, in the file, of the track by whose random-access points play starts.
    pub(crate) fn leading_index(&self) -> usize {
        match &self.trick {
            Some(trick) => trick.track,
            None => self.presentation.leading_index(),
        }
    }

    /// Returns the index of a track of the file among those that are sent; `None` for one that is
    /// not.
    pub(crate) fn index_of(&self, track: usize) -> Option<usize> {
        match &self.trick {
            Some(trick) => (track == trick.track).then_some(0),
            None => Some(track),
        }
    }

    /// Returns the title for viewers: the file's name without folders.
    pub(crate) fn title(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the shared open file; calls `open` if no session holds it.
    pub(crate) fn source<E>(
        self: &Arc<TrackAsset>,
        open: impl FnOnce() -> Result<MappedFile, E>,
    ) -> Result<Arc<TrackSource>, E> {
        if let Some(newest) = self.growth().and_then(|growth| growth.newest_tracks()) {
            return Ok(newest);
        }
        let mut slot = self.source.lock();
        if let Some(source) = slot.upgrade() {
            return Ok(source);
        }
        let source = self.opened(open()?);
        *slot = Arc::downgrade(&source);
        Ok(source)
    }
}

impl TrackAsset {
    /// Creates a source with this open file, regardless of a recording's newest plan.
    pub(crate) fn opened(self: &Arc<TrackAsset>, media: MappedFile) -> Arc<TrackSource> {
        TrackSource::new(self.clone(), Arc::new(media))
    }
}

impl TrackSource {
    fn new(asset: Arc<TrackAsset>, media: Arc<MappedFile>) -> Arc<TrackSource> {
        Arc::new(TrackSource {
            asset,
            media,
            tricks: TrickSources::default(),
            chapters: Mutex::default(),
            began: Instant::now(),
            faults: AtomicU64::new(0),
        })
    }

    /// Returns the newest source of a recording; of any other file itself.
    pub(crate) fn newest(self: &Arc<TrackSource>) -> Arc<TrackSource> {
        let newest = self.asset.growth().and_then(|growth| growth.newest_tracks());
        newest.unwrap_or_else(|| self.clone())
    }

    /// True when both play the same: one source, or a recording at two times.
    pub(crate) fn is_content_of(self: &Arc<TrackSource>, other: &Arc<TrackSource>) -> bool {
        Arc::ptr_eq(self, other) || {
            let first = |source: &TrackSource| source.asset.presentation.tracks()[0].identity;
            let is_file = |source: &TrackSource| !source.asset.is_trick();
            is_file(self) && is_file(other) && first(self) == first(other)
        }
    }

    /// Returns the pictures of this file at a scale; `None` where it has none, and for a recording,
    /// whose end is not known.
    pub(crate) fn trick(&self, scale: PlayScale) -> Option<Arc<TrackSource>> {
        if self.asset.is_growing() {
            return None;
        }
        let presentation = &self.asset.presentation;
        let choose = || TrickPlan::of_tracks(presentation, scale);
        self.tricks.get(scale, choose, |plan| {
            let trick = TrickAsset { plan, stream: None, track: presentation.leading_index() };
            let named = (self.asset.name.clone(), self.asset.key.clone());
            trick.open(named, self.asset.stream.clone(), self.media.clone())
        })
    }

    /// Returns a chapter whose pages were made resident within the last second or two.
    pub(crate) fn fresh(&self, key: ChapterKey) -> Option<Arc<Chapter>> {
        let chapters = self.chapters.lock();
        let chapter = chapters.by_key.get(&key)?;
        let resident_at = chapter.resident_at.load(Ordering::Relaxed);
        (self.now().saturating_sub(resident_at) <= FRESH_S).then(|| chapter.clone())
    }

    /// Makes the pages of a chapter resident, lays it out if no one has, and returns it; the error
    /// is in words. Blocks on the disk.
    pub(crate) fn make_ready(&self, key: ChapterKey) -> Result<Arc<Chapter>, String> {
        let known = {
            let chapters = self.chapters.lock();
            chapters.by_key.get(&key).cloned()
        };
        if known.is_none() || !self.layouts_hold_media(key) {
            for range in self.file_ranges(key) {
                self.media.prefetch(range).map_err(|error| error.to_string())?;
            }
        }
        if let Some(chapter) = known {
            chapter.resident_at.store(self.now(), Ordering::Relaxed);
            return Ok(chapter);
        }
        let layout = self
            .lay_out(key)
            .map_err(|error| format!("laying out second {}: {error}", key.chapter))?;
        let (bytes, live) = (layout.memory_bytes(), LIVE_BYTES.load(Ordering::Relaxed));
        if bytes > chapter_bytes_max(live) {
            return Err(format!(
                "laying out second {}: its packets take {bytes} bytes of memory, and those of all \
                 sessions {live} of {LIVE_BYTES_MAX}; play fewer files of so many packets at once",
                key.chapter
            ));
        }
        self.note_faults(key, layout.faults());
        let chapter = Arc::new(Chapter::new(layout, self.now()));
        self.keep(key, &chapter);
        Ok(chapter)
    }

    /// True where a layout needs no pages of the file: its media were copied when it was made.
    fn layouts_hold_media(&self, key: ChapterKey) -> bool {
        self.asset.stream_plan().is_some()
            || self.asset.presentation.tracks()[key.track].codec.is_swapped()
    }

    fn lay_out(&self, key: ChapterKey) -> std::io::Result<Layout> {
        let (file, stream) = (self.media.file(), self.asset.stream_plan());
        let (presentation, place) = (&self.asset.presentation, (key.track, key.chapter));
        match (&self.asset.trick, stream) {
            (Some(trick), stream) => trick.plan.lay_out(stream, key.chapter, file),
            (None, Some(stream)) => lay_out_elementary(stream, presentation, place, file),
            (None, None) => lay_out(presentation, key.track, key.chapter, file),
        }
    }

    /// Returns the file ranges of a chapter's samples, neighbours and near ones joined: the bytes
    /// between are mostly those of other tracks of the same second.
    fn file_ranges(&self, key: ChapterKey) -> Vec<Range<u64>> {
        // Where a picture of a transport stream lies is found when it is made anew.
        if self.asset.trick.as_ref().is_some_and(|trick| trick.stream.is_some()) {
            return Vec::new();
        }
        let presentation = &self.asset.presentation;
        let samples = &presentation.tracks()[key.track].samples;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for sample in samples.samples(presentation.chapter_samples(key.track, key.chapter)) {
            let end = sample.file_offset + u64::from(sample.bytes);
            match ranges.last_mut() {
                Some(last)
                    if sample.file_offset >= last.start
                        && sample.file_offset <= last.end + JOINED_BYTES =>
                {
                    last.end = last.end.max(end);
                }
                _ => ranges.push(sample.file_offset..end),
            }
        }
        ranges
    }

    fn note_faults(&self, key: ChapterKey, faults: u32) {
        if faults == 0 {
            return;
        }
        // The first is logged with its place; the sum is in the metrics of the file.
        if self.faults.fetch_add(faults.into(), Ordering::Relaxed) == 0 {
            let track = self.asset.presentation.tracks()[key.track].id;
            tracing::warn!(
                "{}: track {track}: {faults} parts of samples of second {} are broken and not \
                 sent; check the file (ffmpeg -v error -i FILE -f null -)",
                self.asset.name,
                key.chapter
            );
        }
    }

    fn keep(&self, key: ChapterKey, chapter: &Arc<Chapter>) {
        let mut chapters = self.chapters.lock();
        chapters.bytes += chapter.bytes;
        if let Some(before) = chapters.by_key.insert(key, chapter.clone()) {
            chapters.bytes -= before.bytes;
        }
        // Layouts kept for other sessions make room for those that are sent.
        let is_scarce = LIVE_BYTES.load(Ordering::Relaxed) > LIVE_BYTES_MAX / 2;
        if chapters.bytes > if is_scarce { 0 } else { LAYOUTS_BYTES_MAX } {
            chapters.drop_oldest();
        }
    }

    fn now(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs() + 1).unwrap_or(u32::MAX)
    }
}

impl Source {
    /// Returns the pictures of this transport stream at a scale; `None` where it has none, and for
    /// a recording or a channel, whose end is not known.
    pub(crate) fn trick(self: &Arc<Source>, scale: PlayScale) -> Option<Arc<TrackSource>> {
        if self.asset.continues() {
            return None;
        }
        self.tricks.get(
            scale,
            || TrickPlan::of_stream(&self.asset.plan, scale),
            |plan| {
                let trick = TrickAsset { plan, stream: Some(self.clone()), track: 0 };
                let named = (self.asset.name.clone(), self.asset.key.clone());
                trick.open(named, None, self.media.clone())
            },
        )
    }
}

impl TrickAsset {
    /// `stream` is that of which the pictures are an elementary stream, if they are.
    fn open(
        self,
        (name, key): (String, PlanKey),
        stream: Option<Arc<Asset>>,
        media: Arc<MappedFile>,
    ) -> Arc<TrackSource> {
        let presentation = self.plan.presentation().clone();
        let asset = TrackAsset::new(name, key, presentation);
        TrackSource::new(Arc::new(TrackAsset { stream, trick: Some(self), ..asset }), media)
    }
}

impl Chapters {
    /// Drops the older half of the chapters; sessions keep those that they send.
    fn drop_oldest(&mut self) {
        let resident_at = |chapter: &Arc<Chapter>| chapter.resident_at.load(Ordering::Relaxed);
        let mut ages: Vec<_> = self.by_key.values().map(resident_at).collect();
        let middle = ages.len() / 2;
        let (_, &mut limit, _) = ages.select_nth_unstable(middle);
        self.by_key.retain(|_, chapter| resident_at(chapter) > limit);
        self.bytes = self.by_key.values().map(|chapter| chapter.bytes).sum();
    }
}

/// Age in seconds: the kernel evicts such recently used pages last.
const FRESH_S: u32 = 1;
/// Samples so near to each other are read as one range.
const JOINED_BYTES: u64 = 128 << 10;
/// Memory of an asset's layouts: some hours of media.
const LAYOUTS_BYTES_MAX: usize = 64 << 20;
/// Memory of the layouts of all assets and sessions. A session that plays holds two seconds of its
/// file: some KiB of an MP4, all bytes of elementary streams, 5 MB at 20 Mb/s.
const LIVE_BYTES_MAX: usize = 1 << 30;
/// Part of the memory left that one chapter may take.
const CHAPTER_SHARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chapters_are_refused_before_short_ones() {
        let mib = 1 << 20;
        assert!(chapter_bytes_max(0) >= 64 * mib, "elementary streams of 500 Mb/s alone");
        assert!(chapter_bytes_max(LIVE_BYTES_MAX - 80 * mib) < 8 * mib, "an uncommon file");
        assert!(chapter_bytes_max(LIVE_BYTES_MAX - 80 * mib) > mib, "a common one");
        assert_eq!(chapter_bytes_max(LIVE_BYTES_MAX + mib), 0);
    }

    #[test]
    fn a_layout_counts_as_long_as_it_lives() {
        let bytes = 1 << 40;
        let before = LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
        drop(Chapter { layout: Layout::default(), resident_at: AtomicU32::new(1), bytes });
        // Other tests count theirs meanwhile.
        assert!(LIVE_BYTES.load(Ordering::Relaxed) < before + bytes / 2);
    }

    #[test]
    fn random_access_points_of_a_scale_are_looked_at_once() {
        let (sources, mut looks) = (TrickSources::default(), 0);
        for _ in 0..3 {
            let choose = || {
                looks += 1;
                None
            };
            let found = sources.get(PlayScale::nearest(4.0), choose, |_| unreachable!("no plan"));
            assert!(found.is_none());
        }
        assert_eq!(looks, 1);
    }
}
