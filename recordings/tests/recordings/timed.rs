// SPDX-License-Identifier: MIT OR Apache-2.0
//! A year of files (8,760, an hour each by name) is listed and cut in less than a second.

use std::fs;
use std::time::{Duration, Instant};

use jiff::ToSpan;
use recordings::{RecordedTime, export};

use crate::made::{Camera, at};

#[test]
fn a_year_is_listed_and_cut_in_less_than_a_second() {
    let camera = Camera::new();
    camera.record(at("00:00:00"), 0, 10, 20);
    let first = camera.path(at("00:00:00"), "mp4");
    for hour in 1..8760_i64 {
        fs::copy(&first, camera.path(at("00:00:00") + hour.hours(), "mp4")).unwrap();
    }
    assert_eq!(camera.list().len(), 8760);
    let begin = Instant::now();
    let all = camera.list();
    let listed = begin.elapsed();
    let from = at("00:00:00") + 5000_i64.hours();
    let range = RecordedTime { from, to: from + 100_i64.hours() };
    let output = camera.folder.path().join("cut.mp4");
    let cut = export(&all, range, &output, &mut |_, _| true).unwrap();
    let both = begin.elapsed();
    println!("{} files listed in {listed:?}, {} cut in {:?}", all.len(), cut.files, both - listed);
    assert_eq!((all.len(), cut.files), (8760, 100));
    assert!(both < Duration::from_secs(1), "{listed:?} of {both:?}");
}
