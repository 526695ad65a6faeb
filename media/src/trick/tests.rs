// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the choice of pictures and of the timelines of trick play.

use proptest::prelude::*;

use super::*;
use crate::plan::RtpIdentity;
use crate::tracks::H264Config;

const TICKS: u64 = TICKS_PER_SECOND;
const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Pictures at 25 a second, one in `group` at a random-access point; each has these bytes.
fn title(pictures: u32, group: u32, (start_bytes, bytes): (u32, u32)) -> Presentation {
    let mut table = SampleTableBuilder::new(25, 1 << 40);
    let mut file_offset = 0;
    for number in 0..pictures {
        let is_start = number % group == 0;
        let bytes = if is_start { start_bytes } else { bytes };
        let decode = u64::from(number);
        let offset = 2;
        table
            .push(MediaSample { file_offset, bytes, decode, offset, duration: 1, is_start })
            .unwrap();
        file_offset += u64::from(bytes);
    }
    let codec = Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x64, 0, 0x1f],
        sequence_sets: vec![vec![0x67, 1]],
        picture_sets: vec![vec![0x68, 2]],
    });
    let samples = table.finish().unwrap();
    // An edit list removes the delay of reordering.
    let track = Track { shift: -2, ..Track::new(7, codec, samples, IDENTITY) };
    Presentation::assemble(Container::Mp4, 1 << 40, vec![track], Vec::new()).unwrap()
}

/// Seconds of the file, and seconds at which they are shown.
fn times(plan: &TrickPlan) -> Vec<(f64, f64)> {
    let track = &plan.presentation().tracks()[0];
    let seconds = |ticks: u64| ticks as f64 / TICKS as f64;
    let sample = |sample: MediaSample| {
        let shown = track.presented_ticks(&sample) as u64;
        (seconds(plan.timeline().file_ticks(shown)), seconds(shown))
    };
    track.samples.samples(0..track.samples.len()).map(sample).collect()
}

#[test]
fn scale_is_the_nearest_that_is_played() {
    for (wanted, found) in [
        (1.0, 1),
        (0.0, 1),
        (0.5, 1),
        (1.4, 1),
        (1.5, 2),
        (3.0, 4),
        (5.0, 4),
        (6.0, 8),
        (1e300, 16),
        (-0.1, -1),
        (-2.0, -2),
        (-30.0, -16),
        (f64::NAN, 1),
        (f64::INFINITY, 16),
    ] {
        assert_eq!(PlayScale::nearest(wanted).value(), f64::from(found), "{wanted}");
    }
}

#[test]
fn forwards_pictures_are_shown_sooner_and_backwards_the_last_is_first() {
    // 60 s, a random-access point each second.
    let title = title(1500, 25, (40_000, 8_000));
    let plan = TrickPlan::of_tracks(&title, PlayScale::nearest(4.0)).unwrap();
    let all = times(&plan);
    assert_eq!(all.len(), 60);
    for (index, &(file, shown)) in all.iter().enumerate() {
        assert_eq!((file, shown), (index as f64, index as f64 / 4.0));
    }
    assert_eq!(plan.presentation().duration_ticks(), 15 * TICKS);
    let plan = TrickPlan::of_tracks(&title, PlayScale::nearest(-2.0)).unwrap();
    let all = times(&plan);
    assert_eq!(all.len(), 60);
    assert_eq!((all[0], all[59]), ((59.0, 0.5), (0.0, 30.0)));
    let track = &plan.presentation().tracks()[0];
    let places: Vec<_> = track.samples.samples(0..60).map(|s| s.file_offset).collect();
    assert!(places.is_sorted_by(|one, next| one > next), "the last is first");
}

#[test]
fn pictures_are_a_tenth_of_a_second_apart_and_keep_to_twice_the_bitrate() {
    // Small pictures at each second place: 16 times as fast they would be 200 a second.
    let plan =
        TrickPlan::of_tracks(&title(3000, 2, (5_000, 4_000)), PlayScale::nearest(16.0)).unwrap();
    let all = times(&plan);
    assert!(all.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 0.1 - 1e-9), "{all:?}");
    assert!(all.len() > 60, "{}", all.len());
    // 8 Mb/s, of which key frames of 500 kB each second: without thinning 32 Mb/s at 8 times.
    let title = title(3000, 25, (500_000, 20_000));
    let rate = title.bits_per_second() as f64;
    let plan = TrickPlan::of_tracks(&title, PlayScale::nearest(8.0)).unwrap();
    let found = plan.presentation().bits_per_second() as f64;
    assert!(found <= 2.05 * rate, "{found} beside {rate}");
    assert!(found > rate, "{found} beside {rate}: more could be shown");
}

#[test]
fn sound_has_no_trick_play() {
    let mut title = SampleTableBuilder::new(48_000, 1000);
    let sample = MediaSample {
        file_offset: 0,
        bytes: 9,
        decode: 0,
        offset: 0,
        duration: 960,
        is_start: true,
    };
    title.push(sample).unwrap();
    let samples = title.finish().unwrap();
    let codec = Codec::Opus { channels: 2 };
    let track = Track::new(1, codec, samples, IDENTITY);
    let sound = Presentation::assemble(Container::Mp4, 1000, vec![track], Vec::new()).unwrap();
    assert_eq!(TrickPlan::of_tracks(&sound, PlayScale::nearest(2.0)), None);
}

proptest! {
    #[test]
    fn places_are_found_again(scale in -20.0..20.0, end in 1_u64..1 << 45, at in 0_u64..1 << 45) {
        let scale = PlayScale::nearest(scale);
        let timeline = TrickTimeline::new(scale, end);
        let at = at.min(end);
        let found = timeline.file_ticks(timeline.ticks(at));
        prop_assert!(found.abs_diff(at) < scale.factor());
        prop_assert!(timeline.ticks(at) <= timeline.end_ticks());
    }

    #[test]
    fn any_title_has_pictures_in_order(
        pictures in 1_u32..600,
        group in 1_u32..90,
        bytes in 1_u32..200_000,
        scale in -20.0..20.0,
    ) {
        let title = title(pictures, group, (bytes, bytes / 9 + 1));
        let plan = TrickPlan::of_tracks(&title, PlayScale::nearest(scale)).unwrap();
        let all = times(&plan);
        prop_assert!(!all.is_empty());
        prop_assert!(all.is_sorted_by(|one, next| one.1 + 0.099 < next.1));
        for chapter in 0..plan.presentation().chapters() {
            // A file of zeros has no NAL units: nothing is laid out, and nothing panics.
            let _ = plan.lay_out(None, chapter, &[0_u8; 64][..]);
        }
    }
}
