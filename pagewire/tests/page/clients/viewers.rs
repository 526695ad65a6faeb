// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers: a new user who has only the address.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::clips::{BUNNY, BUNNY_S, library, unseen};
use super::scripts::{report, texts};

#[test]
fn new_user_finds_a_film_plays_it_seeks_and_changes_subtitles() {
    let test = "clients::viewers::new_user_finds_a_film_plays_it_seeks_and_changes_subtitles";
    let Some(server) = library(test) else { return };
    let has_hls = crate::answers::is_bundled(&server);
    if !has_hls {
        eprintln!("skip: {test}: hls.js: not in this build; make web");
        return;
    }
    let Some(report) = report(test, "viewer.mjs", &format!("http://{}", server.http)) else {
        return;
    };
    let steps = report["steps"].as_array().expect("a list");
    let steps: BTreeMap<&str, &Value> =
        steps.iter().map(|step| (step[0].as_str().expect("a name"), &step[1])).collect();
    let number = |name: &str| steps[name].as_f64().unwrap_or_else(|| panic!("{name}: {steps:#?}"));

    assert_eq!(steps["title"], "pagewire");
    assert!(texts(steps["headings"]).contains(&"Folders"), "{steps:#?}");
    assert_eq!(steps["found"], &json!(["Big Buck Bunny"]));
    assert_eq!(steps["search"], "?q=bunny");
    assert_eq!(steps["path"], &json!(format!("/{BUNNY}/player.html")));
    assert_eq!(steps["icon"], "/favicon.ico", "its address is that of the first view");
    assert_eq!(steps["heading"], "Big Buck Bunny");
    assert!((number("duration") - BUNNY_S).abs() < 1.0, "{steps:#?}");
    assert_eq!(steps["player"], true, "hls.js plays by Media Source Extensions");
    assert_eq!(steps["picture"], &json!([320, 180]));
    assert!((number("sought") - BUNNY_S / 2.0).abs() < 4.0, "{steps:#?}");
    let subtitles = texts(steps["subtitles"]);
    let names = |wanted: &str| subtitles.iter().any(|name| name.contains(wanted));
    assert!(subtitles[0] == "Off" && names("English") && names("German"), "{subtitles:?}");
    assert_eq!(steps["cue"], "Eine Zeile Untertitel");
    assert_eq!((steps["cue off"], steps["cue on"]), (&json!(true), &json!("de")));
    assert_eq!(texts(steps["sounds"]).len(), 2);
    assert_eq!(number("speed"), 1.5);
    assert_eq!((steps["muted"], steps["paused"]), (&json!(true), &json!(true)));
    assert!(number("keys") > 10.0, "the help lists keys");
    let addresses = texts(steps["addresses"]);
    let prefixes = ["http://", "http://", "rtsp://", "http://"];
    assert!(addresses.iter().zip(prefixes).all(|(one, start)| one.starts_with(start)));
    assert_eq!((addresses.len(), steps["code"].as_str()), (4, Some(addresses[0])));
    assert_eq!(steps["toast"], "RTSP address copied");
    assert_eq!(steps["field"], "bunny", "back leads to the search");
    assert_eq!(number("seen"), 1.0, "the card shows how far it was seen");
    assert_eq!(report["faults"], json!([]));
    server.stop();
}

/// Debian's Chromium supports neither MPEG-4 part 2, which is not streamed either, nor H.265.
#[test]
fn films_that_play_without_pictures_say_so() {
    let test = "clients::viewers::films_that_play_without_pictures_say_so";
    let Some(server) = unseen(test) else { return };
    let Some(report) = report(test, "alone.mjs", &format!("http://{}", server.http)) else {
        return;
    };
    let text = |name: &str| report["said"][name].as_str().expect("a text");
    assert!(text("parts.mp4").starts_with("Its sound alone: track 1 (mp4v)"), "{report:#?}");
    let expected = "This browser plays its sound alone, not its pictures (hvc1";
    assert!(text("whole.mp4").starts_with(expected), "{report:#?}");
    assert_eq!(report["faults"], json!([]));
    server.stop();
}
