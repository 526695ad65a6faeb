// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that this process was given by whoever started it.
//!
//! A descriptor that comes by execve(2) has no `FD_CLOEXEC`, or it would have been closed; all that
//! Rust's standard library, rustix and tokio open has it. So the flag tells a descriptor that
//! nobody in this process owns yet from one that has an owner. It is set when the descriptor is
//! taken, which keeps it from the programs that this process starts and from a second owner.
//!
//! Sources: fcntl(2) (`F_GETFD`), execve(2), sd_listen_fds(3).
//!
//! Does not look at what the descriptor refers to.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of an inherited descriptor, which programs started later do not inherit.
///
/// # Errors
/// `EBADF`: the number is no open descriptor, or one that this process has opened or taken itself.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and no pointer; one that is not open is refused.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // Standard input, output and error have owners that Rust does not name.
    if flags & libc::FD_CLOEXEC != 0 || number <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: as above; the descriptor is open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and has no owner, since it came without FD_CLOEXEC (the
    // file's header); from now on it has the flag, so this is reached once for it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_descriptor_with_an_owner_is_not_taken() {
        let owned = std::fs::File::open("/dev/null").unwrap();
        for number in [owned.as_raw_fd(), 1, -1, i32::MAX] {
            let error = take_inherited(number).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{number}");
        }
    }

    #[test]
    fn an_inherited_descriptor_is_taken_once() {
        let owned = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: a duplicate that is nobody's, as after execve.
        let number = unsafe { libc::dup(owned.as_raw_fd()) };
        let taken = take_inherited(number).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        assert_eq!(take_inherited(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
