// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests PCM in written MP4 files: the boxes that describe it, the sound byte by byte, the times of
//! gaps, and ffmpeg as another reader.
//!
//! The tests with ffmpeg are skipped, with the reason printed, where it is not installed.
//!
//! Sources: ISO/IEC 23003-5 (ipcm, pcmC); ISO/IEC 14496-12 §8.8.

use std::path::Path;
use std::process::Command;

use media::mp4::Mp4Demuxer;
use media::mux::{MediaWriter, WriterKind};
use media::tracks::{H264Config, PcmConfig, PcmForm};
use media::{AccessUnit, Codec, RtpIdentity};
use mp4_atom::{Any, ReadFrom};

/// Samples of a track in a file.
#[derive(Debug, Default)]
struct Track {
    /// Time, duration and bytes of each sample.
    samples: Vec<(u64, u32, Vec<u8>)>,
    /// Bytes of the tables of its fragments that have an entry a sample.
    entry_tables: usize,
    entry: Option<mp4_atom::Codec>,
    timescale: u32,
}

impl Track {
    fn sound(&self) -> Vec<u8> {
        self.samples.iter().flat_map(|(_, _, bytes)| bytes.clone()).collect()
    }

    /// Times and durations.
    fn times(&self) -> Vec<(u64, u32)> {
        self.samples.iter().map(|&(time, duration, _)| (time, duration)).collect()
    }
}

/// Reads a file with a given number of tracks.
fn read<const TRACKS: usize>(file: &[u8]) -> [Track; TRACKS] {
    let mut tracks = std::array::from_fn(|_| Track::default());
    let (mut at, mut rest) = (0, file);
    while !rest.is_empty() {
        let atom = Any::read_from(&mut rest).expect("a box");
        match atom {
            Any::Moov(moov) => {
                assert_eq!(moov.trak.len(), TRACKS);
                for (track, trak) in tracks.iter_mut().zip(moov.trak) {
                    track.timescale = trak.mdia.mdhd.timescale;
                    track.entry = trak.mdia.minf.stbl.stsd.codecs.into_iter().next();
                }
            }
            Any::Moof(moof) => {
                for traf in moof.traf {
                    let track: &mut Track = &mut tracks[traf.tfhd.track_id as usize - 1];
                    let mut time = traf.tfdt.expect("a time").base_media_decode_time;
                    let run = &traf.trun[0];
                    let mut from = at + run.data_offset.expect("an offset") as usize;
                    let has_entries = |entry: mp4_atom::TrunEntry| entry != Default::default();
                    track.entry_tables += usize::from(run.samples.iter().any(has_entries));
                    for entry in run.samples.iter() {
                        let duration = entry.duration.or(traf.tfhd.default_sample_duration);
                        let size = entry.size.or(traf.tfhd.default_sample_size).expect("a size");
                        let (duration, size) = (duration.expect("a duration"), size as usize);
                        track.samples.push((time, duration, file[from..from + size].to_vec()));
                        time += u64::from(duration);
                        from += size;
                    }
                }
            }
            _ => {}
        }
        at = file.len() - rest.len();
    }
    tracks
}

fn pcm(form: PcmForm, rate_hz: u32, channels: u8) -> Codec {
    Codec::Pcm(PcmConfig { form, rate_hz, channels })
}

fn unit(time: i64, bytes: &[u8]) -> AccessUnit {
    AccessUnit { time, bytes: bytes.to_vec(), is_start: true, is_after_loss: false }
}

fn writer(codecs: &[Codec]) -> MediaWriter {
    MediaWriter::new(WriterKind::FragmentedMp4, codecs).expect("codecs that it holds")
}

/// Noise, so that no sample equals its neighbours.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = bytes as u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(next).collect()
}

/// Writes sound in packets of this many frames.
fn write(codec: &Codec, sound: &[u8], packet_frames: usize) -> Vec<u8> {
    let Codec::Pcm(config) = codec else { panic!("PCM") };
    let mut writer = writer(std::slice::from_ref(codec));
    let (mut file, mut time) = (Vec::new(), 77_777);
    for bytes in sound.chunks(packet_frames * config.frame_bytes() as usize) {
        writer.push(0, unit(time, bytes), &mut file).expect("a good unit");
        time += i64::from(bytes.len() as u32 / config.frame_bytes());
    }
    writer.finish(&mut file);
    file
}

/// Forms, with the raw format of ffmpeg for the sound that was sent, and for what is stored.
const SOUNDS: [(PcmForm, u32, u8, &str, &str); 7] = [
    (PcmForm::MuLaw, 8000, 1, "mulaw", "s16le"),
    (PcmForm::ALaw, 8000, 1, "alaw", "s16le"),
    (PcmForm::L8, 11_025, 1, "u8", "s16le"),
    (PcmForm::L16, 44_100, 2, "s16be", "s16le"),
    (PcmForm::L16, 96_000, 1, "s16be", "s16le"),
    (PcmForm::L24, 48_000, 2, "s24be", "s24le"),
    (PcmForm::L24, 192_000, 2, "s24be", "s24le"),
];

