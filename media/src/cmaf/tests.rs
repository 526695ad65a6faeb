// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests segments with synthetic films: an initialization section and the segments after it form a
//! fragmented file, and demuxing that returns the samples of the film.

mod growing;

use mp4_atom::{Decode, Moof};

use super::*;
use crate::mp4::Mp4Demuxer;
use crate::tracks::{
    AacConfig, Container, Display, H264Config, MediaSample, PcmConfig, PcmForm, PixelAspect,
    SampleTable, SampleTableBuilder, ShownPictures, Turn, scaled,
};
use crate::{RtpIdentity, TICKS_PER_SECOND};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
const FILE_BYTES: u64 = 1 << 40;
const PICTURE: u32 = 512;
const PICTURE_RATE: u32 = 12_800;
const FRAME: u32 = 1024;
const SOUND_RATE: u32 = 48_000;
const SECOND: i64 = TICKS_PER_SECOND as i64;

/// A film under construction: samples of pictures and sound in the order of the file.
struct Film {
    file: Vec<u8>,
    pictures: SampleTableBuilder,
    sound: SampleTableBuilder,
}

impl Film {
    fn new() -> Film {
        Film {
            // Bytes before the media of a file.
            file: vec![0xff; 40],
            pictures: SampleTableBuilder::new(PICTURE_RATE, FILE_BYTES),
            sound: SampleTableBuilder::new(SOUND_RATE, FILE_BYTES),
        }
    }

    fn picture(&mut self, bytes: u32, offset: i32, is_start: bool) {
        push(&mut self.file, &mut self.pictures, (bytes, offset, PICTURE, is_start));
    }

    fn frame(&mut self) {
        push(&mut self.file, &mut self.sound, (90, 0, FRAME, true));
    }

    fn presentation(self, shift: i64) -> (Vec<u8>, Presentation) {
        self.shifted(shift, 0)
    }

    fn shifted(self, shift: i64, sound_shift: i64) -> (Vec<u8>, Presentation) {
        let mut tracks = Vec::new();
        let mut track = |codec, table: SampleTableBuilder, shift| {
            if let Some(samples) = table.finish() {
                let id = tracks.len() as u32 + 1;
                let language = Some(*b"deu");
                tracks.push(Track { language, shift, ..Track::new(id, codec, samples, IDENTITY) });
            }
        };
        track(h264(), self.pictures, shift);
        track(aac(), self.sound, sound_shift);
        let bytes = self.file.len() as u64;
        (self.file, Presentation::assemble(Container::Mp4, bytes, tracks, Vec::new()).unwrap())
    }
}

fn push(
    file: &mut Vec<u8>,
    table: &mut SampleTableBuilder,
    (bytes, offset, duration, is_start): (u32, i32, u32, bool),
) {
    let (file_offset, decode) = (file.len() as u64, table.end());
    table.push(MediaSample { file_offset, bytes, decode, offset, duration, is_start }).unwrap();
    // No two samples have the same bytes.
    let name = file_offset.to_be_bytes();
    file.extend(name.into_iter().cycle().take(bytes as usize));
}

pub(super) fn h264() -> Codec {
    Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x0a],
        sequence_sets: vec![vec![0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80]],
        picture_sets: vec![vec![0x68, 0xee, 0x3c, 0x80]],
    })
}

fn aac() -> Codec {
    let specific = vec![0x11, 0x90];
    Codec::Aac(AacConfig { specific, object_type: 2, rate_hz: SOUND_RATE, channels: 2 })
}

/// Creates pictures of this many seconds with a key frame each `gop`, sound between them in pieces
/// of half a second, and pictures in an order other than decoding order.
fn film(seconds: u32, gop: u32) -> (Vec<u8>, Presentation) {
    unshifted(seconds, gop).presentation(-i64::from(PICTURE))
}

fn unshifted(seconds: u32, gop: u32) -> Film {
    let mut film = Film::new();
    for number in 0..seconds * 25 {
        let offset = [PICTURE as i32, 3 * PICTURE as i32, 0][(number % gop) as usize % 3];
        film.picture(200 + number % 61, offset, number % gop == 0);
        if number % 12 == 0 {
            let until = u64::from(number + 12) * u64::from(PICTURE) * u64::from(SOUND_RATE);
            while film.sound.end() * u64::from(PICTURE_RATE) < until {
                film.frame();
            }
        }
    }
    film
}

