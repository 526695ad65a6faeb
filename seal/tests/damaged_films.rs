// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of films with incomplete folders: `verify` and `unseal` name them, the next run of `seal`
//! makes them anew.
//!
//! The film is the demo's clip, 14 s of H.264 and AAC.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use seal::Error;
use seal::engine::{SealOutcome, SealProgress, Settings};
use seal::hls::{
    Durability, HlsOptions, HlsProgress, KeyUri, Keys, MASTER, MEDIA, Protection, SegmentKeySource,
    seal, unseal, verify,
};
use seal::key::{Origin, Secret};
use zeroize::Zeroizing;

static CLIP: &[u8] = include_bytes!("../../pagewire/assets/clip.ts");

fn keys(byte: u8) -> Keys {
    let bytes = Zeroizing::new(vec![byte; 32]);
    Keys::new(&Secret::new(bytes, Origin::new("--key-file", "test")).expect("32 bytes"))
}

fn options(force: bool) -> HlsOptions {
    let protection = Protection {
        keys: keys(1),
        uri: KeyUri::parse(KeyUri::USUAL).expect("it is usual"),
        rotation: None,
        has_random_iv: false,
        folder: None,
    };
    HlsOptions { target_s: 2, protection: Some(protection), force, sync: Durability::End }
}

fn derived() -> SegmentKeySource {
    SegmentKeySource::Derived(keys(1))
}

fn settings() -> Settings {
    Settings::here(Some(2))
}

fn text(errors: &[Error]) -> Vec<String> {
    errors.iter().map(Error::to_string).collect()
}

/// Two films and the folder they are sealed to.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(place.path("films")).expect("mkdir");
        for film in ["a.ts", "b.ts"] {
            fs::write(place.path("films").join(film), CLIP).expect("written");
        }
        place.sealed(false);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Seals the films; returns segments made, films done before and remarks.
    fn sealed(&self, force: bool) -> (u64, u64, Vec<String>) {
        let (planned, seen) = (HlsProgress::default(), SealProgress::default());
        let (films, target) = (self.path("films"), self.path("t"));
        let outcome = seal(&films, &target, &options(force), &settings(), &planned, &seen);
        let outcome = outcome.expect("it can begin");
        assert_eq!(text(&outcome.failed), [""; 0]);
        (outcome.done, planned.films_done.load(Ordering::Relaxed), text(&outcome.remarks))
    }

    fn verified(&self, source: Option<&Path>) -> SealOutcome {
        let (target, keys) = (self.path("t"), derived());
        verify(&target, source, &keys, &settings(), &SealProgress::default()).expect("films")
    }

    /// Returns the files of the films, without their journals.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let films = ["t/a", "t/b"].map(|film| fs::read_dir(self.path(film)).expect("a film"));
        let paths = films.into_iter().flatten().map(|entry| entry.expect("an entry").path());
        let seen = paths.filter(|path| !path.ends_with(".pagewire-film"));
        seen.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
    }
}

#[test]
fn films_without_a_playlist_that_can_be_read_are_named_by_verify_and_unseal() {
    let place = Place::new();
    let media = place.path("t/a").join(MEDIA);
    let harms: [(&str, &dyn Fn()); 3] = [
        ("missing from the sealed film; seal it again", &|| {}),
        ("a symlink under a name", &|| symlink("../b/media.m3u8", &media).expect("linked")),
        ("no regular file", &|| {
            let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, &media, fifo, mode, 0).expect("a pipe");
        }),
    ];
    for (at, (words, harm)) in harms.iter().enumerate() {
        // Left by the case before.
        let _ = fs::remove_file(&media);
        harm();
        let back = place.path(&format!("back-{at}"));
        for target in ["t", "t/a"] {
            let failed = verify(
                &place.path(target),
                None,
                &derived(),
                &settings(),
                &SealProgress::default(),
            );
            let failed = text(&failed.expect("a film").failed);
            let is_named = failed.iter().all(|line| line.contains("t/a/media.m3u8: "));
            assert!(failed.len() == 1 && is_named && failed[0].contains(words), "{failed:?}");
        }
        let opened = unseal(
            &place.path("t"),
            &back,
            &derived(),
            false,
            &settings(),
            &SealProgress::default(),
        );
        let opened = opened.expect("films");
        let failed = text(&opened.failed);
        assert!(failed.len() == 1 && failed[0].contains(words), "{failed:?}");
        assert!(fs::read(back.join("b.ts")).expect("the other film") == CLIP);
        assert!(!back.join("a.ts").exists());
    }
}

