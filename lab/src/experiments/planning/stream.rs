// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of transport streams: bytes a second that are scanned into a packet plan from the page
//! cache, beside reading alone.
//!
//! Both members read the file in the pieces of the server's planner. Two streams are scanned: one
//! of filler with clock references, and one of pictures and sound with tables and PES packets, in
//! which places to start are searched for.
//!
//! Sources: [`media::ts::Scanner`].
//! Does not measure the disk.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use media::mux::{MediaWriter, WriterKind};
use media::tracks::{AacConfig, H264Config};
use media::ts::Scanner;
use media::{AccessUnit, Codec, PacketPlan, TS_PACKET_BYTES};

use super::movie::{AAC_CONFIG, AVC_RECORD, Kind, Movie, SOUND_RATE_HZ};
use super::{Planning, add_failure};
use measure::Error;
use measure::asset;
use measure::memory::{Group, Member, Turns};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// A file and the expected content of its plan.
struct Stream {
    name: &'static str,
    path: PathBuf,
    bytes: u64,
    /// Places to start in the plan.
    entries: usize,
    /// Elementary streams of the programme.
    streams: usize,
}

/// Measures both streams.
pub(super) fn measure(
    planning: &Planning<'_>,
    turns: &mut Turns<'_>,
    results: &mut Results,
) -> Result<(), Error> {
    let seconds = planning.stream_bytes * 8 / BITS_PER_SECOND;
    for name in [CLOCK, PROGRAMME] {
        if planning.options.stopped() {
            return Ok(());
        }
        let path = planning.folder.join("stream.ts");
        let written = match name {
            CLOCK => asset::write(&path, BITS_PER_SECOND, seconds).map(|()| (1, 0)),
            _ => write_programme(&path, Movie::of_seconds(seconds)),
        };
        let failed = || Error::host("writing a transport stream (is the folder's memory full?)");
        let (entries, streams) = written.map_err(failed())?;
        let bytes = std::fs::metadata(&path).map_err(failed())?.len();
        let stream = Stream { name, path, bytes, entries, streams };
        stream.measure(turns, results)?;
        std::fs::remove_file(&stream.path).map_err(failed())?;
    }
    Ok(())
}

impl Stream {
    fn measure(&self, turns: &mut Turns<'_>, results: &mut Results) -> Result<(), Error> {
        let file = File::open(&self.path).map_err(Error::host("opening a transport stream"))?;
        let (piece, fault) = (RefCell::new(vec![0; PIECE_BYTES]), RefCell::new(None));
        let note = |outcome: Result<(), String>| {
            if let Err(found) = outcome {
                fault.borrow_mut().get_or_insert(found);
            }
            self.bytes
        };
        let pread = || note(read(&file, self.bytes, &mut piece.borrow_mut(), |_| {}));
        let scan = || {
            let plan = scan(&file, self.bytes, &mut piece.borrow_mut());
            note(plan.and_then(|plan| self.check(&plan)))
        };
        let packets = self.bytes / TS_PACKET_BYTES as u64;
        let members = vec![
            Member::new(PREAD, pread).of_operations(packets),
            Member::new(SCAN, scan).of_operations(packets),
        ];
        let parameters = vec![("stream", self.name.to_owned())];
        let first = results.rows.len();
        let group = Group { parameters, reference: PREAD, members };
        turns.measure(&format!("transport stream of {}", self.name), group, results);
        if let Some(found) = fault.into_inner() {
            results.rows.truncate(first);
            add_failure(results, &format!("{SCAN}, {}", self.name), found);
            return Ok(());
        }
        super::name_times(results, first, "time a packet");
        for member in [PREAD, SCAN] {
            let stream = [("stream", self.name)];
            let Some(speed) = results.figure(member, "throughput", &stream) else { continue };
            let costs = speed.samples.iter().map(|speed| 1.0 / speed).collect();
            let row = Row::new("planning", member, "CPU cost", "s/GB", Figure::of(costs));
            results.rows.push(row.with("stream", self.name));
        }
        Ok(())
    }

    fn check(&self, plan: &PacketPlan) -> Result<(), String> {
        let found = (plan.ts_packets(), plan.entries().len(), plan.streams().len());
        let wanted = (self.bytes / TS_PACKET_BYTES as u64, self.entries, self.streams);
        if found != wanted || plan.losses_seen() > 0 {
            let losses = plan.losses_seen();
            return Err(format!(
                "packets, entries and streams of the plan: {found:?} of {wanted:?}; {losses} losses"
            ));
        }
        Ok(())
    }
}

