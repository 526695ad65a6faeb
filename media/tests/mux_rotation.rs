// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a recording in fragmented MP4 continues in another file without a lost or doubled
//! unit, where playback can start, and with the parameters in force there.

use std::time::Duration;

use media::mp4::Mp4Demuxer;
use media::mux::{FileRequest, MediaWriter, Rotation, WriterKind};
use media::tracks::{H264Config, PcmConfig, PcmForm};
use media::{AccessUnit, Codec, Presentation, RtpIdentity};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Main profile, 16 × 16, without usability information.
const SET: [u8; 7] = [0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80];
const PICTURE_SET: [u8; 2] = [0x68, 0xce];

fn h264() -> Codec {
    Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x0a],
        sequence_sets: vec![SET.to_vec()],
        picture_sets: vec![PICTURE_SET.to_vec()],
    })
}

/// NAL units, each after its length.
fn nals(units: &[&[u8]]) -> Vec<u8> {
    units.iter().flat_map(|nal| [&(nal.len() as u32).to_be_bytes()[..], nal].concat()).collect()
}

/// A picture of about `bytes` bytes that holds its number.
fn picture(number: u32, bytes: usize, is_key: bool) -> Vec<u8> {
    let kind = if is_key { 0x65 } else { 0x41 };
    let filled = vec![0xaa; bytes];
    nals(&[&[&[kind, 0x80][..], &number.to_be_bytes(), &filled].concat()])
}

struct Recorder {
    writer: MediaWriter,
    files: Vec<Vec<u8>>,
    /// Media time of each file when it began.
    ages: Vec<Duration>,
    refused: usize,
}

impl Recorder {
    fn new(codecs: &[Codec], limits: Rotation) -> Recorder {
        let mut writer = MediaWriter::new(WriterKind::FragmentedMp4, codecs).expect("known codecs");
        writer.rotate(limits);
        Recorder { writer, files: Vec::new(), ages: Vec::new(), refused: 0 }
    }

    fn push(&mut self, track: usize, time: i64, bytes: Vec<u8>, is_start: bool) {
        let mut out = Vec::new();
        let unit = AccessUnit { time, bytes, is_start, is_after_loss: false };
        self.refused += usize::from(self.writer.push(track, unit, &mut out).is_err());
        self.split(&out);
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.writer.end(&mut out);
        self.split(&out);
        assert_eq!(self.refused, 0);
        self.files
    }

    fn split(&mut self, out: &[u8]) {
        let (mut at, mut begins) = (0, false);
        let starts = self.writer.take_file_starts();
        self.ages.extend(starts.iter().map(|start| start.age));
        for end in starts.iter().map(|start| start.offset).chain([out.len()]) {
            if begins {
                self.files.push(Vec::new());
            }
            if end > at {
                self.files.last_mut().expect("a file has begun").extend(&out[at..end]);
            }
            (at, begins) = (end, true);
        }
    }
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, 1000).expect("a good file") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

/// Time of presentation in seconds, bytes, and whether playback can start, of each sample.
fn samples(file: &[u8], track: usize) -> Vec<(f64, Vec<u8>, bool)> {
    let found = demux(file);
    let track = &found.tracks()[track];
    let all = track.samples.samples(0..track.samples.len()).map(|sample| {
        let start = sample.file_offset as usize;
        let bytes = file[start..start + sample.bytes as usize].to_vec();
        (track.presented_ticks(&sample) as f64 / 27e6, bytes, sample.is_start)
    });
    all.collect()
}

/// Records a camera at 25 pictures a second with a key frame a second and Opus; returns the files.
fn camera(seconds: u32, limits: Rotation, bytes: usize, key_every: u32) -> Vec<Vec<u8>> {
    camera_with(seconds, limits, bytes, key_every, |_| {}).finish()
}

