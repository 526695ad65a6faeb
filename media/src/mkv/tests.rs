// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic files, built element by element, so that any element can be wrong.

use super::*;
use crate::tracks::{PixelAspect, SampleFault, TRACKS_READ_MAX};
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

#[test]
fn forms_of_pixels_are_of_sizes_as_shown_and_as_coded() {
    let found = |fields: &[(u32, u16)]| {
        let fields = fields.iter().map(|&(id, value)| element(id, &[&value.to_be_bytes()]));
        let video = element(0xe0, &[&fields.collect::<Vec<_>>().concat()]);
        let config = element(0x63a2, &[&AVC]);
        let frames = cluster(0, &[&[0x81, 0, 0, 0x80, 0, 0, 0, 2, 0x65, 1]]);
        let film = film("V_MPEG4/ISO/AVC", &[&config, &video], &[&frames]);
        let aspect = demux(&film).unwrap().tracks()[0].display.pixel_aspect;
        aspect.map(PixelAspect::numbers)
    };
    let coded = [(0xb0, 720), (0xba, 576)];
    let shown = |more: &[(u32, u16)]| found(&[&coded, more].concat());
    assert_eq!(shown(&[]), None, "as coded");
    assert_eq!(shown(&[(0x54b0, 720), (0x54ba, 576)]), Some((1, 1)));
    assert_eq!(shown(&[(0x54b0, 1024), (0x54ba, 576)]), Some((64, 45)));
    assert_eq!(shown(&[(0x54b0, 16), (0x54ba, 9), (0x54b2, 3)]), Some((64, 45)), "a ratio");
    assert_eq!(shown(&[(0x54b0, 16), (0x54ba, 9), (0x54b2, 4)]), None, "of no known unit");
    let cropped = [(0x54cc, 8), (0x54dd, 8), (0x54bb, 16), (0x54aa, 0)];
    let shown_cropped = shown(&[&cropped[..], &[(0x54b0, 704), (0x54ba, 560)]].concat());
    assert_eq!(shown_cropped, Some((1, 1)));
    assert_eq!(shown(&[(0x54cc, 700), (0x54dd, 700), (0x54b0, 7), (0x54ba, 5)]), None);
    assert_eq!(found(&[(0x54b0, 16), (0x54ba, 9)]), None, "of what size");
    assert_eq!(shown(&[(0x54b0, 0), (0x54ba, 9)]), None);
}

/// 256 frames of a length that no frame has once added up to more than an i64 holds.
#[test]
fn a_frame_length_beyond_a_second_is_none() {
    // Low-delay AAC, with the frame length given by the track, and a rate of 24 bits.
    let specific = element(0x63a2, &[&[0xbf, 0xff, 0xff, 0xff, 0x90]]);
    let length = element(0x23_e383, &[&u64::MAX.to_be_bytes()]);
    let lace = [&[0x81, 0, 0, 0x84, 255][..], &[7; 256]].concat();
    let clusters = [cluster(0, &[&lace]), cluster(9, &[&lace])];
    let file = film("A_AAC", &[&specific, &length], &[&clusters[0], &clusters[1]]);
    let found = demux(&file).unwrap();
    assert_eq!(found.tracks()[0].samples.len(), 512);
    assert!(found.duration_ticks() < TICKS_PER_SECOND);
}

