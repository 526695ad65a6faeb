// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of AAC frames in ADTS.
//!
//! The header is not sent: with RFC 3640 decoders get the same fields once, in the
//! AudioSpecificConfig that is derived from it.
//!
//! Sources: ISO/IEC 14496-3 §1.A.2.2.1, table 1.18 (rates), §1.6.2.1 (AudioSpecificConfig).
//! Does not accept frames of several blocks or with channels by a programme configuration element.

use super::{Frame, HEADER_BYTES};
use crate::tracks::records;

pub(crate) fn parse(header: &[u8; HEADER_BYTES]) -> Option<Frame> {
    let [0xff, second, third, fourth, fifth, sixth, seventh, ..] = *header else { return None };
    // Sync word, and layer 0.
    if second & 0xf6 != 0xf0 {
        return None;
    }
    let has_check = second & 1 == 0;
    let (profile, rate) = (third >> 6, third >> 2 & 15);
    let channels = (third & 1) << 2 | fourth >> 6;
    let bytes = u32::from(fourth & 3) << 11 | u32::from(fifth) << 3 | u32::from(sixth) >> 5;
    let skipped = if has_check { 9 } else { 7 };
    let blocks = seventh & 3;
    if bytes <= skipped || blocks != 0 || channels == 0 {
        return None;
    }
    let specific = [(profile + 1) << 3 | rate >> 1, (rate & 1) << 7 | channels << 3];
    let codec = records::aac(&specific, channels).ok()?;
    let rate_hz = codec.clock_rate_hz();
    Some(Frame { bytes, skipped, rate_hz, duration: 1024, codec })
}