/// Does the same; calls `before` with the number of each picture. Returns the recorder.
fn camera_with(
    seconds: u32,
    limits: Rotation,
    bytes: usize,
    key_every: u32,
    before: impl Fn(u32),
) -> Recorder {
    let mut recorder = Recorder::new(&[h264(), Codec::Opus { channels: 2 }], limits);
    for number in 0..seconds * 25 {
        before(number);
        let is_key = number.is_multiple_of(key_every);
        recorder.push(0, i64::from(number) * 3600, picture(number, bytes, is_key), is_key);
        for half in 0..2 {
            let frame = 2 * number + half;
            recorder.push(1, i64::from(frame) * 960, frame.to_be_bytes().to_vec(), true);
        }
    }
    recorder
}

/// Seconds of sound in a file. Our demuxer leaves out pictures without a key frame.
fn sound(file: &[u8]) -> f64 {
    samples(file, demux(file).tracks().len() - 1).len() as f64 / 50.0
}

/// Checks that the files have every unit once, in order; returns the seconds of each file.
fn seconds(files: &[Vec<u8>], pictures: u32) -> Vec<f64> {
    let numbers = |track: usize, at: usize| -> Vec<u32> {
        let all = files.iter().flat_map(|file| samples(file, track));
        all.map(|(_, bytes, _)| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())).collect()
    };
    assert_eq!(numbers(0, 6), (0..pictures).collect::<Vec<_>>());
    assert_eq!(numbers(1, 0), (0..2 * pictures).collect::<Vec<_>>());
    let length = |file: &Vec<u8>| {
        let all = samples(file, 0);
        let first = all[0].0.min(samples(file, 1)[0].0);
        assert!(first.abs() < 1e-6, "a file begins at zero, not at {first} s");
        all.len() as f64 / 25.0
    };
    files.iter().map(length).collect()
}

#[test]
fn files_follow_each_other_without_a_lost_or_doubled_unit() {
    let time = Some(Duration::from_secs(10));
    let files = camera(35, Rotation { time, ..Rotation::default() }, 500, 25);
    assert_eq!(seconds(&files, 35 * 25), [10.0, 10.0, 10.0, 5.0]);
    for file in &files {
        assert!(samples(file, 0)[0].2, "it begins with a key frame");
    }
    // Sound and pictures keep their distance: a file's first are less than a frame apart.
    for file in &files {
        let apart = samples(file, 0)[0].0 - samples(file, 1)[0].0;
        assert!(apart.abs() < 0.041, "{apart}");
    }
}

#[test]
fn key_frames_of_every_two_seconds_begin_fragments() {
    let files = camera(21, Rotation::default(), 500, 50);
    let [file] = &files[..] else { panic!("one file") };
    let fragments = file.windows(4).filter(|bytes| *bytes == b"moof").count();
    assert_eq!(fragments, 11);
    let found = demux(file);
    assert_eq!(found.tracks()[0].samples.starts(), 11);
}

#[test]
fn no_file_exceeds_its_bytes_where_groups_are_shorter() {
    let most = 200_000;
    // A group of pictures has about 26,000 bytes with its sound.
    let files = camera(60, Rotation { bytes: Some(most), ..Rotation::default() }, 1000, 25);
    let lengths: Vec<_> = files.iter().map(Vec::len).collect();
    assert!(lengths.iter().all(|&bytes| bytes as u64 <= most), "{lengths:?}");
    assert!(lengths[..lengths.len() - 1].iter().all(|&bytes| bytes > 120_000), "{lengths:?}");
    seconds(&files, 60 * 25);
    assert!(files.iter().all(|file| samples(file, 0)[0].2));
}

#[test]
fn without_key_frames_a_file_ends_late_or_before_the_fragment_that_does_not_fit() {
    let time = Some(Duration::from_secs(5));
    let files = camera(40, Rotation { time, ..Rotation::default() }, 100, 100_000);
    let lengths: Vec<_> = files.iter().map(|file| sound(file)).collect();
    assert!(lengths[..2].iter().all(|length| (13.0..=15.0).contains(length)), "{lengths:?}");
    assert_eq!(lengths.iter().sum::<f64>(), 40.0);
    let most = 100_000;
    let files = camera(40, Rotation { bytes: Some(most), ..Rotation::default() }, 1000, 100_000);
    assert_eq!(files.iter().map(|file| sound(file)).sum::<f64>(), 40.0);
    let lengths: Vec<_> = files.iter().map(Vec::len).collect();
    assert!(lengths.len() > 8 && lengths.iter().all(|&bytes| bytes as u64 <= most), "{lengths:?}");
}

