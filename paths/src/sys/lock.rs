// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write locks on whole files, which belong to an open file and not to a process.
//!
//! The kernel grants a write lock only on a descriptor that is open for writing, so a program that
//! may only read a file can neither acquire nor feign one; flock(2) grants them to readers too. The
//! lock ends with the last descriptor of the open file, also when its process is killed. A query
//! acquires no lock, so it disturbs no other program.
//!
//! Sources: `fcntl_locking(2)`, "Open file description locks" (Linux 3.15).
//!
//! Does not lock parts of files, acquire read locks or wait.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::error::Errno;
use crate::sys::last_errno;

/// Acquires a write lock on a file that is open for writing.
///
/// # Errors
/// `EAGAIN` where another open file has a lock on it, `EBADF` where this one is open for reading
/// alone; any other where its file system or its kernel has no such locks.
pub fn lock_to_write(file: &File) -> Result<(), Errno> {
    let whole = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is open for as long as `file` lives; the kernel reads the struct,
    // which is alive, and keeps no pointer to it.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// True when another open file has a write lock on any part of this one.
///
/// # Errors
/// The file system or the kernel has no such locks.
pub fn is_locked_to_write(file: &File) -> Result<bool, Errno> {
    // A read lock conflicts with write locks only, so the query ignores read locks.
    let mut found = whole_file(libc::F_RDLCK);
    // SAFETY: as above; the kernel writes the lock that it found into the struct, which is alive
    // and ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) } {
        0 => Ok(i32::from(found.l_type) == libc::F_WRLCK),
        _ => Err(last_errno()),
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    // SAFETY: the struct is integers, for which zero is a value; the kernel wants `l_pid` zero, and
    // a start and a length of zero are the whole file, however long it grows.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_lock_is_for_writers_and_seen_by_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let writer = File::create(&path).unwrap();
        let (reader, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        assert_eq!(lock_to_write(&reader), Err(Errno::new(libc::EBADF)));
        assert_eq!(is_locked_to_write(&reader), Ok(false));
        lock_to_write(&writer).unwrap();
        assert_eq!(is_locked_to_write(&reader), Ok(true));
        assert_eq!(is_locked_to_write(&other), Ok(true));
        let second = File::options().write(true).open(&path).unwrap();
        assert_eq!(lock_to_write(&second), Err(Errno::new(libc::EAGAIN)));
        // The lock belongs to the open file: another descriptor of it keeps the lock.
        let kept = writer.try_clone().unwrap();
        drop(writer);
        assert_eq!(is_locked_to_write(&reader), Ok(true));
        drop(kept);
        assert_eq!(is_locked_to_write(&reader), Ok(false));
    }
}