/// A rendition as a file in fragments, from its initialization section on.
fn joined(file: &[u8], presentation: &Presentation, tracks: &[usize]) -> Vec<u8> {
    let plan = TrackSegments::of(presentation, TARGET_S).unwrap();
    let rendition = plan.rendition(tracks).unwrap();
    let no_reads = |_, _| panic!("the header has the parameters");
    let mut out = init_section(presentation, tracks, None, no_reads).unwrap();
    for (number, segment) in rendition.segments().iter().enumerate() {
        let parts = rendition.parts(presentation, &plan, number).unwrap();
        assert_eq!(parts.bytes(), segment.bytes, "segment {number}");
        assert!(parts.ranges.iter().all(|range| !range.is_empty()));
        let moof = Moof::decode(&mut &parts.head[..]).unwrap();
        assert_eq!(moof.mfhd.sequence_number, number as u32 + 1);
        out.extend(sent(file, &parts));
    }
    assert_eq!(rendition.parts(presentation, &plan, rendition.segments().len()), None);
    out
}

/// The bytes of a segment.
fn sent(file: &[u8], parts: &SegmentParts) -> Vec<u8> {
    let media = parts.ranges.iter().map(|range| &file[range.start as usize..range.end as usize]);
    [&parts.head[..]].into_iter().chain(media).collect::<Vec<_>>().concat()
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, usize::MAX).unwrap() {}
    demuxer.finish(|| IDENTITY).unwrap()
}

fn samples(table: &SampleTable) -> impl Iterator<Item = MediaSample> + '_ {
    table.samples(0..table.len())
}

fn bytes_of<'a>(file: &'a [u8], sample: &MediaSample) -> &'a [u8] {
    &file[sample.file_offset as usize..][..sample.bytes as usize]
}

/// Every sample of these tracks is in the fragments, with its bytes and its times.
fn assert_carried(file: &[u8], presentation: &Presentation, tracks: &[usize]) {
    let origin_s = TrackSegments::of(presentation, TARGET_S).unwrap().origin_s() as i64;
    let joined = joined(file, presentation, tracks);
    let found = demux(&joined);
    let file_origin = found.file_origin_ticks() as i64;
    assert_eq!(found.tracks().len(), tracks.len());
    for (&index, found) in tracks.iter().zip(found.tracks()) {
        let track = &presentation.tracks()[index];
        assert_eq!(found.codec, track.codec);
        assert_eq!(found.language, track.language);
        assert_eq!(found.display, track.display);
        assert_eq!(found.samples.len(), track.samples.len());
        let timescale = track.samples.timescale();
        let origin = origin_s * i64::from(timescale)
            - scaled(file_origin, timescale.into(), TICKS_PER_SECOND as u32);
        for (sample, found_sample) in samples(&track.samples).zip(samples(&found.samples)) {
            assert!(bytes_of(file, &sample) == bytes_of(&joined, &found_sample));
            assert_eq!(found.presented(&found_sample), track.presented(&sample) + origin);
            assert_eq!(found_sample.duration, sample.duration);
            assert_eq!(found_sample.is_start, sample.is_start);
            assert!(found_sample.offset >= 0, "players need presentation behind decoding");
        }
    }
}

#[test]
fn pcm_beside_pictures_is_left_out_by_name() {
    let mut film = Film::new();
    for number in 0..50 {
        film.picture(100, 0, number % 25 == 0);
        film.frame();
    }
    let (_, whole) = film.presentation(0);
    assert_eq!(unheard(&whole), None);
    let bytes = whole.file_bytes();
    let mut tracks = whole.tracks().to_vec();
    let pcm = PcmConfig { form: PcmForm::L16, rate_hz: SOUND_RATE, channels: 2 };
    tracks[1].codec = Codec::Pcm(pcm);
    let silent = Presentation::assemble(Container::Mp4, bytes, tracks.clone(), Vec::new()).unwrap();
    let plan = TrackSegments::of(&silent, TARGET_S).unwrap();
    let lists: Vec<_> = plan.renditions().iter().map(Rendition::tracks).collect();
    assert_eq!(lists, [&[0]], "the pictures alone");
    let reason = unheard(&silent).unwrap();
    assert!(reason.starts_with("track 2 (L16): PCM, which HLS and DASH leave out"), "{reason}");
    assert!(reason.ends_with("-c:a aac OUT.mkv)"), "{reason}");
    let sound = vec![tracks.remove(1)];
    let sound = Presentation::assemble(Container::Mp4, bytes, sound, Vec::new()).unwrap();
    assert_eq!((unheard(&sound), TrackSegments::of(&sound, 6)), (None, Err(NoSegments::NoTrack)));
}

