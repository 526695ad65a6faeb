// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of books: finished books are skipped, killed runs are continued, and one book's failure
//! does not stop the others.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use seal::engine::{SealOutcome, SealProgress, Settings};
use seal::epub::catalogue::{self, CataloguePaths, OpenSettings, SealSettings, seal, unseal};
use seal::epub::verify;
use seal::folder::Durability;
use seal::lcp::Algorithm;

use crate::books;
use crate::{Desk, user_key};

fn places(desk: &Desk, target: &str) -> CataloguePaths {
    CataloguePaths {
        source: desk.path("books"),
        target: desk.path(target),
        force: false,
        sync: Durability::End,
    }
}

fn how(desk: &Desk) -> SealSettings {
    SealSettings {
        terms: desk.terms.clone(),
        user_key: desk.user_key.clone(),
        licence_beside: false,
    }
}

fn opened(desk: &Desk) -> OpenSettings {
    let cbc = Settings::here(None).cbc;
    OpenSettings { user_key: desk.user_key.clone(), roots: Some(desk.roots().into()), cbc }
}

fn sealed(desk: &Desk, places: &CataloguePaths) -> SealOutcome {
    seal(places, &how(desk)).unwrap().run(&Settings::here(Some(2)), &SealProgress::default())
}

/// Verifies and returns the errors of faulty books.
fn verified(desk: &Desk, sealed: &Path, source: Option<&Path>) -> Vec<String> {
    let plan = catalogue::verify(sealed, source, &opened(desk)).unwrap();
    let (files, settings) = (plan.files(), Settings::here(Some(2)));
    let outcome = plan.run(&settings, &SealProgress::default());
    assert!(files > 0 && outcome.done + outcome.failed.len() as u64 >= files);
    outcome.failed.iter().map(ToString::to_string).collect()
}

/// Makes a folder of `count` books, some of them in folders below.
fn desk_of(count: u64, bytes: usize) -> Desk {
    let desk = Desk::new(Algorithm::Ecdsa);
    for seed in 0..count {
        let folder = desk.path("books").join(if seed % 3 == 0 { "a/b" } else { "" });
        std::fs::create_dir_all(&folder).unwrap();
        let name = format!("{seed}.{}", if seed % 4 == 0 { "EPUB" } else { "epub" });
        let bytes = books::ordinary(seed, bytes + seed as usize * 1000);
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    std::fs::write(desk.path("books").join("notes.txt"), "no book").unwrap();
    desk
}

/// Returns every file below a folder with its inode, which changes when a file is written again.
fn files(folder: &Path) -> BTreeMap<PathBuf, u64> {
    use std::os::unix::fs::MetadataExt;
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files.extend(self::files(&entry.path()));
        } else {
            files.insert(entry.path(), entry.metadata().unwrap().ino());
        }
    }
    files
}

#[test]
fn a_second_run_does_what_the_first_left() {
    let desk = desk_of(9, 30_000);
    let places = places(&desk, "sealed");
    let outcome = sealed(&desk, &places);
    assert_eq!((outcome.done, outcome.skipped), (9, 0), "{:?}", outcome.failed);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let before = files(&places.target);
    assert_eq!(before.len(), 9 + 1, "{before:?}");

    let again = sealed(&desk, &places);
    assert_eq!((again.done, again.skipped, again.failed.len()), (0, 9, 0), "{:?}", again.failed);
    assert_eq!(files(&places.target), before);

    // One book is lost, one is new, one has changed since.
    let lost = places.target.join("a/b/3.epub");
    std::fs::remove_file(&lost).unwrap();
    std::fs::write(places.source.join("new.epub"), books::ordinary(77, 5000)).unwrap();
    std::fs::write(places.source.join("1.epub"), books::ordinary(78, 5000)).unwrap();
    let third = sealed(&desk, &places);
    assert_eq!((third.done, third.skipped, third.failed.len()), (2, 7, 1), "{:?}", third.failed);
    let message = third.failed[0].to_string();
    assert!(message.contains("1.epub: ") && message.contains("by force"), "{message}");
    let fourth = sealed(&desk, &CataloguePaths { force: true, ..places.clone() });
    assert_eq!((fourth.done, fourth.skipped), (1, 9), "{:?}", fourth.failed);

    for source in [None, Some(places.source.as_path())] {
        assert_eq!(verified(&desk, &places.target, source), Vec::<String>::new());
    }
    // A missing book is reported.
    std::fs::remove_file(&lost).unwrap();
    let messages = verified(&desk, &places.target, Some(&places.source));
    assert!(messages.len() == 1 && messages[0].contains("3.epub: not in "), "{messages:?}");
    assert!(messages[0].ends_with("; seal it"), "{messages:?}");
}

#[test]
fn the_journal_tells_a_book_that_was_exchanged() {
    let desk = desk_of(2, 5000);
    let places = places(&desk, "sealed");
    sealed(&desk, &places);
    // Sealed by the same provider with the same passphrase, but not in this folder.
    let other = desk.write("other.epub", &books::ordinary(55, 5000));
    let target = places.target.join("1.epub");
    std::fs::remove_file(&target).unwrap();
    crate::well(vec![desk.book(&other, &target)]);
    let messages = verified(&desk, &places.target, None);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("is not what the folder's journal says"), "{messages:?}");
}

