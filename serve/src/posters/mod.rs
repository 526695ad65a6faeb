// SPDX-License-Identifier: MIT OR Apache-2.0
//! A poster and thumbnails of each file with pictures, made of its key frames by ffmpeg.
//!
//! `film.mp4/poster.jpg` is a picture of 320 pixels' width; `film.mp4/thumbnails.vtt` lists
//! thumbnails of 160, a hundred on each `film.mp4/thumbnails-N.jpg`. They are made when they are
//! first requested ([`maker`]), by few threads of the lowest priority: one, or two on more than
//! four processors. ffmpeg gets the coded key frames alone, in a sandbox ([`decoder`]). The results
//! are kept in the cache folder ([`store`]), and 32 MiB of them in memory; so is a verdict that a
//! file has none.
//!
//! Costs, once kept: a look-up and a copy of the picture for each request; nothing for streams. A
//! poster takes 0.2 s of a processor, thumbnails of an hour 3 s.
//!
//! Sources: ffmpeg(1); WebVTT.
//! Does not answer requests ([`crate::web`]), and makes no pictures of recordings and channels.

mod decoder;
mod framing;
mod maker;
mod queue;
mod store;

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use media::PlanStore;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::error::Error;
use crate::library::asset::LibraryAsset;
use crate::library::{Library, NoAsset, be_nice};

pub use decoder::DecoderCommand;
use decoder::{DecodeFault, Decoder};
use queue::{PictureName, Queue};
use store::PictureStore;

/// Source of posters and thumbnails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThumbnailSource {
    /// There are none, for this reason.
    None(String),
    /// ffmpeg decodes key frames.
    Decoder(DecoderCommand),
}

/// Kinds of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PictureKind {
    Poster,
    Thumbnails,
}

/// A poster, or thumbnails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PictureSet {
    /// WebVTT of thumbnails; empty for a poster.
    pub(crate) list: String,
    /// JPEG files: the poster, or sheets of thumbnails.
    pub(crate) pictures: Vec<Vec<u8>>,
}

/// Pictures of a file, or the reason why it has none.
type Verdict = Result<Arc<PictureSet>, String>;

/// Result of a request.
type Outcome = Result<Arc<PictureSet>, NoAsset>;

/// The posters and thumbnails of a library.
pub(crate) struct Posters {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    library: Arc<Library>,
    source: ThumbnailSource,
    /// Set once the decoder has decoded something in its sandbox.
    works: OnceLock<()>,
    store: PictureStore,
    kept: Cache<PictureName, Verdict, ByBytes>,
    queue: Queue,
    is_stopping: AtomicBool,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<PictureName, Verdict> for ByBytes {
    fn weight(&self, name: &PictureName, verdict: &Verdict) -> u64 {
        let bytes = match verdict {
            Ok(set) => set.list.len() + set.pictures.iter().map(Vec::len).sum::<usize>(),
            Err(reason) => reason.len(),
        };
        (name.path.len() + bytes) as u64 + ENTRY_BYTES
    }
}

impl Posters {
    /// Starts the threads that make them, if there is a decoder.
    pub(crate) fn start(
        source: &ThumbnailSource,
        cache: &PlanStore,
        bytes_max: u64,
        library: &Arc<Library>,
    ) -> Result<Posters, Error> {
        let has_decoder = matches!(source, ThumbnailSource::Decoder(_));
        let folder = cache.folder().filter(|_| has_decoder);
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(1024)
            .weight_capacity(MEMORY_BYTES_MAX)
            .build()
            .expect("both capacities are given");
        let (hashes, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let shared = Arc::new(Shared {
            library: library.clone(),
            source: source.clone(),
            works: OnceLock::new(),
            store: PictureStore::open(folder, bytes_max),
            kept: Cache::with_options(options, ByBytes, hashes, lifecycle),
            queue: Queue::default(),
            is_stopping: AtomicBool::new(false),
        });
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let makers = if processors > 4 { 2 } else { 1 };
        let mut posters = Posters { shared, threads: Vec::new() };
        for number in 0..if has_decoder { makers } else { 0 } {
            let shared = posters.shared.clone();
            let name = format!("poster-{number}");
            let spawned =
                std::thread::Builder::new().name(name.clone()).spawn(move || shared.work());
            posters.threads.push(spawned.map_err(|source| Error::Host {
                call: "clone",
                object: format!("thread {name}"),
                source,
            })?);
        }
        Ok(posters)
    }

    /// Checks that pictures can be made at all, without a look at a file.
    ///
    /// # Errors
    /// [`NoAsset::Refused`] with the reason.
    pub(crate) fn available(&self) -> Result<(), NoAsset> {
        match &self.shared.source {
            ThumbnailSource::None(reason) => Err(NoAsset::Refused(reason.clone())),
            ThumbnailSource::Decoder(_) => Ok(()),
        }
    }

    /// Returns pictures of an asset, for a client of this address.
    ///
    /// # Errors
    /// [`NoAsset::Refused`] where there are none, with the reason; [`NoAsset::Busy`] where too many
    /// others are made, or these take long.
    pub(crate) async fn get(
        &self,
        asset: &LibraryAsset,
        kind: PictureKind,
        peer: IpAddr,
    ) -> Outcome {
        let shared = &self.shared;
        self.available()?;
        if asset.continues() {
            return Err(NoAsset::Refused(CONTINUES.to_owned()));
        }
        let name = PictureName::new(asset.key(), kind);
        let refused = NoAsset::Refused;
        if let Some(verdict) = shared.kept.get(&name) {
            return verdict.map_err(refused);
        }
        let (looking, key, looked_for) = (shared.clone(), asset.key().clone(), name.clone());
        let stored = tokio::task::spawn_blocking(move || {
            let found = looking.store.find(&key, kind);
            found.inspect(|verdict| looking.kept.insert(looked_for, verdict.clone()))
        });
        if let Ok(Some(verdict)) = stored.await {
            return verdict.map_err(refused);
        }
        let Some(mut ticket) = shared.queue.ticket(name, asset, peer) else {
            return Err(NoAsset::BUSY);
        };
        match tokio::time::timeout(WAIT, ticket.outcome()).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(NoAsset::BUSY),
            Err(_) => {
                ticket.keep();
                Err(NoAsset::BUSY)
            }
        }
    }

