// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that load a usual frame's headers into registers, compare them and reorder them.
//!
//! One shuffle moves the fields and swaps their bytes; one addition then writes the constants of
//! the record and subtracts the headers from the lengths.
//!
//! Sources: Intel's intrinsics guide.
//!
//! Does not compare lengths with one another: all variants of this file do that by words, except
//! for whole steps of eight by AVX-512.

mod eight;

use core::arch::x86_64::*;

use super::{FIXED, Fields, Head, RTP_BYTES, Reader, STEP, UDP_BYTES, USUAL, at, body, some};

/// Index of the frame's byte for each byte of the record; [`NONE`] for bytes not from the frame.
const ORDER: [u8; 32] = {
    let mut order = [NONE; 32];
    let fields = [
        (core::mem::offset_of!(Fields, source_port), at::UDP, 2),
        (core::mem::offset_of!(Fields, target_port), at::UDP + 2, 2),
        (core::mem::offset_of!(Fields, sequence), at::SEQUENCE, 2),
        (core::mem::offset_of!(Fields, udp_bytes), at::UDP_LENGTH, 2),
        (core::mem::offset_of!(Fields, timestamp), at::TIMESTAMP, 4),
        (core::mem::offset_of!(Fields, marker_and_type), at::MARKER_AND_TYPE, 1),
        (core::mem::offset_of!(Fields, ssrc), at::SSRC, 4),
        (core::mem::offset_of!(Fields, payload_bytes), at::UDP_LENGTH, 2),
    ];
    let mut index = 0;
    while index < fields.len() {
        let (to, from, bytes) = fields[index];
        let mut byte = 0;
        while byte < bytes {
            order[to + byte] = (from + bytes - 1 - byte) as u8;
            byte += 1;
        }
        index += 1;
    }
    order
};

const NONE: u8 = 0x80;

/// Mask of the record's bytes that are from the frame.
const FROM_FRAME: u32 = {
    let mut mask = 0;
    let mut byte = 0;
    while byte < 32 {
        mask |= ((ORDER[byte] != NONE) as u32) << byte;
        byte += 1;
    }
    mask
};

/// Offsets of the loads of 16 bytes of which the lower and the upper half of the record are made.
const LOWER: usize = at::UDP;
const UPPER: usize = at::UDP_LENGTH;

/// [`ORDER`] with each half counted from its load.
const ORDER_OF_HALVES: [u8; 32] = {
    let mut order = ORDER;
    let mut byte = 0;
    while byte < 32 {
        if order[byte] != NONE {
            order[byte] -= if byte < 16 { LOWER as u8 } else { UPPER as u8 };
            assert!(order[byte] < 16);
        }
        byte += 1;
    }
    order
};

/// Numbers of 16 bits that are added to the frame's fields.
#[repr(align(32))]
struct Added([u16; 16]);

static ADDED: Added = {
    let mut added = [0; 16];
    added[3] = (UDP_BYTES as u16).wrapping_neg();
    added[6] = (USUAL.ip_at as u16) << 8;
    added[7] = USUAL.udp_at;
    added[10] = ((UDP_BYTES + RTP_BYTES) as u16).wrapping_neg();
    added[11] = USUAL.payload_at;
    added[14] = USUAL.found.0 as u16;
    Added(added)
};

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Fields, udp_bytes) == 2 * 3 && offset_of!(Fields, ip_at) == 2 * 6 + 1);
    assert!(offset_of!(Fields, udp_at) == 2 * 7 && offset_of!(Fields, payload_bytes) == 2 * 10);
    assert!(offset_of!(Fields, payload_at) == 2 * 11 && offset_of!(Fields, found) == 2 * 14);
    assert!(USUAL.found.0 < 1 << 16 && at::PAYLOAD == 54);
    // Loads of 16 bytes end in the headers.
    assert!(LOWER + 16 <= at::PAYLOAD && UPPER + 16 == at::PAYLOAD);
    assert!(at::ETHERTYPE + 16 > at::PROTOCOL);
};

/// Mask of a load of the headers.
const HEAD: u64 = (1 << at::PAYLOAD) - 1;

/// Reader with two registers of 16 bytes for the record.
struct Xmm;

