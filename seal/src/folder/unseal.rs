// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unsealing run: opens a sealed folder of any form into another; keeps tree, modes and times.
//!
//! The rules are those of sealing: files are written under hidden names and renamed when complete,
//! an existing file is replaced only on request, and one file's failure does not stop the others.
//! No byte gets a name before it is authenticated: GCM authenticates each segment, and for every
//! form the hash of the whole must be the manifest's. That hash is keyed, so it also authenticates
//! CBC; only CBC without a manifest has no check but its padding.
//!
//! A CBC file is deciphered in parallel within itself, a GCM file segment by segment; the cores
//! process different files.
//!
//! Cost a byte: two copies and the cipher, as sealing, and the hash.
//! Does not continue an earlier run: existing files are refused, or unsealed again.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use simd::cbc::AesKey;

use super::fault::SealedFileFault;
use super::file_transfer::{Job, Read, SealContext, Transfer, finish_all};
use super::opener::{Opener, Opening};
pub use super::sealed_dir::SealedForm;
use super::sealed_dir::{ReadableFiles, SealedDir};
use super::target_dir::TargetDir;
use super::{Durability, finish, target_dir};
use crate::engine::stage::{self, SealStage};
use crate::engine::{self, Filled, SealOutcome, SealProgress, Settings, Work, WorkStream};
use crate::error::{Error, FileFault};
use crate::folder_walk::Tree;
use crate::key::{Purpose, Secret};
use crate::manifest::ManifestRecord;
use crate::working_folder::WorkingKind;

/// Options of an unsealing run.
#[derive(Clone, Debug)]
pub struct UnsealOptions {
    /// The sealed folder.
    pub source: PathBuf,
    /// The folder that opened files are written to.
    pub target: PathBuf,
    /// Form of the sealed files; a manifest, if any, has it too.
    pub how: Option<SealedForm>,
    /// The key.
    pub secret: Secret,
    /// When files reach the disk.
    pub sync: Durability,
    /// True: existing files are replaced.
    pub force: bool,
}

/// Work of an unsealing run; locks the target against other runs.
#[derive(Debug)]
pub struct UnsealPlan {
    options: UnsealOptions,
    how: SealedForm,
    target_dir: TargetDir,
    context: SealContext,
    tree: Tree,
    records: Vec<Option<ManifestRecord>>,
    failed: Vec<Error>,
}

/// Walks source and target with `threads` threads and locks the target for this run.
///
/// # Errors
/// An unusable option, a wrong key, a folder that cannot be read or made: nothing was written.
pub fn plan(options: UnsealOptions, threads: usize) -> Result<UnsealPlan, Error> {
    let mut sealed = SealedDir::look(&options.source, options.how, &options.secret, threads)?;
    let ReadableFiles { mut records, mut failed, .. } = sealed.sorted();
    let mut target_dir = TargetDir::find(&options.target, WorkingKind::Unseal)?;
    target_dir.is_apart_from(&sealed.path)?;
    let target = target_dir.take()?;
    let SealedDir { root, how, mut tree, .. } = sealed;
    let existing = target_dir.look(&target, threads);
    if target_dir.is_unseen() {
        target_dir::clear(&target, &existing, &Default::default(), &tree);
    } else if !options.force {
        let mut kept = records.into_iter();
        records = Vec::new();
        tree.files.retain(|file| {
            let record = kept.next().flatten();
            let is_there = existing.files.contains_key(&file.path);
            if is_there {
                failed.push(Error::file(&target.shown(&file.path), FileFault::Exists));
            } else {
                records.push(record);
            }
            !is_there
        });
    }
    let context = SealContext {
        source: Arc::new(root),
        target,
        is_unseen: target_dir.is_unseen(),
        journal: None,
        content_key: options.secret.derive(Purpose::Content),
        sync: options.sync,
        umask: super::umask(),
        verify: false,
        can_poll: AtomicBool::new(true),
    };
    failed.extend(target_dir::make_folders(&context.target, &tree));
    Ok(UnsealPlan { options, how, target_dir, context, tree, records, failed })
}

