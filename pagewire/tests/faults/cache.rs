// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache is never trusted and never required: damaged files in it are made again, and streams
//! play without it.
//!
//! A server with a file for each kind of damage plays all of them at once, because it mostly waits.
//!
//! `timed` waits until the server retries an image for which there was no room.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::await_read;
use crate::files::{PATHS, as_somebody_else};
use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server, await_true};
use crate::interleaved::Reader;

/// Short: it is played repeatedly.
fn clip(seed: u64) -> Vec<u8> {
    Clip { seed, milliseconds: 600, bits_per_second: 500_000, with_clock: true }.bytes()
}

fn start(place: &Place, options: &[&str]) -> Server {
    Server::at(place, Command::new(PROGRAM), options)
}

/// Plays it from beginning to end, asserts that it is `bytes`, and returns its first sequence
/// number.
#[track_caller]
fn assert_plays(server: &Server, name: &str, bytes: &[u8]) -> u16 {
    let mut player = Player::set_up(server.rtsp, name);
    let first = player.play();
    player.hear("the end", |heard| !heard.byes.is_empty());
    assert_eq!(player.heard().assert_gapless(bytes, first).len(), bytes.len());
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    first
}

/// Returns the only file below the cache with this ending.
#[track_caller]
fn only(place: &Place, folder: &str, ending: &str) -> PathBuf {
    let mut found = listed(&place.cache().join(folder));
    found.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the cache");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// A way to damage a file; returns its new bytes.
type Damage = fn(&[u8]) -> Vec<u8>;

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

/// Puts a file for each of `count` kinds of damage into a folder; returns their names and bytes.
fn put_files(place: &Place, count: usize) -> Vec<(String, Vec<u8>)> {
    (0..count)
        .map(|index| {
            let (name, bytes) = (format!("damage-{index:02}.ts"), clip(100 + index as u64));
            place.put(&name, &bytes);
            (name, bytes)
        })
        .collect()
}

/// Plays all files at once.
fn play_all(server: &Server, files: &[(String, Vec<u8>)], play: fn(&Server, &str, &[u8])) {
    thread::scope(|scope| {
        for (name, bytes) in files {
            scope.spawn(move || play(server, name, bytes));
        }
    });
}

/// Returns the files below a folder of the cache, sorted; asserts `count` of them, and no
/// half-written file.
#[track_caller]
fn sorted(place: &Place, folder: &str, count: usize) -> Vec<PathBuf> {
    let mut paths = listed(&place.cache().join(folder));
    paths.sort();
    assert_eq!(paths.len(), count, "{paths:?}");
    paths
}

#[test]
fn a_damaged_plan_is_made_again() {
    let damages: &[Damage] = &[
        |good| good.to_vec(),
        |good| flipped(good, 0),
        |good| flipped(good, 9),
        |good| flipped(good, good.len() / 2),
        |good| flipped(good, good.len() - 1),
        |good| good[..good.len() - 1].to_vec(),
        |good| [good, &[0]].concat(),
        |_| Vec::new(),
        |good| vec![0xff; good.len()],
    ];
    let place = Place::new();
    let files = put_files(&place, damages.len());
    let options = ["--cache-size", "0"];
    let server = start(&place, &options);
    await_read(&server, files.len());
    server.stop();
    let plans = sorted(&place, "plans", damages.len());
    let read = |plan: &PathBuf| fs::read(plan).expect("a plan");
    let damaged: Vec<_> = plans.iter().zip(damages).map(|(plan, to)| to(&read(plan))).collect();
    for (plan, bytes) in plans.iter().zip(&damaged) {
        fs::write(plan, bytes).expect("the test may damage it");
    }

    let server = start(&place, &options);
    await_read(&server, files.len());
    play_all(&server, &files, |server, name, bytes| {
        assert_plays(server, name, bytes);
    });
    let invalid = server.index()["server"]["plans_invalid"].as_u64().expect("a count");
    assert!(invalid >= damages.len() as u64 - 1, "{invalid} plans were found invalid");
    server.stop();
    assert_eq!(sorted(&place, "plans", damages.len()), plans, "nothing half-written is left");
    for (index, (plan, damaged)) in plans.iter().zip(&damaged).enumerate() {
        assert_eq!(read(plan) != *damaged, index > 0, "damage {index}: made again");
    }

    // The new plans are complete.
    let server = start(&place, &options);
    await_read(&server, files.len());
    assert_eq!(server.index()["server"]["plans_invalid"], 0);
    server.stop();
}

/// The stream has the same numbers after a restart.
#[test]
fn an_undamaged_plan_is_used_again() {
    let (place, bytes) = (Place::new(), clip(41));
    place.put("a.ts", &bytes);
    let [first, again] = [(); 2].map(|()| {
        let server = start(&place, &["--cache-size", "0"]);
        await_read(&server, 1);
        let first = assert_plays(&server, "a.ts", &bytes);
        assert_eq!(server.index()["server"]["plans_invalid"], 0);
        server.stop();
        first
    });
    assert_eq!(first, again);
}

/// A folder or the like in place of the plan: the log reports that the plan cannot be kept.
#[test]
fn a_plan_that_cannot_be_replaced_is_done_without() {
    let (place, bytes) = (Place::new(), clip(46));
    place.put("a.ts", &bytes);
    let server = start(&place, &["--cache-size", "0"]);
    await_read(&server, 1);
    server.stop();
    let plan = only(&place, "plans", "plan");
    fs::remove_file(&plan).expect("it is there");
    fs::create_dir(&plan).expect("its place is free");
    let server = start(&place, &["--cache-size", "0"]);
    assert_plays(&server, "a.ts", &bytes);
    let log = server.stop();
    assert!(log.contains("it will be made again at the next start"), "{log}");
    assert_eq!(listed(&place.cache().join("plans")), [plan], "nothing half-written is left");
}

/// Plays it on an RTSP connection from beginning to end and asserts that it is `bytes`.
#[track_caller]
fn assert_plays_framed(server: &Server, name: &str, bytes: &[u8]) {
    assert_plays_on((0, "0-1"), server, name, bytes);
}

#[track_caller]
fn assert_plays_on((rtp, channels): (u8, &str), server: &Server, name: &str, bytes: &[u8]) {
    let mut reader = Reader::to(server);
    let session = reader.play(name, channels);
    assert!(reader.media_to_bye(rtp) == bytes, "not the file");
    let reply = reader.ask("TEARDOWN", name, &[&session]);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
}

/// An image's frames are of channel 0; a reader on other channels gets the same bytes from the
/// file.
#[test]
fn framed_images_serve_readers_on_their_channel() {
    let (place, bytes) = (Place::new(), clip(48));
    place.put("a.ts", &bytes);
    let server = start(&place, &[]);
    assert_plays_on((4, "4-5"), &server, "a.ts", &bytes);
    assert_eq!(listed(&place.cache().join("images")).len(), 0, "nobody could use an image");
    assert_plays_framed(&server, "a.ts", &bytes);
    server.await_log("a.ts: framed wire image ready");
    for _ in 0..2 {
        thread::scope(|scope| {
            scope.spawn(|| assert_plays_framed(&server, "a.ts", &bytes));
            scope.spawn(|| assert_plays_on((4, "4-5"), &server, "a.ts", &bytes));
            scope.spawn(|| assert_plays(&server, "a.ts", &bytes));
        });
    }
    server.await_log("a.ts: wire image ready");
    let images = listed(&place.cache().join("images"));
    assert_eq!(images.len(), 2, "one for datagrams and one of frames: {images:?}");
    let log = server.stop();
    assert!(!log.contains("dropped"), "{log}");
}

#[test]
fn a_damaged_wire_image_is_made_again() {
    assert_damaged_images_are_made_again("wire image", |server, name, bytes| {
        assert_plays(server, name, bytes);
    });
}

#[test]
fn a_damaged_framed_image_is_made_again() {
    assert_damaged_images_are_made_again("framed wire image", assert_plays_framed);
}

fn assert_damaged_images_are_made_again(image: &str, play: fn(&Server, &str, &[u8])) {
    let damages: &[Damage] = &[
        |good| good.to_vec(),
        |good| flipped(good, 0),
        |good| flipped(good, 3),
        |good| flipped(good, good.len() / 2),
        |good| flipped(good, good.len() - 1),
        |good| flipped(good, good.len() - 72),
        |good| flipped(good, good.len() - 73),
        |good| good[..good.len() - 1].to_vec(),
        |good| good[..good.len() / 2].to_vec(),
        |good| [good, &[0]].concat(),
        |_| Vec::new(),
        |good| vec![0x80; good.len()],
    ];
    let place = Place::new();
    let files = put_files(&place, damages.len());
    let server = start(&place, &[]);
    play_all(&server, &files, play);
    for (name, _) in &files {
        server.await_log(&format!("{name}: {image} ready"));
    }
    server.stop();
    let images = sorted(&place, "images", damages.len());
    let good: Vec<_> = images.iter().map(|image| fs::read(image).expect("an image")).collect();
    for ((image, good), damage) in images.iter().zip(&good).zip(damages) {
        fs::write(image, damage(good)).expect("the test may damage it");
    }

    let server = start(&place, &[]);
    // An image with a bad block is dropped at the first play and made again by a play that begins
    // after the first has ended, a moment after the answer to TEARDOWN.
    let is_good = |image: &PathBuf, good: &Vec<u8>| fs::read(image).is_ok_and(|is| is == *good);
    let deadline = Instant::now() + HANGING;
    loop {
        play_all(&server, &files, play);
        let bad: Vec<_> =
            (0..images.len()).filter(|&at| !is_good(&images[at], &good[at])).collect();
        if bad.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "damages not mended: {bad:?}; log: {}", server.log());
    }
    play_all(&server, &files, play);
    let log = server.stop();
    for (index, image) in images.iter().enumerate() {
        let is_named = log.contains(&format!("wire image {}: ", image.display()));
        assert_eq!(is_named, index > 0, "damage {index}: {log}");
    }
    assert_eq!(sorted(&place, "images", damages.len()), images, "nothing half-written is left");
    assert!(images.iter().zip(&good).all(|(image, good)| is_good(image, good)), "as they were");
}

