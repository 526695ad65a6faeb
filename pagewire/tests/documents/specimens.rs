// SPDX-License-Identifier: MIT OR Apache-2.0
//! Specimens: three seconds of each codec in each container that can hold it, made byte by byte.
//!
//! Samples are beginnings of units followed by zeros: demuxers and payloaders accept them, decoders
//! do not.
//!
//! Sources: ISO/IEC 14496-12 §8; RFC 9559; ISO/IEC 14496-15 (avcC, hvcC); AV1-ISOBMFF §2.3; ETSI TS
//! 102 366 annex F (dac3, dec3); "Encapsulation of Opus in ISO Base Media File Format" §4.3.

use media::Container;

use crate::harness::clip::Clip;

/// Returns a file of `container` whose one track is of this codec (a name in `PAYLOAD_FORMATS`);
/// none where such a file cannot hold it.
pub(crate) fn file(container: Container, codec: &str) -> Option<Vec<u8>> {
    // A transport stream holds every codec and is sent as it is.
    if container == Container::TransportStream || codec == "MPEG-TS" {
        let is_whole = container == Container::TransportStream && codec == "MPEG-TS";
        return is_whole.then(|| Clip::of_seconds(7, SECONDS).bytes());
    }
    let track = track(codec);
    match container {
        Container::Mp4 => Some(mp4(&track)),
        Container::FragmentedMp4 => Some(fragmented_mp4(&track)),
        Container::Matroska => Some(matroska(&track)),
        Container::MpegAudio => (codec == "MPEG audio").then(mpeg_audio),
        Container::Adts => (codec == "AAC").then(adts),
        Container::Wav => wav(codec),
        other => panic!("no specimens of {}: add them here", other.name()),
    }
}

/// A codec as containers describe it.
struct Track {
    /// The entry of an MP4 file's `stsd` box.
    entry: Vec<u8>,
    /// CodecID and CodecPrivate of Matroska.
    codec_id: &'static str,
    private: Vec<u8>,
    is_video: bool,
    /// The first bytes of each sample.
    head: Vec<u8>,
}

impl Track {
    /// Returns the samples, each with true where play can start with it.
    fn samples(&self) -> impl Iterator<Item = (Vec<u8>, bool)> {
        (0..SAMPLES).map(|number| {
            let mut sample = self.head.clone();
            sample.resize(SAMPLE_BYTES, 0);
            (sample, !self.is_video || number % SAMPLES_PER_SECOND == 0)
        })
    }
}

fn track(codec: &str) -> Track {
    let picture = |code: &[u8; 4], config: &[u8; 4], codec_id, private: &[u8], head: &[u8]| {
        let fields = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 70]].concat();
        let entry = boxed(code, &[&fields, &boxed(config, &[private])]);
        Track { entry, codec_id, private: private.to_vec(), is_video: true, head: head.to_vec() }
    };
    let sound = |code: &[u8; 4], boxes: &[u8], codec_id, private: &[u8]| {
        let fields = [0, 1, 0, 0, 2 << 16 | 16, 0, RATE_HZ << 16];
        let entry = boxed(code, &[&words(&fields), boxes]);
        Track { entry, codec_id, private: private.to_vec(), is_video: false, head: vec![0x21] }
    };
    match codec {
        "H.264" => {
            let record = [1, 100, 0, 31, 0xff, 0xe0, 0];
            picture(b"avc1", b"avcC", "V_MPEG4/ISO/AVC", &record, &[0, 0, 0, 44, 0x65])
        }
        "H.265" => {
            let mut record = [0; 23];
            (record[0], record[1], record[12], record[21]) = (1, 1, 93, 0x0f);
            picture(b"hvc1", b"hvcC", "V_MPEGH/ISO/HEVC", &record, &[0, 0, 0, 44, 0x26, 1])
        }
        // One open bitstream unit, a frame, without a size.
        "AV1" => picture(b"av01", b"av1C", "V_AV1", &[0x81, 4, 0x0c, 0], &[6 << 3]),
        "AAC" => {
            let specific = [0x11, 0x90];
            let decoder = [0x40, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2];
            let descriptor = [&[3, 25, 0, 1, 0, 4, 17][..], &decoder, &specific, &[6, 1, 2]];
            let esds = boxed(b"esds", &[&[0; 4], &descriptor.concat()]);
            sound(b"mp4a", &esds, "A_AAC", &specific)
        }
        "MPEG audio" => sound(b".mp3", &[], "A_MPEG/L3", &[]),
        "Opus" => {
            let dops = boxed(b"dOps", &[&[0, 2, 0, 0, 0, 0, 0xbb, 0x80, 0, 0, 0]]);
            sound(b"Opus", &dops, "A_OPUS", &[])
        }
        "AC-3" => sound(b"ac-3", &boxed(b"dac3", &[&[0x10, 0x11, 0x40]]), "A_AC3", &[]),
        "E-AC-3" => {
            let dec3 = boxed(b"dec3", &[&[6, 0, 0x20, 4, 0]]);
            sound(b"ec-3", &dec3, "A_EAC3", &[])
        }
        // In MP4 under the QuickTime names. The demuxer of Matroska accepts none.
        "8-bit PCM" => pcm8(sound(b"raw ", &[], "A_PCM/INT/LIT", &[])),
        "16-bit PCM" => sound(b"sowt", &[], "A_PCM/INT/LIT", &[]),
        "24-bit PCM" => sound(b"in24", &[], "A_PCM/INT/BIG", &[]),
        "A-law" => sound(b"alaw", &[], "A_MS/ACM", &[]),
        "mu-law" => sound(b"ulaw", &[], "A_MS/ACM", &[]),
        other => panic!("no specimen of {other}: add one here"),
    }
}

