// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the movie as Matroska: a cluster a group of pictures, a SimpleBlock a sample.
//!
//! The bytes of samples are holes in the file. The heads of blocks lie between them, so the file
//! occupies a page for each picture and most of the pages of the sound.
//!
//! Sources: RFC 8794 §4 (EBML numbers); RFC 9559 §5, §10 (elements, blocks).
//! Does not write cues or sizes of the segment that change.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use super::movie::{
    AAC_CONFIG, AVC_RECORD, GROUP_PICTURES, Kind, Movie, PICTURES_PER_SECOND, SOUND_RATE_HZ,
};
use super::mp4::Written;
use media::TICKS_PER_SECOND;

/// Writes the file. Times are in milliseconds.
pub(super) fn write(file: &File, movie: Movie) -> io::Result<Written> {
    let mut out = BufWriter::new(file);
    let mut written = Written::new();
    let head = [element(EBML, &[&element(DOC_TYPE, &[b"matroska"])]), UNKNOWN_SEGMENT.to_vec()];
    let head = [head.concat(), element(TRACKS, &[&entry(Kind::Pictures), &entry(Kind::Sound)])];
    let head = head.concat();
    out.write_all(&head)?;
    let mut at = head.len() as u64;
    for group in 0..movie.groups {
        let begin_ms = group * GROUP_PICTURES * 1000 / PICTURES_PER_SECOND;
        let timestamp = element(TIMESTAMP, &[&begin_ms.to_be_bytes()]);
        let blocks = Movie::interleaved(group);
        let unit_bytes = |&(kind, number): &(Kind, u64)| u64::from(kind.unit(number).bytes);
        let content: u64 = blocks.iter().map(|block| BLOCK_HEAD_BYTES + unit_bytes(block)).sum();
        out.write_all(&sized(CLUSTER, timestamp.len() as u64 + content))?;
        out.write_all(&timestamp)?;
        at += CLUSTER_HEAD_BYTES + timestamp.len() as u64;
        for (kind, number) in blocks {
            let unit = kind.unit(number);
            let bytes = u64::from(unit.bytes) + BLOCK_FIELDS_BYTES;
            out.write_all(&sized(SIMPLE_BLOCK, bytes))?;
            let time_ms = ms(unit.presented) as i64 - begin_ms as i64;
            let [high, low] = (time_ms as i16).to_be_bytes();
            let flags = if unit.is_start { KEY_FRAME } else { 0 };
            out.write_all(&[0x80 | (kind as u8 + 1), high, low, flags])?;
            at = written.put(kind, number, at + BLOCK_HEAD_BYTES);
            out.seek(SeekFrom::Start(at))?;
        }
    }
    out.flush()?;
    drop(out);
    file.set_len(at)?;
    written.bytes = at;
    Ok(written)
}

fn entry(kind: Kind) -> Vec<u8> {
    let number = element(TRACK_NUMBER, &[&[kind as u8 + 1]]);
    match kind {
        Kind::Pictures => {
            let codec = element(CODEC_ID, &[b"V_MPEG4/ISO/AVC"]);
            element(TRACK_ENTRY, &[&number, &codec, &element(CODEC_PRIVATE, &[&AVC_RECORD])])
        }
        Kind::Sound => {
            let codec = element(CODEC_ID, &[b"A_AAC"]);
            let rate = element(SAMPLING_FREQUENCY, &[&(SOUND_RATE_HZ as f64).to_be_bytes()]);
            let sound = element(AUDIO, &[&rate, &element(CHANNELS, &[&[2]])]);
            let private = element(CODEC_PRIVATE, &[&AAC_CONFIG]);
            element(TRACK_ENTRY, &[&number, &codec, &private, &sound])
        }
    }
}

fn ms(ticks: u64) -> u64 {
    (ticks * 1000 + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND
}

fn element(id: u32, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [sized(id, content.len() as u64), content].concat()
}

/// Returns identifier and size of an element, the size in four bytes.
fn sized(id: u32, bytes: u64) -> Vec<u8> {
    let id = id.to_be_bytes();
    let zeros = id.iter().take_while(|&&byte| byte == 0).count();
    assert!(bytes < 1 << 28, "a size of four bytes");
    [&id[zeros..], &(bytes as u32 | 1 << 28).to_be_bytes()].concat()
}

const EBML: u32 = 0x1a45_dfa3;
const DOC_TYPE: u32 = 0x4282;
/// Identifier of the segment, and the unknown size in one byte.
const UNKNOWN_SEGMENT: [u8; 5] = [0x18, 0x53, 0x80, 0x67, 0xff];
const TRACKS: u32 = 0x1654_ae6b;
const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const CLUSTER: u32 = 0x1f43_b675;
const CLUSTER_HEAD_BYTES: u64 = 8;
const TIMESTAMP: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
/// Track number, time and flags of a block; these and its identifier and size.
const BLOCK_FIELDS_BYTES: u64 = 4;
const BLOCK_HEAD_BYTES: u64 = 5 + BLOCK_FIELDS_BYTES;
/// Bit 7 of a SimpleBlock's flags.
const KEY_FRAME: u8 = 0x80;
