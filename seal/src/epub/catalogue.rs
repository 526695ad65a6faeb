// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run over a book, or all books below a folder: seals, unseals or verifies them.
//!
//! One book needs only its target. A folder's run keeps a journal in the target
//! ([`crate::manifest`]): each book has its line before it gets its name. So the same command, run
//! again after a kill at any moment, skips finished books and does the rest. The journal's key is
//! the user key: another passphrase for the same target is refused before any change. The journal's
//! hash covers the bytes inside the cipher, not the source's: it can be compared with a sealed book
//! when the source no longer exists.
//!
//! At the end of a folder's run its files are synced (`syncfs`) and the journal records it; until
//! then the journal's lines are trusted only until the next boot.
//!
//! Costs a `statx` a book; BLAKE3 of the sealed content.
//!
//! Sources: syncfs(2).
//! Does not follow symbolic links, process files of a folder that are not named `*.epub`, or remove
//! books whose source no longer exists.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;
use simd::cbc::{AesKey, Cbc};
use walkdir::WalkDir;
use zeroize::Zeroizing;

use super::book_journal::BookJournal;
use super::fault::BookFault;
use super::seal_book::Book;
use super::unseal_book::SealedBook;
use super::verify_book::verify as verify_book;
use crate::dir_handle::DirHandle;
use crate::engine::stage::{SealStage, enter};
use crate::engine::{self, Filled, SealOutcome, SealProgress, Settings, Work, WorkStream};
use crate::error::{self, Error, FileFault};
use crate::folder::Durability;
use crate::folder_walk;
use crate::form_conflict;
use crate::key::{Origin, Purpose, Secret};
use crate::lcp::{RootCertificates, Terms, UserKey};
use crate::manifest::{self, Journal, Manifest, ManifestHeader, Time, Writer};
use crate::pending_file::PREFIX;
use crate::target_path::{self, TargetPath};

/// Name of the form in the journal.
pub const FORM: &str = "lcp-basic";

const FOLDER_MODE: Mode = Mode::from_raw_mode(target_path::FOLDER_MODE);

/// Source and target of a run.
#[derive(Clone, Debug)]
pub struct CataloguePaths {
    /// A book, or a folder of books.
    pub source: PathBuf,
    /// Target: for a book a file or the folder it goes into, for a folder a folder.
    pub target: PathBuf,
    /// True: existing files are replaced.
    pub force: bool,
    /// When files reach the disk.
    pub sync: Durability,
}

/// Settings of a sealing run.
#[derive(Clone, Debug)]
pub struct SealSettings {
    /// Terms of the licences.
    pub terms: Arc<Terms>,
    /// Key made from the passphrase that opens the books.
    pub user_key: Arc<UserKey>,
    /// True: each licence is also written beside its book.
    pub licence_beside: bool,
}

/// Settings of a run that opens sealed books.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// Key that opens the licences.
    pub user_key: Arc<UserKey>,
    /// Root certificates; with them each licence must have a signature that they certify.
    pub roots: Option<Arc<RootCertificates>>,
    /// The CBC implementation that deciphers.
    pub cbc: Cbc,
}

/// Work of a run over books.
#[derive(Debug)]
pub struct CataloguePlan<W> {
    works: Vec<W>,
    skipped: u64,
    failed: Vec<Error>,
    passed_over: Vec<Error>,
    journal: Option<Arc<Mutex<Journal>>>,
    sync: Durability,
    /// A folder on the file system that is synced at the end.
    folder: PathBuf,
}

/// A book found in the source.
#[derive(Debug)]
struct FoundBook {
    /// Path relative to the folder, or the book's own name.
    name: OsString,
    source: PathBuf,
    target: PathBuf,
    bytes: u64,
    modified: Time,
    mode: u32,
}

