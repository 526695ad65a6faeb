// SPDX-License-Identifier: MIT OR Apache-2.0
//! Set-ups that lock memory, repeated while the kernel frees that of closed ones.
//!
//! Rings of io_uring and memory of XDP sockets count against a user's RLIMIT_MEMLOCK. The kernel
//! frees them after they were closed, on a thread of its own and later on a busy machine; a set-up
//! meanwhile is refused although nothing is in use. It is repeated for at most a second. Costs
//! nothing where the first attempt succeeds.
//!
//! Sources: `getrlimit(2)`; Linux 6.18 `io_uring/io_uring.c` (`io_ring_exit_work`),
//! `net/xdp/xdp_umem.c` (`xdp_umem_release_deferred`).
//! Does not raise the limit.

use std::time::Duration;

use crate::error::Errno;

/// Calls `set_up` until it returns anything but the error `refusal`, or a second has elapsed.
pub(super) fn once_memory_is_back<T>(
    refusal: i32,
    mut set_up: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    for _ in 0..RETRIES {
        match set_up() {
            Err(errno) if errno.code() == refusal => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    set_up()
}

const RETRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_refusal_for_lack_of_memory_is_repeated_and_no_other() {
        let calls = Cell::new(0);
        let answer = |limit: u32, errno: i32| {
            calls.set(0);
            once_memory_is_back(libc::ENOMEM, || {
                calls.set(calls.get() + 1);
                if calls.get() > limit { Ok(calls.get()) } else { Err(Errno::new(errno)) }
            })
        };
        assert_eq!(answer(2, libc::ENOMEM), Ok(3));
        assert_eq!(answer(2, libc::EPERM), Err(Errno::new(libc::EPERM)));
        assert_eq!(calls.get(), 1);
        assert_eq!(answer(u32::MAX, libc::ENOMEM), Err(Errno::new(libc::ENOMEM)));
        assert_eq!(calls.get(), RETRIES + 1);
    }
}
