// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire images: an asset laid out as it goes on the wire, RTP header before each payload, so that a
//! run of packets is one contiguous file range and `sendfile` sends it with no copy.
//!
//! An image is made on the first play, by one thread, while the play goes on from the file. It
//! lives in the cache folder under a size limit: the least recently used go first, one in use never
//! goes (it is locked, also against other servers on the same cache), and the disk keeps
//! [`FREE_BYTES_MIN`] free. Costs the asset's size plus 0.9 % on disk, and one read and one write
//! of it.
//!
//! Sources: DESIGN "wire image"; flock(2), statvfs(3).
//! Does not do: trust an image whose trailer does not name the file and the plan in hand.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::SystemTime;

use media::plan::Plan;
use paths::Media;
use rustix::fs::FlockOperation;

use crate::access::Folder;
use crate::asset::{Asset, Source, key};
use crate::cache::{Cache, Pending, hash, sweep};
use crate::error::Error;

/// An open wire image. Its lock goes with its descriptor.
pub(crate) struct Image {
    pub(crate) media: Media,
}

/// The store of images and the thread that makes them.
pub(crate) struct Images {
    store: Arc<Store>,
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

struct Store {
    folder: Option<PathBuf>,
    served: Arc<Folder>,
    bytes_max: u64,
    stopping: AtomicBool,
}

struct Job {
    asset: Arc<Asset>,
    source: Weak<Source>,
}

impl Images {
    pub(crate) fn start(
        cache: &Cache,
        served: Arc<Folder>,
        bytes_max: u64,
    ) -> Result<Images, Error> {
        let folder = cache.images().filter(|_| bytes_max > 0);
        if let Some(folder) = &folder {
            sweep(folder);
        }
        let stopping = AtomicBool::new(false);
        let store = Arc::new(Store { folder, served, bytes_max, stopping });
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
        Ok(Images { store, jobs, thread })
    }

    /// Gives `source` its image: at once if the store has it, else when it is made. Blocks on the
    /// disk for one open and one read.
    pub(crate) fn provide(&self, source: &Arc<Source>) {
        if self.store.folder.is_none() || !source.ask_image() {
            return;
        }
        if let Some(image) = self.store.find(&source.asset) {
            let _ = source.image.set(image);
            return;
        }
        let job = Job { asset: source.asset.clone(), source: Arc::downgrade(source) };
        // The thread is gone only while the server stops.
        let _ = self.jobs.send(job);
    }

