// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts an intra picture of H.264 to an instantaneous decoding refresh (IDR).
//!
//! Broadcasters and encoders with open groups of pictures write key pictures that a decoder cannot
//! distinguish from other pictures of their sequence: it reorders them by counters that restart
//! elsewhere, and drops those that seem to be late. As an IDR picture each begins a sequence. The
//! headers of its slices get another type, frame number 0, an identifier, and the marking of an IDR
//! picture; slice data is copied, shifted by some bits if it is coded with variable lengths. The
//! second field of a frame stays a field that refers to the first, with the same frame number.
//!
//! A picture of another structure (slice groups, data partitions, no intra slices) is returned
//! unchanged.
//!
//! Costs two copies of the picture.
//!
//! Sources: ISO/IEC 14496-10 §7.3.2.1.1 and §7.3.2.2 (parameter sets), §7.3.3 (slice header),
//! §7.3.3.3 (marking), §7.4.1.2.4, §8.2.1.
//! Does not change slice data.

use crate::bits::{Bits, without_emulation};
use crate::sequence::H264Frames;

/// Rewrites the slices of one picture.
pub(super) struct Refresh {
    sequences: Vec<(u32, H264Frames)>,
    pictures: Vec<(u32, PictureSet)>,
    /// Parity of the first slice's field; unset before it.
    first: Option<Option<bool>>,
}

/// Fields of a picture parameter set.
#[derive(Clone, Copy)]
struct PictureSet {
    sequence: u32,
    is_arithmetic: bool,
    has_order: bool,
    has_deblocking: bool,
    has_redundant: bool,
}

impl Refresh {
    /// With the parameter sets among these NAL units.
    pub(super) fn of(nals: &[&[u8]]) -> Refresh {
        let (mut sequences, mut pictures) = (Vec::new(), Vec::new());
        for nal in nals {
            match nal[0] & 0x1f {
                7 => sequences.extend(H264Frames::read(nal)),
                8 => pictures.extend(PictureSet::read(&nal[1..])),
                _ => {}
            }
        }
        Refresh { sequences, pictures, first: None }
    }

    /// Adds a slice to `out`.
    pub(super) fn add(&mut self, nal: &[u8], out: &mut Vec<u8>) {
        match self.rewritten(nal) {
            Some(rewritten) => out.extend(rewritten),
            None => out.extend_from_slice(nal),
        }
    }

    fn rewritten(&mut self, nal: &[u8]) -> Option<Vec<u8>> {
        if nal[0] & 0x1f != 1 {
            return None;
        }
        let body = without_emulation(&nal[1..]);
        let mut header = BitCopy::new(&body);
        header.golomb()?;
        let slice_type = header.golomb()?;
        let picture = header.golomb()?;
        // The last of an identifier is in force.
        let (_, picture) = self.pictures.iter().rev().find(|(id, _)| *id == picture)?;
        let (_, sequence) = self.sequences.iter().rev().find(|(id, _)| *id == picture.sequence)?;
        if sequence.is_planar {
            header.copy(2)?;
        }
        header.replace(sequence.frame_number_bits)?;
        let mut field = None;
        if !sequence.is_frames && header.copy(1)? == 1 {
            field = Some(header.copy(1)? == 1);
        }
        let is_second = *self.first.get_or_insert(field) != field;
        let is_intra = slice_type % 5 == INTRA;
        if is_second || !is_intra {
            // Its frame number is that of the first field; all bits keep their positions.
            return is_second.then(|| escaped(nal[0], &header.rest()));
        }
        // idr_pic_id 0.
        header.put(1, 1);
        if sequence.order_bits > 0 {
            header.copy(sequence.order_bits)?;
            if picture.has_order && field.is_none() {
                header.golomb()?;
            }
        } else if sequence.has_order_deltas {
            header.golomb()?;
            if picture.has_order && field.is_none() {
                header.golomb()?;
            }
        }
        if picture.has_redundant {
            header.golomb()?;
        }
        // no_output_of_prior_pics_flag, long_term_reference_flag.
        header.put(0, 2);
        if nal[0] & 0x60 != 0 {
            header.leave_out_marking()?;
        }
        // slice_qp_delta
        header.golomb()?;
        if picture.has_deblocking && header.golomb()? != 1 {
            header.golomb()?;
            header.golomb()?;
        }
        let body = if picture.is_arithmetic { header.realigned()? } else { header.shifted()? };
        Some(escaped(REFRESH_HEADER, &body))
    }
}

impl PictureSet {
    /// Parses a set after its NAL header, with its identifier; `None` if it has slice groups.
    fn read(set: &[u8]) -> Option<(u32, PictureSet)> {
        let set = without_emulation(set);
        let bits = &mut Bits::new(&set);
        let id = bits.golomb()?;
        let sequence = bits.golomb()?;
        let is_arithmetic = bits.flag()?;
        let has_order = bits.flag()?;
        if bits.golomb()? > 0 {
            return None;
        }
        bits.golomb()?;
        bits.golomb()?;
        bits.skip(3);
        for _ in 0..3 {
            bits.signed_golomb()?;
        }
        let has_deblocking = bits.flag()?;
        bits.flag()?;
        let has_redundant = bits.flag()?;
        Some((id, PictureSet { sequence, is_arithmetic, has_order, has_deblocking, has_redundant }))
    }
}