#[test]
fn segments_carry_every_sample_once_with_its_times() {
    let (file, presentation) = film(25, 50);
    for tracks in [&[0][..], &[1], &[0, 1]] {
        assert_carried(&file, &presentation, tracks);
    }
}

/// Regression: films of telephones that were held upright lay on their side.
#[test]
fn turns_and_forms_of_pixels_are_carried() {
    let (file, presentation) = film(25, 50);
    let aspects = [None, PixelAspect::new(1, 1), PixelAspect::new(64, 45), PixelAspect::new(3, 4)];
    for signs in [[1, 0, 0, 1], [0, 1, -1, 0], [-1, 0, 0, -1], [0, -1, 1, 0], [-1, 0, 0, 1]] {
        for pixel_aspect in aspects {
            let mut tracks = presentation.tracks().to_vec();
            tracks[0].display = Display { turn: Turn::of_signs(signs).unwrap(), pixel_aspect };
            let bytes = file.len() as u64;
            let turned = Presentation::assemble(Container::Mp4, bytes, tracks, Vec::new()).unwrap();
            assert_carried(&file, &turned, &[0, 1]);
        }
    }
    let mut tracks = presentation.tracks().to_vec();
    let aspect = PixelAspect::new(2, 1);
    tracks[0].display =
        Display { turn: Turn::of_signs([0, 1, -1, 0]).unwrap(), pixel_aspect: aspect };
    let shown = ShownPictures::of(&tracks[0].codec, tracks[0].display).unwrap();
    assert_eq!((shown.size, shown.resolution()), ((16, 16), (8, 16)));
    let bytes = file.len() as u64;
    let turned = Presentation::assemble(Container::Mp4, bytes, tracks, Vec::new()).unwrap();
    let head = init_section(&turned, &[0], None, |_, _| panic!("not needed")).unwrap();
    let at = head.windows(4).position(|kind| kind == b"tkhd").expect("a track");
    // After version, times, identifier, duration, layer, group and volume.
    let numbers = head[at + 56..].chunks(4).take(11);
    let numbers: Vec<i32> =
        numbers.map(|word| i32::from_be_bytes(word.try_into().unwrap())).collect();
    const ONE: i32 = 1 << 16;
    let matrix = [0, ONE, 0, -ONE, 0, 0, 16 * ONE, 0, 1 << 30];
    assert_eq!(numbers[..9], matrix, "moved to the right by what was its height");
    assert_eq!(numbers[9..], [32 * ONE, 16 * ONE], "before the turn, of square pixels");
}

#[test]
fn samples_that_lie_in_any_order_are_carried() {
    let mut film = Film::new();
    // The sound of the whole film precedes the pictures, which have holes between them.
    for _ in 0..14 * SOUND_RATE / FRAME {
        film.frame();
    }
    for number in 0..14 * 25 {
        film.picture(if number % 7 == 3 { 0 } else { 300 }, 0, number % 25 == 0);
        film.file.extend([0xee; 5]);
        if number % 100 == 0 {
            film.file.extend([0xee; 5000]);
        }
    }
    let (file, presentation) = film.presentation(0);
    for tracks in [&[0][..], &[1], &[0, 1]] {
        assert_carried(&file, &presentation, tracks);
    }
}

#[test]
fn samples_that_are_presented_before_they_are_decoded_are_decoded_earlier() {
    let mut film = Film::new();
    for number in 0..10 * 25 {
        let offset = [0, PICTURE as i32, -(PICTURE as i32)][number % 3];
        film.picture(300, offset, number % 25 == 0);
    }
    let (file, presentation) = film.presentation(0);
    assert_eq!(TrackSegments::of(&presentation, TARGET_S).unwrap().origin_s(), 1);
    assert_carried(&file, &presentation, &[0]);
}

