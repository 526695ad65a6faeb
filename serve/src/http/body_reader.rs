// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the content of an answer into memory, piece by piece, for TLS and HTTP/2.
//!
//! A piece is read in place, without waiting for a disk (`RWF_NOWAIT`); bytes that are not in
//! memory are fetched by a thread that may wait. Costs a copy of every byte and a system call a
//! piece: TLS has to touch every byte in any case.
//!
//! Sources: readv(2) (`RWF_NOWAIT`).
//! Does not hold pieces: reading and advancing are two steps, so that a writer may consume a part.

use std::io::{self, ErrorKind, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use paths::MappedFile;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::task::spawn_blocking;
use wire::http::Part;

use crate::http::content::Content;
use crate::http::open_files::{FileContent, OpenFile};

/// Content of an answer and the place up to which it is sent.
pub(super) struct BodyReader {
    parts: Vec<Part>,
    content: Content,
    index: usize,
    /// Bytes sent of the part at `index`.
    done: u64,
    /// Range of the file that a thread has fetched.
    fetched: Range<u64>,
}

/// Reason why no piece can be read now.
#[derive(Debug)]
pub(super) enum NotRead {
    /// It has to be fetched from the disk.
    NotInMemory,
    /// The file is shorter than promised, or its disk fails.
    Failed(io::Error),
}

impl BodyReader {
    pub(super) fn new(parts: Vec<Part>, content: Content) -> BodyReader {
        BodyReader { parts, content, index: 0, done: 0, fetched: 0..0 }
    }

    /// Returns the bytes that are not sent yet.
    pub(super) fn left(&self) -> u64 {
        let parts = self.parts.get(self.index..).unwrap_or_default();
        parts.iter().map(Part::bytes).sum::<u64>() - self.done
    }

    /// Fills `target` with the next bytes; fewer only at the end, and before a place that is not in
    /// memory.
    pub(super) fn fill(&self, target: &mut [u8]) -> Result<usize, NotRead> {
        let (mut index, mut done, mut filled) = (self.index, self.done, 0);
        while let Some(part) = self.parts.get(index).filter(|_| filled < target.len()) {
            match self.read(part, done, &mut target[filled..]) {
                Ok(read) => {
                    filled += read;
                    done += read as u64;
                }
                Err(NotRead::NotInMemory) if filled > 0 => break,
                Err(error) => return Err(error),
            }
            if done == part.bytes() {
                (index, done) = (index + 1, 0);
            }
        }
        Ok(filled)
    }

    /// Marks bytes as sent.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.done += bytes as u64;
        while let Some(part) = self.parts.get(self.index)
            && self.done >= part.bytes()
        {
            self.done -= part.bytes();
            self.index += 1;
        }
    }

    fn read(&self, part: &Part, done: u64, target: &mut [u8]) -> Result<usize, NotRead> {
        let left = usize::try_from(part.bytes() - done).unwrap_or(usize::MAX);
        let length = target.len().min(left);
        let target = &mut target[..length];
        match (part, &self.content) {
            (Part::Bytes(bytes), _) => {
                let from = done as usize;
                target.copy_from_slice(&bytes[from..from + length]);
                Ok(length)
            }
            (Part::Held { .. }, Content::Rows(rows)) => {
                Ok(copy_pieces(rows.pieces(), done, target))
            }
            (Part::File { offset, .. }, Content::File { file, .. }) => {
                let at = offset + done;
                self.read_file(file, (at, at), target)
            }
            (Part::File { offset, bytes }, Content::Files(files)) => {
                let at = offset + done;
                let (file, own) = files.first_of(at..offset + bytes);
                let length = target.len().min((own.end - own.start) as usize);
                self.read_file(file, (at, own.start), &mut target[..length])
            }
            (Part::Held { .. } | Part::File { .. }, _) => {
                unreachable!("rows come with the index, and ranges with a file")
            }
        }
    }

    /// Reads the bytes at an offset of the content, which differs from their offset in the file.
    fn read_file(
        &self,
        file: &OpenFile,
        (at, in_file): (u64, u64),
        target: &mut [u8],
    ) -> Result<usize, NotRead> {
        let media = match &file.content {
            FileContent::Held(_) => {
                let bytes = target.len() as u64;
                let held = file.held(in_file, bytes).expect("ranges lie in the file");
                target.copy_from_slice(held);
                return Ok(target.len());
            }
            FileContent::Open(media) => media,
        };
        // Bytes that were just fetched are read without RWF_NOWAIT, which some file systems lack.
        let flags = match self.fetched.contains(&at) {
            true => ReadWriteFlags::empty(),
            false => ReadWriteFlags::NOWAIT,
        };
        let end = if flags.is_empty() { self.fetched.end - at } else { u64::MAX };
        let length = usize::try_from(end).map_or(target.len(), |end| end.min(target.len()));
        loop {
            let slices = &mut [IoSliceMut::new(&mut target[..length])];
            return match preadv2(media.file(), slices, in_file, flags) {
                Ok(0) => Err(NotRead::Failed(ErrorKind::UnexpectedEof.into())),
                Ok(read) => Ok(read),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::OPNOTSUPP) if !flags.is_empty() => {
                    Err(NotRead::NotInMemory)
                }
                Err(errno) => Err(NotRead::Failed(errno.into())),
            };
        }
    }

    /// Fetches the next bytes from the disk by a thread.
    pub(super) async fn fetch(&mut self) {
        let Some(Part::File { offset, bytes }) = self.parts.get(self.index) else { return };
        let at = offset + self.done;
        let wanted = at..(at + FETCHED_BYTES).min(offset + bytes);
        let (file, range) = match &self.content {
            Content::File { file, .. } => (file, wanted),
            Content::Files(files) => files.first_of(wanted),
            Content::Text | Content::LongText { .. } | Content::Rows(_) => return,
        };
        self.fetched = at..at + (range.end - range.start);
        let file: Arc<OpenFile> = file.clone();
        let fetch = move || match &file.content {
            FileContent::Open(media) => MappedFile::prefetch_unless(media, range, false),
            FileContent::Held(_) => Ok(()),
        };
        if let Ok(Err(error)) = spawn_blocking(fetch).await {
            // The following read reports the error with its consequences.
            tracing::debug!("http download: {error}");
        }
    }
}