/// Finds the books to be sealed, and in a folder those sealed before.
///
/// # Errors
/// A path that is missing, cannot be made, or is locked by another run: nothing was sealed.
pub fn seal(places: &CataloguePaths, how: &SealSettings) -> Result<CataloguePlan<Book>, Error> {
    check_link(places, &how.terms.publication_url)?;
    let BookSelection { books, mut failed, mut passed_over } = find(places)?;
    passed_over.extend(error::passed_over(&mut failed));
    if places.source.is_dir() {
        form_conflict::refuse_in_film(&places.target)?;
    }
    if books.is_empty() {
        return Ok(CataloguePlan::of_nothing(&places.source, failed, passed_over));
    }
    let work = |found: FoundBook, target, replace, ledger| Book {
        source: found.source,
        target,
        bytes: found.bytes,
        mode: found.mode,
        replace,
        licence_beside: how.licence_beside,
        terms: how.terms.clone(),
        user_key: how.user_key.clone(),
        ledger,
        sync: places.sync == Durability::Each,
    };
    if !places.source.is_dir() {
        let one = |found: FoundBook| {
            let target = TargetPath::Path(found.target.clone());
            work(found, target, places.force, None)
        };
        let works = books.into_iter().map(one).collect();
        let (sync, folder) = (places.sync, places.folder());
        return Ok(CataloguePlan {
            works,
            skipped: 0,
            failed,
            passed_over,
            journal: None,
            sync,
            folder,
        });
    }
    let target = &places.target;
    let root = Arc::new(target_path::open_or_make(target)?);
    if manifest::header_by(&root, Writer::User)?.is_none() {
        form_conflict::refuse_with_films(&root, 1)?;
    }
    let (secret, each) = (journal_key(&how.user_key), places.sync == Durability::Each);
    let mut journal = Journal::open(&root, &secret)?;
    let known = journal.known(&root, &secret)?;
    match &known {
        Some(known) if known.header.form != FORM => {
            return Err(Error::Option {
                option: "TARGET",
                found: format!("{} was sealed as {}", target.display(), known.header.form),
                cure: "name another folder".into(),
            });
        }
        Some(known) => journal.resume(known.good_bytes, each)?,
        None => journal.begin(&ManifestHeader::new(FORM, None, None, &secret)?, each)?,
    }
    // No other run writes here: the journal is locked.
    failed.extend(remove_unfinished(&root));
    let journal = Arc::new(Mutex::new(journal));
    let content_key = secret.derive(Purpose::Content);
    let (mut works, mut skipped) = (Vec::new(), 0);
    for found in books {
        let below = target_path::c_string(Path::new(&found.name))?;
        match book_status(&found, root.stat(&below), known.as_ref(), places.force) {
            BookStatus::Done => skipped += 1,
            BookStatus::Taken(fault) => failed.push(Error::file(&found.target, fault)),
            BookStatus::Open { replace } => {
                if let Err(error) = root.make_folders_of(&below, FOLDER_MODE) {
                    failed.push(error);
                    continue;
                }
                let ledger = BookJournal::new(&journal, &found.name, &content_key);
                works.push(work(
                    found,
                    TargetPath::Below(root.clone(), below),
                    replace,
                    Some(ledger),
                ));
            }
        }
    }
    let (journal, sync, folder) = (Some(journal), places.sync, places.folder());
    Ok(CataloguePlan { works, skipped, failed, passed_over, journal, sync, folder })
}

/// Finds the books to be opened.
///
/// # Errors
/// A path that is missing or cannot be made: nothing was opened.
pub fn unseal(
    places: &CataloguePaths,
    how: &OpenSettings,
) -> Result<CataloguePlan<SealedBook>, Error> {
    let BookSelection { books, mut failed, passed_over } = find(places)?;
    if books.is_empty() {
        return Ok(CataloguePlan::of_nothing(&places.source, failed, passed_over));
    }
    let mut works = Vec::new();
    let root = match places.source.is_dir() {
        true => Some(Arc::new(target_path::open_or_make(&places.target)?)),
        false => None,
    };
    for found in books {
        let target = match &root {
            None => TargetPath::Path(found.target),
            Some(root) => {
                let below = target_path::c_string(Path::new(&found.name))?;
                if let Err(error) = root.make_folders_of(&below, FOLDER_MODE) {
                    failed.push(error);
                    continue;
                }
                TargetPath::Below(root.clone(), below)
            }
        };
        works.push(SealedBook {
            source: found.source,
            target,
            bytes: found.bytes,
            mode: found.mode,
            replace: places.force,
            sync: places.sync == Durability::Each,
            user_key: how.user_key.clone(),
            roots: how.roots.clone(),
            cbc: how.cbc,
        });
    }
    Ok(CataloguePlan {
        works,
        skipped: 0,
        failed,
        passed_over,
        journal: None,
        sync: places.sync,
        folder: places.folder(),
    })
}

