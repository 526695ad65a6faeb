// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that can be streamed, its plan, and the open files that its sessions share.
//!
//! A plan takes a few megabytes for hours of media, so it stays in memory while the asset is
//! streamed and is read from the cache afterwards. All sessions of one asset share one [`Source`]:
//! one descriptor, one map, one wire image for each layout, so a session costs a socket and little
//! else.
//!
//! Does not find assets ([`crate::library`]) or make wire images ([`crate::wire_image`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use media::plan::{PacketPlan, PlanKey};
use media::{AssetPlan, Presentation, RecordedStarts, TICKS_PER_TIMESTAMP};
use parking_lot::Mutex;
use paths::MappedFile;

use crate::library::channel_parts::{ChannelParts, PartPlace};
use crate::library::growing_file::Growth;
use crate::library::track_asset::{TrackAsset, TrackSource, TrickSources};
use crate::prefetch::{Residency, SendForm};
use crate::wire_image::{ImageLayout, WireImage};

/// A file that can be streamed, of either kind.
#[derive(Clone)]
pub(crate) enum LibraryAsset {
    /// A transport stream.
    Stream(Arc<Asset>),
    /// Tracks of their own.
    Tracks(Arc<TrackAsset>),
}

impl LibraryAsset {
    pub(crate) fn new(name: String, key: PlanKey, plan: AssetPlan) -> LibraryAsset {
        match plan {
            AssetPlan::TransportStream(plan) => Asset::new(name, key, plan).into(),
            AssetPlan::Tracks(presentation) => {
                LibraryAsset::Tracks(Arc::new(TrackAsset::new(name, key, presentation)))
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            LibraryAsset::Stream(asset) => &asset.name,
            LibraryAsset::Tracks(asset) => &asset.name,
        }
    }

    pub(crate) fn key(&self) -> &PlanKey {
        match self {
            LibraryAsset::Stream(asset) => &asset.key,
            LibraryAsset::Tracks(asset) => &asset.key,
        }
    }

    /// Memory of its tables.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            LibraryAsset::Stream(asset) => {
                size_of_val(asset.plan.clock()) + size_of_val(asset.plan.entries())
            }
            LibraryAsset::Tracks(asset) => asset.presentation.memory_bytes() as usize,
        }
    }

    /// Returns the newest state of a recording that is written.
    pub(crate) fn growth(&self) -> Option<&Arc<Growth>> {
        match self {
            LibraryAsset::Stream(asset) => asset.growth(),
            LibraryAsset::Tracks(asset) => asset.growth(),
        }
    }

    /// True when more media may follow: for a recording, or a channel.
    pub(crate) fn continues(&self) -> bool {
        match self {
            LibraryAsset::Stream(asset) => asset.continues(),
            LibraryAsset::Tracks(asset) => asset.is_growing(),
        }
    }

    /// True when both are the same asset.
    pub(super) fn is(&self, other: &LibraryAsset) -> bool {
        match (self, other) {
            (LibraryAsset::Stream(one), LibraryAsset::Stream(other)) => Arc::ptr_eq(one, other),
            (LibraryAsset::Tracks(one), LibraryAsset::Tracks(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(super) fn downgrade(&self) -> WeakLibraryAsset {
        match self {
            LibraryAsset::Stream(asset) => WeakLibraryAsset::Stream(Arc::downgrade(asset)),
            LibraryAsset::Tracks(asset) => WeakLibraryAsset::Tracks(Arc::downgrade(asset)),
        }
    }
}

impl From<Asset> for LibraryAsset {
    fn from(asset: Asset) -> LibraryAsset {
        LibraryAsset::Stream(Arc::new(asset))
    }
}

/// The open files of a [`LibraryAsset`].
#[derive(Clone)]
pub(crate) enum LibrarySource {
    Stream(Arc<Source>),
    Tracks(Arc<TrackSource>),
}

impl LibrarySource {
    pub(super) fn asset(&self) -> LibraryAsset {
        match self {
            LibrarySource::Stream(source) => LibraryAsset::Stream(source.asset.clone()),
            LibrarySource::Tracks(source) => LibraryAsset::Tracks(source.asset.clone()),
        }
    }

    /// Returns the source if it is one of a transport stream.
    pub(crate) fn stream(self) -> Option<Arc<Source>> {
        match self {
            LibrarySource::Stream(source) => Some(source),
            LibrarySource::Tracks(_) => None,
        }
    }

    /// Returns the source if it is one of tracks.
    pub(crate) fn tracks(self) -> Option<Arc<TrackSource>> {
        match self {
            LibrarySource::Stream(_) => None,
            LibrarySource::Tracks(source) => Some(source),
        }
    }

    /// Number of those who hold it.
    pub(super) fn holders(&self) -> usize {
        match self {
            LibrarySource::Stream(source) => Arc::strong_count(source),
            LibrarySource::Tracks(source) => Arc::strong_count(source),
        }
    }
}

/// A [`LibraryAsset`] that is not kept alive.
pub(super) enum WeakLibraryAsset {
    Stream(Weak<Asset>),
    Tracks(Weak<TrackAsset>),
}

impl WeakLibraryAsset {
    pub(super) fn upgrade(&self) -> Option<LibraryAsset> {
        match self {
            WeakLibraryAsset::Stream(asset) => asset.upgrade().map(LibraryAsset::Stream),
            WeakLibraryAsset::Tracks(asset) => asset.upgrade().map(LibraryAsset::Tracks),
        }
    }
}

/// A transport stream with a plan.
pub(crate) struct Asset {
    /// Name below the served folder, `/`-separated, no leading slash.
    pub(crate) name: String,
    pub(crate) key: PlanKey,
    pub(crate) plan: PacketPlan,
    /// Set while the file is recorded.
    growth: Option<Arc<Growth>>,
    /// Places where a recording can be cut; set while it is followed, and when it has been.
    starts: Option<RecordedStarts>,
    /// Set for a part of a channel's window.
    place: Option<PartPlace>,
    source: Mutex<Weak<Source>>,
    /// Its elementary streams as tracks, while they are in use.
    elementary: Mutex<Weak<TrackAsset>>,
}

/// The open files of an asset.
pub(crate) struct Source {
    pub(crate) asset: Arc<Asset>,
    pub(crate) media: Arc<MappedFile>,
    /// Its pictures at other rates.
    pub(crate) tricks: TrickSources,
    packets_image: ImageSlot,
    frames_image: ImageSlot,
    file_residence: Residency,
}

/// Place of an asset's wire image of one layout.
struct ImageSlot {
    /// Set once, when the image is made; sessions then switch to it in mid-stream.
    image: OnceLock<WireImage>,
    /// True from the first request for the image on, so that it is requested once.
    asked: AtomicBool,
    residence: Residency,
}

impl ImageSlot {
    fn new(packets: u64, asked: bool) -> ImageSlot {
        ImageSlot {
            image: OnceLock::new(),
            asked: AtomicBool::new(asked),
            residence: Residency::new(packets),
        }
    }
}

impl Asset {
    pub(crate) fn new(name: String, key: PlanKey, plan: PacketPlan) -> Asset {
        let (source, elementary) = (Mutex::default(), Mutex::default());
        Asset { name, key, plan, growth: None, starts: None, place: None, source, elementary }
    }

    /// Creates the asset of a recording from the part written so far.
    pub(crate) fn growing(
        name: String,
        key: PlanKey,
        plan: PacketPlan,
        growth: &Arc<Growth>,
    ) -> Asset {
        Asset { growth: Some(growth.clone()), ..Asset::new(name, key, plan) }
    }

    /// Adds the places where a recording can be cut.
    pub(crate) fn with_starts(self, starts: RecordedStarts) -> Asset {
        Asset { starts: Some(starts), ..self }
    }

    /// Returns the places where a recording can be cut.
    pub(crate) fn starts(&self) -> Option<&RecordedStarts> {
        self.starts.as_ref()
    }

    /// Returns the newest state of a recording that is written.
    pub(crate) fn growth(&self) -> Option<&Arc<Growth>> {
        self.growth.as_ref()
    }

    /// Returns its elementary streams if they are in use.
    pub(super) fn elementary(&self) -> Option<Arc<TrackAsset>> {
        self.elementary.lock().upgrade()
    }

    /// Makes an asset of its elementary streams, or returns the one in use.
    pub(super) fn with_elementary(
        self: &Arc<Asset>,
        presentation: Presentation,
    ) -> Arc<TrackAsset> {
        let mut slot = self.elementary.lock();
        slot.upgrade().unwrap_or_else(|| {
            let asset = Arc::new(TrackAsset::elementary(self.clone(), presentation));
            *slot = Arc::downgrade(&asset);
            asset
        })
    }

    /// Places it among the parts of a channel.
    pub(crate) fn among_parts(self, place: PartPlace) -> Asset {
        Asset { place: Some(place), ..self }
    }

    /// True when the file will have more packets than this plan.
    pub(crate) fn is_growing(&self) -> bool {
        self.growth.is_some()
    }

    /// True when more packets may follow those of this plan: for a recording, or a channel.
    pub(crate) fn continues(&self) -> bool {
        self.is_growing() || self.place.is_some()
    }

    /// Returns the parts of its channel, if it is one of them.
    pub(crate) fn channel_parts(&self) -> Option<&Arc<ChannelParts>> {
        self.place.as_ref().map(|place| &place.parts)
    }

    /// Returns the title for viewers: that of the channel, or the file's name without folders.
    pub(crate) fn title(&self) -> &str {
        match self.channel_parts() {
            Some(parts) => &parts.title,
            None => self.name.rsplit('/').next().unwrap_or_default(),
        }
    }

    /// Returns the packets of the channel before this part; 0 for a file.
    pub(crate) fn first_packet(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.first_packet)
    }

    /// Returns the time of the channel before this part; 0 for a file.
    pub(crate) fn first_ticks(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.first_ticks)
    }

    /// Returns the RTP timestamp of a time of the channel or file.
    pub(crate) fn timestamp(&self, ticks: u64) -> u32 {
        match ticks.checked_sub(self.first_ticks()) {
            Some(ticks) => self.plan.timestamp(ticks),
            None => {
                let before = (self.first_ticks() - ticks) / TICKS_PER_TIMESTAMP;
                self.plan.timestamp(0).wrapping_sub(before as u32)
            }
        }
    }

    /// Returns the shared open files; calls `open` if no session holds them.
    pub(crate) fn source<E>(
        self: &Arc<Asset>,
        open: impl FnOnce() -> Result<MappedFile, E>,
    ) -> Result<Arc<Source>, E> {
        if let Some(newest) = self.growth.as_ref().and_then(|growth| growth.newest_stream()) {
            return Ok(newest);
        }
        // A part that is whole has no growth, and no name to open.
        if let Some(newest) = self.channel_parts().and_then(|parts| parts.newest()) {
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

    /// Creates a source with this open file, regardless of a recording's newest plan.
    pub(crate) fn opened(self: &Arc<Asset>, media: MappedFile) -> Arc<Source> {
        let packets = self.plan.packets();
        // The image of a recording or a channel would soon be outdated: it counts as requested.
        let asked = self.continues();
        Arc::new(Source {
            file_residence: Residency::new(packets),
            packets_image: ImageSlot::new(packets, asked),
            frames_image: ImageSlot::new(packets, asked),
            asset: self.clone(),
            media: Arc::new(media),
            tricks: TrickSources::default(),
        })
    }
}

impl Source {
    /// Returns the newest source of a recording; of any other file itself.
    pub(crate) fn newest(self: &Arc<Source>) -> Arc<Source> {
        let newest = self.asset.growth.as_ref().and_then(|growth| growth.newest_stream());
        newest.unwrap_or_else(|| self.clone())
    }

    /// Returns the newest source of the media that a session plays: for a channel its newest part.
    pub(crate) fn current(self: &Arc<Source>) -> Arc<Source> {
        match self.asset.channel_parts() {
            Some(parts) => parts.newest().unwrap_or_else(|| self.clone()),
            None => self.newest(),
        }
    }

    /// Returns the source that holds `packet` of the channel or file.
    pub(crate) fn holding(self: &Arc<Source>, packet: u64) -> Arc<Source> {
        match self.asset.channel_parts() {
            Some(parts) => parts.holding(packet).unwrap_or_else(|| self.clone()),
            None => self.newest(),
        }
    }

    /// Returns the part of the channel that continues this one; `None` while there is none.
    pub(crate) fn following(&self) -> Option<Arc<Source>> {
        let end = self.asset.first_packet() + self.asset.plan.packets();
        self.asset.channel_parts().filter(|_| !self.asset.is_growing())?.following(end)
    }

    /// Returns the oldest part of the channel behind this one, also where this one was dropped.
    pub(crate) fn oldest_behind(&self) -> Option<Arc<Source>> {
        self.asset.channel_parts()?.following(self.asset.first_packet() + 1)
    }

    /// Returns the packet with which a play of `packet` begins: that packet, or the nearest one
    /// that there is. Behind its end a file begins anew.
    pub(crate) fn playable(&self, packet: u64) -> u64 {
        match self.asset.channel_parts() {
            Some(parts) => parts.playable(packet).unwrap_or(packet),
            None if packet >= self.asset.plan.packets() => 0,
            None => packet,
        }
    }

    /// Returns the RTP timestamp of `packet` of the channel or file; behind the last packet that of
    /// the end.
    pub(crate) fn timestamp_of(&self, packet: u64) -> u32 {
        let plan = &self.asset.plan;
        plan.timestamp(plan.ticks(packet.saturating_sub(self.asset.first_packet())))
    }

    /// Returns one past the last packet that can be sent.
    pub(crate) fn end(&self) -> u64 {
        let plan = &self.asset.plan;
        if self.asset.is_growing() { plan.settled_packets() } else { plan.packets() }
    }

    /// Returns the end of a play of everything, including later packets of a recording or channel.
    pub(crate) fn limit(&self) -> u64 {
        if self.asset.continues() { u64::MAX } else { self.asset.plan.packets() }
    }

    /// Returns the recently resident parts of the file or of an image.
    pub(crate) fn residence(&self, form: SendForm) -> &Residency {
        match form {
            SendForm::Source => &self.file_residence,
            SendForm::Image(layout) => &self.slot(layout).residence,
        }
    }

    /// Returns the wire image once it is made and while it is intact. A dropped one is made again
    /// for the next play after these sessions.
    pub(crate) fn image(&self, layout: ImageLayout) -> Option<&WireImage> {
        self.slot(layout).image.get().filter(|image| !image.is_dropped())
    }

    pub(crate) fn set_image(&self, layout: ImageLayout, image: WireImage) {
        // An image is requested once, so it is unset here.
        let _ = self.slot(layout).image.set(image);
    }

    /// True when an image has been requested, or none is to be.
    pub(crate) fn is_image_asked(&self, layout: ImageLayout) -> bool {
        self.slot(layout).asked.load(Ordering::Relaxed)
    }

    /// Returns true on the first call only.
    pub(crate) fn ask_image(&self, layout: ImageLayout) -> bool {
        !self.slot(layout).asked.swap(true, Ordering::Relaxed)
    }

    /// Lets a later play request the image again.
    pub(crate) fn let_ask_image(&self, layout: ImageLayout) {
        self.slot(layout).asked.store(false, Ordering::Relaxed);
    }

    fn slot(&self, layout: ImageLayout) -> &ImageSlot {
        match layout {
            ImageLayout::Packets => &self.packets_image,
            ImageLayout::Frames => &self.frames_image,
        }
    }
}
