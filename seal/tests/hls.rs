// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films become folders of segments and films again; other programs open the segments; stopped runs
//! are continued; a fault of one film affects no other.
//!
//! The film is the demo's clip, 14 s of H.264 and AAC. Tests that need openssl(1) are skipped, with
//! the reason printed, where it is missing.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use seal::engine::{SealProgress, Settings};
use seal::hls::{
    Durability, HlsOptions, HlsProgress, KeyFolder, KeyUri, Keys, MASTER, MEDIA, Protection,
    SegmentKeySource, seal, unseal, verify,
};
use seal::key::{Origin, Secret};
use seal::{Error, FileFault};
use zeroize::Zeroizing;

static CLIP: &[u8] = include_bytes!("../../pagewire/assets/clip.ts");

fn keys(byte: u8) -> Keys {
    let bytes = Zeroizing::new(vec![byte; 32]);
    Keys::new(&Secret::new(bytes, Origin::new("--key-file", "test")).expect("32 bytes"))
}

fn protected() -> HlsOptions {
    let protection = Protection {
        keys: keys(1),
        uri: KeyUri::parse(KeyUri::USUAL).expect("it is usual"),
        rotation: None,
        has_random_iv: false,
        folder: None,
    };
    HlsOptions { target_s: 2, protection: Some(protection), force: false, sync: Durability::End }
}

fn clear() -> HlsOptions {
    HlsOptions { protection: None, ..protected() }
}

fn change(options: HlsOptions, change: impl FnOnce(&mut Protection)) -> HlsOptions {
    let mut options = options;
    change(options.protection.as_mut().expect("protected"));
    options
}

fn settings() -> Settings {
    Settings::here(Some(2))
}

/// Seals and returns the failures as text.
fn run(source: &Path, target: &Path, options: &HlsOptions) -> Vec<String> {
    let failed = seal(
        source,
        target,
        options,
        &settings(),
        &HlsProgress::default(),
        &SealProgress::default(),
    );
    failed.expect("it can begin").failed.iter().map(Error::to_string).collect()
}

fn opened(source: &Path, target: &Path, keys: &SegmentKeySource) -> Vec<String> {
    let failed = unseal(source, target, keys, false, &settings(), &SealProgress::default());
    failed.expect("there is a film").failed.iter().map(Error::to_string).collect()
}

fn verified(sealed: &Path, source: Option<&Path>, keys: &SegmentKeySource) -> Vec<String> {
    let failed = verify(sealed, source, keys, &settings(), &SealProgress::default());
    failed.expect("there is a film").failed.iter().map(Error::to_string).collect()
}

fn derived() -> SegmentKeySource {
    SegmentKeySource::Derived(keys(1))
}

/// A folder with a film, and with room for the sealed one.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("source")).expect("mkdir");
        let place = Self { folder };
        fs::write(place.source("film.ts"), CLIP).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn source(&self, name: &str) -> PathBuf {
        self.path("source").join(name)
    }
}

/// Returns all files below a folder, hidden ones too, without journals (they have the boot id).
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name() != Some(".pagewire-film".as_ref()) {
                let below = path.strip_prefix(folder).expect("below").to_owned();
                all.insert(below, fs::read(path).expect("a file"));
            }
        }
    }
    all
}

/// The clip with parameter sets before the first picture alone: those that follow are filler data.
fn clip_without_repeated_sets() -> Vec<u8> {
    let mut film = CLIP.to_vec();
    let mut has_sets = false;
    for at in 3..film.len() {
        match film[at - 3..=at] {
            [0, 0, 1, 0x65] => has_sets = true,
            [0, 0, 1, 0x67 | 0x68] if has_sets => film[at] = 12,
            _ => {}
        }
    }
    film
}

