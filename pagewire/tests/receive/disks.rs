// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks that are full or slow, and a recorder that is killed: written data is intact, and dropped
//! data is counted.

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::assert_file;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{BURST, Recorder, Sender, url};
use crate::harness::{PROGRAM, Place, Server};

#[test]
fn a_file_at_its_limit_is_cut_to_whole_packets_and_served() {
    let place = Place::new();
    let clip = Clip::of_seconds(1, 20).bytes();
    let port = free_port();
    let mut limited = Command::new("sh");
    // `ulimit -f` counts blocks of 512 bytes.
    limited.args(["-c", "ulimit -f 1000 && exec \"$0\" \"$@\"", PROGRAM]);
    let pattern = place.folder().join("0.ts");
    let options = ["-o", pattern.to_str().expect("UTF-8")];
    let recorder = Recorder::by(limited, &place, &[url(port)], &options);
    Sender::rtp(port, 1, 0).send_all(&clip);
    let recorded = recorder.ended();
    let whole = 512_000 / 188 * 188;
    assert_file(&pattern, &clip[..whole]);
    assert_eq!(recorded.status.code(), Some(1), "{:#}", recorded.summary);
    let ended = recorded.stream(0)["ended"].as_str().expect("why").to_owned();
    assert!(ended.contains("File too large"), "{ended}");
    assert_eq!(recorded.figure("written_bytes"), whole as u64);
    let dropped = recorded.figure("dropped_by_disk") as usize * 188;
    let accepted = recorded.figure("payload_bytes") as usize;
    assert_eq!(whole + dropped, accepted);
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream("0.ts");
    server.stop();
}

#[test]
fn a_full_disk_ends_the_stream_cleanly() {
    let place = Place::new();
    let clip = Clip::of_seconds(2, 24).bytes();
    let port = free_port();
    let (disk, saved) = (place.folder(), place.top().join("saved.ts"));
    let script = "mount -t tmpfs -o size=1m none \"$1\"
        shift
        \"$0\" \"$@\"; status=$?
        cp \"$DISK/0.ts\" \"$SAVED\"
        exit $status";
    let probe = Command::new("unshare").args(["-Urm", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!("skip: a_full_disk_ends_the_stream_cleanly: no mount namespace (unshare -Urm)");
        return;
    }
    let mut inside = Command::new("unshare");
    inside.args(["-Urm", "sh", "-c", script, PROGRAM]).arg(&disk);
    inside.env("DISK", &disk).env("SAVED", &saved);
    let pattern = disk.join("0.ts");
    let options = ["-o", pattern.to_str().expect("UTF-8")];
    let recorder = Recorder::by(inside, &place, &[url(port)], &options);
    Sender::bare(port).send_all(&clip);
    let recorded = recorder.ended();
    assert_eq!(recorded.status.code(), Some(1), "{}", recorded.log);
    let ended = recorded.stream(0)["ended"].as_str().expect("why");
    assert!(ended.contains("No space left on device"), "{ended}");
    let written = fs::read(&saved).expect("what was on the disk");
    assert!(written.len() >= 1_000_000 && written.len() % 188 == 0, "{}", written.len());
    assert!(clip.starts_with(&written));
    assert_eq!(recorded.figure("written_bytes"), written.len() as u64);
}

#[test]
fn a_disk_that_stands_still_costs_whole_packets_that_are_counted() {
    let place = Place::new();
    let clip = Clip::of_seconds(3, 60).bytes();
    let port = free_port();
    let pipe = place.folder().join("pipe.ts");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo(1) is everywhere").success());
    let options = ["-o", pipe.to_str().expect("UTF-8"), "--queue-mib", "1"];
    let recorder = Recorder::by(Command::new(PROGRAM), &place, &[url(port)], &options);
    // The pipe is opened so that the writer begins, and read only after everything has been sent.
    let opened = {
        let pipe = pipe.clone();
        spawn(move || File::open(pipe).expect("a pipe"))
    };
    Sender::rtp(port, 1, 0).send_all(&clip);
    let mut reader = opened.join().expect("it was opened");
    let drained = spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    });
    let recorded = recorder.stop();
    let bytes = drained.join().expect("it was read");
    assert_eq!(recorded.status.code(), Some(1), "{:#}", recorded.summary);
    let dropped = recorded.figure("dropped_by_disk") as usize * 188;
    assert!(dropped > 0 && recorded.figure("lost") == 0, "{:#}", recorded.summary);
    assert_eq!(recorded.figure("written_bytes") as usize, bytes.len());
    assert_eq!(bytes.len() + dropped, clip.len());
    // The file holds packets of the stream in order.
    let mut packets = clip.chunks(188);
    assert!(bytes.chunks(188).all(|written| packets.any(|sent| sent == written)));
}

#[test]
fn killed_at_any_moment_it_leaves_what_it_had_written() {
    const ROUNDS: u64 = 10;
    let rounds = (0..ROUNDS).map(|round| spawn(move || kill_once(round)));
    let rounds: Vec<_> = rounds.collect();
    let places: Vec<_> =
        rounds.into_iter().map(|round| round.join().expect("said above")).collect();
    // One of the files is played: a truncated end does not prevent it.
    let server = Server::at(&places[0], Command::new(PROGRAM), &[]);
    server.await_stream("0.ts");
    server.stop();
}

fn kill_once(round: u64) -> Place {
    let place = Place::new();
    let clip = Clip { bits_per_second: 8_000_000, ..Clip::of_seconds(20 + round, 4) }.bytes();
    let port = free_port();
    let recorder = Recorder::start(&place, &[url(port)], &["--sync", "0.2"]);
    let sent = clip.clone();
    let sender = spawn(move || {
        let mut sender = Sender::rtp(port, 1, 0);
        for (index, payload) in sent.chunks(PAYLOAD_BYTES).enumerate() {
            if index % BURST == 0 {
                sender.await_room();
            }
            sender.send(payload);
            // Sending lasts two seconds, over which the kills of the rounds are spread.
            sleep(Duration::from_micros(700));
        }
    });
    recorder.await_bytes("0.ts", 188);
    // The kill times are spread over the rest of the stream and share no period with the recorder.
    sleep(Duration::from_micros(round * round * 20_011 + 137 * round));
    recorder.kill();
    let written = fs::read(place.folder().join("0.ts")).expect("a file");
    assert!(clip.starts_with(&written), "round {round}: {} bytes", written.len());
    assert!(written.len() >= 188);
    sender.join().expect("it sends to anybody");
    place
}
