// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the packet plan of a transport stream file: the place of each RTP packet's payload in the
//! file, its due time, and the places at which play can start.
//!
//! `cargo run -p pagewire-media --example packet_plan [FILE]`; without FILE, the repository's clip.

use std::error::Error;
use std::path::PathBuf;

use media::{RtpIdentity, Scanner, TICKS_PER_SECOND};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(CLIP), PathBuf::from);
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut scanner = Scanner::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        scanner.feed(piece);
    }
    let identity = RtpIdentity { ssrc: 0x1234_5678, first_sequence: 0, first_timestamp: 0 };
    let plan = scanner.finish(bytes.len() as u64, identity)?;
    let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND as f64;
    println!(
        "{}: {} RTP packets, {:.3} s, {} bit/s, wire image of {} bytes",
        path.display(),
        plan.packets(),
        seconds(plan.duration_ticks()),
        plan.bits_per_second(),
        plan.wire_bytes(),
    );
    for stream in plan.streams() {
        println!("PID {}: stream type 0x{:02x}", stream.pid, stream.stream_type);
    }
    for packet in 0..plan.packets().min(SHOWN) {
        let payload = plan.payload(packet);
        println!(
            "packet {packet}: due {:.6} s, {} TS packets from byte {}, header {:02x?}",
            seconds(plan.ticks(packet)),
            payload.ts_packets,
            payload.file_offset,
            plan.header(packet),
        );
    }
    let middle = plan.duration_ticks() / 2;
    println!("to play from {:.3} s on: packet {}", seconds(middle), plan.entry(middle));
    Ok(())
}

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pagewire/assets/clip.ts");
const PIECE_BYTES: usize = 256 << 10;
const SHOWN: u64 = 5;