#[test]
fn segments_have_the_parameter_sets_that_the_film_has_once_and_the_film_comes_back() {
    let has_sets = |bytes: &[u8]| {
        let packets = bytes.as_chunks::<188>().0.iter();
        let pictures = packets.filter(|packet| packet[1] & 0x1f == 1 && packet[2] == 0);
        let has_field = |packet: &[u8; 188]| usize::from(packet[3] & 0x20 != 0);
        let start = |packet| 4 + has_field(packet) * (1 + usize::from(packet[4]));
        let bytes: Vec<u8> = pictures.flat_map(|packet| packet[start(packet)..].to_vec()).collect();
        let first = |nal: u8| bytes.windows(4).position(|window| window == [0, 0, 1, nal]);
        let (sequence, picture, slice) = (first(0x67), first(0x68), first(0x65));
        sequence.is_some() && sequence < picture && picture < slice
    };
    let film = clip_without_repeated_sets();
    let place = Place::new();
    fs::write(place.source("film.ts"), &film).expect("written");
    assert_eq!(run(&place.source("film.ts"), &place.path("t"), &clear()), [""; 0]);
    let sealed = files(&place.path("t/film"));
    let segments: Vec<_> =
        sealed.iter().filter(|(path, _)| path.extension() == Some("ts".as_ref())).collect();
    assert!(segments.len() > 3 && segments.iter().all(|(_, bytes)| has_sets(bytes)));
    let none = SegmentKeySource::None;
    assert_eq!(opened(&place.path("t/film"), &place.path("back.ts"), &none), [""; 0]);
    assert!(fs::read(place.path("back.ts")).expect("made") == film);
}

#[test]
fn films_come_back_byte_for_byte_however_they_were_protected() {
    let rotating = |segments| change(protected(), |p| p.rotation = NonZeroU64::new(segments));
    let random = change(protected(), |p| p.has_random_iv = true);
    let random_and_rotating = change(rotating(2), |p| p.has_random_iv = true);
    for options in [clear(), protected(), rotating(1), rotating(2), random, random_and_rotating] {
        let place = Place::new();
        assert_eq!(run(&place.source("film.ts"), &place.path("t"), &options), [""; 0]);
        let keys = if options.protection.is_some() { derived() } else { SegmentKeySource::None };
        let film = place.path("t/film");
        assert_eq!(opened(&film, &place.path("back.ts"), &keys), [""; 0]);
        assert!(fs::read(place.path("back.ts")).expect("made") == CLIP, "{options:?}");
        assert_eq!(verified(&film, Some(&place.source("film.ts")), &keys), [""; 0]);
        assert_eq!(verified(&film, None, &keys), [""; 0]);
        let segments = files(&film).keys().filter(|p| p.extension() == Some("ts".as_ref())).count();
        assert!(segments > 3, "{segments} segments");
    }
}

#[test]
fn playlists_keep_the_rules_of_the_standard() {
    let place = Place::new();
    let options = change(protected(), |p| p.rotation = NonZeroU64::new(2));
    assert_eq!(run(&place.source("film.ts"), &place.path("t"), &options), [""; 0]);
    let media = fs::read_to_string(place.path("t/film").join(MEDIA)).expect("a playlist");
    let seconds: Vec<f64> = media
        .lines()
        .filter_map(|line| line.strip_prefix("#EXTINF:")?.strip_suffix(',')?.parse().ok())
        .collect();
    let target: f64 = media
        .lines()
        .find_map(|line| line.strip_prefix("#EXT-X-TARGETDURATION:"))
        .and_then(|seconds| seconds.parse().ok())
        .expect("a target duration");
    assert!(seconds.iter().all(|seconds| seconds.round() <= target), "{media}");
    let total: f64 = seconds.iter().sum();
    assert!((13.9..14.1).contains(&total), "{total} s of 14");
    assert!(media.starts_with("#EXTM3U\n") && media.ends_with("#EXT-X-ENDLIST\n"));
    assert!(media.contains("#EXT-X-PLAYLIST-TYPE:VOD\n") && !media.contains("IV="));
    assert!(media.contains("URI=\"/keys/film/0.key\"") && media.contains("/keys/film/1.key"));

    let master = fs::read_to_string(place.path("t/film").join(MASTER)).expect("a playlist");
    let stream = master.lines().find(|line| line.starts_with("#EXT-X-STREAM-INF:"));
    let stream = stream.expect("a variant");
    let number = |name: &str| -> u64 {
        let (_, value) = stream.split_once(name).expect("an attribute");
        value.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
    };
    let average = number("AVERAGE-BANDWIDTH=");
    assert!(number(":BANDWIDTH=") >= average);
    let bytes: usize = files(&place.path("t/film"))
        .iter()
        .filter(|(path, _)| path.extension() == Some("ts".as_ref()))
        .map(|(_, bytes)| bytes.len())
        .sum();
    assert!((average as f64 - bytes as f64 * 8.0 / total).abs() < 10.0, "{stream}");
    assert!(stream.contains("CODECS=\"avc1.") && stream.contains("mp4a.40.2\""), "{stream}");
    assert_eq!(master.lines().last(), Some(MEDIA));
}