    /// Ends the threads; a decoder that runs is killed.
    pub(crate) fn stop(self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.shared.queue.stop();
        for thread in self.threads {
            // A thread that panicked has logged it; stopping continues.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        be_nice(MAKER_NICE);
        while let Some((name, asset)) = self.queue.next() {
            let made = catch_unwind(AssertUnwindSafe(|| self.made(&name, &asset)));
            let panicked = || Err(NoAsset::Unreadable("making its pictures panicked".to_owned()));
            self.queue.end(&name, made.unwrap_or_else(|_| panicked()));
        }
    }

    fn made(&self, name: &PictureName, asset: &LibraryAsset) -> Outcome {
        // Made while this job waited for its turn, or by another server on the same cache.
        if let Some(verdict) = self.store.find(asset.key(), name.kind) {
            self.kept.insert(name.clone(), verdict.clone());
            return verdict.map_err(NoAsset::Refused);
        }
        let command = match &self.source {
            ThumbnailSource::Decoder(command) => command,
            ThumbnailSource::None(reason) => return Err(NoAsset::Refused(reason.clone())),
        };
        let decoder = Decoder { command, is_stopping: &self.is_stopping };
        // Otherwise a fault of the host would count as one of the file, and be remembered.
        if self.works.get().is_none() {
            decoder.check().map_err(|fault| {
                let program = command.program.display();
                tracing::warn!("{program} does not decode in its sandbox: {fault}");
                NoAsset::Refused(format!("{BROKEN}: {fault}"))
            })?;
            let _ = self.works.set(());
        }
        let file = self.library.open(asset.name(), asset.key())?;
        let verdict = match maker::make(name.kind, asset, &file, &decoder) {
            Ok(set) if set.pictures.is_empty() => Err("no key frame could be decoded".to_owned()),
            Ok(set) => Ok(Arc::new(set)),
            Err(DecodeFault::Stopping) => return Err(NoAsset::BUSY),
            Err(fault @ (DecodeFault::Start { .. } | DecodeFault::Read(_))) => {
                tracing::warn!("{}: no {:?}: {fault}", asset.name(), name.kind);
                return Err(NoAsset::Unreadable(fault.to_string()));
            }
            Err(fault) => {
                tracing::info!("{}: no {:?}: {fault}", asset.name(), name.kind);
                let is_of_host = matches!(fault, DecodeFault::TooLong(_) | DecodeFault::Killed(_));
                let verdict = Err(fault.to_string());
                if is_of_host {
                    // A busy host may be at fault: the file is tried again after the next start.
                    self.kept.insert(name.clone(), verdict.clone());
                    return verdict.map_err(NoAsset::Refused);
                }
                verdict
            }
        };
        self.store.keep(asset.key(), name.kind, &verdict);
        self.kept.insert(name.clone(), verdict.clone());
        verdict.map_err(NoAsset::Refused)
    }
}

/// Reason for files without an end.
const CONTINUES: &str = "the file is still written: it has pictures when it is whole";

/// Reason for all files where the host is at fault.
const BROKEN: &str = "the decoder does not work in its sandbox on this host";

/// Memory of kept pictures, and the overhead of an entry beside its bytes.
const MEMORY_BYTES_MAX: u64 = 32 << 20;
const ENTRY_BYTES: u64 = 200;
/// Longest wait of a client; then it is asked to retry.
const WAIT: Duration = Duration::from_secs(20);
/// Reading key frames yields to all other work, as decoding does.
const MAKER_NICE: i32 = 19;
