// SPDX-License-Identifier: MIT OR Apache-2.0
//! The envelope of a stored plan, and its numbers.
//!
//! ```text
//! magic      8  by kind of plan
//! format     4  little endian, as the CRC
//! body          the file's key, then the plan: numbers, seven bits a byte, lowest first, the last
//!               without its top bit (LEB128)
//! CRC-32     4  of everything before it
//! ```
//! A stored plan is used only if the CRC is right and the key is that of the file as it is now. The
//! reader of a body checks every value on which its arithmetic relies. So even a forged plan can
//! lead at worst to wrong bytes of the right file, and never to a panic or to memory that its size
//! does not justify.
//!
//! Does not interpret the content of plans.

use crate::PlanFault;
use crate::plan::PlanKey;

const BODY_OFFSET: usize = Envelope::MAGIC_BYTES + 4;
const CRC_BYTES: usize = 4;

/// Magic and format number of stored plans of one kind.
pub(crate) struct Envelope {
    pub(crate) magic: [u8; Envelope::MAGIC_BYTES],
    /// To be increased with every change of the format, and of the result of a scan.
    pub(crate) format: u32,
}

impl Envelope {
    const MAGIC_BYTES: usize = 8;

    /// Returns the bytes to store; `write` adds the plan after the key.
    pub(crate) fn seal(&self, key: &PlanKey, write: impl FnOnce(&mut PlanWriter)) -> Vec<u8> {
        let mut out = PlanWriter(Vec::with_capacity(256 + key.path.len()));
        out.0.extend(self.magic);
        out.0.extend(self.format.to_le_bytes());
        out.bytes(&key.path);
        out.number(key.bytes);
        out.0.extend(key.modified_ns.to_le_bytes());
        out.number(key.inode);
        write(&mut out);
        let crc = crc32fast::hash(&out.0);
        out.0.extend(crc.to_le_bytes());
        out.0
    }

    /// Parses a stored plan of the file with this key by `read`, which must consume all of it.
    pub(crate) fn open<T>(
        &self,
        bytes: &[u8],
        key: &PlanKey,
        read: impl FnOnce(&mut PlanReader<'_>) -> Option<T>,
    ) -> Result<T, PlanFault> {
        let rest = bytes.strip_prefix(&self.magic).ok_or(PlanFault::Foreign)?;
        let cut_off = PlanFault::Damaged { offset: bytes.len() as u64, what: "cut off" };
        let Some((format, _)) = rest.split_first_chunk() else { return Err(cut_off) };
        let (found, expected) = (u32::from_le_bytes(*format), self.format);
        if found != expected {
            return Err(PlanFault::Version { found, expected });
        }
        let Some((before, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(cut_off);
        };
        if before.len() < BODY_OFFSET {
            return Err(cut_off);
        }
        if crc32fast::hash(before) != u32::from_le_bytes(*crc) {
            return Err(damaged(0, "wrong CRC"));
        }
        let mut body = PlanReader { bytes: before, at: BODY_OFFSET };
        let stored = body.key().ok_or_else(|| damaged(body.at, "key"))?;
        if let Some(which) = stored.differs(key) {
            return Err(PlanFault::Outdated { which });
        }
        let parts = read(&mut body).ok_or_else(|| damaged(body.at, "number"))?;
        match body.at == before.len() {
            true => Ok(parts),
            false => Err(damaged(body.at, "bytes after the end")),
        }
    }
}

/// The fault of a plan whose part `what` contradicts the others.
pub(crate) fn contradiction(what: &'static str) -> PlanFault {
    damaged(BODY_OFFSET, what)
}

fn damaged(offset: usize, what: &'static str) -> PlanFault {
    PlanFault::Damaged { offset: offset as u64, what }
}

/// Writes numbers.
pub(crate) struct PlanWriter(pub(crate) Vec<u8>);

impl PlanWriter {
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A number that may be negative: small ones of either sign are short.
    pub(crate) fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }

    /// A number of bytes and those.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn pairs<T>(&mut self, items: &[T], mut pair: impl FnMut(&T) -> (u64, u64)) {
        self.number(items.len() as u64);
        for item in items {
            let (first, second) = pair(item);
            self.number(first);
            self.number(second);
        }
    }
}

/// Reads the bytes of [`PlanWriter`]; `None` if they are malformed.
pub(crate) struct PlanReader<'a> {
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

    /// A number of bytes and those.
    pub(crate) fn bytes(&mut self) -> Option<&[u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        let bytes = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*array)
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
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

    pub(crate) fn pairs<T>(
        &mut self,
        mut item: impl FnMut(u64, u64) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.items(2, |reader| item(reader.number()?, reader.number()?))
    }

    /// A number of items of `least_bytes` each or more, and those.
    pub(crate) fn items<T>(
        &mut self,
        least_bytes: usize,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // A count larger than the remaining bytes must not reserve memory.
        if count > (self.bytes.len() - self.at) / least_bytes {
            return None;
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
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
    fn every_signed_number_is_read_as_written() {
        for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            let mut out = PlanWriter(Vec::new());
            out.signed(number);
            let bytes = out.0.len();
            assert!(bytes == 1 || !(-64..64).contains(&number), "{number}: {bytes} bytes");
            assert_eq!(PlanReader { bytes: &out.0, at: 0 }.signed(), Some(number));
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
