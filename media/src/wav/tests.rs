// SPDX-License-Identifier: MIT OR Apache-2.0
//! WAV files made by hand, whole and broken.

use super::*;
use crate::payload::{RtpValues, lay_out, rtp_format};
use crate::tracks::PcmForm;

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

fn chunk(id: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let padding: &[u8] = if body.len() % 2 == 1 { &[0] } else { &[] };
    [id, &(body.len() as u32).to_le_bytes()[..], body, padding].concat()
}

/// The header of a `data` chunk that claims this many bytes.
fn data(bytes: u32) -> Vec<u8> {
    [b"data", &bytes.to_le_bytes()[..]].concat()
}

fn file(kind: &[u8; 4], chunks: &[Vec<u8>]) -> Vec<u8> {
    [kind, &[0xff; 4], &b"WAVE"[..], &chunks.concat()].concat()
}

fn fields(tag: u16, channels: u16, rate_hz: u32, bits: u16) -> Vec<u8> {
    let frame = channels * bits.div_ceil(8);
    let rates = [rate_hz, rate_hz * u32::from(frame)].map(u32::to_le_bytes).concat();
    [&[tag, channels].map(u16::to_le_bytes).concat()[..], &rates]
        .concat()
        .into_iter()
        .chain([frame, bits].map(u16::to_le_bytes).concat())
        .collect()
}

fn fmt(tag: u16, channels: u16, rate_hz: u32, bits: u16) -> Vec<u8> {
    chunk(b"fmt ", &fields(tag, channels, rate_hz, bits))
}

