// SPDX-License-Identifier: MIT OR Apache-2.0
//! track_asset: a file whose tracks are RTP streams of their own, and the layouts of its chapters
//! that sessions share.
//!
//! The presentation of a file says where its samples lie; the packets of a chapter (a second of a
//! track) are laid out by a reader thread when the first session comes near it, from pages that it
//! has just made resident. Costs the layouts' memory, at most [`LAYOUTS_BYTES_MAX`] an asset beside
//! those that sessions are sending: about 9 MB an hour of pictures at 25 a second and of AAC.
//!
//! Sources: `media::tracks`, `media::payload`; madvise(2).
//! Does not choose when a chapter is asked for ([`crate::pacer`]) or read on threads of its own
//! ([`crate::prefetch`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use media::payload::{Layout, lay_out};
use media::plan::PlanKey;
use media::tracks::Presentation;
use paths::MappedFile;

/// A file with a presentation.
pub(crate) struct TrackAsset {
    /// Name below the served folder, `/`-separated, no leading slash.
    pub(crate) name: String,
    pub(crate) key: PlanKey,
    pub(crate) presentation: Presentation,
    source: Mutex<Weak<TrackSource>>,
}

/// The open file of such an asset, and the chapters laid out so far.
pub(crate) struct TrackSource {
    pub(crate) asset: Arc<TrackAsset>,
    pub(crate) media: MappedFile,
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
}

impl TrackAsset {
    pub(crate) fn new(name: String, key: PlanKey, presentation: Presentation) -> TrackAsset {
        TrackAsset { name, key, presentation, source: Mutex::default() }
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
        let mut slot = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = slot.upgrade() {
            return Ok(source);
        }
        let source = Arc::new(TrackSource {
            asset: self.clone(),
            media: open()?,
            chapters: Mutex::default(),
            began: Instant::now(),
            faults: AtomicU64::new(0),
        });
        *slot = Arc::downgrade(&source);
        Ok(source)
    }
}

impl TrackSource {
    /// Returns a chapter whose pages were made resident within the last second or two.
    pub(crate) fn fresh(&self, key: ChapterKey) -> Option<Arc<Chapter>> {
        let chapters = self.chapters.lock().unwrap_or_else(PoisonError::into_inner);
        let chapter = chapters.by_key.get(&key)?;
        let resident_at = chapter.resident_at.load(Ordering::Relaxed);
        (self.now().saturating_sub(resident_at) <= FRESH_S).then(|| chapter.clone())
    }

    /// Makes the pages of a chapter resident, lays it out if no one has, and returns it; the error
    /// is in words. Blocks on the disk.
    pub(crate) fn make_ready(&self, key: ChapterKey) -> Result<Arc<Chapter>, String> {
        let presentation = &self.asset.presentation;
        for range in self.file_ranges(key) {
            self.media.prefetch(range).map_err(|error| error.to_string())?;
        }
        let known = {
            let chapters = self.chapters.lock().unwrap_or_else(PoisonError::into_inner);
            chapters.by_key.get(&key).cloned()
        };
        if let Some(chapter) = known {
            chapter.resident_at.store(self.now(), Ordering::Relaxed);
            return Ok(chapter);
        }
        let layout = lay_out(presentation, key.track, key.chapter, self.media.file())
            .map_err(|error| format!("laying out second {}: {error}", key.chapter))?;
        self.note_faults(key, layout.faults());
        let chapter = Arc::new(Chapter { layout, resident_at: AtomicU32::new(self.now()) });
        self.keep(key, &chapter);
        Ok(chapter)
    }

    /// Returns the file ranges of a chapter's samples, neighbours and near ones joined: the bytes
    /// between are mostly those of other tracks of the same second.
    fn file_ranges(&self, key: ChapterKey) -> Vec<Range<u64>> {
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
        let mut chapters = self.chapters.lock().unwrap_or_else(PoisonError::into_inner);
        chapters.bytes += chapter.layout.memory_bytes();
        if let Some(before) = chapters.by_key.insert(key, chapter.clone()) {
            chapters.bytes -= before.layout.memory_bytes();
        }
        if chapters.bytes > LAYOUTS_BYTES_MAX {
            chapters.drop_oldest();
        }
    }

    fn now(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs() + 1).unwrap_or(u32::MAX)
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
        self.bytes = self.by_key.values().map(|chapter| chapter.layout.memory_bytes()).sum();
    }
}

/// Age in seconds: the kernel evicts such recently used pages last.
const FRESH_S: u32 = 1;
/// Samples so near to each other are read as one range.
const JOINED_BYTES: u64 = 128 << 10;
/// Memory of an asset's layouts: some hours of media.
const LAYOUTS_BYTES_MAX: usize = 64 << 20;
