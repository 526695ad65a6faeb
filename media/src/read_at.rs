// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positioned reads, as required by demuxers and payloaders.
//!
//! A file is one ([`std::fs::File`]), and bytes in memory are (tests, fuzz targets). Sources:
//! pread(2).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any offset.
pub trait ReadAt {
    /// Fills `bytes` with the bytes of the file from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; errors of the disk.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(bytes, offset)
    }
}

impl ReadAt for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        let found = self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(bytes, offset)
    }
}
