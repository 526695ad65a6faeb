// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test pattern: each word of eight bytes encodes its offset, so that a few words reveal a copy
//! from the wrong place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer::Buffer;
use crate::error::{Error, same};

pub(super) const WORD_BYTES: usize = 8;
/// Odd factor, so that no two offsets have the same word (Knuth, TAOCP 3 §6.4, multiplicative
/// hashing).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bytes of one write when a file is filled.
const STEP_BYTES: usize = 1 << 20;

/// Returns the word of this offset.
pub(super) fn word(offset: u64) -> u64 {
    offset.wrapping_mul(MULTIPLIER)
}

/// Fills a buffer of whole words with the pattern from `offset` on.
pub(super) fn fill(buffer: &mut [u8], offset: u64) {
    for (at, bytes) in (offset..).step_by(WORD_BYTES).zip(buffer.chunks_exact_mut(WORD_BYTES)) {
        bytes.copy_from_slice(&word(at).to_le_bytes());
    }
}

/// Returns a buffer with the pattern from offset 0 on.
pub(super) fn buffer(bytes: usize) -> Buffer {
    let mut buffer = Buffer::zeros(bytes);
    fill(&mut buffer, 0);
    buffer
}

/// Writes a number over a buffer's first word, so that each sent block differs.
pub(super) fn stamp(buffer: &mut [u8], number: u64) {
    buffer[..WORD_BYTES].copy_from_slice(&number.to_le_bytes());
}

/// Returns the first word of a buffer.
pub(super) fn first(buffer: &[u8]) -> u64 {
    u64::from_le_bytes(buffer[..WORD_BYTES].try_into().expect("a word"))
}

/// Returns the last word of a buffer.
pub(super) fn last(buffer: &[u8]) -> u64 {
    first(&buffer[buffer.len() - WORD_BYTES..])
}

/// Makes a file of this size with the pattern; it has no name and ends when it is closed.
pub(super) fn file(bytes: u64) -> Result<File, Error> {
    let file = empty_file()?;
    let mut step = vec![0; STEP_BYTES];
    for offset in (0..bytes).step_by(STEP_BYTES) {
        let length = (bytes - offset).min(STEP_BYTES as u64) as usize;
        fill(&mut step[..length], offset);
        file.write_all_at(&step[..length], offset).map_err(Error::host("pwrite", "a file"))?;
    }
    Ok(file)
}

/// Makes an empty file without a name.
pub(super) fn empty_file() -> Result<File, Error> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("guest-{}-{number}", std::process::id()));
    let named = path.display().to_string();
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(Error::host("open", named.as_str()))?;
    std::fs::remove_file(&path).map_err(Error::host("unlink", named))?;
    Ok(file)
}

/// Returns an error unless a call moved all bytes.
pub(super) fn whole<E: Into<io::Error>>(
    call: &'static str,
    object: &str,
    bytes: usize,
    outcome: Result<usize, E>,
) -> Result<(), Error> {
    match outcome {
        Ok(moved) if moved == bytes => Ok(()),
        Ok(moved) => same(&format!("{call} {object}: bytes"), bytes as u64, moved as u64),
        Err(error) => Err(Error::host(call, object)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_at_each_offset_what_belongs_there() {
        let bytes = STEP_BYTES as u64 + 4096;
        let file = file(bytes).expect("a file");
        let mut block = [0; 4096];
        for offset in [0, 8, 4096, STEP_BYTES as u64 - 8, STEP_BYTES as u64] {
            file.read_exact_at(&mut block, offset).expect("read");
            assert_eq!((first(&block), last(&block)), (word(offset), word(offset + 4088)));
        }
        assert_eq!(file.metadata().expect("a file").len(), bytes);
    }
}
