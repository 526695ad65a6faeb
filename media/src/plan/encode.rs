// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes a plan as bytes for the cache folder, and decodes it.
//!
//! ```text
//! magic      8  "pwplan\r\n"
//! format     4  little endian, as the CRC
//! body          numbers, seven bits a byte, lowest first, the last without its top bit (LEB128)
//! CRC-32     4  of everything before it
//! ```
//! Tables are stored as differences, so a clock point takes about five bytes. A stored plan is
//! used only when the CRC is right, the key is that of the file as it is now and everything the
//! arithmetic relies on has been checked again. So even a forged plan can lead at worst to wrong
//! bytes of the right file, and never to a panic or to memory that its size does not justify.

use super::{
    ClockPoint, ElementaryStream, EntryPoint, PacketPlan, PlanParts, RtpIdentity, SyncLoss,
};
use crate::{Aspect, PlanFault};

/// Number of the format; to be raised with every change of it, and of what a scan finds.
pub const FORMAT: u32 = 2;

const MAGIC: [u8; 8] = *b"pwplan\r\n";
const BODY_OFFSET: usize = MAGIC.len() + 4;
const CRC_BYTES: usize = 4;

/// Identity of a file's state: a stored plan is used only for the same state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanKey {
    /// The file's path, in whatever form the caller always uses.
    pub path: Vec<u8>,
    /// Its size.
    pub bytes: u64,
    /// Its time of last modification, since 1970.
    pub modified_ns: i128,
    /// Its inode number.
    pub inode: u64,
}

impl PlanKey {
    fn differs(&self, other: &Self) -> Option<Aspect> {
        [
            (self.path != other.path, Aspect::Path),
            (self.bytes != other.bytes, Aspect::Bytes),
            (self.modified_ns != other.modified_ns, Aspect::Modified),
            (self.inode != other.inode, Aspect::Inode),
        ]
        .into_iter()
        .find_map(|(differs, aspect)| differs.then_some(aspect))
    }
}

impl PacketPlan {
    /// The plan as bytes, valid for the file with this key only.
    pub fn encode(&self, key: &PlanKey) -> Vec<u8> {
        let mut out = PlanWriter(Vec::with_capacity(256 + key.path.len() + self.clock.len() * 6));
        out.0.extend(MAGIC);
        out.0.extend(FORMAT.to_le_bytes());
        out.number(key.path.len() as u64);
        out.0.extend(&key.path);
        out.number(key.bytes);
        out.0.extend(key.modified_ns.to_le_bytes());
        out.number(key.inode);
        out.0.extend(self.identity.ssrc.to_le_bytes());
        out.0.extend(self.identity.first_sequence.to_le_bytes());
        out.0.extend(self.identity.first_timestamp.to_le_bytes());
        for number in [
            self.stride,
            self.file_bytes,
            self.discontinuities,
            self.losses_seen,
            self.lost_bytes,
            self.tail_bytes,
        ] {
            out.number(number);
        }
        out.pairs(&self.extents, |extent| (extent.file_offset, extent.ts_packets));
        let mut last = ClockPoint { ts_packet: 0, ticks: 0 };
        out.pairs(&self.clock, |&point| {
            let before = std::mem::replace(&mut last, point);
            (point.ts_packet - before.ts_packet, point.ticks - before.ticks)
        });
        let mut last = 0;
        out.pairs(&self.entries, |entry| {
            let before = std::mem::replace(&mut last, entry.ts_packet);
            (entry.ts_packet - before, entry.access_unit - entry.ts_packet)
        });
        let mut last = 0;
        for entry in &self.entries {
            out.number(entry.presented_ticks - last);
            last = entry.presented_ticks;
        }
        out.pairs(&self.streams, |stream| (stream.pid.into(), stream.stream_type.into()));
        out.pairs(&self.losses, |loss| (loss.offset, loss.bytes));
        let codecs = self.codecs.as_deref().unwrap_or_default();
        out.number(codecs.len() as u64);
        out.0.extend(codecs.as_bytes());
        let crc = crc32fast::hash(&out.0);
        out.0.extend(crc.to_le_bytes());
        out.0
    }

    /// The plan of the file with this key, from what [`encode`](Self::encode) made of it.
    pub fn decode(bytes: &[u8], key: &PlanKey) -> Result<Self, PlanFault> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(PlanFault::Foreign)?;
        let cut_off = PlanFault::Damaged { offset: bytes.len() as u64, what: "cut off" };
        let Some((format, _)) = rest.split_first_chunk() else { return Err(cut_off) };
        let found = u32::from_le_bytes(*format);
        if found != FORMAT {
            return Err(PlanFault::Version { found, expected: FORMAT });
        }
        let Some((before, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(cut_off);
        };
        if before.len() < BODY_OFFSET {
            return Err(cut_off);
        }
        if crc32fast::hash(before) != u32::from_le_bytes(*crc) {
            return Err(PlanFault::Damaged { offset: 0, what: "wrong CRC" });
        }
        let mut body = PlanReader { bytes: before, at: BODY_OFFSET };
        let fault = |at, what| PlanFault::Damaged { offset: at as u64, what };
        let stored = body.key().ok_or_else(|| fault(body.at, "key"))?;
        if let Some(which) = stored.differs(key) {
            return Err(PlanFault::Outdated { which });
        }
        let parts = body.parts().ok_or_else(|| fault(body.at, "number"))?;
        if body.at != before.len() {
            return Err(fault(body.at, "bytes after the end"));
        }
        if parts.file_bytes != key.bytes {
            return Err(fault(body.at, "file size"));
        }
        Self::assemble(parts).map_err(|what| fault(BODY_OFFSET, what))
    }
}

