// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kept plans damaged at random places: what is streamed is the file, whatever its plan was changed
//! to while no server ran.
//!
//! Sources: SECURITY.md, "the cache".

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server};
use crate::random::Random;

#[test]
fn plans_damaged_at_random_places_never_stream_a_wrong_byte() {
    let place = Place::new();
    let clips: Vec<_> = (0..ASSETS).map(|asset| (format!("{asset:02}.ts"), clip(asset))).collect();
    for (name, bytes) in &clips {
        place.put(name, bytes);
    }
    drop(server_that_planned_all(&place));
    let plans: Vec<_> = plans(&place).into_iter().map(|path| (read(&path), path)).collect();
    assert_eq!(plans.len(), clips.len());
    let mut random = Random::seeded(7);
    for round in 0..ROUNDS {
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

/// Half a second: it is played again and again.
fn clip(seed: u64) -> Vec<u8> {
    Clip { seed: 100 + seed, milliseconds: 500, bits_per_second: 1_000_000, with_clock: true }
        .bytes()
}

/// A server without wire images, so that the plan decides every packet.
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
    let entries = fs::read_dir(place.cache().join("plans")).expect("a folder of the cache");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "plan"));
    paths.sort();
    paths
}

fn read(path: &PathBuf) -> Vec<u8> {
    fs::read(path).expect("a plan")
}

const ASSETS: u64 = 40;
const ROUNDS: usize = 4;
