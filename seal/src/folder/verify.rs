// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verification run: a second implementation opens a sealed folder and compares its content.
//!
//! Every file is opened by OpenSSL ([`super::openssl_opener`]) and compared with its source byte
//! for byte, or, without the source, with the hash in the manifest. Files that are missing, extra
//! or of another length are reported too. Nothing is written. With the source, the first byte that
//! differs is reported; without it, CBC reports only that a file does not open.
//!
//! Costs a read of every file (and of its source), the cipher, a comparison or a hash.
//! Does not compare modes and times; does not use the lanes.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags};
use simd::cbc::AesKey;
use zeroize::Zeroizing;

use super::fault::SealedFileFault;
use super::openssl_opener::{OpensslOpener, OpensslOpening, SOURCE_BYTES};
use super::sealed_dir::{ReadableFiles, SealedDir, SealedForm};
use crate::engine::stage::{self, SealStage};
use crate::engine::{self, Filled, SealOutcome, SealProgress, Settings, Work, WorkStream};
use crate::error::{self, Error, FileFault};
use crate::folder_walk::{self, DirHandle, Tree};
use crate::key::{Purpose, Secret};
use crate::manifest;
use crate::target_path;

/// Options of a verification run.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The sealed folder.
    pub target: PathBuf,
    /// The folder that was sealed. Without it, files are compared with the manifest's hashes.
    pub source: Option<PathBuf>,
    /// Form of the sealed files; a manifest, if any, has it too.
    pub how: Option<SealedForm>,
    /// The key.
    pub secret: Secret,
}

/// Work of a verification run.
#[derive(Debug)]
pub struct VerifyPlan {
    options: VerifyOptions,
    how: SealedForm,
    root: DirHandle,
    source: Option<DirHandle>,
    files: Vec<(folder_walk::File, Against)>,
    failed: Vec<Error>,
    /// Symlinks and special files of the source.
    passed_over: Vec<Error>,
}

/// Content that a file is compared with.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// A source of this many bytes.
    Source(u64),
    /// The keyed hash of its content.
    Content([u8; 32]),
}

/// Walks the folder and its source with `threads` threads.
///
/// # Errors
/// An unusable option, a wrong key, a folder that cannot be read.
pub fn plan(options: VerifyOptions, threads: usize) -> Result<VerifyPlan, Error> {
    let mut sealed = SealedDir::look(&options.target, options.how, &options.secret, threads)?;
    if options.source.is_none() && sealed.known.is_none() {
        let found = format!("none, and {} has no {}", sealed.path.display(), manifest::NAME);
        let cure = "name the folder that was sealed".to_owned();
        return Err(Error::Option { option: "source", found, cure });
    }
    let ReadableFiles { records, rejected, mut failed } = sealed.sorted();
    let SealedDir { root, how, tree, .. } = sealed;
    let mut passed_over = Vec::new();
    let (source, files) = match &options.source {
        None => {
            let against = records.into_iter().flatten();
            let against = against.map(|record| Against::Content(record.content));
            (None, tree.files.into_iter().zip(against).collect())
        }
        Some(path) => {
            let source = DirHandle::open_canonical(&target_path::real(path)?)?;
            let mut sources = folder_walk::walk(&source, threads);
            // Sealing passes them over too.
            passed_over = error::passed_over(&mut sources.refused);
            failed.append(&mut sources.refused);
            let files = compared(&root, tree.files, &rejected, sources, &mut failed);
            (Some(source), files)
        }
    };
    // A missing file that manifest and source both have is one failure, not two.
    failed.sort_by_cached_key(ToString::to_string);
    failed.dedup_by_key(|error| error.to_string());
    Ok(VerifyPlan { options, how, root, source, files, failed, passed_over })
}

/// Returns the files that both have. All others fail, except those `rejected` already.
fn compared(
    root: &DirHandle,
    sealed: Vec<folder_walk::File>,
    rejected: &[CString],
    sources: Tree,
    failed: &mut Vec<Error>,
) -> Vec<(folder_walk::File, Against)> {
    let mut sources: HashMap<CString, u64> =
        sources.files.into_iter().map(|file| (file.path, file.bytes)).collect();
    for path in rejected {
        sources.remove(path);
    }
    let closed = |path: &CString, closed| Error::file(&root.shown(path), FileFault::Sealed(closed));
    let mut files = Vec::with_capacity(sealed.len());
    for file in sealed {
        match sources.remove(&file.path) {
            Some(bytes) => files.push((file, Against::Source(bytes))),
            None => failed.push(closed(&file.path, SealedFileFault::Extra)),
        }
    }
    failed.extend(sources.keys().map(|path| closed(path, SealedFileFault::Missing)));
    files
}

