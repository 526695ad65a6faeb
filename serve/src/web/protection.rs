// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments enciphered for HLS, with keys that the server makes.
//!
//! With AES-128 a whole segment is one message. Each playlist of a file has a key of its own: that
//! of a sealed film named after the file and its identity, `/keys/FILE/~I/NUMBER.key`. So another
//! content has other keys. The initialization vector of a segment is its number, which a playlist
//! may omit. Initialization sections stay clear.
//!
//! With cbcs parts of the samples are messages: a block in ten of each slice, and the whole blocks
//! of each frame of sound. A file has one key, number 0, for HLS and DASH. Its identifier and the
//! initialization vector are made as keys are, from names that no file can have.
//!
//! Costs: with AES-128 one lane of the cipher, about 1 GB/s; with cbcs all lanes, and a copy of
//! what is enciphered to blocks side by side and back. Once for all viewers
//! ([`super::segment_copies`]).
//!
//! Sources: RFC 8216 §4.3.2.4 (EXT-X-KEY), §5.2 (IV of AES-128); RFC 5652 §6.3 (padding); ISO/IEC
//! 23001-7 §10.4 (cbcs).
//! Does not protect the file itself, which is served as it is, or playlists; does not find what
//! cbcs enciphers ([`media::cmaf`]).

use std::sync::Arc;

use media::cmaf::{CommonEncryption, CopiedSegment, ProtectedBytes};
use simd::Kernels;
use simd::cbc::{AesKey, BLOCK_BYTES, Cbc, Message};
use wire::http::escape_path;

use super::clear_key::{CLEAR_KEY, LICENCE};
use super::segment_copies::Pieces;
use crate::segment_key::{KEY_BYTES, KEY_PATH_PREFIX, KeyMaker, SAMPLE_KEY, key_id};

/// How segments are enciphered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentCipher {
    /// The whole segment with AES-128 in CBC mode (`METHOD=AES-128`); HLS alone has it.
    Aes128,
    /// Parts of the samples by common encryption with AES-128 in the form `cbcs`
    /// (`METHOD=SAMPLE-AES`); HLS and DASH have it.
    Cbcs,
}

/// How a server enciphers segments.
#[derive(Clone)]
pub(crate) struct Protection {
    cipher: SegmentCipher,
    make: Arc<KeyMaker>,
    mark: String,
}

impl Protection {
    pub(crate) fn new(cipher: SegmentCipher, make: Arc<KeyMaker>) -> Protection {
        let made = make(&format!("\0{cipher:?}"), 0);
        let mark = format!("-{}", hex(&made[..4]));
        Protection { cipher, make, mark }
    }

    /// Returns the suffix of a content's identity: caches may keep the items below it, and another
    /// cipher or secret yields other bytes.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }
}

/// Keys of a file.
pub(super) struct AssetKeys {
    cbc: Cbc,
    cipher: SegmentCipher,
    /// Name for which keys are made: that of the file, and its identity.
    film: String,
    make: Arc<KeyMaker>,
}

impl AssetKeys {
    pub(super) fn new(film: String, protection: &Protection) -> AssetKeys {
        let cbc = Kernels::here().cbc;
        let Protection { cipher, make, .. } = protection.clone();
        AssetKeys { cbc, cipher, film, make }
    }

    pub(super) fn cipher(&self) -> SegmentCipher {
        self.cipher
    }

    /// Returns the address from which a player in a browser gets the key by the rules of clear key.
    pub(super) fn licence(&self) -> String {
        address(&self.film, SAMPLE_KEY, LICENCE)
    }

    /// Returns the address at which it gets the keys of all files in the folder.
    pub(super) fn licence_of_title(&self) -> String {
        let mut parts = self.film.rsplitn(3, '/');
        let folder = parts.nth(2).expect("a title is a folder");
        address(folder, SAMPLE_KEY, LICENCE)
    }

