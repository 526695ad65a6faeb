// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders and films sealed by version 0.1 stay readable: they verify, unseal, and count as done;
//! interrupted runs of 0.1 are resumed.
//!
//! `tests/fixtures/0.1` was written once by [`write_fixtures`] with the code of 0.1 and is never
//! rewritten: a format that changes needs a second set beside it. The film is the demo's clip
//! thinned to a few packets, so that a segment is about 3 KB.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use seal::engine::{SealOutcome, SealProgress, Settings};
use seal::folder::{self, FolderForm};
use seal::hls::{
    self, Durability, HlsProgress, KeyFolder, KeyUri, Keys, Protection, SegmentKeySource,
};
use seal::key::passphrase::{Passphrase, Stretch};
use seal::key::{Origin, Secret};
use seal::manifest;
use zeroize::Zeroizing;

static CLIP: &[u8] = include_bytes!("../../pagewire/assets/clip.ts");
const PACKET_BYTES: usize = 188;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/0.1")
}

/// Returns the time of all sources and of their sealed files.
fn then() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789)
}

/// Returns path and content of the files in the sealed folders.
fn sources() -> [(&'static str, Vec<u8>); 4] {
    let long = (0..1000_u32).map(|at| ((at * 7) >> 2) as u8).collect();
    [
        ("empty", Vec::new()),
        ("a note.txt", b"sealed by version 0.1\n".to_vec()),
        ("deep/er/long", long),
        ("deep/b\\ack", b"an odd name".to_vec()),
    ]
}

/// Returns the tables once, and packets that begin pictures: key frames, and each fifth other one.
fn film() -> Vec<u8> {
    let mut film = Vec::new();
    let (mut tables, mut pictures) = (0, 0);
    for packet in CLIP.chunks_exact(PACKET_BYTES).take(1500) {
        let pid = u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff;
        let is_table = matches!(pid, 0 | 0x1000) && tables < 2;
        let is_picture = pid == 0x100 && packet[1] & 0x40 != 0;
        let is_key_frame = is_picture && packet[3] & 0x20 != 0 && packet[5] & 0x40 != 0;
        tables += usize::from(is_table);
        pictures += usize::from(is_picture);
        if is_table || is_key_frame || is_picture && pictures % 5 == 0 {
            film.extend(packet);
        }
    }
    film
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(then()).unwrap();
}

/// Copies a folder: folders for this user only, every file with the time of the sources.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, PermissionsExt::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => write(&target, &fs::read(&path).unwrap()),
        }
    }
}

fn secret() -> Secret {
    let bytes = Zeroizing::new((0..32).collect());
    Secret::new(bytes, Origin::new("key", "test")).unwrap()
}

/// Derives the key of the interrupted run's folder from a passphrase, at a low cost for tests.
fn stretched(stretch: &Stretch) -> Secret {
    let text = Zeroizing::new(b"an old passphrase".to_vec());
    Passphrase::new(text, Origin::new("passphrase", "")).unwrap().stretched(stretch, 32).unwrap()
}

fn settings() -> Settings {
    Settings::here(Some(1))
}

fn failures(outcome: &SealOutcome) -> Vec<String> {
    outcome.failed.iter().map(ToString::to_string).collect()
}

