// SPDX-License-Identifier: MIT OR Apache-2.0
//! Titles that break off: they are resumed at the point of the break and nowhere else, and end when
//! they are complete; received data is kept.
//!
//! Sources: RFC 2326 §10.5, §12.29; RFC 3550 §6.6.

use std::time::Duration;

use crate::assert_file;
use crate::fake::{Fake, Script};
use crate::harness::Place;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::recorder::{Recorded, Recorder};

/// Two seconds whose timestamps are those of 27, announced as 28.
pub(crate) fn title(seed: u64) -> Script {
    let stream = Clip::of_seconds(seed, 2).bytes();
    Script {
        range: "a=range:npt=0-28.0\r\n",
        clock_rate: 13.5,
        ..Script::title(stream, Duration::from_secs(2))
    }
}

/// Returns the first so many thousandths of a stream, as the server sends them.
fn part(stream: &[u8], thousandths: usize) -> &[u8] {
    let packets = stream.len().div_ceil(PAYLOAD_BYTES) * thousandths / 1000;
    &stream[..stream.len().min(packets * PAYLOAD_BYTES)]
}

pub(crate) fn record(script: Script) -> (Place, Fake, Recorded) {
    let place = Place::new();
    let fake = Fake::start(script);
    let recorded = Recorder::start(&place, std::slice::from_ref(&fake.url), &[]).ended();
    (place, fake, recorded)
}

/// Asserts that a title has failed with a reason that has these words, and that these bytes were
/// kept.
#[track_caller]
fn assert_failed(script: Script, words: &[&str], kept: &[u8]) {
    let (place, fake, recorded) = record(script);
    assert_eq!(recorded.status.code(), Some(1), "{:#}\n{}", recorded.summary, recorded.log);
    let ended = recorded.stream(0)["ended"].as_str().expect("a reason");
    assert!(words.iter().all(|words| ended.contains(words)), "{ended}");
    assert_eq!(fake.asked("PLAY"), 2, "{}", recorded.log);
    assert_file(&place.folder().join("0.ts"), kept);
}

#[test]
fn bye_twice_at_one_place_is_the_end_only_where_little_is_missing() {
    // Half of it, and then some of the same packets again: the server resumes at an earlier entry
    // point.
    let again = [(0..500, ""), (450..500, "Range: npt=12.0-28.0\r\n")];
    let script = Script { parts: again.into(), ..title(22) };
    let begin = packets(&script.stream, 450);
    let kept = [part(&script.stream, 500), &part(&script.stream, 500)[begin..]].concat();
    let words = ["the server said BYE twice at 12.", " of the 28.0 s that it announced: "];
    assert_failed(script, &words, &kept);

    // All except the last second and a bit, by its announcement.
    let all = [(0..1000, ""), (950..1000, "Range: npt=25.9-28.0\r\n")];
    let script = Script { parts: all.into(), ..title(23) };
    let expected = [&script.stream[..], &script.stream[packets(&script.stream, 950)..]].concat();
    let (place, fake, recorded) = record(script);
    let recorded = recorded.well();
    assert_eq!((recorded.stream(0)["ended"].as_str(), fake.asked("PLAY")), (Some("complete"), 2));
    assert_file(&place.folder().join("0.ts"), &expected);
    // From 25.9 s on; the last packet of the first session is stamped 26.43 s.
    let repeated = recorded.stream(0)["repeated_s"].as_f64().expect("a number");
    assert!((0.5..0.6).contains(&repeated), "{repeated}");
}

#[test]
fn sessions_that_repeat_more_than_they_bring_end_a_title() {
    let parts = vec![
        (0..500, ""),
        (400..560, "Range: npt=10.8-28.0\r\n"),
        (450..620, "Range: npt=12.15-28.0\r\n"),
        (510..680, "Range: npt=13.77-28.0\r\n"),
    ];
    let ends = Script { says_bye: false, closes: true, ..title(28) };
    let (_place, fake, recorded) = record(Script { parts, ..ends });
    assert_eq!(recorded.status.code(), Some(1), "{:#}\n{}", recorded.summary, recorded.log);
    let ended = recorded.stream(0)["ended"].as_str().expect("a reason");
    let words = "3 sessions brought nothing more, or less than they repeated";
    assert!(ended.ends_with(words), "{ended}");
    assert_eq!(fake.asked("PLAY"), 4, "{}", recorded.log);
    let repeated = recorded.stream(0)["repeated_s"].as_f64().expect("a number");
    assert!((6.5..9.5).contains(&repeated), "{repeated}");
}

