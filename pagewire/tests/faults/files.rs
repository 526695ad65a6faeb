// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are not streams, cannot be read, vanish or shrink: each request gets the reason, a
//! download is served where it can be, and no other client is disturbed.
//!
//! Sources: RFC 2326 §11.3 and RFC 2068 §10.4.16 (415); openat2(2).

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::await_read;
use crate::harness::answer::{Line, http};
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, Player};
use crate::harness::{PROGRAM, Place, Server};
use crate::resource_snapshot::ResourceSnapshot;
use crate::serve;

fn row(index: &Value, name: &str) -> Value {
    let rows = index["files"].as_array().expect("a list of files");
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("{name} is not listed: {index:#}")).clone()
}

#[test]
fn what_is_no_stream_is_refused_with_the_reason_and_served_as_a_download() {
    let no_clock =
        Clip { seed: 21, milliseconds: 1000, bits_per_second: 500_000, with_clock: false };
    let text = "no transport stream at all\n".repeat(1000).into_bytes();
    let long_packets: Vec<u8> =
        Clip::of_seconds(22, 1).bytes().chunks(188).flat_map(|p| [p, &[0; 16]].concat()).collect();
    let unknown =
        "unknown format: not MP4, Matroska, MPEG audio, ADTS, WAV or MPEG transport stream";
    let files: [(&str, Vec<u8>, &str); 11] = [
        ("empty.ts", Vec::new(), "empty file"),
        ("empty.mp4", Vec::new(), "empty file"),
        ("byte.ts", vec![0x47], "shorter than two packets"),
        ("text.ts", text.clone(), unknown),
        ("text.mp4", text.clone(), unknown),
        ("short.mkv", b"short".to_vec(), unknown),
        ("no-clock.ts", no_clock.bytes(), "without a clock"),
        ("204.ts", long_packets, "packets of 204 bytes"),
        ("notes.txt", b"short\n".to_vec(), unknown),
        ("long.txt", text.clone(), unknown),
        ("film.avi", text, unknown),
    ];
    let listed: Vec<_> = files.iter().map(|(name, bytes, _)| (*name, bytes.as_slice())).collect();
    let server = serve(&listed, &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let index = server.index();
    for (name, bytes, reason) in &files {
        let row = row(&index, name);
        assert!(row["stream"].is_null(), "{row:#}");
        if [".ts", ".mp4", ".mkv"].iter().any(|end| name.ends_with(end)) {
            let not_streamed = row["not_streamed"].as_str().unwrap_or_default();
            assert!(not_streamed.contains(reason), "{name}: {row:#}");
        }
        let transport = "Transport: RTP/AVP;unicast;client_port=5000-5001";
        for (method, headers) in [("DESCRIBE", &[][..]), ("SETUP", &[transport])] {
            let answer = Control::to(server.rtsp).ask(method, name, headers);
            assert_eq!(answer.status, 415, "{method} {name}: {answer:?}");
            let reason = if name.ends_with(".avi") { "AVI: download only" } else { reason };
            assert!(answer.text().contains(reason), "{method} {name}: {}", answer.text());
            // Players show only the status line.
            let line = answer.head.lines().next().unwrap_or_default();
            assert!(line.contains(reason), "{method} {name}: {line}");
        }
        let download = http(server.http, "GET", &format!("/{name}"));
        assert_eq!((download.status, &download.body), (200, bytes), "{name}");
    }
    // A file that does not look like a film is treated like any other, also after a DESCRIBE.
    let index = server.index();
    for name in ["notes.txt", "long.txt"] {
        assert!(row(&index, name)["not_streamed"].is_null(), "{:#}", row(&index, name));
    }
    let film = row(&index, "film.avi");
    let not_streamed = film["not_streamed"].as_str().unwrap_or_default();
    assert!(not_streamed.starts_with("AVI: download only; ffmpeg -i "), "{not_streamed}");
    snapshot.assert_restored(&server);
}

/// A file that cannot become a stream is read no further, and the verdict is kept: no peer can make
/// the server read a large file repeatedly.
#[test]
fn a_large_file_that_is_no_stream_is_not_read_to_its_end() {
    let no_clock =
        Clip { seed: 28, milliseconds: 60_000, bits_per_second: 2_000_000, with_clock: false };
    let no_clock = no_clock.bytes();
    let server = serve(&[("no-clock.ts", &no_clock)], &[]);
    let large = File::create(server.folder().join("large.bin")).expect("a file");
    large.set_len(4 << 30).expect("sparse: it takes no room");
    server.place.put("last.ts", &[]);
    await_read(&server, 3);
    let before = bytes_read(&server);
    for _ in 0..20 {
        for name in ["large.bin", "no-clock.ts"] {
            assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", name, &[]).status, 415);
        }
    }
    let read = bytes_read(&server) - before;
    assert!(read < 2 * no_clock.len() as u64, "{read} bytes read");
}

/// proc_pid_io(5): bytes that its calls have read so far, from disk or not.
fn bytes_read(server: &Server) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{}/io", server.pid())).expect("it runs");
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    count.expect("a count of bytes read")
}

