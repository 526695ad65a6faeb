// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns this process into a restricted program that decodes untrusted media (ffmpeg): an attacker
//! who makes the media may exploit a fault of its decoders.
//!
//! | it may | it may not |
//! |---|---|
//! | read standard input, write standard output and error | write or make any file |
//! | read and map itself and libraries | read any other file, where the kernel has Landlock |
//! | make threads | make processes, send signals to others |
//! | | have a socket, trace, mount, load, or any call that it does not need |
//! | use the processor, memory and time that it was given | outlive the server |
//!
//! Standard streams and files without close-on-exec stay open: the caller has no such files.
//!
//! Costs 10 ms for each program, besides the start of the program itself (ffmpeg: 80 ms).
//!
//! Sources: landlock(7), seccomp(2), prctl(2) (`PR_SET_PDEATHSIG`), ld.so(8).
//! Does not limit wall-clock time: the caller kills the process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use libc::c_long;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::architecture::DECODERS;
use crate::error::SandboxError;
use crate::file_permissions::FilePermissions;
use crate::limits::ProcessLimits;
use crate::system_calls::CallFilter;

/// Resource limits of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderLimits {
    /// CPU time.
    pub cpu_s: u64,
    /// Address space, including that of the libraries (ffmpeg of Debian: 300 MB) and of pictures.
    pub memory_bytes: u64,
}

/// Restricts this process, which has one thread, and executes `program` in it. Returns only an
/// error. `parent` is the process that waits for the result; this process ends with it.
pub fn become_decoder(
    (program, arguments): (&Path, &[OsString]),
    parent: u32,
    limits: DecoderLimits,
) -> SandboxError {
    match restrict(program, parent, limits) {
        Ok(()) => {
            let source = Command::new(program).args(arguments).env_clear().exec();
            SandboxError::Program { program: program.to_owned(), source }
        }
        Err(error) => error,
    }
}

fn restrict(program: &Path, parent: u32, limits: DecoderLimits) -> Result<(), SandboxError> {
    let orphaned = |source| SandboxError::Host { call: "prctl", object: ORPHAN.to_owned(), source };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| orphaned(errno.into()))?;
    // The parent may have ended before the call.
    if getppid().is_none_or(|found| found.as_raw_nonzero().get() as u32 != parent) {
        return Err(orphaned(std::io::Error::other("the server has ended")));
    }
    let DecoderLimits { cpu_s, memory_bytes } = limits;
    ProcessLimits { cpu_s, memory_bytes, file_bytes: 0, files: FILES }.restrict()?;
    let own: Vec<PathBuf> = program.canonicalize().into_iter().collect();
    FilePermissions::none().executing(LIBRARIES).executing(own).restrict()?;
    let own = getpid().as_raw_nonzero().get() as u32;
    CallFilter::none()
        .allowing(CALLS)
        .allowing(DECODERS)
        .with_threads()
        .with_reading()
        .with_own_limits()
        .with_descriptor_flags()
        .with_signals_to(own)
        .restrict()
}

const ORPHAN: &str = "PR_SET_PDEATHSIG";

/// Open files: standard streams, and one or two libraries while they are being mapped.
const FILES: u64 = 32;

/// Folders of libraries, and the list of them.
const LIBRARIES: [&str; 7] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/nix/store",
];

/// Calls of the program: memory, threads, time, and access to open files.
const CALLS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_dup,
    // One call, to start the program. Landlock limits the files that can be executed.
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];
