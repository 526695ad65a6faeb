// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of tables and timelines, with an oracle that holds every sample as it was pushed.

use proptest::prelude::*;

use super::sample_table::table_bytes_max;
use super::*;
use crate::PlanFault;
use crate::plan::PlanKey;

const FILE_BYTES: u64 = 1 << 40;
const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

fn table(timescale: u32, samples: &[MediaSample]) -> Option<SampleTable> {
    let mut builder = SampleTableBuilder::new(timescale, FILE_BYTES);
    samples.iter().for_each(|&sample| builder.push(sample).unwrap());
    builder.finish()
}

/// Samples in an order that a file may have, the first a random-access point.
fn samples() -> impl Strategy<Value = Vec<MediaSample>> {
    let step = (0_u64..3, 0_u32..5000, 0_u32..4, -2..3_i32, any::<bool>(), 0_u64..1000);
    prop::collection::vec(step, 1..200).prop_map(|steps| {
        let (mut at, mut decode) = (0, 0);
        let mut all: Vec<MediaSample> = Vec::new();
        for (jump, bytes, duration, offset, is_start, gap) in steps {
            at += if jump == 0 { gap } else { 0 };
            let (duration, offset) = (duration * 512, offset * 512);
            let is_start = is_start || all.is_empty();
            all.push(MediaSample { file_offset: at, bytes, decode, offset, duration, is_start });
            at += u64::from(bytes);
            decode += u64::from(duration);
        }
        all
    })
}

fn h264() -> Codec {
    Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x64, 0, 0x1f],
        sequence_sets: vec![vec![0x67, 1, 2]],
        picture_sets: vec![vec![0x68, 3]],
    })
}

fn track(codec: Codec, samples: SampleTable, shift: i64) -> Track {
    Track { language: Some(*b"deu"), shift, ..Track::new(1, codec, samples, IDENTITY) }
}

fn presentation(tracks: Vec<Track>) -> Presentation {
    Presentation::assemble(Container::Mp4, FILE_BYTES, tracks, Vec::new()).unwrap()
}

/// Pictures of 4 s and sound of AAC whose times begin at `begin_s`: sound 1024 units before it.
fn film_that_begins_at(begin_s: i64) -> Presentation {
    let samples = |count: u64, duration: u32, every: u64| {
        let all = (0..count).map(|number| MediaSample {
            file_offset: number * 10,
            bytes: 10,
            decode: number * u64::from(duration),
            offset: 0,
            duration,
            is_start: number % every == 0,
        });
        all.collect::<Vec<_>>()
    };
    let sound = Codec::Aac(AacConfig {
        specific: vec![0x12, 0x10],
        object_type: 2,
        rate_hz: 44_100,
        channels: 2,
    });
    let pictures = table(12_800, &samples(100, 512, 25)).unwrap();
    let sounds = table(44_100, &samples(173, 1024, 1)).unwrap();
    let tracks = vec![
        track(h264(), pictures, begin_s * 12_800),
        track(sound, sounds, begin_s * 44_100 - 1024),
    ];
    presentation(tracks).moved_to_start().unwrap()
}

#[test]
fn title_starts_with_the_first_sample_of_a_file_that_begins_late() {
    let (early, late) = (film_that_begins_at(0), film_that_begins_at(5000));
    assert_eq!(early.file_origin_ticks(), 0);
    assert_eq!(early.tracks()[1].shift, -1024, "sound that prepares the decoder");
    assert_eq!(late.file_origin_ticks(), 5000 * TICKS_PER_SECOND);
    // Tracks, durations, and places to start equal those of the same film at zero.
    let moved = Presentation { file_origin_ticks: 0, ..late.clone() };
    assert_eq!(moved, early);
    let sound = late.tracks()[1].clone();
    let second_of_sound = presentation(vec![Track { shift: 44_100 - 1024, ..sound.clone() }]);
    assert_eq!(second_of_sound.clone().moved_to_start().unwrap(), second_of_sound);
    // Sound from two seconds before the pictures on is part of the title; the start is whole in
    // both time scales, hundredths of a second.
    let pictures = Track { shift: 12 * 12_800, ..late.tracks()[0].clone() };
    let tracks = vec![pictures, Track { shift: 10 * 44_100 + 445, ..sound }];
    let with_prelude = presentation(tracks).moved_to_start().unwrap();
    assert_eq!(with_prelude.file_origin_ticks(), 1001 * TICKS_PER_SECOND / 100);
    let shifts: Vec<i64> = with_prelude.tracks().iter().map(|track| track.shift).collect();
    assert_eq!(shifts, [199 * 128, 4], "tracks stay together");
    // Times since 1970.
    let clock = film_that_begins_at(1_700_000_000);
    assert_eq!(Presentation { file_origin_ticks: 0, ..clock }, early);
}

