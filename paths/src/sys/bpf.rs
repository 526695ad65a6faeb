// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs and maps in the kernel, and the link that holds a program to a device.
//!
//! Everything is a file descriptor: a map ends with its last descriptor, a program with its last
//! user, and a link removes its program from the device when it is closed. The kernel closes the
//! link of a process that ends in any way, so a crash leaves no program behind.
//!
//! Uses raw calls: five commands of one system call are less code than the libraries for it, which
//! need a compiler of their own at build time and an ELF file at run time.
//!
//! Sources: `bpf(2)`; Linux `include/uapi/linux/bpf.h` (`union bpf_attr`), `net/core/dev.c`
//! (`bpf_xdp_link_attach`, Linux 5.9).
//!
//! Does not write programs ([`crate::receive`] does), or pin anything.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::Errno;
use crate::sys::last_errno;

/// Commands of `bpf(2)`.
mod command {
    pub(super) const MAP_CREATE: libc::c_int = 0;
    pub(super) const MAP_UPDATE_ELEM: libc::c_int = 2;
    pub(super) const MAP_DELETE_ELEM: libc::c_int = 3;
    pub(super) const PROG_LOAD: libc::c_int = 5;
    pub(super) const LINK_CREATE: libc::c_int = 28;
}

/// `BPF_PROG_TYPE_XDP`.
const PROGRAM_XDP: u32 = 6;
/// `BPF_XDP`, of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
/// The program calls no function that requires the GPL.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// Room for the verifier's log about a program of some 60 instructions.
const LOG_BYTES: usize = 64 * 1024;

/// Kind of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    /// `BPF_MAP_TYPE_HASH`.
    Hash = 1,
    /// `BPF_MAP_TYPE_XSKMAP`: maps a queue number to the XDP socket that receives its frames.
    Sockets = 17,
}

/// Mode of a program on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpMode {
    /// Run by the driver, before the kernel allocates a buffer (`XDP_FLAGS_DRV_MODE`).
    Native = 4,
    /// Run by the kernel, after the driver has allocated a buffer (`XDP_FLAGS_SKB_MODE`).
    Generic = 2,
}

/// `struct bpf_insn`, with destination and source register in one byte as little-endian machines
/// have them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

impl Instruction {
    pub(crate) const fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        Self { code, registers, offset, immediate }
    }
}

/// A map; entries are bytes of the sizes it was made with.
#[derive(Debug)]
pub(crate) struct KernelMap {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

/// Attributes of `BPF_MAP_CREATE`: the beginning of its part of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Create {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// Attributes of `BPF_MAP_*_ELEM`.
#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl KernelMap {
    pub(crate) fn new(
        kind: MapKind,
        key_bytes: usize,
        value_bytes: usize,
        entries: u32,
    ) -> Result<Self, Errno> {
        let mut attribute = Create {
            kind: kind as u32,
            key_bytes: key_bytes as u32,
            value_bytes: value_bytes as u32,
            entries,
            flags: 0,
        };
        // SAFETY: the kernel reads `attribute`, which names no memory.
        let descriptor = unsafe { created(command::MAP_CREATE, &mut attribute)? };
        Ok(Self { descriptor, key_bytes, value_bytes })
    }

    /// Returns its descriptor's number, for a program that is being loaded.
    pub(crate) fn number(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Inserts an entry, or replaces its value.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        let sound = key.len() == self.key_bytes && value.len() == self.value_bytes;
        assert!(sound, "an entry as the map has them");
        self.change(command::MAP_UPDATE_ELEM, key, value.as_ptr() as u64)
    }

    /// Inserts the socket that receives a queue's frames.
    pub(crate) fn put_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.put(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<(), Errno> {
        assert!(key.len() == self.key_bytes, "a key as the map has them");
        self.change(command::MAP_DELETE_ELEM, key, 0)
    }

    fn change(&self, command: libc::c_int, key: &[u8], value: u64) -> Result<(), Errno> {
        let map = self.descriptor.as_raw_fd() as u32;
        let mut element = Element { map, key: key.as_ptr() as u64, value, ..Element::default() };
        // SAFETY: the kernel reads as many bytes of key and value as the map was made with, which
        // is their length (asserted by the callers; a removal reads no value); they are borrowed
        // until the call has returned.
        unsafe { bpf(command, &mut element) }.map(|_| ())
    }
}

/// Attributes of `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct PacketsPerCall {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach: u32,
}

/// An XDP program that the verifier has accepted.
#[derive(Debug)]
pub(crate) struct XdpProgram(OwnedFd);

impl XdpProgram {
    /// Loads a program; an error includes the verifier's log.
    pub(crate) fn load(instructions: &[Instruction]) -> Result<Self, (Errno, String)> {
        let refusal = match load(instructions, &mut []) {
            Ok(descriptor) => return Ok(Self(descriptor)),
            Err(errno) => errno,
        };
        if refusal.code() != libc::EACCES && refusal.code() != libc::EINVAL {
            return Err((refusal, String::new()));
        }
        let mut log = vec![0; LOG_BYTES];
        let errno = match load(instructions, &mut log) {
            Ok(descriptor) => return Ok(Self(descriptor)),
            Err(errno) => errno,
        };
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        Err((errno, String::from_utf8_lossy(&log[..end]).into_owned()))
    }

