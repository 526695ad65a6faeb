// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a rendition's segments: detects the container by the first bytes, then runs the
//! container's own checks.
//!
//! Segments are fed in pieces; no more than a `moof` of a segment is buffered.
//!
//! Sources: RFC 8216 §3 (segment formats), §3.3 (EXT-X-MAP), §3.4 (packed audio), §3.5 (WebVTT).
//! Does not decrypt, decode, or check packed audio and WebVTT beyond their first bytes.

use serde::Serialize;

use super::fmp4_check::Fmp4Check;
use super::ts_check::{SYNC, TsCheck};

/// Container of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentContainer {
    /// MPEG transport stream.
    TransportStream,
    /// Fragmented MP4.
    Fmp4,
    /// Audio frames after an ID3 tag, or ADTS without a tag.
    PackedAudio,
    /// WebVTT.
    WebVtt,
    /// Encrypted as a whole.
    Enciphered,
}

/// Faults of one segment; the first ones are listed.
#[derive(Debug, Default)]
pub(super) struct FoundFaults {
    /// Offset in the segment, and the fault.
    pub(super) listed: Vec<(u64, String)>,
    pub(super) count: u64,
}

impl FoundFaults {
    pub(super) fn add(&mut self, offset: u64, found: impl FnOnce() -> String) {
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push((offset, found()));
        }
    }
}

/// Checks of one rendition.
pub(super) struct SegmentCheck {
    ts: Option<TsCheck>,
    fmp4: Fmp4Check,
    /// First bytes, until they suffice to detect the container.
    first: Vec<u8>,
    container: Option<SegmentContainer>,
    /// The container is not checked, or unknown.
    is_passed: bool,
    has_init: bool,
    is_discontinuity: bool,
    bytes: u64,
}

impl SegmentCheck {
    pub(super) fn new() -> SegmentCheck {
        SegmentCheck {
            ts: None,
            fmp4: Fmp4Check::default(),
            first: Vec::new(),
            container: None,
            is_passed: false,
            has_init: false,
            is_discontinuity: false,
            bytes: 0,
        }
    }

    /// Checks an init section, which applies to the following segments.
    pub(super) fn init(&mut self, bytes: &[u8], faults: &mut FoundFaults) {
        // EXT-X-MAP of a transport stream contains a PAT and a PMT.
        if bytes.first() != Some(&SYNC) {
            self.fmp4.init(bytes, faults);
        }
    }

    pub(super) fn begin(&mut self, has_init: bool, is_discontinuity: bool, is_enciphered: bool) {
        self.first.clear();
        self.bytes = 0;
        self.container = is_enciphered.then_some(SegmentContainer::Enciphered);
        (self.has_init, self.is_discontinuity, self.is_passed) =
            (has_init, is_discontinuity, is_enciphered);
    }

    pub(super) fn feed(&mut self, bytes: &[u8], faults: &mut FoundFaults) {
        self.bytes += bytes.len() as u64;
        if self.is_passed {
            return;
        }
        if self.container.is_some() {
            return self.pass(bytes, faults);
        }
        self.first.extend_from_slice(bytes);
        if self.first.len() >= FIRST_BYTES {
            self.decide(faults);
        }
    }

    /// Ends a segment; returns its container.
    pub(super) fn end(&mut self, faults: &mut FoundFaults) -> Option<SegmentContainer> {
        if self.bytes == 0 {
            faults.add(0, || "an empty segment".to_owned());
            return self.container;
        }
        if self.container.is_none() && !self.is_passed {
            self.decide(faults);
        }
        match self.container {
            Some(SegmentContainer::TransportStream) => {
                if let Some(ts) = &mut self.ts {
                    ts.end(faults);
                }
            }
            Some(SegmentContainer::Fmp4) => self.fmp4.end(faults),
            Some(SegmentContainer::Enciphered) if !self.bytes.is_multiple_of(CIPHER_BLOCK) => {
                let bytes = self.bytes;
                faults.add(bytes, || {
                    format!("{bytes} bytes are no whole blocks of AES-128 (RFC 8216 §4.3.2.4)")
                });
            }
            _ => {}
        }
        self.container
    }

    /// Detects the container by the first bytes, and checks them.
    fn decide(&mut self, faults: &mut FoundFaults) {
        let first = std::mem::take(&mut self.first);
        let is_box = first.get(4..8).is_some_and(|kind| FIRST_BOXES.contains(&kind));
        let container = match &first[..] {
            [SYNC, ..] => SegmentContainer::TransportStream,
            _ if is_box => SegmentContainer::Fmp4,
            [b'I', b'D', b'3', ..] => SegmentContainer::PackedAudio,
            [0xff, second, ..] if second & 0xf0 == 0xf0 => SegmentContainer::PackedAudio,
            [b'W', b'E', b'B', b'V', b'T', b'T', ..] => SegmentContainer::WebVtt,
            _ => {
                self.is_passed = true;
                let shown = &first[..first.len().min(8)];
                return faults.add(0, || {
                    format!("neither TS nor fMP4, packed audio nor WebVTT: it begins {shown:02x?}")
                });
            }
        };
        self.container = Some(container);
        match container {
            SegmentContainer::TransportStream => {
                self.ts
                    .get_or_insert_with(TsCheck::new)
                    .begin(self.is_discontinuity, self.has_init);
            }
            SegmentContainer::Fmp4 => {
                if !self.has_init {
                    faults.add(0, || "fMP4 without EXT-X-MAP (RFC 8216 §3.3)".to_owned());
                }
                self.fmp4.begin(self.is_discontinuity);
            }
            _ => self.is_passed = true,
        }
        self.pass(&first, faults);
    }

