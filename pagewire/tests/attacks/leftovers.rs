// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills while wire images are made: the next start removes every unfinished file, whatever its
//! age, and takes none from another server on the same cache that still makes one.
//!
//! Sources: flock(2): a lock ends with the last descriptor, so a killed maker holds none.
//! Does not damage finished files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server};

/// Large enough that its image takes a tenth of a second and more.
const FILM: &str = "film.ts";

#[test]
fn killed_servers_leave_nothing_for_longer_than_a_start() {
    let place = film();
    // The leftover of a server that was killed while it wrote a plan.
    let plans = place.cache().join("plans");
    fs::create_dir_all(&plans).expect("a folder");
    fs::write(plans.join("0123456789abcdef.key.tmp"), [7; 4096]).expect("room for a file");
    let mut leftovers = 0;
    for round in 0..KILLS {
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        assert_eq!(unfinished(&place), [] as [PathBuf; 0], "round {round}: swept at the start");
        play(&server);
        await_unfinished(&place);
        // Dropped without a stop it is killed by SIGKILL.
        drop(server);
        leftovers += unfinished(&place).len();
        // An image that was finished before the kill would be found by the next server.
        for image in files(&place.cache().join("images"), "wire") {
            fs::remove_file(image).expect("nobody else removes it");
        }
    }
    assert!(leftovers > 0, "no kill came while an image was made: the test tests nothing");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    assert_eq!(unfinished(&place), [] as [PathBuf; 0]);
    server.await_log("unfinished files of");
}

#[test]
fn a_start_takes_nothing_from_a_server_that_makes_an_image() {
    let place = film();
    let maker = Server::at(&place, Command::new(PROGRAM), &[]);
    play(&maker);
    await_unfinished(&place);
    let pid = Pid::from_raw(maker.pid() as i32).expect("a process");
    // As slow a disk as there is.
    kill_process(pid, Signal::STOP).expect("it runs");
    let making = unfinished(&place);
    assert_eq!(making.len(), 1, "stopped while it made one: {making:?}");
    let second = Place::new();
    std::os::unix::fs::symlink(place.cache(), second.cache()).expect("a link to the cache");
    let other = Server::at(&second, Command::new(PROGRAM), &[]);
    let left = unfinished(&place);
    kill_process(pid, Signal::CONT).expect("it is stopped");
    assert_eq!(left, making, "the second server started and took nothing");
    maker.await_log("wire image ready");
    assert_eq!(unfinished(&place), [] as [PathBuf; 0]);
    assert_eq!(files(&place.cache().join("images"), "wire").len(), 1);
    other.stop();
    maker.stop();
}

fn film() -> Place {
    let place = Place::new();
    let clip = Clip { bits_per_second: 20_000_000, ..Clip::of_seconds(3, 180) };
    place.put(FILM, &clip.bytes());
    place
}

/// Has the image made; the session ends with its connection.
fn play(server: &Server) {
    server.await_stream(FILM);
    Player::set_up(server.rtsp, FILM).play();
}

#[track_caller]
fn await_unfinished(place: &Place) {
    let deadline = Instant::now() + WAIT;
    while unfinished(place).is_empty() {
        assert!(Instant::now() < deadline, "no image is made");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Temporary files of the whole cache.
fn unfinished(place: &Place) -> Vec<PathBuf> {
    ["plans", "images"].iter().flat_map(|part| files(&place.cache().join(part), "tmp")).collect()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

const KILLS: u32 = 3;
const WAIT: Duration = Duration::from_secs(20);
