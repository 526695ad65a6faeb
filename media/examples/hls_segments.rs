// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints a media playlist of HTTP Live Streaming whose segments are byte ranges of a transport
//! stream file (RFC 8216 §4.3.2.2), and the bytes of tables that each segment needs in front.
//!
//! `cargo run -p pagewire-media --example hls_segments [FILE [SECONDS]]`; without FILE, the
//! repository's clip, without SECONDS, segments of 2 s.

use std::error::Error;
use std::path::PathBuf;

use media::{RtpIdentity, Scanner, SegmentPlan, TICKS_PER_SECOND};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let path = words.next().map_or_else(|| PathBuf::from(CLIP), PathBuf::from);
    let target_s = words.next().map_or(Ok(2), |word| word.to_string_lossy().parse())?;
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut scanner = Scanner::new();
    scanner.feed(&bytes);
    // Segments carry no RTP header, so the identity does not matter.
    let identity = RtpIdentity { ssrc: 0, first_sequence: 0, first_timestamp: 0 };
    let (plan, entry_points) = scanner.finish_with_starts(bytes.len() as u64, identity)?;
    let segments = SegmentPlan::cut(&plan, entry_points, target_s)?;
    println!("#EXTM3U\n#EXT-X-VERSION:4");
    println!("#EXT-X-TARGETDURATION:{}", segments.target_s());
    for segment in segments.list() {
        if segment.is_break {
            println!("#EXT-X-DISCONTINUITY");
        }
        println!("# tables in front: {} bytes", segments.tables(segment).len());
        println!("#EXTINF:{:.6},", segment.ticks as f64 / TICKS_PER_SECOND as f64);
        let length = segment.file.end - segment.file.start;
        println!("#EXT-X-BYTERANGE:{length}@{}", segment.file.start);
        println!("{}", path.file_name().unwrap_or_default().to_string_lossy());
    }
    println!("#EXT-X-ENDLIST");
    Ok(())
}

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pagewire/assets/clip.ts");
