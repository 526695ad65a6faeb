// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the fragments of a recording are found by time and from the end of the file, as a
//! walk over all of them finds them, with few reads, and whatever the media look like.

use std::cell::Cell;
use std::io;

use media::mp4::{FileFragment, FragmentedFile};
use media::mux::{MediaWriter, WriterKind};
use media::tracks::{H264Config, PcmConfig, PcmForm};
use media::{AccessUnit, Codec, DemuxError, ReadAt, TICKS_PER_SECOND};

/// Main profile, 16 × 16, without usability information.
const SET: [u8; 7] = [0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80];
const PICTURE_SET: [u8; 2] = [0x68, 0xce];

/// Pictures a second, and from one key frame to the next.
const RATE: i64 = 25;
const KEY_EVERY: i64 = 75;

/// Blocks of sound of 20 ms, at 8000 samples a second.
const BLOCKS_A_SECOND: i64 = 50;

fn codecs() -> [Codec; 2] {
    let h264 = Codec::H264(H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x0a],
        sequence_sets: vec![SET.to_vec()],
        picture_sets: vec![PICTURE_SET.to_vec()],
    });
    [h264, Codec::Pcm(PcmConfig { form: PcmForm::ALaw, rate_hz: 8000, channels: 1 })]
}

/// A recording of `seconds`, whose pictures hold `filling`.
fn recording(seconds: i64, filling: impl Fn(i64) -> Vec<u8>) -> Vec<u8> {
    let mut writer = MediaWriter::new(WriterKind::FragmentedMp4, &codecs()).unwrap();
    let mut file = Vec::new();
    let mut blocks = 0;
    for number in 0..seconds * RATE {
        let is_start = number % KEY_EVERY == 0;
        let nal = [&[if is_start { 0x65 } else { 0x41 }, 0x80][..], &filling(number)].concat();
        let bytes = [&(nal.len() as u32).to_be_bytes()[..], &nal].concat();
        let time = number * 90_000 / RATE;
        let picture = AccessUnit { time, bytes, is_start, is_after_loss: false };
        writer.push(0, picture, &mut file).unwrap();
        while blocks * RATE <= number * BLOCKS_A_SECOND {
            let (time, bytes) = (blocks * 8000 / BLOCKS_A_SECOND, vec![0xd5; 160]);
            let sound = AccessUnit { time, bytes, is_start: true, is_after_loss: false };
            writer.push(1, sound, &mut file).unwrap();
            blocks += 1;
        }
    }
    writer.end(&mut file);
    file
}

/// A file that counts the bytes that are read.
struct Counted<'a>(&'a [u8], Cell<u64>);

impl ReadAt for Counted<'_> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.set(self.1.get() + bytes.len() as u64);
        self.0.read_exact_at(bytes, offset)
    }
}

fn open(file: &[u8]) -> FragmentedFile<Counted<'_>> {
    FragmentedFile::open(Counted(file, Cell::new(0)), file.len() as u64).unwrap()
}

fn walk(file: &FragmentedFile<Counted<'_>>) -> Vec<FileFragment> {
    let mut next = file.first().unwrap();
    let mut all = Vec::new();
    while let Some(here) = next {
        next = file.next(&here).unwrap();
        all.push(here);
    }
    all
}

#[test]
fn a_time_and_the_end_are_found_with_few_reads() {
    let bytes = recording(60, |_| vec![0xaa; 20_000]);
    let file = open(&bytes);
    let all = walk(&file);
    assert!(all.len() > 25 && bytes.len() > 25 << 20);
    assert!(all.iter().any(|one| !file.is_start(one)), "key frames are three seconds apart");
    assert_eq!(all.last().unwrap().file.end, bytes.len() as u64);
    assert_eq!(file.end_ticks(all.last().unwrap()), 60 * TICKS_PER_SECOND);
    let read = || file.file().1.replace(0);
    read();
    assert_eq!(file.last().unwrap().as_ref(), all.last());
    assert!(read() < 4 << 20);
    let starts: Vec<_> = all.iter().filter(|one| file.is_start(one)).collect();
    for ms in (0..62_000).step_by(1333) {
        let ticks = ms * TICKS_PER_SECOND / 1000;
        let before = starts.iter().rfind(|one| file.ticks(one) <= ticks).unwrap();
        assert_eq!(file.start_before(ticks).unwrap().as_ref(), Some(*before), "{ms} ms");
        assert!(read() < bytes.len() as u64 / 4, "{ms} ms");
    }
    // Also where a fragment begins exactly then.
    let begins = all.iter().map(|one| file.ticks(one));
    for ticks in begins.flat_map(|ticks| [ticks, ticks + 1]).skip(1) {
        let before = all.iter().rfind(|one| file.ticks(one) < ticks).unwrap();
        assert_eq!(file.last_before(&all[0], ticks).unwrap(), *before, "{ticks}");
        assert!(read() < bytes.len() as u64 / 2, "{ticks}");
    }
}

