// SPDX-License-Identifier: MIT OR Apache-2.0
//! A camera's recordings, made by the project's multiplexer: pictures and sound that hold their
//! numbers, 25 pictures a second, a key frame every two seconds.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use media::mp4::Mp4Demuxer;
use media::mux::{MediaWriter, Rotation, WriterKind};
use media::tracks::H264Config;
use media::{AccessUnit, Codec, Presentation, RtpIdentity};
use recordings::{CameraFile, CameraFiles, RecordedTime, list, shown_time};
use tempfile::TempDir;

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Main profile, 16 × 16, without usability information.
pub(crate) const SET: [u8; 7] = [0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80];
const PICTURE_SET: [u8; 2] = [0x68, 0xce];
pub(crate) const RATE: u32 = 25;
pub(crate) const KEY_EVERY: u32 = 50;
/// Frames of sound a picture.
const FRAMES: u32 = 2;

/// How pictures are recorded.
pub(crate) struct Shots {
    pub(crate) kind: WriterKind,
    /// Sequence parameter set.
    pub(crate) set: Vec<u8>,
    /// Pictures from one key frame to the next.
    pub(crate) key_every: u32,
    /// Second at which the camera is absent, and for how many.
    pub(crate) absent: Option<(u32, i64)>,
}

impl Default for Shots {
    fn default() -> Shots {
        let (kind, set) = (WriterKind::FragmentedMp4, SET.to_vec());
        Shots { kind, set, key_every: KEY_EVERY, absent: None }
    }
}

pub(crate) struct Camera {
    pub(crate) folder: TempDir,
    pub(crate) files: CameraFiles,
}

impl Camera {
    pub(crate) fn new() -> Camera {
        let folder = TempDir::new().unwrap();
        let files = CameraFiles::new("door".to_owned(), folder.path().to_owned());
        Camera { folder, files }
    }

    /// Records `seconds` from `from` on, whose first picture has the number `first`, in files of
    /// MP4 of `each` seconds.
    pub(crate) fn record(&self, from: Timestamp, first: u32, seconds: u32, each: u32) {
        self.record_as(WriterKind::FragmentedMp4, &SET, from, first, seconds, each);
    }

    pub(crate) fn record_as(
        &self,
        kind: WriterKind,
        set: &[u8],
        from: Timestamp,
        first: u32,
        seconds: u32,
        each: u32,
    ) {
        let set = set.to_vec();
        self.record_shots(from, first, seconds, each, &Shots { kind, set, ..Shots::default() });
    }

    pub(crate) fn record_shots(
        &self,
        from: Timestamp,
        first: u32,
        seconds: u32,
        each: u32,
        shots: &Shots,
    ) {
        let &Shots { kind, ref set, key_every, absent } = shots;
        let is_mp4 = kind == WriterKind::FragmentedMp4;
        let mut recorder = Recorder {
            files: vec![Vec::new()],
            writer: writer(kind, set),
            starts: Vec::new(),
            newest: 0.0,
        };
        if is_mp4 {
            let time = Some(Duration::from_secs(each.into()));
            recorder.writer.rotate(Rotation { time, ..Rotation::default() });
        }
        for number in 0..seconds * RATE {
            if !is_mp4 && number > 0 && number % (each * RATE) == 0 {
                recorder.end();
                recorder.writer = writer(kind, set);
                recorder.files.push(Vec::new());
            }
            let held = (first + number).to_be_bytes();
            let is_start = number % key_every == 0;
            let absent =
                absent.filter(|(from, _)| number >= from * RATE).map_or(0, |(_, lasts)| lasts);
            let slice = [&[if is_start { 0x65 } else { 0x41 }, 0x80][..], &held, &[0xaa; 200]];
            let nal = slice.concat();
            let bytes = [&(nal.len() as u32).to_be_bytes()[..], &nal].concat();
            recorder.push(0, i64::from(number) * 3600 + absent * 90_000, bytes, is_start);
            for frame in FRAMES * number..FRAMES * (number + 1) {
                let held = (FRAMES * first + frame).to_be_bytes();
                // Opus: a frame of 20 ms.
                let bytes = [&[0xfc][..], &held].concat();
                recorder.push(1, i64::from(frame) * 960 + absent * 48_000, bytes, true);
            }
        }
        recorder.end();
        let starts: Vec<i64> = match recorder.starts.is_empty() {
            true => (0..seconds.div_ceil(each)).map(|file| i64::from(file * each)).collect(),
            false => recorder.starts,
        };
        let is_file = |(_, bytes): &(usize, &Vec<u8>)| !bytes.is_empty();
        let files = recorder.files.iter().enumerate().filter(is_file);
        for (index, (_, bytes)) in files.enumerate() {
            let began = from + starts[index].seconds();
            let path = self.path(began, if is_mp4 { "mp4" } else { "ts" });
            fs::write(&path, bytes).unwrap();
            let ended =
                (began + i64::from(each).seconds()).min(from + i64::from(seconds).seconds());
            let file = fs::File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::from(ended)).unwrap();
        }
    }

    /// Path of the file that begins at a time.
    pub(crate) fn path(&self, began: Timestamp, extension: &str) -> PathBuf {
        let time = shown_time(began.into(), &TimeZone::UTC);
        self.folder.path().join(format!("door-{time}.{extension}"))
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.folder.path().join(".door-recordings.sqlite3")
    }

    pub(crate) fn list(&self) -> Vec<CameraFile> {
        list(&self.files, &mut |_, _| {}).unwrap().files
    }
}

