// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeks of real clients in files with tracks: the first picture shown is the file's at that time.
//!
//! The server plays from the key frame at that time or before, and returns its time. ffmpeg and mpv
//! decode from there and show the requested picture; GStreamer shows the key frame, at its own
//! time.
//!
//! Sources: RFC 2326 §10.5, §12.29.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::client;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Place, Server};
use crate::side_by_side::{self, Case};
use crate::tracks::{self, GROUP_PICTURES, Picture, Recipe, Title, pictures};
use crate::trick;

/// Titles by name, and GStreamer's elements for their pictures.
const TITLES: [(&str, &str); 3] = [
    ("avc.mp4", "rtph264depay,h264parse,avdec_h264"),
    ("fragments.mp4", "rtph264depay,h264parse,avdec_h264"),
    ("hevc.mkv", "rtph265depay,h265parse,avdec_h265"),
];

/// Between key frames, between two pictures, and at a key frame. Clients count from the beginning
/// of the stream: priming of sound is sent, so a stream begins up to 27 ms earlier than a file, and
/// no picture lies that shortly before these.
const SECONDS: [&str; 3] = ["3", "3.435", "4"];

struct Seek<'a> {
    player: &'static str,
    seconds: &'static str,
    chain: &'static str,
    file: PathBuf,
    title: &'a Title,
    server: &'a Server,
}

impl Case for Seek<'_> {
    /// Returns a name such as `track_seeks::mpv/avc.mp4/3.435`.
    fn name(&self) -> String {
        format!("track_seeks::{}/{}/{}", self.player, self.title_name(), self.seconds)
    }

    fn plays(&self, name: &str) -> bool {
        let played = match self.player {
            "ffmpeg" => self.ffmpeg(name),
            "mpv" => self.mpv(name),
            _ => self.gstreamer(name),
        };
        played.is_some()
    }
}

impl Seek<'_> {
    fn title_name(&self) -> &str {
        self.file.file_name().and_then(OsStr::to_str).expect("a title's name")
    }

    /// Returns the requested time.
    fn wanted_ms(&self) -> i64 {
        let seconds: f64 = self.seconds.parse().expect("a number");
        (seconds * 1000.0).round() as i64
    }

    fn ffmpeg(&self, name: &str) -> Option<()> {
        let url = self.server.rtsp_url(self.title_name());
        let options = ["-rtsp_transport", "udp", "-ss", self.seconds];
        let received = pictures(name, &options, OsStr::new(&url), &[])?;
        let wanted_ms = self.wanted_ms();
        let first = self.title.pictures.iter().position(|picture| picture.time_ms >= wanted_ms);
        let sent = &self.title.pictures[first.expect("the title is longer")..];
        let hashes = |pictures: &[Picture]| -> Vec<_> {
            pictures.iter().map(|picture| picture.hash.clone()).collect()
        };
        assert!(
            hashes(&received) == hashes(sent),
            "{} pictures, not {}",
            received.len(),
            sent.len()
        );
        let times = (received[0].time_ms, sent[0].time_ms);
        assert!((times.0 - times.1).abs() <= 1, "the first at {} ms, not {}", times.0, times.1);
        Some(())
    }

    /// Its first picture of the stream must equal its first picture of the file. It converts
    /// colours, so no hash from elsewhere can be compared. In fragments of a file, not of a stream,
    /// it misses a key frame that is decoded by the requested time and presented later.
    fn mpv(&self, name: &str) -> Option<()> {
        let shot = |input: &OsStr, end: &str| -> Option<Vec<u8>> {
            let folder = format!("{}-{}-{end}", self.title_name(), self.seconds);
            let out = self.file.with_file_name(folder);
            let mut command = Command::new("mpv");
            command.args(["--no-config", "--no-terminal", "--ao=null", "--hr-seek=yes"]);
            command.args(["--frames=1", "--vo=image", "--vo-image-format=png"]);
            command.arg(format!("--vo-image-outdir={}", out.display()));
            command.args([&format!("--start={}", self.seconds), "--rtsp-transport=tcp"]).arg(input);
            client(name, &mut command)?.succeeded();
            Some(fs::read(out.join("00000001.png")).expect("mpv has shown a picture"))
        };
        let url = self.server.rtsp_url(self.title_name());
        let expected = shot(self.file.as_os_str(), "file")?;
        assert!(shot(OsStr::new(&url), "stream")? == expected, "another picture than of the file");
        Some(())
    }

    fn gstreamer(&self, name: &str) -> Option<()> {
        let url = self.server.rtsp_url(self.title_name());
        let received = trick::seeks(name, &[&url, "1", self.chain, self.seconds])?;
        let keys = (0..self.title.pictures.len()).step_by(GROUP_PICTURES);
        let wanted_ms = self.wanted_ms();
        let key = keys.rev().find(|&key| self.title.pictures[key].time_ms <= wanted_ms);
        let sent = &self.title.pictures[key.expect("the title begins earlier")..];
        assert_eq!(received.len(), sent.len(), "pictures from the key frame on");
        for (number, (found, expected)) in received.iter().zip(sent).enumerate() {
            assert_eq!(found.hash, expected.hash, "picture {number} from the key frame on");
        }
        // Without decoding times, GStreamer's decoder of H.265 gives pictures the times of others;
        // later pictures have a share of their arrival times in theirs (GstRtpJitterBuffer).
        if self.chain.contains("265") {
            return Some(());
        }
        let times = (received[0].time_ms, sent[0].time_ms);
        assert!((times.0 - times.1).abs() <= 1, "the first at {} ms, not {}", times.0, times.1);
        Some(())
    }
}

