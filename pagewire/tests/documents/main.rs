// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables in documents: the formats in docs/formats.md and README.md match the code, and the suites
//! in CONTRIBUTING.md match `scripts/suites`.
//!
//! `UPDATE=1 cargo test -p pagewire --test documents` rewrites them. The tables of formats contain
//! nothing written by hand: a codec is streamed out of a container when a file of it
//! ([`specimens`]) is planned and packets are laid out; a transport is supported when a viewer
//! ([`viewer`]) gets a packet over it from the program as built; fast forward, when the answer to
//! PLAY grants the Scale; a channel, when it has the file on the air. The reason for a format that
//! is not streamed is the status line's.
//!
//! Does not compare the sent bytes with the file: other tests do.

#![forbid(unsafe_code)]

#[path = "../../../lab/tests/documents/document.rs"]
#[allow(dead_code, reason = "no table of measurements is made here")]
mod document;
#[path = "../harness/mod.rs"]
mod harness;
mod specimens;
mod viewer;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use media::payload::{PAYLOAD_FORMATS, PayloadFormat};
use media::{AssetPlan, Container};
use serde_json::Value;

use harness::answer::http;
use harness::ports::free_port;
use harness::{PROGRAM, Place, Server};
use viewer::{Viewer, Way};

/// A row of the table: a container, a file of it, and the codecs that are streamed out of it.
struct Row {
    container: Container,
    name: String,
    file: Vec<u8>,
    codecs: Vec<&'static str>,
}

#[test]
fn the_tables_of_formats_are_current() {
    let place = Place::new();
    let rows: Vec<_> = Container::ALL.map(|container| row(&place, container)).into();
    for (extensions, ..) in serve::DOWNLOAD_ONLY {
        for extension in *extensions {
            place.put(&format!("film.{extension}"), NO_STREAM);
        }
    }
    let (config, channels) = channels(&place, &rows);
    let server = Server::at(&place, Command::new(PROGRAM), &["--config", &config]);

    let mut short = "\n| file | streamed |\n|---|---|\n".to_owned();
    let mut text = String::from(
        "\n| file | streamed | UDP | TCP | HTTP tunnel | channels, multicast | fast forward, \
         rewind | download |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (number, row) in rows.iter().enumerate() {
        let codecs = match row.container {
            Container::TransportStream => "the whole stream, any codec".to_owned(),
            _ => row.codecs.join(", "),
        };
        let ends = serve::extensions(row.container);
        // A fragmented file shares the file-name extensions of other containers.
        let is_known = rows[..number].iter().any(|row| serve::extensions(row.container) == ends);
        let ends = if is_known { String::new() } else { format!(" ({})", listed(ends)) };
        let _ = write!(text, "| {}{ends} | {codecs} |", row.container.name());
        let _ = writeln!(short, "| {}{ends} | {codecs} |", row.container.name());
        for is_there in ways(&server, row, is_on_air(&server, &channels[number])) {
            let _ = write!(text, " {} |", if is_there { "yes" } else { "–" });
        }
        text.push('\n');
    }
    text.push_str("\n| codec | RTP payload format |\n|---|---|\n");
    for PayloadFormat { codec, encoding, source, .. } in &PAYLOAD_FORMATS {
        assert!(rows.iter().any(|row| row.codecs.contains(codec)), "{codec} is never streamed");
        let _ = writeln!(text, "| {codec} | `{encoding}`, {source} |");
    }
    text.push_str("\n| download only | why |\n|---|---|\n");
    for (reason, formats) in download_only(&server) {
        let _ = writeln!(text, "| {} | {reason} |", formats.join(", "));
    }
    text.push('\n');
    document::check("docs/formats.md", "formats", &text);
    short.push_str("| all others | downloads only |\n\n");
    document::check("README.md", "formats", &short);
}

#[test]
fn the_table_of_suites_is_current() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/suites");
    let list = fs::read_to_string(list).expect("the checkout has a list of suites");
    let mut text = String::from(
        "\n| command | minutes | runs, and is decided by | needs |\n|---|--:|---|---|\n",
    );
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let &[name, minutes, summary, needs] = &fields[..] else { panic!("{line:?}: 4 fields") };
        let _ = writeln!(text, "| `make {name}` | {minutes} | {summary} | {needs} |");
    }
    text.push('\n');
    document::check("CONTRIBUTING.md", "suites", &text);
}