#[test]
fn stored_presentation_keeps_the_time_of_the_title_start() {
    let late = film_that_begins_at(5000);
    let key = PlanKey { path: b"a".to_vec(), bytes: FILE_BYTES, modified_ns: 7, inode: 2 };
    assert_eq!(Presentation::decode(&late.encode(&key), &key).unwrap(), late);
}

/// The header of `sample_table` states these sizes.
#[test]
fn a_table_takes_the_memory_of_its_entries_alone() {
    let mut decode = 0;
    let all = (0..1000).map(|number| {
        decode += 512;
        let offset = if number % 3 == 0 { 512 } else { 0 };
        let (file_offset, is_start) = (number * 10 + number / 100 * 7, number % 50 == 0);
        MediaSample { file_offset, bytes: 10, decode, offset, duration: 512, is_start }
    });
    let entries = 1000 * 4 + 10 * 16 + 16 + 667 * 8 + 20 * 4;
    let found = table(12_800, &all.collect::<Vec<_>>()).unwrap().memory_bytes();
    assert_eq!(found, (size_of::<SampleTable>() + entries) as u64);
}

proptest! {
    #[test]
    fn a_table_gives_every_sample_as_it_was_pushed(all in samples(), from in 0_usize..200) {
        let table = table(12_800, &all).unwrap();
        prop_assert_eq!(table.len(), all.len());
        let from = from.min(all.len());
        prop_assert_eq!(table.samples(from..all.len()).collect::<Vec<_>>(), &all[from..]);
        for (number, sample) in all.iter().enumerate() {
            prop_assert_eq!(table.sample(number), *sample);
            let expected = all.partition_point(|other| other.decode < sample.decode);
            prop_assert_eq!(table.partition_point(|decode| decode < sample.decode), expected);
            let start = (number..all.len()).find(|&at| all[at].is_start);
            prop_assert_eq!(table.start_from(number), start);
        }
        let bytes: u64 = all.iter().map(|sample| u64::from(sample.bytes)).sum();
        prop_assert_eq!(table.bytes(), bytes);
    }

    #[test]
    fn a_stored_presentation_is_the_one_that_was_kept(
        all in samples(), shift in -5000..5000_i64, form in 0..PcmForm::ALL.len(),
    ) {
        let sound = Codec::Aac(AacConfig {
            specific: vec![0x12, 0x10],
            object_type: 2,
            rate_hz: 44_100,
            channels: 2,
        });
        let pcm = PcmConfig { form: PcmForm::ALL[form], rate_hz: 96_000, channels: 6 };
        let turn = Turn::of_signs([0, -1, 1, 0]).unwrap();
        let name = Some("Ä \"name\"".to_owned());
        let label = TrackLabel { name, is_commentary: true, ..TrackLabel::default() };
        let display = Display { turn, pixel_aspect: PixelAspect::new(16, 11) };
        let pictures = track(h264(), table(12_800, &all).unwrap(), shift);
        let tracks = vec![
            Track { display, label, ..pictures },
            track(sound, table(44_100, &all).unwrap(), 0),
            track(Codec::Pcm(pcm), table(96_000, &all).unwrap(), 0),
        ];
        let left_out = vec![LeftOut { id: 9, reason: "subtitles".to_owned() }];
        let kept =
            Presentation::assemble(Container::FragmentedMp4, FILE_BYTES, tracks, left_out).unwrap();
        prop_assert!(kept.warnings().is_empty());
        let kept = kept.with_warnings(vec!["cut off".to_owned(), "turned".to_owned()]);
        let key = PlanKey { path: b"a".to_vec(), bytes: FILE_BYTES, modified_ns: 7, inode: 2 };
        let stored = kept.encode(&key);
        let found = Presentation::decode(&stored, &key).unwrap();
        prop_assert_eq!(&found, &kept);
        prop_assert_eq!(found.warnings(), ["cut off", "turned"]);
        for end in (0..stored.len()).step_by(7) {
            prop_assert!(Presentation::decode(&stored[..end], &key).is_err());
        }
        let later = PlanKey { modified_ns: 8, ..key };
        let outdated = Presentation::decode(&stored, &later);
        let is_outdated = matches!(outdated, Err(PlanFault::Outdated { .. }));
        prop_assert!(is_outdated);
    }

    #[test]
    fn chapters_hold_each_sample_once(all in samples(), shift in -5000..5000_i64) {
        let whole = presentation(vec![
            track(h264(), table(1000, &all).unwrap(), shift),
            track(Codec::MpegAudio, table(12_800, &all).unwrap(), 0),
        ]);
        for (index, track) in whole.tracks().iter().enumerate() {
            let mut next = 0;
            for chapter in 0..whole.chapters() {
                let numbers = whole.chapter_samples(index, chapter);
                prop_assert_eq!(numbers.start, next);
                let following = (chapter + 1..whole.chapters())
                    .find(|&later| !whole.chapter_samples(index, later).is_empty());
                prop_assert_eq!(whole.following_chapter(index, chapter), following);
                for sample in track.samples.samples(numbers.clone()) {
                    let due = whole.due_ticks(track, &sample);
                    prop_assert_eq!(whole.chapter_at(due), chapter);
                }
                next = numbers.end;
            }
            prop_assert_eq!(next, all.len());
        }
    }
}