#[test]
fn a_cache_that_cannot_be_made_is_logged_and_done_without() {
    let (place, bytes) = (Place::new(), clip(43));
    place.put("a.ts", &bytes);
    fs::write(place.cache(), "a file where the folder should be").expect("its place is free");
    let server = start(&place, &[]);
    await_read(&server, 1);
    for _ in 0..2 {
        assert_plays(&server, "a.ts", &bytes);
    }
    let log = server.stop();
    assert!(log.contains("WARN") && log.contains("plans are not kept; write --cache"), "{log}");
}

#[test]
fn a_cache_that_may_not_be_written_is_logged_and_done_without() {
    let (place, bytes) = (Place::new(), clip(43));
    place.put("a.ts", &bytes);
    let set_mode = |mode| {
        for folder in ["plans", "images", ""] {
            let folder = place.cache().join(folder);
            fs::create_dir_all(&folder).expect("its place is free");
            let permissions = Permissions::from_mode(mode);
            fs::set_permissions(&folder, permissions).expect("the test owns it");
        }
    };
    set_mode(0o555);
    let Some(command) = as_somebody_else(&place) else { return };
    let server = Server::at(&place, command, &PATHS);
    await_read(&server, 1);
    for _ in 0..2 {
        assert_plays(&server, "a.ts", &bytes);
    }
    let log = server.stop();
    assert!(log.contains("it will be made again at the next start"), "{log}");
    assert!(log.contains("no wire image") && log.contains("it is sent from the file"), "{log}");
    // Makes it removable.
    set_mode(0o755);
}