#[test]
fn one_bad_book_fails_alone() {
    let desk = desk_of(6, 20_000);
    let places = places(&desk, "sealed");
    std::fs::write(places.source.join("2.epub"), "no book at all").unwrap();
    std::os::unix::fs::symlink("1.epub", places.source.join("link.epub")).unwrap();
    let outcome = sealed(&desk, &places);
    assert_eq!((outcome.done, outcome.failed.len()), (5, 1), "{:?}", outcome.failed);
    let message = outcome.failed[0].to_string();
    assert!(message.contains("2.epub: is not a zip archive"), "{message}");
    assert_eq!(outcome.passed_over.len(), 2, "{:?}", outcome.passed_over);
    let message = outcome.passed_over[1].to_string();
    assert!(
        message.contains("link.epub: passed over: a symlink, which is not followed"),
        "{message}"
    );
}

#[test]
fn another_passphrase_or_a_target_within_touches_nothing() {
    let desk = desk_of(2, 5000);
    let target = places(&desk, "sealed");
    sealed(&desk, &target);
    let before = files(&target.target);
    let other = SealSettings { user_key: user_key("other").into(), ..how(&desk) };
    let error = seal(&target, &other).unwrap_err();
    assert!(error.is_caller() && error.to_string().contains("sealed was sealed with"), "{error}");
    assert_eq!(files(&target.target), before);

    let within = desk.path("books/sealed");
    std::fs::create_dir(&within).unwrap();
    let within = CataloguePaths { target: within, ..target };
    let error = seal(&within, &how(&desk)).unwrap_err();
    assert!(error.is_caller() && error.to_string().contains("is within the source"), "{error}");
}

#[test]
fn a_folder_goes_there_and_back() {
    let desk = desk_of(4, 20_000);
    let there = places(&desk, "sealed");
    sealed(&desk, &there);
    let back = CataloguePaths {
        source: there.target.clone(),
        target: desk.path("back"),
        force: false,
        sync: Durability::End,
    };
    let plan = unseal(&back, &opened(&desk)).unwrap();
    assert_eq!(plan.files(), 4);
    let outcome = plan.run(&Settings::here(Some(2)), &SealProgress::default());
    assert_eq!(outcome.done, 4, "{:?}", outcome.failed);
    // Sealed again, they verify against the first sources: every resource is the same.
    let again = CataloguePaths {
        source: back.target,
        target: desk.path("again"),
        force: false,
        sync: Durability::End,
    };
    sealed(&desk, &again);
    assert_eq!(verified(&desk, &again.target, Some(&there.source)), Vec::<String>::new());
}

#[test]
fn one_book_goes_into_a_folder_or_takes_a_name() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let source = desk.write("book.epub", &books::ordinary(3, 5000));
    std::fs::create_dir(desk.path("folder")).unwrap();
    for (target, sealed_at) in [("folder", "folder/book.epub"), ("name.epub", "name.epub")] {
        let places = CataloguePaths {
            source: source.clone(),
            target: desk.path(target),
            force: false,
            sync: Durability::End,
        };
        let outcome = sealed(&desk, &places);
        assert_eq!(outcome.done, 1, "{:?}", outcome.failed);
        verify(&desk.path(sealed_at), Some(&source), &desk.user_key, None, None).unwrap();
    }
    assert_eq!(std::fs::read_dir(desk.path("folder")).unwrap().count(), 1);
}

/// Runs this test program again as a child that seals, kills it at 20 moments, and lets it finish.
#[test]
fn a_run_that_is_killed_at_any_moment_is_gone_on_with() {
    const CHILD: &str = "SEAL_TEST_CHILD";
    if let Ok(folder) = std::env::var(CHILD) {
        return seal_as_child(Path::new(&folder));
    }
    let desk = desk_of(40, 150_000);
    let mut killed = 0;
    for moment in 0..20_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "catalogues::a_run_that_is_killed_at_any_moment_is_gone_on_with"])
            .env(CHILD, desk.folder.path())
            .stdout(std::process::Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(3 + moment * 7));
        child.kill().unwrap();
        killed += u64::from(!child.wait().unwrap().success());
        // A file with its final name is complete at every moment.
        let target = desk.path("sealed");
        for file in target.is_dir().then(|| files(&target)).into_iter().flatten() {
            let name = file.0.strip_prefix(&target).unwrap().to_owned();
            let is_hidden = name.file_name().unwrap().to_string_lossy().starts_with('.');
            if !is_hidden {
                let source = desk.path("books").join(name);
                verify(&file.0, Some(&source), &desk.user_key, None, None).unwrap();
            }
        }
    }
    assert!(killed > 0, "no run was killed before its end");
    let places = places(&desk, "sealed");
    let outcome = sealed(&desk, &places);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(outcome.done + outcome.skipped, 40);
    assert_eq!(files(&places.target).len(), 41, "{:?}", files(&places.target));
    assert_eq!(verified(&desk, &places.target, Some(&places.source)), Vec::<String>::new());
}

/// Seals with the provider's files that the parent left in `folder`.
fn seal_as_child(folder: &Path) {
    let desk = Desk::again(folder);
    let places = CataloguePaths {
        source: folder.join("books"),
        target: folder.join("sealed"),
        force: false,
        sync: Durability::End,
    };
    let sealed = SealSettings {
        terms: desk,
        user_key: user_key(crate::PASSPHRASE).into(),
        licence_beside: false,
    };
    seal(&places, &sealed).unwrap().run(&Settings::here(Some(2)), &SealProgress::default());
}