/// Pictures at 25 a second with two B-frames, as an encoder writes them: times of decoding from 0
/// on, an edit that begins at the first picture shown.
fn pictures(groups: usize) -> Vec<MediaSample> {
    let offsets = [1024, 2048, 512, 0];
    let one = |number: usize| MediaSample {
        file_offset: number as u64 * 1000,
        bytes: 1000,
        decode: number as u64 * 512,
        offset: if number.is_multiple_of(12) { 1024 } else { offsets[number % 4] },
        duration: 512,
        is_start: number.is_multiple_of(12),
    };
    (0..groups * 12).map(one).collect()
}

/// Found by the fuzz target `mp4`: stored and read again, such a table was another one.
#[test]
fn a_sample_ended_by_the_next_joins_those_that_last_as_long() {
    let sample = |decode, duration| MediaSample {
        file_offset: 9 * decode,
        bytes: 9,
        decode,
        offset: 0,
        duration,
        is_start: true,
    };
    // The third has a duration of 1 and lasts 3, because the fourth begins then.
    let made = table(10, &[sample(0, 3), sample(3, 3), sample(6, 1), sample(9, 3)]);
    assert_eq!(made, table(10, &[sample(0, 3), sample(3, 3), sample(6, 3), sample(9, 3)]));
}

#[test]
fn entries_are_key_frames_by_their_time_of_presentation() {
    let video = track(h264(), table(12_800, &pictures(5)).unwrap(), -1024);
    let whole = presentation(vec![video]);
    assert_eq!(whole.entries(), 5);
    let second = TICKS_PER_SECOND;
    assert_eq!(whole.entry(0), Entry { due_ticks: 0, presented_ticks: 0 });
    // The second key frame is shown at 12/25 s and decoded 1024 units earlier, which are zero.
    let at = 12 * second / 25;
    let expected = Entry { due_ticks: at, presented_ticks: at };
    assert_eq!(whole.entry(at), expected);
    assert_eq!(whole.entry(at - 1), Entry { due_ticks: 0, presented_ticks: 0 });
    assert_eq!(whole.entry(at + second / 25), expected);
    assert_eq!(whole.entry_from(1), Some(expected));
    assert_eq!(whole.entry_from(whole.duration_ticks()), None);
}