/// 16-bit stereo at 48 kHz.
fn usual() -> Vec<u8> {
    fmt(1, 2, 48_000, 16)
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn demux(file: &[u8]) -> Result<Presentation, String> {
    let run = |samples| {
        let mut demuxer = WavDemuxer::new(file.len() as u64);
        while !demuxer.advance(file, samples)? {}
        Ok(demuxer.finish(|| IDENTITY)?)
    };
    let [whole, parts] =
        [usize::MAX, 1].map(|samples| run(samples).map_err(|fault: DemuxError| fault.to_string()));
    assert_eq!(whole, parts, "read at once and in parts");
    whole
}

/// Offset and length of the sound that is sent.
fn sound(found: &Presentation) -> (u64, u64) {
    let samples = &found.tracks()[0].samples;
    (samples.sample(0).file_offset, samples.bytes())
}

/// Returns the payloads of all packets; each begins at the time given by the bytes before it.
fn payloads(found: &Presentation, file: &[u8]) -> Vec<u8> {
    let values = RtpValues { payload_type: 96, ssrc: 1, sequence: 0, timestamp: 7 };
    let Codec::Pcm(config) = found.tracks()[0].codec else { panic!("no PCM") };
    let mut all = Vec::new();
    for chapter in 0..found.chapters() {
        let layout = lay_out(found, 0, chapter, file).unwrap();
        assert_eq!(layout.faults(), 0);
        for packet in 0..layout.packets() {
            let mut head = Vec::new();
            layout.write_head(packet, &values, &mut head);
            let frames = all.len() as u32 / config.frame_bytes();
            let timestamp = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            assert_eq!(timestamp, 7 + frames, "packet {packet} of second {chapter}");
            assert_eq!(layout.timestamp(packet), frames);
            all.extend_from_slice(&head[12..]);
            layout.write_pieces(packet..packet + 1, |piece| {
                let from = piece.file_offset as usize;
                all.extend_from_slice(&file[from..from + piece.bytes as usize]);
            });
        }
    }
    all
}

#[test]
fn packets_carry_the_samples_of_the_file_in_network_order() {
    for (tag, bits, form, name) in [
        (1, 8, PcmForm::L8, "L8"),
        (1, 16, PcmForm::L16, "L16"),
        (1, 20, PcmForm::L24, "L24"),
        (1, 24, PcmForm::L24, "L24"),
        (6, 8, PcmForm::ALaw, "PCMA"),
        (7, 8, PcmForm::MuLaw, "PCMU"),
    ] {
        for (channels, rate_hz) in [(1_u16, 8000), (2, 44_100), (6, 48_000), (8, 192_000)] {
            let width = form.bytes() as usize;
            // A fifth of a second: ten blocks, and one that is not full.
            let frames = rate_hz as usize / 5 + 101;
            let samples = noise(frames * usize::from(channels) * width);
            let whole =
                file(b"RIFF", &[fmt(tag, channels, rate_hz, bits), chunk(b"data", &samples)]);
            let found = demux(&whole).unwrap();
            assert_eq!(found.container(), Container::Wav);
            let codec = &found.tracks()[0].codec;
            let channels = channels as u8;
            assert_eq!(*codec, Codec::Pcm(PcmConfig { form, rate_hz, channels }));
            let format = rtp_format(codec, 96);
            assert_eq!((format.encoding, format.clock_rate_hz), (name, rate_hz));
            assert_eq!(format.channels, Some(channels).filter(|channels| *channels > 1));
            let expected: Vec<u8> =
                samples.chunks(width).flat_map(|sample| sample.iter().rev().copied()).collect();
            assert!(payloads(&found, &whole) == expected, "{name}, {channels} at {rate_hz}");
            assert_eq!(found.tracks()[0].samples.end(), frames as u64);
        }
    }
}

#[test]
fn a_block_is_a_row_of_packets_spread_over_its_time() {
    let whole = file(b"RIFF", &[usual(), chunk(b"data", &noise(192_000))]);
    let found = demux(&whole).unwrap();
    let layout = lay_out(&found, 0, 0, &whole).unwrap();
    assert_eq!((found.entries(), layout.packets()), (50, 150));
    for packet in 0..150 {
        // 320 frames each, 1280 bytes behind 12 of RTP; three are a row.
        let row = layout.row(packet, u32::MAX);
        assert_eq!((row.packets, row.packet_bytes), (3 - packet % 3, 1292));
        let due = u64::from(packet) * 320 * crate::TICKS_PER_SECOND / 48_000;
        assert_eq!(layout.ticks(packet), due);
    }
    let entry = found.entry(crate::TICKS_PER_SECOND / 2 + 1);
    assert_eq!(entry.presented_ticks, crate::TICKS_PER_SECOND / 2, "play starts with a block");
    let bytes = layout.memory_bytes();
    assert!((192_000..200_000).contains(&bytes), "{bytes} bytes for a second");
}

#[test]
fn chunks_before_the_sound_are_stepped_over() {
    let samples = noise(4000);
    for kind in [b"RIFF", b"RF64", b"BW64"] {
        let chunks = [
            chunk(b"JUNK", &[0; 28]),
            chunk(b"bext", &noise(603)),
            chunk(b"LIST", b"INFOodd"),
            usual(),
            chunk(b"fact", &[0; 4]),
            usual(),
            chunk(b"data", &samples),
            chunk(b"id3 ", &[1; 77]),
        ];
        let whole = file(kind, &chunks);
        let found = demux(&whole).unwrap();
        let at = 12 + chunks[..6].concat().len() as u64 + 8;
        assert_eq!(sound(&found), (at, 4000));
    }
}

#[test]
fn sound_of_unknown_size_reaches_to_the_end_of_the_file() {
    let samples = noise(4001);
    for bytes in [0, u32::MAX, 0x7fff_f000, 4001] {
        let whole = file(b"RIFF", &[usual(), data(bytes), samples.clone()]);
        // A part of a frame is none.
        let found = demux(&whole).unwrap();
        assert_eq!(sound(&found), (44, 4000), "{bytes:#x}");
        assert!(found.warnings().is_empty(), "{:?}", found.warnings());
    }
    let whole = file(b"RIFF", &[usual(), data(6001), samples.clone()]);
    let found = demux(&whole).unwrap();
    let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
    assert!(warning.starts_with("cut off: by its own size 2000 bytes are missing"), "{warning}");
    assert_eq!(sound(&found), (44, 4000));
    let whole = file(b"RIFF", &[usual(), data(400), samples.clone()]);
    assert_eq!(sound(&demux(&whole).unwrap()), (44, 400), "a size that the file has");
}

/// A file larger than 4 GiB, of which nothing but the header is there.
struct Huge {
    header: Vec<u8>,
    bytes: u64,
}

impl ReadAt for Huge {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
        assert!(offset + bytes.len() as u64 <= self.bytes);
        bytes.fill(0x55);
        let at = (offset as usize).min(self.header.len());
        let there = (self.header.len() - at).min(bytes.len());
        bytes[..there].copy_from_slice(&self.header[at..at + there]);
        Ok(())
    }
}

#[test]
fn sizes_beyond_32_bits_stand_in_ds64() {
    // Eight channels of 24 bits at 96 kHz: 36 min.
    let sound_bytes = 5_000_000_016_u64;
    for (claimed, expected) in
        [(sound_bytes - 16, sound_bytes - 16), (0, sound_bytes), (u64::MAX, sound_bytes)]
    {
        let sizes = [0, claimed, 0].map(u64::to_le_bytes).concat();
        let ds64 = chunk(b"ds64", &[&sizes[..], &[0; 4]].concat());
        let header = file(b"RF64", &[ds64, fmt(1, 8, 96_000, 24), data(u32::MAX)]);
        let huge = Huge { bytes: header.len() as u64 + sound_bytes, header };
        let mut demuxer = WavDemuxer::new(huge.bytes);
        while !demuxer.advance(&huge, 100_000).unwrap() {}
        let found = demuxer.finish(|| IDENTITY).unwrap();
        assert_eq!(sound(&found), (huge.header.len() as u64, expected - expected % 24));
        // Packets at the end are laid out like those at the start.
        let layout = lay_out(&found, 0, found.chapters() - 1, &huge).unwrap();
        assert!(layout.packets() > 0 && layout.faults() == 0);
    }
}

