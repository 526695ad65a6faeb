// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--user`: a port below 1024 is opened as root, and all privileges are dropped before it is
//! served.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use super::process::{Process, Started};
use crate::harness::answer::http;
use crate::harness::{PROGRAM, Place, watchdog};

/// A user that every Debian has, by name, and its numbers.
const NOBODY: &str = "nobody";
const NOBODY_UID: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns an unused port below 1024.
fn low_port() -> Option<u16> {
    (600..1023).rev().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}

#[test]
fn root_opens_a_low_port_and_keeps_no_right() {
    let Some(port) = is_root().then(low_port).flatten() else {
        eprintln!("skip: --user: needs root, and a free port below 1024");
        return;
    };
    // The repository may lie in a folder that only root may enter.
    let place = Place::below(&env::temp_dir());
    place.put("film.txt", b"text");
    place.put("secret.txt", b"secret");
    let secret = place.folder().join("secret.txt");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::create_dir(place.cache()).expect("a new folder");
    chown(place.cache(), Some(NOBODY_UID), None).expect("root may");
    fs::set_permissions(place.top(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--user", NOBODY, "--rtsp", "127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).arg(place.folder()).stderr(Stdio::null());
    command.args(["--http", &format!("127.0.0.1:{port}")]);
    // Measured by root for others of these tests; the user nobody may not read it.
    command.args(["--path", "mmap_gso"]);
    let server = Started::by(&mut command);
    assert_eq!(server.http.port(), port);
    assert_eq!(http(server.http, "GET", "/film.txt").body, b"text");
    assert_eq!(http(server.http, "GET", "/secret.txt").status, 403);

    let process = Process(server.child.id());
    let all = |name: &str, value: &str| {
        let found = process.status(name);
        assert!(found.len() > 4 && found.iter().all(|v| v == value), "{name}: {found:?}");
    };
    let ids = [NOBODY_UID; 4].map(|id| id.to_string()).join(" ");
    all("Uid", &ids);
    all("NoNewPrivs", "1");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        all(set, "0000000000000000");
    }
    let groups = process.status("Groups");
    assert!(groups.iter().all(|groups| !groups.split(' ').any(|group| group == "0")), "{groups:?}");
    drop(server);
}

#[test]
fn users_that_cannot_be_become_are_refused() {
    if !is_root() {
        eprintln!("skip: --user: needs root");
        return;
    }
    let place = Place::new();
    for (user, words) in [
        ("no-such-user", "--user: no-such-user: no such user in /etc/passwd; make one"),
        ("root", "--user: root: is root, whose rights are to be dropped; name another user"),
        ("12", "--user: 12: no such user"),
        ("12:x", "--user: 12:x: is no pair of numbers; write a name, or UID:GID"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--user", user]);
        let outcome = watchdog::run(command.arg(place.folder()), Duration::from_secs(60));
        let outcome = outcome.expect("the program is there");
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
    }
    // A process that is not root, and is not the user itself, cannot become another user.
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=12",
        "--regid=12",
        "--clear-groups",
        PROGRAM,
        "serve",
        "--user",
        NOBODY,
    ]);
    command.args(["--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "/"]);
    match watchdog::run(&mut command, Duration::from_secs(60)) {
        Err(reason) => eprintln!("skip: {reason}"),
        Ok(outcome) => assert!(
            outcome.stderr.contains("this process is of user 12, who cannot become another"),
            "{}",
            outcome.stderr
        ),
    }
}
