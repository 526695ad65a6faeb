// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders: enciphers every regular file below one folder into another; keeps tree, modes and
//! times.
//!
//! [`plan`] walks the source, reads the records of an earlier run and locks the target for this
//! run; [`FolderPlan::seal`] does the rest. A form is a line in [`FORMS`] and a file here.
//!
//! A new target folder is made under a hidden name beside its path and renamed when all that can be
//! sealed is in it: one rename for all its files (`target_dir`). In an existing folder every file
//! is written beside its target and renamed. The same command continues a run that was stopped or
//! killed.
//!
//! Memory besides the engine's: about 100 bytes a file, and about 300 more for each file that was
//! sealed before.
//!
//! Sources: openssl-enc(1); syncfs(2).
//! Skips and reports symlinks and special files. Does not keep hard links (each name becomes a file
//! of its own), extended attributes or owners.

mod cbc;
pub(crate) mod fault;
mod file_transfer;
mod finish;
pub mod gcm;
pub mod opener;
pub mod openssl_opener;
mod sealed_dir;
mod target_dir;
pub mod unseal;
pub mod verify;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::{SealOutcome, SealProgress, Settings};
use crate::error::{self, Error, FileFault};
use crate::folder_walk::{self, DirHandle, Tree};
use crate::form_conflict;
use crate::key::passphrase::Stretch;
use crate::key::{Purpose, Secret};
use crate::manifest::{self, Journal, Manifest, ManifestHeader, Writer};
use crate::pending_file::PREFIX;
use crate::target_path;
use crate::working_folder::WorkingKind;
use file_transfer::{Job, SealContext};
pub(crate) use target_dir::umask;
use target_dir::{ExistingFiles, TargetDir};

/// A way to seal files.
#[derive(Debug)]
pub struct FolderForm {
    /// Name of the form in `--form`.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Bytes of its key.
    pub key_bytes: usize,
    /// True when one IV for all files can be given.
    pub takes_iv: bool,
    /// Returns the bytes of a sealed file from those of its source; true when the IV is in front.
    pub sealed_bytes: fn(u64, bool) -> u64,
    seal: fn(Sealing<'_>) -> Result<SealOutcome, Error>,
}

/// All forms, the default first.
pub static FORMS: &[FolderForm] = &[
    gcm::FORM,
    aes_cbc("aes-256-cbc", "AES-256-CBC, a random IV in front; openssl enc opens it", 32),
    aes_cbc("aes-192-cbc", "AES-192-CBC, a random IV in front; openssl enc opens it", 24),
    aes_cbc("aes-128-cbc", "AES-128-CBC, a random IV in front; openssl enc opens it", 16),
];

const fn aes_cbc(name: &'static str, summary: &'static str, key_bytes: usize) -> FolderForm {
    let (sealed_bytes, seal) = (cbc::sealed_bytes, cbc::seal);
    FolderForm { name, summary, key_bytes, takes_iv: true, sealed_bytes, seal }
}

impl FolderForm {
    /// Returns the form of that name.
    pub fn named(name: &str) -> Option<&'static FolderForm> {
        FORMS.iter().find(|form| form.name == name)
    }

    /// Refuses a key length or an IV that this form does not use.
    fn takes(&self, iv: Option<[u8; 16]>, secret: &Secret) -> Result<(), Error> {
        if secret.bytes().len() != self.key_bytes {
            return Err(secret.wrong_length(self.name, self.key_bytes));
        }
        if iv.is_some() && !self.takes_iv {
            return Err(Error::Option {
                option: "iv",
                found: format!("{} makes its own", self.name),
                cure: "leave it out, or take the form aes-256-cbc".to_owned(),
            });
        }
        Ok(())
    }
}

/// When sealed files reach the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// All files at the end of the run, before a new folder gets its name.
    #[default]
    End,
    /// Each file before it gets its name.
    Each,
    /// When the kernel writes them back.
    None,
}

/// Options of a sealing run over a folder.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// The folder to be sealed.
    pub source: PathBuf,
    /// The folder that the sealed files are written to.
    pub target: PathBuf,
    /// The form of the sealed files.
    pub form: &'static FolderForm,
    /// One IV for all files; then no file has an IV in front.
    pub iv: Option<[u8; 16]>,
    /// The key.
    pub secret: Secret,
    /// Parameters that derived the key from a passphrase.
    pub stretch: Option<Stretch>,
    /// When files reach the disk.
    pub sync: Durability,
    /// True: existing files are replaced.
    pub force: bool,
    /// True: each source is read a second time and compared with the hash of the sealed content.
    pub verify: bool,
}

