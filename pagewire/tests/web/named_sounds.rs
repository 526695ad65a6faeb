// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sounds that a film names, marks as default, or marks as a commentary: playlists of HLS and the
//! MPD show these properties to viewers.
//!
//! Sources: RFC 8216 §4.3.4.1 (NAME, DEFAULT, AUTOSELECT); ISO/IEC 23009-1 §5.8.5.5 (roles).
//! Does not play them.

use std::path::Path;

use crate::clips::{Clip, clip, ffmpeg};
use crate::harness::{Server, film};
use crate::listed::hls;
use crate::segment_list::attribute;
use crate::site::manifest_of;

/// Language, use and name of each sound of the film, the second its default.
const OPTIONS: &[&str] = &[
    "-metadata:s:a:0",
    "language=deu",
    "-disposition:a:0",
    "0",
    "-metadata:s:a:1",
    "language=fra",
    "-metadata:s:a:1",
    "title=Son \"cinéma\"",
    "-disposition:a:1",
    "default",
    "-metadata:s:a:2",
    "language=deu",
    "-metadata:s:a:2",
    "title=The director & others",
    "-disposition:a:2",
    "comment",
];

#[test]
fn names_and_defaults_of_sounds_are_those_of_the_film() {
    let test = "named_sounds::names_and_defaults_of_sounds_are_those_of_the_film";
    let Some(two) = clip(test, Clip::TwoSounds) else { return };
    let make = |name: &str| {
        let mut command = ffmpeg();
        command.arg("-i").arg(&two).args(["-map", "0:v", "-map", "0:a:0", "-map", "0:a:1"]);
        command.args(["-map", "0:a:0", "-c", "copy"]).args(OPTIONS);
        film::or_skip(test, film::made(&mut command, name))
    };
    let (Some(mkv), Some(mp4)) = (make("sounds.mkv"), make("sounds.mp4")) else { return };
    let files: [(&str, &Path); 2] = [("sounds.mkv", &mkv), ("sounds.mp4", &mp4)];
    let server = Server::start(&files);
    // MP4 as written by ffmpeg has no mark for a commentary.
    for (name, is_commentary) in [("sounds.mkv", true), ("sounds.mp4", false)] {
        let (master, _) = hls(&server, name);
        let sounds = master.values("EXT-X-MEDIA").into_iter().map(|list| {
            let value = |name| attribute(list, name).unwrap_or_default().trim_matches('"');
            ["NAME", "LANGUAGE", "DEFAULT", "AUTOSELECT"].map(value)
        });
        let chosen = if is_commentary { "NO" } else { "YES" };
        let expected = [
            ["German", "de", "NO", "YES"],
            ["Son 'cinéma'", "fr", "YES", "YES"],
            ["The director & others", "de", "NO", chosen],
        ];
        assert_eq!(sounds.collect::<Vec<_>>(), expected, "{name}: {}", master.text);
        let (text, _) = manifest_of(&server, name);
        let sets = text.split("<AdaptationSet").filter(|set| set.contains("\"audio\""));
        let labels = sets.map(|set| {
            let label = set.split_once("<Label>").map(|(_, rest)| rest.split('<').next().unwrap());
            let roles = set.split("<Role ").skip(1).map(|role| role.split('"').nth(3).unwrap());
            (label.map(str::to_owned), roles.collect::<Vec<_>>())
        });
        let last = if is_commentary { vec!["alternate", "commentary"] } else { vec!["alternate"] };
        let expected = [
            (None, vec!["alternate"]),
            (Some("Son &apos;cinéma&apos;".to_owned()), vec!["main"]),
            (Some("The director &amp; others".to_owned()), last),
        ];
        assert_eq!(labels.collect::<Vec<_>>(), expected, "{name}: {text}");
    }
    server.stop();
}
