// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts: from where play can start, without a lost or doubled unit, and nothing left of a failure.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use media::mux::WriterKind;
use recordings::{Error, Exported, RecordedTime, export};

use crate::made::{Camera, KEY_EVERY, RATE, SET, Shots, at, numbers, range};

/// Another picture size.
const OTHER_SET: [u8; 7] = [0x67, 0x4d, 0x00, 0x0a, 0xf2, 0x9e, 0x5c];

fn cut(camera: &Camera, range: RecordedTime) -> Result<(Exported, Vec<u8>), Error> {
    let output = output(camera);
    let exported = export(&camera.list(), range, &output, &mut |_, _| true)?;
    let bytes = fs::read(&output).unwrap();
    fs::remove_file(output).unwrap();
    assert_eq!(exported.bytes, bytes.len() as u64);
    Ok((exported, bytes))
}

fn output(camera: &Camera) -> PathBuf {
    camera.folder.path().join("cut.mp4")
}

/// Everything in the folder but recordings and index.
fn left(camera: &Camera) -> Vec<String> {
    let names = fs::read_dir(camera.folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("door-") && !name.starts_with('.')).collect()
}

/// Checks that the units follow each other, from the number `first` on; returns how many there are.
fn in_a_row(units: &[(u32, i64)], first: u32, step_ms: i64) -> u32 {
    for (index, (number, time)) in units.iter().enumerate() {
        assert_eq!(*number, first + index as u32);
        assert_eq!(*time - units[0].1, index as i64 * step_ms, "unit {index}");
    }
    units.len() as u32
}

#[test]
fn a_time_is_cut_out_of_several_files_from_the_key_frame_before_it() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 100, 20);
    for (from, to) in
        [(0, 100), (3, 5), (17, 23), (19, 21), (20, 40), (21, 99), (37, 81), (0, 20), (98, 200)]
    {
        let moment = |second: i64| at("14:00:00") + jiff::Span::new().seconds(second);
        let asked = RecordedTime { from: moment(from), to: moment(to) };
        let (exported, bytes) = cut(&camera, asked).unwrap();
        let first = from as u32 * RATE / KEY_EVERY * KEY_EVERY;
        let pictures = in_a_row(&numbers(&bytes, 0), first, 40);
        in_a_row(&numbers(&bytes, 1), 2 * first, 20);
        let end = first + pictures;
        let wanted = (to as u32).min(100) * RATE;
        assert!((wanted..wanted + 2 * RATE).contains(&end), "{from} to {to}: {end}");
        assert_eq!(exported.range.from, moment(i64::from(first / RATE)));
        assert_eq!(exported.range.to, moment(i64::from(end / RATE)));
        let files = (end - 1) / (20 * RATE) - first / (20 * RATE) + 1;
        let gaps = usize::from(to > 102);
        assert_eq!((exported.files, exported.gaps.len()), (files as usize, gaps), "{from} to {to}");
    }
}

#[test]
fn a_whole_file_is_copied_to_the_byte() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 20, 20);
    let (_, bytes) = cut(&camera, range("13:00:00", "15:00:00")).unwrap();
    assert_eq!(bytes, fs::read(camera.path(at("14:00:00"), "mp4")).unwrap());
}

#[test]
fn a_time_without_a_recording_is_left_out_and_named() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 30, 20);
    camera.record(at("14:05:00"), 750, 30, 20);
    let (exported, bytes) = cut(&camera, range("14:00:10", "14:05:10")).unwrap();
    let pictures = in_a_row(&numbers(&bytes, 0), 250, 40);
    in_a_row(&numbers(&bytes, 1), 500, 20);
    assert!(pictures >= 30 * RATE);
    assert_eq!(exported.gaps, [range("14:00:30", "14:05:00")]);
    assert_eq!(exported.files, 3);
    assert_eq!(exported.range.from, at("14:00:10"));
    let (exported, _) = cut(&camera, range("13:00:00", "15:00:00")).unwrap();
    let ends = [range("13:00:00", "14:00:00"), range("14:05:30", "15:00:00")];
    assert_eq!(exported.gaps, [ends[0], range("14:00:30", "14:05:00"), ends[1]]);
}

#[test]
fn times_without_media_in_a_file_stay() {
    let camera = Camera::new();
    let absent = Shots { absent: Some((10, 90)), ..Shots::default() };
    camera.record_shots(at("14:00:00"), 0, 30, 1000, &absent);
    let found = camera.list();
    assert_eq!((found.len(), found[0].to()), (1, at("14:02:00")));
    let (exported, bytes) = cut(&camera, range("14:00:04", "14:01:50")).unwrap();
    let pictures = numbers(&bytes, 0);
    let of = |number: u32| pictures.iter().find(|(found, _)| *found == number).unwrap().1;
    assert_eq!(of(10 * RATE) - of(10 * RATE - 1), 90_040);
    assert_eq!((exported.gaps.len(), exported.range.from), (0, at("14:00:04")));
    let behind = cut(&camera, range("14:01:44", "14:01:46")).unwrap().1;
    in_a_row(&numbers(&behind, 0), 14 * RATE, 40);
}