/// Three seconds and a part of a block.
fn sound(form: PcmForm, rate_hz: u32, channels: u8) -> Vec<u8> {
    let config = PcmConfig { form, rate_hz, channels };
    noise(((3 * rate_hz + 55) * config.frame_bytes()) as usize)
}

#[test]
fn sound_is_stored_in_blocks_with_its_description() {
    for (form, rate_hz, channels, ..) in SOUNDS {
        let codec = pcm(form, rate_hz, channels);
        let sent = sound(form, rate_hz, channels);
        let mut files = Vec::new();
        for packet_ms in [20, 30, 40, 64] {
            files.push(write(&codec, &sent, (rate_hz * packet_ms / 1000) as usize));
        }
        let [found] = read(&files[0]);
        let is_wide = form == PcmForm::L24;
        let Some(mp4_atom::Codec::Ipcm(entry)) = &found.entry else { panic!("{found:?}") };
        let bits = if is_wide { 24 } else { 16 };
        let record = mp4_atom::PcmC { big_endian: false, sample_size: bits };
        assert_eq!(entry.pcmc, Some(record), "{form:?}");
        let audio = &entry.audio;
        assert_eq!((audio.channel_count, audio.sample_size), (channels.into(), bits.into()));
        assert_eq!((found.timescale, &entry.chnl), (rate_hz, &None));
        // Blocks of about 20 ms, each with its frames, and the last one with its own.
        let frame = usize::from(bits) / 8 * usize::from(channels);
        let block = found.samples[0].1;
        assert!((0.018..=0.02).contains(&(f64::from(block) / f64::from(rate_hz))), "{block}");
        // The origin is rounded down to units of the track.
        let first = found.samples[0].0;
        assert!(first <= 1, "{form:?}: {first}");
        let mut expected = first;
        for (index, (time, duration, bytes)) in found.samples.iter().enumerate() {
            assert_eq!((*time, *duration as usize * frame), (expected, bytes.len()), "{index}");
            assert!(*duration == block || index + 1 == found.samples.len(), "{index}: {duration}");
            expected += u64::from(*duration);
        }
        assert_eq!(expected - first, u64::from(3 * rate_hz + 55));
        assert!(found.entry_tables <= 1, "only the fragment with the last block has a table");
        let size = found.sound().len();
        assert!(files[0].len() < size + 2500, "{} bytes of boxes", files[0].len() - size);
        for file in &files[1..] {
            let [other] = read(file);
            assert!(other.samples == found.samples, "{form:?}: by the length of packets");
        }
    }
}

#[test]
fn a_lost_packet_is_a_gap_of_the_times() {
    let mut writer = writer(&[pcm(PcmForm::MuLaw, 8000, 1)]);
    let mut file = Vec::new();
    // Packets of 30 ms; the third is lost.
    for packet in [0, 1, 3, 4] {
        writer.push(0, unit(packet * 240, &[0xff; 240]), &mut file).expect("a good unit");
    }
    writer.finish(&mut file);
    let [found] = read(&file);
    let sizes: Vec<_> = found.samples.iter().map(|(_, _, bytes)| bytes.len() / 2).collect();
    assert_eq!(sizes, [160, 160, 160, 160, 160, 160]);
    assert_eq!(
        found.times(),
        [(0, 160), (160, 160), (320, 400), (720, 160), (880, 160), (1040, 160)]
    );
}

/// A camera: pictures, and G.711 that begins before them.
#[test]
fn pictures_and_sound_stay_in_step() {
    let video = Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x0a],
        sequence_sets: vec![vec![0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80]],
        picture_sets: vec![vec![0x68, 0xce]],
    });
    let mut writer = writer(&[video, pcm(PcmForm::ALaw, 8000, 1)]);
    let sent = noise(8000 * 4);
    let mut file = Vec::new();
    let (mut pictures, mut packets) = (0, sent.chunks(320).enumerate());
    for at_ms in (0..4000).step_by(40) {
        let (number, bytes) = packets.next().expect("100 packets");
        writer.push(1, unit(320 * number as i64, bytes), &mut file).expect("a good unit");
        if at_ms < 10 {
            continue;
        }
        let is_start = pictures % 25 == 0;
        let bytes = [0, 0, 0, 2, if is_start { 0x65 } else { 0x41 }, 0x88].to_vec();
        let unit = AccessUnit { time: at_ms * 90, bytes, is_start, is_after_loss: false };
        writer.push(0, unit, &mut file).expect("a good unit");
        pictures += 1;
    }
    writer.finish(&mut file);
    let [video, sound] = read(&file);
    assert_eq!(video.samples.len(), pictures);
    assert_eq!(sound.samples.len(), 200);
    assert!(sound.samples.iter().all(|(_, duration, _)| *duration == 160));
    assert_eq!(sound.samples[0].0, 0, "the sound begins the file");
    assert_eq!(video.samples[0].0, 40 * 90);
    assert_eq!(sound.entry_tables, 0);
    // Each A-law sample is written as 16 bits with the sign of its byte.
    let is_positive = |byte: &u8| byte & 0x80 != 0;
    let signs: Vec<_> = sent.iter().map(is_positive).collect();
    let written = sound.sound();
    let samples = written.chunks_exact(2).map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]]));
    assert_eq!(samples.map(|sample| sample > 0).collect::<Vec<_>>(), signs);
}

