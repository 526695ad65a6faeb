// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published copies, for comparison: the routine of the simd-copy paper and the string
//! instructions.
//!
//! The paper copies 512 bytes at a time by movdqu, and the rest by the string instruction with
//! which the kernel copied everything. It prints no listing: figure 5 and section 8.1 imply that a
//! step is 32 loads and stores alternately; section 6 does not name the width of the string
//! instruction, and bytes are our choice.
//!
//! Sources: Saito and Oikawa, "Utilization of a SIMD unit in the OS Kernel", section 6; Linux
//! `arch/x86/lib/memcpy_64.S` (rep movsq, then the last bytes).
//!
//! Does not serve production code; only the laboratory calls these.

#[cfg(target_arch = "x86_64")]
mod x86;

/// A published routine.
#[derive(Clone, Copy, Debug)]
pub struct Routine {
    /// Name of the routine in the laboratory.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    run: unsafe fn(*const u8, *mut u8, usize),
}

/// All routines: none on processors other than x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub static ROUTINES: &[Routine] = &[];

/// All routines.
#[cfg(target_arch = "x86_64")]
pub static ROUTINES: &[Routine] = &[
    Routine {
        name: "published_sse",
        summary: "the simd-copy paper's: 512 bytes at a time by movdqu, the rest by rep movsb",
        run: x86::published_sse,
    },
    Routine { name: "rep_movsb", summary: "a string instruction, by bytes", run: x86::rep_movsb },
    Routine {
        name: "rep_movsq",
        summary: "string instructions as in the kernel: by 8 bytes, then by bytes",
        run: x86::rep_movsq,
    },
];

impl Routine {
    /// Copies `source` to `target`.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy(&self, source: &[u8], target: &mut [u8]) {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: equal lengths (above); a `&mut` overlaps with nothing; all of x86-64 has SSE2.
        unsafe { (self.run)(source.as_ptr(), target.as_mut_ptr(), source.len()) }
    }
}