#[test]
fn samples_before_the_title_have_timestamps_before_its_start() {
    let frame = |number: u64| MediaSample {
        file_offset: number * 300,
        bytes: 300,
        decode: number * 1024,
        offset: 0,
        duration: 1024,
        is_start: true,
    };
    let frames: Vec<_> = (0..10).map(frame).collect();
    let sound = Codec::Aac(AacConfig {
        specific: Vec::new(),
        object_type: 2,
        rate_hz: 44_100,
        channels: 2,
    });
    let priming = track(sound, table(44_100, &frames).unwrap(), -1024);
    let whole = presentation(vec![priming]);
    let track = &whole.tracks()[0];
    let first = track.samples.sample(0);
    assert_eq!(track.rtp_units(track.presented(&first)), 1024_u32.wrapping_neg());
    assert_eq!(whole.due_ticks(track, &first), 0, "it is due at the beginning nevertheless");
    assert_eq!(track.rtp_units(track.presented(&track.samples.sample(1))), 0);
}

/// A part of a second beyond the limit once passed the check and failed an assertion behind it.
#[test]
fn times_beyond_the_limit_are_refused_to_the_unit() {
    let limit = SECONDS_MAX * 1000;
    let of_end = |end: u64| {
        let sample = MediaSample {
            file_offset: 0,
            bytes: 1,
            decode: end - 1,
            offset: 0,
            duration: 1,
            is_start: true,
        };
        let track = track(h264(), table(1000, &[sample]).unwrap(), 0);
        Presentation::assemble(Container::Mp4, FILE_BYTES, vec![track], Vec::new())
    };
    assert!(of_end(limit).is_ok());
    for end in [limit + 1, limit + 999, limit + 1000] {
        let refusal = of_end(end).unwrap_err();
        assert_eq!(refusal.to_string(), "MP4 longer than 2147483648 s by its own clock");
    }
}

#[test]
fn a_sample_lasts_until_the_next_whatever_it_claims() {
    let sample = |decode, duration| MediaSample {
        file_offset: 0,
        bytes: 1,
        decode,
        offset: 0,
        duration,
        is_start: true,
    };
    let table = table(1000, &[sample(0, u32::MAX), sample(5, 3)]).unwrap();
    assert_eq!((table.sample(0).duration, table.end(), table.presented_end()), (5, 8, 8));
}

#[test]
fn samples_that_cannot_be_sent_are_refused() {
    let mut builder = SampleTableBuilder::new(1000, 10_000);
    let good = MediaSample {
        file_offset: 0,
        bytes: 6000,
        decode: 5,
        offset: 0,
        duration: 1,
        is_start: true,
    };
    builder.push(good).unwrap();
    let outside = MediaSample { file_offset: 9_999, bytes: 2, ..good };
    assert!(matches!(builder.push(outside), Err(SampleFault::OutsideFile { .. })));
    let past = MediaSample { file_offset: u64::MAX, bytes: 1, ..good };
    assert!(matches!(builder.push(past), Err(SampleFault::OutsideFile { .. })));
    assert_eq!(builder.push(good), Err(SampleFault::Overlap));
    let back = MediaSample { bytes: 1, decode: 4, ..good };
    assert_eq!(builder.push(back), Err(SampleFault::Time { decode: 4 }));
    let late = MediaSample { bytes: 1, decode: u64::MAX, ..good };
    assert!(matches!(builder.push(late), Err(SampleFault::Time { .. })));
    let again = MediaSample { bytes: 0, decode: 5, ..good };
    let dense = (0..).find_map(|_| builder.push(again).err()).unwrap();
    assert!(matches!(dense, SampleFault::TooDense { .. }), "{dense}");
    assert!(SampleTableBuilder::new(1, 0).finish().is_none(), "no sample");
    let mut endless = SampleTableBuilder::new(1000, 10_000);
    endless.push(MediaSample { is_start: false, ..good }).unwrap();
    assert!(endless.finish().is_none(), "no random-access point");
}

