// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile transport streams and folders: a film takes a bounded part of the disk, its tables are
//! covered by the hashes, and no two forms write into one target.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (tables), annex A (CRC).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use seal::engine::{SealOutcome, SealProgress, Settings};
use seal::hls::{
    Durability, HlsOptions, HlsProgress, KeyUri, Keys, MEDIA, Protection, SegmentKeySource, seal,
    unseal, verify,
};
use seal::key::{Origin, Secret};
use seal::{Error, manifest};
use zeroize::Zeroizing;

static CLIP: &[u8] = include_bytes!("../../pagewire/assets/clip.ts");
const PACKET: usize = 188;
const VIDEO: (u8, u16) = (0x1b, 0x100);
const SOUND: (u8, u16) = (0x0f, 0x101);

/// A programme of a test: descriptors and streams of its map.
struct Programme {
    descriptors: Vec<u8>,
    streams: Vec<(u8, u16)>,
}

fn programme(streams: &[(u8, u16)]) -> Programme {
    Programme { descriptors: Vec::new(), streams: streams.to_vec() }
}

fn section(table: u8, number: u16, body: &[u8]) -> Vec<u8> {
    let mut section = vec![table];
    section.extend((0xb000 | (body.len() + 9) as u16).to_be_bytes());
    section.extend(number.to_be_bytes());
    section.extend([0xc1, 0, 0]);
    section.extend(body);
    let crc = section.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
        })
    });
    section.extend(crc.to_be_bytes());
    section
}

fn packets(pid: u16, section: &[u8], counter: &mut u8, film: &mut Vec<u8>) {
    let payload = [&[0], section].concat();
    for (index, part) in payload.chunks(PACKET - 4).enumerate() {
        let end = film.len() + PACKET;
        film.push(0x47);
        film.extend((if index == 0 { 0x4000 } else { 0 } | pid).to_be_bytes());
        film.push(0x10 | *counter);
        film.extend(part);
        film.resize(end, 0xff);
        *counter = (*counter + 1) & 15;
    }
}

/// Returns the clip with tables of these programmes, and with its sound on further PIDs as well.
fn film(programmes: &[Programme], sounds: &[u16]) -> Vec<u8> {
    let map_pid = |at: usize| 0x1000 + at as u16;
    let numbers = (0..programmes.len()).map(|at| [at as u16 + 1, 0xe000 | map_pid(at)]);
    let list: Vec<u8> = numbers.flatten().flat_map(u16::to_be_bytes).collect();
    let maps = programmes.iter().enumerate().map(|(at, programme)| {
        let mut map = (0xe000 | VIDEO.1).to_be_bytes().to_vec();
        map.extend((0xf000 | programme.descriptors.len() as u16).to_be_bytes());
        map.extend(&programme.descriptors);
        for (kind, pid) in &programme.streams {
            map.push(*kind);
            map.extend((0xe000 | pid).to_be_bytes());
            map.extend([0xf0, 0]);
        }
        section(0x02, at as u16 + 1, &map)
    });
    let (association, maps) = (section(0x00, 1, &list), maps.collect::<Vec<_>>());
    let mut counters = vec![0; programmes.len() + 1];
    let mut film = Vec::new();
    for packet in CLIP.chunks_exact(PACKET) {
        match u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff {
            0 => {
                packets(0, &association, &mut counters[0], &mut film);
                for (at, map) in maps.iter().enumerate() {
                    packets(map_pid(at), map, &mut counters[at + 1], &mut film);
                }
            }
            0x1000 => {}
            pid => {
                film.extend(packet);
                for further in sounds.iter().filter(|_| pid == SOUND.1) {
                    let at = film.len();
                    film.extend(packet);
                    let [high, low] = further.to_be_bytes();
                    film[at + 1] = film[at + 1] & 0xe0 | high;
                    film[at + 2] = low;
                }
            }
        }
    }
    film
}

