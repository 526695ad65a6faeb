// SPDX-License-Identifier: MIT OR Apache-2.0
//! An asset to stream: an MPEG transport stream of constant rate with a program clock and no
//! pictures.
//!
//! One PID carries a PCR every 20 ms and filler between them: a server needs no more to pace it.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.2, §2.4.3.4 (adaptation field), §2.4.2.2 (PCR).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes `seconds` of transport stream at `bits_per_second` to `path`.
pub fn write(path: &Path, bits_per_second: u64, seconds: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let packets = seconds * bits_per_second / 8 / PACKET_BYTES;
    let mut counter = 0_u8;
    let mut clock_due = 0;
    for index in 0..packets {
        let ticks = index * PACKET_BYTES * 8 * TICKS_PER_SECOND / bits_per_second;
        let mut packet = [index as u8; PACKET_BYTES as usize];
        let clocked = ticks >= clock_due;
        packet[..4].copy_from_slice(&[0x47, PID_HIGH, PID_LOW, 0x10 | counter]);
        if clocked {
            clock_due += CLOCK_EVERY_TICKS;
            let (base, extension) = (ticks / 300, ticks % 300);
            packet[3] |= 0x20;
            // Adaptation field of 7 bytes: random access indicator and PCR flag, then the PCR.
            packet[4] = 7;
            packet[5] = 0x50;
            packet[6..10].copy_from_slice(&((base >> 1) as u32).to_be_bytes());
            packet[10] = (base as u8) << 7 | 0x7e | (extension >> 8) as u8;
            packet[11] = extension as u8;
        }
        counter = (counter + 1) & 15;
        out.write_all(&packet)?;
    }
    out.flush()
}

const PACKET_BYTES: u64 = 188;
const TICKS_PER_SECOND: u64 = 27_000_000;
const CLOCK_EVERY_TICKS: u64 = TICKS_PER_SECOND / 50;
const PID_HIGH: u8 = 0x01;
const PID_LOW: u8 = 0x00;
