// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every variant against OpenSSL, the `cbc` crate and the vectors of the standard.

use openssl::symm::{Cipher, Crypter, Mode};

use super::*;
use crate::trials::noise;

fn openssl(mode: Mode, key: &[u8], iv: &[u8; 16], bytes: &[u8]) -> Vec<u8> {
    let cipher = match key.len() {
        16 => Cipher::aes_128_cbc(),
        24 => Cipher::aes_192_cbc(),
        _ => Cipher::aes_256_cbc(),
    };
    let mut crypter = Crypter::new(cipher, mode, key, Some(iv)).unwrap();
    crypter.pad(false);
    let mut out = vec![0; bytes.len() + 16];
    let n = crypter.update(bytes, &mut out).unwrap();
    out.truncate(n);
    out
}

#[test]
fn every_variant_is_right_with_many_messages() {
    for variant in Cbc::all() {
        for count in [0, 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 40, 300] {
            for same in [true, false] {
                let raw = noise(32 * count.max(1));
                let keys: Vec<Vec<u8>> = (0..count)
                    .map(|n| match same {
                        true => raw[..16].to_vec(),
                        false => raw[32 * n..][..[16, 24, 32][n % 3]].to_vec(),
                    })
                    .collect();
                let one = Key::new(&raw[..16]).unwrap();
                let expanded: Vec<Key> = keys.iter().map(|key| Key::new(key).unwrap()).collect();
                let mut texts: Vec<Vec<u8>> =
                    (0..count).map(|n| noise(16 * (n * 7919 % 67))).collect();
                let mut ivs: Vec<[u8; 16]> = (0..count).map(|n| [n as u8; 16]).collect();
                let expected: Vec<Vec<u8>> = (0..count)
                    .map(|n| openssl(Mode::Encrypt, &keys[n], &ivs[n], &texts[n]))
                    .collect();
                let before = ivs.clone();
                let mut messages: Vec<Message<'_>> = texts
                    .iter_mut()
                    .zip(&mut ivs)
                    .zip(&expanded)
                    .map(|((bytes, iv), key)| Message {
                        key: if same { &one } else { key },
                        iv,
                        bytes,
                    })
                    .collect();
                variant.encrypt(&mut messages);
                for n in 0..count {
                    assert_eq!(texts[n], expected[n], "{variant:?} {n} of {count} {same}");
                    let last = expected[n].last_chunk::<16>().copied().unwrap_or(before[n]);
                    assert_eq!(ivs[n], last);
                    let mut iv = before[n];
                    variant.decrypt(&expanded[n], &mut iv, &mut texts[n]);
                    assert_eq!(texts[n], noise(16 * (n * 7919 % 67)), "{variant:?}");
                    assert_eq!(iv, last);
                }
            }
        }
    }
}
