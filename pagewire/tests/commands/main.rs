// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of README.md and docs/, word for word, in a fresh folder: each ends well, and what
//! the document shows as output is printed.
//!
//! One test a document, in a network of its own, where the usual ports are free and `HOST`,
//! `camera`, `eth1` are what a reader replaces them by. A server or recorder runs on until the next
//! one begins. What cannot run here has a line in [`ELSEWHERE`] with the reason and who runs it, so
//! a new command is run or explained, and never forgotten.
//!
//! Does not judge answers; the tests of each verb do.

#![forbid(unsafe_code)]

mod blocks;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have a network of their own")]
mod network;
mod shell;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use blocks::Shown;
use harness::clip::Clip;
use harness::recorder::Sender;
use network::Owner;
use shell::{RECORDING, SERVING, Shell};
use tempfile::TempDir;

/// Commands that are not run by these tests, by how they begin, and who runs them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("make demo", "a release build, then a demonstration: by whoever tries it"),
    ("make test", "this is it"),
    ("make install", "it builds a release and changes the home folder"),
    ("sudo ", "it changes the machine"),
    ("vlc ", "it has a window; tests/interop/vlc.rs"),
    ("ffplay ", "it has a window; tests/interop/ffmpeg.rs"),
    ("mpv ", "it has a window; tests/interop/tracks.rs"),
    ("gst-launch-1.0 ", "it has a window; tests/interop/gstreamer.rs"),
    ("pagewire play rtsp://HOST:8554/film.mkv", "tests/interop/camera.rs"),
    ("pagewire serve films --https 0.0.0.0:8443", "it needs a certificate; tests/tls"),
    ("pagewire lab http", "minutes; lab/tests/program/http.rs, with --quick"),
    ("pagewire lab kernel", "kernel/check.sh runs it with --quick"),
    ("pagewire lab peers", "a quarter of an hour; lab/tests/program/peers.rs, with --quick"),
    ("pagewire lab paths --json", "all sizes take half an hour; --quick is run"),
    ("pagewire lab stalls --self", "minutes; lab/tests/program/stalls.rs"),
    ("UPDATE=1 cargo test", "it writes the documents; without UPDATE it is run by cargo test"),
];

/// Exact lines of which [`ELSEWHERE`] would say too much.
const ELSEWHERE_WHOLE: &[(&str, &str)] =
    &[("pagewire lab paths", "all sizes take half an hour; --quick is run")];

/// Commands whose status 1 says that the machine was too slow, which is not for tests.
const JUDGES_SPEED: &[&str] = &["pagewire load "];

/// Sections that begin with a server at work elsewhere: what it is here.
const BEFORE: &[(&str, &str, &str)] =
    &[("README.md", "Verifying and measuring", "pagewire serve DIR")];

/// The camera of the documents, at the usual port of RTSP.
const CAMERA: &str = "pagewire serve camera --rtsp 127.0.0.2:554 --http 127.0.0.2:80";

/// The description that an encoder wrote into `encoder.sdp`: one track of Opus.
const DESCRIPTION: &str = "v=0
o=- 0 0 IN IP4 127.0.0.1
s=encoder
c=IN IP4 127.0.0.1
t=0 0
m=audio 5008 RTP/AVP 97
a=rtpmap:97 opus/48000/2
";
const SOUND_PORT: u16 = 5008;

/// `HOST` and `camera` are names in here, `eth1` is a device, 10.0.0.7 sends.
const NETWORK: &str = "mount -t tmpfs none /mnt
    printf '127.0.0.1 localhost HOST\\n127.0.0.2 camera\\n' > /mnt/hosts
    mount --bind /mnt/hosts /etc/hosts
    ip link set lo up
    ip link add eth1 type veth peer name far
    ip address add 10.0.0.7/24 dev eth1
    ip link set eth1 up && ip link set far up
    ip route add 224.0.0.0/4 dev eth1";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn shown(document: &str) -> Vec<Shown> {
    let text = fs::read_to_string(root().join(document)).expect("it is in the repository");
    blocks::commands(document, &text)
}

fn elsewhere(command: &str) -> Option<&'static str> {
    let whole = ELSEWHERE_WHOLE.iter().find(|(line, _)| command == *line);
    let begins = || ELSEWHERE.iter().find(|(begin, _)| command.starts_with(begin));
    whole.or_else(begins).map(|(_, reason)| *reason)
}

/// Files of a reader: films, books, earlier measurements, the checkout's documents.
fn desk() -> TempDir {
    let desk = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = |name: &str| desk.path().join(name);
    let film = Clip::of_seconds(3, 16).bytes();
    let book = include_bytes!("../../../fuzz/seeds/epub/book");
    for folder in ["DIR", "films", "books", "camera"] {
        fs::create_dir(at(folder)).expect("its place is free");
    }
    for (name, bytes) in [
        ("DIR/film.ts", &film[..]),
        ("films/film.ts", &film[..]),
        ("camera/stream", &film[..]),
        // The first byte is for the fuzzer.
        ("books/book.epub", &book[1..]),
    ] {
        fs::write(at(name), bytes).expect("room for a file");
    }
    fs::write(at("encoder.sdp"), DESCRIPTION).expect("room for a file");
    let channel = "[channel.news]\nplaylist = [\"film.ts\"]\n";
    fs::write(at("pagewire.toml"), channel).expect("room for a file");
    symlink(root().join("docs"), at("docs")).expect("its place is free");
    for name in ["paths.json", "before.json", "after.json", "yours.json"] {
        fs::copy(root().join("docs/measurements/paths.json"), at(name)).expect("room for a file");
    }
    program(desk.path());
    desk
}