#[test]
fn tracks_that_lie_side_by_side_are_one_range() {
    let (_, presentation) = film(25, 50);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let together = plan.rendition(&[0, 1]).unwrap();
    for number in 0..together.segments().len() {
        let parts = together.parts(&presentation, &plan, number).unwrap();
        // Sound begins at the time of the pictures, within the length of one piece.
        assert!(parts.ranges.len() <= 3, "segment {number}: {:?}", parts.ranges);
        let samples: u64 = parts.ranges.iter().map(|range| range.end - range.start).sum();
        let head = parts.head.len() as u64;
        assert!(head < samples / 4, "segment {number}: a head of {head} bytes for {samples}");
    }
}

#[test]
fn copied_segments_have_the_same_samples_and_maps_of_all_their_bytes() {
    let (file, presentation) = film(20, 50);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let rendition = plan.rendition(&[0, 1]).unwrap();
    let mut read = |index: usize, numbers, media: &mut Vec<u8>| {
        copy_samples(&presentation.tracks()[index], numbers, &file[..], media)
    };
    for number in 0..rendition.segments().len() {
        let mut copied = |is_protected| {
            let copied = rendition.copied(&presentation, &plan, number, is_protected, &mut read);
            copied.unwrap().expect("a segment")
        };
        let (clear, protected) = (copied(false), copied(true));
        let tracks = rendition.samples(&presentation, &plan, number).unwrap();
        let samples = tracks
            .into_iter()
            .flat_map(|(index, numbers)| presentation.tracks()[index].samples.samples(numbers));
        let bytes: Vec<u8> = samples.flat_map(|sample| bytes_of(&file, &sample).to_vec()).collect();
        assert!(clear.media == bytes && protected.media == bytes);
        // Frames of 90 bytes have five whole blocks; pictures of up to 261 bytes begin with bytes
        // that are not a length, and stay clear.
        assert_eq!(clear.protected, []);
        assert!(protected.protected.iter().all(|one| one.bytes.len() == 80), "{number}");
        let added = protected.head.len() - clear.head.len();
        let moof = Moof::decode(&mut &protected.head[..]).unwrap();
        let pictures: usize = moof.traf[0].trun.iter().map(|trun| trun.samples.len()).sum();
        let frames: usize = moof.traf[1].trun.iter().map(|trun| trun.samples.len()).sum();
        assert_eq!(protected.protected.len(), frames);
        // saiz, saio and senc, with a subsample for each picture.
        assert_eq!(added, 17 + pictures + 20 + 16 + pictures * 8);
    }
}

#[test]
fn sound_between_pictures_is_scattered() {
    let (_, presentation) = film(25, 50);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let is_scattered = |tracks: &[usize]| plan.rendition(tracks).unwrap().is_scattered();
    assert!(is_scattered(&[1]) && !is_scattered(&[0, 1]));
    let mut film = Film::new();
    (0..60 * SOUND_RATE / FRAME).for_each(|_| film.frame());
    let (_, alone) = film.presentation(0);
    let plan = TrackSegments::of(&alone, TARGET_S).unwrap();
    assert!(!plan.rendition(&[0]).unwrap().is_scattered());
}

#[test]
fn bytes_that_no_sample_has_are_sent_up_to_a_part() {
    let (mut film, holes) = (Film::new(), 500);
    for number in 0..500 {
        film.picture(20_000, 0, number % 25 == 0);
        film.file.extend([0xee; 40]);
    }
    let (file, presentation) = film.presentation(0);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let rendition = plan.rendition(&[0]).unwrap();
    let parts = (0..rendition.segments().len())
        .map(|number| rendition.parts(&presentation, &plan, number).unwrap());
    let (ranges, media) = parts.fold((0, 0), |(ranges, media), parts| {
        let bytes: u64 = parts.ranges.iter().map(|range| range.end - range.start).sum();
        (ranges + parts.ranges.len(), media + bytes)
    });
    assert!(ranges < holes / 50, "{ranges} ranges");
    let samples = presentation.tracks()[0].samples.bytes();
    assert!(media <= samples + samples / 128 + 1, "{media} bytes for samples of {samples}");
    assert_carried(&file, &presentation, &[0]);
}

