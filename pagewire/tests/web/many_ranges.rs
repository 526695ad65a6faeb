// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments with only the pictures of an interleaved film, which are scattered over the file.
//!
//! Does not measure the cost; `pagewire lab hls` does.

use crate::fragments::track_fragments;
use crate::harness::{Server, film};
use crate::listed::{hls, segment};
use crate::site::fetch;

/// Makes a film of 12 s whose pictures lie between chunks of sound.
fn film(test: &str) -> Option<std::path::PathBuf> {
    let mut command = film::ffmpeg();
    command.args(["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25:duration=12"]);
    for pitch in ["440", "880"] {
        command.args(["-f", "lavfi", "-i", &format!("sine=frequency={pitch}:duration=12")]);
    }
    command.args(["-map", "0", "-map", "1", "-map", "2", "-c:a", "aac", "-b:a", "96k"]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-pix_fmt", "yuv420p"]);
    film::or_skip(test, film::made(&mut command, "interleaved.mp4"))
}

#[test]
fn segments_of_many_ranges_are_sent_without_a_copy_by_few_calls() {
    let test = "segments_of_many_ranges_are_sent_without_a_copy_by_few_calls";
    let Some(film) = film(test) else { return };
    let server = Server::with_options(&[("film.mp4", &film)], &[]);
    let (_, playlists) = hls(&server, "film.mp4");
    let counted = |name: &str| server.index()["server"][name].as_u64().expect("a count");
    let pictures = &playlists[0];
    assert_eq!(pictures.segments.len(), 2, "of 6 s each: {pictures:?}");
    for listed in &pictures.segments {
        let before = (counted("calls"), counted("bytes_copied"));
        let whole = segment(&server, listed);
        let (calls, copied) = (counted("calls") - before.0, counted("bytes_copied") - before.1);
        let fragments = track_fragments(&whole);
        let samples: u32 = fragments.values().map(|track| track.samples).sum();
        assert!(fragments.len() == 1 && samples == 150, "pictures alone: {fragments:?}");
        assert!(whole.len() > 256 << 10, "longer than a step: {} bytes", whole.len());
        // Two calls a step, and the bytes that a socket refuses: an epoll and a third.
        let most = 8 + 5 * (whole.len() as u64 / (64 << 10));
        assert!(calls <= most, "{calls} calls for {samples} pictures, {} bytes", whole.len());
        assert_eq!(copied, 0, "{} bytes", whole.len());

        // Short ranges are copied together, by another code path to the same bytes.
        let pieces: Vec<u64> = (0..whole.len() as u64).step_by(50_000).collect();
        let mut joined = Vec::new();
        for from in pieces {
            let bytes = 50_000.min(whole.len() as u64 - from);
            let answer = fetch(&server, &listed.path, Some((from, bytes)));
            assert_eq!(answer.status, 206, "{}", answer.head);
            joined.extend(answer.body);
        }
        assert!(joined == whole, "{listed:?}");
    }
    server.stop();
}