#[test]
fn a_file_that_begins_without_a_key_frame_is_cut_from_that_of_the_file_before() {
    let camera = Camera::new();
    let far = Shots { key_every: 60 * RATE, ..Shots::default() };
    // The recorder waits ten seconds for a key frame, and then begins the next file without.
    camera.record_shots(at("14:00:00"), 0, 60, 20, &far);
    let found = camera.list();
    assert!(found.len() > 1, "{found:?}");
    let begin = found[1].from() + jiff::Span::new().seconds(5);
    let asked = RecordedTime { from: begin, to: begin + jiff::Span::new().seconds(5) };
    let (exported, bytes) = cut(&camera, asked).unwrap();
    let pictures = in_a_row(&numbers(&bytes, 0), 0, 40);
    assert_eq!((exported.range.from, exported.files), (at("14:00:00"), 2));
    assert!(pictures >= 30 * RATE);
    assert_eq!(exported.gaps, []);
}

#[test]
fn files_whose_times_overlap_are_joined_whole() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 20, 20);
    // The clock of the camera is fast, or pictures arrived late.
    camera.record(at("14:00:10"), 500, 20, 20);
    let (exported, bytes) = cut(&camera, range("14:00:06", "14:00:15")).unwrap();
    let pictures = in_a_row(&numbers(&bytes, 0), 6 * RATE, 40);
    assert_eq!(exported.files, 2);
    assert!((19 * RATE..=22 * RATE).contains(&pictures), "{pictures}");
}

#[test]
fn bytes_that_are_none_behind_the_last_fragment_end_a_file() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 40, 20);
    for time in ["14:00:00", "14:00:20"] {
        let file = fs::File::options().append(true).open(camera.path(at(time), "mp4")).unwrap();
        file.set_len(file.metadata().unwrap().len() + (3 << 20)).unwrap();
    }
    assert_eq!(camera.list().len(), 2);
    let (_, bytes) = cut(&camera, range("14:00:12", "14:00:35")).unwrap();
    assert!(in_a_row(&numbers(&bytes, 0), 12 * RATE, 40) >= 23 * RATE);
}

#[test]
fn nothing_recorded_names_what_is_near() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 10, 20);
    camera.record(at("14:05:00"), 0, 10, 20);
    let asked = range("14:01:00", "14:02:00");
    match cut(&camera, asked).unwrap_err() {
        Error::NothingRecorded { range, before, after } => {
            assert_eq!((range, before), (asked, Some(at("14:00:10"))));
            assert_eq!(after, Some(at("14:05:00")));
        }
        error => panic!("{error}"),
    }
    let none = export(&[], asked, &output(&camera), &mut |_, _| true).unwrap_err();
    assert!(none.to_string().contains("nothing was recorded from 2026-11-30T14:01:00Z to"));
    assert_eq!(left(&camera), [""; 0]);
}

#[test]
fn files_whose_tracks_differ_are_not_joined() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 10, 20);
    let mp4 = WriterKind::FragmentedMp4;
    camera.record_as(mp4, &OTHER_SET, at("14:00:10"), 250, 10, 20);
    camera.record_as(WriterKind::TransportStream, &SET, at("14:00:20"), 500, 10, 20);
    for (to, changed) in [("14:00:15", "14:00:10"), ("14:00:25", "14:00:20")] {
        match cut(&camera, range("14:00:05", to)).unwrap_err() {
            Error::Changed { at: found, .. } => assert_eq!(found, at(changed)),
            error => panic!("{error}"),
        }
    }
    let (_, bytes) = cut(&camera, range("14:00:10", "14:00:12")).unwrap();
    in_a_row(&numbers(&bytes, 0), 250, 40);
    // Files overlap by the rounding of their names: the time that the error names works.
    for (extension, from) in [("mp4", "14:00:10"), ("ts", "14:00:20")] {
        let began = at(from) - jiff::Span::new().seconds(1);
        fs::rename(camera.path(at(from), extension), camera.path(began, extension)).unwrap();
        let asked = RecordedTime { from: began, to: began + jiff::Span::new().seconds(1) };
        assert_eq!(cut(&camera, asked).unwrap().0.files, 1, "{from}");
    }
    assert_eq!(left(&camera), [""; 0]);
}