impl Reader for Xmm {
    #[inline(always)]
    unsafe fn read(head: &Head, fields: &mut Fields) -> u64 {
        let from = head.as_ptr();
        let to = (&raw mut *fields).cast::<__m128i>();
        let order = ORDER_OF_HALVES.as_ptr().cast::<__m128i>();
        let added = ADDED.0.as_ptr().cast::<__m128i>();
        // SAFETY: SSE4.1, by the caller. Loads end within the 54 bytes of the head, asserted
        // above; the order, the added numbers and the record have 32 bytes each.
        unsafe {
            let load = |at: usize| _mm_loadu_si128(from.add(at).cast());
            let (lower, upper) = (load(LOWER), load(UPPER));
            let lower = _mm_shuffle_epi8(lower, _mm_loadu_si128(order));
            let record = _mm_shuffle_epi8(upper, _mm_loadu_si128(order.add(1)));
            to.write(_mm_add_epi16(lower, _mm_loadu_si128(added)));
            to.add(1).write(_mm_add_epi16(record, _mm_loadu_si128(added.add(1))));
            let wrong = |register: __m128i, at: usize| {
                let value = _mm_loadu_si128(FIXED.value.as_ptr().add(at).cast());
                let mask = _mm_loadu_si128(FIXED.mask.as_ptr().add(at).cast());
                _mm_and_si128(_mm_xor_si128(register, value), mask)
            };
            let ip = wrong(load(at::ETHERTYPE), at::ETHERTYPE);
            let wrong = _mm_or_si128(ip, wrong(upper, UPPER));
            u64::from(_mm_testz_si128(wrong, wrong) == 0)
        }
    }
}

/// Reader with one register of 32 bytes for the record, made by two loads.
struct Ymm;

impl Reader for Ymm {
    #[inline(always)]
    unsafe fn read(head: &Head, fields: &mut Fields) -> u64 {
        let from = head.as_ptr();
        let to = (&raw mut *fields).cast::<__m256i>();
        // SAFETY: AVX2, by the caller; the rest as for Xmm.
        unsafe {
            let pair = |from: *const u8, lower: usize| {
                let lower = _mm_loadu_si128(from.add(lower).cast());
                let upper = _mm_loadu_si128(from.add(UPPER).cast());
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(lower), upper)
            };
            let order = _mm256_loadu_si256(ORDER_OF_HALVES.as_ptr().cast());
            let record = _mm256_shuffle_epi8(pair(from, LOWER), order);
            to.write(_mm256_add_epi16(record, _mm256_loadu_si256(ADDED.0.as_ptr().cast())));
            let value = pair(FIXED.value.as_ptr(), at::ETHERTYPE);
            let mask = pair(FIXED.mask.as_ptr(), at::ETHERTYPE);
            let wrong = _mm256_xor_si256(pair(from, at::ETHERTYPE), value);
            u64::from(_mm256_testz_si256(wrong, mask) == 0)
        }
    }
}

/// Reader with all headers in one register.
struct Zmm;

impl Reader for Zmm {
    #[inline(always)]
    unsafe fn read(head: &Head, fields: &mut Fields) -> u64 {
        let to = (&raw mut *fields).cast::<__m256i>();
        // SAFETY: AVX-512 F, BW, VL and VBMI, by the caller. The mask has a bit for each byte of
        // the head, and masked bytes are not read; the rest as for Xmm.
        unsafe {
            let frame = _mm512_maskz_loadu_epi8(HEAD, head.as_ptr().cast());
            let order = _mm256_loadu_si256(ORDER.as_ptr().cast());
            let order = _mm512_castsi256_si512(order);
            let record = _mm512_maskz_permutexvar_epi8(u64::from(FROM_FRAME), order, frame);
            let record = _mm512_castsi512_si256(record);
            to.write(_mm256_add_epi16(record, _mm256_loadu_si256(ADDED.0.as_ptr().cast())));
            let value = _mm512_loadu_si512(FIXED.value.as_ptr().cast());
            let mask = _mm512_loadu_si512(FIXED.mask.as_ptr().cast());
            _mm512_test_epi8_mask(_mm512_xor_si512(frame, value), mask)
        }
    }
}

/// # Safety
/// The processor has SSE4.1; both slices have the same length.
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn sse(frames: &[&[u8]], fields: &mut [Fields]) {
    // SAFETY: compiled for SSE4.1, which the processor has; same length, by the caller.
    unsafe { body::<Xmm>(frames, fields) }
}

/// # Safety
/// The processor has AVX2; both slices have the same length.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(frames: &[&[u8]], fields: &mut [Fields]) {
    // SAFETY: compiled for AVX2, which the processor has; same length, by the caller.
    unsafe { body::<Ymm>(frames, fields) }
}

/// # Safety
/// The processor has AVX-512 F, BW, VL and VBMI; both slices have the same length.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) unsafe fn avx512(frames: &[&[u8]], fields: &mut [Fields]) {
    let (steps, rest) = frames.as_chunks::<STEP>();
    let (steps_fields, rest_fields) = fields.as_chunks_mut::<STEP>();
    // SAFETY: compiled for AVX-512 F, BW, VL and VBMI, which the processor has; one length, by the
    // caller.
    unsafe {
        for (frames, fields) in steps.iter().zip(steps_fields) {
            eight::eight(frames, fields);
        }
        some::<Zmm>(rest, rest_fields);
    }
}