#[test]
fn extended_formats_are_read() {
    let extended = |tag: u16, rest: &[u8]| {
        let id = [&tag.to_le_bytes()[..], rest].concat();
        let mut fields = fields(0xfffe, 2, 48_000, 24);
        fields.extend([&[22, 0, 20, 0, 3, 0, 0, 0][..], &id].concat());
        let whole = file(b"RIFF", &[chunk(b"fmt ", &fields), chunk(b"data", &noise(600))]);
        demux(&whole).map(|found| found.tracks()[0].codec.name())
    };
    let tagged = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];
    assert_eq!(extended(1, &tagged).as_deref(), Ok("L24"));
    let refused = extended(3, &tagged).unwrap_err();
    assert!(refused.starts_with("WAV of floating-point samples: "), "{refused}");
    let refused = extended(1, &[9; 14]).unwrap_err();
    assert!(refused.starts_with("WAV of an extended format of its own: "), "{refused}");
    let refused = extended(1, &tagged[..5]).unwrap_err();
    assert!(refused.starts_with("WAV of an extended format of its own: "), "{refused}");
}

#[test]
fn files_that_cannot_be_sent_are_refused_with_the_finding() {
    let samples = chunk(b"data", &noise(600));
    let of = |fmt: Vec<u8>| file(b"RIFF", &[fmt, samples.clone()]);
    let mut frame = fields(1, 2, 48_000, 16);
    frame[12] = 6;
    let many = vec![chunk(b"JUNK", &[]); 1025];
    for (whole, words) in [
        (of(fmt(3, 2, 48_000, 32)), "WAV of floating-point samples: PCM of 8, 16 and 24 bits, A-"),
        (of(fmt(1, 2, 48_000, 32)), "WAV of 32-bit samples: PCM of 8, 16 and 24 bits"),
        (of(fmt(1, 2, 48_000, 0)), "WAV of 0-bit samples: "),
        (of(fmt(0x55, 2, 48_000, 0)), "WAV of MP3: "),
        (of(fmt(0x11, 2, 48_000, 4)), "WAV of IMA ADPCM: "),
        (of(fmt(6, 2, 48_000, 16)), "WAV of companded samples of 16 bits: "),
        (of(fmt(0x1234, 2, 48_000, 16)), "WAV of format 0x1234: "),
        (of(fmt(1, 0, 48_000, 16)), "WAV broken at byte 12: no channels; write it anew (ffmpeg"),
        (of(fmt(1, 9, 48_000, 16)), "WAV of 9 channels: 8 are streamed; mix them down (ffmpeg"),
        (of(fmt(1, 2, 0, 16)), "WAV broken at byte 12: a rate of 0 Hz; "),
        (of(fmt(1, 2, 384_000, 16)), "WAV of 384000 Hz: 8000 to 192000 Hz are streamed; resample"),
        (of(fmt(1, 2, 7999, 16)), "WAV of 7999 Hz: "),
        (of(chunk(b"fmt ", &frame)), "frames of 6 bytes, and 2 channels of 16 bits have 4; "),
        (of(chunk(b"fmt ", &frame[..14])), "its fmt chunk has 14 bytes, not 16; "),
        (of(Vec::new()), "WAV broken at byte 12: no fmt chunk before the sound; "),
        (file(b"RIFF", &[samples.clone(), usual()]), "no fmt chunk before the sound; "),
        (file(b"RIFF", &[usual()]), "WAV broken at byte 36: the file ends without sound"),
        (file(b"RIFF", &[usual(), data(0)]), "its sound has 0 bytes, and 4 are a frame; "),
        (file(b"RIFF", &[usual(), data(9), vec![1; 3]]), "its sound has 3 bytes, and 4 are a"),
        (
            file(b"RIFF", &[b"a\"b\n\xff\xff\xff\xffrest of it".to_vec()]),
            "chunk \"a\\\"b\\n\" of 4294967295 bytes ends behind the file, without sound; ",
        ),
        (file(b"RF64", &[chunk(b"ds64", &[0; 12])]), "its ds64 chunk has 12 bytes, not 28; "),
        (file(b"RIFX", &[usual()]), "WAV of big-endian chunks: RIFX is not read; "),
        (file(b"RIFF", &many), "more than 1024 chunks before the sound; "),
        (file(b"RIFF", &[]), "WAV broken at byte 12: the file ends without sound"),
    ] {
        let refused = demux(&whole).unwrap_err();
        assert!(refused.contains(words), "{refused:?} without {words:?}");
        for end in 0..whole.len().min(80) {
            assert!(demux(&whole[..end]).is_err(), "{words}: cut at {end}");
        }
    }
}

#[test]
fn beginnings_tell_wav_from_others() {
    assert!(is_wav(&file(b"BW64", &[])) && !is_wav(b"RIFF....AVI ") && !is_wav(b"RIFF"));
    assert!(!is_wav(b"JUNK....WAVE") && is_wav(b"RIFX....WAVE"));
}