fn keys() -> Keys {
    let bytes = Zeroizing::new(vec![1; 32]);
    Keys::new(&Secret::new(bytes, Origin::new("--key-file", "test")).expect("32 bytes"))
}

fn protected(has_random_iv: bool) -> HlsOptions {
    let uri = KeyUri::parse(KeyUri::USUAL).expect("it is usual");
    let protection = Protection { keys: keys(), uri, rotation: None, has_random_iv, folder: None };
    HlsOptions { target_s: 2, protection: Some(protection), force: false, sync: Durability::None }
}

fn clear() -> HlsOptions {
    HlsOptions { protection: None, ..protected(false) }
}

struct Place(tempfile::TempDir);

impl Place {
    fn with(film: &[u8]) -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        fs::write(place.path("film.ts"), film).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sealed(&self, options: &HlsOptions, planned: &HlsProgress) -> Result<SealOutcome, Error> {
        let settings = Settings::here(Some(2));
        let (source, target) = (self.path("film.ts"), self.path("t"));
        seal(&source, &target, options, &settings, planned, &SealProgress::default())
    }

    /// Returns the reason of the refusal; asserts that nothing was made.
    #[track_caller]
    fn refused(&self) -> String {
        let outcome = self.sealed(&clear(), &HlsProgress::default()).expect("it can begin");
        assert_eq!((outcome.done, outcome.failed.len()), (0, 1), "{:?}", outcome.failed);
        assert!(!self.path("t").exists(), "nothing is left");
        outcome.failed[0].to_string()
    }

    fn verified(&self, options: &HlsOptions) -> Vec<String> {
        let keys = match options.protection {
            Some(_) => SegmentKeySource::Derived(keys()),
            None => SegmentKeySource::None,
        };
        let settings = Settings::here(Some(1));
        let outcome = verify(&self.path("t"), None, &keys, &settings, &SealProgress::default());
        outcome.expect("a film").failed.iter().map(Error::to_string).collect()
    }
}

/// Returns the sizes of the segments in a film's folder.
fn segments(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).expect("a film").map(|entry| entry.expect("an entry"));
    let is_segment = |entry: &fs::DirEntry| entry.path().extension() == Some("ts".as_ref());
    entries.filter(is_segment).map(|entry| entry.metadata().expect("a file").len()).collect()
}

#[test]
fn programmes_of_the_same_pids_share_their_segments() {
    let programmes: Vec<_> = (0..128).map(|_| programme(&[VIDEO, SOUND])).collect();
    let source = film(&programmes, &[]);
    let place = Place::with(&source);
    let outcome = place.sealed(&clear(), &HlsProgress::default()).expect("it can begin");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let bytes: u64 = segments(&place.path("t/film")).iter().sum();
    assert!(bytes < 2 * source.len() as u64, "{bytes} of {}: 128 times before", source.len());
    for number in [1, 77, 128] {
        let master = place.path(&format!("t/film/program-{number}.m3u8"));
        let master = fs::read_to_string(master).expect("each is a title");
        assert!(master.ends_with("\nprogram-1-media.m3u8\n"), "{master}");
    }
    let (back, none) = (place.path("back.ts"), SegmentKeySource::None);
    let settings = Settings::here(Some(1));
    unseal(&place.path("t/film"), &back, &none, false, &settings, &SealProgress::default())
        .expect("a film");
    assert!(fs::read(back).expect("made") == source);
}

