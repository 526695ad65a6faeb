// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of README.md and docs/, run literally in a fresh folder: each ends with the
//! expected status, and the output shown in the document is printed.
//!
//! One test per document, in a network of its own, where the usual ports are free and the names
//! `HOST`, `camera` and `eth1` exist. A server or recorder runs until the next one begins or, for a
//! recorder, its section ends. A command that cannot run here has a line in [`ELSEWHERE`] with the
//! reason and the test or person that runs it, so a new command cannot be overlooked.
//!
//! Commands of `pagewire load` last as long as they measure: the tests in [`timed`] run them.
//! Commands of `pagewire lab` need the laboratory, which the gate does not build: they are run
//! where `PAGEWIRE_TEST_LAB=1` is set, by `make test-lab`.
//!
//! Does not judge answers; the tests of each verb do.

#![forbid(unsafe_code)]

mod blocks;
mod camera;
mod docs;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have a network of their own")]
mod network;
mod shell;
mod timed;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use blocks::Shown;
use harness::clip::Clip;
use harness::recorder::Sender;
use network::Owner;
use shell::{RECORDING, SERVING, Shell};
use tempfile::TempDir;

/// Prefixes of commands that these tests do not run, with the reason and the test or person that
/// runs them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("make demo", "a release build, then a demonstration: by whoever tries it"),
    ("make test", "this is it"),
    ("make install", "it builds a release and changes the home folder"),
    ("make deb", "a release build; packaging/check.sh (make deb-check) installs what it makes"),
    ("apt install ./out/deb/", "it changes the machine; packaging/check.sh does it in a chroot"),
    ("curl -u anna http", "it asks at the terminal; tests/interop/passwords.rs"),
    ("pagewire passwd /etc/pagewire/users", "the package makes the folder; packaging/check.sh"),
    ("editor ", "it waits for a person"),
    ("systemctl ", "it needs systemd as process 1; tests/operation/units.rs checks the units"),
    ("sudo ", "it changes the machine"),
    ("vlc ", "it has a window; tests/interop/vlc.rs"),
    ("ffplay ", "it has a window; tests/interop/ffmpeg.rs"),
    ("mpv ", "it has a window; tests/interop/tracks.rs"),
    ("gst-launch-1.0 ", "it has a window; tests/interop/gstreamer.rs"),
    ("pagewire play rtsp://HOST:8554/film.mkv", "tests/interop/camera.rs"),
    (RECORD_TRACKS, "tests/receive/fragments.rs"),
    ("pagewire serve films --jwks https://issuer.example", "tests/attacks/tokens.rs, by a file"),
    ("pagewire serve films --https 0.0.0.0:8443", "it needs a certificate; tests/tls"),
    ("pagewire trace rtsp-12", "it needs a session; tests/admin/traces.rs"),
    ("pagewire lab http", "minutes; lab/tests/program/http.rs, with --quick"),
    ("pagewire lab hls", "minutes; lab/tests/program/hls.rs, with --quick"),
    ("pagewire lab kernel", "kernel/check.sh runs it with --quick"),
    ("pagewire lab peers", "a quarter of an hour; lab/tests/program/peers.rs, with --quick"),
    ("pagewire lab paths --json", "all sizes take half an hour; --quick is run"),
    ("pagewire lab stalls --self", "minutes; lab/tests/program/stalls.rs"),
    ("UPDATE=1 cargo test", "it writes the documents; without UPDATE make test-lab runs it"),
];

/// Exact lines for which a prefix in [`ELSEWHERE`] would match too much.
const ELSEWHERE_WHOLE: &[(&str, &str)] =
    &[("pagewire lab paths", "all sizes take half an hour; --quick is run")];

/// A document with commands to run, and the test that runs them.
struct Document {
    test: &'static str,
    path: &'static str,
}

const fn document(test: &'static str, path: &'static str) -> Document {
    Document { test, path }
}

/// All documents that have commands to run.
const DOCUMENTS: &[Document] = &[
    document("docs::commands_of_the_readme_run_as_they_stand", "README.md"),
    document("docs::commands_of_access_run_as_they_stand", "docs/access.md"),
    document("docs::commands_of_channels_run_as_they_stand", "docs/channels.md"),
    document("docs::commands_of_configuration_run_as_they_stand", "docs/configuration.md"),
    document("docs::commands_of_load_run_as_they_stand", "docs/load.md"),
    document("docs::commands_of_measurements_run_as_they_stand", "docs/measurements.md"),
    document("docs::commands_of_measuring_run_as_they_stand", "docs/measuring.md"),
    document("docs::commands_of_operating_run_as_they_stand", "docs/operating.md"),
    document("docs::commands_of_peers_run_as_they_stand", "docs/peers.md"),
    document("docs::commands_of_receiving_run_as_they_stand", "docs/receiving.md"),
    document("docs::commands_of_sealing_run_as_they_stand", "docs/sealing.md"),
    document("docs::commands_of_serving_run_as_they_stand", "docs/serving.md"),
    document("docs::commands_of_verifying_run_as_they_stand", "docs/verifying.md"),
];

