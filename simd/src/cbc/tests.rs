// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every variant against OpenSSL, the `cbc` crate and the examples of the standard.
//!
//! Ciphertext of the first blocks is the first blocks of ciphertext: OpenSSL encrypts each long
//! text once, and every length is compared with the beginning of it.

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockModeEncrypt, KeyIvInit};
use openssl::symm::{Cipher, Crypter, Mode};
use proptest::prelude::*;

use super::*;
use crate::trials::noise;

/// Largest number of lanes of a variant.
const LANES_MAX: usize = 16;
/// Blocks of a lane that this variant copies together.
const PANEL_BLOCKS: usize = 8;
/// Largest number of blocks a step of a variant: decryption by the widest registers.
const STEP_BLOCKS_MAX: usize = 32;
/// Guard bytes that no variant may write.
const GUARD: u8 = 0xa5;

fn by_openssl(mode: Mode, key: &[u8], iv: &[u8; 16], bytes: &[u8]) -> Vec<u8> {
    let cipher = match key.len() {
        16 => Cipher::aes_128_cbc(),
        24 => Cipher::aes_192_cbc(),
        _ => Cipher::aes_256_cbc(),
    };
    let mut crypter = Crypter::new(cipher, mode, key, Some(iv)).unwrap();
    crypter.pad(false);
    let mut out = vec![0; bytes.len() + BLOCK_BYTES];
    let mut end = crypter.update(bytes, &mut out).unwrap();
    end += crypter.finalize(&mut out[end..]).unwrap();
    out.truncate(end);
    out
}

fn by_the_cbc_crate(key: &[u8], iv: &[u8; 16], bytes: &[u8]) -> Vec<u8> {
    fn encrypted<C: BlockModeEncrypt + KeyIvInit>(key: &[u8], iv: &[u8], text: &[u8]) -> Vec<u8> {
        let mut out = text.to_vec();
        let cipher = C::new_from_slices(key, iv).unwrap();
        cipher.encrypt_padded::<NoPadding>(&mut out, text.len()).unwrap();
        out
    }
    match key.len() {
        16 => encrypted::<::cbc::Encryptor<aes::Aes128>>(key, iv, bytes),
        24 => encrypted::<::cbc::Encryptor<aes::Aes192>>(key, iv, bytes),
        _ => encrypted::<::cbc::Encryptor<aes::Aes256>>(key, iv, bytes),
    }
}

/// Returns a key of each size, and of the first a second one.
fn keys() -> [Vec<u8>; 4] {
    let noise = noise(100);
    [(0, 16), (16, 24), (40, 32), (72, 16)].map(|(at, bytes)| noise[at..][..bytes].to_vec())
}

fn expanded(keys: &[Vec<u8>]) -> Vec<AesKey> {
    keys.iter().map(|key| AesKey::new(key).unwrap()).collect()
}

#[test]
fn variants_that_are_not_here_are_named() {
    let here: Vec<&str> = Cbc::all().map(|cbc| cbc.name()).collect();
    for variant in VARIANTS.iter().filter(|variant| !here.contains(&variant.name)) {
        eprintln!("skip: cbc by {}: not on this processor", variant.name);
    }
    assert_eq!(here[0], "portable");
}

/// NIST SP 800-38A, F.2.1 to F.2.6.
#[test]
fn the_examples_of_the_standard() {
    for cbc in Cbc::all() {
        for (key_bytes, key, ciphertext) in known::EXAMPLES {
            let key = AesKey::new(&known::bytes(key).as_flattened()[..key_bytes]).unwrap();
            let (plaintext, ciphertext) =
                (known::bytes(known::PLAINTEXT), known::bytes(ciphertext));
            // The message is alone, then in every lane.
            for count in [1, LANES_MAX + 1] {
                let mut texts = vec![plaintext; count];
                let mut ivs = vec![known::IV; count];
                let each = texts.iter_mut().zip(&mut ivs);
                let mut messages: Vec<Message<'_>> = each
                    .map(|(text, iv)| Message { key: &key, iv, bytes: text.as_flattened_mut() })
                    .collect();
                cbc.encrypt(&mut messages);
                assert_eq!(texts, vec![ciphertext; count], "{cbc:?}, {key:?}");
                assert_eq!(ivs, vec![ciphertext[3]; count], "{cbc:?}, {key:?}");
            }
            let (mut text, mut iv) = (ciphertext, known::IV);
            cbc.decrypt(&key, &mut iv, text.as_flattened_mut());
            assert_eq!((text, iv), (plaintext, ciphertext[3]), "{cbc:?}, {key:?}");
        }
    }
}