/// Arguments of a form's `seal`.
struct Sealing<'a> {
    jobs: Vec<Job<'a>>,
    secret: &'a Secret,
    iv: Option<[u8; 16]>,
    settings: &'a Settings,
    seen: &'a SealProgress,
}

/// Work of a sealing run; locks the target against other runs.
#[derive(Debug)]
pub struct FolderPlan {
    options: FolderOptions,
    target_dir: TargetDir,
    context: SealContext,
    tree: Tree,
    /// True for each of the tree's files that replaces an existing one.
    replaces: Vec<bool>,
    /// Errors of files that cannot be sealed, known before the run.
    failed: Vec<Error>,
    /// Symlinks and special files.
    passed_over: Vec<Error>,
    skipped: u64,
    remarks: Vec<Error>,
}

/// Walks source and target with `threads` threads and locks the target for this run.
///
/// # Errors
/// An unusable option, a folder that cannot be read or made: nothing was sealed.
pub fn plan(options: FolderOptions, threads: usize) -> Result<FolderPlan, Error> {
    let form = options.form;
    let source = target_path::real(&options.source)?;
    let mut target_dir = TargetDir::find(&options.target, WorkingKind::Seal)?;
    target_dir.is_apart_from(&source)?;
    let source = DirHandle::open_canonical(&source)?;
    form_conflict::refuse_in_film(&options.target)?;
    if let Some(folder) = target_dir.folder() {
        match manifest::header_by(folder, Writer::User)? {
            Some(header) => fits(&header, &options)?,
            None => form_conflict::refuse_with_films(folder, threads)?,
        }
    }
    // Checked after the form: a run with another form is refused for that, not for its key.
    form.takes(options.iv, &options.secret)?;
    let target = target_dir.take()?;
    let mut journal = Journal::open(&target, &options.secret)?;
    let known = journal.known(&target, &options.secret)?;
    match &known {
        Some(known) => journal.resume(known.good_bytes, options.sync == Durability::Each)?,
        None => {
            let stretch = options.stretch;
            let header = ManifestHeader::new(form.name, options.iv, stretch, &options.secret)?;
            journal.begin(&header, options.sync == Durability::Each)?;
        }
    }
    let mut tree = folder_walk::walk(&source, threads);
    let existing = target_dir.look(&target, threads);
    let mut failed = std::mem::take(&mut tree.refused);
    let passed_over = error::passed_over(&mut failed);
    if tree.files.is_empty() && !passed_over.is_empty() {
        let nothing = FileFault::Nothing { wanted: "regular file" };
        failed.push(Error::file(&options.source, nothing));
    }
    let sorted =
        sort(&mut tree, &existing, known.as_ref(), &options, &target, target_dir.is_unseen());
    failed.extend(sorted.failed);
    if target_dir.is_unseen() {
        target_dir::clear(&target, &existing, &sorted.kept, &tree);
    }
    let context = SealContext {
        source: Arc::new(source),
        target,
        is_unseen: target_dir.is_unseen(),
        journal: Some(Mutex::new(journal)),
        content_key: options.secret.derive(Purpose::Content),
        sync: options.sync,
        umask: umask(),
        verify: options.verify,
        can_poll: AtomicBool::new(true),
    };
    failed.extend(target_dir::make_folders(&context.target, &tree));
    let skipped = sorted.kept.len() as u64;
    let remarks = sorted.again.iter().min().map(|first| {
        let name = first.to_string_lossy().into_owned();
        Error::file(&options.target, FileFault::Again { count: sorted.again.len() as u64, name })
    });
    let (replaces, remarks) = (sorted.replaces, remarks.into_iter().collect());
    Ok(FolderPlan {
        options,
        target_dir,
        context,
        tree,
        replaces,
        failed,
        passed_over,
        skipped,
        remarks,
    })
}

/// Returns the header that an earlier run, finished or not, left for `target`; it has the
/// parameters that derive a key from a passphrase.
///
/// # Errors
/// The target cannot be read, or its journal is not a journal.
pub fn header(target: &Path) -> Result<Option<ManifestHeader>, Error> {
    let target_dir = TargetDir::find(target, WorkingKind::Seal)?;
    target_dir.folder().map_or(Ok(None), |folder| manifest::header_by(folder, Writer::User))
}

