// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published method with this program's cipher: isolates the effect of the cipher.
//!
//! CBC encrypts a block after the block before, so a single message runs at the latency of the
//! cipher unit with any implementation: this member shows that the gain comes from the lanes, not
//! from the code. It encrypts in place, and so has one buffer instead of two.
//!
//! Sources: NIST SP 800-38A §6.2; RFC 5652 §6.3 (padding).

use std::path::Path;

use simd::Kernels;
use simd::cbc::{AesKey, BLOCK_BYTES, Message};

use super::member::{IV, KEY, Layout, Member};
use super::published::{self, read, write};
use measure::Error;

pub(super) static MEMBER: Member = Member {
    name: "file_per_thread",
    summary: "the paper's method with this program's cipher: one lane of it, a file a thread",
    layout: Layout::Body,
    run: |source, target, threads| published::run(source, target, threads, seal),
};

fn seal(source: &Path, target: &Path) -> Result<(), Error> {
    let mut bytes = read(source)?;
    let padding = BLOCK_BYTES - bytes.len() % BLOCK_BYTES;
    bytes.resize(bytes.len() + padding, padding as u8);
    let (key, mut iv) = (AesKey::new(&KEY).expect("a length that AES has"), IV);
    let message = Message { key: &key, iv: &mut iv, bytes: &mut bytes };
    kernels().cbc.encrypt(&mut [message]);
    write(target, &bytes)
}

/// Returns the kernels, chosen once: choosing runs every variant on known answers.
fn kernels() -> &'static Kernels {
    static KERNELS: std::sync::OnceLock<Kernels> = std::sync::OnceLock::new();
    KERNELS.get_or_init(Kernels::here)
}