/// Messages of a text in one piece of memory, guards between them.
struct Row<'a> {
    text: &'a [u8],
    /// Bytes from the end of one message to the start of the next.
    gap: usize,
    blocks: Vec<usize>,
}

impl Row<'_> {
    /// Encrypts them by `cbc` from an offset; the result must be `expected` and guards.
    fn agrees(
        &self,
        cbc: Cbc,
        offset: usize,
        keys: &[AesKey],
        iv: &[u8; 16],
        expected: &[Vec<u8>],
    ) {
        let Self { text, gap, blocks } = self;
        let start = |n: usize| {
            let before: usize = blocks[..n].iter().map(|blocks| blocks * BLOCK_BYTES + gap).sum();
            offset + before
        };
        let mut memory = vec![GUARD; start(blocks.len()) + gap];
        let mut wanted = memory.clone();
        for (n, blocks) in blocks.iter().enumerate() {
            let bytes = blocks * BLOCK_BYTES;
            memory[start(n)..][..bytes].copy_from_slice(&text[..bytes]);
            wanted[start(n)..][..bytes].copy_from_slice(&expected[n % keys.len()][..bytes]);
        }
        let mut ivs = vec![*iv; blocks.len()];
        let (_, mut rest) = memory.split_at_mut(offset);
        let mut messages = Vec::new();
        for (n, iv) in ivs.iter_mut().enumerate() {
            let (bytes, after) = rest.split_at_mut(blocks[n] * BLOCK_BYTES);
            messages.push(Message { key: &keys[n % keys.len()], iv, bytes });
            rest = after.split_at_mut(*gap).1;
        }
        cbc.encrypt(&mut messages);
        assert!(memory == wanted, "{cbc:?}: {blocks:?} blocks from {offset}, {} keys", keys.len());
        for (n, blocks) in blocks.iter().enumerate() {
            let ciphertext = &expected[n % keys.len()][..blocks * BLOCK_BYTES];
            let last = ciphertext.last_chunk().unwrap_or(iv);
            assert_eq!(ivs[n], *last, "{cbc:?}: IV of {n} of {blocks:?} blocks");
        }
    }
}

#[test]
fn every_variant_encrypts_every_length_at_every_offset() {
    let iv = [0x3c; 16];
    // The text has enough panels for prefetching.
    let text = noise(BLOCK_BYTES * 300);
    for raw in [&keys()[..1], &keys()[2..3], &keys()[..]] {
        let keys = expanded(raw);
        let expected: Vec<Vec<u8>> =
            raw.iter().map(|key| by_openssl(Mode::Encrypt, key, &iv, &text)).collect();
        for cbc in Cbc::all() {
            for offset in 0..64 {
                for blocks in [0, 1, 7, 8, 9, 17 + offset % 16] {
                    // Lanes end one after the other, and the last continues in the place of the
                    // first.
                    let blocks = (0..LANES_MAX + 1).map(|n| blocks + n % 5).collect();
                    let row = Row { text: &text, gap: offset % 7, blocks };
                    row.agrees(cbc, offset, &keys, &iv, &expected);
                }
            }
            for blocks in 0..=4 * PANEL_BLOCKS + 1 {
                for count in [1, 2, 3, 4, 5, 8, 9, LANES_MAX, LANES_MAX + 3] {
                    let row = Row { text: &text, gap: 1, blocks: vec![blocks; count] };
                    row.agrees(cbc, 3, &keys, &iv, &expected);
                }
            }
            for blocks in [64, 65, 255, 256, 300] {
                let row = Row { text: &text, gap: 0, blocks: vec![blocks; LANES_MAX] };
                row.agrees(cbc, 16, &keys, &iv, &expected);
            }
        }
    }
}