/// Returns the bytes of all wire images.
fn image_bytes(place: &Place) -> u64 {
    let files = listed(&place.cache().join("images"));
    files.iter().map(|path| fs::metadata(path).expect("it is there").len()).sum()
}

#[test]
fn no_wire_image_is_made_without_room_for_one() {
    let (place, bytes) = (Place::new(), clip(44));
    place.put("a.ts", &bytes);
    for limit in ["0", "10K"] {
        let server = start(&place, &["--cache-size", limit]);
        assert_plays(&server, "a.ts", &bytes);
        if limit != "0" {
            server.await_log("no wire image");
        }
        let log = server.stop();
        assert_eq!(log.contains("no wire image"), limit != "0", "{log}");
        assert_eq!(image_bytes(&place), 0, "--cache-size {limit}");
    }
}

/// A server with room for one of two images, after `a.ts` was played, then `b.ts`, and then `a.ts`
/// again while `b.ts` still plays.
struct RoomForOne {
    server: Server,
    a: Vec<u8>,
    b: Vec<u8>,
    player: Player,
    first: u16,
}

/// Waits until the images are released, a moment after the answer to TEARDOWN: until then they are
/// locked.
fn await_unused(place: &Place) {
    let is_unused = |path: &PathBuf| File::open(path).expect("it is there").try_lock().is_ok();
    let images = listed(&place.cache().join("images"));
    await_true("the images are let go", || images.iter().all(is_unused));
}

