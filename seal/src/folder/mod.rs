// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders: every regular file below one enciphered into another, tree, modes and times kept.
//!
//! [`plan`] walks the source, looks at what an earlier run has done and takes the target for this
//! run; [`FolderPlan::seal`] does the rest. A form is a line in [`FORMS`] and a file here.
//!
//! A target folder that is not there yet is made under a hidden name beside it and renamed when all
//! that can be sealed is in it: one rename for all its files (`target_dir`). In a folder that is
//! there every file is written beside its target and renamed. A run that was stopped or killed is
//! gone on with by the same command.
//!
//! Memory, besides the engine's: what is known of each file, about 100 bytes, and of each that was
//! sealed before about 300 more.
//!
//! Sources: openssl-enc(1); syncfs(2).
//! Does not do: symlinks and special files (passed over and named); hard links (each name is a file
//! of its own), extended attributes, owners.

mod cbc;
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
    /// As `--form` has it.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Bytes of its key.
    pub key_bytes: usize,
    /// An IV for all files can be given.
    pub takes_iv: bool,
    /// Bytes of a sealed file, from those of its source and whether its IV is in front.
    pub sealed_bytes: fn(u64, bool) -> u64,
    seal: fn(Sealing<'_>) -> Result<SealOutcome, Error>,
}

/// All of them, the one that is taken when none is named first.
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
    /// The one of that name.
    pub fn named(name: &str) -> Option<&'static FolderForm> {
        FORMS.iter().find(|form| form.name == name)
    }

    /// Whether the key and the IV are for this form.
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

/// When what is sealed reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// All at the end of the run, before a new folder takes its name.
    #[default]
    End,
    /// Each file before it takes its name.
    Each,
    /// When the kernel likes.
    None,
}

/// What to seal, and how.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// The folder to be sealed.
    pub source: PathBuf,
    /// Where to.
    pub target: PathBuf,
    /// By what.
    pub form: &'static FolderForm,
    /// The IV of all files, which is then in front of none.
    pub iv: Option<[u8; 16]>,
    /// The key.
    pub secret: Secret,
    /// What made it of a passphrase.
    pub stretch: Option<Stretch>,
    /// When it reaches the disk.
    pub sync: Durability,
    /// Files that are there are replaced.
    pub force: bool,
    /// Each source is read a second time and compared with what was sealed of it.
    pub verify: bool,
}

/// What a form is given.
struct Sealing<'a> {
    jobs: Vec<Job<'a>>,
    secret: &'a Secret,
    iv: Option<[u8; 16]>,
    settings: &'a Settings,
    seen: &'a SealProgress,
}

/// What is to be done, and that nobody else does it meanwhile.
#[derive(Debug)]
pub struct FolderPlan {
    options: FolderOptions,
    place: TargetDir,
    ground: SealContext,
    tree: Tree,
    /// Which of the tree's files replace what is there.
    replaces: Vec<bool>,
    /// What cannot be sealed, known already.
    failed: Vec<Error>,
    /// Symlinks and special files.
    passed_over: Vec<Error>,
    skipped: u64,
    remarks: Vec<Error>,
}

/// Looks at source and target and takes the target for this run. `threads` look at the source.
///
/// # Errors
/// An option that cannot be taken, a folder that cannot be looked at or made: nothing was sealed.
pub fn plan(options: FolderOptions, threads: usize) -> Result<FolderPlan, Error> {
    let form = options.form;
    let source = target_path::real(&options.source)?;
    let mut place = TargetDir::find(&options.target, WorkingKind::Seal)?;
    place.is_apart_from(&source)?;
    let source = DirHandle::open_canonical(&source)?;
    form_conflict::refuse_in_film(&options.target)?;
    if let Some(folder) = place.folder() {
        match manifest::header_by(folder, Writer::User)? {
            Some(header) => fits(&header, &options)?,
            None => form_conflict::refuse_with_films(folder, threads)?,
        }
    }
    // Whoever goes on with another form has to learn of that, and not of its key.
    form.takes(options.iv, &options.secret)?;
    let target = place.take()?;
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
    let there = place.look(&target, threads);
    let mut failed = std::mem::take(&mut tree.refused);
    let passed_over = error::passed_over(&mut failed);
    if tree.files.is_empty() && !passed_over.is_empty() {
        let nothing = FileFault::Nothing { wanted: "regular file" };
        failed.push(Error::file(&options.source, nothing));
    }
    let sorted = sort(&mut tree, &there, known.as_ref(), &options, &target, place.is_unseen());
    failed.extend(sorted.failed);
    if place.is_unseen() {
        target_dir::clear(&target, &there, &sorted.kept, &tree);
    }
    let ground = SealContext {
        source: Arc::new(source),
        target,
        is_unseen: place.is_unseen(),
        journal: Some(Mutex::new(journal)),
        content_key: options.secret.derive(Purpose::Content),
        sync: options.sync,
        umask: umask(),
        verify: options.verify,
        can_poll: AtomicBool::new(true),
    };
    failed.extend(target_dir::make_folders(&ground.target, &tree));
    let skipped = sorted.kept.len() as u64;
    let remarks = sorted.again.iter().min().map(|first| {
        let name = first.to_string_lossy().into_owned();
        Error::file(&options.target, FileFault::Again { count: sorted.again.len() as u64, name })
    });
    let (replaces, remarks) = (sorted.replaces, remarks.into_iter().collect());
    Ok(FolderPlan { options, place, ground, tree, replaces, failed, passed_over, skipped, remarks })
}

