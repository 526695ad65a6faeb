// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader of eight usual frames at a time by AVX-512, which checks them together.
//!
//! Each frame's headers lie in their own register. One permutation of it makes the record; another
//! puts the checked bytes into sixteen bytes of a register that four frames share: the bytes with
//! fixed values in the lower quad word, the lengths in the upper. So eight frames need two
//! comparisons instead of eight by words.
//!
//! Sources: Intel's intrinsics guide (VPERMB).
//!
//! Does not read fewer than eight frames; those are read one by one.

use core::arch::x86_64::*;

use super::super::{
    BEHIND_BITS, FIXED, Fields, IP_BYTES, NOTHING, RTCP_BITS, RTCP_TYPES, RTP_BYTES, STEP,
    TOTAL_BITS, UDP_BYTES, again, at,
};
use super::{ADDED, FROM_FRAME, HEAD, ORDER};

/// Number of frames that share a register.
const SHARE: usize = 4;

/// Offsets of the checked bytes of a frame; in the upper quad word their order is reversed.
const LOOKED_AT: [u8; 16] = [
    at::ETHERTYPE as u8,
    at::ETHERTYPE as u8 + 1,
    at::IP as u8,
    at::FRAGMENT as u8,
    at::FRAGMENT as u8 + 1,
    at::PROTOCOL as u8,
    at::RTP as u8,
    at::MARKER_AND_TYPE as u8,
    at::TOTAL as u8 + 1,
    at::TOTAL as u8,
    at::UDP_LENGTH as u8 + 1,
    at::UDP_LENGTH as u8,
    0,
    0,
    0,
    0,
];

/// Mask of the entries of `LOOKED_AT` that are from the frame.
const LOOKED_AT_BYTES: u64 = 0x0fff;

const _: () = assert!(2 * SHARE == STEP && FIXED_AT.len() == 16);

/// Value and mask of [`FIXED`] for each entry of `LOOKED_AT`.
const FIXED_AT: [[u8; 2]; 16] = {
    let mut fixed = [[0; 2]; 16];
    let mut byte = 0;
    while byte < 8 {
        let from = LOOKED_AT[byte] as usize;
        fixed[byte] = [FIXED.value[from], FIXED.mask[from]];
        byte += 1;
    }
    fixed
};

const fn column(index: usize) -> [u8; 16] {
    let mut column = [0; 16];
    let mut byte = 0;
    while byte < 16 {
        column[byte] = FIXED_AT[byte][index];
        byte += 1;
    }
    column
}

static VALUES: [u8; 16] = column(0);
static MASKS: [u8; 16] = column(1);
static ORDERS: [u8; 16] = LOOKED_AT;

/// Checked bytes of four frames, and the lengths of the frames in the upper quad words.
#[derive(Clone, Copy)]
struct Shared {
    bytes: __m512i,
    lengths: __m512i,
}

/// # Safety
/// The processor has AVX-512 F, BW, VL and VBMI, and the caller is compiled for them.
#[inline(always)]
pub(super) unsafe fn eight(frames: &[&[u8]; STEP], fields: &mut [Fields; STEP]) {
    // SAFETY: the instructions, by the caller. The mask of a load has a bit for each byte of the
    // head, and masked bytes are not read; a record has the size and alignment of a register.
    unsafe {
        let all = |quad: &[u8; 16]| _mm512_broadcast_i32x4(_mm_loadu_si128(quad.as_ptr().cast()));
        let looked_at = all(&ORDERS);
        let order = _mm512_castsi256_si512(_mm256_loadu_si256(ORDER.as_ptr().cast()));
        let added = _mm256_loadu_si256(ADDED.0.as_ptr().cast());
        let zero = _mm512_setzero_si512();
        let mut shared = [Shared { bytes: zero, lengths: zero }; 2];
        for (index, (frame, fields)) in frames.iter().zip(&mut *fields).enumerate() {
            let head = frame.first_chunk().unwrap_or(&NOTHING);
            let head = _mm512_maskz_loadu_epi8(HEAD, head.as_ptr().cast());
            let record = _mm512_maskz_permutexvar_epi8(u64::from(FROM_FRAME), order, head);
            let record = _mm256_add_epi16(_mm512_castsi512_si256(record), added);
            (&raw mut *fields).cast::<__m256i>().write(record);
            let Shared { bytes, lengths } = &mut shared[index / SHARE];
            let lane = index % SHARE;
            let mine =
                _mm512_maskz_permutexvar_epi8(LOOKED_AT_BYTES << (16 * lane), looked_at, head);
            *bytes = _mm512_or_si512(*bytes, mine);
            *lengths = _mm512_mask_set1_epi64(*lengths, 2 << (2 * lane), frame.len() as i64);
        }
        // Uses no closure: one that is not inlined is compiled without the caller's instructions.
        let (values, masks) = (all(&VALUES), all(&MASKS));
        let unusual = [shared[0].unusual(values, masks), shared[1].unusual(values, masks)];
        let unusual = u32::from(u16::from_le_bytes(unusual));
        if unusual != 0 {
            // Joins the two bits of each frame into one.
            let which = (0..STEP).map(|frame| u32::from(unusual >> (2 * frame) & 3 != 0) << frame);
            again(frames, fields, which.sum());
        }
    }
}

impl Shared {
    /// Returns a bit for each quad word that fails the checks of [`super::super::unsound`] and
    /// [`super::super::FIXED`].
    ///
    /// # Safety
    /// Same as for [`eight`].
    #[inline(always)]
    unsafe fn unusual(self, values: __m512i, masks: __m512i) -> __mmask8 {
        const LOWER: __mmask8 = 0b0101_0101;
        const UPPER: __mmask8 = 0b1010_1010;
        const MARKER_SHIFT: u32 = 56;
        let Self { bytes, lengths } = self;
        // SAFETY: AVX-512 F, by the caller.
        unsafe {
            let of = |value: u64| _mm512_set1_epi64(value as i64);
            let fixed = _mm512_test_epi64_mask(_mm512_xor_si512(bytes, values), masks);
            let marker = _mm512_and_si512(bytes, of(u64::from(RTCP_BITS) << MARKER_SHIFT));
            let rtcp = of(u64::from(RTCP_TYPES) << MARKER_SHIFT);
            let rtcp = _mm512_mask_cmpeq_epi64_mask(LOWER, marker, rtcp);
            let total = _mm512_and_si512(bytes, of(0xffff));
            let udp = _mm512_srli_epi64::<16>(bytes);
            let apart = _mm512_xor_si512(total, _mm512_add_epi64(udp, of(IP_BYTES as u64)));
            let headers = of((IP_BYTES + UDP_BYTES + RTP_BYTES) as u64);
            let below = _mm512_srli_epi64::<TOTAL_BITS>(_mm512_sub_epi64(total, headers));
            let end = _mm512_add_epi64(total, of(at::IP as u64));
            let behind = _mm512_srli_epi64::<BEHIND_BITS>(_mm512_sub_epi64(lengths, end));
            let wrong = _mm512_or_si512(apart, _mm512_or_si512(below, behind));
            fixed | rtcp | _mm512_mask_test_epi64_mask(UPPER, wrong, wrong)
        }
    }
}