impl RoomForOne {
    fn begin() -> RoomForOne {
        let [a, b] =
            [(44, 2), (45, 60)].map(|(seed, seconds)| Clip::of_seconds(seed, seconds).bytes());
        let place = Place::new();
        place.put("a.ts", &a);
        place.put("b.ts", &b);
        // Room for either.
        let limit = (b.len() + b.len() / 50).to_string();
        let server = start(&place, &["--cache-size", &limit]);
        assert_plays(&server, "a.ts", &a);
        server.await_log("a.ts: wire image ready");
        await_unused(&place);
        let mut player = Player::set_up(server.rtsp, "b.ts");
        let first = player.play();
        server.await_log("b.ts: wire image ready");
        assert!(server.log().contains("evicted"), "{}", server.log());
        assert_plays(&server, "a.ts", &a);
        server.await_log("a.ts: no wire image");
        assert!(image_bytes(&place) <= b.len() as u64 + b.len() as u64 / 50);
        RoomForOne { server, a, b, player, first }
    }
}

/// An unused image is evicted for another; one in use never is.
#[test]
fn the_limit_on_wire_images_is_kept() {
    let RoomForOne { server, b, mut player, first, .. } = RoomForOne::begin();
    let before = player.heard().packets.len();
    player.hear("it plays on", |heard| heard.packets.len() > before + 10);
    player.heard().assert_gapless(&b, first);
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    server.stop();
}

/// Guards against hanging; not a measure of speed.
const HANGING: Duration = Duration::from_secs(60);

mod timed {
    use super::*;

    /// The server retries at the earliest 10 s after it found no room.
    #[test]
    fn an_image_is_made_when_there_is_room_again() {
        let RoomForOne { server, a, mut player, .. } = RoomForOne::begin();
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
        drop(player);
        // Its image is released a moment after the answer to TEARDOWN.
        let is_made_again = || server.log().matches("a.ts: wire image ready").count() > 1;
        for _ in 0..30 {
            assert_plays(&server, "a.ts", &a);
            if is_made_again() {
                break;
            }
        }
        assert!(is_made_again(), "there is room again");
        server.stop();
    }
}
