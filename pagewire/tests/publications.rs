// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lcp keygen`, `seal epub`, `seal verify epub` and `unseal epub` as a program: exit
//! status, output, files.
//!
//! Does not inspect sealed books; `seal/tests/epub` does, with third-party readers.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pagewire");
/// The fuzzer's seeds: a byte that selects the input format, and a small book.
const BOOKS: [&[u8]; 3] = [
    include_bytes!("../../fuzz/seeds/epub/book"),
    include_bytes!("../../fuzz/seeds/epub/changes"),
    include_bytes!("../../fuzz/seeds/epub/zip64"),
];
const LICENCE: &str = "--certificate keys/provider.pem --signing-key keys/provider.key \
    --provider https://example.org --hint Which? --hint-url https://example.org/hint \
    --publication-url https://example.org/{name}";

/// Creates a folder with a catalogue, a provider and a passphrase.
fn desk() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("books")).unwrap();
    for (number, book) in BOOKS.iter().enumerate() {
        fs::write(folder.path().join(format!("books/{number}.epub")), &book[1..]).unwrap();
    }
    let passphrase = folder.path().join("passphrase");
    fs::write(&passphrase, "open, Sesame\n").unwrap();
    fs::set_permissions(&passphrase, fs::Permissions::from_mode(0o600)).unwrap();
    let made = run(folder.path(), "lcp keygen keys", "");
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    folder
}