/// Plans a file of each codec in this container; puts the first that is streamed into the folder.
fn row(place: &Place, container: Container) -> Row {
    let extension = serve::extensions(container)[0];
    let name = format!("{container:?}.{extension}");
    let mut row = Row { container, name, file: Vec::new(), codecs: Vec::new() };
    for format in &PAYLOAD_FORMATS {
        let Some(file) = specimens::file(container, format.codec) else { continue };
        let path = place.top().join(format!("specimen.{extension}"));
        fs::write(&path, &file).expect("room for a file");
        let opened = File::open(&path).expect("it was written");
        let Ok(planned) = serve::plan_file(&path, &opened, |_| {}) else { continue };
        match planned.plan {
            AssetPlan::TransportStream(plan) => {
                assert!(plan.packets() > 0 && container == Container::TransportStream);
            }
            AssetPlan::Tracks(found) => {
                assert_eq!(found.container(), container, "{}", format.codec);
                assert_eq!(found.tracks()[0].codec.payload_format(), format);
                let layout = media::payload::lay_out(&found, 0, 0, &opened).expect("a file");
                assert!(layout.packets() > 0 && layout.faults() == 0, "{}", format.codec);
            }
        }
        if row.codecs.is_empty() {
            place.put(&row.name, &file);
            row.file = file;
        }
        row.codecs.push(format.codec);
    }
    assert!(!row.codecs.is_empty(), "{}: nothing is streamed", container.name());
    row
}

/// Returns the columns of a row from the transports on.
fn ways(server: &Server, row: &Row, is_on_air: bool) -> [bool; 6] {
    server.await_stream(&row.name);
    let plays = |way| {
        let mut viewer = Viewer::open(server.rtsp, way, &row.name);
        let is_playing = viewer.play("").is_ok();
        if is_playing {
            viewer.await_packet();
        }
        is_playing
    };
    let scaled = |scale: &str| {
        let mut viewer = Viewer::open(server.rtsp, Way::Tcp, &row.name);
        let played = viewer.play(&format!("Scale: {scale}\r\n"));
        let granted = played.ok().and_then(|reply| reply.header("Scale")?.parse::<f64>().ok());
        granted == scale.parse().ok()
    };
    let answer = http(server.http, "GET", &format!("/{}", row.name));
    [
        plays(Way::Udp),
        plays(Way::Tcp),
        plays(Way::Tunnel),
        is_on_air,
        scaled("4") && scaled("-4"),
        answer.status == 200 && answer.body == row.file,
    ]
}

/// Writes a configuration with a channel for each file; returns its path, and the channels' names.
fn channels(place: &Place, rows: &[Row]) -> (String, Vec<String>) {
    let mut config = String::new();
    let names: Vec<_> = rows.iter().map(|row| format!("{:?}", row.container)).collect();
    for (name, row) in names.iter().zip(rows) {
        // No process listens there: the server itself reports the file on the air.
        let port = free_port();
        let _ = writeln!(
            config,
            "[channel.{name}]\nplaylist = [\"{}\"]\nsend = [\"udp://127.0.0.1:{port}\"]",
            row.name
        );
    }
    let path = place.top().join("channels.toml");
    fs::write(&path, config).expect("room for a configuration");
    (path.to_str().expect("a path in UTF-8").to_owned(), names)
}

/// True when a channel plays its file; false when the server reports that it cannot.
fn is_on_air(server: &Server, name: &str) -> bool {
    let deadline = Instant::now() + CHANNEL_WAIT;
    loop {
        let answer = http(server.http, "GET", "/channels.json");
        let state: Value = serde_json::from_slice(&answer.body).expect("the state is JSON");
        let channels = state["channels"].as_array().expect("a list");
        let found = channels.iter().find(|channel| channel["name"] == *name);
        let channel = found.unwrap_or_else(|| panic!("{name} in {state:#}"));
        if channel["on_air"].is_string() {
            return true;
        }
        let faults = channel["faults"].as_array().expect("a list");
        let is_final = |fault: &Value| !fault.as_str().unwrap().ends_with("not scanned yet");
        if faults.iter().any(is_final) {
            return false;
        }
        assert!(Instant::now() < deadline, "{name} neither plays nor fails: {channel:#}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns the formats that are not streamed, by the reason given to a viewer.
fn download_only(server: &Server) -> BTreeMap<&'static str, Vec<String>> {
    let mut reasons = BTreeMap::<_, Vec<_>>::new();
    for (extensions, format, reason) in serve::DOWNLOAD_ONLY {
        for extension in *extensions {
            let name = format!("film.{extension}");
            let answer = Viewer::open(server.rtsp, Way::Tcp, &name).describe();
            let refusal = &answer.head;
            // The cure is in the body.
            let phrase = reason.split(';').next().expect("a first part");
            let expected = format!("RTSP/1.0 415 {format}: {phrase}\r\n");
            assert!(refusal.starts_with(&expected), "{name}: {refusal}");
            assert!(answer.body.contains(reason), "{name}: {}", answer.body);
            let answer = http(server.http, "GET", &format!("/{name}"));
            assert!(answer.status == 200 && answer.body == NO_STREAM, "{name}: {}", answer.head);
        }
        let formats = reasons.entry(*reason).or_default();
        formats.push(format!("{format} ({})", listed(extensions)));
    }
    reasons
}

fn listed(extensions: &[&str]) -> String {
    let quoted: Vec<_> = extensions.iter().map(|extension| format!("`.{extension}`")).collect();
    quoted.join(" ")
}

/// Content of a file that is not a stream, whatever its name.
const NO_STREAM: &[u8] = &[b'~'; 4096];
const CHANNEL_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