/// Shrunk while it plays: that stream ends with BYE and a line in the log. Emptied while it is
/// downloaded: the connection ends short of the announced length. Other clients continue.
#[test]
fn a_file_that_shrinks_ends_its_own_streams_only() {
    let [shrinking, steady] = [23, 24].map(|seed| Clip::of_seconds(seed, 60).bytes());
    // Larger than all socket buffers on the way.
    let download = vec![7; 64 << 20];
    let files: &[(&str, &[u8])] =
        &[("shrinking.ts", &shrinking), ("steady.ts", &steady), ("download.bin", &download)];
    // From the file itself: once a wire image exists, the file is no longer needed.
    let server = serve(files, &["--cache-size", "0"]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut hit: Vec<_> = (0..2).map(|_| Player::set_up(server.rtsp, "shrinking.ts")).collect();
    let mut other = Player::set_up(server.rtsp, "steady.ts");
    let firsts: Vec<_> = hit.iter_mut().map(Player::play).collect();
    let other_first = other.play();
    let mut line = Line::to(server.http);
    line.send("GET /download.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(line.head().expect("an answer").starts_with("HTTP/1.1 200 "));
    other.hear("it plays", |heard| heard.packets.len() > 15);

    // A length that ends within a packet and within a page.
    let left = shrinking.len() / 60 + 1001;
    for (name, bytes) in [("shrinking.ts", left), ("download.bin", 1001)] {
        let file = File::options().write(true).open(server.folder().join(name));
        file.and_then(|file| file.set_len(bytes as u64)).expect("the test may cut it");
    }
    let (rest, _) = line.rest(HANGING);
    assert!(rest.len() < download.len(), "all of it came");
    for (player, first) in hit.iter().zip(firsts) {
        player.hear("a BYE", |heard| !heard.byes.is_empty());
        let heard = player.heard();
        assert_eq!(heard.byes, ["the file cannot be sent any more"]);
        let whole = heard.packets.len().min(left / 1316 + 1) - 1;
        let sequences = heard.packets.iter().zip(0_u16..);
        for (packet, index) in sequences {
            let found = u16::from_be_bytes([packet[2], packet[3]]);
            assert_eq!(found, first.wrapping_add(index), "none is skipped");
        }
        let payload: Vec<_> = heard.packets[..whole].iter().flat_map(|p| &p[12..]).collect();
        let intact = payload.iter().zip(&shrinking).all(|(found, expected)| *found == expected);
        assert!(intact, "what was there was sent as it was");
    }
    let log = server.log();
    assert!(log.contains("shrinking.ts") && log.contains("the file now ends at byte"), "{log}");
    let before = other.heard().packets.len();
    other.hear("it plays on", |heard| heard.packets.len() > before + 15);
    other.heard().assert_gapless(&steady, other_first);
    assert_eq!(hit[0].command("PLAY", &[]).status, 454, "it is over");
    assert_eq!(other.command("TEARDOWN", &[]).status, 200);

    // The remaining file plays with its new length.
    server.await_index("it is read again", |index| {
        row(index, "shrinking.ts")["bytes"] == left
            && !row(index, "shrinking.ts")["stream"].is_null()
    });
    let mut again = Player::set_up(server.rtsp, "shrinking.ts");
    let first = again.play();
    again.hear("the end", |heard| !heard.byes.is_empty());
    let payload = again.heard().assert_gapless(&shrinking, first);
    assert_eq!(payload.len(), left / 188 * 188);
    assert_eq!(again.command("TEARDOWN", &[]).status, 200);
    drop((hit, other, again));
    snapshot.assert_restored(&server);
}

/// Deleted while it plays: a client that has it open gets it to the end; a later one gets an error.
#[test]
fn a_file_that_vanishes_plays_to_its_end_for_those_who_have_it() {
    assert_vanished_plays_to_its_end(&["--cache-size", "0"]);
}

#[test]
fn a_file_with_a_wire_image_that_vanishes_plays_to_its_end_for_those_who_have_it() {
    assert_vanished_plays_to_its_end(&[]);
}

fn assert_vanished_plays_to_its_end(options: &[&str]) {
    let clip = Clip::of_seconds(25, 1).bytes();
    let server = serve(&[("a.ts", &clip)], options);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    let mut ready = Player::set_up(server.rtsp, "a.ts");
    let first = player.play();
    player.hear("it plays", |heard| heard.packets.len() > 5);
    fs::remove_file(server.folder().join("a.ts")).expect("it is there");
    let first_of_ready = ready.play();
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "a.ts", &[]).status, 404);
    assert_eq!(http(server.http, "GET", "/a.ts").status, 404);
    for (player, first) in [(&mut player, first), (&mut ready, first_of_ready)] {
        player.hear("the end", |heard| !heard.byes.is_empty());
        assert_eq!(player.heard().byes, ["end of stream"]);
        assert_eq!(player.heard().assert_gapless(&clip, first).len(), clip.len());
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    await_read(&server, 0);
    drop((player, ready));
    snapshot.assert_restored(&server);
}

/// A file the server may not read is listed with that reason and refused; made readable, it is
/// served.
#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let clip = Clip::of_seconds(26, 1).bytes();
    let place = Place::new();
    place.put("open.ts", &clip);
    let closed = place.put("closed.ts", &clip);
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).expect("the test owns it");
    let Some(command) = as_somebody_else(&place) else { return };
    let server = Server::at(&place, command, &PATHS);
    let await_closed = || {
        server.await_index("closed.ts has its reason", |index| {
            let rows = index["files"].as_array().expect("a list of files");
            let closed = rows.iter().find(|row| row["name"] == "closed.ts");
            closed.is_some_and(|row| row["not_streamed"] == "not readable by the server")
        });
    };
    await_closed();
    server.await_stream("open.ts");
    assert_eq!(http(server.http, "GET", "/open.ts").body, clip);
    let refused = http(server.http, "GET", "/closed.ts");
    assert_eq!(refused.status, 403, "{refused:?}");
    let refused = Control::to(server.rtsp).ask("DESCRIBE", "closed.ts", &[]);
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.text().contains("not readable"), "{}", refused.text());
    fs::set_permissions(&closed, Permissions::from_mode(0o644)).expect("the test owns it");
    server.await_stream("closed.ts");
    let mut player = Player::set_up(server.rtsp, "closed.ts");
    let first = player.play();
    player.hear("it plays", |heard| heard.packets.len() > 5);
    player.heard().assert_gapless(&clip, first);
    // Made unreadable again, it is a row with the reason.
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).expect("the test owns it");
    await_closed();
}