/// Records a camera whose sound, or whose pictures, pause for these seconds: returns the seconds of
/// pictures and of sound in each file, and the first times of both.
fn paused(pauses_sound: bool, pause: std::ops::Range<u32>) -> Vec<([f64; 2], [f64; 2])> {
    let limits = Rotation { time: Some(Duration::from_secs(10)), ..Rotation::default() };
    let mut recorder = Recorder::new(&[h264(), Codec::Opus { channels: 2 }], limits);
    for number in 0..60 * 25 {
        let is_paused = pause.contains(&(number / 25));
        let is_key = number.is_multiple_of(25);
        if pauses_sound || !is_paused {
            recorder.push(0, i64::from(number) * 3600, picture(number, 200, is_key), is_key);
        }
        for half in 0..2 {
            let frame = 2 * number + half;
            if !pauses_sound || !is_paused {
                recorder.push(1, i64::from(frame) * 960, frame.to_be_bytes().to_vec(), true);
            }
        }
    }
    let of_file = |file: &Vec<u8>| {
        let tracks = [0, 1].map(|track| {
            let is_there = demux(file).tracks().len() > track;
            if is_there { samples(file, track) } else { Vec::new() }
        });
        let first = |track: usize| tracks[track].first().map_or(-1.0, |first| first.0);
        let lengths = [tracks[0].len() as f64 / 25.0, tracks[1].len() as f64 / 50.0];
        (lengths, [first(0), first(1)])
    };
    recorder.finish().iter().map(of_file).collect()
}

/// The last unit before a pause is not the first of the files that follow.
#[test]
fn a_track_that_pauses_does_not_move_the_files_of_the_others() {
    let files = paused(true, 15..45);
    let pictures: Vec<_> = files.iter().map(|(lengths, _)| lengths[0]).collect();
    assert_eq!(pictures, [10.0; 6], "{files:?}");
    let sound: f64 = files.iter().map(|(lengths, _)| lengths[1].max(0.0)).sum();
    assert_eq!(sound, 30.0, "{files:?}");
    for (_, [first, _]) in &files {
        assert!((0.0..0.7).contains(first), "{files:?}");
    }
    // Without pictures a file ends at a fragment, and sound alone has no key frames.
    let files = paused(false, 15..45);
    let sound: f64 = files
        .iter()
        .map(|(lengths, _)| if lengths[1] > 0.0 { lengths[1] } else { lengths[0] / 2.0 })
        .sum();
    assert!((4..=7).contains(&files.len()), "{files:?}");
    assert!((59.9..=60.1).contains(&sound), "{sound}: {files:?}");
}

/// Pictures whose reordering is unknown are held for longer than a second at a low rate.
#[test]
fn sound_ends_with_the_pictures_of_a_file_at_any_rate() {
    let limits = Rotation { time: Some(Duration::from_secs(8)), ..Rotation::default() };
    let config = PcmConfig { form: PcmForm::ALaw, rate_hz: 8000, channels: 1 };
    let mut recorder = Recorder::new(&[h264(), Codec::Pcm(config)], limits);
    let mut sound_ms = 0;
    for number in 0..40 * 10_u32 {
        let is_key = number.is_multiple_of(20);
        recorder.push(0, i64::from(number) * 9000, picture(number, 200, is_key), is_key);
        // Packets of 30 ms, which are no whole number of blocks, ahead of the picture.
        while sound_ms < number * 100 + 300 {
            recorder.push(1, i64::from(sound_ms) * 8, vec![0xd5; 240], true);
            sound_ms += 30;
        }
    }
    let files = recorder.finish();
    assert_eq!(files.len(), 5);
    let mut frames = 0;
    for (number, file) in files.iter().enumerate() {
        let (pictures, sound) = (samples(file, 0), samples(file, 1));
        assert_eq!(pictures.len(), 80, "file {number}");
        let bytes: usize = sound.iter().map(|(_, bytes, _)| bytes.len()).sum();
        frames += bytes / 2;
        let (first, last) = (sound[0].0, sound[sound.len() - 1].0);
        assert!(first < 0.021, "file {number} has sound from {first} s on");
        let end = if number == 4 { 8.5 } else { 8.021 };
        assert!((7.9..end).contains(&last), "file {number} has sound to {last} s");
    }
    assert_eq!(frames, sound_ms as usize * 8);
}

