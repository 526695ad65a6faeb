// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows the RTP packets of a hex dump and prints the report block of RFC 3550 about them.
//!
//! `cargo run -p pagewire-wire --example reception_report [FILE]`: each line of FILE is the arrival
//! time in milliseconds and the packet's first 12 bytes or more in hexadecimal digits; without it,
//! a dump with a loss, a late packet and a repetition is read.

use std::error::Error;
use std::time::Duration;

use wire::mp2t;
use wire::rtp::{Header, Reception};

fn main() -> Result<(), Box<dyn Error>> {
    let dump = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read_to_string(path)?,
        None => DUMP.to_owned(),
    };
    let mut reception = Reception::new(mp2t::CLOCK_RATE_HZ);
    let mut ssrc = None;
    for line in dump.lines().filter(|line| !line.trim().is_empty()) {
        let (arrival_ms, digits) = line.trim().split_once(' ').ok_or("line without two words")?;
        let (header, _) = Header::parse(&bytes(digits)?)?;
        ssrc = Some(header.ssrc);
        let update = reception.receive(&header, Duration::from_millis(arrival_ms.parse()?));
        println!("{:>5} at {arrival_ms:>4} ms: {update:?}", header.sequence);
    }
    let report = reception.report(ssrc.ok_or("no packet in the dump")?);
    println!("\n{report:#?}");
    let (expected, received, lost) = (reception.expected(), reception.received(), reception.lost());
    println!("expected {expected}, received {received}, lost without counting repetitions {lost}");
    println!("gaps {:?}, jitter {:?}", reception.gaps(), reception.jitter_time());
    Ok(())
}

/// Bytes of pairs of hexadecimal digits, with or without spaces between them.
fn bytes(digits: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits: Vec<u32> =
        digits.chars().filter(|c| !c.is_whitespace()).map_while(|c| c.to_digit(16)).collect();
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

// The sequence number wraps; 65535 arrives late, 2 is lost, 3 arrives twice.
const DUMP: &str = "\
    0  8021 fffe 00000000 01020304
    20 8021 0000 00000e10 01020304
    21 8021 ffff 00000708 01020304
    30 8021 0001 00001518 01020304
    50 8021 0003 00002328 01020304
    51 8021 0003 00002328 01020304
    60 8021 0004 00002a30 01020304
";