#[test]
fn bytes_that_are_none_end_a_file() {
    let mut bytes = recording(12, |_| vec![0xaa; 2000]);
    let whole = walk(&open(&bytes));
    bytes.extend([0; 300_000]);
    let file = open(&bytes);
    assert_eq!(file.last().unwrap().as_ref(), whole.last());
    assert_eq!(file.last_before(&whole[0], u64::MAX).unwrap(), whole[whole.len() - 1]);
    assert_eq!(file.following(&whole[whole.len() - 1]).unwrap(), None);
    assert!(file.next(&whole[whole.len() - 1]).is_err());
    let start = file.start_before(u64::MAX).unwrap();
    assert_eq!(start.as_ref(), whole.iter().rfind(|one| file.is_start(one)));
}

#[test]
fn the_last_fragment_is_the_last_whole_one_wherever_a_file_ends() {
    let bytes = recording(9, |_| vec![0xaa; 2000]);
    let whole = open(&bytes);
    let all = walk(&whole);
    let header = whole.header().len();
    for end in (header..bytes.len()).step_by(997).chain([bytes.len() - 1]) {
        let last = open(&bytes[..end]).last().unwrap();
        let found = all.iter().rfind(|one| one.file.end <= end as u64);
        assert_eq!(last.as_ref(), found, "{end} bytes");
    }
    let with_index = [&bytes[..], &[0, 0, 0, 8], b"mfra"].concat();
    assert_eq!(open(&with_index).last().unwrap().as_ref(), all.last());
}

#[test]
fn media_that_look_like_fragments_are_mistaken_for_none() {
    let plain = recording(12, |_| vec![0xaa; 100]);
    let fragments = walk(&open(&plain));
    let copy = &plain[fragments[1].file.start as usize..fragments[3].file.end as usize];
    // Whole fragments, heads of some, and nothing but their type.
    for fake in [copy, &copy[..200], b"moof".repeat(50).as_slice()] {
        let bytes = recording(30, |_| fake.repeat(40_000 / fake.len() + 1));
        let file = open(&bytes);
        let all = walk(&file);
        assert_eq!(file.last().unwrap().as_ref(), all.last());
        let starts: Vec<_> = all.iter().filter(|one| file.is_start(one)).collect();
        for second in 0..31 {
            let ticks = second * TICKS_PER_SECOND;
            let before = starts.iter().rfind(|one| file.ticks(one) <= ticks).unwrap();
            assert_eq!(file.start_before(ticks).unwrap().as_ref(), Some(*before), "{second} s");
        }
    }
}

#[test]
fn a_fragment_is_copied_with_another_number_and_other_times() {
    let bytes = recording(9, |_| vec![0xaa; 2000]);
    let file = open(&bytes);
    let second = file.next(&file.first().unwrap().unwrap()).unwrap().unwrap();
    let moved = second.moved(7, &[Some(1 << 40), None]);
    let media = &bytes[second.media().start as usize..second.media().end as usize];
    let copy = [file.header(), &moved, media].concat();
    let copied = open(&copy).first().unwrap().unwrap();
    assert_eq!((second.number, copied.number), (2, 7));
    assert_eq!(copied.runs[0].unwrap().decode, 1 << 40);
    assert_eq!(copied.runs[0].unwrap().duration, second.runs[0].unwrap().duration);
    assert_eq!(copied.runs[1], second.runs[1]);
    assert_eq!(copied.media().end - copied.media().start, media.len() as u64);
}

#[test]
fn other_files_are_refused_with_the_place() {
    let bytes = recording(3, |_| vec![0xaa; 2000]);
    let header = open(&bytes).header().len();
    let refused =
        |file: &[u8]| match FragmentedFile::open(Counted(file, Cell::new(0)), file.len() as u64) {
            Err(DemuxError::Refused(refusal)) => refusal.to_string(),
            opened => panic!("{:?}", opened.map(|file| file.header().len())),
        };
    assert!(refused(&bytes[header..]).contains("no whole moov before the first fragment"));
    assert!(refused(&bytes[..header - 1]).contains("broken at byte"));
    assert!(refused(b"").contains("no whole moov"));
    let mut no_fragments = bytes.clone();
    let at = bytes.windows(4).position(|code| code == b"mvex").unwrap();
    no_fragments[at..at + 4].copy_from_slice(b"free");
    assert!(refused(&no_fragments).contains("no tracks in fragments"));

    let other = [&bytes[..], &[0, 0, 0, 8], b"free"].concat();
    let file = open(&other);
    let mut last = file.first().unwrap().unwrap();
    let fault = loop {
        match file.next(&last) {
            Ok(next) => last = next.expect("the box behind is refused"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(fault.contains(&format!("byte {}: box free for a fragment", bytes.len())), "{fault}");
}