/// Copies bits from one place to another.
struct BitCopy<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
    out_bits: usize,
}

impl<'a> BitCopy<'a> {
    fn new(bytes: &'a [u8]) -> BitCopy<'a> {
        BitCopy { bytes, at: 0, out: Vec::with_capacity(bytes.len() + 2), out_bits: 0 }
    }

    /// Reads a bit and leaves it out.
    fn bit(&mut self) -> Option<u32> {
        let byte = *self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(u32::from(bit))
    }

    /// Adds the lowest `count` bits of a value.
    fn put(&mut self, value: u32, count: u32) {
        for shift in (0..count).rev() {
            if self.out_bits.is_multiple_of(8) {
                self.out.push(0);
            }
            let bit = (value >> shift & 1) as u8;
            *self.out.last_mut().expect("pushed above") |= bit << (7 - self.out_bits % 8);
            self.out_bits += 1;
        }
    }

    /// Copies `count` bits and returns their value.
    fn copy(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let bit = self.bit()?;
            self.put(bit, 1);
            value = value << 1 | bit;
        }
        Some(value)
    }

    /// Replaces `count` bits by zeros.
    fn replace(&mut self, count: u32) -> Option<()> {
        for _ in 0..count {
            self.bit()?;
        }
        self.put(0, count);
        Some(())
    }

    /// Copies an Exp-Golomb code and returns its code number.
    fn golomb(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.copy(1)? == 0 {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1u32 << zeros) - 1 + self.copy(zeros)?)
    }

    /// Leaves out the marking of reference pictures (§7.3.3.3).
    fn leave_out_marking(&mut self) -> Option<()> {
        let (kept, kept_bits) = (self.out.clone(), self.out_bits);
        if self.copy(1)? == 1 {
            let mut operations = 0;
            loop {
                let operation = self.golomb()?;
                operations += 1;
                match operation {
                    0 => break,
                    1 | 2 | 4 | 6 => drop(self.golomb()?),
                    3 => {
                        self.golomb()?;
                        self.golomb()?;
                    }
                    5 => {}
                    _ => return None,
                }
                if operations > OPERATIONS_MAX {
                    return None;
                }
            }
        }
        (self.out, self.out_bits) = (kept, kept_bits);
        Some(())
    }

    /// Appends the other bits, at the same positions as before.
    fn rest(mut self) -> Vec<u8> {
        assert_eq!(self.at, self.out_bits, "as many bits were written as read");
        while !self.at.is_multiple_of(8) {
            let bit = self.bit().unwrap_or(0);
            self.put(bit, 1);
        }
        self.out.extend(&self.bytes[(self.at / 8).min(self.bytes.len())..]);
        self.out
    }

    /// Appends slice data that begins at a byte, after ones (cabac_alignment_one_bit).
    fn realigned(mut self) -> Option<Vec<u8>> {
        while !self.at.is_multiple_of(8) {
            self.bit()?;
        }
        while !self.out_bits.is_multiple_of(8) {
            self.put(1, 1);
        }
        self.out.extend(self.bytes.get(self.at / 8..)?);
        Some(self.out)
    }

    /// Appends slice data that begins at any bit, up to the stop bit, and zeros after it.
    fn shifted(mut self) -> Option<Vec<u8>> {
        let last = self.bytes.iter().rposition(|&byte| byte != 0)?;
        let end = last * 8 + 8 - self.bytes[last].trailing_zeros() as usize;
        while self.at < end && !self.at.is_multiple_of(8) {
            let bit = self.bit()?;
            self.put(bit, 1);
        }
        let shift = self.out_bits % 8;
        let mut from = self.at / 8;
        // Whole bytes first: a picture has hundreds of thousands.
        while (from + 1) * 8 <= end {
            let byte = self.bytes[from];
            match shift {
                0 => self.out.push(byte),
                _ => {
                    *self.out.last_mut().expect("a part of a byte") |= byte >> shift;
                    self.out.push(byte << (8 - shift));
                }
            }
            self.out_bits += 8;
            from += 1;
        }
        self.at = from * 8;
        while self.at < end {
            let bit = self.bit()?;
            self.put(bit, 1);
        }
        Some(self.out)
    }
}

/// A NAL unit of this header and body, in which no start code appears.
fn escaped(header: u8, body: &[u8]) -> Vec<u8> {
    let mut nal = Vec::with_capacity(body.len() + body.len() / 64 + 1);
    nal.push(header);
    let mut zeros = 0;
    for &byte in body {
        if zeros >= 2 && byte <= 3 {
            nal.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        nal.push(byte);
    }
    nal
}

/// nal_ref_idc 3, nal_unit_type 5.
const REFRESH_HEADER: u8 = 0x65;

/// slice_type of an I slice, modulo 5 (table 7-6).
const INTRA: u32 = 2;

/// Operations of a marking: each frees a frame or field of at most 16 and 16 more.
const OPERATIONS_MAX: u32 = 66;
