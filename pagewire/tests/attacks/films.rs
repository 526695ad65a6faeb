// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport streams and sealed films that a publisher, or another user with write access to them,
//! made to harm: programmes that share PIDs to fill a disk, tables changed in front of a segment, a
//! playlist that names a key elsewhere.
//!
//! Every run has a time limit.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (tables), annex A (CRC); SECURITY.md (publishers).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::PROGRAM;
use crate::harness::watchdog::{self, Outcome};

static CLIP: &[u8] = include_bytes!("../../assets/clip.ts");
const PACKET: usize = 188;
const PROGRAMMES: u16 = 128;

/// A folder with a film, two keys, and their sealed results.
struct Desk(TempDir);

impl Desk {
    fn with(film: &[u8]) -> Self {
        let desk = Self(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder"));
        fs::write(desk.path("film.ts"), film).expect("a film");
        fs::write(desk.path("key"), "07".repeat(32)).expect("a key");
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.0.path()).args(arguments);
        watchdog::run(&mut command, RUN_WAIT).expect("the program under test starts")
    }

    #[track_caller]
    fn seal(&self, more: &[&str]) -> Outcome {
        self.run(&[&["seal", "hls", "film.ts", "out", "--key-file", "key"], more].concat())
    }
}

/// Returns the bytes of all files below a folder; 0 where it does not exist.
fn bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .map(
            |path| if path.is_dir() { bytes(&path) } else { fs::read(&path).unwrap().len() as u64 },
        )
        .sum()
}

/// Appends a section as one or more packets.
fn packets(pid: u16, table: u8, number: u16, body: &[u8], counter: &mut u8, film: &mut Vec<u8>) {
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
    section.insert(0, 0);
    for (index, part) in section.chunks(PACKET - 4).enumerate() {
        let end = film.len() + PACKET;
        film.push(0x47);
        film.extend((if index == 0 { 0x4000 } else { 0 } | pid).to_be_bytes());
        film.push(0x10 | *counter);
        film.extend(part);
        film.resize(end, 0xff);
        *counter = (*counter + 1) & 15;
    }
}

/// Returns the clip with 128 programmes of its picture and sound; if they are to differ, each has a
/// further stream without packets.
fn crowd(differ: bool) -> Vec<u8> {
    let (mut film, mut counters) = (Vec::new(), [0; PROGRAMMES as usize + 1]);
    let list = (0..PROGRAMMES).flat_map(|at| [at + 1, 0xf000 + at]).flat_map(u16::to_be_bytes);
    let list: Vec<u8> = list.collect();
    for packet in CLIP.chunks_exact(PACKET) {
        match u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff {
            0 => {
                let (first, others) = counters.split_at_mut(1);
                packets(0, 0x00, 1, &list, &mut first[0], &mut film);
                for (at, counter) in (0..PROGRAMMES).zip(others) {
                    let mut map = vec![0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0];
                    map.extend([0x0f, 0xe1, 1, 0xf0, 0]);
                    if differ {
                        map.extend([0x06, 0xe3, at as u8, 0xf0, 0]);
                    }
                    packets(0x1000 + at, 0x02, at + 1, &map, counter, &mut film);
                }
            }
            0x1000 => {}
            _ => film.extend(packet),
        }
    }
    film
}

#[test]
fn programmes_that_share_pids_fill_no_disk() {
    let film = crowd(true);
    let desk = Desk::with(&film);
    let run = desk.seal(&[]);
    assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("film.ts: its 128 parts"), "{}", run.stderr);
    assert!(run.stderr.contains("over 6 times the"), "{}", run.stderr);
    assert_eq!(bytes(&desk.path("out")), 0, "refused before anything is written");

    let film = crowd(false);
    let desk = Desk::with(&film);
    let run = desk.seal(&[]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let made = bytes(&desk.path("out"));
    assert!(made < 2 * film.len() as u64, "{made} bytes of {}", film.len());
}

#[test]
fn changed_tables_in_front_of_a_segment_are_noticed() {
    let desk = Desk::with(CLIP);
    assert_eq!(desk.seal(&[]).status.code(), Some(0));
    let path = desk.path("out/film/00000.ts");
    let mut segment = fs::read(&path).expect("a segment");
    segment[PACKET + 20] ^= 1;
    fs::write(&path, segment).expect("written");
    for command in [
        &["seal", "verify", "hls", "out/film", "--key-file", "key"][..],
        &["unseal", "hls", "out/film", "back.ts", "--key-file", "key"],
    ] {
        let run = desk.run(command);
        assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
        assert!(run.stderr.contains("segment 0 does not open"), "{}", run.stderr);
    }
    assert!(!desk.path("back.ts").exists());
}

#[test]
fn a_playlist_names_no_key_outside_the_folder_of_keys() {
    let desk = Desk::with(CLIP);
    assert_eq!(desk.seal(&["--keys", "keys"]).status.code(), Some(0));
    fs::create_dir(desk.path("other")).expect("a folder");
    fs::copy(desk.path("keys/film/0.key"), desk.path("other/0.key")).expect("the right key");
    let path = desk.path("out/film/media.m3u8");
    let text = fs::read_to_string(&path).expect("a playlist");
    let above = desk.path("other").display().to_string();
    for name in ["../other", "film/../../other", &above] {
        fs::write(&path, text.replace("NAME=film,", &format!("NAME={name},"))).expect("written");
        let run = desk.run(&["unseal", "hls", "out/film", "back.ts", "--keys", "keys"]);
        assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
        assert!(run.stderr.contains("leads out of the folder of keys"), "{}", run.stderr);
        assert!(!desk.path("back.ts").exists());
    }
}

const RUN_WAIT: Duration = Duration::from_secs(60);