#[test]
fn openssl_opens_a_segment_with_the_key_and_iv_of_the_playlist() {
    for has_random_iv in [false, true] {
        let place = Place::new();
        let options = change(protected(), |p| {
            p.has_random_iv = has_random_iv;
            p.folder = Some(KeyFolder::new(place.path("keys")));
        });
        assert_eq!(run(&place.source("film.ts"), &place.path("t"), &options), [""; 0]);
        let key = fs::read(place.path("keys/film/0.key")).expect("a key");
        assert_eq!(key[..], *keys(1).key("film", 0), "the one that a server derives");
        let media = fs::read_to_string(place.path("t/film").join(MEDIA)).expect("a playlist");
        let mut iv = format!("{:032x}", 1);
        if has_random_iv {
            let at = media.lines().position(|line| line == "00001.ts").expect("a segment");
            let tag = media.lines().take(at).filter_map(|line| line.split_once(",IV=0x")).last();
            iv = tag.expect("an IV").1.to_owned();
        }
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut openssl = Command::new("openssl");
        openssl.args(["enc", "-d", "-aes-128-cbc", "-K", &hex, "-iv", &iv, "-in"]);
        let opened = match openssl.arg(place.path("t/film/00001.ts")).output() {
            Ok(opened) => opened,
            Err(error) => return eprintln!("skip: openssl: not installed: {error}"),
        };
        assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
        let stream = opened.stdout;
        assert_eq!(&stream[..3], [0x47, 0x40, 0], "a PAT");
        let part = &stream[188 * 3..];
        assert!(CLIP.windows(part.len()).any(|window| window == part), "of the film");
    }
}

#[test]
fn a_rerun_does_nothing_and_a_stopped_run_is_gone_on_with_to_the_same_bytes() {
    let place = Place::new();
    let options = change(protected(), |p| p.has_random_iv = true);
    assert_eq!(run(&place.path("source"), &place.path("whole"), &options), [""; 0]);
    let whole = files(&place.path("whole"));

    let planned = HlsProgress::default();
    let again = seal(
        &place.path("source"),
        &place.path("whole"),
        &options,
        &settings(),
        &planned,
        &SealProgress::default(),
    );
    assert!(again.expect("it can begin").failed.is_empty());
    assert_eq!(planned.films_done.load(Ordering::Relaxed), 1);
    assert_eq!(planned.segments.load(Ordering::Relaxed), 0);

    // State after a kill: some segments are done, one has a line but no file, one file is torn.
    let hidden = ".pagewire-unfinished-film-film.0123456789abcdef";
    let unfinished = place.path("t").join(hidden);
    assert_eq!(run(&place.path("source"), &place.path("t"), &options), [""; 0]);
    fs::rename(place.path("t/film"), &unfinished).expect("renamed");
    fs::write(unfinished.join(".pagewire-unfinished-folder"), hidden).expect("written");
    for gone in [MASTER, MEDIA, "00001.ts", "00003.ts"] {
        fs::remove_file(unfinished.join(gone)).expect("removed");
    }
    fs::write(unfinished.join(".pagewire-unfinished-1-2"), "torn").expect("written");
    let kept = fs::metadata(unfinished.join("00002.ts")).expect("there").modified().expect("time");
    let planned = HlsProgress::default();
    let rest = seal(
        &place.path("source"),
        &place.path("t"),
        &options,
        &settings(),
        &planned,
        &SealProgress::default(),
    );
    assert!(rest.expect("it can begin").failed.is_empty());
    assert_eq!(planned.segments.load(Ordering::Relaxed), 2, "the two that were missing");
    assert!(files(&place.path("t")) == whole);
    let now = fs::metadata(place.path("t/film/00002.ts")).expect("there").modified();
    assert_eq!(now.expect("time"), kept, "what was done was left alone");
}