#[test]
fn every_variant_encrypts_more_messages_than_are_put_in_order_at_a_time() {
    let iv = [9; 16];
    let text = noise(BLOCK_BYTES * 70);
    let raw = keys();
    let expected: Vec<Vec<u8>> =
        raw.iter().map(|key| by_openssl(Mode::Encrypt, key, &iv, &text)).collect();
    for cbc in Cbc::all() {
        let blocks = (0..600).map(|n: usize| n * 7919 % 71).collect();
        let row = Row { text: &text, gap: 5, blocks };
        row.agrees(cbc, 1, &expanded(&raw), &iv, &expected);
        row.agrees(cbc, 1, &expanded(&raw[1..2]), &iv, &expected[1..2]);
    }
}

#[test]
fn every_variant_decrypts_every_length_at_every_offset() {
    let iv = [0x77; 16];
    let text = noise(BLOCK_BYTES * (4 * STEP_BLOCKS_MAX + 2));
    for key in keys() {
        let ciphertext = by_openssl(Mode::Encrypt, &key, &iv, &text);
        assert_eq!(by_openssl(Mode::Decrypt, &key, &iv, &ciphertext), text);
        let key = AesKey::new(&key).unwrap();
        for cbc in Cbc::all() {
            let check = |blocks: usize, offset: usize| {
                let bytes = blocks * BLOCK_BYTES;
                let mut memory = vec![GUARD; offset + bytes + 64];
                let mut wanted = memory.clone();
                memory[offset..][..bytes].copy_from_slice(&ciphertext[..bytes]);
                wanted[offset..][..bytes].copy_from_slice(&text[..bytes]);
                let mut chain = iv;
                cbc.decrypt(&key, &mut chain, &mut memory[offset..][..bytes]);
                assert!(memory == wanted, "{cbc:?}, {key:?}: {blocks} blocks from {offset}");
                let last = ciphertext[..bytes].last_chunk().unwrap_or(&iv);
                assert_eq!(chain, *last, "{cbc:?}: {blocks} blocks");
            };
            for blocks in 0..=4 * STEP_BLOCKS_MAX + 1 {
                check(blocks, 0);
                check(blocks, 5);
            }
            for offset in 0..64 {
                check(STEP_BLOCKS_MAX + 10, offset);
            }
        }
    }
}

#[test]
fn a_message_in_slices_is_the_message() {
    let text = noise(BLOCK_BYTES * 200);
    for raw in keys() {
        let key = AesKey::new(&raw).unwrap();
        let expected = by_openssl(Mode::Encrypt, &raw, &[1; 16], &text);
        for cbc in Cbc::all() {
            for slice_blocks in [1, 2, 7, 8, 31, 33, 64, 199] {
                let mut texts = vec![text.clone(); 3];
                let mut ivs = [[1; 16]; 3];
                for at in (0..text.len()).step_by(slice_blocks * BLOCK_BYTES) {
                    let each = texts.iter_mut().zip(&mut ivs);
                    let mut slices: Vec<Message<'_>> = each
                        .map(|(text, iv)| {
                            let end = text.len().min(at + slice_blocks * BLOCK_BYTES);
                            Message { key: &key, iv, bytes: &mut text[at..end] }
                        })
                        .collect();
                    cbc.encrypt(&mut slices);
                }
                assert!(texts.iter().all(|text| *text == expected), "{cbc:?}, {slice_blocks}");
                let mut iv = [1; 16];
                for slice in texts[0].chunks_mut(slice_blocks * BLOCK_BYTES) {
                    cbc.decrypt(&key, &mut iv, slice);
                }
                assert!(texts[0] == text, "{cbc:?}, {slice_blocks}");
            }
        }
    }
}

