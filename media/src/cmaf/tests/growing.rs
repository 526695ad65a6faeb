// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests segments of recordings that are still written: those that are final never change.

use super::*;

/// A recording so far: the first samples of a film's pictures, and of its sound.
fn beginning(whole: &Presentation, counts: [usize; 2]) -> Presentation {
    let cut = |(track, count): (&Track, usize)| {
        let timescale = track.samples.timescale();
        let mut table = SampleTableBuilder::new(timescale, whole.file_bytes());
        for sample in track.samples.samples(0..count) {
            table.push(sample).unwrap();
        }
        table.finish().map(|samples| Track { samples, ..track.clone() })
    };
    let tracks = whole.tracks().iter().zip(counts).filter_map(cut).collect();
    let container = Container::FragmentedMp4;
    Presentation::assemble(container, whole.file_bytes(), tracks, Vec::new()).unwrap()
}

/// A segment: its times, boxes and places; `None` for those without media.
type Cut = (RenditionSegment, Option<SegmentParts>);

/// Segments of a rendition that are final.
fn settled(presentation: &Presentation, plan: &TrackSegments, tracks: &[usize]) -> Vec<Cut> {
    let Some(rendition) = plan.rendition(tracks) else { return Vec::new() };
    let parts = |number| rendition.parts(presentation, plan, number);
    (0..plan.settled()).map(|number| (rendition.segments()[number], parts(number))).collect()
}

/// Pictures, sound, and both; the sound may be the first track.
type Lists = [&'static [usize]; 3];

const LISTS: Lists = [&[0], &[1], &[0, 1]];
const SOUND_FIRST: Lists = [&[1], &[0], &[1, 0]];

/// Follows a recording, of which so many samples of pictures and of sound are there at each look;
/// returns the final segments of each list, those of the whole recording last.
fn follow(
    whole: &Presentation,
    target_s: u64,
    looks: impl Iterator<Item = [usize; 2]>,
) -> [Vec<Cut>; 3] {
    follow_lists(LISTS, whole, target_s, looks)
}

fn follow_lists(
    lists: Lists,
    whole: &Presentation,
    target_s: u64,
    looks: impl Iterator<Item = [usize; 2]>,
) -> [Vec<Cut>; 3] {
    let mut before: [Vec<Cut>; 3] = Default::default();
    let mut plan: Option<TrackSegments> = None;
    let whole_counts = [0, 1].map(|track| whole.tracks()[track].samples.len());
    let looks: Vec<_> = looks.chain([whole_counts]).collect();
    for (at, counts) in looks.iter().enumerate() {
        let is_complete = at + 1 == looks.len();
        let now = beginning(whole, *counts);
        let cut = (target_s, is_complete);
        let next = TrackSegments::of_growing(plan.as_ref(), &now, cut).unwrap();
        let end = next.settled();
        for (tracks, before) in lists.into_iter().zip(&mut before) {
            let now = settled(&now, &next, tracks);
            // A rendition that is there for the first time has no media in older segments.
            assert!(now.starts_with(before), "look {at}: {counts:?}, tracks {tracks:?}");
            for (segment, _) in &now {
                let rounded_s = (segment.ticks + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND;
                let is_last = is_complete && std::ptr::eq(segment, &now[end - 1].0);
                assert!(rounded_s <= target_s || is_last, "{segment:?}");
            }
            *before = now;
        }
        plan = Some(next);
    }
    assert_all_carried(lists, whole, plan.as_ref().expect("a look"));
    before
}

/// Asserts that the segments of each track have every sample once.
fn assert_all_carried(lists: Lists, whole: &Presentation, plan: &TrackSegments) {
    for tracks in lists {
        let rendition = plan.rendition(tracks).expect("of both tracks");
        let mut next = vec![0; tracks.len()];
        for number in 0..rendition.segments().len() {
            let Some(samples) = rendition.samples(whole, plan, number) else { continue };
            for ((_, numbers), next) in samples.into_iter().zip(&mut next) {
                assert_eq!(numbers.start, *next, "segment {number} of {tracks:?}");
                *next = numbers.end;
            }
        }
        let all = tracks.iter().map(|&track| whole.tracks()[track].samples.len());
        assert_eq!(next, all.collect::<Vec<_>>(), "{tracks:?}");
    }
}

/// Looks each seven pictures, when the sound is `ahead` pictures ahead of them.
fn steadily(whole: &Presentation, ahead: isize) -> impl Iterator<Item = [usize; 2]> + '_ {
    let [pictures, sound] = [0, 1].map(|track| &whole.tracks()[track].samples);
    (1..pictures.len()).step_by(7).map(move |there| {
        let until = there.saturating_add_signed(ahead).min(pictures.len() - 1);
        let ticks = u128::from(pictures.sample(until).decode) * u128::from(sound.timescale());
        let until = (ticks / u128::from(pictures.timescale())) as u64;
        [there, sound.partition_point(|decode| decode < until)]
    })
}

#[test]
fn final_segments_of_a_recording_stay_as_they_are() {
    for gop in [25, 50, 60, 62, 75] {
        let (_, whole) = film(40, gop);
        let target_s = TrackSegments::growing_target_s(&whole).unwrap().unwrap();
        for ahead in [-30, 0, 30] {
            let [pictures, _, both] = follow(&whole, target_s, steadily(&whole, ahead));
            assert!(both.len() > 10, "{gop} {ahead}");
            let independent = pictures.iter().filter(|(one, _)| one.is_independent).count();
            assert_eq!(independent, pictures.len(), "{gop}: all begin with key frames");
        }
    }
    // Key frames that come later than the first ones: segments are cut without them.
    let (_, whole) = film(60, 500);
    let [pictures, ..] = follow(&whole, 2, steadily(&whole, 0));
    assert_eq!(pictures.len(), 30);
    let (_, whole) = unshifted(30, 50).presentation(i64::from(PICTURE_RATE) * 2);
    follow(&whole, 2, steadily(&whole, 0));
}

/// A film with these seconds of pictures and of sound, each from and until.
fn spans(pictures: &[(u32, u32)], sound: &[(u32, u32)]) -> Presentation {
    let (_, whole) = film(80, 50);
    let within = |spans: &[(u32, u32)], at: u64, rate: u32| {
        let inside = |&(from, until): &(u32, u32)| {
            at >= u64::from(from * rate) && at < u64::from(until * rate)
        };
        spans.iter().any(inside)
    };
    let cut = |(track, spans): (&Track, &[(u32, u32)])| {
        let timescale = track.samples.timescale();
        let mut table = SampleTableBuilder::new(timescale, whole.file_bytes());
        for sample in samples(&track.samples).filter(|one| within(spans, one.decode, timescale)) {
            table.push(sample).unwrap();
        }
        Track { samples: table.finish().unwrap(), ..track.clone() }
    };
    let tracks = whole.tracks().iter().zip([pictures, sound]).map(cut).collect();
    let container = Container::FragmentedMp4;
    Presentation::assemble(container, whole.file_bytes(), tracks, Vec::new()).unwrap()
}

/// Looks at what is decoded until each half second, the sound of these seconds half a minute late.
fn by_the_clock(whole: &Presentation, until_s: u32) -> impl Iterator<Item = [usize; 2]> + '_ {
    (1..until_s * 2).map(move |half| {
        [0, 1].map(|track| {
            let samples = &whole.tracks()[track].samples;
            let until = u64::from(half * samples.timescale() / 2);
            samples.partition_point(|decode| decode < until)
        })
    })
}