/// Commands that run for the duration of their measurement. Their status 1 means that the machine
/// was too slow, which these tests do not judge.
const MEASURES: &str = "pagewire load ";
const LABORATORY: &str = "pagewire lab";

/// Choice of commands of one run of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// All except those that measure; laboratory commands only if the laboratory is built.
    Usual,
    /// All except those of the laboratory.
    Measuring,
}

/// Documents whose commands need a running server, and the server.
const BEFORE: &[(&str, &str)] = &[("docs/verifying.md", "pagewire serve DIR")];

/// The camera's stream at this address is a transport stream.
const RECORD_TRACKS: &str = "pagewire receive rtsp://camera/stream \
    --output 'films/{stream}-{time}.mp4' --rotate-seconds 3600";

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

/// `HOST` and `camera` are names in this network, `eth1` is a device, 10.0.0.7 is the sender.
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

/// Returns the reason why no test here runs a command.
fn elsewhere(command: &str) -> Option<&'static str> {
    let whole = ELSEWHERE_WHOLE.iter().find(|(line, _)| command == *line);
    let begins = || ELSEWHERE.iter().find(|(begin, _)| command.starts_with(begin));
    whole.or_else(begins).map(|(_, reason)| *reason)
}

impl Choice {
    /// Returns the reason why a run with this choice leaves a command out.
    fn leaves_out(self, command: &str) -> Option<&'static str> {
        if let Some(reason) = elsewhere(command) {
            return Some(reason);
        }
        match self {
            Choice::Usual if command.starts_with(MEASURES) => Some("it measures; make test-time"),
            Choice::Usual if env::var_os(WITH_LABORATORY).is_some() => None,
            _ if command.starts_with(LABORATORY) => Some("make test-lab"),
            _ => None,
        }
    }

    /// Returns the length of the reader's film, which is played once from its beginning to its end.
    fn film_seconds(self) -> u64 {
        match self {
            Choice::Usual => 2,
            // Longer than the measurement of the commands that play it.
            Choice::Measuring => 16,
        }
    }
}

/// Makes the files of a reader: films, books, earlier measurements, the checkout's documents.
fn desk(film_seconds: u64) -> TempDir {
    let desk = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let at = |name: &str| desk.path().join(name);
    let film = Clip::of_seconds(3, film_seconds).bytes();
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
    let made = rcgen::generate_simple_self_signed(["camera".to_owned()]).expect("a name");
    fs::write(at("camera.pem"), made.cert.pem()).expect("room for a file");
    fs::write(at("camera.key"), made.signing_key.serialize_pem()).expect("room for a file");
    let channel = "[channel.news]\nplaylist = [\"film.ts\"]\n";
    fs::write(at("pagewire.toml"), channel).expect("room for a file");
    camera::put_tracks(&at("camera"));
    let cameras = "[camera.door]\nurl = \"rtsp://camera/video.mp4\"\nfolder = \"films\"\n";
    fs::write(at("cameras.toml"), cameras).expect("room for a file");
    symlink(root().join("docs"), at("docs")).expect("its place is free");
    for name in ["paths.json", "before.json", "after.json", "yours.json"] {
        fs::copy(root().join("docs/measurements/paths.json"), at(name)).expect("room for a file");
    }
    if env::var_os(WITH_LABORATORY).is_some() {
        program(desk.path());
    }
    desk
}

/// Sends a second of a stream to the listeners at the addresses of the documents; a recorder that
/// received nothing fails.
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

/// Creates the program `COMMAND` of the documents, with a function `NAME`.
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
fn follow(document: &Document, choice: Choice) {
    let desk = desk(choice.film_seconds());
    let mut shell = Shell::new(desk.path());
    let commands = shown(document.path);
    camera::start(&mut shell, &commands);
    for (_, server) in BEFORE.iter().filter(|(path, _)| *path == document.path) {
        shell.start(server, SERVING);
    }
    let mut section = "";
    for one in &commands {
        if one.section != section {
            section = &one.section;
            shell.end_of(RECORDING);
        }
        let place = format!("{}:{}: {}", document.path, one.line, one.command);
        if let Some(reason) = choice.leaves_out(&one.command) {
            println!("{place}: elsewhere: {reason}");
            continue;
        }
        println!("{place}");
        let printed = run_one(&mut shell, &one.command);
        for line in &one.output {
            assert!(printed.contains(line), "{place}: {line:?} is not in:\n{printed}");
        }
    }
    shell.stop();
}