/// How an earlier run sealed into `target`, also one that did not come to its end: what makes a key
/// of a passphrase is there.
///
/// # Errors
/// The target cannot be looked at, or its journal is none.
pub fn header(target: &Path) -> Result<Option<ManifestHeader>, Error> {
    let place = TargetDir::find(target, WorkingKind::Seal)?;
    place.folder().map_or(Ok(None), |folder| manifest::header_by(folder, Writer::User))
}

/// Whether an earlier run sealed the folder the way this one is to.
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

/// The tree's files, told apart.
#[derive(Default)]
struct PendingFiles {
    replaces: Vec<bool>,
    failed: Vec<Error>,
    /// Sealed before, and written to since.
    again: Vec<std::ffi::CString>,
    /// Done before.
    kept: std::collections::HashSet<std::ffi::CString>,
}

/// Leaves in `tree` the files that are to be sealed.
fn sort(
    tree: &mut Tree,
    there: &ExistingFiles,
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
        let Some(&(bytes, modified)) = there.files.get(&file.path) else {
            sorted.replaces.push(false);
            return true;
        };
        let done = known.and_then(|known| known.is_done(file.name(), file.bytes, file.modified));
        // It has the time of its source; a later one says that somebody wrote to it since.
        let is_as_sealed = done.is_some_and(|r| r.sealed_bytes == bytes && modified <= r.modified);
        if is_as_sealed && (is_unseen || !options.force) {
            sorted.kept.insert(file.path.clone());
            return false;
        }
        // What is unseen is this program's, and is removed. What has a record that is not believed
        // any more was this program's too, and so was what is damaged and has its source's record.
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

/// A name that this program needs for itself.
fn is_reserved(path: &[u8]) -> bool {
    path == manifest::NAME.as_bytes()
        || path.split(|&byte| byte == b'/').any(|name| name.starts_with(PREFIX.as_bytes()))
}

impl FolderPlan {
    /// What looks like an earlier run's folder and is not used, with the reason.
    pub fn notes(&self) -> &[Error] {
        &self.place.notes
    }

    /// Files that are to be sealed.
    pub fn files(&self) -> u64 {
        self.tree.files.len() as u64
    }

    /// Bytes of them.
    pub fn bytes(&self) -> u64 {
        self.tree.files.iter().map(|file| file.bytes).sum()
    }

    /// Seals.
    ///
    /// # Errors
    /// The run could not begin. What fails of it is in its [`SealOutcome::failed`].
    pub fn seal(self, settings: &Settings, seen: &SealProgress) -> Result<SealOutcome, Error> {
        let Self { options, place, ground, mut tree, replaces, failed, .. } = self;
        seen.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let files = std::mem::take(&mut tree.files);
        let jobs = files.into_iter().zip(replaces);
        let jobs = jobs.map(|(file, replaces)| Job { ground: &ground, file, replaces }).collect();
        let sealing = Sealing { jobs, secret: &options.secret, iv: options.iv, settings, seen };
        let mut outcome = (options.form.seal)(sealing)?;
        outcome.skipped = self.skipped;
        outcome.passed_over = self.passed_over;
        outcome.remarks = self.remarks;
        outcome.failed.extend(failed);
        outcome.failed.extend(finish::end(ground, &place, &tree, outcome.is_stopped));
        outcome.failed.sort_by_cached_key(ToString::to_string);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests;
