// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assets: a file that can be streamed, its plan, and the open files that sessions share.
//!
//! A plan is a few megabytes for hours of media, so it lives as long as somebody streams it and is
//! read again from the cache afterwards. All sessions of one asset share one [`Source`]: one
//! descriptor, one map, one wire image, so a session costs a socket and little else.
//!
//! Does not do: finding assets ([`crate::library`]) or making wire images ([`crate::wire_image`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use media::plan::{PacketPlan, PlanKey};
use paths::MappedFile;

use crate::growing_file::Growth;
use crate::prefetch::{Residency, SendForm};
use crate::wire_image::WireImage;

/// A file with a plan.
pub(crate) struct Asset {
    /// Name below the served folder, `/`-separated, no leading slash.
    pub(crate) name: String,
    pub(crate) key: PlanKey,
    pub(crate) plan: PacketPlan,
    /// Set while it is recorded.
    growth: Option<Arc<Growth>>,
    source: Mutex<Weak<Source>>,
}

/// The open files of an asset.
pub(crate) struct Source {
    pub(crate) asset: Arc<Asset>,
    pub(crate) media: MappedFile,
    /// Set once, when the wire image is there; sessions then go over to it in mid-stream.
    image: OnceLock<WireImage>,
    /// True from the first request for an image on, so that it is asked for once.
    pub(crate) image_asked: AtomicBool,
    file_residence: Residency,
    image_residence: Residency,
}

impl Asset {
    pub(crate) fn new(name: String, key: PlanKey, plan: PacketPlan) -> Asset {
        Asset { name, key, plan, growth: None, source: Mutex::new(Weak::new()) }
    }

    /// A recording as far as it is written.
    pub(crate) fn growing(
        name: String,
        key: PlanKey,
        plan: PacketPlan,
        growth: &Arc<Growth>,
    ) -> Asset {
        Asset { growth: Some(growth.clone()), ..Asset::new(name, key, plan) }
    }

    /// Whether more is to come than its plan has.
    pub(crate) fn is_growing(&self) -> bool {
        self.growth.is_some()
    }

    /// The shared open files, opened by `open` if no session holds them.
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

    /// With this open file, whatever the newest plan of a recording is: the next one begins so.
    pub(crate) fn opened(self: &Arc<Asset>, media: MappedFile) -> Arc<Source> {
        let packets = self.plan.packets();
        Arc::new(Source {
            file_residence: Residency::new(packets),
            image_residence: Residency::new(packets),
            asset: self.clone(),
            media,
            image: OnceLock::new(),
            // The image of what is written so far would be of no use in a moment.
            image_asked: AtomicBool::new(self.is_growing()),
        })
    }
}

impl Source {
    /// The newest of a recording; itself of any other file.
    pub(crate) fn newest(self: &Arc<Source>) -> Arc<Source> {
        let newest = self.asset.growth.as_ref().and_then(|growth| growth.newest());
        newest.unwrap_or_else(|| self.clone())
    }

    /// One past the last packet that can be sent.
    pub(crate) fn end(&self) -> u64 {
        let plan = &self.asset.plan;
        if self.asset.is_growing() { plan.settled_packets() } else { plan.packets() }
    }

    /// Where a play stops that is to play all there is and will be.
    pub(crate) fn limit(&self) -> u64 {
        if self.asset.is_growing() { u64::MAX } else { self.asset.plan.packets() }
    }

    /// What is known to be in memory, of the file or of the image.
    pub(crate) fn residence(&self, form: SendForm) -> &Residency {
        match form {
            SendForm::Source => &self.file_residence,
            SendForm::Image => &self.image_residence,
        }
    }

    /// The wire image, once it is there and for as long as it is as it was written. One that is
    /// dropped is made again for the next play after these sessions.
    pub(crate) fn image(&self) -> Option<&WireImage> {
        self.image.get().filter(|image| !image.is_dropped())
    }

    pub(crate) fn set_image(&self, image: WireImage) {
        // One is asked for once.
        let _ = self.image.set(image);
    }

    /// True the first time it is called.
    pub(crate) fn ask_image(&self) -> bool {
        !self.image_asked.swap(true, Ordering::Relaxed)
    }
}
