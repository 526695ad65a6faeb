// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks of PCM: entries, blocks made of frames, of blocks and of long samples, and broken tables.

use super::made::*;
use super::*;
use crate::payload::{PAYLOAD_BYTES_MAX, RtpValues, lay_out};
use crate::tracks::{Codec, PcmConfig, PcmForm, SAMPLES_MAX, SampleFault};

/// An entry of sound of version 0.
fn entry(code: &[u8; 4], (channels, bits, rate): (u16, u16, u32), boxes: &[u8]) -> Vec<u8> {
    let header = [0, 0, 0, 0, 0, 0, 0, 1];
    let sizes = u32::from(channels) << 16 | u32::from(bits);
    boxed(code, &[&header, &words(&[0, 0, sizes, 0, rate << 16]), boxes])
}

fn pcm_box(flags: u8, bits: u8) -> Vec<u8> {
    boxed(b"pcmC", &[&[0, 0, 0, 0, flags, bits]])
}

/// The entry that the recorder writes.
fn ipcm(bits: u8, channels: u16, rate_hz: u32) -> Vec<u8> {
    entry(b"ipcm", (channels, bits.into(), rate_hz), &pcm_box(1, bits))
}

/// An entry of QuickTime's version 2.
fn lpcm(rate_hz: f64, channels: u32, bits: u32, flags: u32, frame_bytes: u32) -> Vec<u8> {
    let fields = words(&[2 << 16, 0, 3 << 16 | 16, 0xfffe << 16, 1 << 16, 72]);
    let more = words(&[channels, 0x7f00_0000, bits, flags, frame_bytes, 1]);
    boxed(b"lpcm", &[&[0, 0, 0, 0, 0, 0, 0, 1], &fields, &rate_hz.to_be_bytes(), &more])
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A file of this sound, a frame a sample, in chunks of so many frames one behind the other.
fn frames(entry: Vec<u8>, timescale: u32, sound: &[u8], frame: u32, chunks: &[u32]) -> Vec<u8> {
    let count = sound.len() as u32 / frame;
    assert_eq!(chunks.iter().sum::<u32>(), count);
    let (mut rules, mut places, mut at) = (Vec::new(), Vec::new(), PLACE);
    for (number, &chunk) in (1..).zip(chunks) {
        rules.extend([number, chunk, 1]);
        places.push(at);
        // Something else is between two chunks.
        at += chunk * frame + 3;
    }
    let mut media = Vec::new();
    let mut rest = sound;
    for &chunk in chunks {
        let (bytes, behind) = rest.split_at((chunk * frame) as usize);
        media.extend([bytes, b"xyz"].concat());
        rest = behind;
    }
    let track = Trak {
        timescale,
        entries: vec![entry],
        stts: table(b"stts", 2, &[count, 1]),
        stsz: boxed(b"stsz", &[&words(&[0, frame, count])]),
        stsc: table(b"stsc", 3, &rules),
        stco: table(b"stco", 1, &places),
        ..Trak::of(1, PLACE)
    };
    let moov = boxed(b"moov", &[&mvhd(), &track.bytes()]);
    [boxed(b"ftyp", &[b"isom\0\0\0\0"]), boxed(b"mdat", &[&media]), moov].concat()
}

/// A fragment: its number of samples and their bytes, the default duration and size, and the sizes
/// of a run that lists them.
struct Piece<'a> {
    decode: u32,
    default: (u32, u32),
    sound: &'a [u8],
    listed: Option<&'a [(u32, u32)]>,
}