#[test]
fn renditions_have_one_target_duration() {
    // Pictures of 6.48 s; the first sound has a frame before zero and is 6.507 s long.
    let shift = -i64::from(PICTURE);
    let (_, presentation) = unshifted(26, 162).shifted(shift, -i64::from(FRAME));
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let targets = [&[0][..], &[1], &[0, 1]].map(|list| plan.rendition(list).unwrap().target_s());
    assert_eq!((targets, plan.target_s()), ([6, 7, 6], 7));
}

/// Starts of the segments of the pictures, in seconds.
fn starts(presentation: &Presentation, target_s: u64) -> Vec<f64> {
    let plan = TrackSegments::of(presentation, target_s).unwrap();
    let segments = plan.rendition(&[0]).unwrap().segments().iter();
    segments.map(|segment| segment.start as f64 / SECOND as f64).collect()
}

fn pictures(count: u32, is_start: impl Fn(u32) -> bool) -> Presentation {
    let mut film = Film::new();
    (0..count).for_each(|number| film.picture(100, 0, is_start(number)));
    film.presentation(0).1
}

#[test]
fn segments_begin_at_key_frames_and_last_as_long_as_these_let_them() {
    let every_two = pictures(25 * 20, |number| number % 50 == 0);
    assert_eq!(starts(&every_two, 6), [0.0, 6.0, 12.0, 18.0]);
    assert_eq!(starts(&every_two, 1), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]);
    // A segment exceeds the target only if its rounded duration is still that of the target.
    let late = pictures(25 * 20, |number| [0, 160, 300].contains(&number));
    assert_eq!(starts(&late, 6), [0.0, 6.4, 12.0]);
    let far = pictures(25 * 80, |number| number % 750 == 0);
    assert_eq!(starts(&far, 6), [0.0, 30.0, 60.0]);
    let plan = TrackSegments::of(&far, 6).unwrap();
    assert_eq!(plan.rendition(&[0]).unwrap().target_s(), 30);
    assert!(plan.rendition(&[0]).unwrap().is_independent());
}

#[test]
fn pictures_without_key_frames_for_a_minute_are_cut_all_the_same() {
    let one = pictures(25 * 100, |number| number == 0);
    let plan = TrackSegments::of(&one, 6).unwrap();
    let segments = plan.rendition(&[0]).unwrap().segments();
    assert!(segments[0].is_independent);
    assert!(segments[1..].iter().all(|segment| !segment.is_independent));
    assert!(segments.iter().all(|segment| segment.ticks <= 7 * TICKS_PER_SECOND), "{segments:?}");
    assert_eq!(segments.iter().map(|segment| segment.ticks).sum::<u64>(), 100 * TICKS_PER_SECOND);
    assert_eq!(plan.key_frames().len(), 1);
}