/// Returns the output of ffmpeg, or none where it is not installed.
fn ffmpeg(arguments: &[&str]) -> Option<Vec<u8>> {
    let options = ["-hide_banner", "-nostdin", "-loglevel", "error"];
    let output = match Command::new("ffmpeg").args(options).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: ffmpeg: not installed: {error}; apt install ffmpeg");
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{arguments:?}: {complaint}");
    Some(output.stdout)
}

#[test]
fn ffmpeg_reads_the_sound_that_was_sent() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (form, rate_hz, channels, raw, stored) in SOUNDS {
        let sent = sound(form, rate_hz, channels);
        let file = write(&pcm(form, rate_hz, channels), &sent, rate_hz as usize / 50);
        let name = |end: &str| {
            let path = folder.join(format!("pcm-{raw}-{rate_hz}.{end}"));
            path.to_str().expect("a path in UTF-8").to_owned()
        };
        let (source, target) = (name("raw"), name("mp4"));
        std::fs::write(&source, &sent).expect("the folder of tests");
        std::fs::write(&target, &file).expect("the folder of tests");
        let (rate, channels) = (rate_hz.to_string(), channels.to_string());
        let input = ["-f", raw, "-ar", &rate, "-ac", &channels, "-i", &source, "-f", stored, "-"];
        let Some(expected) = ffmpeg(&input) else { return };
        let [found] = read(&file);
        assert!(found.sound() == expected, "{form:?} at {rate_hz} Hz: the bytes of the file");
        let read = ffmpeg(&["-i", &target, "-f", stored, "-"]).expect("it was there");
        assert!(read == expected, "{form:?} at {rate_hz} Hz: {} of {}", read.len(), expected.len());
    }
}

/// As a camera sends: H.264 with B-frames, and mu-law in packets of 40 ms.
#[test]
fn ffmpeg_reads_pictures_and_sound_of_a_camera() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [film, raw, target] = ["film.mp4", "sound.raw", "written.mp4"].map(|name| {
        let path = folder.join(format!("pcm-camera-{name}"));
        path.to_str().expect("a path in UTF-8").to_owned()
    });
    let source = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=4"];
    let coder = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "25", "-y", &film];
    if ffmpeg(&[&source[..], &coder].concat()).is_none() {
        return;
    }
    let bytes = std::fs::read(&film).expect("ffmpeg wrote it");
    let mut demuxer = Mp4Demuxer::new(bytes.len() as u64);
    while !demuxer.advance(&bytes, 100).expect("a good file") {}
    let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    let found = demuxer.finish(|| identity).expect("pictures");
    let [track] = found.tracks() else { panic!("one track") };
    let scale = i64::from(track.samples.timescale());
    let sent = noise(4 * 8000);
    let mut writer = writer(&[track.codec.clone(), pcm(PcmForm::MuLaw, 8000, 1)]);
    let (mut file, mut packets) = (Vec::new(), sent.chunks(320).enumerate());
    for sample in track.samples.samples(0..track.samples.len()) {
        let start = sample.file_offset as usize;
        let picture = AccessUnit {
            time: track.presented(&sample) * 90_000 / scale,
            bytes: bytes[start..start + sample.bytes as usize].to_vec(),
            is_start: sample.is_start,
            is_after_loss: false,
        };
        writer.push(0, picture, &mut file).expect("a good picture");
        let (number, packet) = packets.next().expect("100 packets");
        writer.push(1, unit(320 * number as i64, packet), &mut file).expect("a good packet");
    }
    writer.finish(&mut file);
    std::fs::write(&target, &file).expect("the folder of tests");
    std::fs::write(&raw, &sent).expect("the folder of tests");
    let sums = |path: &str| ffmpeg(&["-i", path, "-map", "0:v", "-f", "hash", "-"]);
    assert_eq!(sums(&target), sums(&film), "the pictures");
    let expected = ffmpeg(&["-f", "mulaw", "-ar", "8000", "-i", &raw, "-f", "s16le", "-"]);
    let read = ffmpeg(&["-i", &target, "-map", "0:a", "-f", "s16le", "-"]);
    assert!(expected.is_some() && read == expected, "the sound");
}