/// With 8 bits a sample in the entry's field.
fn pcm8(mut track: Track) -> Track {
    track.entry[ENTRY_BITS] = 8;
    track
}

fn boxed(code: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(8 + body.len() as u32).to_be_bytes(), code.as_slice(), &body].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns `ftyp` and `mdat` with all samples, and the offset of the first.
fn media_boxes(track: &Track) -> (Vec<u8>, u32) {
    let ftyp = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
    let samples: Vec<u8> = track.samples().flat_map(|(bytes, _)| bytes).collect();
    let place = ftyp.len() as u32 + 8;
    ([ftyp, boxed(b"mdat", &[&samples])].concat(), place)
}

/// Returns `moov` with these sample tables behind `stsd`, and further boxes.
fn moov(track: &Track, tables: &[Vec<u8>], further: &[u8]) -> Vec<u8> {
    let stsd = boxed(b"stsd", &[&words(&[0, 1]), &track.entry]);
    let minf = boxed(b"minf", &[&boxed(b"stbl", &[&stsd, &tables.concat()])]);
    let times = words(&[0, 0, 0, 1000, 0, 0x55c4_0000]);
    let mdia = boxed(b"mdia", &[&boxed(b"mdhd", &[&times]), &minf]);
    let tkhd = boxed(b"tkhd", &[&words(&[7, 0, 0, 1]), &[0; 68]]);
    let mvhd = boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]]);
    boxed(b"moov", &[&mvhd, &boxed(b"trak", &[&tkhd, &mdia]), further])
}

fn mp4(track: &Track) -> Vec<u8> {
    let (media, place) = media_boxes(track);
    let starts = (1..).zip(track.samples()).filter(|(_, (_, is_start))| *is_start);
    let starts: Vec<_> = starts.map(|(number, _)| number).collect();
    let tables = [
        boxed(b"stts", &[&words(&[0, 1, SAMPLES, SAMPLE_MS])]),
        boxed(b"stsz", &[&words(&[0, SAMPLE_BYTES as u32, SAMPLES])]),
        boxed(b"stsc", &[&words(&[0, 1, 1, SAMPLES, 1])]),
        boxed(b"stco", &[&words(&[0, 1, place])]),
        boxed(b"stss", &[&words(&[0, starts.len() as u32]), &words(&starts)]),
    ];
    [media, moov(track, &tables, &[])].concat()
}

/// Returns a file with one fragment, behind the samples.
fn fragmented_mp4(track: &Track) -> Vec<u8> {
    let (media, place) = media_boxes(track);
    let empty = |code: &[u8; 4]| boxed(code, &[&words(&[0, 0])]);
    let sizes = boxed(b"stsz", &[&words(&[0, 0, 0])]);
    let tables = [empty(b"stts"), sizes, empty(b"stsc"), empty(b"stco")];
    let trex = words(&[0, 1, 1, SAMPLE_MS, SAMPLE_BYTES as u32, 0]);
    let moov = moov(track, &tables, &boxed(b"mvex", &[&boxed(b"trex", &[&trex])]));
    // An offset from the fragment; flags for each sample.
    let at = (media.len() + moov.len()) as u32;
    let is_no_start = 0x1_0000;
    let flags: Vec<_> =
        track.samples().map(|(_, is_start)| if is_start { 0 } else { is_no_start }).collect();
    let run = [0x401, SAMPLES, place.wrapping_sub(at)];
    let trun = boxed(b"trun", &[&words(&run), &words(&flags)]);
    let tfhd = boxed(b"tfhd", &[&words(&[0x2_0000, 1])]);
    let moof = boxed(b"moof", &[&boxed(b"traf", &[&tfhd, &trun])]);
    [media, moov, moof].concat()
}