/// Finds the books to be verified by a second implementation: with `source` byte for byte, without
/// it against the folder's journal, if there is one.
///
/// # Errors
/// A path that is missing, or a folder sealed with another passphrase.
pub fn verify(
    sealed: &Path,
    source: Option<&Path>,
    how: &OpenSettings,
) -> Result<CataloguePlan<SecondLook>, Error> {
    let places = |from: &Path, to: &Path| CataloguePaths {
        source: from.to_owned(),
        target: to.to_owned(),
        force: false,
        sync: Durability::None,
    };
    let BookSelection { books, mut failed, passed_over } =
        find(&places(sealed, source.unwrap_or(sealed)))?;
    if books.is_empty() {
        return Ok(CataloguePlan::of_nothing(sealed, failed, passed_over));
    }
    if let Some(source) = source.filter(|source| source.is_dir()) {
        for book in find(&places(source, sealed))?.books {
            failed.extend(match book.target.symlink_metadata() {
                Ok(_) => None,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let folder = sealed.display().to_string();
                    Some(Error::file(&book.source, BookFault::NotSealed { folder }.into()))
                }
                Err(error) => Some(Error::host("stat", &book.target)(error)),
            });
        }
    }
    let secret = journal_key(&how.user_key);
    let known = match sealed.is_dir() {
        true => manifest::read(&DirHandle::open(sealed)?, &secret)?,
        false => None,
    };
    let content_key = secret.derive(Purpose::Content);
    let work = |book: FoundBook| {
        let record = known.as_ref().and_then(|known| known.records.get(&*book.name));
        SecondLook {
            content: record.map(|kept| (content_key.clone(), kept.record.content)),
            original: source.map(|_| book.target),
            sealed: book.source,
            bytes: book.bytes,
            how: how.clone(),
        }
    };
    let works = books.into_iter().map(work).collect();
    let folder = sealed.to_owned();
    let (journal, sync) = (None, Durability::None);
    Ok(CataloguePlan { works, skipped: 0, failed, passed_over, journal, sync, folder })
}

/// A sealed book to be verified.
#[derive(Debug)]
pub struct SecondLook {
    sealed: PathBuf,
    original: Option<PathBuf>,
    content: Option<(Zeroizing<[u8; 32]>, [u8; 32])>,
    bytes: u64,
    how: OpenSettings,
}

impl Work for SecondLook {
    type Stream = Self;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn open(self) -> Result<Self, Error> {
        Ok(self)
    }
}

impl WorkStream for SecondLook {
    /// Verifies the whole book in one call, without the lanes: they are what is verified.
    fn fill(&mut self, _: &mut [u8]) -> Result<Filled, Error> {
        enter(SealStage::Check);
        let (user_key, roots) = (&self.how.user_key, self.how.roots.as_deref());
        let content = self.content.as_ref().map(|(key, content)| (&**key, content));
        verify_book(&self.sealed, self.original.as_deref(), user_key, roots, content)?;
        Ok(Filled { source_bytes: self.bytes, is_last: true, ..Filled::default() })
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]) {
        unreachable!("nothing is left for the lanes")
    }

    fn drain(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        Ok(())
    }
}

impl<W: Work> CataloguePlan<W> {
    /// Makes the plan of a source without books: a failure, and no target is made.
    fn of_nothing(source: &Path, mut failed: Vec<Error>, passed_over: Vec<Error>) -> Self {
        let wanted = "EPUB publication (.epub)";
        failed.push(Error::file(source, FileFault::Nothing { wanted }));
        Self {
            works: Vec::new(),
            skipped: 0,
            failed,
            passed_over,
            journal: None,
            sync: Durability::None,
            folder: PathBuf::new(),
        }
    }