impl VerifyPlan {
    /// Counts the files to be compared.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Sums the sealed bytes of those files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(file, _)| file.bytes).sum()
    }

    /// Compares the files; differences are in [`SealOutcome::failed`].
    ///
    /// # Errors
    /// The run could not begin.
    pub fn verify(self, settings: &Settings, seen: &SealProgress) -> Result<SealOutcome, Error> {
        let Self { options, how, root, source, files, failed, passed_over } = self;
        seen.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let opener = OpensslOpener::new(how.form, how.iv, &options.secret)?;
        let content_key = options.secret.derive(Purpose::Content);
        let context = VerifyContext { root: &root, source: source.as_ref(), opener, content_key };
        let works = files.into_iter().map(|(file, against)| VerifyWork {
            context: &context,
            file,
            against,
        });
        let mut outcome = engine::run(works.collect(), settings, seen);
        outcome.passed_over = passed_over;
        outcome.failed.extend(failed);
        outcome.failed.sort_by_cached_key(ToString::to_string);
        Ok(outcome)
    }
}

/// State that all files of a run share.
struct VerifyContext<'a> {
    root: &'a DirHandle,
    source: Option<&'a DirHandle>,
    opener: OpensslOpener,
    content_key: Zeroizing<[u8; 32]>,
}

struct VerifyWork<'a> {
    context: &'a VerifyContext<'a>,
    file: folder_walk::File,
    against: Against,
}

impl<'a> Work for VerifyWork<'a> {
    type Stream = Verifying<'a>;

    fn bytes(&self) -> u64 {
        self.file.bytes
    }

    fn held_bytes(&self) -> usize {
        2 * SOURCE_BYTES
    }

    fn open(self) -> Result<Verifying<'a>, Error> {
        let Self { context, file, against } = self;
        let path = context.root.shown(&file.path);
        let sealed = open(context.root, &file)?;
        let opening = context.opener.begin(file.bytes);
        let opening = opening.map_err(|closed| Error::file(&path, FileFault::Sealed(closed)))?;
        let other = match (against, context.source) {
            (Against::Source(bytes), Some(source)) => Other::Source {
                path: source.shown(&file.path),
                file: open(source, &file)?,
                bytes,
                offset: 0,
                piece: Box::new([0; SOURCE_BYTES]),
            },
            (Against::Source(_), None) => unreachable!("compared with a source that is there"),
            (Against::Content(expected), _) => Other::Content {
                hasher: Box::new(blake3::Hasher::new_keyed(&context.content_key)),
                expected: blake3::Hash::from_bytes(expected),
            },
        };
        let opened = Box::new([0; SOURCE_BYTES]);
        Ok(Verifying { path, sealed, opening, other, opened })
    }
}

fn open(root: &DirHandle, file: &folder_walk::File) -> Result<File, Error> {
    // A file that became a pipe since the walk must not block here.
    root.open_below(&file.path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
        .map(File::from)
        .map_err(|errno| root.error("open", &file.path, errno))
}

/// A sealed file being compared.
struct Verifying<'a> {
    path: PathBuf,
    sealed: File,
    opening: OpensslOpening<'a>,
    other: Other,
    opened: Box<[u8; SOURCE_BYTES]>,
}

/// Content that the opened file is compared with.
enum Other {
    Source { path: PathBuf, file: File, bytes: u64, offset: u64, piece: Box<[u8; SOURCE_BYTES]> },
    Content { hasher: Box<blake3::Hasher>, expected: blake3::Hash },
}

impl Other {
    /// Compares the next opened bytes.
    fn compare(
        &mut self,
        opened: &[u8],
        opening: &OpensslOpening<'_>,
    ) -> Result<Option<SealedFileFault>, Error> {
        let is_last = opening.next_bytes() == 0;
        match self {
            Other::Content { hasher, expected } => {
                hasher.update(opened);
                let is_other = is_last && hasher.finalize() != *expected;
                Ok(is_other.then(|| opening.other()))
            }
            Other::Source { path, file, bytes, offset, piece } => {
                let left = usize::try_from(*bytes - *offset).unwrap_or(usize::MAX);
                let shared = left.min(opened.len());
                read(file, path, &mut piece[..shared])?;
                let same = piece[..shared].iter().zip(opened).take_while(|(a, b)| a == b).count();
                *offset += same as u64;
                let is_other = same < opened.len() || (is_last && *offset < *bytes);
                Ok(is_other.then_some(SealedFileFault::Differs { offset: *offset }))
            }
        }
    }
}

/// Reads all of `buffer`.
fn read(mut file: &File, path: &Path, buffer: &mut [u8]) -> Result<(), Error> {
    file.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::file(path, FileFault::Changed),
        _ => Error::host("read", path)(error),
    })
}

impl WorkStream for Verifying<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let piece = &mut buffer[..self.opening.next_bytes()];
        read(&self.sealed, &self.path, piece)?;
        stage::enter(SealStage::Cipher);
        let closed = |closed| Error::file(&self.path, FileFault::Sealed(closed));
        let bytes = self.opening.open(piece, &mut self.opened).map_err(closed)?;
        let is_last = self.opening.next_bytes() == 0;
        stage::enter(SealStage::Hash);
        match self.other.compare(&self.opened[..bytes], &self.opening)? {
            Some(other) => Err(closed(other)),
            // Nothing to write.
            None => {
                Ok(Filled { bytes: 0, cipher: 0..0, source_bytes: piece.len() as u64, is_last })
            }
        }
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]) {
        unreachable!("the lanes have no part in this")
    }

    fn drain(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        Ok(())
    }
}