/// Bytes of the tables of an hour of 25 pictures a second with B-frames, and of AAC at 48 kHz. In
/// an MP4 half a second of a track is contiguous; in Matroska no frame directly follows another.
fn tables_of_an_hour(is_apart: bool) -> u64 {
    let mut video = SampleTableBuilder::new(90_000, FILM_BYTES);
    let mut sound = SampleTableBuilder::new(48_000, FILM_BYTES);
    let push = |table: &mut SampleTableBuilder, number: u64, duration: u32, chunk: u64| {
        let chunk = if is_apart { 1 } else { chunk };
        let offset = [2, 5, 3, 1][number as usize % 4] * if duration == 3600 { 3600 } else { 0 };
        let sample = MediaSample {
            file_offset: number * 1000 + number / chunk * 50,
            bytes: 1000,
            decode: number * u64::from(duration),
            offset,
            duration,
            is_start: duration != 3600 || number.is_multiple_of(50),
        };
        table.push(sample).unwrap();
    };
    (0..3600 * 25).for_each(|number| push(&mut video, number, 3600, 12));
    (0..3600 * 48_000 / 1024).for_each(|number| push(&mut sound, number, 1024, 23));
    video.finish().unwrap().memory_bytes() + sound.finish().unwrap().memory_bytes()
}

/// A day at 0.5 Mb/s.
const FILM_BYTES: u64 = 5_400_000_000;

#[test]
fn tables_of_a_day_stay_far_below_their_bound() {
    let day = 24 * tables_of_an_hour(false);
    assert!((40_000_000..60_000_000).contains(&day), "{day}");
    assert!(4 * day < table_bytes_max(FILM_BYTES), "{day}");
    let apart = 24 * tables_of_an_hour(true);
    assert!((130_000_000..150_000_000).contains(&apart), "{apart}");
    assert!(3 * apart < 2 * table_bytes_max(FILM_BYTES), "{apart}");
}

/// Samples that alternate in every field once took 48 bytes each, 800 MB of one file.
#[test]
fn tables_are_bounded_by_their_bytes() {
    let file_bytes = 500 << 20;
    let limit = table_bytes_max(file_bytes);
    assert_eq!(limit, 72 << 20);
    let mut builder = SampleTableBuilder::new(90_000, file_bytes);
    let refused = (0..SAMPLES_MAX).find_map(|number| {
        let sample = MediaSample {
            file_offset: [64, 128, 96, 32][number as usize % 4],
            bytes: number & 1,
            decode: u64::from(number) * 100 + u64::from(number & 1),
            offset: number as i32 & 1,
            duration: 101 - 2 * (number & 1),
            is_start: number > 0,
        };
        builder.push(sample).err().map(|fault| (number, fault))
    });
    let Some((number, SampleFault::TableBytes { bytes, limit: found })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((found, number.is_multiple_of(TABLE_CHECK_SAMPLES)), (limit, true));
    assert!((1_500_000..1_700_000).contains(&number), "48 bytes a sample: {number}");
    assert!(bytes < limit + (1 << 20), "{bytes}");
}

/// Parameter sets of 64 KB each once made a session description of 11 MB.
#[test]
fn tracks_with_large_parameter_sets_are_left_out() {
    let with = |sets: &[usize]| {
        let sample = MediaSample {
            file_offset: 0,
            bytes: 1,
            decode: 0,
            offset: 0,
            duration: 1,
            is_start: true,
        };
        let track = |&bytes: &usize| {
            let config = H264Config {
                length_bytes: 4,
                profile: [0x64, 0, 0x1f],
                sequence_sets: vec![vec![0x67; bytes / 2]],
                picture_sets: vec![vec![0x68; bytes - bytes / 2]],
            };
            track(Codec::H264(config), table(1000, &[sample]).unwrap(), 0)
        };
        let tracks = sets.iter().map(track).collect();
        Presentation::assemble(Container::Mp4, FILE_BYTES, tracks, Vec::new())
    };
    let found = with(&[PARAMETER_BYTES_MAX, PARAMETER_BYTES_MAX + 1, 700]).unwrap();
    assert_eq!((found.tracks().len(), found.left_out().len()), (2, 1));
    let reason = &found.left_out()[0].reason;
    assert!(reason.contains("parameter sets of 4097 bytes") && reason.contains("4096"), "{reason}");
    let refused = with(&[65_535]).unwrap_err();
    assert!(matches!(refused, Refusal::NoTrack { .. }), "{refused}");
    let many = with(&[PARAMETER_BYTES_MAX; 16]).unwrap();
    assert_eq!((many.tracks().len(), many.left_out().len()), (6, 10));
    let description: usize = (many.tracks().iter())
        .flat_map(|track| crate::payload::rtp_format(&track.codec, 96).parameters)
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert!(description < 48 << 10, "{description}");
}
