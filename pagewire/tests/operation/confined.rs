// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--sandbox`: the kernel refuses paths outside the folders to a server that is made to open one,
//! even as root; the confined server serves, caches and is upgraded like an unconfined one.
//!
//! The fault is a link in the key folder: any open of a key follows it, and only the sandbox
//! prevents the access.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::process::Signal;

use super::process::Process;
use crate::harness::answer::http;
use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server, await_true};

/// True where this kernel confines files.
fn confines(server: &Server) -> bool {
    let log = server.log();
    let confines = log.contains("sandbox: files (Landlock): confined");
    if !confines {
        eprintln!("skip: sandbox: this kernel has no Landlock");
    }
    confines
}

/// Creates a certificate that lies, through a link, outside all paths that the options name;
/// returns its target.
fn with_certificate(place: &Place) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
    let folder = place.top().join("tls");
    fs::create_dir(&folder).expect("a new folder");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    fs::write(&cert, made.cert.pem()).expect("room for a file");
    fs::write(&key, made.signing_key.serialize_pem()).expect("room for a file");
    [cert, key].map(|path| path.display().to_string())
}

#[test]
fn a_path_outside_is_closed_to_a_server_of_root_too() {
    let place = Place::new();
    place.put("film.ts", &Clip::of_seconds(29, 3).bytes());
    let [cert, key] = with_certificate(&place);
    let outside = place.top().join("outside");
    fs::create_dir(&outside).expect("a new folder");
    let options = ["--https", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key];
    for (mode, is_closed) in [("auto", true), ("off", false)] {
        let options = [&options[..], &["--sandbox", mode]].concat();
        let server = Server::at(&place, Command::new(PROGRAM), &options);
        if is_closed && !confines(&server) {
            return;
        }
        // The server reads its certificate again when the file changes, and follows a link to it: a
        // link planted now leads to a forbidden path.
        let planted = outside.join("cert.pem");
        fs::write(&planted, "no certificate").expect("room for a file");
        let kept = fs::read(&cert).expect("it is there");
        // Atomically: without the file for a moment, a reload would fail for another reason.
        let link = place.top().join("link");
        symlink(&planted, &link).expect("its place is free");
        fs::rename(&link, &cert).expect("both are ours");
        await_true("the reload is logged", || server.log().contains("stays in use"));
        let is_denied = server.log().contains("ermission denied");
        assert_eq!(is_denied, is_closed, "{}", server.log());
        fs::remove_file(&cert).expect("it is ours");
        fs::write(&cert, kept).expect("room for a file");
        // It serves and caches as before.
        server.await_stream("film.ts");
        let mut player = Player::set_up(server.rtsp, "film.ts");
        player.play();
        player.hear("it plays", |heard| heard.packets.len() > 10);
        assert_eq!(http(server.http, "GET", "/film.ts/master.m3u8").status, 200);
        let cached = fs::read_dir(place.cache()).expect("it is made").count();
        assert!(cached > 0, "plans are kept");
        assert!(!server.log().contains("EACCES"), "{}", server.log());
        server.stop();
    }
}

/// In a folder that holds files of others, the sandbox opens only the log's file.
#[test]
fn an_access_log_in_a_shared_folder_is_made_before_the_sandbox_closes() {
    let place = Place::new();
    place.put("small.txt", b"small");
    let log = format!("/tmp/pagewire-access-{}.log", std::process::id());
    let server = Server::at(&place, Command::new(PROGRAM), &["--access-log", &log]);
    assert_eq!(http(server.http, "GET", "/small.txt").body, b"small");
    let written = || fs::read_to_string(&log).unwrap_or_default();
    await_true("the answer is in the log", || written().contains("GET /small.txt"));
    if confines(&server) {
        let words = format!("sandbox: {log}: the server may write this file and not its folder");
        assert!(server.log().contains(&words), "{}", server.log());
    }
    server.stop();
    fs::remove_file(&log).expect("the server made it");
}

#[test]
fn every_thread_is_confined() {
    let place = Place::new();
    let server = Server::at(&place, Command::new(PROGRAM), &["--sandbox", "strict"]);
    let process = Process(server.pid());
    for (name, value) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
        let found = process.status(name);
        assert!(found.len() > 4 && found.iter().all(|v| v == value), "{name}: {found:?}");
    }
    drop(server);
}

/// The kernel's limit is sixteen rule sets: a successor process adds none.
#[test]
fn a_confined_server_is_upgraded_any_number_of_times() {
    let place = Place::new();
    place.put("small.txt", b"small");
    let settings = place.top().join("pagewire.toml");
    fs::write(&settings, "").expect("room for a file");
    let options = ["--config", settings.to_str().expect("UTF-8")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    if !confines(&server) {
        return;
    }
    let mut running = Process(server.pid());
    for round in 1..=18 {
        running.send(Signal::USR2);
        await_true("it is followed", || {
            let log = server.log();
            assert!(!log.contains("goes on serving"), "{log}");
            log.matches(" serves; draining").count() == round
        });
        running.await_end();
        let log = server.log();
        let (before, _) = log.rsplit_once(" serves; draining").expect("it is there");
        let number = before.rsplit(' ').next().and_then(|number| number.parse().ok());
        running = Process(number.expect("a number"));
        assert_eq!(http(server.http, "GET", "/small.txt").body, b"small");
    }
    running.send(Signal::TERM);
    running.await_end();
}
