// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that ask for a password: it comes from the URL, a file or the environment, and nothing
//! repeats it.
//!
//! Sources: RFC 7616, RFC 7617; proc_pid_cmdline(5).

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::assert_file;
use crate::fake::{Fake, Script};
use crate::harness::clip::Clip;
use crate::harness::recorder::{Recorded, Recorder, files};
use crate::harness::{PROGRAM, Place, Server, watchdog};

/// A password with characters that are special in URLs.
const PASSWORD: &str = "s:e/cr@t";
const IN_URL: &str = "s%3Ae%2Fcr%40t";

/// A served clip of one second, for the user anna.
struct Locked {
    server: Server,
    clip: Vec<u8>,
    /// Holds the files of users.
    folder: tempfile::TempDir,
}

impl Locked {
    /// Serves to users of Digest with SHA-256, of Digest with MD5, or of Basic.
    fn serve(passwd: &[&str], option: &str, further: &[&str]) -> Locked {
        let (place, clip) = (Place::new(), Clip::of_seconds(21, 1).bytes());
        fs::write(place.folder().join("a.ts"), &clip).expect("room for a clip");
        let folder = tempfile::tempdir().expect("a folder");
        let users = folder.path().join("users");
        let mut command = Command::new(PROGRAM);
        command.arg("passwd").args(passwd).arg(&users).arg("anna").stdin(Stdio::piped());
        let mut child = command.spawn().expect("the program under test starts");
        writeln!(child.stdin.take().expect("piped"), "{PASSWORD}").expect("it reads");
        assert!(child.wait().expect("it ends").success());
        let users = users.to_str().expect("UTF-8");
        let options = [&[option, users], further].concat();
        let server = Server::at(&place, Command::new(PROGRAM), &options);
        Locked { server, clip, folder }
    }

    fn digest() -> Locked {
        Locked::serve(&["--digest"], "--digest-users", &[])
    }

    fn url(&self, userinfo: &str) -> String {
        format!("rtsp://{userinfo}{}/a.ts", self.server.rtsp)
    }

    /// A file with this line, readable by its owner alone.
    fn credentials(&self, line: &str) -> PathBuf {
        let path = self.folder.path().join("credentials");
        let server = line.trim_end_matches("/a.ts");
        fs::write(&path, format!("# cameras\n{server}\n")).expect("room for a line");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        path
    }

    /// Records the clip by a command that runs the program.
    fn record(&self, command: Command, url: String, options: &[&str]) -> (Recorded, Place) {
        let place = Place::new();
        let pattern = place.folder().join("{stream}.ts");
        let pattern = pattern.to_str().expect("UTF-8");
        let options = [&["-o", pattern], options].concat();
        (Recorder::by(command, &place, &[url], &options).ended(), place)
    }

    fn assert_recorded(&self, (recorded, place): (Recorded, Place)) {
        let recorded = recorded.well();
        assert_eq!(recorded.stream(0)["ended"], "complete", "{}", recorded.log);
        let files = files(&place);
        assert_file(&files[0], &self.clip);
        assert_unrepeated(&format!("{recorded:?} {files:?}"));
    }
}

#[track_caller]
fn assert_unrepeated(text: &str) {
    assert!(!text.contains(PASSWORD) && !text.contains(IN_URL) && !text.contains("e/cr"), "{text}");
}

#[test]
fn a_password_comes_from_the_url_a_file_and_the_environment() {
    let locked = Locked::digest();
    let program = || Command::new(PROGRAM);
    locked.assert_recorded(locked.record(program(), locked.url(&format!("anna:{IN_URL}@")), &[]));
    let file = locked.credentials(&locked.url(&format!("anna:{IN_URL}@")));
    let options = ["--credentials", file.to_str().expect("UTF-8")];
    locked.assert_recorded(locked.record(program(), locked.url("anna@"), &options));
    let mut command = program();
    command.env("PAGEWIRE_RTSP_USER", "anna").env("PAGEWIRE_RTSP_PASSWORD", PASSWORD);
    locked.assert_recorded(locked.record(command, locked.url(""), &[]));
    locked.server.stop();
}

