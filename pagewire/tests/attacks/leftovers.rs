// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills while wire images are made: the next start removes every unfinished file of any age,
//! except files that another running server is still making in the same cache.
//!
//! A server is stopped (SIGSTOP) as soon as an unfinished file is seen; where the server was
//! quicker, its image is removed and made again.
//!
//! Sources: flock(2): a lock ends with the last descriptor, so a killed maker holds none. Does not
//! damage finished files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server};

/// Large enough that its image is seen while it is made.
const FILM: &str = "film.ts";

#[test]
fn killed_servers_leave_nothing_for_longer_than_a_start() {
    let place = film();
    // The leftover of a server that was killed while it wrote a plan.
    let plans = place.cache().join("plans");
    fs::create_dir_all(&plans).expect("a folder");
    fs::write(plans.join("0123456789abcdef.key.tmp"), [7; 4096]).expect("room for a file");
    for round in 0..KILLS {
        // Dropped without a stop, so it is killed by SIGKILL.
        drop(stopped_amid_an_image(&place));
        assert_eq!(making(&place).len(), 1, "round {round}: it was making an image");
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    assert_eq!(unfinished(&place), [] as [PathBuf; 0]);
    server.await_log("unfinished files of");
}

#[test]
fn a_start_takes_nothing_from_a_server_that_makes_an_image() {
    let place = film();
    // Simulates an extremely slow disk.
    let maker = stopped_amid_an_image(&place);
    let pid = Pid::from_raw(maker.pid() as i32).expect("a process");
    let making = making(&place);
    assert_eq!(making.len(), 1, "stopped while it made one: {making:?}");
    let second = Place::new();
    std::os::unix::fs::symlink(place.cache(), second.cache()).expect("a link to the cache");
    let other = Server::at(&second, Command::new(PROGRAM), &[]);
    let left = self::making(&place);
    kill_process(pid, Signal::CONT).expect("it is stopped");
    assert_eq!(left, making, "the second server started and took nothing");
    maker.await_log("wire image ready");
    assert_eq!(unfinished(&place), [] as [PathBuf; 0]);
    assert_eq!(images(&place).len(), 1);
    other.stop();
    maker.stop();
}

fn film() -> Place {
    let place = Place::new();
    let clip = Clip { bits_per_second: 20_000_000, ..Clip::of_seconds(3, 16) };
    place.put(FILM, &clip.bytes());
    place
}

/// Returns a server that finds no unfinished file at its start, and is stopped while it makes an
/// image.
#[track_caller]
fn stopped_amid_an_image(place: &Place) -> Server {
    let deadline = Instant::now() + WAIT;
    loop {
        let server = Server::at(place, Command::new(PROGRAM), &[]);
        assert_eq!(unfinished(place), [] as [PathBuf; 0], "swept at the start");
        server.await_stream(FILM);
        // The session ends with its connection.
        Player::set_up(server.rtsp, FILM).play();
        while making(place).is_empty() && images(place).is_empty() {
            assert!(Instant::now() < deadline, "no image is made");
            std::thread::sleep(LOOK_EVERY);
        }
        let pid = Pid::from_raw(server.pid() as i32).expect("a process");
        kill_process(pid, Signal::STOP).expect("it runs");
        await_stopped(server.pid(), deadline);
        if !making(place).is_empty() {
            return server;
        }
        assert!(Instant::now() < deadline, "each image was finished before it was seen");
        drop(server);
        images(place).iter().for_each(|image| fs::remove_file(image).expect("it is there"));
    }
}

/// The delivery of a signal takes a moment.
#[track_caller]
fn await_stopped(pid: u32, deadline: Instant) {
    // proc_pid_stat(5): the state follows the name in parentheses; each thread has its own.
    let is_stopped = |stat: &Path| {
        let stat = fs::read_to_string(stat).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    loop {
        let entries = fs::read_dir(&tasks).expect("it is stopped, not gone");
        let mut threads = entries.flatten().map(|entry| entry.path().join("stat"));
        if threads.all(|stat| is_stopped(&stat)) {
            return;
        }
        assert!(Instant::now() < deadline, "it runs on after SIGSTOP");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns images that are being written: a file that has just been created has neither bytes nor a
/// lock.
fn making(place: &Place) -> Vec<PathBuf> {
    let mut paths = files(&place.cache().join("images"), "tmp");
    paths.retain(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0));
    paths
}

/// Returns the finished images.
fn images(place: &Place) -> Vec<PathBuf> {
    files(&place.cache().join("images"), "wire")
}

/// Returns the temporary files of the whole cache.
fn unfinished(place: &Place) -> Vec<PathBuf> {
    ["plans", "images"].iter().flat_map(|part| files(&place.cache().join(part), "tmp")).collect()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

const KILLS: u32 = 3;
const WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(1);