    /// Returns the tag of a playlist whose segments have key `number`, with its end of line.
    pub(super) fn tag(&self, number: u64) -> String {
        let uri = address(&self.film, number, "key");
        match self.cipher {
            SegmentCipher::Aes128 => format!("#EXT-X-KEY:METHOD=AES-128,URI=\"{uri}\"\n"),
            SegmentCipher::Cbcs => {
                let iv = hex_sequence(&self.common_encryption().iv);
                format!(
                    "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"{uri}\",IV={iv},\
                     KEYFORMAT=\"identity\",KEYFORMATVERSIONS=\"1\"\n"
                )
            }
        }
    }

    /// Returns the same tag for players in browsers.
    pub(super) fn clear_key_tag(&self) -> String {
        let (uri, key_id) = (self.licence(), hex_sequence(&self.common_encryption().key_id));
        format!(
            "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"{uri}\",KEYID={key_id},\
             KEYFORMAT=\"{CLEAR_KEY}\",KEYFORMATVERSIONS=\"1\""
        )
    }

    /// Returns the parameters of the form cbcs for initialization sections.
    pub(super) fn common_encryption(&self) -> CommonEncryption {
        let iv = (self.make)(&format!("{}\0iv", self.film), SAMPLE_KEY);
        CommonEncryption { key_id: key_id(&*self.make, &self.film), iv }
    }

    fn key(&self, number: u64) -> AesKey {
        let key: [u8; KEY_BYTES] = (self.make)(&self.film, number);
        AesKey::new(&key).expect("16 bytes")
    }

    /// Enciphers a copied segment, number `segment` of the playlist with key `number`.
    pub(super) fn encipher(
        &self,
        number: u64,
        segment: usize,
        mut copied: CopiedSegment,
    ) -> Pieces {
        match self.cipher {
            SegmentCipher::Aes128 => {
                let mut bytes = [copied.head, copied.media].concat();
                let mut iv = (segment as u128).to_be_bytes();
                pad(&mut bytes);
                let (key, iv) = (&self.key(number), &mut iv);
                self.cbc.encrypt(&mut [Message { key, iv, bytes: &mut bytes }]);
                vec![bytes]
            }
            SegmentCipher::Cbcs => {
                self.encipher_samples(&mut copied);
                vec![copied.head, copied.media]
            }
        }
    }

    fn encipher_samples(&self, CopiedSegment { media, protected, .. }: &mut CopiedSegment) {
        let (key, iv) = (self.key(SAMPLE_KEY), self.common_encryption().iv);
        let mut ivs = vec![iv; protected.len()];
        let stride = |one: &ProtectedBytes| BLOCK_BYTES * (1 + one.clear_blocks);
        let blocks = |one: &ProtectedBytes| one.bytes.len().div_ceil(stride(one));
        // Blocks of a message side by side, as the cipher requires them.
        let mut dense: Vec<u8> =
            Vec::with_capacity(BLOCK_BYTES * protected.iter().map(blocks).sum::<usize>());
        for one in &*protected {
            for piece in media[one.bytes.clone()].chunks(stride(one)) {
                dense.extend_from_slice(&piece[..BLOCK_BYTES]);
            }
        }
        let mut rest = &mut dense[..];
        let messages = protected.iter().zip(&mut ivs).map(|(one, iv)| {
            let (bytes, behind) = std::mem::take(&mut rest).split_at_mut(BLOCK_BYTES * blocks(one));
            rest = behind;
            Message { key: &key, iv, bytes }
        });
        self.cbc.encrypt(&mut messages.collect::<Vec<_>>());
        let mut enciphered = dense.chunks_exact(BLOCK_BYTES);
        for one in &*protected {
            for piece in media[one.bytes.clone()].chunks_mut(stride(one)) {
                let block = enciphered.next().expect("as many as there are pieces");
                piece[..BLOCK_BYTES].copy_from_slice(block);
            }
        }
    }
}