impl UnsealPlan {
    /// Folders that look like an earlier run's and are not used, with the reasons.
    pub fn notes(&self) -> &[Error] {
        &self.target_dir.notes
    }

    /// Counts the files to be opened.
    pub fn files(&self) -> u64 {
        self.tree.files.len() as u64
    }

    /// Sums the sealed bytes of those files.
    pub fn bytes(&self) -> u64 {
        self.tree.files.iter().map(|file| file.bytes).sum()
    }

    /// Unseals the files.
    ///
    /// # Errors
    /// The run could not begin. Faults of single files are in [`SealOutcome::failed`].
    pub fn unseal(self, settings: &Settings, seen: &SealProgress) -> Result<SealOutcome, Error> {
        let Self { options, how, target_dir, context, mut tree, records, failed } = self;
        seen.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let opener = Opener::new(how.form, how.iv, &options.secret, settings.cbc)?;
        let files = std::mem::take(&mut tree.files).into_iter().zip(records);
        let works = files.map(|(file, record)| UnsealWork {
            job: Job { context: &context, file, replaces: options.force && !context.is_unseen },
            opener: &opener,
            record,
        });
        let mut outcome = engine::run(works.collect(), settings, seen);
        outcome.failed.extend(failed);
        outcome.failed.extend(finish::end(context, &target_dir, &tree, outcome.is_stopped));
        outcome.failed.sort_by_cached_key(ToString::to_string);
        Ok(outcome)
    }
}

/// A sealed file.
struct UnsealWork<'a> {
    job: Job<'a>,
    opener: &'a Opener,
    record: Option<ManifestRecord>,
}

impl<'a> Work for UnsealWork<'a> {
    type Stream = Unsealing<'a>;

    fn bytes(&self) -> u64 {
        self.job.file.bytes
    }

    fn open(self) -> Result<Unsealing<'a>, Error> {
        let Self { job, opener, record } = self;
        let path = job.context.source.shown(&job.file.path);
        let closed = |closed| Error::file(&path, FileFault::Sealed(closed));
        let opening = opener.begin(job.file.bytes).map_err(closed)?;
        let hasher = || Box::new(blake3::Hasher::new_keyed(&job.context.content_key));
        let expected = record.map(|record| (hasher(), blake3::Hash::from_bytes(record.content)));
        let transfer = job.open()?;
        Ok(Unsealing { path, transfer, opening, expected, front: 0 })
    }
}

/// A sealed file being opened.
struct Unsealing<'a> {
    /// Path for messages.
    path: PathBuf,
    transfer: Transfer<'a>,
    opening: Opening<'a>,
    /// Hasher of the opened bytes, and the hash of the source in the manifest.
    expected: Option<(Box<blake3::Hasher>, blake3::Hash)>,
    /// Offset in the slice where the source's bytes begin.
    front: usize,
}

impl Unsealing<'_> {
    /// Deciphers and hashes a piece; returns the range that is the source's.
    fn open(&mut self, piece: &mut [u8]) -> Result<Range<usize>, SealedFileFault> {
        stage::enter(SealStage::Cipher);
        let source = self.opening.open(piece)?;
        if let Some((hasher, expected)) = &mut self.expected {
            stage::enter(SealStage::Hash);
            hasher.update(&piece[source.clone()]);
            if self.opening.next_bytes() == 0 && hasher.finalize() != *expected {
                return Err(self.opening.other());
            }
        }
        Ok(source)
    }
}

impl WorkStream for Unsealing<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let piece = &mut buffer[..self.opening.next_bytes()];
        let Read::Bytes(sealed_bytes) = self.transfer.read_unhashed(piece)? else {
            return Ok(Filled::default());
        };
        let source = self.open(piece);
        let source = source.map_err(|closed| Error::file(&self.path, FileFault::Sealed(closed)))?;
        self.front = source.start;
        let is_last = self.opening.next_bytes() == 0;
        Ok(Filled { bytes: source.end, cipher: 0..0, source_bytes: sealed_bytes as u64, is_last })
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]) {
        unreachable!("nothing is left to the lanes, which encipher")
    }

    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.transfer.write(&bytes[self.front..])
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
