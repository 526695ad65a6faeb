// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that cannot start reports the reason and the cure: exit status 2 for a wrong option, 1
//! for a refusal of the host. No ready line is printed.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::files::PATHS;
use crate::harness::rtsp::Control;
use crate::harness::watchdog::{self, Outcome};
use crate::harness::{PROGRAM, Place, Server};

#[track_caller]
fn refused(options: &[&str]) -> Outcome {
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp=127.0.0.1:0", "--http=127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).args(options);
    // The folder is given alone, or as a path after an option that needs one.
    if !options.first().is_some_and(|first| first.starts_with('/') || first.starts_with('.')) {
        command.arg(place.folder());
    }
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    assert!(!String::from_utf8_lossy(&outcome.stdout).contains("ready"), "{outcome:?}");
    outcome
}

#[test]
fn wrong_options_are_named_with_the_cure_and_exit_status_2() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cases: &[(&[&str], &[&str])] = &[
        (&["--no-such-option"], &["--no-such-option"]),
        (
            &["/no/such/folder"],
            &["/no/such/folder: no such folder; name a folder", "mkdir -p /no/"],
        ),
        (&[file], &["Cargo.toml: a file; name a folder", "lies in: /"]),
        (
            &["--hls-key-file", "no-key"],
            &["--hls-key-file: no-key: no such file; name", "seal hls"],
        ),
        (&["--hls-key-file", ".."], &["--hls-key-file: ..: a folder; name the file in it\n"]),
        (&["--keys", "no-keys"], &["--keys: no-keys: no such folder; name", "seal hls --keys"]),
        (&["--keys", file], &["Cargo.toml: a file, no folder; name", "seal hls --keys"]),
        (&["--key-token-file", "none"], &["none: no such file; make one", "openssl rand -hex 32"]),
        (&["--key-token-file", ".."], &["--key-token-file: ..: a folder; name the file"]),
        (&["--path", "pigeon"], &["pigeon", "wire_sendfile", "read_write"]),
        (&["--path", "mmap_gso", "--path", "read_writev"], &["--path", "one path for streams"]),
        (&["--path", "wire_sendfile", "--cache-size", "0"], &["--cache-size 0"]),
        (&["--rtp-port", "5005"], &["--rtp-port", "5005", "even", "5004"]),
        (&["--rtp-port", "0x1394"], &["--rtp-port"]),
        (&["--rtp-port", "5004-5004"], &["--rtp-port", "20000-29999"]),
        (&["--rtp-port", "5010-5004"], &["--rtp-port", "20000-29999"]),
        (&["--rtp-port", "65535-65535"], &["--rtp-port", "20000-29999"]),
        (&["--burst", "0"], &["--burst", "write 1 to"]),
        (&["--burst", "99999999999"], &["--burst", "write 1 to"]),
        (&["--burst", "soon"], &["--burst"]),
        (&["--pacing", "fq"], &["--pacing", "write user, txtime or txtime=N"]),
        (&["--pacing", "txtime=x"], &["--pacing", "write a number such as txtime=2"]),
        (&["--pacing", "txtime=0"], &["--pacing: 0 packets a departure; write 1 to 48"]),
        (&["--pacers", "0"], &["--pacers"]),
        (&["--session-timeout", "0"], &["--session-timeout"]),
        (&["--cache-size", "much"], &["--cache-size", "write K"]),
        (&["--rtsp", "here"], &["--rtsp"]),
    ];
    for (options, words) in cases {
        let outcome = refused(options);
        assert_eq!(outcome.status.code(), Some(2), "{options:?}: {outcome:?}");
        for word in *words {
            assert!(outcome.stderr.contains(word), "{options:?}, {word}: {}", outcome.stderr);
        }
    }
}

#[test]
fn ports_already_taken_are_named_and_exit_status_1() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let occupied = tcp.local_addr().expect("it is bound").to_string();
    for option in ["--rtsp", "--http"] {
        let given = format!("{option}={occupied}");
        // Of an option given twice, the last counts; clap has no option configured otherwise, hence
        // a command of its own.
        let other = if option == "--rtsp" { "--http=127.0.0.1:0" } else { "--rtsp=127.0.0.1:0" };
        let place = Place::new();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", &given, other, "--cache"]).arg(place.cache()).arg(place.folder());
        let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
        assert_says(&outcome, &[option, &occupied, "in use", "another address"]);
    }

    // Either of the media ports may be in use: RTP's, or RTCP's on the next.
    for offset in [0, 1] {
        let (_held, even) = even_port_held(offset);
        let outcome = refused(&["--rtp-port", &even.to_string()]);
        assert_says(&outcome, &["media ports", &even.to_string(), "in use", "--rtp-port"]);
    }
}