#[test]
fn a_variant_that_is_wrong_in_one_thing_is_not_used() {
    unsafe fn all_but_the_iv(messages: &mut [Message<'_>]) {
        let ivs: Vec<[u8; 16]> = messages.iter().map(|message| *message.iv).collect();
        // SAFETY: the portable variant needs no instructions, here and below.
        unsafe { portable::encrypt(messages) };
        messages.iter_mut().zip(ivs).for_each(|(message, iv)| *message.iv = iv);
    }
    unsafe fn with_the_first_key(messages: &mut [Message<'_>]) {
        let Some(first) = messages.first() else { return };
        let key = first.key;
        messages.iter_mut().for_each(|message| message.key = key);
        // SAFETY: as above.
        unsafe { portable::encrypt(messages) };
    }
    unsafe fn but_for_the_last(messages: &mut [Message<'_>]) {
        let count = messages.len().min(18);
        // SAFETY: as above.
        unsafe { portable::encrypt(&mut messages[..count]) };
    }
    unsafe fn nothing(_: &AesKey, _: &mut Block, _: &mut [u8]) {}
    let Run { encrypt, decrypt } = PORTABLE.run;
    let answers = |run: Run| {
        let variant = Variant { name: "wrong", is_here: everywhere, run };
        known::answers(Cbc(Box::leak(Box::new(variant))), Cbc(&VARIANTS[0]))
    };
    assert!(answers(Run { encrypt, decrypt }));
    assert!(!answers(Run { encrypt, decrypt: nothing }));
    for encrypt in [all_but_the_iv, with_the_first_key, but_for_the_last] as [EncryptFn; 3] {
        assert!(!answers(Run { encrypt, decrypt }));
    }
}

type EncryptFn = unsafe fn(&mut [Message<'_>]);

#[test]
#[should_panic(expected = "17 bytes are whole blocks")]
fn part_of_a_block_is_the_callers_mistake() {
    let key = AesKey::new(&[0; 16]).unwrap();
    let (mut iv, mut bytes) = ([0; 16], [0; 17]);
    let cbc = Cbc::all().last().unwrap();
    cbc.encrypt(&mut [Message { key: &key, iv: &mut iv, bytes: &mut bytes }]);
}

#[test]
#[should_panic(expected = "15 bytes are whole blocks")]
fn part_of_a_block_cannot_be_decrypted() {
    let key = AesKey::new(&[0; 16]).unwrap();
    Cbc::all().last().unwrap().decrypt(&key, &mut [0; 16], &mut [0; 15]);
}

proptest! {
    /// Encrypts any number of messages of any lengths, each with a key, a size and an IV that
    /// others may share.
    #[test]
    fn any_messages_are_encrypted(
        messages in prop::collection::vec((0_usize..90, 0_usize..6, any::<[u8; 16]>()), 0..60)
    ) {
        let raw: Vec<Vec<u8>> =
            (0..6).map(|n| noise(200)[n * 17..][..[16, 24, 32][n % 3]].to_vec()).collect();
        let keys = expanded(&raw);
        let texts: Vec<Vec<u8>> = messages.iter().map(|(n, ..)| noise(n * BLOCK_BYTES)).collect();
        for cbc in Cbc::all() {
            let mut ours = texts.clone();
            let mut ivs: Vec<[u8; 16]> = messages.iter().map(|(.., iv)| *iv).collect();
            let each = ours.iter_mut().zip(&mut ivs).zip(&messages);
            let mut lanes: Vec<Message<'_>> = each
                .map(|((bytes, iv), (_, key, _))| Message { key: &keys[*key], iv, bytes })
                .collect();
            cbc.encrypt(&mut lanes);
            for (n, (_, key, iv)) in messages.iter().enumerate() {
                let expected = by_the_cbc_crate(&raw[*key], iv, &texts[n]);
                prop_assert!(ours[n] == expected, "{:?}: message {}", cbc, n);
                let last = expected.last_chunk().unwrap_or(iv);
                prop_assert_eq!(&ivs[n], last, "{:?}: IV of {}", cbc, n);
                let mut chain = *iv;
                cbc.decrypt(&keys[*key], &mut chain, &mut ours[n]);
                prop_assert!(ours[n] == texts[n], "{:?}: message {} back", cbc, n);
            }
        }
    }
}