/// Copies from `pieces`, behind `skip` bytes of them; returns the number copied.
fn copy_pieces<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    mut skip: u64,
    target: &mut [u8],
) -> usize {
    let mut copied = 0;
    for piece in pieces {
        if skip >= piece.len() as u64 {
            skip -= piece.len() as u64;
            continue;
        }
        let piece = &piece[skip as usize..];
        skip = 0;
        let length = piece.len().min(target.len() - copied);
        target[copied..copied + length].copy_from_slice(&piece[..length]);
        copied += length;
        if copied == target.len() {
            break;
        }
    }
    copied
}

/// Bytes of one read from the disk.
const FETCHED_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_in_pieces_of_any_size() {
        let parts = || {
            vec![
                Part::Bytes(b"head"[..].into()),
                Part::Bytes(b""[..].into()),
                Part::Bytes(b"and tail"[..].into()),
            ]
        };
        for step in 1..14 {
            for consumed in 1..=step {
                let mut reader = BodyReader::new(parts(), Content::Text);
                let mut read = Vec::new();
                while reader.left() > 0 {
                    let mut piece = vec![0; step];
                    let filled = reader.fill(&mut piece).unwrap();
                    let consumed = consumed.min(filled);
                    read.extend_from_slice(&piece[..consumed]);
                    reader.advance(consumed);
                }
                assert_eq!(read, b"headand tail", "{step} {consumed}");
            }
        }
    }

    #[tokio::test]
    async fn a_range_is_read_from_files_that_continue_each_other() {
        use crate::http::joined_files::JoinedFiles;
        use std::io::Write;

        let bytes: Vec<u8> = (0..60_000_u32).map(|at| (at / 7) as u8).collect();
        let ends = [0, 25_000, 25_188, 60_000];
        let files = ends.windows(2).map(|pair| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes[pair[0]..pair[1]]).unwrap();
            (pair[0] as u64, Arc::new(OpenFile::made("a part", file).unwrap()))
        });
        let files: Vec<_> = files.collect();
        for range in [0..60_000, 24_999..25_001, 100..25_100, 25_187..59_999] {
            let (offset, length) = (range.start as u64, range.len() as u64);
            let content = Content::Files(JoinedFiles::new(files.clone()));
            let mut reader = BodyReader::new(vec![Part::File { offset, bytes: length }], content);
            let mut read = Vec::new();
            while reader.left() > 0 {
                let mut piece = vec![0; 7000];
                let filled = match reader.fill(&mut piece) {
                    Ok(filled) => filled,
                    Err(NotRead::NotInMemory) => {
                        reader.fetch().await;
                        continue;
                    }
                    Err(NotRead::Failed(error)) => panic!("{error}"),
                };
                read.extend_from_slice(&piece[..filled]);
                reader.advance(filled);
            }
            assert!(read == bytes[range.clone()], "{range:?}");
        }
    }

    #[test]
    fn pieces_are_copied_from_any_place() {
        let pieces: [&[u8]; 4] = [b"ab", b"", b"cde", b"f"];
        for skip in 0..=6 {
            for length in 0..=7 {
                let mut target = vec![0; length];
                let copied = copy_pieces(pieces.into_iter(), skip as u64, &mut target);
                let expected = &b"abcdef"[skip..];
                let expected = &expected[..expected.len().min(length)];
                assert_eq!(&target[..copied], expected, "{skip} {length}");
            }
        }
    }
}
