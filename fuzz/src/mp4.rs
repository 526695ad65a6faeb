// SPDX-License-Identifier: MIT OR Apache-2.0
//! MP4 files: `media::mp4::Mp4Demuxer`, by the bytes of a file.
//!
//! The input is a whole file, and the seeds are small ones made by ffmpeg. Its first byte, which is
//! no part of the file, says how many samples are read at a time.
//!
//! Checked: the result does not depend on how much is read at a time; every sample lies in the
//! file, in order of decoding; a stored presentation is the same; refusals name a reason. Memory is
//! bounded by `fuzz/run.sh`.

use media::mp4::{Mp4Demuxer, is_mp4};
use media::{DemuxError, PlanKey, Presentation, RtpIdentity};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "mp4", run };

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

fn run(data: &[u8]) {
    let Some((&samples, file)) = data.split_first() else { return };
    let _ = is_mp4(file);
    let whole = demux(file, usize::MAX);
    let parts = demux(file, samples.into());
    match (whole, parts) {
        (Ok(whole), Ok(parts)) => {
            assert_eq!(whole, parts);
            check(&whole);
            crate::trick::check_tracks(&whole, file);
        }
        (Err(whole), Err(parts)) => {
            assert_eq!(whole, parts);
            assert!(!whole.is_empty());
        }
        other => panic!("read at once and in parts: {other:?}"),
    }
}

/// The presentation of a file that is read `samples` samples at a time, or why it is refused.
fn demux(file: &[u8], samples: usize) -> Result<Presentation, String> {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    loop {
        match demuxer.advance(file, samples) {
            Ok(true) => return demuxer.finish(|| IDENTITY).map_err(|refusal| refusal.to_string()),
            Ok(false) => {}
            Err(DemuxError::Unreadable(error)) => panic!("read past the end of the file: {error}"),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Checks the properties of every presentation.
fn check(found: &Presentation) {
    assert!(!found.tracks().is_empty() && found.duration_ticks() > 0);
    assert!(found.sample_bytes() <= found.file_bytes() * found.tracks().len() as u64);
    for track in found.tracks() {
        let mut decode = 0;
        let mut count = 0;
        for sample in track.samples.samples(0..track.samples.len()) {
            let end = sample.file_offset + u64::from(sample.bytes);
            assert!(end <= found.file_bytes(), "{sample:?} past the end of the file");
            assert!(sample.decode >= decode, "{sample:?} is decoded before {decode}");
            decode = sample.decode;
            count += 1;
        }
        assert_eq!(count, track.samples.len());
        assert!(!track.codec.name().is_empty() && track.codec.clock_rate_hz() > 0);
    }
    let key = PlanKey { path: b"a".to_vec(), bytes: found.file_bytes(), modified_ns: 7, inode: 2 };
    assert_eq!(Presentation::decode(&found.encode(&key), &key).as_ref(), Ok(found));
}
