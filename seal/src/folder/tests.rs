// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sealed folders: their contents, and the files that are never changed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use super::*;
use crate::engine::SLICE_BYTES;
use crate::key::Origin;

const IV: [u8; 16] = *b"0123456789abcdef";

struct Folders {
    folder: tempfile::TempDir,
}

impl Folders {
    /// Makes a source with files about every border, nested folders, and names of any bytes.
    fn new() -> Self {
        let folders = Self { folder: tempfile::tempdir().unwrap() };
        let source = folders.source();
        fs::create_dir_all(source.join("deep/er")).unwrap();
        fs::create_dir(source.join("empty")).unwrap();
        for bytes in [0, 1, 15, 16, 17, 4096, SLICE_BYTES - 1, SLICE_BYTES, 3 * SLICE_BYTES + 5] {
            write(&source.join(format!("{bytes}")), bytes);
        }
        write(&source.join("deep/er/two slices"), 2 * SLICE_BYTES);
        write(&source.join(OsStr::from_bytes(b"deep/\xff\\\n")), 100);
        for number in 0..200 {
            write(&source.join(format!("deep/{number}")), number * 7);
        }
        folders
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("target")
    }

    fn options(&self, form: &str, iv: Option<[u8; 16]>) -> FolderOptions {
        let form = FolderForm::named(form).unwrap();
        FolderOptions {
            source: self.source(),
            target: self.target(),
            form,
            iv,
            secret: secret(form.key_bytes),
            stretch: None,
            sync: Durability::None,
            force: false,
            verify: false,
        }
    }

    fn seal(&self, options: FolderOptions) -> SealOutcome {
        let outcome = sealed(options).unwrap();
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        outcome
    }

    /// Returns the name of the working folder.
    fn hidden(&self) -> String {
        let mut entries = fs::read_dir(self.folder.path()).unwrap();
        let is_hidden = |name: &str| name.starts_with(".pagewire-unfinished-seal-target.");
        entries
            .find_map(|entry| {
                entry.unwrap().file_name().into_string().ok().filter(|n| is_hidden(n))
            })
            .expect("a working folder")
    }

    /// Lists names beside source and target, and unfinished names below the target.
    fn left(&self) -> Vec<String> {
        let root = DirHandle::open(self.folder.path()).unwrap();
        let tree = folder_walk::walk(&root, 1);
        let names = tree.files.iter().map(|file| &file.path);
        let names = names.chain(tree.folders.iter().map(|folder| &folder.path));
        let names = names.map(|path| path.to_string_lossy().into_owned());
        names.filter(|name| name.contains("unfinished")).collect()
    }
}

fn write(path: &Path, bytes: usize) {
    let noise: Vec<u8> = (0..bytes).map(|at| (at * at / 5 + at + bytes) as u8).collect();
    fs::write(path, noise).unwrap();
}

fn secret(bytes: usize) -> Secret {
    let key = (0..bytes as u8).collect();
    Secret::new(Zeroizing::new(key), Origin::new("--key-file", "book.key")).unwrap()
}

fn sealed(options: FolderOptions) -> Result<SealOutcome, Error> {
    plan(options, 2)?.seal(&Settings::here(Some(2)), &SealProgress::default())
}

fn refusal(options: FolderOptions) -> String {
    let error = sealed(options).expect_err("refused");
    assert!(error.is_caller(), "{error}");
    error.to_string()
}

