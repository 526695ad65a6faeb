// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests synthetic files of frames, whole and broken.

use super::*;

/// A frame of layer III: MPEG-1, 128 kb/s, 44.1 kHz, 417 bytes.
fn mp3_frame(fill: u8) -> Vec<u8> {
    let mut frame = vec![fill; 417];
    frame[..4].copy_from_slice(&[0xff, 0xfb, 0x90, 0x00]);
    frame
}

/// An ADTS frame of AAC-LC, 44.1 kHz, stereo, of this many bytes.
pub(crate) fn adts_frame(bytes: usize, fill: u8) -> Vec<u8> {
    let mut frame = vec![fill; bytes];
    let size = [(bytes >> 11) as u8 | 0x80, (bytes >> 3) as u8, (bytes << 5) as u8 | 0x1f, 0xfc];
    frame[..3].copy_from_slice(&[0xff, 0xf1, 0x50]);
    frame[3..7].copy_from_slice(&size);
    frame
}

fn demux(file: &[u8]) -> Option<Result<Presentation, Refusal>> {
    let mut demuxer = FrameDemuxer::of(file, file.len() as u64)?;
    while !demuxer.advance(file, 3).unwrap() {}
    let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    Some(demuxer.finish(|| identity))
}

fn places(presentation: &Presentation) -> Vec<(u64, u32)> {
    let samples = &presentation.tracks()[0].samples;
    samples.samples(0..samples.len()).map(|sample| (sample.file_offset, sample.bytes)).collect()
}

#[test]
fn headers_tell_size_and_duration() {
    let parsed = |header: [u8; 4]| {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&header);
        mpeg_audio::parse(&bytes).map(|frame| (frame.bytes, frame.rate_hz, frame.duration))
    };
    assert_eq!(parsed([0xff, 0xfb, 0x90, 0x00]), Some((417, 44_100, 1152)));
    assert_eq!(parsed([0xff, 0xfb, 0x92, 0x00]), Some((418, 44_100, 1152)), "padded");
    assert_eq!(parsed([0xff, 0xf3, 0x84, 0x00]), Some((192, 24_000, 576)), "MPEG-2");
    assert_eq!(parsed([0xff, 0xe3, 0x88, 0x00]), Some((576, 8_000, 576)), "MPEG-2.5");
    assert_eq!(parsed([0xff, 0xfd, 0xa4, 0x00]), Some((576, 48_000, 1152)), "layer II");
    assert_eq!(parsed([0xff, 0xff, 0x14, 0x00]), Some((32, 48_000, 384)), "layer I");
    for other in [[0xff, 0xfb, 0x00, 0], [0xff, 0xfb, 0xf0, 0], [0xff, 0xfb, 0x9c, 0]] {
        assert_eq!(parsed(other), None, "free format, bad rate, reserved frequency");
    }
}

#[test]
fn tags_and_tables_of_contents_are_stepped_over() {
    let mut tag = b"ID3\x04\0\0\0\0\x01\x00".to_vec();
    tag.resize(10 + 128, 7);
    let mut info = mp3_frame(0);
    info[36..40].copy_from_slice(b"Info");
    let mut end = b"TAG".to_vec();
    end.resize(128, b' ');
    let file = [tag, info, mp3_frame(1), mp3_frame(2), mp3_frame(3), end].concat();
    let presentation = demux(&file).unwrap().unwrap();
    assert_eq!(presentation.container(), Container::MpegAudio);
    let first = 138 + 417;
    assert_eq!(places(&presentation), [(first, 417), (first + 417, 417), (first + 834, 417)]);
}

/// An ID3v2 tag with a body of this many bytes, 16,383 at most.
fn id3(bytes: usize, flags: u8) -> Vec<u8> {
    let mut tag = vec![b'I', b'D', b'3', 4, 0, flags, 0, 0, (bytes >> 7) as u8, bytes as u8 & 0x7f];
    tag.resize(10 + bytes, 7);
    tag
}

/// An APE tag with a header: 32 bytes, items of this many bytes, and a footer.
fn ape(items: u32) -> Vec<u8> {
    let part = |is_header: bool| {
        let mut part = b"APETAGEX\xd0\x07\0\0".to_vec();
        part.extend((items + 32).to_le_bytes());
        part.extend([1, 0, 0, 0, 0, 0, 0, if is_header { 0xa0 } else { 0x80 }]);
        part.extend([0; 8]);
        part
    };
    [part(true), vec![9; items as usize], part(false)].concat()
}

