// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stored plans damaged at random places while no server runs: the server still streams the bytes
//! of the file.
//!
//! Sources: SECURITY.md, "the cache".

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;

use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server};
use crate::random::Random;
use crate::tries;

#[test]
fn plans_damaged_at_random_places_never_stream_a_wrong_byte() {
    let place = Place::new();
    // Plans are synced to disk; this file system has no disk.
    let memory = TempDir::new_in("/dev/shm").ok();
    if let Some(memory) = &memory {
        symlink(memory.path(), place.cache()).expect("a link to the cache");
    }
    let clips: Vec<_> = (0..ASSETS).map(|asset| (format!("{asset:02}.ts"), clip(asset))).collect();
    for (name, bytes) in &clips {
        place.put(name, bytes);
    }
    drop(server_that_planned_all(&place));
    let plans: Vec<_> = plans(&place).into_iter().map(|path| (read(&path), path)).collect();
    assert_eq!(plans.len(), clips.len());
    let mut random = Random::seeded(7);
    for round in 0..tries(ROUNDS) {
        for (good, path) in &plans {
            let mut bytes = good.clone();
            // At least one byte differs: a mutation may undo another.
            while bytes == *good {
                random.mutate(&mut bytes);
            }
            fs::write(path, bytes).expect("the test may damage it");
        }
        let server = server_that_planned_all(&place);
        thread::scope(|scope| {
            for (name, bytes) in &clips {
                scope.spawn(|| assert_plays(&server, name, bytes));
            }
        });
        let log = server.stop();
        assert!(!log.contains("panicked"), "round {round}: {log}");
    }
}

/// The server does not block on a pipe, follow a link or read an endless file into memory.
#[test]
fn plants_in_the_cache_are_replaced_and_hold_nobody_up() {
    let place = Place::new();
    let clip = clip(0);
    place.put("00.ts", &clip);
    // A server that blocked on a planted file would exceed the limits of the client and of the
    // stop.
    let plays = |server: &Server| assert_plays(server, "00.ts", &clip);
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    plays(&server);
    let image = || files(&place, "images", "wire");
    server.await_index("an image is made", |_| image().len() == 1);
    drop(server);
    let (plan, image) = (plans(&place).remove(0), image().remove(0));
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status().expect("coreutils");
        assert!(made.success());
    };
    let endless = |path: &Path| symlink("/dev/zero", path).expect("a link");
    let long = |path: &Path| {
        let file = File::create(path).expect("a file");
        file.set_len(1 << 40).expect("a file with a hole");
    };
    let plants: [&dyn Fn(&Path); 3] = [&pipe, &endless, &long];
    for plant in plants {
        for path in [&plan, &image] {
            fs::remove_file(path).expect("the test may remove it");
            plant(path);
        }
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        plays(&server);
        let is_replaced = |path: &PathBuf| {
            let found = fs::symlink_metadata(path);
            found.is_ok_and(|found| found.is_file() && found.len() < 1 << 30)
        };
        server.await_index("both are made again", |_| is_replaced(&plan) && is_replaced(&image));
        server.stop();
    }
}

/// A quarter of a second: it is played repeatedly.
fn clip(seed: u64) -> Vec<u8> {
    Clip { seed: 100 + seed, milliseconds: 250, bits_per_second: 1_000_000, with_clock: true }
        .bytes()
}

/// Starts a server without wire images, so that the plan decides every packet.
fn server_that_planned_all(place: &Place) -> Server {
    let server = Server::at(place, Command::new(PROGRAM), &["--cache-size", "0"]);
    server.await_index("all are planned", |index| {
        let rows = index["files"].as_array().expect("a list of files");
        rows.iter().filter(|row| row["stream"].is_object()).count() == ASSETS as usize
    });
    server
}

#[track_caller]
fn assert_plays(server: &Server, name: &str, bytes: &[u8]) {
    let mut player = Player::set_up(server.rtsp, name);
    let first = player.play();
    player.hear("the end", |heard| !heard.byes.is_empty());
    assert_eq!(player.heard().assert_gapless(bytes, first).len(), bytes.len(), "{name}");
}

fn plans(place: &Place) -> Vec<PathBuf> {
    files(place, "plans", "plan")
}

fn files(place: &Place, folder: &str, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.cache().join(folder)).expect("a folder of the cache");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == kind));
    paths.sort();
    paths
}

fn read(path: &PathBuf) -> Vec<u8> {
    fs::read(path).expect("a plan")
}

const ASSETS: u64 = 40;
const ROUNDS: usize = 4;
