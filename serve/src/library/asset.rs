// SPDX-License-Identifier: MIT OR Apache-2.0
//! asset: a file that can be streamed, its plan, and the open files that its sessions share.
//!
//! A plan takes a few megabytes for hours of media, so it stays in memory while the asset is
//! streamed and is read from the cache afterwards. All sessions of one asset share one [`Source`]:
//! one descriptor, one map, one wire image, so a session costs a socket and little else.
//!
//! Does not find assets ([`crate::library`]) or make wire images ([`crate::wire_image`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use media::plan::{PacketPlan, PlanKey};
use paths::MappedFile;

use crate::library::growing_file::Growth;
use crate::prefetch::{Residency, SendForm};
use crate::wire_image::WireImage;

/// A file with a plan.
pub(crate) struct Asset {
    /// Name below the served folder, `/`-separated, no leading slash.
    pub(crate) name: String,
    pub(crate) key: PlanKey,
    pub(crate) plan: PacketPlan,
    /// Set while the file is recorded.
    growth: Option<Arc<Growth>>,
    source: Mutex<Weak<Source>>,
}

/// The open files of an asset.
pub(crate) struct Source {
    pub(crate) asset: Arc<Asset>,
    pub(crate) media: MappedFile,
    /// Set once, when the wire image is made; sessions then switch to it in mid-stream.
    image: OnceLock<WireImage>,
    /// True from the first request for an image on, so that it is requested once.
    pub(crate) image_asked: AtomicBool,
    file_residence: Residency,
    image_residence: Residency,
}

impl Asset {
    pub(crate) fn new(name: String, key: PlanKey, plan: PacketPlan) -> Asset {
        Asset { name, key, plan, growth: None, source: Mutex::new(Weak::new()) }
    }

    /// Creates the asset of a recording as far as it is written.
    pub(crate) fn growing(
        name: String,
        key: PlanKey,
        plan: PacketPlan,
        growth: &Arc<Growth>,
    ) -> Asset {
        Asset { growth: Some(growth.clone()), ..Asset::new(name, key, plan) }
    }

    /// True when the file will have more packets than this plan.
    pub(crate) fn is_growing(&self) -> bool {
        self.growth.is_some()
    }

    /// Returns the shared open files; calls `open` if no session holds them.
    pub(crate) fn source<E>(
        self: &Arc<Asset>,
        open: impl FnOnce() -> Result<MappedFile, E>,
    ) -> Result<Arc<Source>, E> {
        if let Some(newest) = self.growth.as_ref().and_then(|growth| growth.newest()) {
            return Ok(newest);
        }
        let mut slot = self.source.lock().unwrap();
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
        Arc::new(Source {
            file_residence: Residency::new(packets),
            image_residence: Residency::new(packets),
            asset: self.clone(),
            media,
            image: OnceLock::new(),
            // True for a recording: its image would soon be outdated.
            image_asked: AtomicBool::new(self.is_growing()),
        })
    }
}

impl Source {
    /// Returns the newest source of a recording; of any other file itself.
    pub(crate) fn newest(self: &Arc<Source>) -> Arc<Source> {
        let newest = self.asset.growth.as_ref().and_then(|growth| growth.newest());
        newest.unwrap_or_else(|| self.clone())
    }

    /// Returns one past the last packet that can be sent.
    pub(crate) fn end(&self) -> u64 {
        let plan = &self.asset.plan;
        if self.asset.is_growing() { plan.settled_packets() } else { plan.packets() }
    }

    /// Returns the end of a play of everything, including later packets of a recording.
    pub(crate) fn limit(&self) -> u64 {
        if self.asset.is_growing() { u64::MAX } else { self.asset.plan.packets() }
    }

    /// Returns the recently resident parts of the file or of the image.
    pub(crate) fn residence(&self, form: SendForm) -> &Residency {
        match form {
            SendForm::Source => &self.file_residence,
            SendForm::Image => &self.image_residence,
        }
    }

    /// Returns the wire image once it is made and while it is intact. A dropped one is made again
    /// for the next play after these sessions.
    pub(crate) fn image(&self) -> Option<&WireImage> {
        self.image.get().filter(|image| !image.is_dropped())
    }

    pub(crate) fn set_image(&self, image: WireImage) {
        // An image is requested once, so it is unset here.
        let _ = self.image.set(image);
    }

    /// Returns true on the first call only.
    pub(crate) fn ask_image(&self) -> bool {
        !self.image_asked.swap(true, Ordering::Relaxed)
    }
}
