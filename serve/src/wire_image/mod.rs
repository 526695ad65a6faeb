// SPDX-License-Identifier: MIT OR Apache-2.0
//! An asset laid out as it is sent, an RTP header before each payload, so that a segment run is one
//! contiguous file range and `sendfile` sends it with no copy.
//!
//! An asset may have two: of packets for datagrams, and of packets in frames for RTSP connections
//! ([`ImageLayout`]). Each is made on the first play that can use it, by one thread, while the play
//! is sent from the file. It lies in the cache folder under a size limit: the least recently used
//! images are evicted first, one in use never (it is locked, also against other servers on the same
//! cache), and the disk keeps [`FREE_BYTES_MIN`] free. Costs the asset's size plus 0.9 % on disk
//! (1.2 % with frames), and one read and one write of it.
//!
//! Behind the packets are a checksum of every block ([`crate::wire_image::checksums`]) and the
//! trailer. Blocks are compared before they are first sent, and again after they were out of
//! memory. An image with a bad block is removed, and its sessions continue from the file.
//!
//! Sources: ARCHITECTURE.md, "The words": wire image; flock(2), statvfs(3).
//! Does not trust an image whose trailer names another file or plan.

pub(crate) mod checksums;
mod image;
mod layout;

pub(crate) use image::WireImage;
pub(crate) use layout::ImageLayout;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use media::PlanStore;
use media::plan::PacketPlan;
use media::store::{UnfinishedFile, asset_key, file_name, open_regular, remove_unfinished};
use paths::MappedFile;
use rustix::fs::FlockOperation;

use crate::error::Error;
use crate::library::asset::{Asset, Source};
use crate::library::served_folder::{Denied, Folder};
use crate::wire_image::checksums::{BlockSums, Blocks, sums_bytes};

/// The store of images and the thread that makes them.
pub(crate) struct WireImages {
    store: Arc<Store>,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

struct Store {
    folder: Option<PathBuf>,
    served: Arc<Folder>,
    bytes_max: u64,
    stopping: AtomicBool,
    drops: Arc<AtomicU64>,
    /// Number of damaged and outdated images.
    invalid: Arc<AtomicU64>,
}

struct Job {
    asset: Arc<Asset>,
    layout: ImageLayout,
    source: Weak<Source>,
}

impl Job {
    /// Allows a later play to request the image again.
    fn ask_again(&self) {
        if let Some(source) = self.source.upgrade() {
            source.let_ask_image(self.layout);
        }
    }
}

impl WireImages {
    pub(crate) fn start(
        cache: &PlanStore,
        served: Arc<Folder>,
        bytes_max: u64,
        (drops, invalid): (Arc<AtomicU64>, Arc<AtomicU64>),
    ) -> Result<WireImages, Error> {
        let folder = cache.images().filter(|_| bytes_max > 0);
        let stopping = AtomicBool::new(false);
        let store = Arc::new(Store { folder, served, bytes_max, stopping, drops, invalid });
        let (jobs, inbox) = channel();
        let worker = store.clone();
        let thread = std::thread::Builder::new()
            .name("imager".to_owned())
            .spawn(move || worker.work(&inbox))
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread imager".to_owned(),
                source,
            })?;
        Ok(WireImages { store, jobs, thread })
    }

    /// Gives `source` its image of that layout: at once if the store has it, otherwise when it is
    /// made. Blocks on the disk for one open and one read.
    pub(crate) fn provide(&self, source: &Arc<Source>, layout: ImageLayout) {
        if self.store.folder.is_none() || !source.ask_image(layout) {
            return;
        }
        if let Some(image) = self.store.find(&source.asset, layout) {
            source.set_image(layout, image);
            return;
        }
        let job = Job { asset: source.asset.clone(), layout, source: Arc::downgrade(source) };
        // The thread has ended only while the server stops.
        let _ = self.jobs.send(job);
    }

    pub(crate) fn stop(self) {
        self.store.stopping.store(true, Ordering::Relaxed);
        drop(self.jobs);
        // A thread that panicked has logged it; stopping continues.
        let _ = self.thread.join();
    }
}

impl Store {
    fn work(&self, inbox: &Receiver<Job>) {
        // Assets without an image, with the time of the next attempt.
        let mut resting: HashMap<(String, ImageLayout), Instant> = HashMap::new();
        while let Ok(job) = inbox.recv() {
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            let (name, layout) = (&job.asset.name, job.layout);
            let image_name = layout.name();
            resting.retain(|_, again_at| *again_at > Instant::now());
            let key = (name.clone(), layout);
            if resting.contains_key(&key) {
                job.ask_again();
                continue;
            }
            let found = self.find(&job.asset, layout);
            let image = found.map_or_else(|| self.make(&job.asset, layout), Ok);
            match (image, job.source.upgrade()) {
                (Ok(image), Some(source)) => {
                    source.set_image(layout, image);
                    tracing::info!("{name}: {image_name} ready");
                }
                (Ok(_), None) => tracing::info!("{name}: {image_name} ready for the next play"),
                (Err(reason), _) => {
                    tracing::warn!("{name}: no {image_name}: {reason}; it is sent from the file");
                    resting.insert(key, Instant::now() + AGAIN);
                    job.ask_again();
                }
            }
        }
    }

