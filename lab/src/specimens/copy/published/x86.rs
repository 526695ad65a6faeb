// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published routines in the instructions of x86-64.
//!
//! They are in assembly because a compiler would turn them into the copies that they are compared
//! with.
//!
//! Sources: Intel's manual, volume 2 (movdqu, rep movs).
//!
//! Does not check arguments; [`super::Routine::copy`] does.

use core::arch::asm;

/// # Safety
/// `bytes` bytes can be read and written and do not overlap.
pub(super) unsafe fn published_sse(source: *const u8, target: *mut u8, bytes: usize) {
    macro_rules! moves {
        ($($at:literal)*) => {
            concat!($(
                "movdqu xmm0, [rsi + ", $at, "]\n",
                "movdqu [rdi + ", $at, "], xmm0\n",
            )*)
        };
    }
    // SAFETY: by the caller; 512 bytes a step while as many are left, then the rest. The ABI
    // keeps the direction flag clear.
    unsafe {
        asm!(
            "cmp rcx, 512",
            "jb 3f",
            "2:",
            moves!(0 16 32 48 64 80 96 112 128 144 160 176 192 208 224 240),
            moves!(256 272 288 304 320 336 352 368 384 400 416 432 448 464 480 496),
            "add rsi, 512",
            "add rdi, 512",
            "sub rcx, 512",
            "cmp rcx, 512",
            "jae 2b",
            "3:",
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            out("xmm0") _,
            options(nostack),
        );
    }
}

/// # Safety
/// Same as for [`published_sse`].
pub(super) unsafe fn rep_movsb(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: by the caller; the direction flag as above.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// Same as for [`published_sse`].
pub(super) unsafe fn rep_movsq(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: by the caller; the direction flag as above.
    unsafe {
        asm!(
            "rep movsq",
            "mov ecx, {rest:e}",
            "rep movsb",
            rest = in(reg) bytes % 8,
            inout("rcx") bytes / 8 => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags),
        );
    }
}
