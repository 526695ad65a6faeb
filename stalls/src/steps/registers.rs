// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a stopped thread, by the decoder's names.
//!
//! Sources: ptrace(2), `PTRACE_GETREGS`; `struct user_regs_struct` in the kernel's asm/user_64.h.
//!
//! Does not read vector and mask registers; only a gather's addresses need them.

use iced_x86::Register;
use nix::libc::user_regs_struct;

/// Returns the value of a whole general register, or the base of FS or GS; other segments begin at
/// 0.
pub(super) fn value(registers: &user_regs_struct, name: Register) -> u64 {
    match name {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        _ => 0,
    }
}