    fn path(&self, asset: &Asset, layout: ImageLayout) -> Option<PathBuf> {
        let name = format!("{}{}", file_name(&asset.key.path), layout.suffix());
        Some(self.folder.as_ref()?.join(name))
    }

    /// Returns the image for exactly this file and plan, locked and marked as just used.
    fn find(&self, asset: &Asset, layout: ImageLayout) -> Option<WireImage> {
        let path = self.path(asset, layout)?;
        let file = open_regular(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
        let Some(blocks) = blocks_of(&file, asset, layout) else {
            self.invalid.fetch_add(1, Ordering::Relaxed);
            tracing::info!("wire image {}: of another file or damaged; made again", path.display());
            return None;
        };
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!("wire image {}: {error}; it may be evicted early", path.display());
        }
        let media = MappedFile::open(file, path.to_string_lossy()).ok()?;
        Some(WireImage::new(media, blocks, path, self.drops.clone()))
    }

    fn make(&self, asset: &Asset, layout: ImageLayout) -> Result<WireImage, ImageFault> {
        let path = self.path(asset, layout).ok_or(ImageFault::NoCache)?;
        let folder = self.folder.as_deref().expect("a path was made from it");
        let bytes = image_bytes(&asset.plan, layout);
        self.make_room(folder, bytes)?;
        let (source, _) = self.served.file(&asset.name).map_err(ImageFault::Source)?;
        let unchanged = || {
            asset_key(Path::new(std::ffi::OsStr::new("")), &source).is_ok_and(|found| {
                found.bytes == asset.key.bytes
                    && found.modified_ns == asset.key.modified_ns
                    && found.inode == asset.key.inode
            })
        };
        let written = || -> io::Result<UnfinishedFile> {
            let mut pending = UnfinishedFile::create(&path)?;
            let sums = self.lay_out((&asset.plan, layout), &source, &mut pending.file)?;
            pending.file.write_all(&sums)?;
            pending.file.write_all(&trailer(asset, layout, &sums))?;
            Ok(pending)
        };
        let mut pending = written().map_err(ImageFault::io(&path))?;
        if !unchanged() {
            return Err(ImageFault::Changed);
        }
        pending.keep().map_err(ImageFault::io(&path))?;
        self.find(asset, layout).ok_or(ImageFault::NotAsWritten(path))
    }

    /// Writes header and payload of every packet; returns the checksums of the blocks.
    fn lay_out(
        &self,
        (plan, layout): (&PacketPlan, ImageLayout),
        source: &File,
        target: &mut File,
    ) -> io::Result<Vec<u8>> {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut sums = BlockSums::default();
        let mut unsynced = 0;
        let mut packet = 0;
        while packet < plan.packets() {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(io::Error::other("the server stops"));
            }
            let count = plan.segment_run(packet, CHUNK_PACKETS);
            let first = plan.payload(packet).file_offset;
            let last = plan.payload(packet + count - 1);
            let stride = plan.stride();
            // The last packet's trailing gap (192-byte packets) may lie past the end of the file.
            let end = last.file_offset + (last.ts_packets - 1) * stride + TS_BYTES;
            input.resize((end - first) as usize, 0);
            source.read_exact_at(&mut input, first)?;
            output.clear();
            for packet in packet..packet + count {
                layout.write_head(plan, packet, &mut output);
                let payload = plan.payload(packet);
                for index in 0..payload.ts_packets {
                    let at = (payload.file_offset - first + index * stride) as usize;
                    output.extend_from_slice(&input[at..at + media::TS_PACKET_BYTES]);
                }
            }
            target.write_all(&output)?;
            sums.add(&output);
            unsynced += output.len();
            if unsynced > UNSYNCED_BYTES_MAX {
                target.sync_data()?;
                unsynced = 0;
            }
            packet += count;
        }
        Ok(sums.finish())
    }

    /// Evicts images until `bytes` fit under the limit and leave the disk its reserve.
    fn make_room(&self, folder: &Path, bytes: u64) -> Result<(), ImageFault> {
        if bytes > self.bytes_max {
            return Err(ImageFault::OverLimit { bytes, bytes_max: self.bytes_max });
        }
        let mut images = listed(folder).map_err(ImageFault::io(folder))?;
        images.sort_by_key(|image| image.used);
        // Unfinished images of other servers on the same cache count, too.
        let unfinished = remove_unfinished(folder).bytes;
        let mut held: u64 = images.iter().map(|image| image.bytes).sum::<u64>() + unfinished;
        let mut oldest = images.into_iter();
        loop {
            let free = free_bytes(folder).map_err(ImageFault::io(folder))?;
            if held + bytes <= self.bytes_max && free >= bytes.saturating_add(FREE_BYTES_MIN) {
                return Ok(());
            }
            let Some(image) = oldest.next() else {
                return Err(ImageFault::DoesNotFit { bytes, held, free });
            };
            if evicted(&image.path) {
                held -= image.bytes;
            }
        }
    }
}

