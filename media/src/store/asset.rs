// SPDX-License-Identifier: MIT OR Apache-2.0
//! The key of an open file, the random identity of a new plan, and the codecs that a plan names.
//!
//! Sources: RFC 3550 §5.1 (random SSRC, sequence and timestamp), RFC 6381 (names of codecs).

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::plan::{PacketPlan, PlanKey, RtpIdentity};

/// Identifies the content of an open file: with an equal key, the plan is still valid.
///
/// # Errors
/// `fstat` fails.
pub fn asset_key(path: &Path, file: &File) -> io::Result<PlanKey> {
    let metadata = file.metadata()?;
    Ok(PlanKey {
        path: path.as_os_str().as_bytes().to_vec(),
        bytes: metadata.len(),
        modified_ns: modified_ns(&metadata),
        inode: metadata.ino(),
    })
}

/// Time of last modification, nanoseconds since 1970.
pub fn modified_ns(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// Adds the codecs of the file's streams to its plan. Reads the start of the file, which a scan has
/// left in the page cache.
pub fn name_codecs(plan: &mut PacketPlan, file: &File) {
    let mut beginning = vec![0; CODECS_BYTES];
    let offset = plan.extents().first().map_or(0, |extent| extent.file_offset);
    // Streams after an unreadable byte have no named codec.
    let mut read = 0;
    while let Ok(count @ 1..) = file.read_at(&mut beginning[read..], offset + read as u64) {
        read += count;
    }
    plan.name_codecs(&beginning[..read]);
}

/// Draws SSRC, first timestamp and first sequence number at random (RFC 3550 §5.1).
pub fn random_identity() -> RtpIdentity {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the kernel has random bits once it runs");
    let [a, b, c, d, e, f, g, h, i, j] = random;
    RtpIdentity {
        ssrc: u32::from_be_bytes([a, b, c, d]),
        first_timestamp: u32::from_be_bytes([e, f, g, h]),
        first_sequence: u16::from_be_bytes([i, j]),
    }
}

/// Half a second of 8 Mb/s: by then each stream has begun.
const CODECS_BYTES: usize = 512 << 10;
