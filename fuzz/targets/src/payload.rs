// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes the payloaders (`media::payload::lay_out`) of every codec with a file of fuzzed samples.
//!
//! The input is a script: codec, time scale and parameter sets, then samples, each with flags,
//! times, its first bytes and a number of further blocks. So a few bytes produce a sample that is
//! fragmented.
//!
//! Checked: [`crate::layouts`]; the units reassembled from the packets ([`crate::reassembly`]) are
//! the units of the samples, complete and in order; a marker ends each access unit of pictures;
//! omitted parts are counted.

use media::payload::{Layout, lay_out};
use media::tracks::{
    AacConfig, Av1Config, Codec, H264Config, H265Config, MediaSample, PcmConfig, PcmForm,
    SampleTableBuilder, Track,
};
use media::{Container, Presentation, RtpIdentity};

use crate::reassembly::{self, Packet};
use crate::{FuzzTarget, layouts, presentations};

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "payload", run };

const TIMESCALES: [u32; 6] = [90_000, 48_000, 1000, 600, 1, u32::MAX];
const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

/// Bytes of a block after the bytes of a sample in the script.
const BLOCK_BYTES: usize = 256;
/// Limits of the file, so that an input needs milliseconds.
const FILE_BYTES_MAX: usize = 1 << 20;
const SAMPLES_MAX: usize = 600;
const SETS_MAX: u8 = 3;
/// Choices from here on are PCM.
const PCM_CHOICE: u8 = 0xf0;

/// A sample of the script.
struct Scripted {
    bytes: Vec<u8>,
    /// Bytes of the file between the sample before and this one.
    gap: usize,
    duration: u32,
    offset: i32,
    is_start: bool,
}

fn run(data: &[u8]) {
    let mut script = Script(data);
    let Some([choice, shape]) = script.array() else { return };
    let Some(codec) = codec(choice, &mut script) else { return };
    let mut samples = Vec::new();
    let mut file_bytes = 0;
    while let Some(sample) = sample(&mut script, samples.len()) {
        file_bytes += sample.gap + sample.bytes.len();
        if file_bytes > FILE_BYTES_MAX || samples.len() == SAMPLES_MAX {
            break;
        }
        samples.push(sample);
    }
    let timescale = TIMESCALES[usize::from(shape) % TIMESCALES.len()];
    let Some((presentation, file)) = presentation(&codec, timescale, shape & 0x80 != 0, &samples)
    else {
        return;
    };
    let mut packets = Vec::new();
    let mut faults = 0;
    for chapter in presentations::chapters(&presentation, 0) {
        let layout = lay_out(&presentation, 0, chapter, &file).expect("the samples are there");
        layouts::check(&layout, file.len() as u64);
        packets.extend((0..layout.packets()).map(|number| packet(&layout, number, &file)));
        faults += layout.faults();
    }
    let expected =
        reassembly::Expected::of(&codec, samples.iter().map(|s| (&s.bytes[..], s.is_start)));
    let received = reassembly::units(&codec, &packets);
    let sizes = |units: &[Vec<u8>]| units.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes(&received), sizes(&expected.units));
    assert!(received == expected.units, "bytes of a unit are others");
    assert_eq!(faults > 0, expected.has_faults, "{faults} faults");
    if let Some(access_units) = expected.access_units {
        assert_eq!(packets.iter().filter(|packet| packet.marker).count(), access_units);
    }
}

/// The codec that the script begins with.
fn codec(choice: u8, script: &mut Script<'_>) -> Option<Codec> {
    let length_bytes = [1, 2, 4][usize::from(choice >> 3) % 3];
    let channels = 1 + (choice >> 3) % 2;
    if let Some(form) = choice.checked_sub(PCM_CHOICE) {
        let form = PcmForm::ALL[usize::from(form) % PcmForm::ALL.len()];
        let [channels, rate] = script.array()?;
        let rate_hz = 8000 + 600 * u32::from(rate);
        return Some(Codec::Pcm(PcmConfig { form, rate_hz, channels: channels.max(1) }));
    }
    Some(match choice % 8 {
        0 => Codec::H264(H264Config {
            length_bytes,
            profile: [0x64, 0, 0x1f],
            sequence_sets: script.sets(&[0x67])?,
            picture_sets: script.sets(&[0x68])?,
        }),
        1 => Codec::H265(H265Config {
            length_bytes,
            profile: [1; 12],
            video_sets: script.sets(&[32 << 1, 1])?,
            sequence_sets: script.sets(&[33 << 1, 1])?,
            picture_sets: script.sets(&[34 << 1, 1])?,
        }),
        2 => {
            let units = script.sets(&[])?.concat();
            Codec::Av1(Av1Config { profile: 0, level: 4, is_high_tier: false, bit_depth: 8, units })
        }
        3 => {
            let specific = vec![0x12, 0x10];
            Codec::Aac(AacConfig { specific, object_type: 2, rate_hz: 44_100, channels })
        }
        4 => Codec::MpegAudio,
        5 => Codec::Opus { channels },
        6 => Codec::Ac3 { rate_hz: 48_000, channels },
        _ => Codec::Eac3 { rate_hz: 48_000, channels },
    })
}