    fn pass(&mut self, bytes: &[u8], faults: &mut FoundFaults) {
        match (self.container, &mut self.ts) {
            (Some(SegmentContainer::TransportStream), Some(ts)) => ts.feed(bytes, faults),
            (Some(SegmentContainer::Fmp4), _) => self.fmp4.feed(bytes, faults),
            _ => {}
        }
    }
}

const LISTED_MAX: usize = 5;
const FIRST_BYTES: usize = 8;
const CIPHER_BLOCK: u64 = 16;
/// Boxes that may be first in a segment.
const FIRST_BOXES: [&[u8]; 8] =
    [b"styp", b"ftyp", b"moof", b"sidx", b"emsg", b"prft", b"free", b"moov"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hls::fmp4_check::tests as fmp4;

    fn check(bytes: &[u8], is_enciphered: bool) -> (Option<SegmentContainer>, Vec<(u64, String)>) {
        let mut seen = None;
        for piece in [1, 3, 1000] {
            let (mut check, mut faults) = (SegmentCheck::new(), FoundFaults::default());
            check.begin(false, false, is_enciphered);
            bytes.chunks(piece).for_each(|piece| check.feed(piece, &mut faults));
            let found = (check.end(&mut faults), faults.listed);
            assert_eq!(*seen.get_or_insert(found.clone()), found);
        }
        seen.unwrap()
    }

    #[test]
    fn containers_are_known_by_their_first_bytes() {
        let is_good = |bytes: &[u8], container| {
            assert_eq!(check(bytes, false), (Some(container), Vec::new()));
        };
        is_good(b"ID3\x04\0\0\0\0\0\0", SegmentContainer::PackedAudio);
        is_good(&[0xff, 0xf1, 0x50, 0x80], SegmentContainer::PackedAudio);
        is_good(b"WEBVTT\n\n", SegmentContainer::WebVtt);
        let (container, faults) = check(b"<html><body>", false);
        assert_eq!(container, None);
        assert!(faults[0].1.starts_with("neither TS nor fMP4"), "{faults:?}");
        assert_eq!(check(b"", false).1, [(0, "an empty segment".to_owned())]);
        let (container, faults) = check(b"\0\0\0\x08free", false);
        assert_eq!(container, Some(SegmentContainer::Fmp4));
        assert!(faults[0].1.starts_with("fMP4 without EXT-X-MAP"), "{faults:?}");
    }

    #[test]
    fn enciphered_segments_are_whole_blocks() {
        assert_eq!(check(&[0x47; 32], true), (Some(SegmentContainer::Enciphered), Vec::new()));
        assert_eq!(check(&[0x47; 33], true).1[0].0, 33);
    }

    /// For any content of a segment or an init section, the checks end, and find the same faults
    /// for any division into pieces.
    #[test]
    fn foreign_bytes_are_checked_without_a_panic() {
        let ts = crate::hls::scripted_origin::ts_segment(0);
        let seeds = [fmp4::segment(1, 0), ts[..940].to_vec()];
        let mut noise = 1_u64;
        let mut next = |below: usize| {
            // xorshift64.
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            (noise >> 11) as usize % below
        };
        for round in 0..4000 {
            let mut bytes = seeds[round % 2].clone();
            let mut init = fmp4::init();
            for _ in 0..1 + next(4) {
                let value = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
                let target = if next(3) == 0 { &mut init } else { &mut bytes };
                let at = next(target.len());
                target[at] = value;
            }
            bytes.truncate(1 + next(bytes.len() * 2));
            let mut seen = None;
            for piece in [1 + next(40), 5000] {
                let (mut check, mut faults) = (SegmentCheck::new(), FoundFaults::default());
                check.init(&init, &mut faults);
                check.begin(true, false, false);
                bytes.chunks(piece).for_each(|piece| check.feed(piece, &mut faults));
                let found = (check.end(&mut faults), faults.listed, faults.count);
                assert_eq!(*seen.get_or_insert(found.clone()), found, "round {round}");
            }
        }
    }

    #[test]
    fn only_the_first_faults_of_a_segment_are_listed() {
        let mut faults = FoundFaults::default();
        (0..9).for_each(|at| faults.add(at, || "x".to_owned()));
        assert_eq!((faults.count, faults.listed.len()), (9, LISTED_MAX));
    }
}
