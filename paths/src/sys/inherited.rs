// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that this process inherited from the process that started it.
//!
//! A descriptor that is inherited through execve(2) has no `FD_CLOEXEC`, or it would have been
//! closed; Rust's standard library, rustix and tokio open all of theirs with it. So the flag
//! distinguishes a descriptor that has no owner in this process yet from one that has. The flag is
//! set when ownership is acquired, which keeps the descriptor from the programs that this process
//! starts and from a second owner.
//!
//! Sources: fcntl(2) (`F_GETFD`), execve(2), sd_listen_fds(3).
//!
//! Does not check the object that the descriptor refers to.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Acquires ownership of an inherited descriptor, which programs started later do not inherit.
///
/// # Errors
/// `EBADF`: the number is no open descriptor, or one that this process has opened or acquired
/// itself.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call has a number and no pointer; one that is not open is refused.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // Standard input, output and error have owners that are not Rust objects.
    if flags & libc::FD_CLOEXEC != 0 || number <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: as above; the descriptor is open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and has no owner, since it had no FD_CLOEXEC (the file's
    // header); from now on it has the flag, so this is reached once for it.
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
        // SAFETY: a duplicate without an owner, as after execve.
        let number = unsafe { libc::dup(owned.as_raw_fd()) };
        let inherited = take_inherited(number).unwrap();
        assert_eq!(inherited.as_raw_fd(), number);
        assert_eq!(take_inherited(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
