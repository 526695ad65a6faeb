// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions: the effect of each on the store buffer, the memory it touches, and its text.
//!
//! Each address is decoded once and kept, because a trace passes the same ones millions of times.
//!
//! Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3A, "Memory
//! Ordering" and "Serializing Instructions": instructions that drain the store buffer.
//!
//! Does not notice that code at an address was replaced by other code.

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, Register, UsedMemory,
};

use crate::pairing::Kind;

/// Bytes of the longest instruction.
pub(crate) const INSTRUCTION_BYTES_MAX: usize = 15;

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) kind: Kind,
    pub(crate) flow: Flow,
    /// True when it reads an operand in memory, or on the stack.
    pub(crate) reads: bool,
    /// True when it writes such an operand.
    pub(crate) writes: bool,
    instruction: Instruction,
}

/// Control flow of an instruction, as far as the stack of calls needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Calls,
    Returns,
    Other,
}

/// An access of an instruction with its computed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Address, bytes, and true when no mask leaves some of them out.
    Load(u64, u32, bool),
    /// The same fields as a load.
    Store(u64, u32, bool),
    /// A load from several addresses, which a vector register holds.
    Gather,
}

/// The instructions decoded so far.
pub(crate) struct Code {
    known: HashMap<u64, Known>,
    factory: InstructionInfoFactory,
}

impl Code {
    pub(crate) fn new() -> Self {
        Self { known: HashMap::new(), factory: InstructionInfoFactory::new() }
    }

    /// Returns the instruction at `address`; `fetch` reads its bytes, as many as there are.
    pub(crate) fn at(
        &mut self,
        address: u64,
        fetch: impl FnOnce(&mut [u8; INSTRUCTION_BYTES_MAX]) -> usize,
    ) -> Known {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let mut bytes = [0; INSTRUCTION_BYTES_MAX];
        let length = fetch(&mut bytes).min(INSTRUCTION_BYTES_MAX);
        let known = self.decode(address, &bytes[..length]);
        if self.known.len() < KNOWN_MAX {
            self.known.insert(address, known);
        }
        known
    }

    fn decode(&mut self, address: u64, bytes: &[u8]) -> Known {
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let (mut reads, mut writes) = (false, false);
        for memory in self.factory.info(&instruction).used_memory() {
            let (read, write) = directions(memory.access());
            reads |= read;
            writes |= write;
        }
        let flow = match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => Flow::Calls,
            FlowControl::Return => Flow::Returns,
            _ => Flow::Other,
        };
        Known { kind: kind(&instruction, writes), flow, reads, writes, instruction }
    }

    /// Lists the accesses of an instruction in their order: loads first. `register` returns the
    /// value of a whole general register, or the base of FS or GS.
    pub(crate) fn accesses(
        &mut self,
        known: &Known,
        register: impl Fn(Register) -> u64,
        accesses: &mut Vec<Access>,
    ) {
        accesses.clear();
        let instruction = &known.instruction;
        let memories = self.factory.info(instruction).used_memory();
        for stores in [false, true] {
            for memory in memories {
                let (read, write) = directions(memory.access());
                if stores && write || !stores && read {
                    accesses.push(access(instruction, memory, &register, stores));
                }
            }
        }
    }

    /// Returns the instruction in Intel's syntax; none for an address never decoded.
    pub(crate) fn text(&self, address: u64) -> Option<String> {
        let known = self.known.get(&address).filter(|known| !known.instruction.is_invalid())?;
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_leading_zeros(false);
        options.set_branch_leading_zeros(false);
        let mut text = String::new();
        formatter.format(&known.instruction, &mut text);
        Some(text)
    }
}