/// Runs a command to its end, or starts it where it is a server or a recorder; returns all it has
/// printed.
fn run_one(shell: &mut Shell, command: &str) -> String {
    let last = command.rsplit("&&").next().expect("at least one").trim();
    match last.split_whitespace().nth(1) {
        Some("serve") if last.starts_with("pagewire") => shell.start(command, SERVING),
        Some("receive") if last.starts_with("pagewire") && !last.contains(" --check") => {
            let before = shell.recordings();
            let printed = shell.start(command, RECORDING);
            if command.contains("udp:") {
                send();
            }
            if command.contains("--sdp") {
                send_sound();
            }
            let sources = command.matches("://").count().max(1);
            shell.await_recordings(&before, sources);
            printed
        }
        _ => {
            let measures = command.starts_with(MEASURES);
            shell.run(command, if measures { &[0, 1] } else { &[0] })
        }
    }
}

/// Runs the commands of a document in a network of its own.
fn run(test: &str, choice: Choice) {
    let document = document_of(test);
    if shown(document.path).iter().all(|one| choice.leaves_out(&one.command).is_some()) {
        println!("{}: all of its commands are run by make test-lab", document.path);
        return;
    }
    let measuring = if choice == Choice::Measuring { "1" } else { "" };
    let setup = format!("{NETWORK}\nexport {TEST}={test} {IS_MEASURING}={measuring}");
    network::run(Owner::UserWithMounts, &setup, "inside_a_network");
}

fn document_of(test: &str) -> &'static Document {
    let found = DOCUMENTS.iter().find(|document| document.test == test);
    found.unwrap_or_else(|| panic!("{test} is in no list"))
}

#[test]
#[ignore = "in a network of its own, by the tests of documents"]
fn inside_a_network() {
    let test = env::var(TEST).expect("the tests of documents set it");
    let is_measuring = env::var(IS_MEASURING).is_ok_and(|set| !set.is_empty());
    follow(document_of(&test), if is_measuring { Choice::Measuring } else { Choice::Usual });
}

/// Each document with commands to run has its test, and one in [`timed`] where it has commands that
/// measure.
#[test]
fn every_command_has_a_test() {
    let program = env::current_exe().expect("it runs");
    let listed = Command::new(program).arg("--list").output().expect("it is there").stdout;
    let listed = String::from_utf8(listed).expect("names in ASCII");
    let tests: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    for path in documents() {
        let commands = shown(&path);
        for one in commands.iter().filter(|one| elsewhere(&one.command).is_none()) {
            let place = format!("{path}:{}: {}", one.line, one.command);
            let found: Vec<_> = DOCUMENTS.iter().filter(|document| document.path == path).collect();
            assert_eq!(found.len(), 1, "{place}: entries of its document in the list");
            let test = found[0].test;
            assert!(tests.contains(test), "{place}: no test {test}");
            let (_, function) = test.split_once("::").expect("in a module");
            let timed = format!("timed::{function}");
            assert!(
                !one.command.starts_with(MEASURES) || tests.contains(&*timed),
                "{place}: no test {timed}"
            );
        }
    }
}

/// A line of the lists above is obsolete when no command begins with it.
#[test]
fn what_is_run_elsewhere_is_in_a_document() {
    let all: Vec<Shown> = documents().iter().flat_map(|document| shown(document)).collect();
    for (begin, _) in ELSEWHERE {
        assert!(all.iter().any(|one| one.command.starts_with(begin)), "{begin}: in no document");
    }
    for (whole, _) in ELSEWHERE_WHOLE {
        assert!(all.iter().any(|one| one.command == *whole), "{whole}: in no document");
    }
}

/// Returns README.md and all of docs/ by name.
fn documents() -> Vec<String> {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).expect("the checkout has docs") {
        let name = entry.expect("it can be read").file_name();
        let name = name.to_str().expect("a name in UTF-8");
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
    names
}

/// Set by `make test-lab`, which builds the laboratory.
const WITH_LABORATORY: &str = "PAGEWIRE_TEST_LAB";
/// Name of the document's test, for the test inside the network.
const TEST: &str = "PAGEWIRE_TEST_DOCUMENT";
const IS_MEASURING: &str = "PAGEWIRE_TEST_MEASURING";