#[test]
fn segments_follow_one_another_and_end_with_the_film() {
    let (_, presentation) = film(40, 25);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    for rendition in plan.renditions() {
        let segments = rendition.segments();
        for pair in segments.windows(2) {
            assert_eq!(pair[0].start + pair[0].ticks as i64, pair[1].start);
        }
        let timeline = rendition.timeline(&presentation, &plan);
        assert!(timeline.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
        let last = segments.last().unwrap();
        let seconds = (last.start + last.ticks as i64) as f64 / SECOND as f64;
        assert!((39.9..40.5).contains(&seconds), "{:?} ends at {seconds}", rendition.tracks());
        let (peak, mean) = rendition.bits_per_second();
        assert!(peak >= mean && mean > 0);
    }
}

#[test]
fn sound_that_lasts_longer_than_the_pictures_is_carried() {
    let mut film = Film::new();
    (0..8 * 25).for_each(|number| film.picture(100, 0, number % 25 == 0));
    (0..30 * SOUND_RATE / FRAME).for_each(|_| film.frame());
    let (file, presentation) = film.presentation(0);
    for tracks in [&[0][..], &[1], &[0, 1]] {
        assert_carried(&file, &presentation, tracks);
    }
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let target = |tracks: &[usize]| plan.rendition(tracks).unwrap().target_s();
    assert!(target(&[0, 1]) <= 8 && target(&[1]) <= 8);
}

#[test]
fn a_film_of_one_sample_is_one_segment() {
    let mut film = Film::new();
    film.picture(100, 0, true);
    let (file, presentation) = film.presentation(0);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    assert_eq!(plan.rendition(&[0]).unwrap().segments().len(), 1);
    assert_carried(&file, &presentation, &[0]);
}

#[test]
fn sound_alone_is_cut_by_time() {
    let mut film = Film::new();
    (0..60 * SOUND_RATE / FRAME).for_each(|_| film.frame());
    let (file, presentation) = film.presentation(0);
    assert_carried(&file, &presentation, &[0]);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    let rendition = plan.rendition(&[0]).unwrap();
    assert_eq!((rendition.segments().len(), rendition.target_s()), (10, 6));
    assert_eq!(plan.pictures(&presentation), None);
    assert_eq!(plan.key_frames(), []);
}

#[test]
fn key_frames_are_segments_of_one_sample_a_second_apart() {
    let (file, presentation) = film(10, 5);
    let plan = TrackSegments::of(&presentation, TARGET_S).unwrap();
    assert_eq!(plan.key_frames().len(), 10);
    let track = &presentation.tracks()[0];
    for (number, frame) in plan.key_frames().iter().enumerate() {
        let parts = plan.key_frame_parts(&presentation, number).unwrap();
        assert_eq!(parts.bytes(), frame.bytes);
        let media = &sent(&file, &parts)[parts.head.len()..];
        let sample = samples(&track.samples).find(|sample| bytes_of(&file, sample) == media);
        let sample = sample.expect("the bytes are those of a sample");
        assert!(sample.is_start);
        let at = scaled(track.presented(&sample), 1, PICTURE_RATE);
        assert_eq!(at, number as i64, "key frame {number}");
    }
    assert_eq!(plan.key_frame_parts(&presentation, 10), None);
}

#[test]
fn sounds_of_kinds_that_browsers_do_not_play_are_left_out() {
    let mut film = Film::new();
    film.picture(100, 0, true);
    let (_, presentation) = film.presentation(0);
    let mut track = presentation.tracks()[0].clone();
    track.codec = Codec::Mp2t;
    let other = Presentation::assemble(Container::Mp4, FILE_BYTES, vec![track], Vec::new());
    assert_eq!(TrackSegments::of(&other.unwrap(), TARGET_S), Err(NoSegments::NoTrack));
}

#[test]
fn a_track_without_parameters_has_no_initialization_section() {
    let mut film = Film::new();
    film.picture(100, 0, true);
    let (_, presentation) = film.presentation(0);
    let mut track = presentation.tracks()[0].clone();
    let Codec::H264(config) = &mut track.codec else { unreachable!() };
    config.sequence_sets.clear();
    let other = Presentation::assemble(Container::Mp4, FILE_BYTES, vec![track], Vec::new());
    let read = |_: usize, _: usize| Ok(vec![0, 0, 0, 2, 0x65, 0x88]);
    let reason = init_section(&other.unwrap(), &[0], None, read).unwrap_err();
    assert!(matches!(reason, NoInitSection::NoParameters { track: 1, .. }), "{reason}");
}

#[test]
fn renditions_with_a_segment_of_two_gigabytes_are_left_out() {
    // Two tracks near the highest rate of a file, and no second key frame within a minute.
    let (count, bytes, duration) = (200_u64, 1 << 24, 3500);
    let track = |codec, track: u64| {
        let mut table = SampleTableBuilder::new(PICTURE_RATE, FILE_BYTES);
        for number in 0..count {
            let file_offset = (number * 2 + track) * u64::from(bytes);
            let (decode, offset) = (number * u64::from(duration), 0);
            let is_start = number == 0 || track == 1;
            table
                .push(MediaSample { file_offset, bytes, decode, offset, duration, is_start })
                .unwrap();
        }
        let (id, samples) = (track as u32 + 1, table.finish().unwrap());
        Track::new(id, codec, samples, IDENTITY)
    };
    let tracks = vec![track(h264(), 0), track(aac(), 1)];
    let film = Presentation::assemble(Container::Mp4, FILE_BYTES, tracks, Vec::new()).unwrap();
    // Sound is cut at the times of the pictures' cuts.
    let reason = TrackSegments::of(&film, TARGET_S).unwrap_err();
    assert!(matches!(reason, NoSegments::TooManyBytes { track: 1, .. }), "{reason}");
}