fn packets(stream: &[u8], thousandths: usize) -> usize {
    part(stream, thousandths).len()
}

#[test]
fn a_server_that_begins_again_is_not_recorded_twice() {
    // It sends before it answers: the packets are held back, and the answer gives no position at
    // which they could be recorded.
    for (answer, words) in [
        ("", &["asked for what comes from 12.", " s on, the server does not say where it began"]),
        (
            "Range: npt=0-28.0\r\n",
            &["the server began again at 0.0 s, asked for 12.", "cannot go on where it broke off"],
        ),
    ] {
        let parts = vec![(0..500, ""), (0..1000, answer)];
        let ends = Script { says_bye: false, closes: true, ..title(24) };
        let script = Script { parts, answers_late: true, ..ends };
        let kept = part(&script.stream, 500).to_owned();
        assert_failed(script, words, &kept);
    }
}

#[test]
fn a_server_that_goes_on_loses_nothing_that_came_before_its_answer() {
    let parts = vec![(0..500, ""), (500..1000, "Range: npt=13.5-27.0\r\n")];
    let ends = Script { says_bye: false, closes: true, ..title(25) };
    let script = Script { parts, answers_late: true, ..ends };
    let stream = script.stream.clone();
    let (place, fake, recorded) = record(script);
    let recorded = recorded.well();
    assert_eq!((recorded.stream(0)["ended"].as_str(), fake.asked("PLAY")), (Some("complete"), 2));
    assert_file(&place.folder().join("0.ts"), &stream);
}

#[test]
fn a_part_that_a_server_leaves_out_is_told() {
    let parts = vec![(0..500, ""), (800..1000, "Range: npt=21.6-27.0\r\n")];
    let ends = Script { says_bye: false, closes: true, ..title(26) };
    let script = Script { parts, ..ends };
    let kept = [part(&script.stream, 500), &script.stream[packets(&script.stream, 800)..]].concat();
    assert_failed(script, &["the server went on at 21.6 s", " s are missing"], &kept);
}

#[test]
fn parts_of_less_than_a_second_are_a_gap_when_there_are_many() {
    let parts = vec![
        (0..400, ""),
        (400..700, "Range: npt=11.7-27.0\r\n"),
        (700..1000, "Range: npt=20.7-27.0\r\n"),
    ];
    let ends = Script { says_bye: false, closes: true, ..title(27) };
    let script = Script { parts, ..ends };
    let stream = script.stream.clone();
    let (place, fake, recorded) = record(script);
    assert_eq!(recorded.status.code(), Some(1), "{:#}\n{}", recorded.summary, recorded.log);
    let ended = recorded.stream(0)["ended"].as_str().expect("a reason");
    assert!(
        ended.contains("went on at 20.7 s") && ended.ends_with("are missing in all"),
        "{ended}"
    );
    assert_eq!(fake.asked("PLAY"), 3, "{}", recorded.log);
    assert_file(&place.folder().join("0.ts"), &stream);
}

#[test]
fn a_title_that_is_stopped_says_how_much_of_it_came() {
    let recorded = stopped_title();
    let figure = |name: &str| recorded.stream(0)[name].as_f64();
    assert_eq!(figure("title_s"), Some(28.0), "{:#}", recorded.summary);
    let reached = figure("reached_s").expect("a number");
    assert!((0.0..19.0).contains(&reached), "{reached}: it has 20 s");
}

/// Returns the result of three seconds of a title of 20 s.
pub(crate) fn stopped_title() -> Recorded {
    let place = Place::new();
    let slow = Script { clock_rate: 1.0, length: Duration::from_secs(20), ..title(29) };
    let fake = Fake::start(slow);
    let options = &["--seconds", "3"];
    Recorder::start(&place, std::slice::from_ref(&fake.url), options).ended()
}