/// Times at which a list has no media, in whole seconds.
fn silent_s(cuts: &[Cut]) -> u64 {
    let silent = cuts.iter().filter(|(_, parts)| parts.is_none()).map(|(one, _)| one.ticks);
    silent.sum::<u64>() / TICKS_PER_SECOND
}

#[test]
fn pictures_that_pause_and_sound_that_goes_on_are_cut_by_the_clock() {
    let whole = spans(&[(0, 20), (40, 60)], &[(0, 60)]);
    let [pictures, sound, both] = follow(&whole, 2, by_the_clock(&whole, 60));
    assert!(both.len() >= 29 && silent_s(&sound) == 0 && silent_s(&both) == 0);
    assert!((17..=20).contains(&silent_s(&pictures)), "{}", silent_s(&pictures));
}

#[test]
fn segments_go_on_without_a_sound_that_pauses_or_ends() {
    for sound in [&[(0, 20), (44, 60)][..], &[(0, 1)], &[(0, 1), (50, 60)], &[(9, 30)]] {
        let whole = spans(&[(0, 60)], sound);
        let [pictures, heard, both] = follow(&whole, 2, by_the_clock(&whole, 60));
        assert_eq!((pictures.len(), both.len(), heard.len()), (30, 30, 30), "{sound:?}");
    }
}

#[test]
fn a_pause_of_all_tracks_is_time_between_two_segments() {
    let whole = spans(&[(0, 21), (44, 60)], &[(0, 21), (44, 60)]);
    let [.., both] = follow(&whole, 2, by_the_clock(&whole, 60));
    let gaps = both.windows(2).filter_map(|pair| {
        let end = pair[0].0.start.saturating_add_unsigned(pair[0].0.ticks);
        (pair[1].0.start > end).then_some((pair[1].0.start - end) / SECOND)
    });
    assert_eq!(gaps.collect::<Vec<_>>(), [22]);
    assert!((18..=20).contains(&both.len()), "{}", both.len());
}

