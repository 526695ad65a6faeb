// SPDX-License-Identifier: MIT OR Apache-2.0
//! ffmpeg over RTSP and UDP: its copy has the frames of the file.
//!
//! Frames are compared by stream, time stamps, size and MD5 of their data, in order. One is missing
//! because of ffmpeg: its depacketiser (libavformat/rtpdec_mpegts.c) has no end. A PES packet of
//! video has no length, and only the start of the next one ends it, so at BYE the last frame of the
//! picture is dropped. Sound has lengths: all of it must be present.

use std::ffi::OsStr;
use std::process::Command;

use crate::harness::film::{FRAMES_PER_SECOND, GROUP_SECONDS};
use crate::{client, serve_film};

pub(crate) const PICTURE: usize = 0;
pub(crate) const SOUND: usize = 1;

/// A frame as ffmpeg's framemd5 muxer writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    stream: usize,
    /// Decoding and presentation time, in the stream's time base.
    times: [i64; 2],
    pub(crate) bytes: u64,
    pub(crate) hash: String,
}

impl Frame {
    /// Returns the frame as one of another stream.
    pub(crate) fn in_stream(self, stream: usize) -> Frame {
        Frame { stream, ..self }
    }

    /// Returns the frame without its times, which a recorder counts anew.
    pub(crate) fn without_times(self) -> Frame {
        Frame { times: [0; 2], ..self }
    }
}

/// Returns the frames of one stream that ffmpeg reads.
pub(crate) fn of_stream(frames: &[Frame], stream: usize) -> Vec<Frame> {
    frames.iter().filter(|frame| frame.stream == stream).cloned().collect()
}

/// Returns the frames of an input as copied, not decoded; `None` where there is no ffmpeg.
pub(crate) fn frames(
    test: &str,
    before: &[&str],
    input: &OsStr,
    after: &[&str],
) -> Option<Vec<Frame>> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "warning"]).args(before).arg("-i").arg(input);
    command.args(["-map", "0", "-c", "copy"]).args(after).args(["-f", "framemd5", "-"]);
    let text = client(test, &mut command)?.succeeded();
    Some(parse(&String::from_utf8(text).expect("framemd5 writes text")))
}

/// Parses frames from the output of the framemd5 muxer.
pub(crate) fn parse(text: &str) -> Vec<Frame> {
    text.lines().filter(|line| !line.starts_with('#')).map(frame).collect()
}

/// Parses `STREAM, DTS, PTS, DURATION, BYTES, MD5`; side data of the container may follow and is
/// left out.
fn frame(line: &str) -> Frame {
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    let time = |at: usize| fields[at].parse().expect("a time");
    Frame {
        stream: fields[0].parse().expect("a stream"),
        times: [time(1), time(2)],
        bytes: fields[4].parse().expect("a size"),
        hash: fields[5].to_owned(),
    }
}

/// Returns the position of `part` in `whole`, by sizes and hashes.
pub(crate) fn position(part: &[Frame], whole: &[Frame]) -> Option<usize> {
    let same = |(a, b): (&Frame, &Frame)| a.bytes == b.bytes && a.hash == b.hash;
    whole.windows(part.len()).position(|window| window.iter().zip(part).all(same))
}

#[track_caller]
pub(crate) fn assert_frames(received: &[Frame], sent: &[Frame]) {
    if let Some(difference) = difference(received, sent) {
        panic!("{difference}");
    }
}

/// Describes the first place where frames differ.
fn difference(received: &[Frame], sent: &[Frame]) -> Option<String> {
    let same = received.iter().zip(sent).take_while(|(a, b)| a == b).count();
    (received != sent).then(|| {
        format!(
            "{} frames, not {}; the same up to frame {same}: {:?}, not {:?}",
            received.len(),
            sent.len(),
            received.get(same),
            sent.get(same)
        )
    })
}

/// Checks that these streams of a file were received, each whole and in order; returns the
/// difference otherwise. The last frame of a picture may be missing: ffmpeg's library drops it at
/// BYE.
pub(crate) fn check_streams(
    received: &[Frame],
    sent: &[Frame],
    streams: &[usize],
) -> Result<(), String> {
    for (index, &stream) in streams.iter().enumerate() {
        let expected = of_stream(sent, stream);
        let found = of_stream(received, index);
        let found: Vec<_> = found.into_iter().map(|frame| frame.in_stream(stream)).collect();
        let is_picture = stream % 2 == PICTURE;
        let cut = usize::from(is_picture && found.len() + 1 == expected.len());
        if let Some(difference) = difference(&found, &expected[..expected.len() - cut]) {
            return Err(format!("stream {stream}: {difference}"));
        }
    }
    Ok(())
}

#[test]
fn copies_every_frame() {
    let test = "ffmpeg::copies_every_frame";
    let Some((server, film)) = serve_film(test) else { return };
    let Some(sent) = frames(test, &["-copyts"], film.path.as_os_str(), &[]) else { return };
    let url = server.rtsp_url("film.ts");
    let options = ["-copyts", "-rtsp_transport", "udp"];
    let Some(received) = frames(test, &options, OsStr::new(&url), &[]) else { return };

    let picture = of_stream(&sent, PICTURE);
    assert!(picture.len() > 1000, "{} frames of picture in the film", picture.len());
    assert_frames(&of_stream(&received, PICTURE), &picture[..picture.len() - 1]);
    assert_frames(&of_stream(&received, SOUND), &of_stream(&sent, SOUND));
    server.stop();
}

#[test]
fn seeks_to_the_key_frame_before() {
    let test = "ffmpeg::seeks_to_the_key_frame_before";
    let Some((server, film)) = serve_film(test) else { return };
    let Some(sent) = frames(test, &[], film.path.as_os_str(), &[]) else { return };
    let url = server.rtsp_url("film.ts");
    let options = ["-rtsp_transport", "udp", "-ss", "30"];
    let Some(received) = frames(test, &options, OsStr::new(&url), &["-t", "5"]) else { return };

    let picture = of_stream(&received, PICTURE);
    assert!(picture.len() > 50, "{} frames of picture in 5 s", picture.len());
    let start =
        position(&picture, &of_stream(&sent, PICTURE)).expect("frames of the film in order");
    let wanted = 30 * FRAMES_PER_SECOND as usize;
    let group = (GROUP_SECONDS * FRAMES_PER_SECOND) as usize;
    assert_eq!(start % group, 0, "frame {start} is no key frame");
    assert!((wanted - group..=wanted).contains(&start), "starts at frame {start}, not {wanted}");
    let sound = of_stream(&received, SOUND);
    assert!(position(&sound, &of_stream(&sent, SOUND)).is_some(), "sound of the film in order");
    server.stop();
}