fn fragmented(entry: Vec<u8>, timescale: u32, pieces: &[Piece<'_>]) -> Vec<u8> {
    let track = Trak { timescale, entries: vec![entry], ..Trak::empty(1) };
    let mvex = boxed(b"mvex", &[&boxed(b"trex", &[&words(&[0, 1, 1, 0, 0, 0])])]);
    let moov = boxed(b"moov", &[&mvhd(), &track.bytes(), &mvex]);
    let mut file = [boxed(b"ftyp", &[b"isom\0\0\0\0"]), moov].concat();
    for Piece { decode, default, sound, listed } in pieces {
        // The base is the fragment; default duration and size.
        let tfhd = boxed(b"tfhd", &[&words(&[0x2_0018, 1, default.0, default.1])]);
        let tfdt = boxed(b"tfdt", &[&words(&[0, *decode])]);
        let (flags, count) = match listed {
            Some(listed) => (0x301, listed.len() as u32),
            None => (0x1, sound.len() as u32 / default.1),
        };
        let entries: Vec<_> =
            listed.iter().flat_map(|list| list.iter().flat_map(|&(a, b)| [a, b])).collect();
        let moof = |at: u32| {
            let trun = boxed(b"trun", &[&words(&[flags, count, at]), &words(&entries)]);
            boxed(b"moof", &[&boxed(b"traf", &[&tfhd, &tfdt, &trun])])
        };
        let at = moof(0).len() as u32 + 8;
        file.extend([moof(at), boxed(b"mdat", &[sound])].concat());
    }
    file
}

/// The payloads of all packets. Each has whole frames, and the time of its first.
fn payloads(found: &Presentation, file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let values = RtpValues { payload_type: 96, ssrc: 1, sequence: 0, timestamp: 0 };
    let Codec::Pcm(config) = found.tracks()[0].codec else { panic!("no PCM") };
    let mut all = Vec::new();
    for chapter in 0..found.chapters() {
        let layout = lay_out(found, 0, chapter, file).unwrap();
        assert_eq!(layout.faults(), 0);
        for packet in 0..layout.packets() {
            let mut payload = Vec::new();
            layout.write_head(packet, &values, &mut payload);
            payload.drain(..12);
            layout.write_pieces(packet..packet + 1, |piece| {
                let from = piece.file_offset as usize;
                payload.extend_from_slice(&file[from..from + piece.bytes as usize]);
            });
            assert!(payload.len() <= PAYLOAD_BYTES_MAX, "{}", payload.len());
            assert!(payload.len().is_multiple_of(config.frame_bytes() as usize));
            assert!(packet == 0 || layout.ticks(packet) >= layout.ticks(packet - 1));
            all.push((layout.timestamp(packet), payload));
        }
    }
    all
}

/// Checks that packets carry this sound without a gap, from time 0 on.
fn check_sound(file: &[u8], config: PcmConfig, network_order: &[u8]) -> Presentation {
    let found = demux(file).unwrap();
    assert_eq!(demux_by(file, 1).unwrap(), found, "read in parts");
    assert_eq!(found.tracks()[0].codec, Codec::Pcm(config));
    let mut sent = Vec::new();
    for (timestamp, payload) in payloads(&found, file) {
        assert_eq!(timestamp, sent.len() as u32 / config.frame_bytes());
        sent.extend(payload);
    }
    assert!(sent == network_order, "{config:?}: {} bytes of {}", sent.len(), network_order.len());
    found
}

fn swapped(sound: &[u8], width: usize) -> Vec<u8> {
    sound.chunks(width).flat_map(|sample| sample.iter().rev().copied()).collect()
}

/// Numbers of frames of all blocks.
fn blocks(found: &Presentation) -> Vec<u32> {
    let Codec::Pcm(config) = found.tracks()[0].codec else { panic!("no PCM") };
    samples(found, 0).iter().map(|sample| sample.bytes / config.frame_bytes()).collect()
}

#[test]
fn recordings_are_played_block_by_block() {
    for (bits, channels, rate_hz, form) in [
        (16, 2, 48_000, PcmForm::L16),
        (24, 2, 48_000, PcmForm::L24),
        (16, 1, 8000, PcmForm::L16),
        (24, 6, 44_100, PcmForm::L24),
    ] {
        let config = PcmConfig { form, rate_hz, channels: channels as u8 };
        let (frame, block) = (config.frame_bytes(), rate_hz / 50);
        // Two fragments of a second, and a block that is not full.
        let second = (50 * block * frame) as usize;
        let sound = noise(2 * second + (37 * frame) as usize);
        let default = (block, block * frame);
        let last = [(37, 37 * frame)];
        let piece = |decode, sound, listed| Piece { decode, default, sound, listed };
        let file = fragmented(
            ipcm(bits, channels, rate_hz),
            rate_hz,
            &[
                piece(0, &sound[..second], None),
                piece(rate_hz, &sound[second..2 * second], None),
                piece(2 * rate_hz, &sound[2 * second..], Some(&last)),
            ],
        );
        let found = check_sound(&file, config, &swapped(&sound, form.bytes() as usize));
        assert_eq!(found.container(), Container::FragmentedMp4);
        assert_eq!(found.tracks()[0].samples.end(), u64::from(2 * rate_hz + 37));
        let whole =
            blocks(&found).iter().filter(|&&frames| frames == config.block_frames()).count();
        assert!(whole + 4 >= found.tracks()[0].samples.len(), "{:?}", blocks(&found));
    }
}

#[test]
fn blocks_end_at_a_gap() {
    let sound = noise(4 * 1500);
    let piece = |decode, sound, listed| Piece { decode, default: (1, 4), sound, listed };
    // A short block before the gap lasts to its end; the next one begins where it is to.
    let listed = [(960, 3840), (100_000, 400)];
    let file = fragmented(
        ipcm(16, 2, 48_000),
        48_000,
        &[
            piece(0, &sound[..4240], Some(&listed)),
            piece(100_960, &sound[4240..], Some(&[(440, 1760)])),
        ],
    );
    let found = demux(&file).unwrap();
    let times: Vec<_> =
        samples(&found, 0).iter().map(|block| (block.decode, block.bytes / 4)).collect();
    assert_eq!(times, [(0, 1060), (100_960, 440)]);
    let all = payloads(&found, &file);
    let times: Vec<_> = all.iter().map(|(timestamp, _)| *timestamp).collect();
    assert_eq!(times, [0, 320, 640, 960, 100_960, 101_280]);
}

/// The order of bytes is that of the entry.
#[test]
fn frames_of_a_chunk_are_blocks() {
    let wave = |code: &[u8; 4], little: u8| {
        let boxes = [boxed(b"frma", &[code]), boxed(b"enda", &[&[0, little]])].concat();
        boxed(b"wave", &[&boxes])
    };
    // Version 1, as QuickTime has sound of 24 bits.
    let in24 = |little: u8| {
        let fields = words(&[1 << 16, 0, 2 << 16 | 16, 0, 48_000 << 16, 1, 3, 6, 2]);
        boxed(b"in24", &[&[0, 0, 0, 0, 0, 0, 0, 1], &fields, &wave(b"in24", little)])
    };
    let both = (2, 16, 48_000);
    for (entry, timescale, form, channels) in [
        (ipcm(16, 2, 48_000), 48_000, PcmForm::L16, 2),
        (entry(b"ipcm", (2, 24, 0), &pcm_box(0, 24)), 48_000, PcmForm::L24BigEndian, 2),
        (entry(b"sowt", both, &[]), 48_000, PcmForm::L16, 2),
        (entry(b"twos", both, &[]), 48_000, PcmForm::L16BigEndian, 2),
        (in24(0), 48_000, PcmForm::L24BigEndian, 2),
        (in24(1), 48_000, PcmForm::L24, 2),
        (entry(b"raw ", (1, 8, 11_025), &[]), 11_025, PcmForm::L8, 1),
        (entry(b"alaw", (1, 16, 8000), &[]), 8000, PcmForm::ALaw, 1),
        (entry(b"ulaw", (1, 16, 8000), &[]), 8000, PcmForm::MuLaw, 1),
        (lpcm(96_000.0, 6, 24, 4, 18), 96_000, PcmForm::L24, 6),
        (lpcm(96_000.0, 2, 16, 6, 4), 96_000, PcmForm::L16BigEndian, 2),
        // The lower 16 bits of the rate.
        (entry(b"ipcm", (2, 16, 30_464), &pcm_box(1, 16)), 96_000, PcmForm::L16, 2),
    ] {
        let config = PcmConfig { form, rate_hz: timescale, channels };
        let (frame, block) = (config.frame_bytes(), config.block_frames());
        let chunks = [block * 10, 1, block * 2 - 1, block * 2, block * 3 + 5, 7];
        let sound = noise((chunks.iter().sum::<u32>() * frame) as usize);
        let width = if form.is_swapped() { form.bytes() as usize } else { 1 };
        let file = frames(entry, timescale, &sound, frame, &chunks);
        let found = check_sound(&file, config, &swapped(&sound, width));
        let expected =
            [vec![block; 10], vec![1, 2 * block - 1], vec![block; 4], vec![block + 5, 7]].concat();
        assert_eq!(blocks(&found), expected, "{form:?}");
    }
}

/// An hour of a frame a sample is more samples than a file may have, but few blocks.
#[test]
fn an_hour_of_frames_is_a_table_of_blocks() {
    let count = 3600 * 8000;
    assert!(count > SAMPLES_MAX as usize);
    let entry = entry(b"alaw", (1, 16, 8000), &[]);
    let file = frames(entry, 8000, &vec![0x55; count], 1, &[count as u32]);
    let found = demux(&file).unwrap();
    let samples = &found.tracks()[0].samples;
    assert_eq!((samples.len(), samples.bytes()), (180_000, count as u64));
    assert!(samples.memory_bytes() < 800_000, "{}", samples.memory_bytes());
    // Blocks of 20 ms: play begins with that of the time.
    let entry = found.entry(1800 * crate::TICKS_PER_SECOND + 600_000);
    assert_eq!(entry.presented_ticks, 1800 * crate::TICKS_PER_SECOND + 540_000);
}

#[test]
fn long_samples_are_divided() {
    let sound = noise(4 * 48_000);
    for (duration, timescale) in [(48_000, 48_000), (1000, 1000)] {
        let piece =
            Piece { decode: 0, default: (duration, 4 * 48_000), sound: &sound, listed: None };
        let file = fragmented(ipcm(16, 2, 48_000), timescale, &[piece]);
        let config = PcmConfig { form: PcmForm::L16, rate_hz: 48_000, channels: 2 };
        let found = check_sound(&file, config, &swapped(&sound, 2));
        assert_eq!(blocks(&found), [960; 50]);
        assert_eq!(found.tracks()[0].samples.end(), u64::from(duration));
    }
}

/// Blocks of 1024 frames, as of other writers: their packets are no larger, and the last is short.
#[test]
fn blocks_of_other_sizes_fit_packets() {
    let sound = noise(4 * 1024 * 3);
    // Apart in time, so that they are not joined.
    let listed = [(1500, 4096); 3];
    let piece = Piece { decode: 0, default: (1, 4), sound: &sound, listed: Some(&listed) };
    let file = fragmented(ipcm(16, 2, 48_000), 48_000, &[piece]);
    let found = demux(&file).unwrap();
    assert_eq!(blocks(&found), [1024; 3]);
    let all = payloads(&found, &file);
    let packets: Vec<_> = all.iter().map(|(at, bytes)| (*at, bytes.len() / 4)).collect();
    let each = |at| [(at, 320), (at + 320, 320), (at + 640, 320), (at + 960, 64)];
    assert_eq!(packets, [each(0), each(1500), each(3000)].concat());
}

/// QuickTime has written 1 for the size of a frame.
#[test]
fn a_constant_size_of_one_is_a_frame() {
    let sound = noise(4 * 5000);
    let mut file = frames(entry(b"sowt", (2, 16, 44_100), &[]), 44_100, &sound, 4, &[5000]);
    let at = file.windows(4).position(|four| four == b"stsz").unwrap() + 8;
    file[at..at + 4].copy_from_slice(&[0, 0, 0, 1]);
    let config = PcmConfig { form: PcmForm::L16, rate_hz: 44_100, channels: 2 };
    check_sound(&file, config, &swapped(&sound, 2));
}

/// The reason for leaving out a track with these parts, beside one that is sent.
fn reason(track: Trak) -> String {
    let found = demux(&file(&[Trak::of(1, PLACE), track])).unwrap();
    assert_eq!(found.tracks().len(), 1);
    let [left_out] = found.left_out() else { panic!("{:?}", found.left_out()) };
    left_out.reason.clone()
}

fn described(entry: Vec<u8>) -> Trak {
    Trak { entries: vec![entry], ..Trak::of(9, PLACE + 100) }
}

#[test]
fn pcm_that_rtp_has_not_is_left_out_by_name() {
    let both = (2, 16, 48_000);
    for (entry, words) in [
        (entry(b"ipcm", both, &[]), "no pcmC box"),
        (entry(b"ipcm", both, &boxed(b"pcmC", &[&[0; 5]])), "a pcmC box of 5 bytes"),
        (entry(b"ipcm", both, &boxed(b"pcmC", &[&[1, 0, 0, 0, 1, 16]])), "not of version 0"),
        (entry(b"ipcm", both, &pcm_box(1, 32)), "PCM of 32-bit samples"),
        (entry(b"ipcm", both, &pcm_box(1, 8)), "PCM of signed samples of 8 bits"),
        (entry(b"sowt", (2, 8, 48_000), &[]), "PCM of signed samples of 8 bits"),
        (entry(b"fpcm", both, &pcm_box(1, 32)), "PCM of floating-point samples"),
        (entry(b"in32", both, &[]), "PCM of 32-bit samples"),
        (entry(b"ipcm", (0, 16, 48_000), &pcm_box(1, 16)), "PCM of no channel"),
        (entry(b"ipcm", (300, 16, 48_000), &pcm_box(1, 16)), "PCM of 300 channels"),
        (entry(b"ipcm", (2, 16, 4000), &pcm_box(1, 16)), "PCM of 4000 Hz"),
        // The time scale is the rate: 1000.
        (entry(b"ipcm", (2, 16, 0), &pcm_box(1, 16)), "PCM of 1000 Hz"),
        (lpcm(48_000.0, 2, 32, 5, 8), "PCM of floating-point samples"),
        (lpcm(48_000.0, 2, 24, 4, 8), "2 channels of 24 bits in frames of 8 bytes"),
        (lpcm(f64::NAN, 2, 16, 4, 4), "PCM of 0 Hz"),
        (entry(b"lpcm", both, &[]), "of version 0, not 2"),
    ] {
        let reason = reason(described(entry));
        assert!(reason.contains(words), "{words}: {reason}");
        assert!(reason.contains("(ffmpeg -i IN"), "no remedy: {reason}");
    }
    // The first of two boxes counts.
    let twice = [pcm_box(1, 16), pcm_box(0, 24)].concat();
    let twice = described(entry(b"ipcm", (1, 16, 48_000), &twice));
    let found = demux(&file(&[twice])).unwrap();
    assert_eq!(found.tracks()[0].codec.name(), "L16");
}

#[test]
fn samples_that_are_no_frames_leave_the_track_out() {
    // Ten bytes, and frames of four.
    let uneven = reason(described(ipcm(16, 2, 48_000)));
    assert!(uneven.contains("a sample of 10 bytes, where a frame of all channels has 4"));
    assert!(uneven.contains("remux it"), "{uneven}");
    let empty = Trak {
        stsz: boxed(b"stsz", &[&words(&[0, 0, 6]), &words(&[0; 6])]),
        ..described(ipcm(16, 2, 48_000))
    };
    assert!(reason(empty).ends_with("no samples"));
}

/// A table with a size for each frame is read, up to the number of samples that a file may have.
#[test]
fn listed_frames_are_joined_up_to_a_limit() {
    let listed = |count: u32, sizes: &[u8]| Trak {
        timescale: 8000,
        stts: table(b"stts", 2, &[count, 1]),
        stsz: boxed(b"stsz", &[&words(&[0, 0, count]), sizes]),
        stsc: table(b"stsc", 3, &[1, count, 1]),
        stco: table(b"stco", 1, &[PLACE]),
        ..described(entry(b"ulaw", (1, 16, 8000), &[]))
    };
    let found = demux(&file(&[listed(900, &words(&[1; 900]))])).unwrap();
    assert_eq!(blocks(&found), [160, 160, 160, 160, 260]);
    let count = SAMPLES_MAX + 1;
    let reason = reason(listed(count, &vec![0; 4 * count as usize]));
    assert!(reason.contains("lists the sizes of more than 16777216 samples"), "{reason}");
}

#[test]
fn hostile_counts_are_refused_early() {
    let hostile = |size: u32, duration: u32, per_chunk: u32| Trak {
        timescale: 8000,
        stts: table(b"stts", 2, &[u32::MAX, duration]),
        stsz: boxed(b"stsz", &[&words(&[0, size, u32::MAX])]),
        stsc: table(b"stsc", 3, &[1, per_chunk, 1]),
        stco: table(b"stco", 1, &[PLACE]),
        ..described(entry(b"ulaw", (1, 16, 8000), &[]))
    };
    for track in [hostile(1, 1, u32::MAX), hostile(u32::MAX, 1, u32::MAX), hostile(2, 0, 1)] {
        let refusal = demux(&file(&[track])).unwrap_err();
        let Refusal::Sample { fault, .. } = &refusal else { panic!("{refusal}") };
        let is_early = matches!(fault, SampleFault::Overlap | SampleFault::TooMany { .. });
        assert!(is_early, "{refusal}");
    }
    // Durations that do not fit together, places at the end of all numbers.
    let long = Trak {
        stts: table(b"stts", 2, &[900, u32::MAX]),
        stsz: boxed(b"stsz", &[&words(&[0, 1, 900])]),
        ..hostile(1, 1, 900)
    };
    assert!(demux(&file(&[long])).is_ok());
    let far = Trak {
        stts: table(b"stts", 2, &[900, 1]),
        stsz: boxed(b"stsz", &[&words(&[0, 1, 900])]),
        stco: boxed(b"co64", &[&words(&[0, 1, u32::MAX, u32::MAX - 7])]),
        ..hostile(1, 1, 900)
    };
    let refusal = demux(&file(&[far])).unwrap_err();
    assert!(matches!(refusal, Refusal::Sample { .. }), "{refusal}");
    // No duration at all: too many blocks in one second.
    let still = Trak {
        stts: table(b"stts", 2, &[900, 0]),
        stsz: boxed(b"stsz", &[&words(&[0, 1, 900])]),
        ..hostile(1, 1, 900)
    };
    assert_eq!(demux(&file(&[still])).unwrap().tracks()[0].samples.end(), 0);
}