#[test]
fn pictures_that_begin_after_the_sound_continue_its_segments() {
    for begin in [9, 10, 11] {
        // Tracks are in the order in which they begin.
        let whole = spans(&[(begin, 60)], &[(0, 60)]);
        let tracks = whole.tracks().iter().rev().cloned().collect();
        let (container, bytes) = (whole.container(), whole.file_bytes());
        let whole = Presentation::assemble(container, bytes, tracks, Vec::new()).unwrap();
        let looks = by_the_clock(&whole, 60);
        let [pictures, sound, both] = follow_lists(SOUND_FIRST, &whole, 2, looks);
        assert!(both.len() >= 28 && silent_s(&sound) == 0, "{}", both.len());
        let begin = u64::from(begin);
        assert!((begin - 3..=begin).contains(&silent_s(&pictures)), "{}", silent_s(&pictures));
    }
}

#[test]
fn sound_alone_is_cut_at_the_target() {
    let (_, film) = film(31, 50);
    let sound = vec![film.tracks()[1].clone()];
    let bytes = film.file_bytes();
    let whole = Presentation::assemble(Container::FragmentedMp4, bytes, sound, Vec::new()).unwrap();
    assert_eq!(TrackSegments::growing_target_s(&whole), Ok(Some(2)));
    let plan = TrackSegments::of_growing(None, &whole, (2, true)).unwrap();
    let segments = plan.rendition(&[0]).unwrap().segments();
    assert_eq!(segments.len(), 16);
    assert!(segments.iter().all(|one| one.ticks < 5 * TICKS_PER_SECOND / 2));
}

#[test]
fn a_target_is_chosen_when_enough_is_recorded() {
    let (_, whole) = film(40, 100);
    let target_s = |seconds: usize| {
        TrackSegments::growing_target_s(&beginning(&whole, [seconds * 25, seconds * 40])).unwrap()
    };
    assert_eq!([2, 4, 6, 20].map(target_s), [None, None, Some(4), Some(4)]);
    let (_, rare) = film(40, 1000);
    assert_eq!(TrackSegments::growing_target_s(&rare), Ok(Some(5)), "all that was seen");
    // A segment of whole groups fits each target.
    for (gop, expected) in [(50, 2), (59, 2), (60, 3), (61, 3), (84, 3), (85, 4), (110, 5)] {
        let (_, whole) = film(20, gop);
        assert_eq!(TrackSegments::growing_target_s(&whole), Ok(Some(expected)), "{gop}");
    }
}

/// Time of a new plan of a recording of a day, by one that has two seconds less: `cargo test
/// --release -p pagewire-media -- --ignored --nocapture new_plan`.
#[test]
#[ignore = "a measurement"]
fn a_new_plan_of_a_day_is_made_in_a_tenth_of_a_second() {
    let table = |timescale: u32, key: u32, at: u64| {
        let mut table = SampleTableBuilder::new(timescale, FILE_BYTES);
        for number in 0..24 * 3600 * 25_u32 {
            // Pictures and sound of 2 s lie side by side.
            let file_offset = at + u64::from(number / 50) * 100_000 + u64::from(number % 50) * 900;
            let (duration, decode) = (timescale / 25, u64::from(number * (timescale / 25)));
            let is_start = number % key == 0;
            let bytes = 900;
            let offset = 0;
            let sample = MediaSample { file_offset, bytes, decode, offset, duration, is_start };
            table.push(sample).unwrap();
        }
        table.finish().unwrap()
    };
    let tracks = vec![
        Track::new(1, h264(), table(PICTURE_RATE, 50, 0), IDENTITY),
        Track::new(2, aac(), table(SOUND_RATE, 1, 50_000), IDENTITY),
    ];
    let container = Container::FragmentedMp4;
    let whole = Presentation::assemble(container, FILE_BYTES, tracks, Vec::new()).unwrap();
    let [pictures, sound] = [0, 1].map(|track| whole.tracks()[track].samples.len());
    let before = beginning(&whole, [pictures - 50, sound - 50]);
    let before = TrackSegments::of_growing(None, &before, (2, false)).unwrap();
    let begun = std::time::Instant::now();
    let copied = whole.clone();
    let copy_ms = begun.elapsed().as_secs_f64() * 1e3;
    let plan = TrackSegments::of_growing(Some(&before), &copied, (2, false)).unwrap();
    let all_ms = begun.elapsed().as_secs_f64() * 1e3;
    println!(
        "{} segments, {:.1} MB of tables: {copy_ms:.1} ms for their copy, {all_ms:.1} in all",
        plan.settled(),
        whole.memory_bytes() as f64 / 1e6
    );
    assert!(all_ms < 100.0, "{all_ms} ms");
}
