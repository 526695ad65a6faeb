// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracee: its memory, and the breakpoints in it.
//!
//! A breakpoint is a byte 0xcc in place of an instruction's first byte. It stays there; for a step
//! past it, the original byte is restored. Reads for decoding return the program's own bytes.
//!
//! Sources: ptrace(2); proc_pid_mem(5): writing there ignores the pages' protection, as
//! `PTRACE_POKEDATA` does; proc_pid_auxv(5) and getauxval(3), `AT_ENTRY`.
//!
//! Does not use hardware breakpoints; there are only four.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use nix::unistd::Pid;

/// Purpose of a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The program's own first instruction: all objects it is linked with are loaded.
    Start,
    /// A wanted function, by its number.
    Function(u32),
}

struct Breakpoint {
    purpose: Purpose,
    original: u8,
}

/// The memory of a stopped program.
pub(super) struct Tracee {
    memory: File,
    breakpoints: BTreeMap<u64, Breakpoint>,
}

impl Tracee {
    /// Opens the memory of a program right after its exec: an earlier handle is of the program
    /// before.
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        let memory = memory(pid)?;
        Ok(Self { memory, breakpoints: BTreeMap::new() })
    }

    /// Sets a breakpoint; leaves one that exists at this address.
    pub(super) fn set(&mut self, address: u64, purpose: Purpose) -> io::Result<()> {
        if self.breakpoints.contains_key(&address) {
            return Ok(());
        }
        let mut original = [0];
        self.memory.read_exact_at(&mut original, address)?;
        self.memory.write_all_at(&[INT3], address)?;
        self.breakpoints.insert(address, Breakpoint { purpose, original: original[0] });
        Ok(())
    }

    /// Removes the breakpoint at `address`; returns its purpose.
    pub(super) fn remove(&mut self, address: u64) -> io::Result<Option<Purpose>> {
        let Some(breakpoint) = self.breakpoints.remove(&address) else { return Ok(None) };
        self.memory.write_all_at(&[breakpoint.original], address)?;
        Ok(Some(breakpoint.purpose))
    }

    pub(super) fn purpose(&self, address: u64) -> Option<Purpose> {
        self.breakpoints.get(&address).map(|breakpoint| breakpoint.purpose)
    }

    /// Restores the program's own byte at `address` for a step, or sets the breakpoint again.
    pub(super) fn lift(&self, address: u64, lifted: bool) -> io::Result<()> {
        let Some(breakpoint) = self.breakpoints.get(&address) else { return Ok(()) };
        let byte = if lifted { breakpoint.original } else { INT3 };
        self.memory.write_all_at(&[byte], address)
    }

    /// Does the same as [`Tracee::lift`] for all breakpoints.
    pub(super) fn lift_all(&self, lifted: bool) -> io::Result<()> {
        self.breakpoints.keys().try_for_each(|address| self.lift(*address, lifted))
    }

    /// Forgets the breakpoints, whose memory is gone.
    pub(super) fn forget(&mut self) {
        self.breakpoints.clear();
    }

    /// Removes all breakpoints from a forked process, which has a copy of each.
    pub(super) fn clear_copy(&self, child: Pid) -> io::Result<()> {
        let memory = memory(child)?;
        self.breakpoints
            .iter()
            .try_for_each(|(address, it)| memory.write_all_at(&[it.original], *address))
    }

    /// Reads the program's own bytes from `address`; returns their number.
    pub(super) fn read(&self, address: u64, target: &mut [u8]) -> usize {
        let length = target.len();
        let mut filled = 0;
        while filled < length {
            match self.memory.read_at(&mut target[filled..], address + filled as u64) {
                Ok(count @ 1..) => filled += count,
                _ => break,
            }
        }
        let end = address.saturating_add(filled as u64);
        for (at, breakpoint) in self.breakpoints.range(address..end) {
            target[(at - address) as usize] = breakpoint.original;
        }
        filled
    }
}

fn memory(pid: Pid) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// Returns the program's first instruction, which the loader jumps to when all objects are loaded.
pub(super) fn entry(pid: Pid) -> io::Result<u64> {
    let vector = fs::read(format!("/proc/{pid}/auxv"))?;
    let (pairs, _) = vector.as_chunks::<16>();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let found = pairs.iter().find(|pair| word(&pair[..8]) == AT_ENTRY);
    found.map(|pair| word(&pair[8..])).ok_or_else(|| io::Error::other("no AT_ENTRY in auxv"))
}

/// True when `thread` belongs to the process `pid`, and is not a process of its own.
pub(super) fn is_thread_of(thread: Pid, pid: Pid) -> bool {
    fs::metadata(format!("/proc/{pid}/task/{thread}")).is_ok()
}

const INT3: u8 = 0xcc;
const AT_ENTRY: u64 = 9;
