// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the differences between the header bytes of a fragmented unit's packets.
//!
//! Sources: those of the payload formats ([`crate::payload`]).

/// Differences of the fragments of a row: in their header bytes, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragments {
    /// Header bytes are the same in every packet.
    Alike,
    /// FU header of H.264 and H.265 in the last header byte: bit 7 in the first fragment, bit 6 in
    /// the last.
    StartEnd,
    /// Aggregation header of AV1 in the first header byte: bit 6 (Y) is set in all fragments but
    /// the last. The first fragment, which has the unit's header, is a row of its own.
    Av1,
    /// Fragment offset of MPEG audio in the last two header bytes.
    Offset,
    /// AC-3: frame type in the two low bits of the first header byte: 2 in the first fragment,
    /// which is less than 5/8 of the frame because all are of one size, and 3 in the others.
    Ac3,
}

impl Fragments {
    /// Sets the differing header bytes of one fragment, which follows `skipped` bytes of its row.
    pub(super) fn mark(self, head: &mut [u8], (is_first, is_last): (bool, bool), skipped: u32) {
        match self {
            Fragments::Alike => {}
            Fragments::StartEnd => {
                let fu = head.last_mut().expect("checked when written");
                *fu |= u8::from(is_first) << 7 | u8::from(is_last) << 6;
            }
            Fragments::Av1 => head[0] |= u8::from(!is_last) << 6,
            Fragments::Offset => {
                let offset = (skipped as u16).to_be_bytes();
                let at = head.len() - 2;
                head[at..].copy_from_slice(&offset);
            }
            Fragments::Ac3 => head[0] = head[0] & !3 | if is_first { 2 } else { 3 },
        }
    }
}