/// A scratch folder with a copy of the fixtures, and with their sources.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        scratch.write_sources();
        copy(&fixtures(), &scratch.path("sealed"));
        scratch
    }

    fn write_sources(&self) {
        for (path, bytes) in sources() {
            write(&self.path("source").join(path), &bytes);
        }
        write(&self.path("film.ts"), &film());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn folder_options(&self, target: &Path, secret: Secret) -> folder::FolderOptions {
        folder::FolderOptions {
            source: self.path("source"),
            target: target.to_owned(),
            form: FolderForm::named("gcm").unwrap(),
            iv: None,
            secret,
            stretch: None,
            sync: Durability::End,
            force: false,
            verify: false,
        }
    }

    fn seal_film(&self, target: &Path, keys_at: Option<PathBuf>) -> (SealOutcome, u64) {
        let protection = Protection {
            keys: Keys::new(&secret()),
            uri: KeyUri::parse(KeyUri::USUAL).unwrap(),
            rotation: None,
            has_random_iv: true,
            folder: keys_at.map(KeyFolder::new),
        };
        let options = hls::HlsOptions {
            target_s: 2,
            protection: Some(protection),
            force: false,
            sync: Durability::Each,
        };
        let (planned, seen, film) =
            (HlsProgress::default(), SealProgress::default(), self.path("film.ts"));
        let outcome = hls::seal(&film, target, &options, &settings(), &planned, &seen).unwrap();
        (outcome, planned.films_done.load(Ordering::Relaxed))
    }

    fn unsealed(&self, sealed: &Path, secret: Secret) {
        let options = folder::unseal::UnsealOptions {
            source: sealed.to_owned(),
            target: self.path("opened"),
            how: None,
            secret,
            sync: Durability::None,
            force: false,
        };
        let outcome = folder::unseal::plan(options, 1).unwrap();
        let outcome = outcome.unseal(&settings(), &SealProgress::default()).unwrap();
        assert_eq!(failures(&outcome), [""; 0]);
        for (path, bytes) in sources() {
            assert!(fs::read(self.path("opened").join(path)).unwrap() == bytes, "{path}");
        }
    }

    fn verified(&self, sealed: &Path, source: Option<PathBuf>, secret: Secret) -> u64 {
        let target = sealed.to_owned();
        let options = folder::verify::VerifyOptions { target, source, how: None, secret };
        let outcome = folder::verify::plan(options, 1).unwrap();
        let outcome = outcome.verify(&settings(), &SealProgress::default()).unwrap();
        assert_eq!(failures(&outcome), [""; 0]);
        outcome.done
    }
}

#[test]
fn folder_of_0_1_verifies_unseals_and_counts_as_done() {
    let scratch = Scratch::new();
    let sealed = scratch.path("sealed/folder");
    assert_eq!(scratch.verified(&sealed, None, secret()), 4);
    assert_eq!(scratch.verified(&sealed, Some(scratch.path("source")), secret()), 4);
    scratch.unsealed(&sealed, secret());
    let plan = folder::plan(scratch.folder_options(&sealed, secret()), 1).unwrap();
    let outcome = plan.seal(&settings(), &SealProgress::default()).unwrap();
    assert_eq!(failures(&outcome), [""; 0]);
    assert_eq!((outcome.done, outcome.skipped), (0, 4));
}

#[test]
fn interrupted_folder_run_of_0_1_is_resumed() {
    let scratch = Scratch::new();
    let target = scratch.path("sealed/interrupted/target");
    let header = folder::header(&target).unwrap().expect("an unfinished run");
    let stretch = header.stretch.expect("a passphrase");
    let options = folder::FolderOptions {
        stretch: Some(stretch),
        ..scratch.folder_options(&target, stretched(&stretch))
    };
    let outcome =
        folder::plan(options, 1).unwrap().seal(&settings(), &SealProgress::default()).unwrap();
    assert_eq!(failures(&outcome), [""; 0]);
    // The interrupted run sealed three files; the fixture lacks the fourth.
    assert_eq!((outcome.done, outcome.skipped), (1, 3));
    assert_eq!(fs::read_dir(scratch.path("sealed/interrupted")).unwrap().count(), 1);
    assert!(target.join(manifest::NAME).is_file());
    scratch.unsealed(&target, stretched(&stretch));
}