    /// Counts the books to be processed.
    pub fn files(&self) -> u64 {
        self.works.len() as u64
    }

    /// Sums the bytes of those books.
    pub fn bytes(&self) -> u64 {
        self.works.iter().map(Work::bytes).sum()
    }

    /// Processes the books.
    pub fn run(self, settings: &Settings, seen: &SealProgress) -> SealOutcome {
        let Self { works, skipped, failed, passed_over, journal, sync, folder } = self;
        let failures = failed.len() as u64;
        seen.failed.fetch_add(failures, std::sync::atomic::Ordering::Relaxed);
        let mut outcome = engine::run(works, settings, seen);
        outcome.skipped = skipped;
        outcome.failed.extend(failed);
        outcome.passed_over = passed_over;
        let synced = match (sync, &journal) {
            (Durability::None, _) => Ok(()),
            (_, None) => sync_all(&folder),
            (_, Some(journal)) => sync_all(&folder)
                .and_then(|()| journal.lock().expect("no worker panicked").synced()),
        };
        outcome.failed.extend(synced.err());
        outcome
    }
}

/// Syncs the file system of `path`.
fn sync_all(path: &Path) -> Result<(), Error> {
    let opened = std::fs::File::open(path).map_err(Error::host("open", path))?;
    rustix::fs::syncfs(&opened).map_err(|errno| Error::host("syncfs", path)(errno.into()))
}

impl CataloguePaths {
    /// Returns the folder that is written to.
    fn folder(&self) -> PathBuf {
        match self.target.parent() {
            _ if self.target.is_dir() => self.target.clone(),
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        }
    }
}

/// Status of a book in a folder's run.
enum BookStatus {
    /// Sealed before, and unchanged since.
    Done,
    /// A file exists that must not be replaced.
    Taken(FileFault),
    /// To be sealed.
    Open { replace: bool },
}

fn book_status(
    found: &FoundBook,
    there: Result<Stat, Errno>,
    known: Option<&Manifest>,
    force: bool,
) -> BookStatus {
    let Ok(there) = there else { return BookStatus::Open { replace: false } };
    // A symlink of the right length is not a sealed book.
    let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
    let there_bytes = if is_file { there.st_size.unsigned_abs() } else { u64::MAX };
    let done = known.and_then(|known| known.is_done(&found.name, found.bytes, found.modified));
    if done.is_some_and(|record| record.sealed_bytes == there_bytes) {
        return BookStatus::Done;
    }
    // This program's file, possibly incomplete after a loss of power.
    let record = known.and_then(|known| known.records.get(&*found.name));
    let is_lost = record.is_some_and(|kept| !kept.is_believed);
    if force || is_lost {
        return BookStatus::Open { replace: true };
    }
    let is_ours = record.is_some_and(|kept| kept.record.sealed_bytes == there_bytes);
    BookStatus::Taken(if is_ours { FileFault::Older } else { FileFault::Exists })
}

/// Books found at or below a source.
#[derive(Default)]
struct BookSelection {
    books: Vec<FoundBook>,
    /// Errors of entries that cannot be read.
    failed: Vec<Error>,
    passed_over: Vec<Error>,
}