/// The next sample of the script; none at its end.
fn sample(script: &mut Script<'_>, number: usize) -> Option<Scripted> {
    let [flags, blocks, offset, duration @ .., high, low] = script.array::<7>()?;
    let mut bytes = script.bytes(usize::from(u16::from_be_bytes([high, low]))).to_vec();
    let blocks = if flags & 2 != 0 { usize::from(blocks) * BLOCK_BYTES } else { 0 };
    // Different in neighbouring packets.
    bytes.extend((0..blocks).map(|at| (at % 251 + number) as u8));
    Some(Scripted {
        bytes,
        gap: usize::from(flags >> 2 & 7),
        duration: u16::from_be_bytes(duration).into(),
        offset: i32::from(offset as i8) * 100,
        is_start: flags & 1 != 0 || number == 0,
    })
}

/// Returns a presentation of these samples and its file, in which they are stored in forward or
/// reverse order; `None` if a table refuses them.
fn presentation(
    codec: &Codec,
    timescale: u32,
    is_backwards: bool,
    samples: &[Scripted],
) -> Option<(Presentation, Vec<u8>)> {
    let mut file = Vec::new();
    let mut offsets = vec![0; samples.len()];
    let mut put = |(number, sample): (usize, &Scripted)| {
        file.resize(file.len() + sample.gap, 0xee);
        offsets[number] = file.len() as u64;
        file.extend_from_slice(&sample.bytes);
    };
    let numbered = samples.iter().enumerate();
    if is_backwards {
        numbered.rev().for_each(&mut put);
    } else {
        numbered.for_each(&mut put);
    }
    // A table has no more samples than its file bytes.
    file.resize(file.len() + samples.len(), 0xee);
    let mut table = SampleTableBuilder::new(timescale, file.len() as u64);
    for (sample, &file_offset) in samples.iter().zip(&offsets) {
        let &Scripted { duration, offset, is_start, .. } = sample;
        let (bytes, decode) = (sample.bytes.len() as u32, table.end());
        let sample = MediaSample { file_offset, bytes, decode, offset, duration, is_start };
        table.push(sample).ok()?;
    }
    let (codec, samples) = (codec.clone(), table.finish()?);
    let tracks = vec![Track::new(1, codec, samples, IDENTITY)];
    let found = Presentation::assemble(Container::Mp4, file.len() as u64, tracks, Vec::new());
    Some((found.ok()?, file))
}

/// Returns the sent form of a packet.
fn packet(layout: &Layout, number: u32, file: &[u8]) -> Packet {
    let mut head = Vec::new();
    layout.write_head(number, &layouts::VALUES, &mut head);
    let mut payload = head.split_off(layouts::RTP_BYTES);
    layout.write_pieces(number..number + 1, |piece| {
        payload.extend(&file[piece.file_offset as usize..][..piece.bytes as usize]);
    });
    Packet { marker: head[1] & 0x80 != 0, payload }
}

/// Bytes of the input that are not read yet.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Returns this many bytes, or all that are left.
    fn bytes(&mut self, count: usize) -> &[u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// Parameter sets, each prefixed by `header`: their number, then each with its length in two
    /// bytes.
    fn sets(&mut self, header: &[u8]) -> Option<Vec<Vec<u8>>> {
        let [count] = self.array()?;
        let set = |_| {
            let length = u16::from_be_bytes(self.array()?);
            Some([header, self.bytes(length.into())].concat())
        };
        (0..count % (SETS_MAX + 1)).map(set).collect()
    }
}