fn make(test: &str, folder: &Path, name: &str) -> Option<Title> {
    let recipe: &Recipe =
        tracks::TITLES.iter().find(|recipe| recipe.name == name).expect("a title of the matrix");
    tracks::make(test, folder, recipe)
}

#[test]
fn first_picture_of_a_seek_is_the_files_at_that_time() {
    let test = "track_seeks::first_picture_of_a_seek_is_the_files_at_that_time";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let titles: Option<Vec<_>> =
        TITLES.iter().map(|(name, _)| make(test, folder.path(), name)).collect();
    let Some(titles) = titles else { return };
    let place = Place::new();
    for (name, _) in TITLES {
        place.put(name, &fs::read(folder.path().join(name)).expect("just made"));
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for (name, _) in TITLES {
        server.await_stream(name);
    }
    let mut cases = Vec::new();
    for (title, (name, chain)) in titles.iter().zip(TITLES) {
        for player in ["ffmpeg", "mpv", "gstreamer"] {
            for seconds in SECONDS {
                if player == "mpv" && name == "fragments.mp4" {
                    continue;
                }
                let file = folder.path().join(name);
                cases.push(Seek { player, seconds, chain, file, title, server: &server });
            }
        }
    }
    side_by_side::run(cases);
    server.stop();
}

/// A range may end between two packets of a picture: the picture is sent whole, and the next is not
/// begun.
#[test]
fn a_range_ends_with_a_whole_picture() {
    let test = "track_seeks::a_range_ends_with_a_whole_picture";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    // Four slices: a row of packets each, spread over the picture's time.
    let name = "fragments.mp4";
    if make(test, folder.path(), name).is_none() {
        return;
    }
    let server = Server::start(&[(name, &folder.path().join(name))]);
    server.await_stream(name);
    let mut seen = BTreeSet::new();
    for end in (500..560).step_by(7) {
        let mut player = Player::set_up(server.rtsp, &format!("{name}/track0"));
        let range = format!("Range: npt=0-{}", f64::from(end) / 1000.0);
        assert_eq!(player.command("PLAY", &[&range]).status, 200, "{range}");
        player.hear("the range", |heard| !heard.byes.is_empty());
        let heard = player.heard();
        let last = heard.packets.last().expect("half a second of film");
        assert!(last[1] & 0x80 != 0, "{range}: the last of {} is marked", heard.packets.len());
        seen.insert(heard.packets.len());
    }
    assert!(seen.len() > 1, "a picture more or less: {seen:?}");
    server.stop();
}
