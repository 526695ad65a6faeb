// SPDX-License-Identifier: MIT OR Apache-2.0
//! NAL units in byte stream format: between start codes.
//!
//! The search examines one byte in three where no start code is near, and copies nothing.
//!
//! Sources: ISO/IEC 14496-10 annex B, ISO/IEC 23008-2 annex B.
//! Does not read the units.

/// Offsets after each start code.
pub(crate) fn start_codes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(window) = bytes.get(at..at + START_CODE_BYTES) {
            match window {
                [0, 0, 1] => {
                    at += START_CODE_BYTES;
                    return Some(at);
                }
                [_, 0, 0] => at += 1,
                // A start code may begin with the last of these.
                [_, _, 0] => at += 2,
                _ => at += START_CODE_BYTES,
            }
        }
        None
    })
}

/// Iterates over the NAL units after start codes, without trailing zeros; none of them is empty.
pub(crate) fn started_nals(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut starts = start_codes(bytes).peekable();
    std::iter::from_fn(move || {
        while let Some(start) = starts.next() {
            let end = starts.peek().map_or(bytes.len(), |next| next - START_CODE_BYTES);
            let nal = without_zeros(&bytes[start..end.max(start)]);
            if !nal.is_empty() {
                return Some(nal);
            }
        }
        None
    })
}

/// Removes trailing zeros from a NAL unit: they belong to the next start code, or are padding.
pub(crate) fn without_zeros(nal: &[u8]) -> &[u8] {
    &nal[..nal.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
}

/// 00 00 01; a zero before it is padding.
pub(crate) const START_CODE_BYTES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_lie_between_start_codes_and_padding_goes() {
        let unit = [0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 0, 1, 0x65, 0, 1, 0, 2, 0, 0, 1, 0x41, 7, 0, 0];
        let found: Vec<_> = started_nals(&unit).collect();
        assert_eq!(found, [&[9, 0xf0][..], &[0x65, 0, 1, 0, 2], &[0x41, 7]]);
        for nothing in [&[][..], &[0, 0], &[1, 2, 3], &[0, 0, 1], &[0, 0, 1, 0, 0, 1, 0]] {
            assert_eq!(started_nals(nothing).count(), 0, "{nothing:?}");
        }
    }

    #[test]
    fn start_codes_are_found_at_every_place() {
        for before in 0..9 {
            for fill in [0, 1, 2, 0xff] {
                let mut unit = vec![fill; before];
                unit.extend([0, 0, 1, 0x65, 3]);
                let found: Vec<_> = start_codes(&unit).collect();
                assert_eq!(found, [before + 3], "{before} bytes of {fill}");
            }
        }
    }
}
