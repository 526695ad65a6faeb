// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files made by hand: element by element, so that any of them can lie.

use super::*;
use crate::tracks::{SampleFault, TRACKS_READ_MAX};
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
    film_of(&[entry(1, codec_id, fields)], clusters)
}

fn entry(number: u16, codec_id: &str, fields: &[&[u8]]) -> Vec<u8> {
    let number = element(0xd7, &[&number.to_be_bytes()]);
    let codec = element(0x86, &[codec_id.as_bytes()]);
    element(0xae, &[&number, &codec, &fields.concat()])
}

/// A file of these tracks, with these clusters.
fn film_of(entries: &[Vec<u8>], clusters: &[&[u8]]) -> Vec<u8> {
    let segment = element(SEGMENT, &[&element(TRACKS, &[&entries.concat()]), &clusters.concat()]);
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

/// A description of 1 MB once made half a million tracks that are not sent, each with its reason.
#[test]
fn tracks_are_bounded_before_their_reasons_are_written() {
    let frames = cluster(0, &[&[0x81, 0, 0, 0x80, 1, 2]]);
    let with = |empty: usize| {
        let entries = [vec![entry(1, "A_MPEG/L3", &[])], vec![vec![0xae, 0x80]; empty]].concat();
        demux(&film_of(&entries, &[&frames]))
    };
    let found = with(TRACKS_READ_MAX - 1).unwrap();
    assert_eq!((found.tracks().len(), found.left_out().len()), (1, TRACKS_READ_MAX - 1));
    for empty in [TRACKS_READ_MAX, 500_000] {
        let refusal = Refusal::TooManyTracks { container: NAME, found: empty + 1, limit: 16 };
        assert_eq!(with(empty), Err(refusal));
    }
}

/// The track of each block is looked for, so there are few before blocks are read.
#[test]
fn tracks_that_could_be_sent_are_bounded_before_blocks_are_read() {
    let with = |tracks: u16| {
        let entries: Vec<_> = (1..=tracks).map(|number| entry(number, "A_MPEG/L3", &[])).collect();
        demux(&film_of(&entries, &[&cluster(0, &[&[0x81, 0, 0, 0x80, 1, 2]])]))
    };
    assert_eq!(with(16).unwrap().left_out().len(), 15, "those without frames");
    let refusal = Refusal::TooManyTracks { container: NAME, found: 17, limit: 16 };
    assert_eq!(with(17), Err(refusal));
}

#[test]
fn refusal_names_some_tracks_and_counts_the_others() {
    let entries: Vec<_> = (1..=200).map(|number| entry(number, &"x".repeat(900), &[])).collect();
    let refusal = demux(&film_of(&entries, &[])).unwrap_err().to_string();
    assert!(refusal.contains("track 1 (xxx") && refusal.ends_with(" more"), "{refusal}");
    assert!(refusal.len() < 1200, "{} bytes: {refusal}", refusal.len());
}

/// A group of 400 MB of empty elements once was one step, which nothing could interrupt.
#[test]
fn elements_of_a_group_are_bounded() {
    let with = |empty: usize| {
        let block = element(BLOCK, &[&[0x81, 0, 0, 0, 1, 2]]);
        let group = element(BLOCK_GROUP, &[&block, &[0xec, 0x80].repeat(empty)]);
        let cluster = element(CLUSTER, &[&element(TIMESTAMP, &[&[0]]), &group]);
        demux(&film("A_MPEG/L3", &[], &[&cluster]))
    };
    assert!(with(GROUP_ELEMENTS_MAX - 1).is_ok());
    let refused = with(GROUP_ELEMENTS_MAX).unwrap_err().to_string();
    assert!(refused.contains("BlockGroup of too many elements"), "{refused}");
}

/// A call reads about as many frames as it is asked for, those of laces included.
#[test]
fn frames_of_a_lace_count_each() {
    let lace = [&[0x81, 0, 0, 0x84, 255][..], &[7; 256]].concat();
    let blocks: Vec<&[u8]> = vec![&lace; 10];
    let file = film("A_MPEG/L3", &[], &[&cluster(0, &blocks)]);
    let mut demuxer = MkvDemuxer::new(file.len() as u64);
    assert!(!demuxer.advance(&file[..], 600).unwrap());
    assert!((256..=768).contains(&demuxer.tracks[0].frames()), "{}", demuxer.tracks[0].frames());
    assert!(demuxer.position() < file.len() as u64);
    while !demuxer.advance(&file[..], 600).unwrap() {}
    assert_eq!((demuxer.tracks[0].frames(), demuxer.position()), (2560, file.len() as u64));
}