#[test]
fn another_edition_replaces_a_film_only_by_force_and_never_what_is_not_ours() {
    let place = Place::new();
    assert_eq!(run(&place.path("source"), &place.path("t"), &protected()), [""; 0]);
    let first = files(&place.path("t"));
    let other = HlsOptions { target_s: 4, ..protected() };
    let refused = run(&place.path("source"), &place.path("t"), &other);
    assert!(refused.len() == 1 && refused[0].contains("by force"), "{refused:?}");
    assert!(files(&place.path("t")) == first);
    let forced = HlsOptions { force: true, ..other };
    assert_eq!(run(&place.path("source"), &place.path("t"), &forced), [""; 0]);
    assert!(files(&place.path("t")) != first);
    let hidden = files(&place.path("t")).into_keys().filter(|p| p.starts_with(".")).count();
    assert_eq!(hidden, 0, "nothing is left of the first");

    let ours = place.path("u/film");
    fs::create_dir_all(&ours).expect("mkdir");
    fs::write(ours.join("precious"), "precious").expect("written");
    let forced = HlsOptions { force: true, ..protected() };
    let refused = run(&place.path("source"), &place.path("u"), &forced);
    assert!(refused.len() == 1 && refused[0].contains("no film sealed here"), "{refused:?}");
    assert_eq!(fs::read(ours.join("precious")).expect("there"), b"precious");
}

#[test]
fn one_films_failure_is_its_own_and_named() {
    let place = Place::new();
    fs::write(place.source("noise.ts"), [0x55; 100_000]).expect("written");
    fs::write(place.source("short.ts"), &CLIP[..188]).expect("written");
    fs::write(place.source("notes.txt"), "no film").expect("written");
    fs::write(place.source("film.mts"), CLIP).expect("written");
    fs::create_dir(place.source("film")).expect("mkdir");
    fs::write(place.source("film/part.ts"), CLIP).expect("written");
    std::os::unix::fs::symlink("film.ts", place.source("link.ts")).expect("linked");
    let outcome = seal(
        &place.path("source"),
        &place.path("t"),
        &protected(),
        &settings(),
        &HlsProgress::default(),
        &SealProgress::default(),
    );
    let outcome = outcome.expect("it can begin");
    let passed_over: Vec<_> = outcome.passed_over.iter().map(Error::to_string).collect();
    assert_eq!(passed_over.len(), 2, "{passed_over:?}");
    assert!(passed_over[0].contains("link.ts: passed over: no regular file"), "{passed_over:?}");
    assert!(passed_over[1].contains("notes.txt: passed over: not called"), "{passed_over:?}");
    let mut failed: Vec<_> = outcome.failed.iter().map(Error::to_string).collect();
    failed.sort();
    let expected = [
        ("film.ts", "film.mts becomes"),
        ("film/part.ts", "or is in"),
        ("noise.ts", "not an MPEG transport stream"),
        ("short.ts", "shorter than two packets"),
    ];
    assert_eq!(failed.len(), expected.len(), "{failed:#?}");
    for ((name, what), error) in expected.iter().zip(&failed) {
        assert!(error.contains(name) && error.contains(what), "{error}");
    }
    assert_eq!(opened(&place.path("t/film"), &place.path("back.ts"), &derived()), [""; 0]);
}