#[test]
fn programmes_that_would_fill_the_disk_are_refused_before_anything_is_written() {
    // A data stream of its own makes each programme different.
    let programmes: Vec<_> =
        (0..40).map(|at| programme(&[VIDEO, SOUND, (0x06, 0x300 + at)])).collect();
    let message = Place::with(&film(&programmes, &[])).refused();
    assert!(
        message.contains("its 40 parts (programmes and further sounds) would take"),
        "{message}"
    );
    assert!(
        message.contains("over 6 times") && message.contains("ffmpeg -i FILE -map 0:p:"),
        "{message}"
    );

    let described = |at: u8| Programme {
        descriptors: vec![0x05, 4, b'T', b'E', b'S', at],
        streams: vec![VIDEO, SOUND, (0x0f, 0x102), (0x0f, 0x103)],
    };
    let programmes: Vec<_> = (0..128).map(described).collect();
    let message = Place::with(&film(&programmes, &[0x102, 0x103])).refused();
    assert!(message.contains("128 programmes with more than 256 parts"), "{message}");
}

#[test]
fn a_pid_that_a_map_lists_again_is_written_once() {
    let place = Place::with(&film(&[programme(&[VIDEO, SOUND, SOUND, SOUND, SOUND])], &[]));
    let planned = HlsProgress::default();
    let outcome = place.sealed(&clear(), &planned).expect("it can begin");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert!(!place.path("t/film/audio-257.m3u8").exists());
    // The planned size is that of the files, in blocks.
    let blocks: u64 =
        segments(&place.path("t/film")).iter().map(|b| b.next_multiple_of(4096)).sum();
    assert_eq!(planned.disk_bytes.load(Ordering::Relaxed), blocks);
}

#[test]
fn a_sound_without_packets_is_not_announced_and_is_named() {
    let streams = [VIDEO, SOUND, (0x0f, 0x102), (0x0f, 0x103)];
    let place = Place::with(&film(&[programme(&streams)], &[0x102]));
    let outcome = place.sealed(&clear(), &HlsProgress::default()).expect("it can begin");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let master = fs::read_to_string(place.path("t/film/master.m3u8")).expect("made");
    assert_eq!(master.matches("TYPE=AUDIO").count(), 2, "{master}");
    assert!(master.contains("audio-258.m3u8") && !master.contains("259"), "{master}");
    assert!(!place.path("t/film/audio-259.m3u8").exists());
    let remarks: Vec<String> = outcome.remarks.iter().map(Error::to_string).collect();
    let named = "sound (PID 259, stream type 0x0f) is left out: the map lists it, and the first \
                 32 MiB have no packet of it";
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains(named), "{remarks:?}");
}

#[test]
fn a_film_that_takes_more_than_its_size_is_told_before_it_is_written() {
    static REMARKS: AtomicU64 = AtomicU64::new(0);
    fn count_remark(remark: &Error) {
        let message = remark.to_string();
        assert!(message.contains("times its size"), "{message}");
        REMARKS.fetch_add(1, Ordering::Relaxed);
    }
    let place = Place::with(&film(&[programme(&[VIDEO, SOUND]), programme(&[VIDEO])], &[]));
    let planned = HlsProgress::telling(count_remark);
    let outcome = place.sealed(&clear(), &planned).expect("it can begin");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(REMARKS.load(Ordering::Relaxed), 1);
    assert!(!outcome.remarks.iter().any(|r| r.to_string().contains("times its size")));
}