/// The reason why an asset has no wire image; its sessions are sent from the file.
#[derive(Debug, thiserror::Error)]
enum ImageFault {
    #[error("there is no cache folder")]
    NoCache,
    #[error("{0}")]
    Source(Denied),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the file changed meanwhile")]
    Changed,
    #[error("{}: not as written", .0.display())]
    NotAsWritten(PathBuf),
    #[error("{bytes} bytes; the limit on wire images is {bytes_max} bytes")]
    OverLimit { bytes: u64, bytes_max: u64 },
    #[error(
        "{bytes} bytes do not fit: {held} bytes of images are in use, {free} bytes are free on the \
         disk and {FREE_BYTES_MIN} stay free"
    )]
    DoesNotFit { bytes: u64, held: u64, free: u64 },
}

impl ImageFault {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> ImageFault {
        let path = path.to_owned();
        move |source| ImageFault::Io { path, source }
    }
}

struct Listed {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

fn listed(folder: &Path) -> io::Result<Vec<Listed>> {
    let mut images = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Evicted by another server on the same cache since the listing.
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.path().extension().is_some_and(|extension| extension == "wire") {
            let used = metadata.modified()?;
            images.push(Listed { path: entry.path(), bytes: metadata.len(), used });
        }
    }
    Ok(images)
}

/// Removes an image that no process has locked; returns true if it did.
fn evicted(path: &Path) -> bool {
    let Ok(file) = open_regular(path) else { return false };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    tracing::info!("wire image {}: evicted", path.display());
    std::fs::remove_file(path).is_ok()
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns the trailer, which names file and plan: written last, so it exists only in whole images.
fn trailer(asset: &Asset, layout: ImageLayout, sums: &[u8]) -> [u8; TRAILER_BYTES] {
    let (key, identity) = (&asset.key, asset.plan.identity());
    let mut bytes = Vec::with_capacity(TRAILER_BYTES);
    bytes.extend_from_slice(layout.magic());
    bytes.extend_from_slice(&key.bytes.to_le_bytes());
    bytes.extend_from_slice(&key.modified_ns.to_le_bytes());
    bytes.extend_from_slice(&key.inode.to_le_bytes());
    bytes.extend_from_slice(&layout.packets_bytes(&asset.plan).to_le_bytes());
    bytes.extend_from_slice(&identity.ssrc.to_le_bytes());
    bytes.extend_from_slice(&identity.first_timestamp.to_le_bytes());
    bytes.extend_from_slice(&u64::from(identity.first_sequence).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(sums).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes.try_into().expect("the fields add up")
}

/// Returns the image's blocks with their checksums, if length and trailer match this asset.
fn blocks_of(file: &File, asset: &Asset, layout: ImageLayout) -> Option<Blocks> {
    let wire_bytes = layout.packets_bytes(&asset.plan);
    if file.metadata().ok()?.len() != image_bytes(&asset.plan, layout) {
        return None;
    }
    let mut sums = vec![0; sums_bytes(wire_bytes) as usize];
    file.read_exact_at(&mut sums, wire_bytes).ok()?;
    let mut found = [0; TRAILER_BYTES];
    file.read_exact_at(&mut found, wire_bytes + sums.len() as u64).ok()?;
    (found == trailer(asset, layout, &sums)).then(|| Blocks::new(wire_bytes, &sums))
}

/// Returns the bytes of packets, checksums and trailer.
fn image_bytes(plan: &PacketPlan, layout: ImageLayout) -> u64 {
    let wire_bytes = layout.packets_bytes(plan);
    wire_bytes + sums_bytes(wire_bytes) + TRAILER_BYTES as u64
}

const TRAILER_BYTES: usize = 72;
const TS_BYTES: u64 = media::TS_PACKET_BYTES as u64;
/// Packets per write: 700 × 1328 bytes is just under a mebibyte.
const CHUNK_PACKETS: u64 = 700;
/// Most bytes between two syncs, so that written pages do not pile up before the reads of streams.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;
/// Pause after a failed attempt: each attempt may evict other images and writes a line to the log.
const AGAIN: Duration = Duration::from_secs(10);
/// Disk space left free by images: 1 GiB.
const FREE_BYTES_MIN: u64 = 1 << 30;
