// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums the UDP payloads of a ring of slots by every variant that this processor has, compares
//! them with the oracle and prints the time of a payload.
//!
//! `cargo run --release --example checksum_ranges`

use std::hint::black_box;
use std::time::Instant;

use simd::Checksum;
use simd::checksum::{Ranges, oracle};

const SLOTS: usize = 48;
const SLOT_BYTES: usize = 2048;
const PAYLOAD_BYTES: usize = 1316;
const ROUNDS: u32 = 2_000;

fn main() {
    let memory: Vec<u8> = (0..SLOTS * SLOT_BYTES).map(|n| (n * 31 / 7) as u8).collect();
    let payloads = Ranges {
        slots: &memory,
        stride: SLOT_BYTES,
        at: 64,
        bytes: PAYLOAD_BYTES,
        last_bytes: PAYLOAD_BYTES / 2,
    };
    let mut expected = [0; SLOTS];
    oracle(payloads, &mut expected);
    for checksum in Checksum::all() {
        let mut sums = [0; SLOTS];
        let start = Instant::now();
        for _ in 0..ROUNDS {
            checksum.sums(black_box(payloads), &mut sums);
        }
        let ns = start.elapsed().as_secs_f64() * 1e9 / (f64::from(ROUNDS) * SLOTS as f64);
        assert_eq!(sums, expected, "{checksum:?}");
        println!("{:10} {ns:6.1} ns for {PAYLOAD_BYTES} bytes", checksum.name());
    }
}
