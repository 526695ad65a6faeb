// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of four descriptors at a time as in a published driver: with its fault, and with its
//! remedy.
//!
//! A descriptor's length crosses byte boundaries, so it is shifted and put into the descriptor's
//! last 16 bits, from where a shuffle moves it with the other fields. [`Stores`] puts it there by a
//! store of 16 bits. A register has no address, so the compiler keeps the four descriptors in
//! memory, and the shuffle loads 16 bytes right after a store of two of them: the store buffer
//! cannot forward them, and the load waits until the store is in the cache. [`Blends`] does the
//! same within the registers. The rest is equal in both.
//!
//! Sources: Richardson, "Improving Driver Performance: A Worked Example" (the two versions of
//! `desc_pktlen_align`); Intel's optimisation manual, "Store Forwarding".
//!
//! Does not store flags and types one by one, which that driver did, too.

use core::arch::x86_64::*;

use super::super::scalar::{self, Done};
use super::super::{Burst, Flags, Metadata, status};
use super::load::Format;
use super::{Dwords, last_of, lengths_of};

/// Moves lengths into the last 16 bits of four descriptors.
pub(super) trait Align {
    /// # Safety
    /// The processor has SSE4.1.
    unsafe fn align(descriptors: [__m128i; 4], lengths: __m128i) -> [__m128i; 4];
}

/// Moves lengths by four stores of 16 bits.
pub(super) struct Stores;

impl Align for Stores {
    #[inline(always)]
    unsafe fn align(descriptors: [__m128i; 4], lengths: __m128i) -> [__m128i; 4] {
        let mut memory = descriptors;
        let memory = &raw mut memory;
        // SAFETY: SSE4.1, by the caller. The array is aligned and valid; a descriptor has eight
        // words. Volatile stores keep the compiler from making the remedy of them.
        unsafe {
            let lengths = _mm_cvtsi128_si64(_mm_packus_epi32(lengths, lengths)) as u64;
            let descriptor = memory.cast::<__m128i>();
            for (index, register) in descriptors.into_iter().enumerate() {
                descriptor.add(index).write_volatile(register);
            }
            for index in 0..4 {
                let word = descriptor.add(index).cast::<u16>().add(LENGTH_WORD);
                word.write_volatile((lengths >> (16 * index)) as u16);
            }
            core::array::from_fn(|index| descriptor.add(index).read_volatile())
        }
    }
}

/// Moves lengths by one blend each.
pub(super) struct Blends;

impl Align for Blends {
    #[inline(always)]
    unsafe fn align([a, b, c, d]: [__m128i; 4], lengths: __m128i) -> [__m128i; 4] {
        const WORD: i32 = 1 << LENGTH_WORD;
        // SAFETY: SSE4.1, by the caller.
        unsafe {
            let lengths = _mm_packus_epi32(lengths, lengths);
            [
                _mm_blend_epi16::<WORD>(a, _mm_slli_epi64::<48>(lengths)),
                _mm_blend_epi16::<WORD>(b, _mm_slli_epi64::<32>(lengths)),
                _mm_blend_epi16::<WORD>(c, _mm_slli_epi64::<16>(lengths)),
                _mm_blend_epi16::<WORD>(d, lengths),
            ]
        }
    }
}

/// Word of the descriptor into which the length is put.
const LENGTH_WORD: usize = 7;

/// Index of the descriptor's byte for each byte of the record; 0x80 makes it 0.
const ORDER: [u8; 16] = [
    0, 1, // second tag, put there in long descriptors
    2, 3, // tag
    4, 5, 6, 7, // hash
    14, 15, 0x80, 0x80, // length
    0x80, 0x80, 0x80, 0x80, // the last double word
];

/// [`ORDER`] without a second tag.
const ORDER_SHORT: [u8; 16] = {
    let mut order = ORDER;
    order[0] = 0x80;
    order[1] = 0x80;
    order
};

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Metadata, length) == 8 && ORDER[8] as usize == 2 * LENGTH_WORD);
    assert!(offset_of!(Metadata, vlan) == 2 && ORDER[2] == 2);
    assert!(offset_of!(Metadata, hash) == 4 && ORDER[4] == 4);
};

/// # Safety
/// The processor has SSE4.1, the caller is compiled for it, and both slices have the same length.
#[inline(always)]
pub(super) unsafe fn body<F: Format<__m128i> + Done, A: Align>(
    descriptors: &[F],
    packets: &mut [Metadata],
) -> Burst {
    const STEP: usize = 4;
    let (mut count, all) = (0, descriptors.len());
    // SAFETY: SSE4.1, by the caller. Four descriptors and four records are valid from `count` on,
    // and a record has the size and alignment of a register.
    unsafe {
        let mut ends = _mm_setzero_si128();
        while all - count >= STEP {
            let from = descriptors.as_ptr().add(count);
            let mut four = F::firsts(from);
            let [a, b, c, d] = four;
            let (upper_ab, upper_cd) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
            let lower = _mm_unpacklo_epi64(upper_ab, upper_cd);
            let upper = _mm_unpackhi_epi64(upper_ab, upper_cd);
            if _mm_testc_si128(lower, _mm_set1_epi32(status::DONE as i32)) == 0 {
                break;
            }
            let mut last = last_of(lower, upper);
            let mut order = ORDER_SHORT;
            if let Some(seconds) = F::seconds(from) {
                let [a, b, c, d] = seconds;
                let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
                let bits = _mm_unpacklo_epi64(ab, cd).and(_mm_set1_epi32(1));
                last = last.or(bits.left::<{ Flags::SECOND_VLAN.0.trailing_zeros() }>());
                for (descriptor, second) in four.iter_mut().zip(seconds) {
                    *descriptor = _mm_blend_epi16::<1>(*descriptor, _mm_srli_epi64::<48>(second));
                }
                order = ORDER;
            }
            ends = _mm_add_epi32(ends, lower.right::<1>().and(_mm_set1_epi32(1)));
            let [a, b, c, d] = A::align(four, lengths_of(upper));
            let order = _mm_loadu_si128(order.as_ptr().cast());
            let (a, b) = (_mm_shuffle_epi8(a, order), _mm_shuffle_epi8(b, order));
            let (c, d) = (_mm_shuffle_epi8(c, order), _mm_shuffle_epi8(d, order));
            let to = packets.as_mut_ptr().add(count).cast::<__m128i>();
            let lasts = [
                _mm_slli_si128::<12>(last),
                _mm_slli_si128::<8>(last),
                _mm_slli_si128::<4>(last),
                last,
            ];
            to.write(_mm_blend_epi16::<0xc0>(a, lasts[0]));
            to.add(1).write(_mm_blend_epi16::<0xc0>(b, lasts[1]));
            to.add(2).write(_mm_blend_epi16::<0xc0>(c, lasts[2]));
            to.add(3).write(_mm_blend_epi16::<0xc0>(d, lasts[3]));
            count += STEP;
        }
        let pairs = _mm_add_epi32(ends, _mm_unpackhi_epi64(ends, ends));
        let pair = _mm_cvtsi128_si64(pairs) as u64;
        let ends = (pair as u32 + (pair >> 32) as u32) as usize;
        scalar::rest(descriptors, packets, Burst { count, split: count - ends })
    }
}
