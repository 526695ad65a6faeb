// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of recorded files, as they travel in packets from the thread that multiplexes a camera's
//! tracks to the recorder.
//!
//! The payload of such a packet is one byte, which tells where files begin and fragments end, the
//! time at which a file began, and then bytes of the file. A packet without more shows the recorder
//! that the camera still sends. No such packet leaves this host.
//!
//! Does not read or write MP4 (`media::mux` does).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most bytes of a file in a packet. Larger packets cost fewer calls of the recorder; 64 KiB less
/// the header is the most of a packet.
pub(crate) const PART_BYTES_MAX: usize = 32 << 10;

/// Most bytes in front of them: the flags and the time.
pub(crate) const PART_HEAD_BYTES: usize = 9;

const BEGINS_FILE: u8 = 1;
const ENDS_FRAGMENT: u8 = 2;

/// Bytes of a recorded file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart<'a> {
    /// Start of the file if they are its first, to the microsecond.
    pub file_began: Option<SystemTime>,
    /// True if a file that ends behind them is whole.
    pub ends_fragment: bool,
    /// The bytes; none if the camera sends, and nothing is to be written yet.
    pub bytes: &'a [u8],
}

impl<'a> FilePart<'a> {
    /// Parses the payload of a packet; `None` if it is too short.
    pub fn parse(payload: &'a [u8]) -> Option<FilePart<'a>> {
        let (flags, mut bytes) = payload.split_first()?;
        let ends_fragment = flags & ENDS_FRAGMENT != 0;
        let mut file_began = None;
        if flags & BEGINS_FILE != 0 {
            let (micros, behind) = bytes.split_first_chunk()?;
            file_began = Some(UNIX_EPOCH + Duration::from_micros(u64::from_be_bytes(*micros)));
            bytes = behind;
        }
        Some(FilePart { file_began, ends_fragment, bytes })
    }

    /// Appends the payload of a packet.
    pub(crate) fn append_to(&self, packet: &mut Vec<u8>) {
        let begins = if self.file_began.is_some() { BEGINS_FILE } else { 0 };
        let ends = if self.ends_fragment { ENDS_FRAGMENT } else { 0 };
        packet.push(begins | ends);
        if let Some(began) = self.file_began {
            let since = began.duration_since(UNIX_EPOCH).unwrap_or_default();
            packet.extend_from_slice(&(since.as_micros() as u64).to_be_bytes());
        }
        packet.extend_from_slice(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_same_behind_the_packet() {
        let began = Some(UNIX_EPOCH + Duration::from_micros(1_764_500_000_123_456));
        for (file_began, ends_fragment, bytes) in
            [(began, false, &[1, 2, 3][..]), (None, true, &[0; 9]), (None, false, &[])]
        {
            let part = FilePart { file_began, ends_fragment, bytes };
            let mut payload = Vec::new();
            part.append_to(&mut payload);
            assert_eq!(FilePart::parse(&payload), Some(part));
        }
        assert_eq!(FilePart::parse(&[]), None);
    }
}
