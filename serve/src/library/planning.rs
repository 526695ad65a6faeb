// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a plan: reads a file once, in large pieces, into the scanner.
//!
//! Costs one read of the file and two mebibytes of memory; the page cache is warm afterwards.
//!
//! Does not do: parsing ([`media::ts::Scanner`] does).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use media::plan::{Identity, Plan};
use media::ts::Scanner;
use rustix::fs::{Advice, fadvise};

use super::NoAsset;

/// Plans the first `bytes` of `file`; `done` counts the bytes read.
pub(super) fn plan(file: &File, bytes: u64, done: &AtomicU64) -> Result<Plan, NoAsset> {
    // Only a hint: the scan is right without it.
    let _ = fadvise(file, 0, None, Advice::Sequential);
    let mut scanner = Scanner::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let wanted = (bytes - offset).min(PIECE_BYTES as u64) as usize;
        let read = file
            .read_at(&mut piece[..wanted], offset)
            .map_err(|error| NoAsset::Unreadable(format!("byte {offset}: {error}")))?;
        if read == 0 {
            return Err(NoAsset::Changing);
        }
        scanner.feed(&piece[..read]);
        offset += read as u64;
        done.store(offset, Ordering::Relaxed);
        if scanner.is_refused() {
            break;
        }
    }
    scanner.finish(bytes, identity()).map_err(|refusal| NoAsset::Refused(refusal.to_string()))
}

/// Random, as RFC 3550 §5.1 asks for all three.
pub(crate) fn identity() -> Identity {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the kernel has random bits once it runs");
    let [a, b, c, d, e, f, g, h, i, j] = random;
    Identity {
        ssrc: u32::from_be_bytes([a, b, c, d]),
        first_timestamp: u32::from_be_bytes([e, f, g, h]),
        first_sequence: u16::from_be_bytes([i, j]),
    }
}

/// A mebibyte a read: larger was not measurably faster.
const PIECE_BYTES: usize = 1 << 20;