/// Seals the demo's clip as the titles `names` of the served folder.
fn seal(place: &Place, names: &[&str], key: &str) {
    let at = |name: &str| place.cache().with_file_name(name);
    fs::create_dir_all(at("films")).expect("room for a folder");
    for name in names {
        let clip = at("films").join(format!("{name}.ts"));
        fs::write(&clip, include_bytes!("../../assets/clip.ts")).expect("room for a film");
        let mut command = Command::new(PROGRAM);
        command.args(["seal", "hls"]).arg(clip).arg(place.folder());
        command.arg("--key-file").arg(key_file(place, key)).arg("--keys").arg(at("keys"));
        watchdog::run(&mut command, LIMIT).expect("the program is there").succeeded();
    }
}

/// Writes a key file that repeats this byte.
fn key_file(place: &Place, byte: &str) -> PathBuf {
    let path = place.cache().with_file_name(format!("key-{byte}"));
    fs::write(&path, byte.repeat(32)).expect("room for a key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path
}

#[test]
fn a_key_that_opens_no_title_is_refused_and_one_that_opens_some_names_the_others() {
    let place = Place::new();
    seal(&place, &["one", "two"], "5a");
    let options =
        |key: &str| vec!["--hls-key-file".to_owned(), key_file(&place, key).display().to_string()];
    let start = |options: &[String]| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--rtsp=127.0.0.1:0", "--http=127.0.0.1:0", "--cache"]);
        command.arg(place.cache()).args(options).arg(place.folder());
        watchdog::run(&mut command, LIMIT).expect("the program is there")
    };
    let none = place.cache().with_file_name("none");
    fs::create_dir(&none).expect("room for a folder");
    let other_keys = vec!["--keys".to_owned(), none.display().to_string()];
    for (options, words) in [
        (
            options("a5"),
            [
                "key-a5 opens none of the 2 sealed titles of",
                "/one; give the one that seal hls was given",
            ],
        ),
        (other_keys, ["none opens none of the 2 sealed titles of", "one/0.key"]),
    ] {
        let outcome = start(&options);
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
        let cure = "give the one that seal hls was given";
        for word in words.into_iter().chain([options[0].as_str(), cure]) {
            assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
        }
        assert!(!String::from_utf8_lossy(&outcome.stdout).contains("ready"), "{outcome:?}");
    }

    seal(&place, &["three"], "a5");
    for (key, named, others) in
        [("5a", &["three"][..], &["one", "two"][..]), ("a5", &["one", "two"], &["three"])]
    {
        let options = options(key);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let log = Server::at(&place, Command::new(PROGRAM), &options).stop();
        let warned = |title: &str| log.contains(&format!("/{title}: was sealed with another key"));
        assert!(named.iter().all(|title| warned(title)), "{key}: {log}");
        assert!(!others.iter().any(|title| warned(title)), "{key}: {log}");
    }
    // The folder of all their keys opens them all.
    let keys = place.cache().with_file_name("keys").display().to_string();
    let log = Server::at(&place, Command::new(PROGRAM), &["--keys", &keys]).stop();
    assert!(!log.contains("was sealed with"), "{log}");
}

/// A user who can write below the folder neither prevents a server from starting nor fills its
/// memory.
#[test]
fn hostile_titles_are_named_or_passed_over_when_keys_are_checked() {
    let place = Place::new();
    seal(&place, &["good", "pipe", "link", "long"], "5a");
    let title = |name: &str| place.folder().join(name);
    for name in ["pipe", "link"] {
        fs::remove_file(title(name).join("00000.ts")).expect("its first segment");
    }
    let fifo = title("pipe").join("00000.ts");
    let made = Command::new("mkfifo").arg(fifo).status();
    assert!(made.expect("mkfifo is part of every system").success());
    symlink("/dev/zero", title("link").join("00000.ts")).expect("its place is free");
    let playlist = File::options().write(true).open(title("long").join("media.m3u8"));
    playlist.expect("it was sealed").set_len(1 << 30).expect("a sparse file");
    let key = key_file(&place, "5a").display().to_string();
    let server = Server::at(&place, Command::new(PROGRAM), &["--hls-key-file", &key]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 200_000, "{peak} kB at most so far");
    let log = server.stop();
    for (name, reason) in [("pipe", "no regular file"), ("link", "a symlink")] {
        let is_named = |line: &str| line.contains(&format!("/{name}/")) && line.contains(reason);
        assert!(log.lines().any(is_named), "{name}: {log}");
    }
    assert!(!log.contains("/good"), "{log}");
}

#[track_caller]
fn assert_says(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    assert_eq!(outcome.stderr.lines().count(), 1, "one line, no backtrace: {}", outcome.stderr);
}

/// Returns an even port of which it, or the next one, is held; the other is most likely free.
fn even_port_held(offset: u16) -> (UdpSocket, u16) {
    loop {
        let held = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = held.local_addr().expect("it is bound").port();
        if port % 2 == offset {
            return (held, port - offset);
        }
    }
}

/// Guards against hanging; not a measure of speed.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn ready_line_has_addresses_that_can_be_opened() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        let server = Server::listening(any, &Place::new(), Command::new(PROGRAM), &PATHS);
        assert!(!server.rtsp.ip().is_unspecified(), "{any}: {}", server.rtsp);
        assert_eq!(Control::to(server.rtsp).ask("OPTIONS", "*", &[]).status, 200, "{any}");
        server.stop();
    }
}