/// Finds the books, in the order of their names, and the files that are none.
fn find(places: &CataloguePaths) -> Result<BookSelection, Error> {
    let CataloguePaths { source, target, .. } = places;
    let metadata = source.metadata().map_err(Error::host("stat", source))?;
    if !metadata.is_dir() {
        let name = source.file_name().unwrap_or(OsStr::new("")).to_owned();
        let target = if target.is_dir() { target.join(&name) } else { target.clone() };
        let books = vec![FoundBook::of(name, source.clone(), target, &metadata)];
        return Ok(BookSelection { books, ..BookSelection::default() });
    }
    check_apart(source, target)?;
    let BookSelection { mut books, mut failed, mut passed_over } = BookSelection::default();
    for entry in WalkDir::new(source).sort_by_file_name() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let path = error.path().unwrap_or(source).to_owned();
                let error = error
                    .into_io_error()
                    .unwrap_or_else(|| std::io::Error::other("a folder within itself"));
                failed.push(Error::host("readdir", &path)(error));
                continue;
            }
        };
        let path = entry.path();
        if entry.file_type().is_dir() || is_own(entry.file_name()) {
            continue;
        }
        if !is_called(path, "epub") {
            let reason = if is_called(path, "pdf") { PDF } else { "not called an EPUB (.epub)" };
            passed_over
                .push(Error::file(path, FileFault::PassedOver { reason: reason.to_owned() }));
            continue;
        }
        if !entry.file_type().is_file() {
            let is_link = entry.file_type().is_symlink();
            let fault = if is_link { FileFault::Symlink } else { FileFault::Special };
            failed.push(Error::file(path, fault));
            continue;
        }
        let name = path.strip_prefix(source).expect("below it").as_os_str().to_owned();
        match entry.metadata() {
            Ok(metadata) => {
                let target = target.join(&name);
                books.push(FoundBook::of(name, path.to_owned(), target, &metadata));
            }
            Err(error) => failed.push(Error::host("stat", path)(error.into())),
        }
    }
    Ok(BookSelection { books, failed, passed_over })
}

fn is_called(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case(extension))
}

/// True for names that this program puts beside books.
fn is_own(name: &OsStr) -> bool {
    let is_unfinished = name.as_bytes().starts_with(PREFIX.as_bytes());
    is_unfinished || name == manifest::NAME || is_called(name.as_ref(), "lcpl")
}

const PDF: &str = "a PDF; books are EPUB publications (.epub), convert it or keep it elsewhere";

impl FoundBook {
    fn of(name: OsString, source: PathBuf, target: PathBuf, metadata: &std::fs::Metadata) -> Self {
        Self {
            name,
            source,
            target,
            bytes: metadata.len(),
            modified: Time {
                s: metadata.mtime(),
                ns: u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
            },
            mode: metadata.mode() & 0o777,
        }
    }
}

/// Requires one link a book for a folder's licences, even if it has only one book today: the next
/// run would give a second book the link of the first.
fn check_link(places: &CataloguePaths, link: &str) -> Result<(), Error> {
    if !places.source.is_dir() || link.contains("{name}") {
        return Ok(());
    }
    let found = format!("{link:?} is one link for all books of {}", places.source.display());
    let cure = format!("write {{name}} where the name of a book's file stands, such as {:?}", {
        format!("{}/{{name}}", link.trim_end_matches('/'))
    });
    Err(Error::Option { option: "publication_url", found, cure })
}

/// Refuses a target inside the source: the next run would seal it.
fn check_apart(source: &Path, target: &Path) -> Result<(), Error> {
    let real = |path: &Path| path.canonicalize();
    let (Ok(from), Ok(to)) = (real(source), real(target)) else { return Ok(()) };
    if to != from && to.starts_with(&from) {
        let found = format!("{} is within the source", target.display());
        let cure = "name a folder outside it".into();
        return Err(Error::Option { option: "TARGET", found, cure });
    }
    Ok(())
}

/// Removes unfinished files of a killed run.
fn remove_unfinished(root: &DirHandle) -> Vec<Error> {
    let mut failed = Vec::new();
    for file in folder_walk::walk(root, 1).files {
        let name = Path::new(file.name()).file_name().unwrap_or_default();
        if name.as_bytes().starts_with(PREFIX.as_bytes())
            && let Err(errno) = root.remove(&file.path, AtFlags::empty())
        {
            failed.push(root.error("unlink", &file.path, errno));
        }
    }
    failed
}

/// Makes the key of a folder's journal from the user key.
fn journal_key(user_key: &UserKey) -> Secret {
    let bytes = Zeroizing::new(user_key.bytes().to_vec());
    Secret::new(bytes, Origin::new("passphrase", "")).expect("32 bytes")
}
