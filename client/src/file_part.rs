// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of recorded files, as they travel in packets from the thread that multiplexes a camera's
//! tracks to the recorder.
//!
//! The payload of such a packet is one byte, which tells where files begin and fragments end, and
//! then bytes of the file. A packet without more shows the recorder that the camera still sends. No
//! such packet leaves this host.
//!
//! Does not read or write MP4 (`media::mux` does).

/// Most bytes of a file in a packet. Larger packets cost fewer calls of the recorder; 64 KiB less
/// the header is the most of a packet.
pub(crate) const PART_BYTES_MAX: usize = 32 << 10;

const BEGINS_FILE: u8 = 1;
const ENDS_FRAGMENT: u8 = 2;

/// Bytes of a recorded file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart<'a> {
    /// True if they are the first of a file.
    pub begins_file: bool,
    /// True if a file that ends behind them is whole.
    pub ends_fragment: bool,
    /// The bytes; none if the camera sends, and nothing is to be written yet.
    pub bytes: &'a [u8],
}

impl<'a> FilePart<'a> {
    /// Parses the payload of a packet; `None` if it is empty.
    pub fn parse(payload: &'a [u8]) -> Option<FilePart<'a>> {
        let (flags, bytes) = payload.split_first()?;
        let begins_file = flags & BEGINS_FILE != 0;
        let ends_fragment = flags & ENDS_FRAGMENT != 0;
        Some(FilePart { begins_file, ends_fragment, bytes })
    }

    /// Appends the payload of a packet.
    pub(crate) fn append_to(&self, packet: &mut Vec<u8>) {
        let begins = if self.begins_file { BEGINS_FILE } else { 0 };
        let ends = if self.ends_fragment { ENDS_FRAGMENT } else { 0 };
        packet.push(begins | ends);
        packet.extend_from_slice(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_same_behind_the_packet() {
        for (begins_file, ends_fragment, bytes) in
            [(true, false, &[1, 2, 3][..]), (false, true, &[0; 9]), (false, false, &[])]
        {
            let part = FilePart { begins_file, ends_fragment, bytes };
            let mut payload = Vec::new();
            part.append_to(&mut payload);
            assert_eq!(FilePart::parse(&payload), Some(part));
        }
        assert_eq!(FilePart::parse(&[]), None);
    }
}
