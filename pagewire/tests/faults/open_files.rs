// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of HTTP: no answer is older than its request, whatever happens to a kept file, and
//! many files need few descriptors.
//!
//! `timed` requests a hundred thousand files, whose creation takes long.
//!
//! Each file holds its own name and a version, so that an answer identifies itself.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;

use crate::harness::answer::Line;
use crate::harness::{PROGRAM, Place, Server};
use crate::resource_snapshot::descriptors;
use crate::serve;

/// Longer than a body that is held in memory.
const LARGE: usize = 200_000;

fn get(line: &mut Line, name: &str) -> (u16, Vec<u8>) {
    assert!(line.send(format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n")), "it is open");
    let answer = line.answer().expect("an answer");
    (answer.status, answer.body)
}

#[test]
fn a_change_shows_in_the_next_answer_on_every_connection() {
    assert_changes_show(40);
}

#[test]
fn a_change_of_a_large_file_shows_in_the_next_answer_on_every_connection() {
    assert_changes_show(LARGE);
}

fn assert_changes_show(bytes: usize) {
    let version = |number: usize| format!("{number:040}").repeat(bytes / 40).into_bytes();
    let server = serve(&[("a/b/file.bin", &version(0))], &[]);
    let (folder, name) = (server.folder(), "a/b/file.bin");
    let target = folder.join(name);
    // Connections on all loops, which keep their own files.
    let mut lines: Vec<Line> = (0..4).map(|_| Line::to(server.http)).collect();
    for number in 1..50 {
        let new = version(number);
        match number % 5 {
            0 => fs::write(&target, &new).expect("written anew"),
            1 => {
                fs::write(folder.join("a/new"), &new).expect("room");
                fs::rename(folder.join("a/new"), &target).expect("one file system");
            }
            2 => {
                let file = File::options().write(true).open(&target).expect("it exists");
                file.write_all_at(&new, 0).expect("written in place");
            }
            3 => {
                fs::create_dir_all(folder.join("next/b")).expect("room");
                fs::write(folder.join("next/b/file.bin"), &new).expect("room");
                fs::rename(folder.join("a"), folder.join("old")).expect("one file system");
                fs::rename(folder.join("next"), folder.join("a")).expect("one file system");
                fs::remove_dir_all(folder.join("old")).expect("its own");
            }
            _ => {
                fs::remove_file(&target).expect("it exists");
                assert_eq!(get(&mut lines[0], name).0, 404, "{number}");
                fs::write(&target, &new).expect("room");
            }
        }
        // More than twice, so that it is kept again before the next change.
        for line in &mut lines {
            for _ in 0..3 {
                let (status, body) = get(line, name);
                assert!(status == 200 && body == new, "change {number}, {bytes} bytes");
            }
        }
    }
}

#[test]
fn a_kept_file_does_not_outlive_its_permission_to_be_served() {
    let server = serve(&[("a/file.bin", b"inside"), ("other.bin", b"other")], &[]);
    let folder = server.folder();
    let mut line = Line::to(server.http);
    for _ in 0..4 {
        assert_eq!(get(&mut line, "a/file.bin"), (200, b"inside".to_vec()));
    }
    // In its place a link that leads out of the folder, then a folder, then a pipe without a
    // writer.
    let outside = server.place.top().join("secret");
    fs::write(&outside, "secret").expect("room");
    fs::remove_file(folder.join("a/file.bin")).expect("it exists");
    symlink(&outside, folder.join("a/file.bin")).expect("a link");
    for _ in 0..4 {
        assert_eq!(get(&mut line, "a/file.bin").0, 403);
    }
    fs::remove_file(folder.join("a/file.bin")).expect("it exists");
    symlink("../other.bin", folder.join("a/file.bin")).expect("a link");
    for _ in 0..4 {
        assert_eq!(get(&mut line, "a/file.bin"), (200, b"other".to_vec()), "a link within");
    }
    // The whole folder is replaced by a link that leads out.
    fs::remove_file(folder.join("a/file.bin")).expect("it exists");
    fs::write(folder.join("a/file.bin"), "inside").expect("room");
    for _ in 0..4 {
        assert_eq!(get(&mut line, "a/file.bin"), (200, b"inside".to_vec()));
    }
    let away = server.place.top().join("away");
    fs::rename(folder.join("a"), &away).expect("one file system");
    symlink(&away, folder.join("a")).expect("a link");
    for _ in 0..4 {
        assert_eq!(get(&mut line, "a/file.bin").0, 403);
    }
}

#[test]
fn files_asked_at_random_need_few_descriptors() {
    assert_few_descriptors(1000, 3000);
}

/// Requests files at random on eight connections of a server that may open 1024 files.
fn assert_few_descriptors(files: usize, requests: usize) {
    const FOLDERS: usize = 100;
    let place = Place::new();
    for number in 0..FOLDERS {
        fs::create_dir(place.folder().join(number.to_string())).expect("room");
    }
    let name = |number: usize| format!("{}/{number}.txt", number % FOLDERS);
    for number in 0..files {
        let text = number.to_string();
        // A tenth is large enough to be sent from a descriptor.
        let bytes = if number % 10 == 0 { 20_000 } else { 10 };
        fs::write(place.folder().join(name(number)), format!("{text:>bytes$}")).expect("room");
    }
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\"", PROGRAM]);
    let server = Server::at(&place, limited, &[]);
    let before = descriptors(&server);
    let mut lines: Vec<Line> = (0..8).map(|_| Line::to(server.http)).collect();
    let (mut state, mut most) = (1_usize, 0);
    for turn in 0..requests {
        // A linear congruential generator (Knuth, MMIX); a few names are repeated often.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number =
            if turn % 4 == 0 { (state >> 33) % (files / 50) } else { (state >> 33) % files };
        let (status, body) = get(&mut lines[turn % 8], &name(number));
        let text = String::from_utf8_lossy(&body);
        assert!(status == 200 && text.trim() == number.to_string(), "{number}: {status}");
        if turn % 200 == 199 {
            most = most.max(descriptors(&server) - before);
        }
    }
    assert!(most < 8 + 40, "{most} descriptors for eight connections");
}

mod timed {
    #[test]
    fn a_hundred_thousand_files_asked_at_random_need_few_descriptors() {
        super::assert_few_descriptors(100_000, 20_000);
    }
}