fn files(folder: &Path) -> Vec<folder_walk::File> {
    let mut files = folder_walk::walk(&DirHandle::open(folder).unwrap(), 1).files;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Asserts that every file of the source is in the target, opens to the same bytes, and keeps mode
/// and time.
fn assert_sealed(options: &FolderOptions) {
    let expected = files(&options.source);
    let found = files(&options.target);
    let found: Vec<_> =
        found.iter().filter(|file| file.name() != OsStr::new(manifest::NAME)).collect();
    assert_eq!(found.len(), expected.len());
    let key = simd::cbc::AesKey::new(options.secret.bytes()).unwrap();
    for (one, other) in expected.iter().zip(found) {
        assert_eq!(one.path, other.path);
        assert_eq!((one.mode, one.modified), (other.mode, other.modified), "{:?}", one.path);
        let mut sealed = fs::read(options.target.join(other.name())).unwrap();
        assert_eq!(
            sealed.len() as u64,
            (options.form.sealed_bytes)(one.bytes, options.iv.is_none())
        );
        let front = if options.iv.is_some() { 0 } else { 16 };
        let (iv, sealed) = sealed.split_at_mut(front);
        let mut iv = options.iv.unwrap_or_else(|| (*iv).try_into().unwrap());
        simd::Kernels::here().cbc.decrypt(&key, &mut iv, sealed);
        let padding = usize::from(*sealed.last().unwrap());
        assert!((1..=16).contains(&padding));
        let (bytes, pad) = sealed.split_at(sealed.len() - padding);
        assert!(pad.iter().all(|&byte| usize::from(byte) == padding));
        assert!(fs::read(options.source.join(one.name())).unwrap() == bytes, "{:?}", one.path);
    }
}

#[test]
fn every_file_is_sealed_with_its_mode_and_time_in_every_form() {
    for iv in [None, Some(IV)] {
        for form in FORMS.iter().filter(|form| form.takes_iv) {
            let folders = Folders::new();
            let old = SystemTime::now() - Duration::from_secs(1_000_000);
            let odd = folders.source().join("17");
            fs::File::open(&odd).unwrap().set_modified(old).unwrap();
            fs::set_permissions(&odd, PermissionsExt::from_mode(0o462)).unwrap();
            let sync = if iv.is_some() { Durability::End } else { Durability::Each };
            let options = FolderOptions { sync, ..folders.options(form.name, iv) };
            let outcome = folders.seal(options.clone());
            assert_eq!((outcome.done, outcome.skipped), (files(&options.source).len() as u64, 0));
            assert_sealed(&options);
            assert!(folders.left().is_empty());
            assert!(options.target.join("empty").is_dir());
        }
    }
}

#[test]
fn ivs_are_given_or_all_differ() {
    let folders = Folders::new();
    let options = folders.options("aes-256-cbc", None);
    folders.seal(options.clone());
    let fronts: std::collections::HashSet<Vec<u8>> = files(&options.target)
        .iter()
        .filter(|file| file.name() != OsStr::new(manifest::NAME))
        .map(|file| fs::read(options.target.join(file.name())).unwrap()[..16].to_vec())
        .collect();
    assert_eq!(fronts.len(), files(&options.source).len());
}

#[test]
fn folders_keep_mode_and_time_and_may_be_read_only() {
    for is_there in [false, true] {
        let folders = Folders::new();
        let deep = folders.source().join("deep");
        let old = SystemTime::now() - Duration::from_secs(2_000_000);
        fs::File::open(&deep).unwrap().set_modified(old).unwrap();
        fs::set_permissions(&deep, PermissionsExt::from_mode(0o555)).unwrap();
        if is_there {
            fs::create_dir(folders.target()).unwrap();
        }
        let options = folders.options("aes-128-cbc", None);
        folders.seal(options.clone());
        let [one, other] =
            [&options.source, &options.target].map(|path| fs::metadata(path.join("deep")).unwrap());
        assert_eq!((one.mode(), one.mtime_nsec()), (other.mode(), other.mtime_nsec()));
        assert_sealed(&options);
        // Repeated with one file lost, into a folder that is now read-only.
        fs::set_permissions(options.target.join("deep"), PermissionsExt::from_mode(0o755)).unwrap();
        fs::remove_file(options.target.join("deep/7")).unwrap();
        fs::set_permissions(options.target.join("deep"), PermissionsExt::from_mode(0o555)).unwrap();
        assert_eq!(folders.seal(options.clone()).done, 1);
        assert_sealed(&options);
        fs::set_permissions(deep, PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(options.target.join("deep"), PermissionsExt::from_mode(0o755)).unwrap();
    }
}

#[test]
fn what_is_done_is_skipped_and_what_is_there_is_not_touched() {
    let folders = Folders::new();
    let options = folders.options("aes-256-cbc", None);
    let all = folders.seal(options.clone()).done;
    let before = fs::read(options.target.join("4096")).unwrap();
    assert_eq!(folders.seal(options.clone()).skipped, all);
    assert_eq!(fs::read(options.target.join("4096")).unwrap(), before);

    // One file lost, one new, one changed, one damaged, and one damaged that kept its size.
    fs::remove_file(options.target.join("16")).unwrap();
    write(&options.source.join("new"), 50);
    write(&options.source.join("4096"), 4095);
    fs::write(options.target.join("17"), b"damaged").unwrap();
    let mut damaged = fs::read(options.target.join("1")).unwrap();
    damaged[5] ^= 1;
    fs::write(options.target.join("1"), damaged).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    let file = fs::File::options().write(true).open(options.target.join("1")).unwrap();
    file.set_modified(later).unwrap();
    let outcome = sealed(options.clone()).unwrap();
    assert_eq!((outcome.done, outcome.skipped), (4, all - 4));
    let noted = outcome.remarks[0].to_string();
    assert!(noted.contains("target: 2 files not as sealed, such as 1"), "{noted}");
    let messages: Vec<_> = outcome.failed.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("target/4096: was sealed from an earlier state of its source"),
        "{messages:?}"
    );
    assert_eq!(fs::read(options.target.join("4096")).unwrap(), before);

    let forced = FolderOptions { force: true, ..options.clone() };
    assert_eq!(folders.seal(forced).done, all + 1);
    assert_sealed(&options);
    assert!(folders.left().is_empty());
}

#[test]
fn a_source_that_changes_or_goes_fails_alone() {
    let folders = Folders::new();
    let options = folders.options("aes-128-cbc", Some(IV));
    let plan = plan(options.clone(), 2).unwrap();
    let all = plan.files();
    write(&options.source.join("4096"), 4097);
    write(&options.source.join("17"), 16);
    fs::remove_file(options.source.join("deep/3")).unwrap();
    let grown = options.source.join(format!("{}", SLICE_BYTES));
    let time = fs::metadata(&grown).unwrap().modified().unwrap();
    let mut bytes = fs::read(&grown).unwrap();
    bytes.push(1);
    fs::write(&grown, bytes).unwrap();
    fs::File::open(&grown).unwrap().set_modified(time).unwrap();
    let replaced = options.source.join("16");
    fs::write(options.source.join("other"), b"another of 16 by").unwrap();
    let time = fs::metadata(&replaced).unwrap().modified().unwrap();
    fs::File::open(options.source.join("other")).unwrap().set_modified(time).unwrap();
    fs::rename(options.source.join("other"), &replaced).unwrap();

    let outcome = plan.seal(&Settings::here(Some(1)), &SealProgress::default()).unwrap();
    assert_eq!((outcome.done, outcome.failed.len()), (all - 5, 5));
    let changed = outcome.failed.iter().filter(|error| error.to_string().contains("changed while"));
    assert_eq!(changed.count(), 4, "{:?}", outcome.failed);
    for name in ["4096", "17", "16", "deep/3"] {
        assert!(!options.target.join(name).exists(), "{name}");
    }
    assert!(folders.left().is_empty());
}

#[test]
fn a_change_in_place_whose_time_was_set_back_is_noticed() {
    let folders = Folders::new();
    let options = folders.options("aes-256-cbc", None);
    let plan = plan(options.clone(), 1).unwrap();
    let all = plan.files();
    let path = options.source.join("4096");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 100).unwrap();
    file.set_modified(time).unwrap();
    let outcome = plan.seal(&Settings::here(Some(1)), &SealProgress::default()).unwrap();
    assert_eq!((outcome.done, outcome.failed.len()), (all - 1, 1), "{:?}", outcome.failed);
    assert!(outcome.failed[0].to_string().contains("4096: changed while it was read"));
    // A second walk of an unchanged folder finds the same.
    fs::remove_dir_all(&options.target).unwrap();
    folders.seal(FolderOptions { verify: true, ..options.clone() });
    assert_sealed(&options);
}

