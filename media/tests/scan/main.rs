// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests plans of synthetic transport streams, in which every packet's place and time is known.
//!
//! Each module holds one claim; [`writer`] builds the streams and shares no code with the scanner.

mod access;
mod arithmetic;
mod clock;
mod encoding;
mod growing;
mod key_frames;
mod noise;
mod parameter_sets;
mod segments;
mod sync;
mod tables;
mod writer;

use media::{PacketPlan, Refusal, RtpIdentity, Scanner};
use proptest::test_runner::Config;

/// Every plan here has this identity; each number is near its wrap.
const IDENTITY: RtpIdentity =
    RtpIdentity { ssrc: 0x8765_4321, first_sequence: 0xfffe, first_timestamp: 0xffff_ff00 };

/// Number of cases of a property; a failure is printed and leaves no file on the disk.
fn cases(cases: u32) -> Config {
    Config { failure_persistence: None, ..Config::with_cases(cases) }
}

/// Scans a file handed over in one piece.
fn scan(file: &[u8]) -> Result<PacketPlan, Refusal> {
    scan_in_pieces(file, [file.len()])
}

/// Scans a file handed over in pieces of these sizes, and what is left in one.
fn scan_in_pieces(
    file: &[u8],
    sizes: impl IntoIterator<Item = usize>,
) -> Result<PacketPlan, Refusal> {
    fed(file, sizes).finish(file.len() as u64, IDENTITY)
}

/// A scanner that was fed a file in pieces of these sizes, and what is left in one.
fn fed(file: &[u8], sizes: impl IntoIterator<Item = usize>) -> Scanner {
    let mut scanner = Scanner::new();
    let mut rest = file;
    for size in sizes {
        let (piece, after) = rest.split_at(size.min(rest.len()));
        scanner.feed(piece);
        rest = after;
    }
    scanner.feed(rest);
    scanner
}

/// Checks that a plan streams these bytes of a file, payload after payload.
fn assert_streams(plan: &PacketPlan, file: &[u8], expected: &[u8]) {
    let mut rest = expected;
    for packet in 0..plan.packets() {
        let payload = plan.payload(packet);
        for index in 0..payload.ts_packets {
            let start = (payload.file_offset + index * plan.stride()) as usize;
            let (next, after) = rest.split_at_checked(188).expect("streams more than expected");
            assert!(file[start..start + 188] == *next, "packet {packet}, offset {start}");
            rest = after;
        }
    }
    assert_eq!(rest.len(), 0, "bytes expected and not streamed");
}
