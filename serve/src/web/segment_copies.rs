// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments whose bytes do not lie in the file, made once and kept.
//!
//! The samples of a transport stream lie in packets, and have to be extracted for a segment; sound
//! that lies between pictures is many small ranges, each of which would cost a call. The segment is
//! written to a file without a name, on the disk of the cache folder or in memory, and is then sent
//! as files are: one copy serves all viewers, without copying again. All together occupy
//! [`BYTES_MAX`]; the least used are evicted first. Viewers get turns at the makers by their
//! addresses ([`super::fair_turns`]).
//!
//! Costs, once for a segment: a read of its part of the file, and three copies of its bytes.
//!
//! Does not make bytes ([`super::web_asset`]).

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use super::fair_turns::FairTurns;
use super::weighted_cache::weighted_cache;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::nameless_file::nameless_file;

/// Bytes of all kept segments, and their expected number.
const BYTES_MAX: u64 = 256 << 20;
const SEGMENTS_EXPECTED: usize = 256;

/// Least weight of a segment: each has a descriptor, 512 at most together.
const WEIGHT_MIN: u64 = 512 << 10;

/// Bytes of all segments in use, counted in permits of [`PERMIT_BYTES`].
const LIVING_BYTES_MAX: u64 = 1 << 30;
const PERMIT_BYTES: u64 = 64 << 10;

/// Segments that are made at a time: each is in memory twice while it is.
const MAKERS: usize = 2;

/// Segments that were made, by their address below the server.
pub(crate) struct SegmentCopies {
    kept: Cache<String, Arc<OpenFile>, ByBytes>,
    turns: FairTurns,
    living: Arc<Semaphore>,
    folder: Option<PathBuf>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<String, Arc<OpenFile>> for ByBytes {
    fn weight(&self, _: &String, file: &Arc<OpenFile>) -> u64 {
        file.entity().bytes.max(WEIGHT_MIN)
    }
}

/// Bytes of a segment, in pieces.
pub(super) type Pieces = Vec<Vec<u8>>;

impl SegmentCopies {
    pub(super) fn new(folder: Option<PathBuf>) -> SegmentCopies {
        SegmentCopies {
            kept: weighted_cache(SEGMENTS_EXPECTED, BYTES_MAX, ByBytes),
            turns: FairTurns::new(MAKERS),
            living: Arc::new(Semaphore::new((LIVING_BYTES_MAX / PERMIT_BYTES) as usize)),
            folder,
        }
    }

    /// Returns the segment of this address, of about `bytes` bytes, which `peer` requests; `make`
    /// returns the bytes, and may read and wait.
    pub(super) async fn get(
        &self,
        (address, bytes): (String, u64),
        peer: IpAddr,
        make: impl FnOnce() -> io::Result<Pieces> + Send + 'static,
    ) -> Result<Arc<OpenFile>, NoAsset> {
        if let Some(kept) = self.kept.get(&address) {
            return Ok(kept);
        }
        let claim = self.turns.claim(peer, &address);
        let made = self.kept.get_or_insert_async(&address, async {
            let turn = claim.turn().await;
            let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
            let living = self.living.clone().try_acquire_many_owned(permits.max(1));
            let Ok(living) = living else { return Err(NoAsset::BUSY) };
            let (folder, name) = (self.folder.clone(), address.clone());
            let made = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                written(&name, &make()?, folder.as_deref()).map(|file| file.holding(living))
            });
            let made = made.await.map_err(|panic| NoAsset::Unreadable(panic.to_string()))?;
            made.map(Arc::new).map_err(|error| match error.kind() {
                // The file was read, and its media cannot be a segment.
                io::ErrorKind::InvalidData => NoAsset::Refused(error.to_string()),
                // The file is examined anew when the segment is requested again.
                io::ErrorKind::ResourceBusy => NoAsset::CHANGING,
                _ => NoAsset::Unreadable(error.to_string()),
            })
        });
        made.await
    }
}

/// Writes a segment; to memory where the disk refuses it.
fn written(name: &str, pieces: &Pieces, folder: Option<&Path>) -> io::Result<OpenFile> {
    let write = |folder: Option<&Path>| {
        let mut file = nameless_file("segment", folder)?;
        pieces.iter().try_for_each(|piece| file.write_all(piece))?;
        OpenFile::made(name, file)
    };
    match folder.map(|folder| write(Some(folder))) {
        Some(Ok(file)) => Ok(file),
        Some(Err(error)) => {
            tracing::debug!("{name}: kept in memory: {error}");
            write(None)
        }
        None => write(None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::http::open_files::FileContent;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn bytes_of(file: &OpenFile) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let FileContent::Open(media) = &file.content else { panic!("it has a descriptor") };
        let mut bytes = vec![0; media.bytes() as usize];
        media.file().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_segment_is_made_once_for_all_that_ask() {
        for folder in [None, Some(std::env::temp_dir()), Some("/proc/no such folder".into())] {
            let (copies, makings) = (SegmentCopies::new(folder), Arc::new(AtomicUsize::new(0)));
            let ask = || {
                let makings = makings.clone();
                copies.get(("a".into(), 9), PEER, move || {
                    makings.fetch_add(1, Ordering::Relaxed);
                    Ok(vec![b"head".to_vec(), b"media".to_vec()])
                })
            };
            let (first, second) = tokio::join!(ask(), ask());
            assert_eq!(bytes_of(&first.unwrap()), b"headmedia");
            assert_eq!(bytes_of(&second.unwrap()), b"headmedia");
            assert_eq!(makings.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn a_segment_that_could_not_be_made_is_made_when_it_is_asked_for_again() {
        let copies = SegmentCopies::new(None);
        let fails = || Err(io::Error::other("the disk"));
        assert!(matches!(
            copies.get(("a".into(), 1), PEER, fails).await,
            Err(NoAsset::Unreadable(_))
        ));
        let fails = || Err(io::Error::from(io::ErrorKind::ResourceBusy));
        let answer = copies.get(("a".into(), 1), PEER, fails).await;
        assert!(matches!(answer, Err(NoAsset::Changing { .. })));
        let fails = || Err(io::Error::new(io::ErrorKind::InvalidData, "the media"));
        assert!(matches!(copies.get(("a".into(), 1), PEER, fails).await, Err(NoAsset::Refused(_))));
        let made = copies.get(("a".into(), 1), PEER, || Ok(vec![vec![7]])).await.unwrap();
        assert_eq!(bytes_of(&made), [7]);
    }

    #[tokio::test]
    async fn what_is_kept_and_what_lives_is_bounded() {
        let copies = SegmentCopies::new(None);
        let make = |number: usize, bytes: u64| {
            copies.get((number.to_string(), bytes), PEER, move || Ok(vec![vec![number as u8]]))
        };
        for number in 0..600 {
            make(number, 1).await.unwrap();
        }
        assert!(copies.kept.len() <= 512, "{} descriptors", copies.kept.len());
        let mut sent = Vec::new();
        let refused = loop {
            match make(1000 + sent.len(), 64 << 20).await {
                Ok(segment) => sent.push(segment),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, NoAsset::Busy { .. }) && sent.len() <= 16, "{}", sent.len());
    }
}
