// SPDX-License-Identifier: MIT OR Apache-2.0
//! A typical library: a film of 90 s with two sounds and two subtitles, others beside it, folders,
//! and files that are not films. ffmpeg makes the film.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::film::{ffmpeg, made, or_skip, put};
use crate::harness::{PROGRAM, Place, Server};

/// Name of the film with all tracks.
pub(crate) const BUNNY: &str = "Films/Big.Buck.Bunny.2008.1080p.mp4";
pub(crate) const BUNNY_S: f64 = 90.0;

/// Films of the library, and their lengths.
const FILMS: &[(&str, f64)] = &[
    (BUNNY, BUNNY_S),
    ("Films/The Quiet Sea (1962).mp4", 80.0),
    ("Films/Paper Moons (2019).mp4", 70.0),
    ("Series/Harbour Lights/Harbour.Lights.S01E01.mp4", 60.0),
    ("Series/Harbour Lights/Harbour.Lights.S01E02.mp4", 50.0),
    ("Series/Harbour Lights/Harbour.Lights.S01E10.mp4", 40.0),
    ("Shorts/The Gate/720.mp4", 30.0),
    ("Shorts/The Gate/360.mp4", 30.0),
];

/// Returns the film; `None`, with the reason printed, where ffmpeg cannot make it.
pub(crate) fn film(test: &str) -> Option<PathBuf> {
    let mut command = ffmpeg();
    for input in ["testsrc2=size=320x180:rate=25", "sine=frequency=440", "sine=frequency=880"] {
        command.args(["-f", "lavfi", "-t", &BUNNY_S.to_string(), "-i", input]);
    }
    command.args(["-map", "0", "-map", "1", "-map", "2"]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-b:v", "200k"]);
    command.args(["-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "64k"]);
    command.args(["-metadata:s:a:0", "language=eng", "-metadata:s:a:1", "language=deu"]);
    or_skip(test, made(&mut command, "film.mp4"))
}

/// Starts a server of the library.
pub(crate) fn library(test: &str) -> Option<Server> {
    let film = film(test)?;
    let place = Place::new();
    // Films of equal length in one folder would be renditions of one title.
    for (name, seconds) in FILMS {
        let target = place.folder().join(name);
        fs::create_dir_all(target.parent().expect("below the folder")).expect("its folder");
        let mut command = ffmpeg();
        command.arg("-i").arg(&film).args(["-map", "0", "-c", "copy"]);
        put(test, command.args(["-t", &seconds.to_string()]), &target)?;
    }
    for (language, text) in [("en", "A line of subtitles"), ("de", "Eine Zeile Untertitel")] {
        let stem = BUNNY.trim_end_matches(".mp4");
        let cues = format!("1\n00:00:00,500 --> 00:01:29,000\n{text}\n");
        place.put(&format!("{stem}.{language}.srt"), cues.as_bytes());
    }
    place.put("Docs/notes.txt", b"notes");
    place.put("Docs/talk.avi", b"not looked into");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_index("all are read", |index| index["total"]["streams"] == FILMS.len());
    Some(server)
}

/// Starts a server of films whose pictures the browser cannot decode: one whose pictures are
/// streamed (`whole.mp4`), and one whose pictures are not (`parts.mp4`).
pub(crate) fn unseen(test: &str) -> Option<Server> {
    let place = Place::new();
    for (name, codec) in [("parts.mp4", "mpeg4"), ("whole.mp4", "libx265")] {
        let mut command = ffmpeg();
        for input in ["testsrc2=size=128x72:rate=5:duration=5", "sine=frequency=440:duration=5"] {
            command.args(["-f", "lavfi", "-i", input]);
        }
        command.args(["-c:v", codec, "-pix_fmt", "yuv420p", "-c:a", "aac"]);
        if codec == "libx265" {
            command.args(["-tag:v", "hvc1", "-x265-params", "log-level=none"]);
        }
        put(test, &mut command, &place.folder().join(name))?;
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_index("both are read", |index| index["total"]["streams"] == 2);
    Some(server)
}