/// No file of a folder that the server may not search is listed, old or new.
#[test]
fn a_folder_made_private_is_listed_no_more() {
    let place = Place::new();
    place.put("dir/film.bin", b"seen");
    let Some(command) = as_somebody_else(&place) else { return };
    let server = Server::at(&place, command, &PATHS);
    let of_folder = |index: &Value| {
        let rows = index["files"].as_array().expect("a list of files");
        let names = rows.iter().filter_map(|row| row["name"].as_str().map(str::to_owned));
        names.filter(|name| name.starts_with("dir/")).collect::<Vec<_>>()
    };
    server.await_index("dir/film.bin is listed", |index| of_folder(index) == ["dir/film.bin"]);
    let folder = place.folder().join("dir");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("the test owns it");
    server.await_index("the folder is gone", |index| of_folder(index).is_empty());
    fs::write(folder.join("payroll.bin"), b"new").expect("the test owns it");
    place.put("after.bin", b"seen");
    let index = server.await_index("after.bin is listed", |index| {
        let rows = index["files"].as_array().expect("a list of files");
        rows.iter().any(|row| row["name"] == "after.bin")
    });
    assert!(of_folder(&index).is_empty(), "{index:#}");
}

/// Named explicitly, so that a server does not measure for seconds which are the cheapest: the user
/// nobody cannot read the result, and for addresses other than loopback there may be none.
pub(crate) const PATHS: [&str; 4] = ["--path", "wire_sendfile", "--path", "read_write"];

/// Returns a command that runs the program with file permissions enforced: as the current user, or
/// as nobody where that is root. Returns `None`, with the reason printed, where that is impossible.
pub(crate) fn as_somebody_else(place: &Place) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(Command::new(PROGRAM));
    }
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    fs::set_permissions(place.top(), Permissions::from_mode(0o755)).expect("the test owns it");
    let mut probe = Command::new("setpriv");
    probe.args(nobody.get_args());
    probe.args(["sh", "-c", "test -x \"$0\" && test -r \"$1\"", PROGRAM]).arg(place.folder());
    match probe.output() {
        Ok(outcome) if outcome.status.success() => {
            nobody.arg(PROGRAM);
            Some(nobody)
        }
        Ok(outcome) => {
            let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
            eprintln!("skip: root may read all, and nobody cannot run the program here {stderr}");
            None
        }
        Err(error) => {
            eprintln!("skip: root may read all, and setpriv: not installed: {error}");
            None
        }
    }
}

/// The server does not block on a pipe in the folder, at the start and when it is requested.
#[test]
fn a_pipe_in_the_folder_is_not_waited_for() {
    let clip = Clip::of_seconds(27, 1).bytes();
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let made = Command::new("mkfifo").arg(server.folder().join("pipe.ts")).status();
    assert!(made.expect("mkfifo is part of every system").success());
    assert_eq!(http(server.http, "GET", "/pipe.ts").status, 404);
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "pipe.ts", &[]).status, 404);
    // Each is noticed although the pipe precedes it.
    server.place.put("b.ts", &clip);
    await_read(&server, 2);
    server.place.put("c.ts", &clip);
    await_read(&server, 3);
    assert!(!server.index().to_string().contains("pipe"));
    snapshot.assert_restored(&server);
}

/// Guards against hanging; not a measure of speed.
const HANGING: Duration = Duration::from_secs(60);