#[test]
fn a_wrong_key_and_a_damaged_segment_say_the_same_and_leave_no_file() {
    let place = Place::new();
    assert_eq!(run(&place.source("film.ts"), &place.path("t"), &protected()), [""; 0]);
    let film = place.path("t/film");
    let expected = "segment 0 does not open as what was sealed: a wrong key or a damaged file";
    let wrong = SegmentKeySource::Derived(keys(2));
    let back = place.path("back.ts");
    for keys in [&wrong, &derived()] {
        let failed = match std::ptr::eq(keys, &wrong) {
            true => vec![expected.to_owned()],
            false => opened(&film, &back, keys),
        };
        assert!(failed.len() == 1 && failed[0].contains(expected), "{failed:?}");
        let failed = verified(&film, None, keys);
        assert!(failed.len() == 1 && failed[0].contains(expected), "{failed:?}");
        // In the second round the key is right and the segment is damaged.
        let mut segment = fs::read(film.join("00000.ts")).expect("there");
        segment[5000] ^= 1;
        fs::write(film.join("00000.ts"), &segment).expect("written");
    }
    for bytes in [0, 15, 16, 17, 1600] {
        let whole = fs::read(film.join("00001.ts")).expect("there");
        fs::write(film.join("00000.ts"), &whole[..bytes]).expect("written");
        let refused =
            unseal(&film, &back, &derived(), false, &settings(), &SealProgress::default());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("If this is that key, put 00000.ts back"), "{bytes}: {refused}");
        assert!(verified(&film, None, &derived())[0].contains(expected), "{bytes}");
    }
    assert!(!back.exists());
    let failed = verified(&film, None, &SegmentKeySource::None);
    assert!(failed[0].contains("is encrypted; give its key"), "{failed:?}");
    let refused =
        unseal(&film, &back, &SegmentKeySource::None, false, &settings(), &SealProgress::default());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("keys: not given, and ") && refused.contains("is encrypted"));
    assert_eq!(fs::read_dir(place.folder.path()).expect("a folder").count(), 2);
}

#[test]
fn a_wrong_key_is_refused_before_anything_is_written() {
    let place = Place::new();
    fs::write(place.source("other.ts"), CLIP).expect("written");
    assert_eq!(run(&place.path("source"), &place.path("t"), &protected()), [""; 0]);
    let wrong = SegmentKeySource::Derived(keys(2));
    let refused = |source: &str, target: &str| {
        let opened = unseal(
            &place.path(source),
            &place.path(target),
            &wrong,
            false,
            &settings(),
            &SealProgress::default(),
        );
        let error = opened.unwrap_err();
        assert!(error.is_caller() && !place.path(target).exists(), "{error}");
        error.to_string()
    };
    let one = refused("t/film", "back.ts");
    assert!(one.starts_with("--key-file: test: does not open "), "{one}");
    let both = refused("t", "new/back");
    assert!(
        both.contains("test: opens none of the 2 films below ") && both.contains("give the key")
    );

    // When one film opens, the other is a failure of that film only.
    let again = change(HlsOptions { force: true, ..protected() }, |p| p.keys = keys(2));
    assert_eq!(run(&place.source("other.ts"), &place.path("t"), &again), [""; 0]);
    let failed = opened(&place.path("t"), &place.path("back"), &derived());
    assert!(failed.len() == 1 && failed[0].contains("t/other: was sealed with another key"));
    assert!(fs::read(place.path("back/film.ts")).expect("made") == CLIP);
    assert!(!place.path("back/other.ts").exists());
}

