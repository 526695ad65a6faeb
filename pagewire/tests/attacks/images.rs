// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire images that a disk, or a user with write access to the cache, has damaged: with 500 damaged
//! places no wrong byte is sent, the sessions play on from the files, and the images are made
//! again.
//!
//! Bounded: twenty short assets, half of them damaged at one place, half at 49.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{Place, Server};
use crate::random::Random;
use crate::{beside_canary, serve_place};

const ASSETS: u64 = 20;
/// Together with the single ones, 500.
const PLACES: u64 = 49;
/// Assets that are played once more.
const AGAIN: usize = 4;
/// Guards against hanging; not a measure of speed.
const LIMIT: Duration = Duration::from_secs(60);

/// Four blocks of 64 KiB an image. All its 162 packets fit into a socket of the default size, so
/// that a slow client loses none.
fn clip(seed: u64) -> Vec<u8> {
    Clip { milliseconds: 850, bits_per_second: 2_000_000, ..Clip::of_seconds(1000 + seed, 1) }
        .bytes()
}

fn name(seed: u64) -> String {
    format!("asset-{seed}.ts")
}

/// Plays all assets from beginning to end, and asserts every byte.
fn play_all(server: &Server, clips: &[Vec<u8>]) {
    thread::scope(|scope| {
        for (seed, clip) in clips.iter().enumerate() {
            scope.spawn(move || {
                let mut player = Player::set_up(server.rtsp, &name(seed as u64));
                let first = player.play();
                player.hear("the end", |heard| !heard.byes.is_empty());
                let payload = player.heard().assert_gapless(clip, first);
                assert_eq!(payload.len(), clip.len(), "asset {seed}");
                assert_eq!(player.command("TEARDOWN", &[]).status, 200);
            });
        }
    });
}

fn images(place: &Place) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(place.cache().join("images")).expect("a folder of images");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "wire")).collect()
}

/// Flips a bit of each of `places` random bytes; length and times stay.
fn damage(image: &Path, places: u64, random: &mut Random) {
    let file = File::options().read(true).write(true).open(image).expect("the test owns it");
    let bytes = file.metadata().expect("it is open").len();
    let mut found = BTreeSet::new();
    while (found.len() as u64) < places {
        let at = random.below(bytes as usize) as u64;
        // Flipping the same bit twice would undo the damage.
        if found.insert(at) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("within the file");
            file.write_all_at(&[byte[0] ^ 1 << random.below(8)], at).expect("room for it");
        }
    }
}

#[test]
fn images_damaged_at_500_random_places_send_no_wrong_byte() {
    let place = Place::new();
    let clips: Vec<_> = (0..ASSETS).map(clip).collect();
    for (seed, clip) in clips.iter().enumerate() {
        place.put(&name(seed as u64), clip);
    }
    let server = serve_place(&place, &[]);
    for seed in 0..ASSETS {
        // Makes the server build the image; the session ends with its connection.
        Player::set_up(server.rtsp, &name(seed)).play();
    }
    server.await_index("all images are made", |_| images(&place).len() >= ASSETS as usize);
    server.stop();
    let made = images(&place);
    let mut random = Random::seeded(17);
    for (number, image) in made.iter().enumerate() {
        damage(image, if number % 2 == 0 { 1 } else { PLACES }, &mut random);
    }

    let server = serve_place(&place, &[]);
    let figures = || {
        let dropped = server.index()["server"]["images_dropped"].as_u64().expect("a count");
        let again = server.log().matches("of another file or damaged; made again").count() as u64;
        (dropped, again)
    };
    // An image that is opened only when its stream is over was not verified.
    let deadline = Instant::now() + LIMIT;
    beside_canary(&server, || {
        loop {
            play_all(&server, &clips);
            let (dropped, again) = figures();
            if dropped + again >= ASSETS {
                break;
            }
            assert!(Instant::now() < deadline, "{dropped} dropped, {again} made again");
        }
    });
    let (dropped, _) = figures();
    let log = server.stop();
    assert!(dropped >= ASSETS / 2, "by their blocks: {dropped}");
    let named = log.matches("is not as it was written; dropped").count() as u64;
    assert_eq!(named, dropped, "a line each: {log}");

    // A damaged image is removed; its replacement is intact.
    let server = serve_place(&place, &[]);
    play_all(&server, &clips[..AGAIN]);
    assert_eq!(server.index()["server"]["images_dropped"], 0);
    server.stop();
}