fn writer(kind: WriterKind, set: &[u8]) -> MediaWriter {
    let h264 = Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x0a],
        sequence_sets: vec![set.to_vec()],
        picture_sets: vec![PICTURE_SET.to_vec()],
    });
    MediaWriter::new(kind, &[h264, Codec::Opus { channels: 2 }]).unwrap()
}

struct Recorder {
    writer: MediaWriter,
    files: Vec<Vec<u8>>,
    /// Seconds at which files of MP4 began, by the media pushed.
    starts: Vec<i64>,
    /// Media time of the latest picture, in seconds.
    newest: f64,
}

impl Recorder {
    fn push(&mut self, track: usize, time: i64, bytes: Vec<u8>, is_start: bool) {
        self.newest = self.newest.max(time as f64 / [90_000.0, 48_000.0][track]);
        let mut out = Vec::new();
        let unit = AccessUnit { time, bytes, is_start, is_after_loss: false };
        self.writer.push(track, unit, &mut out).unwrap();
        self.put(&out);
    }

    fn end(&mut self) {
        let mut out = Vec::new();
        self.writer.end(&mut out);
        self.put(&out);
    }

    fn put(&mut self, out: &[u8]) {
        let mut at = 0;
        for start in self.writer.take_file_starts() {
            self.files.last_mut().unwrap().extend(&out[at..start.offset]);
            self.files.push(Vec::new());
            self.starts.push((self.newest - start.age.as_secs_f64()).round() as i64);
            at = start.offset;
        }
        self.files.last_mut().unwrap().extend(&out[at..]);
    }
}

/// A moment of the day of these tests.
pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-11-30T{time}Z").parse().unwrap()
}

pub(crate) fn range(from: &str, to: &str) -> RecordedTime {
    RecordedTime { from: at(from), to: at(to) }
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, 1000).expect("a good file") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

/// Numbers and times of presentation, in milliseconds, of the samples of a track of MP4.
pub(crate) fn numbers(file: &[u8], track: usize) -> Vec<(u32, i64)> {
    let found = demux(file);
    let track = &found.tracks()[track];
    let number = |bytes: &[u8]| {
        let at = if bytes.len() > 100 { 6 } else { 1 };
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
    };
    let samples = track.samples.samples(0..track.samples.len());
    let all = samples.map(|sample| {
        let start = sample.file_offset as usize;
        let bytes = &file[start..start + sample.bytes as usize];
        (number(bytes), track.presented_ticks(&sample) / 27_000)
    });
    all.collect()
}
