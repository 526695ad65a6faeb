// SPDX-License-Identifier: MIT OR Apache-2.0
//! A publisher's hostile books: 400 archives changed at random places and sealed as one library.
//! Each is sealed or refused by name, no file is written outside the target, and every sealed book
//! verifies against its source.
//!
//! Sources: SECURITY.md, "a publisher's input". Does not search for new ways to break the parser;
//! the fuzz target `epub` does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::PROGRAM;
use crate::harness::watchdog::{self, Outcome};
use crate::random::Random;

/// The fuzzer's seeds: a byte that selects the input format, and a small book.
const SEEDS: [&[u8]; 3] = [
    include_bytes!("../../../fuzz/seeds/epub/book"),
    include_bytes!("../../../fuzz/seeds/epub/changes"),
    include_bytes!("../../../fuzz/seeds/epub/zip64"),
];

#[test]
fn hostile_books_are_sealed_right_or_refused_by_name() {
    let desk = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = desk.path();
    fs::create_dir(folder.join("books")).expect("its place is free");
    let mut random = Random::seeded(5);
    for number in 0..BOOKS {
        let mut book = SEEDS[number % SEEDS.len()][1..].to_vec();
        // Most archives whose length changes are refused at once; a flipped bit gets further.
        if number % 4 == 0 {
            random.mutate(&mut book);
        } else {
            random.flip(&mut book);
        }
        fs::write(folder.join(format!("books/{number:03}.epub")), book).expect("room for a book");
    }
    let passphrase = folder.join("passphrase");
    fs::write(&passphrase, "open, Sesame\n").expect("room for a file");
    fs::set_permissions(&passphrase, fs::Permissions::from_mode(0o600)).expect("it is ours");
    assert!(run(folder, &["lcp", "keygen", "keys"]).status.success());

    let sealed = run(
        folder,
        &[
            "seal",
            "epub",
            "books",
            "sealed",
            "--certificate",
            "keys/provider.pem",
            "--signing-key",
            "keys/provider.key",
            "--provider",
            "https://example.org",
            "--hint",
            "Which?",
            "--hint-url",
            "https://example.org/hint",
            "--publication-url",
            "https://example.org/{name}",
            "--passphrase-file",
            "passphrase",
        ],
    );
    assert!(!sealed.stderr.contains("panicked"), "{}", sealed.stderr);
    let done = books(&folder.join("sealed"));
    let refused: Vec<_> = (0..BOOKS)
        .map(|number| format!("{number:03}.epub"))
        .filter(|name| !done.contains(name))
        .collect();
    assert!(!done.is_empty() && !refused.is_empty(), "{} sealed", done.len());
    for name in &refused {
        assert!(sealed.stderr.contains(&format!("books/{name}: ")), "{name}: {}", sealed.stderr);
    }
    assert_eq!(sealed.status.code(), Some(1), "some were refused");

    let left = names(folder);
    assert_eq!(left, ["books", "keys", "passphrase", "sealed"], "nothing else was made");
    // Without the refused ones every source has its sealed book.
    for name in &refused {
        fs::remove_file(folder.join("books").join(name)).expect("it was put there");
    }
    let verified = run(
        folder,
        &[
            "seal",
            "verify",
            "epub",
            "sealed",
            "--passphrase-file",
            "passphrase",
            "--root",
            "keys/root.pem",
            "--source",
            "books",
        ],
    );
    assert!(verified.status.success(), "{}", verified.stderr);
    println!(
        "{} hostile books: {} sealed and verified, {} refused",
        BOOKS,
        done.len(),
        refused.len()
    );
}

fn run(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(folder);
    watchdog::run(&mut command, LIMIT).expect("the program under test is there")
}

fn books(folder: &Path) -> Vec<String> {
    let mut names = names(folder);
    names.retain(|name| name.ends_with(".epub"));
    names
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("UTF-8")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

const BOOKS: usize = 400;
const LIMIT: Duration = Duration::from_secs(120);
