// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known answers that a variant must compute before it is used: the standard's vectors, and the
//! portable variant's answers in lanes that are full and that are not.
//!
//! Sources: NIST SP 800-38A, F.2.1 to F.2.6.
//!
//! Does not replace the tests; it costs some 200 µs at the start of the program.

use super::{AesKey, BLOCK_BYTES, Block, Cbc, Message};

/// The examples' IV.
pub(super) const IV: Block = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The examples' plaintext.
pub(super) const PLAINTEXT: [u128; 4] = [
    0x6bc1bee2_2e409f96_e93d7e11_7393172a,
    0xae2d8a57_1e03ac9c_9eb76fac_45af8e51,
    0x30c81c46_a35ce411_e5fbc119_1a0a52ef,
    0xf69f2445_df4f9b17_ad2b417b_e66c3710,
];

/// Number of key bytes, the key as two numbers, and the ciphertext.
pub(super) const EXAMPLES: [(usize, [u128; 2], [u128; 4]); 3] = [
    // F.2.1, F.2.2
    (
        16,
        [0x2b7e1516_28aed2a6_abf71588_09cf4f3c, 0],
        [
            0x7649abac_8119b246_cee98e9b_12e9197d,
            0x5086cb9b_507219ee_95db113a_917678b2,
            0x73bed6b8_e3c1743b_7116e69e_22229516,
            0x3ff1caa1_681fac09_120eca30_7586e1a7,
        ],
    ),
    // F.2.3, F.2.4
    (
        24,
        [0x8e73b0f7_da0e6452_c810f32b_809079e5, 0x62f8ead2_522c6b7b_00000000_00000000],
        [
            0x4f021db2_43bc633d_7178183a_9fa071e8,
            0xb4d9ada9_ad7dedf4_e5e73876_3f69145a,
            0x571b2420_12fb7ae0_7fa9baac_3df102e0,
            0x08b0e279_88598881_d920a9e6_4f5615cd,
        ],
    ),
    // F.2.5, F.2.6
    (
        32,
        [0x603deb10_15ca71be_2b73aef0_857d7781, 0x1f352c07_3b6108d7_2d9810a3_0914dff4],
        [
            0xf58c4c04_d6e5f1ba_779eabfb_5f7bfbd6,
            0x9cfc4e96_7edb808d_679f777b_c6702c7d,
            0x39f23369_a9d9bacf_a530e263_04231461,
            0xb2eb05e2_c39be9fc_da6c1907_8c6a9d1b,
        ],
    ),
];

pub(super) fn bytes<const N: usize>(blocks: [u128; N]) -> [Block; N] {
    blocks.map(u128::to_be_bytes)
}

/// True when a variant is right in both directions.
pub(super) fn answers(cbc: Cbc, portable: Cbc) -> bool {
    let examples = EXAMPLES.iter().all(|(key_bytes, key, ciphertext)| {
        let key = AesKey::new(&bytes(*key).as_flattened()[..*key_bytes]).expect("a size of AES");
        let (mut text, mut iv) = (bytes(PLAINTEXT), IV);
        let (ciphertext, text_bytes) = (bytes(*ciphertext), text.as_flattened_mut());
        cbc.encrypt(&mut [Message { key: &key, iv: &mut iv, bytes: text_bytes }]);
        let encrypted = text == ciphertext && iv == ciphertext[3];
        iv = IV;
        cbc.decrypt(&key, &mut iv, text.as_flattened_mut());
        encrypted && text == bytes(PLAINTEXT) && iv == ciphertext[3]
    });
    // The counts are fewer messages than lanes, a few more than narrow registers fill, and more
    // than all lanes; with one key, and with two alternately.
    let in_lanes = |key_bytes: usize| {
        let keys: [AesKey; 2] = core::array::from_fn(|n| {
            let pattern: [u8; 32] = core::array::from_fn(|at| (at * 7 + n) as u8);
            AesKey::new(&pattern[..key_bytes]).expect("a size of AES")
        });
        [(3, 1), (MESSAGES, 1), (7, 2), (MESSAGES, 2)].into_iter().all(|(count, several)| {
            let keys = &keys[..several];
            let (ours, known) = (Trial::run(cbc, keys, count), Trial::run(portable, keys, count));
            ours == known && ours.opened(cbc, keys, count)
        })
    };
    examples && [16, 24, 32].into_iter().all(in_lanes)
}

/// Number of messages, more than there are lanes.
const MESSAGES: usize = 19;
const BLOCKS_MAX: usize = 48;

/// Texts and IVs of messages of different lengths.
#[derive(PartialEq)]
struct Trial {
    texts: [[Block; BLOCKS_MAX]; MESSAGES],
    ivs: [Block; MESSAGES],
}

impl Trial {
    fn new() -> Self {
        let block = |n: usize| [(n * n / 3 + 200) as u8; BLOCK_BYTES];
        Self { texts: [core::array::from_fn(block); MESSAGES], ivs: core::array::from_fn(block) }
    }

    fn blocks(message: usize) -> usize {
        1 + message * 11 % BLOCKS_MAX
    }

    /// Encrypts the first `count` with the keys in rotation.
    fn run(cbc: Cbc, keys: &[AesKey], count: usize) -> Self {
        let mut trial = Self::new();
        let mut each = trial.texts.iter_mut().zip(&mut trial.ivs).enumerate();
        let mut messages: [Message<'_>; MESSAGES] = core::array::from_fn(|_| {
            let (n, (text, iv)) = each.next().expect("as many");
            let bytes = text[..Self::blocks(n)].as_flattened_mut();
            Message { key: &keys[n % keys.len()], iv, bytes }
        });
        cbc.encrypt(&mut messages[..count]);
        trial
    }

    /// True when decryption restores the plaintext.
    fn opened(mut self, cbc: Cbc, keys: &[AesKey], count: usize) -> bool {
        let mut before = Self::new();
        let each = self.texts.iter_mut().zip(&mut before.ivs).enumerate();
        for (n, (text, iv)) in each.take(count) {
            let bytes = text[..Self::blocks(n)].as_flattened_mut();
            cbc.decrypt(&keys[n % keys.len()], iv, bytes);
        }
        self.texts == before.texts && self.ivs == before.ivs
    }
}