#[test]
fn keys_from_a_folder_open_a_film_and_stay_out_of_its_own() {
    let place = Place::new();
    let with_folder = |folder: PathBuf| {
        change(protected(), |p| {
            p.rotation = NonZeroU64::new(1);
            p.folder = Some(KeyFolder::new(folder));
        })
    };
    let options = with_folder(place.path("t/keys"));
    let refused = seal(
        &place.path("source"),
        &place.path("t"),
        &options,
        &settings(),
        &HlsProgress::default(),
        &SealProgress::default(),
    );
    assert!(refused.unwrap_err().is_caller(), "keys below the target would be served");

    let options = with_folder(place.path("keys"));
    assert_eq!(run(&place.path("source"), &place.path("t"), &options), [""; 0]);
    let folder = SegmentKeySource::Folder(KeyFolder::new(place.path("keys")));
    assert_eq!(opened(&place.path("t"), &place.path("back"), &folder), [""; 0]);
    assert!(fs::read(place.path("back/film.ts")).expect("made") == CLIP);
    let none = SegmentKeySource::Folder(KeyFolder::new(place.path("none")));
    assert!(opened(&place.path("t/film"), &place.path("x.ts"), &none)[0].contains("0.key"));
}

#[test]
fn what_is_cut_off_at_the_end_is_said() {
    let place = Place::new();
    fs::write(place.source("film.ts"), &CLIP[..CLIP.len() - 88]).expect("written");
    assert_eq!(run(&place.path("source"), &place.path("t"), &protected()), [""; 0]);
    assert_eq!(opened(&place.path("t/film"), &place.path("back.ts"), &derived()), [""; 0]);
    assert!(fs::read(place.path("back.ts")).expect("made") == CLIP[..CLIP.len() - 188]);
    let cut = seal::hls::cut_off(&place.path("t")).expect("a film");
    assert_eq!(cut, [(place.path("t/film"), 100)]);
}

#[test]
fn a_source_that_changed_since_is_told_from_what_was_sealed_of_it() {
    let place = Place::new();
    assert_eq!(run(&place.path("source"), &place.path("t"), &protected()), [""; 0]);
    let mut changed = CLIP.to_vec();
    changed[188 * 1000 + 50] ^= 1;
    fs::write(place.source("film.ts"), &changed).expect("written");
    let failed = verified(&place.path("t"), Some(&place.path("source")), &derived());
    let expected = format!("byte {}: the source", 188 * 1000 + 50);
    assert!(failed.len() == 1 && failed[0].contains(&expected), "{failed:?}");
    fs::write(place.source("film.ts"), &CLIP[..CLIP.len() - 188]).expect("written");
    assert_eq!(verified(&place.path("t"), Some(&place.path("source")), &derived()).len(), 1);
}

#[test]
fn there_has_to_be_a_film() {
    let place = Place::new();
    let none = unseal(
        &place.path("source"),
        &place.path("t"),
        &derived(),
        false,
        &settings(),
        &SealProgress::default(),
    );
    let error = none.unwrap_err();
    assert!(matches!(&error, Error::File { fault: FileFault::Stream(_), .. }), "{error}");
    assert!(error.to_string().contains("no media.m3u8"), "{error}");
}