/// Reads a file from end to end, piece by piece.
fn read(
    file: &File,
    bytes: u64,
    piece: &mut [u8],
    mut feed: impl FnMut(&[u8]),
) -> Result<(), String> {
    let mut offset = 0;
    while offset < bytes {
        let wanted = (bytes - offset).min(piece.len() as u64) as usize;
        let piece = &mut piece[..wanted];
        file.read_exact_at(piece, offset).map_err(|error| format!("byte {offset}: {error}"))?;
        feed(piece);
        offset += wanted as u64;
    }
    Ok(())
}

fn scan(file: &File, bytes: u64, piece: &mut [u8]) -> Result<PacketPlan, String> {
    let mut scanner = Scanner::new();
    read(file, bytes, piece, |piece| scanner.feed(piece))?;
    scanner.finish(bytes, super::IDENTITY).map_err(|refusal| refusal.to_string())
}

/// Writes the movie as a transport stream; returns the places to start and the elementary streams.
fn write_programme(path: &Path, movie: Movie) -> io::Result<(usize, usize)> {
    let refused = |refusal: media::MuxRefusal| io::Error::other(refusal.to_string());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let kind = WriterKind::TransportStream;
    let mut writer = MediaWriter::new(kind, &codecs()).map_err(refused)?;
    let mut ready = Vec::new();
    for group in 0..movie.groups {
        for (kind, number) in Movie::interleaved(group) {
            writer.push(kind as usize, access_unit(kind, number), &mut ready).map_err(refused)?;
        }
        out.write_all(&ready)?;
        ready.clear();
    }
    writer.finish(&mut ready);
    out.write_all(&ready)?;
    out.flush()?;
    Ok((movie.groups as usize, 2))
}

fn codecs() -> [Codec; 2] {
    let [_, profile @ .., _, _, _] = AVC_RECORD;
    let [sequence_sets, picture_sets] = [SEQUENCE_SET, PICTURE_SET].map(|set| vec![set.to_vec()]);
    [
        Codec::H264(H264Config { length_bytes: 4, profile, sequence_sets, picture_sets }),
        Codec::Aac(AacConfig {
            specific: AAC_CONFIG.to_vec(),
            object_type: 2,
            rate_hz: SOUND_RATE_HZ as u32,
            channels: 2,
        }),
    ]
}

/// Returns a sample with filler in its bytes: pictures are one slice.
fn access_unit(kind: Kind, number: u64) -> AccessUnit {
    let unit = kind.unit(number);
    let mut bytes = vec![FILLER; unit.bytes as usize];
    let rate_hz = match kind {
        Kind::Sound => SOUND_RATE_HZ,
        Kind::Pictures => {
            bytes[..4].copy_from_slice(&(unit.bytes - 4).to_be_bytes());
            bytes[4] = if unit.is_start { KEY_SLICE } else { SLICE };
            VIDEO_RATE_HZ
        }
    };
    let time = (unit.presented * rate_hz / media::TICKS_PER_SECOND) as i64;
    AccessUnit { time, bytes, is_start: unit.is_start, is_after_loss: false }
}

pub(super) const PREAD: &str = "pread";
pub(super) const SCAN: &str = "scan";
/// The streams, by their content.
const CLOCK: &str = "filler and clock";
const PROGRAMME: &str = "pictures and sound";
const BITS_PER_SECOND: u64 = 5_000_000;
/// Bytes of a read, as of the server's planner.
const PIECE_BYTES: usize = 256 << 10;
const VIDEO_RATE_HZ: u64 = 90_000;
/// Parameter sets that x264 writes for 1280 × 720 pictures, 25 a second.
const SEQUENCE_SET: &[u8] = &[
    0x67, 0x64, 0x00, 0x1f, 0xac, 0xd9, 0x40, 0x50, 0x05, 0xbb, 0x01, 0x6c, 0x80, 0x00, 0x00, 0x03,
    0x00, 0x80, 0x00, 0x00, 0x19, 0x07, 0x8c, 0x18, 0xcb,
];
const PICTURE_SET: &[u8] = &[0x68, 0xeb, 0xec, 0xb2, 0x2c];
/// Headers of NAL units: a slice of a key frame (type 5), and of another picture (type 1).
const KEY_SLICE: u8 = 0x65;
const SLICE: u8 = 0x41;
/// A byte that is in no start code and begins a slice's first macroblock.
const FILLER: u8 = 0xff;