#[test]
fn playlists_and_segments_that_are_gone_are_named_and_so_are_films_that_were_never_sealed() {
    let place = Place::new();
    fs::remove_file(place.path("t/a").join(MASTER)).expect("removed");
    fs::remove_file(place.path("t/b/00003.ts")).expect("removed");
    let failed = text(&place.verified(None).failed);
    let cure = "missing from the sealed film; seal it again";
    let is_reported =
        |name: &str| failed.iter().any(|line| line.ends_with(&format!("{name}: {cure}")));
    assert!(
        failed.len() == 2 && is_reported("a/master.m3u8") && is_reported("b/00003.ts"),
        "{failed:?}"
    );

    assert_eq!(place.sealed(false).1, 0);
    let films = place.path("films");
    assert_eq!(text(&place.verified(Some(&films)).failed), [""; 0]);
    fs::create_dir(films.join("new")).expect("mkdir");
    fs::write(films.join("new/c.ts"), CLIP).expect("written");
    symlink("a.ts", films.join("link.ts")).expect("linked");
    let outcome = place.verified(Some(&films));
    let failed = text(&outcome.failed);
    assert!(failed.len() == 1 && failed[0].contains("films/new/c.ts: not in "), "{failed:?}");
    assert_eq!(outcome.passed_over.len(), 1, "as sealing passes it over");
}

#[test]
fn the_next_run_makes_again_what_is_gone_resized_or_newer_and_looks_at_the_rest() {
    let place = Place::new();
    let whole = place.files();
    assert_eq!(place.sealed(false), (0, 2, Vec::new()));
    let segments = (whole.len() - 4) as u64 / 2;
    let segment = place.path("t/a/00002.ts");
    let write = |bytes: &[u8]| {
        fs::write(&segment, bytes).expect("written");
        // A time after the journal's, whatever the clock of the file system.
        let later = SystemTime::now() + Duration::from_secs(5);
        let file = fs::File::options().write(true).open(&segment).expect("there");
        file.set_modified(later).expect("set");
    };
    let right = fs::read(&segment).expect("there");
    let mut changed = right.clone();
    changed[1000] ^= 1;
    let gone = |name: &str| fs::remove_file(place.path("t/a").join(name)).expect("removed");
    let harms: [(&str, &dyn Fn()); 5] = [
        ("00002.ts is missing", &|| gone("00002.ts")),
        ("00002.ts has another size", &|| write(&right[..right.len() - 16])),
        ("00002.ts was changed since", &|| write(&changed)),
        ("media.m3u8 is missing", &|| gone(MEDIA)),
        ("master.m3u8 is missing", &|| gone(MASTER)),
    ];
    for (words, harm) in harms {
        harm();
        let (done, before, remarks) = place.sealed(false);
        assert_eq!((done, before), (segments, 1), "{words}");
        assert!(remarks.len() == 1 && remarks[0].contains(words), "{remarks:?}");
        assert!(place.files() == whole, "{words}");
    }
    // Only its content shows this change; --force repairs it.
    write(&changed);
    let file = fs::File::options().write(true).open(&segment).expect("there");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    assert_eq!(place.sealed(false).1, 2);
    assert_eq!(place.sealed(true), (2 * segments, 0, Vec::new()));
    assert!(place.files() == whole);
}

#[test]
fn journals_without_a_list_of_files_tell_what_is_gone_by_their_playlists() {
    let place = Place::new();
    let journal = place.path("t/a/.pagewire-film");
    let text = fs::read_to_string(&journal).expect("there");
    let earlier: Vec<_> = text.lines().filter(|line| !line.starts_with("file ")).collect();
    assert!(earlier.len() < text.lines().count(), "{text}");
    fs::write(&journal, earlier.join("\n") + "\n").expect("written");
    assert_eq!(place.sealed(false), (0, 2, Vec::new()));
    fs::remove_file(place.path("t/a/00001.ts")).expect("removed");
    let (_, before, remarks) = place.sealed(false);
    assert!(before == 1 && remarks[0].contains("00001.ts is missing"), "{remarks:?}");
}