/// Returns the address of key `number` of a film, or of a licence for it.
fn address(film: &str, number: u64, extension: &str) -> String {
    format!("{KEY_PATH_PREFIX}{}/{number}.{extension}", escape_path(film))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hexadecimal sequence of playlists, whose digits are 0-9 and A-F (RFC 8216 §4.2).
fn hex_sequence(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02X}"));
    digits.fold("0x".to_owned(), |all, digits| all + &digits)
}

/// Pads to whole blocks with at least one byte; each added byte is the count of added bytes.
fn pad(bytes: &mut Vec<u8>) {
    let added = BLOCK_BYTES - bytes.len() % BLOCK_BYTES;
    bytes.resize(bytes.len() + added, added as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_deciphered_by_its_key_and_number() {
        let made = |film: &str, number: u64| {
            assert!(film == "\0Aes128" || (film, number) == ("a b.mp4/~1-2-3.1", 4), "{film}");
            [9; 16]
        };
        let protection = Protection::new(SegmentCipher::Aes128, Arc::new(made));
        assert_eq!(protection.mark(), "-09090909");
        let keys = AssetKeys::new("a b.mp4/~1-2-3.1".to_owned(), &protection);
        let tag = "#EXT-X-KEY:METHOD=AES-128,URI=\"/keys/a%20b.mp4/~1-2-3.1/4.key\"\n";
        assert_eq!(keys.tag(4), tag);
        for length in [0, 1, 15, 16, 17, 1000] {
            let plain: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (head, media) = plain.split_at(plain.len() / 3);
            let (head, media) = (head.to_vec(), media.to_vec());
            let clear = CopiedSegment { head, media, protected: Vec::new() };
            let mut bytes = keys.encipher(4, 258, clear).concat();
            assert_eq!(bytes.len(), (length / 16 + 1) * 16);
            let mut iv = [0; 16];
            iv[14..].copy_from_slice(&[1, 2]);
            keys.cbc.decrypt(&AesKey::new(&[9; 16]).unwrap(), &mut iv, &mut bytes);
            let padding = usize::from(*bytes.last().unwrap());
            assert!(bytes[bytes.len() - padding..].iter().all(|&b| usize::from(b) == padding));
            assert_eq!(bytes[..bytes.len() - padding], plain);
        }
    }
    #[test]
    fn blocks_of_samples_are_deciphered_by_the_key_of_the_file() {
        let made = |film: &str, number: u64| {
            let is_ours = film.starts_with("a.mp4/~1-2-3.1") || film == "\0Cbcs";
            assert!(is_ours && number == 0, "{film} {number}");
            [film.len() as u8; 16]
        };
        let protection = Protection::new(SegmentCipher::Cbcs, Arc::new(made));
        let keys = AssetKeys::new("a.mp4/~1-2-3.1".to_owned(), &protection);
        let about = keys.common_encryption();
        assert_ne!(about.key_id, about.iv);
        let plain: Vec<u8> = (0..2000).map(|at| (at / 16) as u8).collect();
        // A message of three blocks far apart, one of a block, and one of blocks side by side.
        let protected = [(100..468, 9), (500..516, 9), (1003..1051, 0)];
        let protected =
            protected.map(|(bytes, clear_blocks)| ProtectedBytes { bytes, clear_blocks }).to_vec();
        let clear = CopiedSegment { head: vec![7], media: plain.clone(), protected };
        let pieces = keys.encipher(3, 9, clear);
        assert_eq!(pieces[0], [7]);
        let mut media = pieces[1].clone();
        for starts in [vec![100, 260, 420], vec![500], vec![1003, 1019, 1035]] {
            let blocks = starts.iter().flat_map(|&at| media[at..at + 16].to_vec());
            let (mut blocks, mut iv) = (blocks.collect::<Vec<_>>(), about.iv);
            keys.cbc.decrypt(&keys.key(0), &mut iv, &mut blocks);
            for (at, block) in starts.into_iter().zip(blocks.chunks(16)) {
                media[at..at + 16].copy_from_slice(block);
            }
        }
        assert_eq!(media, plain);
    }
}