#[test]
fn what_is_changed_in_front_of_a_segment_or_in_its_place_is_noticed() {
    for options in [clear(), protected(false), protected(true)] {
        let place = Place::with(CLIP);
        place.sealed(&options, &HlsProgress::default()).expect("it can begin");
        assert_eq!(place.verified(&options), [""; 0]);
        let at = |name: &str| place.path("t/film").join(name);
        let media = fs::read_to_string(at(MEDIA)).expect("a playlist");
        assert!(media.contains("TABLES=2,CHECK="), "{media}");

        // The map's first stream type, or its ciphertext.
        let whole = fs::read(at("00000.ts")).expect("a segment");
        let mut changed = whole.clone();
        changed[PACKET + 17] ^= 1;
        fs::write(at("00000.ts"), &changed).expect("written");
        let messages = place.verified(&options);
        assert!(
            messages.len() == 1 && messages[0].contains("segment 0 does not open"),
            "{messages:?}"
        );
        fs::write(at("00000.ts"), &whole).expect("written");

        // Tables counted as the film's own, and segments swapped together with their keys.
        for (from, to) in [("TABLES=2", "TABLES=0"), ("TABLES=2", "TABLES=3")] {
            fs::write(at(MEDIA), media.replacen(from, to, 1)).expect("written");
            let messages = place.verified(&options);
            assert!(
                messages.len() == 1 && messages[0].contains("segment 0 does not open"),
                "{messages:?}"
            );
        }
        let lines: Vec<_> = media.lines().collect();
        let ours = |index: usize| {
            let name = format!("{index:05}.ts");
            let end = lines.iter().position(|line| *line == name).expect("a segment");
            let is_key = |at: &usize| lines[*at].starts_with("#EXT-X-KEY");
            let key = (0..end).rev().take(4).find(is_key).filter(|_| media.contains("IV="));
            key.unwrap_or(end - 2)..end
        };
        let (one, two) = (ours(1), ours(2));
        let swapped = [
            &lines[..one.start],
            &lines[two.clone()],
            &lines[one.end..two.start],
            &lines[one],
            &lines[two.end..],
        ];
        fs::write(at(MEDIA), swapped.concat().join("\n") + "\n").expect("written");
        let (first, second) = (at("00001.ts"), at("00002.ts"));
        fs::rename(&first, at("x")).expect("renamed");
        fs::rename(&second, &first).expect("renamed");
        fs::rename(at("x"), &second).expect("renamed");
        let messages = place.verified(&options);
        assert!(
            messages.len() == 1 && messages[0].contains("segment 1 does not open"),
            "{messages:?}"
        );
    }
}

#[test]
fn films_of_before_hashes_covered_tables_open_as_they_did() {
    let (place, options) = (Place::with(CLIP), clear());
    place.sealed(&options, &HlsProgress::default()).expect("it can begin");
    let path = place.path("t/film").join(MEDIA);
    let media = fs::read_to_string(&path).expect("a playlist").replace(",CHECKS=2", "");
    assert!(place.verified(&options).is_empty());
    let mut index = 0;
    let old = media.lines().map(|line| {
        let Some(rest) = line.strip_prefix("#PAGEWIRE-SEGMENT:TABLES=") else {
            return line.to_owned();
        };
        let tables = rest.split(',').next().expect("a number");
        let segment = fs::read(place.path("t/film").join(format!("{index:05}.ts")));
        index += 1;
        let skip = tables.parse::<usize>().expect("a number") * PACKET;
        let hash = blake3::hash(&segment.expect("a segment")[skip..]).to_hex();
        format!("#PAGEWIRE-SEGMENT:TABLES={tables},CHECK={}", &hash[..32])
    });
    fs::write(&path, old.collect::<Vec<_>>().join("\n") + "\n").expect("written");
    assert_eq!(place.verified(&options), [""; 0]);
    fs::write(&path, media).expect("written");
    assert_eq!(place.verified(&options).len(), 1, "hashes of the one kind taken for the other");
}

#[test]
fn films_are_not_sealed_into_a_folder_of_sealed_files() {
    let place = Place::with(CLIP);
    fs::create_dir(place.path("t")).expect("mkdir");
    fs::write(place.path("t").join(manifest::NAME), "a journal").expect("written");
    for target in ["t", "t/new/er"] {
        let (source, target) = (place.path("film.ts"), place.path(target));
        let settings = Settings::here(Some(1));
        let refused = seal(
            &source,
            &target,
            &clear(),
            &settings,
            &HlsProgress::default(),
            &SealProgress::default(),
        );
        let refused = refused.unwrap_err();
        assert!(refused.is_caller(), "{refused}");
        let message = refused.to_string();
        assert!(message.contains("was made by seal folder or seal epub"), "{message}");
    }
    assert_eq!(fs::read_dir(place.path("t")).expect("a folder").count(), 1);
}