#[test]
fn any_number_of_tags_stands_around_frames() {
    let footer = [b"3DI\x04\0\0", &[0; 4][..]].concat();
    // A picture, a footer, zeros behind the second tag, and a tag of APE.
    let tags = [id3(16_000, 0), id3(50, 0x10), footer, vec![0; 9000], ape(100)].concat();
    let mut last = b"TAG".to_vec();
    last.resize(128, b' ');
    for (sound, sent) in [
        ([mp3_frame(1), mp3_frame(2)].concat(), 417),
        ([adts_frame(300, 1), adts_frame(300, 2)].concat(), 293),
    ] {
        let header = u64::from(sent == 293) * 7;
        let frame = u64::from(sent) + header;
        // Two files that were joined, each with its tags.
        let large = vec![8; SEARCH_BYTES + 1];
        let size =
            [(large.len() >> 14) as u8, (large.len() >> 7) as u8 & 0x7f, large.len() as u8 & 0x7f];
        let picture = [&b"ID3\x03\0\0\0"[..], &size, &large].concat();
        let file = [&tags[..], &sound, &last, &picture, &sound, &ape(70_000), &last].concat();
        let found = demux(&file).unwrap().unwrap();
        let first = tags.len() as u64 + header;
        let second = first + 2 * frame + 128 + picture.len() as u64;
        let expected = [first, first + frame, second, second + frame].map(|at| (at, sent));
        assert_eq!(places(&found), expected);
        assert_eq!(found.warnings(), [""; 0]);
    }
    // A tag longer than its size field.
    let file = [id3(50, 0), vec![7; 3000], mp3_frame(1).repeat(20)].concat();
    assert_eq!(places(&demux(&file).unwrap().unwrap())[0], (3060, 417));
}

#[test]
fn frames_of_adts_are_sent_without_their_headers() {
    let file = [adts_frame(300, 1), adts_frame(20, 2), adts_frame(8000, 3)].concat();
    let presentation = demux(&file).unwrap().unwrap();
    assert_eq!(presentation.container(), Container::Adts);
    assert_eq!(places(&presentation), [(7, 293), (307, 13), (327, 7993)]);
    assert_eq!(presentation.codecs(), "mp4a.40.2");
}

#[test]
fn frames_are_found_again_behind_a_hole() {
    let hole = vec![0xff; 1000];
    let file = [mp3_frame(1), mp3_frame(1), hole, mp3_frame(2), mp3_frame(3)].concat();
    let presentation = demux(&file).unwrap().unwrap();
    assert_eq!(places(&presentation), [(0, 417), (417, 417), (1834, 417), (2251, 417)]);
    let cut = &file[..file.len() - 5];
    assert_eq!(places(&demux(cut).unwrap().unwrap()).len(), 3, "the last is cut off");
}

#[test]
fn sound_that_ends_at_a_long_hole_has_a_warning() {
    let sound = mp3_frame(1).repeat(4);
    let hole = vec![0; SEARCH_BYTES + 1];
    let file = [&sound[..], &hole, &sound].concat();
    let presentation = demux(&file).unwrap().unwrap();
    assert_eq!(places(&presentation).len(), 4);
    let [warning] = presentation.warnings() else { panic!("{:?}", presentation.warnings()) };
    assert!(warning.starts_with("sound ends at byte 1668: "), "{warning}");
    let whole = [&sound[..], &hole[..1000], &sound, &hole[..1000]].concat();
    let presentation = demux(&whole).unwrap().unwrap();
    assert_eq!(places(&presentation).len(), 8);
    let [warning] = presentation.warnings() else { panic!("{:?}", presentation.warnings()) };
    assert!(warning.starts_with("1000 bytes between the frames, the first at byte 1668, "));
    assert!(demux(&sound).unwrap().unwrap().warnings().is_empty());
}

#[test]
fn what_is_no_sound_is_not_taken() {
    assert!(demux(b"").is_none() && demux(b"short").is_none());
    assert!(demux(&[0xff; 5000]).is_none());
    assert!(demux(&[0x47; 5000]).is_none());
    assert!(demux(&mp3_frame(1)).is_none(), "one frame alone may be chance");
    // A tag that claims more bytes than the file has, and one before another format.
    let tag = b"ID3\x04\0\0\x7f\x7f\x7f\x7f";
    assert!(demux(tag).is_none());
    assert!(demux(&[&id3(20, 0)[..], b"fLaC", &[0; 5000]].concat()).is_none());
    let noise = [mp3_frame(1), mp3_frame(2), vec![0; 60_000], mp3_frame(3), mp3_frame(4)].concat();
    let refused = demux(&noise).unwrap().unwrap_err().to_string();
    assert!(refused.contains("more bytes between the frames than in them"), "{refused}");
}