#[test]
fn sound_alone_is_cut_at_fragments() {
    let time = Some(Duration::from_secs(6));
    let mut recorder =
        Recorder::new(&[Codec::Opus { channels: 1 }], Rotation { time, ..Rotation::default() });
    for frame in 0..50 * 20_u32 {
        recorder.push(0, i64::from(frame) * 960, frame.to_be_bytes().to_vec(), true);
    }
    let files = recorder.finish();
    let all: Vec<_> = files.iter().flat_map(|file| samples(file, 0)).collect();
    let expected: Vec<_> = (0..1000_u32).map(|frame| frame.to_be_bytes().to_vec()).collect();
    assert_eq!(all.into_iter().map(|(_, bytes, _)| bytes).collect::<Vec<_>>(), expected);
    assert_eq!(files.len(), 4);
}

/// A camera whose picture changes: the next file describes the new one.
#[test]
fn parameters_that_change_begin_another_file() {
    let mut other = SET;
    other[3] = 0x0b;
    let mut recorder = Recorder::new(&[h264()], Rotation::default());
    for number in 0..25 * 40_u32 {
        let is_key = number.is_multiple_of(25);
        // From second 3 on, and back again at second 20: the first file has at least ten seconds.
        let set = if (75..500).contains(&number) { &other } else { &SET };
        let key = [&nals(&[set, &PICTURE_SET])[..], &picture(number, 50, true)].concat();
        let bytes = if is_key { key } else { picture(number, 50, false) };
        recorder.push(0, i64::from(number) * 3600, bytes, is_key);
    }
    let files = recorder.finish();
    let sets = files.iter().map(|file| match &demux(file).tracks()[0].codec {
        Codec::H264(config) => config.sequence_sets[0][3],
        codec => panic!("{codec:?}"),
    });
    assert_eq!(sets.collect::<Vec<_>>(), [0x0a, 0x0b, 0x0a]);
    let lengths: Vec<_> = files.iter().map(|file| samples(file, 0).len() / 25).collect();
    assert_eq!(lengths, [10, 10, 20]);
}

#[test]
fn a_request_ends_a_file_at_the_next_key_frame() {
    let request = FileRequest::default();
    // Requests before the first picture are for the first file.
    request.make();
    let limits = Rotation { request: Some(request.clone()), ..Rotation::default() };
    let recorder = camera_with(20, limits, 500, 25, |number| {
        if [0, 110, 260, 261].contains(&number) {
            request.make();
        }
    });
    let ages = recorder.ages.clone();
    let files = recorder.finish();
    // The requests of pictures 260 and 261 are for one file.
    let lengths = seconds(&files, 500);
    assert_eq!(lengths.len(), 3, "{lengths:?}");
    for (found, expected) in lengths.iter().zip([5.0, 6.0, 9.0]) {
        assert!((found - expected).abs() < 0.1, "{lengths:?}");
    }
    // Units wait for two seconds at most, and the first fragment has as many.
    for age in ages {
        assert!((0.5..4.5).contains(&age.as_secs_f64()), "{age:?}");
    }
}

#[test]
fn a_request_ends_a_file_without_key_frames_ten_seconds_later_at_most() {
    let request = FileRequest::default();
    let limits = Rotation { request: Some(request.clone()), ..Rotation::default() };
    let made = |number| {
        if number == 125 {
            request.make();
        }
    };
    let files = camera_with(40, limits, 100, 100_000, made).finish();
    let lengths: Vec<_> = files.iter().map(|file| sound(file)).collect();
    assert_eq!(lengths.len(), 2, "{lengths:?}");
    assert!((13.0..=15.1).contains(&lengths[0]) && lengths[0] + lengths[1] == 40.0, "{lengths:?}");
}
