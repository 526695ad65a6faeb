// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's time slice of a thread.
//!
//! Since Linux 6.6 (EEVDF) a thread that wakes waits until the running one has used up its slice,
//! some 3 ms, regardless of their nice values; one with a shorter slice does not wait. The slice
//! can be set since Linux 6.12; earlier kernels accept the call and ignore it.
//!
//! Sources: sched_setattr(2); Linux `kernel/sched/syscalls.c` (`__setparam_fair`),
//! `kernel/sched/fair.c` (`PREEMPT_SHORT`).
//!
//! Does not change policy or nice value.

use std::time::Duration;

use crate::error::Errno;
use crate::sys::last_errno;

/// Requests a slice of this length for the calling thread, 100 µs to 100 ms: it runs sooner when it
/// wakes, and for a shorter time. Needs no rights.
///
/// # Errors
/// `EPERM`, `EINVAL`: the thread's policy is not one of those with slices, or a filter of system
/// calls refuses.
pub fn set_scheduler_slice(slice: Duration) -> Result<(), Errno> {
    let (itself, no_flags) = (0, 0);
    let bytes = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: plain numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `bytes` bytes to `attributes`, which is alive.
    let read = unsafe {
        libc::syscall(libc::SYS_sched_getattr, itself, &raw mut attributes, bytes, no_flags)
    };
    if read != 0 {
        return Err(last_errno());
    }
    attributes.size = bytes;
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads `attributes`, whose size is its first field.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, itself, &raw const attributes, no_flags) }
    {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nice value and the slice of this thread.
    fn attributes() -> (i32, u64) {
        // SAFETY: as above.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let bytes = size_of::<libc::sched_attr>() as libc::c_uint;
        // SAFETY: as above.
        let read =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
        assert_eq!(read, 0);
        (attributes.sched_nice, attributes.sched_runtime)
    }

    #[test]
    fn the_slice_is_set_and_the_nice_value_kept() {
        let thread = std::thread::spawn(|| {
            let (nice, usual) = attributes();
            set_scheduler_slice(Duration::from_micros(100)).unwrap();
            let (nice_now, slice) = attributes();
            assert_eq!(nice_now, nice);
            match usual {
                0 => eprintln!("skip: this kernel has no slices to set; Linux 6.12 has"),
                usual => assert!(slice == 100_000 && usual > slice, "{usual} to {slice} ns"),
            }
        });
        thread.join().unwrap();
    }
}