#[test]
fn no_file_is_replaced_and_none_is_left_of_a_stop() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 60, 20);
    let output = output(&camera);
    fs::write(&output, "mine").unwrap();
    let asked = range("14:00:00", "14:01:00");
    let exists = |error: Error| match error {
        Error::Host { source, .. } => assert_eq!(source.kind(), ErrorKind::AlreadyExists),
        error => panic!("{error}"),
    };
    exists(cut(&camera, asked).unwrap_err());
    // One that appears while the file is written.
    fs::remove_file(&output).unwrap();
    let mut appears = |_, _| {
        fs::write(&output, "mine").unwrap();
        true
    };
    exists(export(&camera.list(), asked, &output, &mut appears).unwrap_err());
    assert_eq!(fs::read_to_string(&output).unwrap(), "mine");
    fs::remove_file(&output).unwrap();
    for stop in [0, 1, 7] {
        let mut calls = 0;
        let mut progress = |done: u64, all: u64| {
            assert!(done <= all);
            calls += 1;
            calls <= stop
        };
        let stopped = export(&camera.list(), asked, &output, &mut progress).unwrap_err();
        assert!(matches!(stopped, Error::Stopped), "{stopped}");
    }
    let gone = camera.list();
    fs::remove_file(camera.path(at("14:00:20"), "mp4")).unwrap();
    let missing = export(&gone, asked, &output, &mut |_, _| true).unwrap_err();
    assert!(missing.to_string().contains("door-20261130T140020Z.mp4: "), "{missing}");
    let nowhere = camera.folder.path().join("none/cut.mp4");
    assert!(export(&camera.list(), asked, &nowhere, &mut |_, _| true).is_err());
    assert_eq!(left(&camera), [""; 0]);
}

#[test]
fn progress_ends_with_all_bytes() {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 30, 10);
    let (mut last, mut calls) = ((0, 0), 0);
    let mut progress = |done, all| {
        (last, calls) = ((done, all), calls + 1);
        true
    };
    let asked = range("14:00:00", "14:00:30");
    export(&camera.list(), asked, &output(&camera), &mut progress).unwrap();
    assert!(last.0 == last.1 && last.1 > 0 && calls > 3, "{last:?} {calls}");
}

#[test]
fn a_transport_stream_is_cut_where_play_can_start_with_its_tables() {
    let camera = Camera::new();
    camera.record_as(WriterKind::TransportStream, &SET, at("14:00:00"), 0, 60, 20);
    let (exported, bytes) = cut(&camera, range("14:00:15", "14:00:45")).unwrap();
    assert_eq!(bytes.len() % 188, 0);
    assert_eq!(u16::from_be_bytes([bytes[1], bytes[2]]) & 0x1fff, 0, "PAT");
    assert_eq!(exported.files, 3);
    let seconds = exported.range.to.duration_since(exported.range.from).as_secs();
    assert!((30..=34).contains(&seconds), "{exported:?}");
    let mut scanner = media::Scanner::new();
    scanner.feed(&bytes);
    let plan = scanner.finish(bytes.len() as u64, media::store::random_identity()).unwrap();
    let played = plan.duration_ticks() / media::TICKS_PER_SECOND;
    assert!((29..=34).contains(&played), "{played} s");
    assert!(plan.entries()[0].access_unit <= 3, "tables, then a key frame");
    let all = cut(&camera, range("14:00:00", "14:01:00")).unwrap().1;
    let files = ["14:00:00", "14:00:20", "14:00:40"];
    let files = files.map(|time| fs::read(camera.path(at(time), "ts")).unwrap());
    assert_eq!(all, files.concat());
}

#[test]
fn a_transport_stream_with_a_break_is_timed_from_both_ends() {
    let camera = Camera::new();
    camera.record_as(WriterKind::TransportStream, &SET, at("14:00:00"), 0, 60, 60);
    let path = camera.path(at("14:00:00"), "ts");
    let half = fs::read(&path).unwrap();
    // The camera was absent for half an hour.
    fs::write(&path, [&half[..], &half].concat()).unwrap();
    let file = fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(at("14:32:00").into()).unwrap();
    let (exported, bytes) = cut(&camera, range("14:31:20", "14:31:30")).unwrap();
    assert!(exported.range.from <= at("14:31:20") && exported.range.to >= at("14:31:30"));
    let place = half.windows(940).position(|part| *part == bytes[bytes.len() - 940..]).unwrap();
    let second = place * 60 / half.len();
    assert!((29..34).contains(&second), "{second}");
    let (exported, _) = cut(&camera, range("14:00:50", "14:31:10")).unwrap();
    let [gap] = exported.gaps[..] else { panic!("{exported:?}") };
    let lasts = gap.to.duration_since(gap.from).as_secs();
    assert!((1795..=1805).contains(&lasts), "{lasts}");
}