    pub(crate) fn stop(self) {
        self.store.stopping.store(true, Ordering::Relaxed);
        drop(self.jobs);
        // A thread that panicked has said so; stopping goes on.
        let _ = self.thread.join();
    }
}

impl Store {
    fn work(&self, inbox: &Receiver<Job>) {
        while let Ok(job) = inbox.recv() {
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            let name = &job.asset.name;
            let image = self.find(&job.asset).map_or_else(|| self.make(&job.asset), Ok);
            match (image, job.source.upgrade()) {
                (Ok(image), Some(source)) => {
                    let _ = source.image.set(image);
                    tracing::info!("{name}: wire image ready");
                }
                (Ok(_), None) => tracing::info!("{name}: wire image ready for the next play"),
                (Err(reason), source) => {
                    tracing::warn!("{name}: no wire image: {reason}; it is sent from the file");
                    // A later play may find room.
                    if let Some(source) = source {
                        source.image_asked.store(false, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn path(&self, asset: &Asset) -> Option<PathBuf> {
        let name = format!("{:016x}.wire", hash(&asset.key.path));
        Some(self.folder.as_ref()?.join(name))
    }

    /// The image, locked and marked as just used, if there is one for exactly this file and plan.
    fn find(&self, asset: &Asset) -> Option<Image> {
        let path = self.path(asset)?;
        let file = File::open(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
        if !is_whole(&file, asset) {
            tracing::info!("wire image {}: of another file or damaged; made again", path.display());
            return None;
        }
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!("wire image {}: {error}; it may be evicted early", path.display());
        }
        Some(Image { media: Media::open(file, path.to_string_lossy()).ok()? })
    }

    fn make(&self, asset: &Asset) -> Result<Image, String> {
        let path = self.path(asset).ok_or("there is no cache folder")?;
        let folder = self.folder.as_deref().expect("a path was made from it");
        let bytes = asset.plan.wire_bytes() + TRAILER_BYTES as u64;
        self.make_room(folder, bytes)?;
        let (source, _) = self.served.file(&asset.name).map_err(|denied| denied.to_string())?;
        let unchanged = || {
            key(Path::new(std::ffi::OsStr::new("")), &source).is_ok_and(|found| {
                found.bytes == asset.key.bytes
                    && found.modified_ns == asset.key.modified_ns
                    && found.inode == asset.key.inode
            })
        };
        let written = || -> io::Result<Pending> {
            let mut pending = Pending::create(&path)?;
            self.lay_out(&asset.plan, &source, &mut pending.file)?;
            pending.file.write_all(&trailer(asset))?;
            Ok(pending)
        };
        let mut pending = written().map_err(|error| format!("{}: {error}", path.display()))?;
        if !unchanged() {
            return Err("the file changed meanwhile".to_owned());
        }
        pending.keep().map_err(|error| format!("{}: {error}", path.display()))?;
        self.find(asset).ok_or_else(|| format!("{}: not as written", path.display()))
    }

    /// Writes header and payload of every packet.
    fn lay_out(&self, plan: &Plan, source: &File, target: &mut File) -> io::Result<()> {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut unsynced = 0;
        let mut packet = 0;
        while packet < plan.packets() {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(io::Error::other("the server stops"));
            }
            let count = plan.run(packet, CHUNK_PACKETS);
            let first = plan.payload(packet).file_offset;
            let last = plan.payload(packet + count - 1);
            let stride = plan.stride();
            // The last packet's trailing gap (192-byte packets) may lie past the end of the file.
            let end = last.file_offset + (last.ts_packets - 1) * stride + TS_BYTES;
            input.resize((end - first) as usize, 0);
            source.read_exact_at(&mut input, first)?;
            output.clear();
            for packet in packet..packet + count {
                output.extend_from_slice(&plan.header(packet));
                let payload = plan.payload(packet);
                for index in 0..payload.ts_packets {
                    let at = (payload.file_offset - first + index * stride) as usize;
                    output.extend_from_slice(&input[at..at + media::TS_PACKET_BYTES]);
                }
            }
            target.write_all(&output)?;
            unsynced += output.len();
            if unsynced > UNSYNCED_BYTES_MAX {
                target.sync_data()?;
                unsynced = 0;
            }
            packet += count;
        }
        Ok(())
    }

    /// Evicts images until `bytes` fit under the limit and leave the disk its reserve.
    fn make_room(&self, folder: &Path, bytes: u64) -> Result<(), String> {
        if bytes > self.bytes_max {
            return Err(format!("{bytes} bytes; --cache-size is {}", self.bytes_max));
        }
        let mut images = listed(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        images.sort_by_key(|image| image.used);
        let mut held: u64 = images.iter().map(|image| image.bytes).sum();
        let mut oldest = images.into_iter();
        loop {
            let free = free_bytes(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            if held + bytes <= self.bytes_max && free >= bytes.saturating_add(FREE_BYTES_MIN) {
                return Ok(());
            }
            let Some(image) = oldest.next() else {
                return Err(format!(
                    "{bytes} bytes do not fit: {held} bytes of images are in use, {free} bytes are \
                     free on the disk and {FREE_BYTES_MIN} stay free"
                ));
            };
            if evicted(&image.path) {
                held -= image.bytes;
            }
        }
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
        // Gone between the listing and here: another server on the same cache evicted it.
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.path().extension().is_some_and(|extension| extension == "wire") {
            let used = metadata.modified()?;
            images.push(Listed { path: entry.path(), bytes: metadata.len(), used });
        }
    }
    Ok(images)
}

/// Removes an image nobody holds.
fn evicted(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
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

/// What the image was made from, at its very end: there last, so there only if all else is.
fn trailer(asset: &Asset) -> [u8; TRAILER_BYTES] {
    let (key, identity) = (&asset.key, asset.plan.identity());
    let mut bytes = Vec::with_capacity(TRAILER_BYTES);
    bytes.extend_from_slice(b"pwimage1");
    bytes.extend_from_slice(&key.bytes.to_le_bytes());
    bytes.extend_from_slice(&key.modified_ns.to_le_bytes());
    bytes.extend_from_slice(&key.inode.to_le_bytes());
    bytes.extend_from_slice(&asset.plan.wire_bytes().to_le_bytes());
    bytes.extend_from_slice(&identity.ssrc.to_le_bytes());
    bytes.extend_from_slice(&identity.first_timestamp.to_le_bytes());
    bytes.extend_from_slice(&u64::from(identity.first_sequence).to_le_bytes());
    bytes.try_into().expect("the fields add up")
}

/// True if length, trailer and the headers of a few packets are those of this asset.
fn is_whole(file: &File, asset: &Asset) -> bool {
    let plan = &asset.plan;
    let wire_bytes = plan.wire_bytes();
    let mut found = [0; TRAILER_BYTES];
    let length_fits = file.metadata().is_ok_and(|m| m.len() == wire_bytes + TRAILER_BYTES as u64);
    if !length_fits || file.read_exact_at(&mut found, wire_bytes).is_err() {
        return false;
    }
    let header_fits = |packet| {
        let mut header = [0; 12];
        file.read_exact_at(&mut header, plan.wire_offset(packet)).is_ok()
            && header == plan.header(packet)
    };
    let last = plan.packets() - 1;
    found == trailer(asset) && [0, last / 2, last].into_iter().all(header_fits)
}

const TRAILER_BYTES: usize = 64;
const TS_BYTES: u64 = media::TS_PACKET_BYTES as u64;
/// 700 × 1328 bytes: just under a mebibyte a write.
const CHUNK_PACKETS: u64 = 700;
/// Written pages are pushed out at this pace, so that they do not pile up before the reads of
/// streams.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;
/// What the disk keeps free of images: 1 GiB.
const FREE_BYTES_MIN: u64 = 1 << 30;