fn kind(instruction: &Instruction, writes: bool) -> Kind {
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if repeats && instruction.is_string_instruction() {
        return Kind::Repeats;
    }
    let drains = match instruction.mnemonic() {
        // An exchange with an operand in memory is locked without a prefix.
        Mnemonic::Xchg => writes,
        Mnemonic::Mfence
        | Mnemonic::Serialize
        | Mnemonic::Cpuid
        | Mnemonic::Iretq
        | Mnemonic::Syscall
        | Mnemonic::Sysenter
        | Mnemonic::Int => true,
        _ => instruction.has_lock_prefix(),
    };
    if drains { Kind::Drains } else { Kind::Plain }
}

/// Returns two flags: the operand is read, the operand is written.
fn directions(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

fn access(
    instruction: &Instruction,
    memory: &UsedMemory,
    register: &impl Fn(Register) -> u64,
    stores: bool,
) -> Access {
    let value = |wanted: Register, _element, _bytes| {
        let whole = register(wanted.full_register());
        Some(if wanted.is_gpr32() { whole & 0xffff_ffff } else { whole })
    };
    if memory.vsib_size() != 0 {
        return Access::Gather;
    }
    let Some(address) = memory.virtual_address(0, value) else { return Access::Gather };
    // A repeated string instruction is conditional too, on its count; it has a kind of its own.
    let conditional = matches!(memory.access(), OpAccess::CondRead | OpAccess::CondWrite);
    let masked = instruction.has_op_mask() || conditional && !instruction.is_string_instruction();
    let bytes = memory.memory_size().size() as u32;
    if stores {
        Access::Store(address, bytes, !masked)
    } else {
        Access::Load(address, bytes, !masked)
    }
}

/// Some 300 MB. Only code made at run time exceeds it; it is decoded again each time.
const KNOWN_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x40_0000;

    /// Decodes `bytes`, with each register worth 0x1000 times its number and FS at 0x7000_0000.
    fn met(bytes: &[u8]) -> (Known, Vec<Access>, String) {
        let mut code = Code::new();
        let known = code.at(BASE, |target| {
            target[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
        let register = |register: Register| match register {
            Register::FS => 0x7000_0000,
            register if register.is_gpr() => 0x5_0000_0000 + 0x1000 * register.number() as u64,
            _ => 0,
        };
        let mut accesses = Vec::new();
        code.accesses(&known, register, &mut accesses);
        (known, accesses, code.text(BASE).unwrap_or_default())
    }

    #[test]
    fn operands_in_memory_have_their_address_and_size() {
        // Bytes that `as` makes of the text; the decoder must return the same text.
        let cases: &[(&[u8], &str, &[Access])] = &[
            (&[0x8b, 0x43, 0x08], "mov eax, [rbx+8]", &[Access::Load(0x5_0000_3008, 4, true)]),
            (
                &[0x66, 0x89, 0x44, 0xcb, 0x0e],
                "mov [rbx+rcx*8+0xe], ax",
                &[Access::Store(0x5_0000_3000 + 8 * 0x5_0000_1000 + 0xe, 2, true)],
            ),
            (&[0x67, 0x8b, 0x03], "mov eax, [ebx]", &[Access::Load(0x3000, 4, true)]),
            (
                &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0],
                "mov rax, fs:[0x28]",
                &[Access::Load(0x7000_0028, 8, true)],
            ),
            (
                &[0xf3, 0x0f, 0x6f, 0x05, 0x10, 0, 0, 0],
                "movdqu xmm0, [rip+0x10]",
                &[Access::Load(BASE + 8 + 0x10, 16, true)],
            ),
            (&[0x55], "push rbp", &[Access::Store(0x5_0000_3ff8, 8, true)]),
            (&[0xc3], "ret", &[Access::Load(0x5_0000_4000, 8, true)]),
            (
                &[0x01, 0x03],
                "add [rbx], eax",
                &[Access::Load(0x5_0000_3000, 4, true), Access::Store(0x5_0000_3000, 4, true)],
            ),
            (&[0x48, 0x8d, 0x43, 0x08], "lea rax, [rbx+8]", &[]),
            (&[0x48, 0x0f, 0xab, 0xc3], "bts rbx, rax", &[]),
            (
                &[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x43, 0x01],
                "vmovdqu64 zmm0, [rbx+0x40]",
                &[Access::Load(0x5_0000_3040, 64, true)],
            ),
            (
                &[0x62, 0xf1, 0x7f, 0x49, 0x7f, 0x03],
                "vmovdqu8 [rbx]{k1}, zmm0",
                &[Access::Store(0x5_0000_3000, 64, false)],
            ),
            (
                &[0x62, 0xf2, 0x7d, 0x49, 0x90, 0x04, 0x8b],
                "vpgatherdd zmm0{k1}, [rbx+zmm1*4]",
                &[Access::Gather],
            ),
        ];
        for (bytes, text, expected) in cases {
            let (known, accesses, shown) = met(bytes);
            let shown = shown.replace("dword ptr ", "").replace("qword ptr ", "");
            let shown = shown.replace("word ptr ", "").replace("ptr ", "");
            assert_eq!(accesses, *expected, "{text}: {shown}");
            let loads = accesses.iter().any(|it| !matches!(it, Access::Store(..)));
            let stores = accesses.iter().any(|it| matches!(it, Access::Store(..)));
            assert_eq!((known.reads, known.writes), (loads, stores), "{text}");
            assert!(shown.starts_with(text.split(' ').next().unwrap()), "{text}: {shown}");
        }
    }

    #[test]
    fn text_is_of_intels_syntax() {
        assert_eq!(met(&[0x66, 0x89, 0x43, 0x0e]).2, "mov [rbx+0xe], ax");
        assert_eq!(met(&[0x66, 0x0f, 0x6f, 0x44, 0x24, 0x20]).2, "movdqa xmm0, [rsp+0x20]");
        assert_eq!(met(&[0x06]).2, "", "no instruction of 64-bit mode");
        assert_eq!(met(&[0x48]).2, "", "half of one");
    }

    #[test]
    fn what_drains_the_store_buffer_is_told_from_the_rest() {
        for (bytes, kind) in [
            (&[0xf0, 0x01, 0x03][..], Kind::Drains), // lock add [rbx], eax
            (&[0x87, 0x03], Kind::Drains),           // xchg [rbx], eax
            (&[0x87, 0xc3], Kind::Plain),            // xchg ebx, eax
            (&[0x0f, 0xae, 0xf0], Kind::Drains),     // mfence
            (&[0x0f, 0xae, 0xf8], Kind::Plain),      // sfence: stores only
            (&[0x0f, 0x05], Kind::Drains),           // syscall
            (&[0x0f, 0xa2], Kind::Drains),           // cpuid
            (&[0xf3, 0xa4], Kind::Repeats),          // rep movsb
            (&[0xa4], Kind::Plain),                  // movsb
            (&[0xf3, 0x0f, 0x10, 0x03], Kind::Plain), // movss: the prefix is part of it
        ] {
            assert_eq!(met(bytes).0.kind, kind, "{bytes:x?}");
        }
        assert_eq!(met(&[0xe8, 0, 0, 0, 0]).0.flow, Flow::Calls);
        assert_eq!(met(&[0xff, 0xd0]).0.flow, Flow::Calls);
        assert_eq!(met(&[0xc2, 8, 0]).0.flow, Flow::Returns);
        assert_eq!(met(&[0xff, 0xe0]).0.flow, Flow::Other);
    }

    #[test]
    fn an_address_is_decoded_once() {
        let mut code = Code::new();
        let fetches = std::cell::Cell::new(0);
        for _ in 0..3 {
            code.at(BASE, |bytes| {
                fetches.set(fetches.get() + 1);
                bytes[0] = 0x90;
                1
            });
        }
        assert_eq!(fetches.get(), 1);
        assert_eq!(code.text(BASE).as_deref(), Some("nop"));
        assert_eq!(code.text(BASE + 1), None);
    }
}