#[test]
fn digest_with_md5_is_answered_by_every_transport() {
    let locked = Locked::serve(&["--digest", "--md5"], "--digest-users", &["--digest-md5"]);
    for transport in ["udp", "tcp", "http"] {
        let url = locked.url(&format!("anna:{IN_URL}@"));
        let options = ["--transport", transport];
        locked.assert_recorded(locked.record(Command::new(PROGRAM), url, &options));
    }
    locked.server.stop();
}

#[test]
fn basic_is_answered_where_that_is_allowed() {
    let locked = Locked::serve(&[], "--users", &[]);
    let url = || locked.url(&format!("anna:{IN_URL}@"));
    let (refused, _) = locked.record(Command::new(PROGRAM), url(), &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.log);
    let ended = refused.stream(0)["ended"].as_str().expect("a reason");
    assert!(ended.contains("clear text (Basic)") && ended.contains("--allow-basic"), "{ended}");
    locked.assert_recorded(locked.record(Command::new(PROGRAM), url(), &["--allow-basic"]));
    locked.server.stop();
}

#[test]
fn a_wrong_password_ends_at_once() {
    let locked = Locked::digest();
    let url = locked.url("anna:wrong@");
    let (refused, place) = locked.record(Command::new(PROGRAM), url, &["--live"]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.log);
    let ended = refused.stream(0)["ended"].as_str().expect("a reason");
    assert!(ended.contains("DESCRIBE: 401 Unauthorized: wrong user or password"), "{ended}");
    assert!(!refused.log.contains("asking again"), "{}", refused.log);
    assert!(files(&place).is_empty());
    locked.server.stop();
}

#[test]
fn a_stream_is_played_and_loaded_with_a_password() {
    let locked = Locked::digest();
    let play = |userinfo: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["play", "--json", &locked.url(userinfo)]);
        let outcome = watchdog::run(&mut command, Duration::from_secs(60)).expect("it ends");
        let shown = format!("{} {}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
        assert_unrepeated(&shown);
        (outcome.status.code(), shown)
    };
    let (status, shown) = play(&format!("anna:{IN_URL}@"));
    assert_eq!(status, Some(0), "{shown}");
    for (userinfo, reason) in
        [("anna:wrong@", "wrong user or password"), ("", "it asks for a user and a password")]
    {
        let (status, shown) = play(userinfo);
        assert!(status == Some(1) && shown.contains(reason), "{shown}");
    }
    let mut command = Command::new(PROGRAM);
    command.args(["load", "--sessions", "2", "--seconds", "0.1", "--ramp", "0"]);
    command.arg(locked.url(&format!("anna:{IN_URL}@")));
    let outcome = watchdog::run(&mut command, Duration::from_secs(60)).expect("it ends");
    let shown = format!("{} {}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
    // The clip is too short to be measured: it was described, which needs the password.
    assert!(outcome.stderr.contains("the asset ends after"), "{shown}");
    assert_unrepeated(&shown);
    locked.server.stop();
}

/// ps(1) shows the arguments to every user of the machine.
#[test]
fn a_password_is_not_in_the_list_of_processes() {
    let place = Place::new();
    let script = Script::title(Clip::of_seconds(22, 2).bytes(), Duration::from_secs(2));
    let fake = Fake::start(Script { range: "", ..script });
    let url = fake.url.replacen("://", &format!("://anna:{IN_URL}@"), 1);
    // Nobody listens at the second.
    let further = format!("rtsps://anna:{IN_URL}@127.0.0.1:1/a");
    let recorder = Recorder::start(&place, &[url, further], &[]);
    recorder.await_bytes("0.ts", 188);
    let shown = fs::read(Path::new("/proc").join(recorder.pid().to_string()).join("cmdline"));
    let shown = String::from_utf8(shown.expect("it runs")).expect("UTF-8");
    let stars = "*".repeat(IN_URL.len());
    let concealed = fake.url.replacen("://", &format!("://anna:{stars}@"), 1);
    let further = format!("rtsps://anna:{stars}@127.0.0.1:1/a");
    assert!(shown.contains(&concealed) && shown.contains(&further), "{shown}");
    recorder.stop();
}