/// Sends a second of a stream to whoever listens at the addresses of the documents; a recorder that
/// received nothing does not end well.
fn send() {
    let clip = Clip::of_seconds(4, 1).bytes();
    for (to, from) in [
        ("127.0.0.1:5004", "127.0.0.1"),
        ("239.1.1.1:5004", "10.0.0.7"),
        ("232.1.1.1:5004", "10.0.0.7"),
    ] {
        let mut sender = Sender::to(to.parse().unwrap(), from.parse().unwrap());
        sender.rtp = Sender::rtp(1, 5, 0).rtp;
        sender.send_all(&clip);
    }
}

/// Sends a second of the sound that [`DESCRIPTION`] describes.
fn send_sound() {
    let sender = Sender::bare(SOUND_PORT);
    for number in 0..50_u16 {
        let mut packet = vec![0x80, 97];
        packet.extend(number.to_be_bytes());
        packet.extend((u32::from(number) * 960).to_be_bytes());
        packet.extend(7_u32.to_be_bytes());
        // One frame of 20 ms (RFC 6716 §3.1: the configuration is 31, stereo).
        packet.extend([0xfc; 100]);
        sender.send_raw(&packet);
    }
}

/// The program `COMMAND` of the documents, with a function `NAME`.
fn program(desk: &Path) {
    let source = desk.join("COMMAND.c");
    let text = "__attribute__((noinline)) int NAME(volatile int *count) { return ++*count; }\n\
                int main(void) { volatile int count = 0; return NAME(&count) - 1; }\n";
    fs::write(&source, text).expect("room for a file");
    let mut compiler = Command::new("cc");
    let status = compiler.arg("-o").arg(desk.join("COMMAND")).arg(source).status();
    assert!(status.expect("a C compiler, which linking needs").success());
}

/// Runs the commands of a document from its first to its last.
fn follow(document: &str) {
    let desk = desk();
    let mut shell = Shell::new(desk.path());
    shell.start_aside(CAMERA, SERVING);
    let mut section = String::new();
    for one in shown(document) {
        if one.section != section {
            section.clone_from(&one.section);
            shell.end_of(RECORDING);
            let before = BEFORE.iter().filter(|(name, of, _)| *name == document && *of == section);
            for (.., line) in before {
                shell.start(line, SERVING);
            }
        }
        if let Some(reason) = elsewhere(&one.command) {
            println!("{document}:{}: {}: elsewhere: {reason}", one.line, one.command);
            continue;
        }
        println!("{document}:{}: {}", one.line, one.command);
        let last = one.command.rsplit("&&").next().expect("at least one").trim();
        let printed = match last.split_whitespace().nth(1) {
            Some("serve") if last.starts_with("pagewire") => shell.start(&one.command, SERVING),
            Some("receive") if last.starts_with("pagewire") => {
                let printed = shell.start(&one.command, RECORDING);
                if one.command.contains("udp:") {
                    send();
                }
                if one.command.contains("--sdp") {
                    send_sound();
                }
                printed
            }
            _ => {
                let judges = JUDGES_SPEED.iter().any(|begin| one.command.starts_with(begin));
                shell.run(&one.command, if judges { &[0, 1] } else { &[0] })
            }
        };
        for line in &one.output {
            assert!(
                printed.contains(line),
                "{document}:{}: {line:?} is not in:\n{printed}",
                one.line
            );
        }
    }
    shell.stop();
}

/// Runs a test in a network of its own, and not beside the other one: both measure paths, whose
/// buffers of io_uring are locked memory, of which the kernel allows a user only so much.
fn alone(test: &str) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    network::run(Owner::UserWithMounts, NETWORK, test);
}

#[test]
fn readme() {
    alone("the_commands_of_readme_run_as_they_stand");
}

#[test]
#[ignore = "in a network of its own, by readme"]
fn the_commands_of_readme_run_as_they_stand() {
    follow("README.md");
}

#[test]
fn docs() {
    alone("the_commands_of_docs_run_as_they_stand");
}

#[test]
#[ignore = "in a network of its own, by docs"]
fn the_commands_of_docs_run_as_they_stand() {
    documents().iter().for_each(|document| follow(document));
}

/// A line of the lists above that no command begins with is left over.
#[test]
fn what_is_run_elsewhere_is_in_a_document() {
    let mut all: Vec<Shown> = shown("README.md");
    documents().iter().for_each(|document| all.extend(shown(document)));
    for (begin, _) in ELSEWHERE {
        assert!(all.iter().any(|one| one.command.starts_with(begin)), "{begin}: in no document");
    }
    for (whole, _) in ELSEWHERE_WHOLE {
        assert!(all.iter().any(|one| one.command == *whole), "{whole}: in no document");
    }
}

/// All of docs/, by name.
fn documents() -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("docs")).expect("the checkout has docs") {
        let name = entry.expect("it can be read").file_name();
        let name = name.to_str().expect("a name in UTF-8");
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    names
}