/// Refuses a form or an IV other than that of the earlier run.
fn fits(header: &ManifestHeader, options: &FolderOptions) -> Result<(), Error> {
    let target = options.target.display();
    if header.form != options.form.name {
        return Err(Error::Option {
            option: "form",
            found: format!("{}, but {target} was sealed as {}", options.form.name, header.form),
            cure: format!("take the form {}, or another folder", header.form),
        });
    }
    if header.iv != options.iv {
        let (was, cure) = match header.iv {
            Some(_) => ("with another one for all files", "write that one"),
            None => ("with a random one for each file", "leave it out"),
        };
        return Err(Error::Option {
            option: "iv",
            found: format!("{target} was sealed {was}"),
            cure: format!("{cure}, or name another folder"),
        });
    }
    Ok(())
}

/// Files of the tree, grouped by the action that they need.
#[derive(Default)]
struct PendingFiles {
    replaces: Vec<bool>,
    failed: Vec<Error>,
    /// Sealed before, and changed in the target since.
    again: Vec<std::ffi::CString>,
    /// Sealed before and unchanged.
    kept: std::collections::HashSet<std::ffi::CString>,
}

/// Keeps in `tree` only the files that are to be sealed.
fn sort(
    tree: &mut Tree,
    existing: &ExistingFiles,
    known: Option<&Manifest>,
    options: &FolderOptions,
    target: &DirHandle,
    is_unseen: bool,
) -> PendingFiles {
    let mut sorted = PendingFiles::default();
    tree.files.retain(|file| {
        let shown = |fault| Error::file(&target.shown(&file.path), fault);
        if is_reserved(file.path.to_bytes()) {
            sorted.failed.push(Error::file(&options.source.join(file.name()), FileFault::Reserved));
            return false;
        }
        let Some(&(bytes, modified)) = existing.files.get(&file.path) else {
            sorted.replaces.push(false);
            return true;
        };
        let done = known.and_then(|known| known.is_done(file.name(), file.bytes, file.modified));
        // A sealed file has its source's time; a later time means that it was changed since.
        let is_as_sealed = done.is_some_and(|r| r.sealed_bytes == bytes && modified <= r.modified);
        if is_as_sealed && (is_unseen || !options.force) {
            sorted.kept.insert(file.path.clone());
            return false;
        }
        // Files in an unseen folder are this program's and are removed. A file whose record is no
        // longer trusted was also made by this program, and so was a damaged file whose source
        // still matches its record.
        let record = known.and_then(|known| known.records.get(file.name()));
        let is_lost = record.is_some_and(|kept| !kept.is_believed);
        if is_unseen || is_lost || options.force || done.is_some() {
            sorted.again.extend((!is_as_sealed && done.is_some()).then(|| file.path.clone()));
            sorted.replaces.push(!is_unseen);
            return true;
        }
        let is_ours = record.is_some_and(|kept| kept.record.sealed_bytes == bytes);
        sorted.failed.push(shown(if is_ours { FileFault::Older } else { FileFault::Exists }));
        false
    });
    sorted
}

/// True for a name that this program reserves for itself.
fn is_reserved(path: &[u8]) -> bool {
    path == manifest::NAME.as_bytes()
        || path.split(|&byte| byte == b'/').any(|name| name.starts_with(PREFIX.as_bytes()))
}

impl FolderPlan {
    /// Folders that look like an earlier run's and are not used, with the reasons.
    pub fn notes(&self) -> &[Error] {
        &self.target_dir.notes
    }

    /// Counts the files to be sealed.
    pub fn files(&self) -> u64 {
        self.tree.files.len() as u64
    }

    /// Sums the bytes of those files.
    pub fn bytes(&self) -> u64 {
        self.tree.files.iter().map(|file| file.bytes).sum()
    }

    /// Seals the files.
    ///
    /// # Errors
    /// The run could not begin. Faults of single files are in [`SealOutcome::failed`].
    pub fn seal(self, settings: &Settings, seen: &SealProgress) -> Result<SealOutcome, Error> {
        let Self { options, target_dir, context, mut tree, replaces, failed, .. } = self;
        seen.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let files = std::mem::take(&mut tree.files);
        let jobs = files.into_iter().zip(replaces);
        let jobs = jobs.map(|(file, replaces)| Job { context: &context, file, replaces }).collect();
        let sealing = Sealing { jobs, secret: &options.secret, iv: options.iv, settings, seen };
        let mut outcome = (options.form.seal)(sealing)?;
        outcome.skipped = self.skipped;
        outcome.passed_over = self.passed_over;
        outcome.remarks = self.remarks;
        outcome.failed.extend(failed);
        outcome.failed.extend(finish::end(context, &target_dir, &tree, outcome.is_stopped));
        outcome.failed.sort_by_cached_key(ToString::to_string);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests;
