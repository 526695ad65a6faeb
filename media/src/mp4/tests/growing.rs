// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests recordings that are read while they are written.

use super::*;
use crate::mp4::GrowingMp4;
use crate::mux::Fmp4Writer;
use crate::tracks::{AacConfig, PcmConfig, PcmForm};
use crate::{AccessUnit, Codec};

/// Reads the first `there` bytes, about `samples` samples at a time.
fn read(reader: &mut GrowingMp4, file: &[u8], there: usize, samples: usize) {
    while !reader.advance(&file[..there], there as u64, samples).unwrap() {}
}

fn so_far(reader: &mut GrowingMp4) -> Option<Presentation> {
    reader.so_far(|| IDENTITY).map(|found| found.expect("it can be sent"))
}

/// Bytes of each fragment of a file, with its media.
fn fragments(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let found = file.windows(4).enumerate().filter(|(_, code)| code == b"moof");
    let end = |at: usize| {
        let size = file[at..].first_chunk::<4>().expect("a box");
        at + u32::from_be_bytes(*size) as usize
    };
    // Padding lies between a fragment and its media.
    found.map(|(at, _)| at - 4..end(end(end(at - 4)))).collect()
}

#[test]
fn samples_of_whole_fragments_are_there_and_stay() {
    for samples in [usize::MAX, 3] {
        let file = pieces::fragmented(0x2_0000);
        let whole = demux(&file).unwrap();
        let ends: Vec<usize> = fragments(&file).into_iter().map(|one| one.end).collect();
        let mut reader = GrowingMp4::default();
        for there in 0..=file.len() {
            read(&mut reader, &file, there, samples);
            let fragments = ends.iter().filter(|&&end| end <= there).count();
            let Some(found) = so_far(&mut reader) else {
                assert_eq!(fragments, 0, "{there} bytes");
                continue;
            };
            assert!(reader.position() >= ends[fragments - 1] as u64, "{there} bytes");
            assert_eq!(found.file_bytes(), reader.position());
            for track in 0..whole.tracks().len() {
                let (now, mut all) = (self::samples(&found, track), self::samples(&whole, track));
                assert_eq!(now.len(), all.len() * fragments / ends.len(), "{there} bytes");
                // The last one lasts until the next, which a gap may delay.
                all.truncate(now.len());
                let last = all.last_mut().expect("a sample");
                last.duration = now[now.len() - 1].duration;
                assert_eq!(now, all, "{there} bytes");
            }
        }
        assert_eq!(so_far(&mut reader), Some(whole.clone()));
        let finished = reader.finish(&file[..], file.len() as u64, || IDENTITY).unwrap();
        assert_eq!(finished, whole);
    }
}

#[test]
fn the_rest_of_a_fragment_counts_when_the_recorder_is_gone() {
    let file = pieces::fragmented(0x2_0000);
    let last = fragments(&file).pop().expect("fragments");
    let file = &file[..last.start + 440];
    let mut reader = GrowingMp4::default();
    read(&mut reader, file, file.len(), usize::MAX);
    let before = so_far(&mut reader).unwrap();
    let found = reader.finish(file, file.len() as u64, || IDENTITY).unwrap();
    assert_eq!(found, demux(file).unwrap());
    assert!(samples(&found, 0).len() > samples(&before, 0).len());
}

#[test]
fn files_whose_index_is_not_there_have_nothing_yet() {
    let file = pieces::fragmented(0);
    let mut reader = GrowingMp4::default();
    assert!(reader.so_far(|| IDENTITY).is_none());
    read(&mut reader, &file, fragments(&file)[0].start, usize::MAX);
    assert!(reader.so_far(|| IDENTITY).is_none(), "no fragment");
    let whole = made::file(&[made::Trak::of(1, made::PLACE)]);
    let mut reader = GrowingMp4::default();
    read(&mut reader, &whole, whole.len(), usize::MAX);
    assert!(reader.so_far(|| IDENTITY).is_none(), "an ordinary file");
}

fn aac() -> Codec {
    Codec::Aac(AacConfig {
        specific: vec![0x11, 0x90],
        object_type: 2,
        rate_hz: 48_000,
        channels: 2,
    })
}

/// Adds frames of sound of these seconds, and returns the bytes so far.
fn push(writer: &mut Fmp4Writer, track: usize, seconds: std::ops::Range<i64>, out: &mut Vec<u8>) {
    for time in (seconds.start * 48_000..seconds.end * 48_000).step_by(960) {
        let bytes = vec![time as u8; 2 * 960];
        let unit = AccessUnit { time, bytes, is_start: true, is_after_loss: false };
        writer.push(track, unit, out).unwrap();
    }
}

#[test]
fn a_track_that_begins_later_is_behind_the_others() {
    let mut writer = Fmp4Writer::new(&[aac(), aac()]).unwrap();
    let (mut file, mut reader) = (Vec::new(), GrowingMp4::default());
    push(&mut writer, 1, 0..9, &mut file);
    read(&mut reader, &file, file.len(), usize::MAX);
    let mut drawn = 0;
    let mut draw = || {
        drawn += 1;
        RtpIdentity { ssrc: drawn, ..IDENTITY }
    };
    let before = reader.so_far(&mut draw).expect("it has begun").unwrap();
    let named = |found: &Presentation| -> Vec<_> {
        found.tracks().iter().map(|track| (track.id, track.identity.ssrc)).collect()
    };
    let [first] = named(&before)[..] else { panic!("{before:?}") };
    assert_eq!(first.0, 2);
    for second in 9..20 {
        push(&mut writer, 0, second..second + 1, &mut file);
        push(&mut writer, 1, second..second + 1, &mut file);
    }
    read(&mut reader, &file, file.len(), usize::MAX);
    let after = reader.so_far(&mut draw).expect("it goes on").unwrap();
    let [same, second] = named(&after)[..] else { panic!("{after:?}") };
    assert_eq!((same, second.0), (first, 1));
    writer.finish(&mut file);
    let finished = reader.finish(&file[..], file.len() as u64, draw).unwrap();
    assert_eq!(named(&finished), [same, second]);
}

/// Blocks that are not full yet would change with the next fragment.
#[test]
fn blocks_of_pcm_stay_as_they_are() {
    let form = PcmConfig { form: PcmForm::L16, rate_hz: 48_000, channels: 1 };
    let mut writer = Fmp4Writer::new(&[Codec::Pcm(form)]).unwrap();
    let (mut file, mut reader) = (Vec::new(), GrowingMp4::default());
    let mut before: Vec<MediaSample> = Vec::new();
    for second in 0..20 {
        push(&mut writer, 0, second..second + 1, &mut file);
        read(&mut reader, &file, file.len(), usize::MAX);
        let Some(found) = so_far(&mut reader) else { continue };
        let now = samples(&found, 0);
        assert!(now.starts_with(&before), "{second} s");
        before = now;
    }
    writer.finish(&mut file);
    let finished = reader.finish(&file[..], file.len() as u64, || IDENTITY).unwrap();
    let all = samples(&finished, 0);
    assert!(all.starts_with(&before) && all.len() > before.len());
    assert_eq!(finished.sample_bytes(), 20 * 48_000 * 2);
}
