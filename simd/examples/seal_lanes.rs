// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encrypts eight messages one after the other and then side by side in lanes, and prints both
//! speeds.
//!
//! `cargo run --release --example seal_lanes`

use std::time::{Duration, Instant};

use simd::cbc::{AesKey, BLOCK_BYTES, Cbc, KeyLength, Message};
use simd::{Dropped, Kernels};

const MESSAGES: usize = 8;
const MESSAGE_BYTES: usize = 32 * 1024;
const ROUNDS: u32 = 200;

fn main() -> Result<(), KeyLength> {
    let kernels = Kernels::here();
    kernels.dropped().for_each(|dropped: Dropped| eprintln!("{dropped}"));
    let keys: Vec<AesKey> =
        (0..MESSAGES).map(|n| AesKey::new(&[n as u8; 16])).collect::<Result<_, _>>()?;
    let plain: Vec<Vec<u8>> = (0..MESSAGES).map(|n| vec![n as u8; MESSAGE_BYTES]).collect();

    let (one_by_one, alone) = timed(&plain, &keys, |messages| {
        messages.iter_mut().for_each(|message| kernels.cbc.encrypt(std::slice::from_mut(message)));
    });
    let (in_lanes, together) = timed(&plain, &keys, |messages| kernels.cbc.encrypt(messages));
    assert_eq!(one_by_one, in_lanes, "lanes do not change the ciphertext");
    assert_eq!(opened(&kernels.cbc, &keys, in_lanes), plain, "decryption gives the messages again");

    println!("{MESSAGES} messages of {MESSAGE_BYTES} bytes, {}", kernels.cbc.name());
    println!("one after the other: {:.2} GB/s", speed(alone));
    println!("in lanes:            {:.2} GB/s", speed(together));
    Ok(())
}

/// Returns the ciphertexts of the messages, and the time of `encrypt` for all rounds.
fn timed(
    plain: &[Vec<u8>],
    keys: &[AesKey],
    mut encrypt: impl FnMut(&mut [Message<'_>]),
) -> (Vec<Vec<u8>>, Duration) {
    let mut texts = Vec::new();
    let mut elapsed = Duration::ZERO;
    for _ in 0..ROUNDS {
        texts = plain.to_vec();
        let mut ivs = [[9; BLOCK_BYTES]; MESSAGES];
        let each = texts.iter_mut().zip(&mut ivs).zip(keys);
        let mut messages: Vec<Message<'_>> =
            each.map(|((bytes, iv), key)| Message { key, iv, bytes }).collect();
        let start = Instant::now();
        encrypt(&mut messages);
        elapsed += start.elapsed();
    }
    (texts, elapsed)
}

/// Returns the plaintexts of the messages.
fn opened(cbc: &Cbc, keys: &[AesKey], mut texts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for (key, text) in keys.iter().zip(&mut texts) {
        cbc.decrypt(key, &mut [9; BLOCK_BYTES], text);
    }
    texts
}

fn speed(time: Duration) -> f64 {
    (MESSAGES * MESSAGE_BYTES) as f64 * f64::from(ROUNDS) / time.as_secs_f64() / 1e9
}