#[test]
fn film_of_0_1_verifies_unseals_and_counts_as_done() {
    let scratch = Scratch::new();
    let (sealed, source) = (scratch.path("sealed/films"), scratch.path("film.ts"));
    let film = sealed.join("film");
    let keys = SegmentKeySource::Derived(Keys::new(&secret()));
    for source in [None, Some(&*source)] {
        let seen = SealProgress::default();
        let outcome = hls::verify(&film, source, &keys, &settings(), &seen).unwrap();
        assert_eq!((failures(&outcome), outcome.done), (Vec::new(), 1));
    }
    let opened = scratch.path("opened.ts");
    let seen = SealProgress::default();
    let outcome = hls::unseal(&film, &opened, &keys, false, &settings(), &seen).unwrap();
    assert_eq!(failures(&outcome), [""; 0]);
    assert!(fs::read(opened).unwrap() == self::film());
    let (outcome, films_done) = scratch.seal_film(&sealed, None);
    assert_eq!((failures(&outcome), outcome.done, films_done), (Vec::new(), 0, 1));
    assert_eq!(outcome.remarks.len(), 0);
}

#[test]
fn interrupted_film_of_0_1_is_resumed() {
    let scratch = Scratch::new();
    let target = scratch.path("sealed/interrupted-films");
    let (outcome, films_done) = scratch.seal_film(&target, None);
    assert_eq!((failures(&outcome), films_done), (Vec::new(), 0));
    // The fixture lacks the file of one segment.
    assert_eq!(outcome.done, 1);
    assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
    for entry in fs::read_dir(scratch.path("sealed/films/film")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let (own, earlier) = (fs::read(target.join("film").join(name)), fs::read(&path));
        // 0.1 wrote vectors with small letters.
        let is_same = match name.to_string_lossy().ends_with(".m3u8") {
            true => own.unwrap().eq_ignore_ascii_case(&earlier.unwrap()),
            false => own.unwrap() == earlier.unwrap(),
        };
        assert!(is_same || name == ".pagewire-film", "{}", path.display());
    }
}

/// Writes the fixtures into an empty folder: `FIXTURES=DIR cargo test -p seal --test
/// earlier_versions -- --ignored`.
#[test]
#[ignore = "fixtures are written once, by the version whose name they have"]
fn write_fixtures() {
    let folder = PathBuf::from(std::env::var_os("FIXTURES").expect("FIXTURES names a folder"));
    let scratch = Scratch(tempfile::tempdir().unwrap());
    scratch.write_sources();
    let plan = folder::plan(scratch.folder_options(&folder.join("folder"), secret()), 1).unwrap();
    assert_eq!(failures(&plan.seal(&settings(), &SealProgress::default()).unwrap()), [""; 0]);
    assert_eq!(failures(&scratch.seal_film(&folder.join("films"), None).0), [""; 0]);

    // Interrupted before its last step: the key cannot be written where another key exists.
    let keys_at = scratch.path("keys");
    write(&keys_at.join("film/0.key"), &[0; 16]);
    let target = folder.join("interrupted-films");
    let (outcome, _) = scratch.seal_film(&target, Some(keys_at));
    assert_eq!(outcome.failed.len(), 1);
    let working = fs::read_dir(&target).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(working.join("00001.ts")).unwrap();

    // Interrupted while its largest file is sealed; the next run finds another file at that path.
    fs::remove_file(scratch.path("source/empty")).unwrap();
    let large = fs::File::create(scratch.path("source/large")).unwrap();
    large.set_len(512 << 20).unwrap();
    let stretch = Stretch { memory_kib: 32, passes: 1, lanes: 1, salt: [7; 16] };
    let target = folder.join("interrupted/target");
    fs::create_dir(folder.join("interrupted")).unwrap();
    let options = folder::FolderOptions {
        stretch: Some(stretch),
        sync: Durability::Each,
        ..scratch.folder_options(&target, stretched(&stretch))
    };
    let (plan, seen) = (folder::plan(options, 1).unwrap(), SealProgress::default());
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while seen.done.load(Ordering::Relaxed) < 3 {
                std::hint::spin_loop();
            }
            seen.stop.store(true, Ordering::Relaxed);
        });
        plan.seal(&settings(), &seen).unwrap()
    });
    assert!(outcome.is_stopped && outcome.done == 3, "{outcome:?}");
}