struct PlanWriter(Vec<u8>);

impl PlanWriter {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn pairs<T>(&mut self, items: &[T], mut pair: impl FnMut(&T) -> (u64, u64)) {
        self.number(items.len() as u64);
        for item in items {
            let (first, second) = pair(item);
            self.number(first);
            self.number(second);
        }
    }
}

/// Reads the bytes of [`PlanWriter`]; none where they are malformed.
struct PlanReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl PlanReader<'_> {
    fn key(&mut self) -> Option<PlanKey> {
        let path = self.bytes()?.to_vec();
        let bytes = self.number()?;
        let modified_ns = i128::from_le_bytes(self.array()?);
        Some(PlanKey { path, bytes, modified_ns, inode: self.number()? })
    }

    fn parts(&mut self) -> Option<PlanParts> {
        let identity = RtpIdentity {
            ssrc: u32::from_le_bytes(self.array()?),
            first_sequence: u16::from_le_bytes(self.array()?),
            first_timestamp: u32::from_le_bytes(self.array()?),
        };
        let stride = self.number()?;
        let file_bytes = self.number()?;
        let discontinuities = self.number()?;
        let losses_seen = self.number()?;
        let lost_bytes = self.number()?;
        let tail_bytes = self.number()?;
        let extents = self.pairs(|offset, packets| Some((offset, packets)))?;
        let mut last = ClockPoint { ts_packet: 0, ticks: 0 };
        let clock = self.pairs(|packets, ticks| {
            last.ts_packet = last.ts_packet.checked_add(packets)?;
            last.ticks = last.ticks.checked_add(ticks)?;
            Some(last)
        })?;
        let mut ts_packet = 0_u64;
        let mut entries = self.pairs(|packets, lead| {
            ts_packet = ts_packet.checked_add(packets)?;
            let access_unit = ts_packet.checked_add(lead)?;
            Some(EntryPoint { ts_packet, access_unit, presented_ticks: 0 })
        })?;
        let mut last = 0_u64;
        for entry in &mut entries {
            last = last.checked_add(self.number()?)?;
            entry.presented_ticks = last;
        }
        let streams = self.pairs(|pid, stream_type| {
            let pid = u16::try_from(pid).ok()?;
            Some(ElementaryStream { pid, stream_type: u8::try_from(stream_type).ok()? })
        })?;
        let losses = self.pairs(|offset, bytes| Some(SyncLoss { offset, bytes }))?;
        let codecs = str::from_utf8(self.bytes()?).ok()?;
        let codecs = (!codecs.is_empty()).then(|| codecs.to_owned());
        Some(PlanParts {
            identity,
            stride,
            file_bytes,
            extents,
            clock,
            discontinuities,
            entries,
            streams,
            losses,
            losses_seen,
            lost_bytes,
            tail_bytes,
            codecs,
        })
    }

    /// A number of bytes and those.
    fn bytes(&mut self) -> Option<&[u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        let bytes = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = u64::from(*self.bytes.get(self.at)?);
            self.at += 1;
            let bits = byte & 0x7f;
            number |= bits << shift;
            if number >> shift != bits {
                return None;
            }
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn pairs<T>(&mut self, mut item: impl FnMut(u64, u64) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // A pair takes two bytes at least; a count beyond that is not worth its memory.
        if count > (self.bytes.len() - self.at) / 2 {
            return None;
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            let (first, second) = (self.number()?, self.number()?);
            items.push(item(first, second)?);
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_as_written() {
        for number in (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, u64::MAX >> bit]) {
            let mut out = PlanWriter(Vec::new());
            out.number(number);
            let mut reader = PlanReader { bytes: &out.0, at: 0 };
            assert_eq!((reader.number(), reader.at), (Some(number), out.0.len()));
        }
    }

    #[test]
    fn numbers_that_do_not_fit_or_do_not_end_are_refused() {
        let number = |bytes: &[u8]| PlanReader { bytes, at: 0 }.number();
        assert_eq!(number(&[0xff; 9]), None);
        assert_eq!(number(&[&[0xff; 9][..], &[0x02]].concat()), None);
        assert_eq!(number(&[&[0xff; 9][..], &[0x01]].concat()), Some(u64::MAX));
        assert_eq!(number(&[0xff; 20]), None);
    }

    #[test]
    fn a_count_is_believed_only_if_the_bytes_are_there() {
        let mut reader = PlanReader { bytes: &[0xff, 0xff, 0xff, 0x7f, 1, 1], at: 0 };
        assert_eq!(reader.pairs(|first, second| Some((first, second))), None);
    }
}