#[test]
fn symlinks_specials_and_names_of_its_own_are_reported_and_not_followed() {
    let folders = Folders::new();
    let source = folders.source();
    symlink("/etc/passwd", source.join("link")).unwrap();
    symlink("deep", source.join("folder link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        source.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    write(&source.join(manifest::NAME), 5);
    write(&source.join(".pagewire-unfinished-1-1"), 5);
    let outcome = sealed(folders.options("aes-256-cbc", None)).unwrap();
    assert_eq!(outcome.failed.len(), 2, "{:?}", outcome.failed);
    let passed: Vec<_> = outcome.passed_over.iter().map(ToString::to_string).collect();
    assert_eq!(passed.len(), 3, "{passed:?}");
    assert!(passed.iter().all(|message| message.contains(": passed over: ")), "{passed:?}");
    assert!(!folders.target().join("link").exists());
    assert!(!folders.target().join("folder link").exists());
}

#[test]
fn a_folder_of_links_alone_has_nothing_to_be_sealed_and_an_empty_one_stays_empty() {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("links");
    fs::create_dir(&source).unwrap();
    let options = FolderOptions {
        source: source.clone(),
        target: place.path().join("sealed"),
        ..Folders::new().options("gcm", None)
    };
    let outcome = sealed(options.clone()).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    symlink("/etc/passwd", source.join("link")).unwrap();
    let outcome = sealed(options).unwrap();
    assert_eq!((outcome.failed.len(), outcome.passed_over.len()), (1, 1));
    let message = outcome.failed[0].to_string();
    assert!(message.contains("links: nothing here to be worked on: no regular file"), "{message}");
}

#[test]
fn films_and_sealed_files_do_not_share_a_target() {
    let folders = Folders::new();
    let target = folders.target();
    fs::create_dir_all(target.join("sub/film")).unwrap();
    fs::write(target.join("sub/film/.pagewire-film"), "").unwrap();
    let refused = refusal(folders.options("gcm", None));
    assert!(refused.contains("sub/film was made by seal hls"), "{refused}");
    assert!(!target.join(manifest::NAME).exists(), "nothing was touched");
    let within = target.join("sub/film/deeper");
    let refused = refusal(FolderOptions { target: within.clone(), ..folders.options("gcm", None) });
    assert!(refused.contains("sub/film was made by seal hls") && !within.exists(), "{refused}");
    fs::remove_dir_all(target.join("sub")).unwrap();
    folders.seal(folders.options("gcm", None));

    // A film sealed as files of the source is not a film in the target.
    fs::create_dir(folders.source().join("film")).unwrap();
    fs::write(folders.source().join("film/.pagewire-film"), "a journal").unwrap();
    folders.seal(folders.options("gcm", None));
    folders.seal(folders.options("gcm", None));
}

#[test]
fn a_run_that_ended_early_is_gone_on_with() {
    let folders = Folders::new();
    let options = folders.options("aes-256-cbc", None);
    // State after a kill: the hidden folder has some files recorded, others half written.
    let plan = plan(options.clone(), 1).unwrap();
    let all = plan.files();
    let seen = SealProgress::default();
    seen.stop.store(true, Ordering::Relaxed);
    assert!(plan.seal(&Settings::here(Some(1)), &seen).unwrap().is_stopped);
    let hidden = folders.folder.path().join(folders.hidden());
    assert!(hidden.is_dir() && !options.target.exists());
    fs::write(hidden.join("4096"), b"half of it").unwrap();
    fs::create_dir(hidden.join("gone from the source")).unwrap();
    fs::write(hidden.join("gone from the source/file"), b"x").unwrap();
    let journal = hidden.join(manifest::NAME);
    let torn = [fs::read(&journal).unwrap(), b"0123456789abcdef {\"fi".to_vec()].concat();
    fs::write(&journal, torn).unwrap();

    assert_eq!(folders.seal(options.clone()).done, all);
    assert_sealed(&options);
    assert!(!options.target.join("gone from the source").exists());
    assert!(folders.left().is_empty());

    // In an existing folder: unfinished files beside the targets are removed, finished ones stay.
    fs::remove_file(options.target.join("4096")).unwrap();
    fs::write(options.target.join("deep/.pagewire-unfinished-1-1"), b"half of it").unwrap();
    let outcome = folders.seal(options.clone());
    assert_eq!((outcome.done, outcome.skipped), (1, all - 1));
    assert_sealed(&options);
    assert!(folders.left().is_empty());
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_touched() {
    let folders = Folders::new();
    let options = folders.options("aes-256-cbc", None);
    let to = |target: &str| refusal(FolderOptions { target: target.into(), ..options.clone() });
    let source = folders.source().display().to_string();
    assert!(to(&source).contains("the source itself"));
    assert!(to(&format!("{source}/deep/new")).contains("inside the source"));
    assert!(to(&folders.folder.path().display().to_string()).contains("the source is inside it"));
    symlink(&source, folders.folder.path().join("alias")).unwrap();
    assert!(to(&folders.folder.path().join("alias/x").display().to_string()).contains("inside"));
    assert!(folders.left().is_empty() && !folders.target().exists());
    let short = refusal(FolderOptions { secret: secret(16), ..options.clone() });
    assert!(short.contains("a key of 16 bytes; aes-256-cbc takes 32"), "{short}");

    folders.seal(options.clone());
    let before = fs::read(options.target.join(manifest::NAME)).unwrap();
    let other = Zeroizing::new(vec![9; 32]);
    let other = Secret::new(other, Origin::new("--key-file", "other.key")).unwrap();
    let wrong = refusal(FolderOptions { secret: other, ..options.clone() });
    assert!(wrong.contains("other.key") && wrong.contains("was sealed with"), "{wrong}");
    let form = refusal(folders.options("aes-128-cbc", None));
    assert!(form.starts_with("form: ") && form.contains("was sealed as aes-256-cbc"), "{form}");
    let iv = refusal(FolderOptions { iv: Some(IV), ..options.clone() });
    assert!(iv.starts_with("iv: ") && iv.contains("a random one for each file"), "{iv}");
    assert_eq!(fs::read(options.target.join(manifest::NAME)).unwrap(), before);
}

#[test]
fn a_folder_is_one_run_s_at_a_time() {
    let folders = Folders::new();
    let options = folders.options("aes-256-cbc", None);
    let first = plan(options.clone(), 1).unwrap();
    let error = plan(options.clone(), 1).expect_err("refused");
    assert!(error.to_string().contains("another run is at work"), "{error}");
    first.seal(&Settings::here(Some(1)), &SealProgress::default()).unwrap();
    folders.seal(options);
}
