// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes sealed files of every form of a folder: arbitrary bytes, and altered sealed files.
//!
//! Checked: for every input both implementations open it to the same source or both refuse it; the
//! pieces have a bounded size and together the length of the file; a sealed file opens to its
//! source; a file that was sealed with GCM and then altered does not open.

use std::sync::OnceLock;

use seal::folder::gcm::{self, GcmSegments};
use seal::folder::opener::{Opener, PIECE_BYTES};
use seal::folder::openssl_opener::{self, SOURCE_BYTES};
use seal::folder::{FORMS, FolderForm};
use seal::key::{Origin, Secret};
use simd::cbc::{AesKey, BLOCK_BYTES, Cbc, Message};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "unseal", run };

/// Bytes at the start of the input: form and action; place of the change (two); kind of change.
const CHOICES_BYTES: usize = 4;

/// Repetitions of the input in a source; long sources have several segments.
const REPEATS: [usize; 4] = [1, 1, 200, 1000];
const SOURCE_BYTES_MAX: usize = 5 * PIECE_BYTES;

/// A container form, with or without a given IV, and both openers for it.
struct Both {
    form: &'static FolderForm,
    iv: Option<[u8; BLOCK_BYTES]>,
    secret: Secret,
    lanes: Cbc,
    first: Opener,
    second: openssl_opener::OpensslOpener,
}

fn run(data: &[u8]) {
    let Some((&[choice, high, low, how], body)) = data.split_first_chunk::<CHOICES_BYTES>() else {
        return;
    };
    static ALL: OnceLock<Vec<Both>> = OnceLock::new();
    let all = ALL.get_or_init(all);
    let both = &all[usize::from(choice >> 3) % all.len()];
    if choice & 1 == 0 {
        both.opened(body);
        return;
    }
    let source = body.repeat(REPEATS[usize::from(choice >> 1 & 3)]);
    let source = &source[..source.len().min(SOURCE_BYTES_MAX)];
    let sealed = both.sealed(source);
    assert_eq!(both.opened(&sealed).as_deref(), Some(source), "{}", both.form.name);
    let at = u16::from_be_bytes([high, low]).into();
    let changed = changed(&sealed, at, how);
    let opened = both.opened(&changed);
    if changed != sealed && !both.form.takes_iv {
        assert_eq!(opened, None, "changed at {at} by {how}");
    }
}

fn all() -> Vec<Both> {
    let lanes = simd::Kernels::here().cbc;
    let mut all = Vec::new();
    for form in FORMS {
        let hex = "5a".repeat(form.key_bytes);
        let secret = Secret::from_hex(hex.as_bytes(), Origin::new("a key", "")).expect("hex");
        for iv in [None, Some([3; BLOCK_BYTES])] {
            if iv.is_some() && !form.takes_iv {
                continue;
            }
            let first = Opener::new(form, iv, &secret, lanes).expect("its key");
            let second = openssl_opener::OpensslOpener::new(form, iv, &secret).expect("its key");
            all.push(Both { form, iv, secret: secret.clone(), lanes, first, second });
        }
    }
    all
}

/// Alters the file: flips a byte, cuts, appends, or drops, repeats or swaps a segment.
fn changed(sealed: &[u8], at: usize, how: u8) -> Vec<u8> {
    let at = at % sealed.len();
    let mut segments: Vec<&[u8]> = sealed.chunks(gcm::SEGMENT_BYTES).collect();
    let segment = at % segments.len();
    match how % 6 {
        0 => {
            let mut changed = sealed.to_vec();
            changed[at] ^= (how >> 3) | 1;
            return changed;
        }
        1 => return sealed[..at].to_vec(),
        2 => return [sealed, &sealed[at..]].concat(),
        3 => drop(segments.remove(segment)),
        4 => segments.insert(segment, segments[segment]),
        _ => segments.swap(segment, (segment + 1) % sealed.len().div_ceil(gcm::SEGMENT_BYTES)),
    }
    segments.concat()
}

impl Both {
    /// Opens by both implementations and returns their common result.
    fn opened(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let first = self.by_first(sealed);
        assert_eq!(first, self.by_second(sealed), "{}: two opinions", self.form.name);
        first
    }

    fn by_first(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let mut opening = self.first.begin(sealed.len() as u64).ok()?;
        let (mut source, mut rest) = (Vec::new(), sealed);
        loop {
            let bytes = opening.next_bytes();
            assert!(bytes <= PIECE_BYTES);
            let (piece, after) = rest.split_at(bytes);
            let mut piece = piece.to_vec();
            let range = opening.open(&mut piece).ok()?;
            source.extend_from_slice(&piece[range]);
            rest = after;
            if opening.next_bytes() == 0 {
                assert!(rest.is_empty(), "all of it was taken");
                return Some(source);
            }
        }
    }

    fn by_second(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let mut opening = self.second.begin(sealed.len() as u64).ok()?;
        let (mut source, mut rest) = (Vec::new(), sealed);
        let mut opened = Box::new([0; SOURCE_BYTES]);
        loop {
            let (piece, after) = rest.split_at(opening.next_bytes());
            let bytes = opening.open(piece, &mut opened).ok()?;
            source.extend_from_slice(&opened[..bytes]);
            rest = after;
            if opening.next_bytes() == 0 {
                assert!(rest.is_empty(), "all of it was taken");
                return Some(source);
            }
        }
    }

    /// Seals the source in memory, in the plainest way.
    fn sealed(&self, source: &[u8]) -> Vec<u8> {
        if self.form.takes_iv { self.sealed_by_lanes(source) } else { self.segmented(source) }
    }

    fn sealed_by_lanes(&self, source: &[u8]) -> Vec<u8> {
        let key = AesKey::new(self.secret.bytes()).expect("its key");
        let mut iv = self.iv.unwrap_or([7; BLOCK_BYTES]);
        let mut sealed = if self.iv.is_none() { iv.to_vec() } else { Vec::new() };
        let front = sealed.len();
        sealed.extend_from_slice(source);
        let padding = BLOCK_BYTES - source.len() % BLOCK_BYTES;
        sealed.resize(sealed.len() + padding, padding as u8);
        let bytes = &mut sealed[front..];
        self.lanes.encrypt(&mut [Message { key: &key, iv: &mut iv, bytes }]);
        sealed
    }

    fn segmented(&self, source: &[u8]) -> Vec<u8> {
        let mut header = [7; gcm::HEADER_BYTES];
        header[0] = gcm::HEADER_BYTES as u8;
        let key = self.secret.bytes().try_into().expect("its key");
        let mut segments = GcmSegments::new(key, &header).expect("a header");
        let mut sealed = header.to_vec();
        let mut rest = source;
        loop {
            let most = segments.next_bytes() - gcm::TAG_BYTES;
            let (text, after) = rest.split_at(rest.len().min(most));
            let at = sealed.len();
            sealed.extend_from_slice(text);
            sealed.extend_from_slice(&[0; gcm::TAG_BYTES]);
            segments.seal(&mut sealed[at..], after.is_empty()).expect("few segments");
            rest = after;
            if rest.is_empty() {
                assert_eq!(gcm::sealed_bytes(source.len() as u64), Some(sealed.len() as u64));
                return sealed;
            }
        }
    }
}
