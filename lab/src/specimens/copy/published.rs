// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of others, to be measured beside these: the simd-copy paper's routine and the string
//! instructions.
//!
//! The paper copies 512 bytes at a time by movdqu while there are as many, and what is left by the
//! string instruction with which the kernel copied all. It prints no listing: that a step is 32
//! loads and stores in turn is read from its figure 5 and section 8.1, and that the string
//! instruction is of bytes is our choice, as section 6 does not say.
//!
//! Sources: Saito and Oikawa, "Utilization of a SIMD unit in the OS Kernel", section 6; Linux
//! `arch/x86/lib/memcpy_64.S` (rep movsq, then the last bytes).
//!
//! Does not serve. Nothing but the lab calls these.

#[cfg(target_arch = "x86_64")]
mod x86;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Routine {
    /// The name among the lab's members.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    run: unsafe fn(*const u8, *mut u8, usize),
}

/// All: none on other processors than x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub static ROUTINES: &[Routine] = &[];

/// All.
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
    /// When they are of different lengths.
    #[inline]
    pub fn copy(&self, source: &[u8], target: &mut [u8]) {
        assert!(source.len() == target.len(), "source and target are of one length");
        // SAFETY: equal lengths (above); a `&mut` overlaps with nothing; all of x86-64 has SSE2.
        unsafe { (self.run)(source.as_ptr(), target.as_mut_ptr(), source.len()) }
    }
}