    /// Runs it on each frame that a device receives, for as long as the link lives.
    pub(crate) fn attach(&self, device: u32, mode: XdpMode) -> Result<OwnedFd, Errno> {
        let program = self.0.as_raw_fd() as u32;
        let mut attribute = Link { program, device, attach: ATTACH_XDP, flags: mode as u32 };
        // SAFETY: the kernel reads `attribute`, which names no memory.
        unsafe { created(command::LINK_CREATE, &mut attribute) }
    }
}

/// Attributes of `BPF_LINK_CREATE`.
#[repr(C)]
struct Link {
    program: u32,
    device: u32,
    attach: u32,
    flags: u32,
}

fn load(instructions: &[Instruction], log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"pagewire");
    let mut attribute = PacketsPerCall {
        kind: PROGRAM_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name,
        attach: ATTACH_XDP,
        ..PacketsPerCall::default()
    };
    let _blocked = SignalsBlocked::new();
    let mut tries = 1;
    loop {
        // SAFETY: the instructions, the zero-terminated license and the room for the log are alive
        // during the call and of the lengths given; the kernel writes the log alone.
        let loaded = unsafe { created(command::PROG_LOAD, &mut attribute) };
        match loaded {
            Err(errno) if errno == Errno::new(libc::EAGAIN) && tries < TRIES_MAX => tries += 1,
            loaded => return loaded,
        }
    }
}

/// Largest number of attempts to load a program: a stop of the process, which no thread can block,
/// interrupts the verifier, too.
const TRIES_MAX: u32 = 10;

/// The signals of this thread, blocked until dropped: a pending one interrupts the verifier, which
/// does not restart by itself (`EAGAIN`).
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: a set of signals is numbers alone, and both calls write whole sets that are
        // alive; with these arguments neither fails.
        unsafe {
            let (mut all, mut before) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Checks that this process may load XDP programs; the refusal, if not.
pub(crate) fn may_load_xdp() -> Result<(), Errno> {
    // r0 = XDP_PASS; exit
    let pass = [Instruction::new(0xb7, 0, 0, 0, 2), Instruction::new(0x95, 0, 0, 0, 0)];
    load(&pass, &mut []).map(|_| ())
}

/// Makes a command that creates an object; returns its descriptor.
///
/// # Safety
/// Same as for [`bpf`].
unsafe fn created<T>(command: libc::c_int, attribute: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: guaranteed by the caller.
    let descriptor = unsafe { bpf(command, attribute)? };
    // SAFETY: the descriptor is new and owned by no other code.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes one command. The kernel reads missing attributes as zero.
///
/// # Safety
/// `T` is the beginning of the command's part of `union bpf_attr`, without padding; the memory that
/// it names is alive and of the length that the command and the attribute specify.
unsafe fn bpf<T>(command: libc::c_int, attribute: &mut T) -> Result<i32, Errno> {
    let (start, bytes) = (&raw mut *attribute, size_of::<T>());
    // SAFETY: `attribute` is alive and the length given is its own; the caller guarantees the rest.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, start, bytes) };
    i32::try_from(returned).ok().filter(|returned| *returned >= 0).ok_or_else(last_errno)
}

impl AsFd for KernelMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

const _: () = {
    assert!(size_of::<Instruction>() == 8);
    assert!(size_of::<Create>() == 20 && size_of::<Element>() == 32);
    assert!(size_of::<PacketsPerCall>() == 72 && size_of::<Link>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_take_what_they_were_made_for_and_an_unsound_program_is_explained() {
        if let Err(errno) = may_load_xdp() {
            return eprintln!("skip: bpf: {errno}");
        }
        let map = KernelMap::new(MapKind::Hash, 8, 4, 2).unwrap();
        assert_eq!(map.put(&[1; 8], &[1; 4]), Ok(()));
        assert_eq!(map.put(&[2; 8], &[1; 4]), Ok(()));
        assert_eq!(map.put(&[1; 8], &[3; 4]), Ok(()));
        assert_eq!(map.put(&[3; 8], &[1; 4]), Err(Errno::new(libc::E2BIG)));
        assert_eq!(map.remove(&[2; 8]), Ok(()));
        assert_eq!(map.remove(&[2; 8]), Err(Errno::new(libc::ENOENT)));
        assert_eq!(map.put(&[3; 8], &[1; 4]), Ok(()));
        // exit, without setting a result.
        let (errno, log) = XdpProgram::load(&[Instruction::new(0x95, 0, 0, 0, 0)]).unwrap_err();
        assert_eq!(errno, Errno::new(libc::EACCES));
        assert!(log.contains("R0"), "{log}");
    }

    #[test]
    fn a_program_is_loaded_though_signals_come() {
        if let Err(errno) = may_load_xdp() {
            return eprintln!("skip: bpf: {errno}");
        }
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing, and no other code has one for this signal.
        let before = unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
        assert_ne!(before, libc::SIG_ERR);
        // SAFETY: no precondition.
        let loader = unsafe { libc::pthread_self() };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: the thread loads until this one has ended.
                    unsafe { libc::pthread_kill(loader, libc::SIGUSR2) };
                }
            });
            let loaded: Vec<_> = (0..1000).map(|_| may_load_xdp()).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let refused: Vec<_> = loaded.iter().filter(|loaded| loaded.is_err()).collect();
            assert!(refused.is_empty(), "{refused:?}");
        });
    }

    #[test]
    #[should_panic(expected = "an entry as the map has them")]
    fn an_entry_of_another_size_is_our_own_mistake() {
        let descriptor = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let map = KernelMap { descriptor, key_bytes: 8, value_bytes: 4 };
        let _ = map.put(&[1; 7], &[1; 4]);
    }
}
