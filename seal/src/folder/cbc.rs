// SPDX-License-Identifier: MIT OR Apache-2.0
//! AES-CBC over the files of a folder: an IV, then the ciphertext with PKCS#7 padding.
//!
//! The IV is random and in front, or one IV is given for all files and a file is as
//! `openssl enc -aes-N-cbc -K -iv` writes it. A changed file is not detected: new users should
//! use `gcm`.
//!
//! Reads, hashes and writes stay aligned to slices although 16 bytes are in front: the last block
//! of a slice waits for the next write, so no page of the target is written twice.
//!
//! A random IV is BLAKE3 of a counter under a key of the run: unpredictable, as CBC requires,
//! without a system call for each file.
//!
//! Sources: NIST SP 800-38A §6.2, appendix C (IVs); RFC 5652 §6.3 (padding).
//! Does not authenticate.

use std::sync::atomic::{AtomicU64, Ordering};

use simd::cbc::{AesKey, BLOCK_BYTES};
use zeroize::Zeroizing;

use super::Sealing;
use super::file_transfer::{Job, Read, Transfer, finish_all};
use crate::engine::{self, Filled, SLICE_BYTES, SealOutcome, Work, WorkStream};
use crate::error::Error;
use crate::key;

/// Returns the bytes of a sealed file. `has_front`: its IV is in front of it.
pub(super) fn sealed_bytes(source_bytes: u64, has_front: bool) -> u64 {
    let front = if has_front { BLOCK_BYTES as u64 } else { 0 };
    (source_bytes / BLOCK_BYTES as u64 + 1) * BLOCK_BYTES as u64 + front
}

/// Seals all files.
pub(super) fn seal(sealing: Sealing<'_>) -> Result<SealOutcome, Error> {
    let Sealing { jobs, secret, iv, settings, seen } = sealing;
    let key = AesKey::new(secret.bytes()).expect("a length that the form was chosen for");
    let ivs = Ivs::new(iv)?;
    let works = jobs.into_iter().map(|job| Cbc { job, key: &key, ivs: &ivs }).collect();
    Ok(engine::run(works, settings, seen))
}

/// IVs of a run.
enum Ivs {
    /// One IV for all files.
    Given([u8; BLOCK_BYTES]),
    /// One IV for each file, in front of it.
    Random { key: Zeroizing<[u8; 32]>, next: AtomicU64 },
}

impl Ivs {
    fn new(given: Option<[u8; BLOCK_BYTES]>) -> Result<Self, Error> {
        if let Some(iv) = given {
            return Ok(Ivs::Given(iv));
        }
        let mut key = Zeroizing::new([0; 32]);
        key::random(key.as_mut())?;
        Ok(Ivs::Random { key, next: AtomicU64::new(0) })
    }

    /// Returns the next file's IV, and true when it goes in front.
    fn next(&self) -> ([u8; BLOCK_BYTES], bool) {
        match self {
            Ivs::Given(iv) => (*iv, false),
            Ivs::Random { key, next } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let hash = blake3::keyed_hash(key, &number.to_le_bytes());
                (*hash.as_bytes().first_chunk().expect("32 bytes"), true)
            }
        }
    }
}

struct Cbc<'a> {
    job: Job<'a>,
    key: &'a AesKey,
    ivs: &'a Ivs,
}

impl<'a> Work for Cbc<'a> {
    type Stream = Ciphering<'a>;

    fn bytes(&self) -> u64 {
        self.job.file.bytes
    }

    fn open(self) -> Result<Ciphering<'a>, Error> {
        let (iv, has_front) = self.ivs.next();
        let transfer = self.job.open()?;
        Ok(Ciphering { transfer, key: self.key, iv, carried: has_front.then_some(iv) })
    }
}

struct Ciphering<'a> {
    transfer: Transfer<'a>,
    key: &'a AesKey,
    iv: [u8; BLOCK_BYTES],
    /// When the IV is in front: the block before this slice, which is written with it.
    carried: Option<[u8; BLOCK_BYTES]>,
}

impl WorkStream for Ciphering<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let front = self.carried.map_or(0, |block| block.len());
        if let Some(block) = &self.carried {
            buffer[..front].copy_from_slice(block);
        }
        let room = (buffer.len() - 2 * BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        let slice = &mut buffer[front..][..room.min(SLICE_BYTES)];
        let Read::Bytes(source_bytes) = self.transfer.read(slice)? else {
            return Ok(Filled::default());
        };
        let mut end = front + source_bytes;
        let is_last = self.transfer.left_bytes() == 0;
        if is_last {
            let padding = BLOCK_BYTES - source_bytes % BLOCK_BYTES;
            buffer[end..][..padding].fill(padding as u8);
            end += padding;
        }
        let source_bytes = source_bytes as u64;
        Ok(Filled { bytes: end, cipher: front..end, source_bytes, is_last })
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; BLOCK_BYTES]) {
        (self.key, &mut self.iv)
    }

    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match bytes.split_last_chunk() {
            Some((before, last)) if self.carried.is_some() && self.transfer.left_bytes() > 0 => {
                self.carried = Some(*last);
                self.transfer.write(before)
            }
            _ => self.transfer.write(bytes),
        }
    }

    fn finish(self) -> Result<(), Error> {
        let mut outcome = Ok(());
        Self::finish_all(&mut vec![self], &mut |result| outcome = result);
        outcome
    }

    fn finish_all(ended: &mut Vec<Self>, on_result: &mut dyn FnMut(Result<(), Error>)) {
        finish_all(ended, |stream| stream.transfer, on_result);
    }
}