/// Returns an element of EBML; its size is written in four bytes.
fn element(id: u32, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let id = id.to_be_bytes();
    let zeros = id.iter().take_while(|&&byte| byte == 0).count();
    [&id[zeros..], &(content.len() as u32 | 1 << 28).to_be_bytes(), &content].concat()
}

fn matroska(track: &Track) -> Vec<u8> {
    let rate = element(0xb5, &[&(RATE_HZ as f32).to_be_bytes()]);
    let entry = [
        element(0xd7, &[&[1]]),
        element(0x86, &[track.codec_id.as_bytes()]),
        element(0x63a2, &[&track.private]),
        element(0xe1, &[&rate, &element(0x9f, &[&[2]])]),
    ];
    let tracks = element(0x1654_ae6b, &[&element(0xae, &[&entry.concat()])]);
    // A block's time has 16 bits: one cluster holds all.
    let blocks = (0..).zip(track.samples()).flat_map(|(number, (sample, is_start))| {
        let time = (number * SAMPLE_MS as u16).to_be_bytes();
        let head = [0x81, time[0], time[1], u8::from(is_start) << 7];
        element(0xa3, &[&head, &sample])
    });
    let blocks: Vec<u8> = blocks.collect();
    let cluster = element(0x1f43_b675, &[&element(0xe7, &[&[0]]), &blocks]);
    let header = element(0x1a45_dfa3, &[&element(0x4282, &[b"matroska"])]);
    [header, element(0x1853_8067, &[&tracks, &cluster])].concat()
}

/// Frames of layer III: 24 ms each, 32 kb/s at 48 kHz.
fn mpeg_audio() -> Vec<u8> {
    let frame = [&[0xff, 0xfb, 0x14, 0][..], &[0; 92]].concat();
    frame.repeat(SECONDS as usize * 1000 / 24)
}

/// Frames of AAC-LC, stereo at 48 kHz: 1024 samples each.
fn adts() -> Vec<u8> {
    let bytes = SAMPLE_BYTES;
    let size = [(bytes >> 11) as u8 | 0x80, (bytes >> 3) as u8, (bytes << 5) as u8 | 0x1f, 0xfc];
    let mut frame = [&[0xff, 0xf1, 0x4c][..], &size].concat();
    frame.resize(bytes, 0x21);
    frame.repeat((u64::from(RATE_HZ) * SECONDS / 1024) as usize)
}

/// Returns PCM in stereo at 48 kHz; none for another codec.
fn wav(codec: &str) -> Option<Vec<u8>> {
    let (tag, bytes) = match codec {
        "8-bit PCM" => (1_u16, 1),
        "16-bit PCM" => (1, 2),
        "24-bit PCM" => (1, 3),
        "A-law" => (6, 1),
        "mu-law" => (7, 1),
        _ => return None,
    };
    let frame = 2 * bytes;
    let rates = [RATE_HZ, RATE_HZ * u32::from(frame)].map(u32::to_le_bytes).concat();
    let shorts = |shorts: [u16; 2]| shorts.map(u16::to_le_bytes).concat();
    let format = [shorts([tag, 2]), rates, shorts([frame, 8 * bytes])].concat();
    let sound = vec![0; usize::from(frame) * RATE_HZ as usize * SECONDS as usize];
    let chunk =
        |id: &[u8; 4], body: &[u8]| [id, &(body.len() as u32).to_le_bytes()[..], body].concat();
    let chunks = [&b"WAVE"[..], &chunk(b"fmt ", &format), &chunk(b"data", &sound)].concat();
    Some(chunk(b"RIFF", &chunks))
}

const SECONDS: u64 = 3;
const RATE_HZ: u32 = 48_000;
/// Offset of the bits of a sample in an entry of sound.
const ENTRY_BITS: usize = 27;
const SAMPLE_MS: u32 = 40;
const SAMPLES_PER_SECOND: u32 = 1000 / SAMPLE_MS;
const SAMPLES: u32 = SECONDS as u32 * SAMPLES_PER_SECOND;
/// Whole frames of stereo, at each width.
const SAMPLE_BYTES: usize = 48;