/// Returns the clip with its sound a second time, on PID 0x102 and in French.
fn clip_of_two_sounds() -> Vec<u8> {
    const PACKET: usize = 188;
    let streams = [
        &[0x1b, 0xe1, 0x00, 0xf0, 0x00][..],
        &[0x0f, 0xe1, 0x01, 0xf0, 0x00],
        &[0x0f, 0xe1, 0x02, 0xf0, 0x06, 0x0a, 0x04, b'f', b'r', b'e', 0x00],
    ];
    let mut map = vec![0x02, 0xb0, 0x22, 0x00, 0x01, 0xc1, 0, 0, 0xe1, 0x00, 0xf0, 0x00];
    map.extend(streams.concat());
    // CRC of ISO/IEC 13818-1 annex A.
    let crc = map.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
        })
    });
    assert_eq!(usize::from(map[2]), map.len() - 3 + 4);
    map.extend(crc.to_be_bytes());
    let mut film = Vec::new();
    for packet in CLIP.chunks_exact(PACKET) {
        let at = film.len();
        film.extend(packet);
        match u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff {
            0x1000 => {
                film.truncate(at + 5);
                film.extend(&map);
                film.resize(at + PACKET, 0xff);
            }
            0x101 => {
                film.extend(packet);
                film[at + PACKET + 2] = 0x02;
            }
            _ => {}
        }
    }
    film
}

#[test]
fn a_further_sound_has_segments_and_keys_of_its_own_and_the_film_comes_back_whole() {
    let film = clip_of_two_sounds();
    for (rotation, has_random_iv) in [(None, false), (NonZeroU64::new(2), true)] {
        let place = Place::new();
        fs::write(place.source("film.ts"), &film).expect("written");
        let options = change(protected(), |p| {
            (p.rotation, p.has_random_iv) = (rotation, has_random_iv);
            p.folder = Some(KeyFolder::new(place.path("keys")));
        });
        assert_eq!(run(&place.path("source"), &place.path("t"), &options), [""; 0]);
        let sealed = files(&place.path("t"));
        let text = |name: &str| String::from_utf8(sealed[Path::new(name)].clone()).expect("text");
        let master = text("film/master.m3u8");
        let group = "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"mp4a.40.2\",NAME=";
        let french = format!("{group}\"French\",LANGUAGE=\"fr\",DEFAULT=NO,AUTOSELECT=YES,");
        assert!(master.contains(&french), "{master}");
        assert_eq!(master.matches("#EXT-X-STREAM-INF").count(), 1, "{master}");
        let sound = text("film/audio-258.m3u8");
        assert!(sound.contains("\"/keys/film/audio-258/0.key\""), "{sound}");
        let line = |text: &str, tag: &str| {
            text.lines().find(|line| line.starts_with(tag)).expect("a tag").to_owned()
        };
        let target = "#EXT-X-TARGETDURATION";
        assert_eq!(line(&sound, target), line(&text("film/media.m3u8"), target));
        let key = |name: &str| fs::read(place.path("keys").join(name)).expect("a key");
        assert_ne!(key("film/0.key"), key("film/audio-258/0.key"));

        assert_eq!(opened(&place.path("t"), &place.path("back"), &derived()), [""; 0]);
        assert!(fs::read(place.path("back/film.ts")).expect("made") == film);
        assert_eq!(verified(&place.path("t"), Some(&place.path("source")), &derived()), [""; 0]);

        // State after a kill: missing files of film and sound are made again, with the same bytes.
        let hidden = ".pagewire-unfinished-film-film.0123456789abcdef";
        fs::rename(place.path("t/film"), place.path("t").join(hidden)).expect("renamed");
        let unfinished = place.path("t").join(hidden);
        fs::write(unfinished.join(".pagewire-unfinished-folder"), hidden).expect("written");
        for gone in [MASTER, MEDIA, "audio-258.m3u8", "00001.ts", "audio-258-00002.ts"] {
            fs::remove_file(unfinished.join(gone)).expect("removed");
        }
        assert_eq!(run(&place.path("source"), &place.path("t"), &options), [""; 0]);
        assert!(files(&place.path("t")) == sealed);

        // Segments of the sound are verified too.
        let damaged = place.path("t/film/audio-258-00001.ts");
        let mut bytes = fs::read(&damaged).expect("there");
        bytes[1000] ^= 1;
        fs::write(&damaged, bytes).expect("written");
        let failed = verified(&place.path("t"), None, &derived());
        assert!(failed.len() == 1 && failed[0].contains("audio-258-00001.ts"), "{failed:?}");
    }
}