/// The offset of a frame was once truncated if it is shown hours after its turn and another one
/// hours before: stored and read again, the presentation differed.
#[test]
fn frames_far_from_their_order_are_refused() {
    let private = element(0x63a2, &[&AVC]);
    let latest = |hours: u64| {
        let block: &[u8] = &[0x81, 0, 0, 0x80, 0, 0, 0, 1, 0x65];
        // The decoding time of the second is known after sixteen later frames; so is that of the
        // last, at its own time.
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

/// A description of 1 MB once gave half a million tracks that are not sent, each with its reason.
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

/// The track of each block is searched for, so only a few are accepted before blocks are read.
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

/// A call reads about the requested number of frames, including those of laces.
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

/// The cluster that a killed recorder did not finish once was left out whole, in silence.
#[test]
fn whole_blocks_of_a_cut_cluster_are_streamed() {
    let blocks: [&[u8]; 3] =
        [&[0x81, 0, 0, 0x80, 1, 2], &[0x81, 0, 9, 0x80, 3], &[0x81, 0, 18, 0x80, 4]];
    let clusters = [cluster(0, &blocks), cluster(27, &blocks)];
    let whole = film("A_MPEG/L3", &[], &[&clusters[0], &clusters[1]]);
    let frames = |file: &[u8]| {
        let found = demux(file).unwrap();
        (found.tracks()[0].samples.len(), found.warnings().join(" "))
    };
    assert_eq!(frames(&whole), (6, String::new()));
    // From the end on: the last block has ten bytes, as has the second; the first has eleven.
    let expected = |lacking: usize| match lacking {
        1..=10 => 5,
        11..=20 => 4,
        _ => 3,
    };
    for lacking in 1..clusters[1].len() {
        let file = &whole[..whole.len() - lacking];
        let (found, warning) = frames(file);
        assert_eq!(found, expected(lacking), "{lacking} bytes are missing");
        let begins = format!("cut off: by its own sizes {lacking} bytes are missing at its end");
        assert!(warning.starts_with(&begins) && warning.contains("ffmpeg -i IN"), "{warning}");
    }
    let (found, warning) = frames(&whole[..whole.len() - 3]);
    assert_eq!(found, 5);
    assert!(warning.contains("its last 7 bytes are not"), "{warning}");
}

/// The second film was once dropped silently.
#[test]
fn another_film_behind_the_first_has_a_warning() {
    let blocks: [&[u8]; 2] = [&[0x81, 0, 0, 0x80, 1, 2], &[0x81, 0, 9, 0x80, 3]];
    let film = film("A_MPEG/L3", &[], &[&cluster(0, &blocks)]);
    let found = demux(&[&film[..], &film].concat()).unwrap();
    assert_eq!(found.tracks()[0].samples.len(), 2);
    let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
    let begins = format!("another file begins at byte {}, and the last", film.len());
    assert!(warning.starts_with(&begins), "{warning}");
    let filled = demux(&[&film[..], &[0; 40]].concat()).unwrap();
    assert!(filled.warnings().is_empty(), "{:?}", filled.warnings());
}

/// A cluster may claim any size; its elements are in the file nevertheless.
#[test]
fn a_cluster_of_a_size_that_lies_ends_with_the_file() {
    let blocks: [&[u8]; 2] = [&[0x81, 0, 0, 0x80, 1, 2], &[0x81, 0, 9, 0x80, 3]];
    let first = cluster(0, &blocks);
    let segment = |bytes: &[u8]| {
        let tracks = element(TRACKS, &[&entry(1, "A_MPEG/L3", &[])]);
        let header = element(EBML, &[&element(DOC_TYPE, &[b"matroska"])]);
        [&header, &SEGMENT.to_be_bytes()[..], bytes, &tracks].concat()
    };
    // Sizes of 2⁵⁶ - 2, the largest known size, and of 2⁵⁶ - 1, which means unknown.
    let most = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe];
    let lying = [&CLUSTER.to_be_bytes()[..], &most, &first[8..]].concat();
    for (size, is_known) in [(most, true), ([1, 255, 255, 255, 255, 255, 255, 255], false)] {
        let sound = demux(&[segment(&size), first.clone()].concat()).unwrap();
        assert_eq!(sound.tracks()[0].samples.len(), 2);
        assert_eq!(sound.warnings().len(), usize::from(is_known));
        let found = demux(&[segment(&size), lying.clone(), first.clone()].concat()).unwrap();
        assert_eq!(found.tracks()[0].samples.len(), 4, "the next cluster is no part of it");
        assert_eq!(found.warnings().len(), 1);
    }
}

#[test]
fn a_place_without_an_element_is_named() {
    let blocks: [&[u8]; 1] = [&[0x81, 0, 0, 0x80, 1, 2]];
    let broken = [&cluster(0, &blocks)[..], &[0; 40]].concat();
    let file = film("A_MPEG/L3", &[], &[&broken, &cluster(9, &blocks)]);
    let found = demux(&file).unwrap();
    let [warning] = found.warnings() else { panic!("{found:?}") };
    assert!(
        warning.starts_with("not read to its end: no element's identifier at byte"),
        "{warning}"
    );
}

/// The reason of sound once named a command that encodes pictures, and had no files in it.
#[test]
fn tracks_that_are_not_sent_have_cures_by_their_kind() {
    let frames = cluster(0, &[&[0x81, 0, 0, 0x80, 1, 2]]);
    for (codec, words, cure, other) in [
        ("A_FLAC", "sound of a codec", "-c:a aac OUT", "-c:v"),
        ("A_DTS", "sound of a codec", "-c:a aac OUT", "-c:v"),
        ("V_VP9", "pictures of a codec", "-c:v libx264 OUT", "-c:a"),
        ("S_TEXT/UTF8", "subtitles or chapters", "-vf subtitles=IN OUT", "-c:"),
        ("S_HDMV/PGS", "subtitles", "overlay OUT", "-c:"),
        ("B_VOBBTN", "neither pictures nor sound", "", "ffmpeg"),
        ("V_MPEG4/ISO/AVC", "its configuration record (avcC)", "-c copy OUT", "libx264"),
        ("A_AAC", "no AudioSpecificConfig", "-c:a aac OUT", "-c:v"),
        ("x", "a codec", "ffmpeg -i IN -c:v libx264 -c:a aac OUT", "copy"),
    ] {
        let file = film_of(&[entry(1, "A_MPEG/L3", &[]), entry(2, codec, &[])], &[&frames]);
        let found = demux(&file).unwrap();
        let [LeftOut { id: 2, reason }] = found.left_out() else { panic!("{found:?}") };
        assert!(reason.starts_with(&format!("track 2 ({codec}): {words}")), "{reason}");
        assert!(reason.contains(cure) && !reason.contains(other), "{reason}");
        assert!(!reason.contains("ffmpeg") || reason.contains("ffmpeg -i IN"), "{reason}");
    }
    let six = entry(2, "A_OPUS", &[&element(0xe1, &[&element(0x9f, &[&[6]])])]);
    let found = demux(&film_of(&[entry(1, "A_MPEG/L3", &[]), six], &[&frames])).unwrap();
    let reason = &found.left_out()[0].reason;
    assert!(reason.contains("Opus of 6 channels") && reason.contains("-c:a aac"), "{reason}");
}

/// A block of text, with its duration.
fn text(time: i16, duration: u64, text: &str) -> Vec<u8> {
    let head = [&[0x82][..], &time.to_be_bytes(), &[0]].concat();
    let duration = element(BLOCK_DURATION, &[&duration.to_be_bytes()]);
    element(BLOCK_GROUP, &[&element(BLOCK, &[&head, text.as_bytes()]), &duration])
}

#[test]
fn text_is_listed_and_read_while_it_is_not_sent() {
    use crate::text::{NoCues, TextCoding, text_cues, text_tracks};
    let fields: [&[u8]; 3] = [
        &element(0x22_b59d, &[b"pt-BR"]),
        &element(0x536e, &[b"Signs"]),
        &element(0x55aa, &[&[1]]),
    ];
    let encoded = element(0x6d80, &[]);
    let entries = [
        entry(1, "A_MPEG/L3", &[]),
        entry(2, "S_TEXT/UTF8", &fields),
        entry(3, "S_TEXT/WEBVTT", &[&encoded]),
        entry(4, "S_HDMV/PGS", &[]),
    ];
    let sound = element(SIMPLE_BLOCK, &[&[0x81, 0, 0, 0x80, 1, 2]]);
    let time = |ms: u64| element(TIMESTAMP, &[&ms.to_be_bytes()]);
    let texts = [text(5, 1000, "<i>a</i> & b"), text(900, 7, "c")];
    let first = element(CLUSTER, &[&time(10_000), &sound, &texts[0], &sound, &texts[1]]);
    let second = element(CLUSTER, &[&time(20_000), &text(-3, 1, "d")]);
    let mut file = film_of(&entries, &[&first, &second]);
    assert_eq!(demux(&file).unwrap().left_out().len(), 3);
    let bytes = file.len() as u64;
    let [track] = &text_tracks(&file, bytes).unwrap()[..] else { panic!("one is read") };
    assert_eq!((track.id, track.coding, track.is_forced), (2, TextCoding::Utf8, true));
    assert_eq!(track.language.as_deref(), Some("pt-BR"));
    assert_eq!(track.name.as_deref(), Some("Signs"));
    let cues = text_cues(&file, bytes, 2, 0).unwrap();
    let cues = cues.cues().iter().map(|cue| (cue.start_ms, cue.end_ms, cue.text.as_str()));
    let expected =
        [(10_005, 11_005, "<i>a</i> &amp; b"), (10_900, 10_907, "c"), (19_997, 19_998, "d")];
    assert_eq!(cues.collect::<Vec<_>>(), expected);
    // The film begins with its sound, and so do the times of texts.
    let origin_ticks = demux(&file).unwrap().file_origin_ticks();
    assert_eq!(origin_ticks, 10 * TICKS_PER_SECOND);
    let moved = text_cues(&file, bytes, 2, origin_ticks).unwrap();
    assert_eq!(moved.cues()[0].start_ms, 5);
    assert!(matches!(text_cues(&file, bytes, 3, 0), Err(NoCues::NoTrack)));
    // A recording that was cut off has the texts before.
    file.truncate(file.len() - 20);
    assert_eq!(text_cues(&file, file.len() as u64, 2, 0).unwrap().cues().len(), 2);
}

#[test]
fn starts_that_no_block_marks_are_found_in_the_pictures() {
    let private = element(0x63a2, &[&AVC]);
    let block = |time: u8, nal: [u8; 2]| [&[0x81, 0, time, 0, 0, 0, 0, 2][..], &nal].concat();
    let (idr, predicted) = ([0x65, 0x88], [0x41, 0xc0]);
    let blocks = [predicted, idr, predicted, idr].into_iter().zip([0, 40, 80, 120]);
    let blocks: Vec<_> = blocks.map(|(nal, time)| block(time, nal)).collect();
    let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let film = film("V_MPEG4/ISO/AVC", &[&private], &[&cluster(0, &blocks)]);
    let found = demux(&film).unwrap();
    let samples = &found.tracks()[0].samples;
    let starts: Vec<_> = samples.samples(0..4).map(|sample| sample.is_start).collect();
    assert_eq!(starts, [false, true, false, true]);
    let [warning] = found.warnings() else { panic!("{:?}", found.warnings()) };
    assert!(warning.starts_with("track 1: no block is marked as a key frame, and 2"), "{warning}");
}