fn run(folder: &Path, arguments: &str, more: &str) -> Output {
    Command::new(PROGRAM)
        .args(arguments.split_whitespace().chain(more.split_whitespace()))
        .current_dir(folder)
        .env("SESAME", "open, Sesame")
        .env("WRONG", "open, Simsim")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn expect(output: &Output, status: i32, words: &str) {
    assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
    assert!(stderr(output).contains(words), "{}\nwanted: {words}", stderr(output));
}

fn names(folder: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_catalogue_goes_there_and_back() {
    let desk = desk();
    let folder = desk.path();
    let from_file = format!("{LICENCE} --passphrase-file passphrase");
    expect(&run(folder, "seal epub books sealed", &from_file), 0, "");
    let sealed = [".pagewire-seal", "0.epub", "1.epub", "2.epub"];
    assert_eq!(names(folder.join("sealed")), sealed);
    let again = run(folder, "seal epub books sealed --json", &from_file);
    expect(&again, 0, "");
    let stdout = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(stdout.contains("\"skipped_files\":3"), "{stdout}");

    // The same passphrase from a variable, without the line feed of the file.
    let opened = "--passphrase-env SESAME --root keys/root.pem";
    expect(&run(folder, "seal verify epub sealed", opened), 0, "");
    expect(&run(folder, "seal verify epub sealed --source books", opened), 0, "");
    expect(&run(folder, "unseal epub sealed back", opened), 0, "");
    assert_eq!(names(folder.join("back")), ["0.epub", "1.epub", "2.epub"]);
    expect(&run(folder, "unseal epub sealed/0.epub one.epub", opened), 0, "");
    let other = run(folder, "unseal folder sealed other", "--passphrase-env SESAME");
    expect(&other, 2, "sealed by seal epub; write pagewire unseal epub");

    let wrong = run(folder, "unseal epub sealed other", "--passphrase-env WRONG");
    expect(&wrong, 1, "the passphrase does not open its licence; the hint is \"Which?\"");
    expect(&wrong, 1, "3 failures");
    let wrong = run(folder, "seal verify epub sealed", "--passphrase-env WRONG");
    expect(&wrong, 2, "sealed with");
    let wrong = run(folder, "unseal epub sealed more", "--passphrase-env SESAME --root passphrase");
    expect(&wrong, 2, "--root: passphrase: no certificate in PEM; name the root");
}

#[test]
fn what_cannot_be_taken_is_named_and_the_others_are_done() {
    let desk = desk();
    let folder = desk.path();
    let options = format!("{LICENCE} --passphrase-env SESAME");
    fs::write(folder.join("books/torn.epub"), &BOOKS[0][1..400]).unwrap();
    let sealed = run(folder, "seal epub books sealed --licence-beside", &options);
    expect(&sealed, 1, "pagewire: books/torn.epub: is not a zip archive: ");
    assert_eq!(names(folder.join("sealed")).len(), 1 + 2 * BOOKS.len());
    let twice = run(folder, "seal epub sealed/0.epub twice.epub", &options);
    expect(&twice, 1, "sealed/0.epub: is protected already: it has META-INF/encryption.xml; give");
    let clear = run(folder, "unseal epub books/0.epub clear.epub", "--passphrase-env SESAME");
    expect(&clear, 1, "books/0.epub: is not protected: it has no META-INF/license.lcpl");
    let there = run(folder, "seal epub books/0.epub one.epub", &options);
    expect(&there, 0, "");
    let there = run(folder, "seal epub books/0.epub one.epub", &options);
    expect(&there, 1, "one.epub: is there already; replace it by force (--force)");
    expect(&run(folder, "seal epub books/0.epub one.epub --force", &options), 0, "");
}

#[test]
fn a_wrong_option_is_said_before_any_book_is_touched() {
    let desk = desk();
    let folder = desk.path();
    let with = |from: &str, to: &str| {
        let options = format!("{LICENCE} --passphrase-env SESAME").replace(from, to);
        run(folder, "seal epub books sealed", &options)
    };
    expect(&with("provider.key", "root.key"), 2, "root.key: not the key of the certificate");
    expect(&with("provider.pem", "provider.key"), 2, "no certificate in PEM; pagewire lcp keygen");
    expect(
        &with("provider https://", "provider "),
        2,
        "--provider: \"example.org\": no URI; write",
    );
    expect(&with("SESAME", "NO_SUCH"), 2, "--passphrase-env: NO_SUCH: no such environment");
    expect(&with("--hint Which?", "--hint ? --end never"), 2, "--end: \"never\": no date; write");
    expect(
        &with("https://example.org/{name}", "https://example.org/books"),
        2,
        "--publication-url: \"https://example.org/books\" is one link for all books of books; \
         write {name} where the name of a book's file stands, such as \
         \"https://example.org/books/{name}\"",
    );
    expect(&with("--passphrase-env SESAME", ""), 2, "no terminal to ask for it");
    expect(&with("--passphrase-env SESAME", "--passphrase open"), 2, "unexpected argument");
    assert!(!folder.join("sealed").exists());
    expect(&run(folder, "lcp keygen keys", ""), 2, "keys/root.pem is there already; name another");
    let mode = fs::metadata(folder.join("keys/provider.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn one_book_may_have_a_link_of_its_own() {
    let desk = desk();
    let options = format!("{LICENCE} --passphrase-env SESAME").replace("{name}", "book");
    expect(&run(desk.path(), "seal epub books/0.epub one.epub", &options), 0, "");
}

#[test]
fn what_is_passed_over_is_named_and_counted_and_nothing_found_is_an_error() {
    let desk = desk();
    let folder = desk.path();
    let options = format!("{LICENCE} --passphrase-env SESAME");
    for other in ["books/paper.pdf", "books/cover.jpg", "films/film.mp4", "films/notes.txt"] {
        fs::create_dir_all(folder.join(other).parent().unwrap()).unwrap();
        fs::write(folder.join(other), "no book").unwrap();
    }
    let sealed = run(folder, "seal epub books sealed", &options);
    expect(
        &sealed,
        0,
        "pagewire: books/paper.pdf: passed over: a PDF; books are EPUB publications",
    );
    expect(&sealed, 0, "pagewire: books/cover.jpg: passed over: not called an EPUB (.epub)\n");
    expect(&sealed, 0, "pagewire: 2 files passed over");
    let shown = String::from_utf8_lossy(&sealed.stdout).into_owned();
    assert!(shown.contains("3 files, ") && shown.contains("; 2 files passed over"), "{shown}");
    // Its own files beside the books are not counted as passed over.
    let opened = run(folder, "unseal epub sealed back", "--passphrase-env SESAME");
    assert_eq!((opened.status.code(), stderr(&opened)), (Some(0), String::new()));

    fs::write(folder.join("key"), "5a".repeat(32)).unwrap();
    for (command, more, looked_for) in [
        ("seal epub films none", options.as_str(), "no EPUB publication (.epub)"),
        ("unseal epub films none", "--passphrase-env SESAME", "no EPUB publication (.epub)"),
        ("seal verify epub films", "--passphrase-env SESAME", "no EPUB publication (.epub)"),
        ("seal hls films none --key-file key", "", "no transport stream (.ts, "),
        ("seal hls films none --no-key --json", "", "no transport stream (.ts, "),
    ] {
        let output = run(folder, command, more);
        expect(&output, 1, &format!("pagewire: films: nothing here to be worked on: {looked_for}"));
        expect(&output, 1, "pagewire: films/film.mp4: passed over: ");
        expect(&output, 1, "pagewire: 2 files passed over");
        assert!(!folder.join("none").exists(), "{command}: an empty target");
    }
    let script = run(folder, "seal hls films none --no-key --json", "");
    let script = String::from_utf8_lossy(&script.stdout).into_owned();
    assert!(script.contains("\"passed_over_files\":2"), "{script}");
    // A file with a film's extension that is not a film: no target is made either.
    fs::rename(folder.join("films/film.mp4"), folder.join("films/film.ts")).unwrap();
    let output = run(folder, "seal hls films none --no-key", "");
    expect(&output, 1, "films/film.ts: ");
    assert!(!folder.join("none").exists());
}
