// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files made by hand: element by element, so that any of them can lie.

use super::*;
use crate::tracks::SampleFault;
use crate::{PlanKey, TICKS_PER_SECOND};

/// An element; its size is written in four bytes.
fn element(id: u32, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let id = id.to_be_bytes();
    let zeros = id.iter().take_while(|&&byte| byte == 0).count();
    [&id[zeros..], &(content.len() as u32 | 1 << 28).to_be_bytes(), &content].concat()
}

/// A file of one track, number 1, with these clusters.
fn film(codec_id: &str, fields: &[&[u8]], clusters: &[&[u8]]) -> Vec<u8> {
    let number = element(0xd7, &[&[1]]);
    let codec = element(0x86, &[codec_id.as_bytes()]);
    let entry = element(0xae, &[&number, &codec, &fields.concat()]);
    let segment = element(SEGMENT, &[&element(TRACKS, &[&entry]), &clusters.concat()]);
    [element(EBML, &[&element(DOC_TYPE, &[b"matroska"])]), segment].concat()
}

fn cluster(time: u64, blocks: &[&[u8]]) -> Vec<u8> {
    let blocks: Vec<_> = blocks.iter().map(|block| element(SIMPLE_BLOCK, &[block])).collect();
    element(CLUSTER, &[&element(TIMESTAMP, &[&time.to_be_bytes()]), &blocks.concat()])
}

fn demux(file: &[u8]) -> Result<Presentation, Refusal> {
    let mut demuxer = MkvDemuxer::new(file.len() as u64);
    loop {
        match demuxer.advance(file, 1) {
            Ok(true) => break,
            Ok(false) => {}
            Err(DemuxError::Refused(refusal)) => return Err(refusal),
            Err(DemuxError::Unreadable(error)) => panic!("past the end: {error}"),
        }
    }
    demuxer.finish(|| RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 })
}

const AVC: [u8; 7] = [1, 100, 0, 31, 0xff, 0xe0, 0];

/// 256 frames of a length that no frame has once added up to more than an i64 holds.
#[test]
fn a_frame_length_beyond_a_second_is_none() {
    // AAC of low delay, whose frames are as long as the track tells, of a rate of 24 bits.
    let specific = element(0x63a2, &[&[0xbf, 0xff, 0xff, 0xff, 0x90]]);
    let length = element(0x23_e383, &[&u64::MAX.to_be_bytes()]);
    let lace = [&[0x81, 0, 0, 0x84, 255][..], &[7; 256]].concat();
    let clusters = [cluster(0, &[&lace]), cluster(9, &[&lace])];
    let file = film("A_AAC", &[&specific, &length], &[&clusters[0], &clusters[1]]);
    let found = demux(&file).unwrap();
    assert_eq!(found.tracks()[0].samples.len(), 512);
    assert!(found.duration_ticks() < TICKS_PER_SECOND);
}

/// The offset of a frame once was cut off where it is shown hours behind its turn and another one
/// hours before: stored and read again, the presentation was another one.
#[test]
fn frames_far_from_their_order_are_refused() {
    let private = element(0x63a2, &[&AVC]);
    let latest = |hours: u64| {
        let block: &[u8] = &[0x81, 0, 0, 0x80, 0, 0, 0, 1, 0x65];
        // The second is decoded when sixteen later ones have come; so is the last, at its time.
        let mut ms = vec![0, hours * HOUR_MS];
        ms.extend((1..20).map(|number| HOUR_MS + number));
        ms.push(1);
        let clusters: Vec<_> = ms.iter().map(|&ms| cluster(ms, &[block])).collect();
        let clusters: Vec<_> = clusters.iter().map(Vec::as_slice).collect();
        demux(&film("V_MPEG4/ISO/AVC", &[&private], &clusters))
    };
    let found = latest(3).unwrap();
    let key = PlanKey { path: b"a".to_vec(), bytes: found.file_bytes(), modified_ns: 7, inode: 2 };
    assert_eq!(Presentation::decode(&found.encode(&key), &key), Ok(found));
    let refused = latest(6);
    assert!(
        matches!(refused, Err(Refusal::Sample { fault: SampleFault::Time { .. }, .. })),
        "{refused:?}"
    );
}

const HOUR_MS: u64 = 3_600_000;
