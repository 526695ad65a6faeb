// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resource usage of the process: all its threads, those that ended included.
//!
//! The figures of /proc lack the switches of ended threads; this call includes them.
//!
//! Sources: getrusage(2). Does not separate user from system time exactly: the kernel splits the
//! exact total in the proportion of clock ticks it found in each.

use std::time::Duration;

/// Resource usage of the process since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time outside the kernel.
    pub user: Duration,
    /// Processor time within it.
    pub system: Duration,
    /// Pages allocated at their first use, without a read.
    pub faults_minor: u64,
    /// Pages that had to be read.
    pub faults_major: u64,
    /// Voluntary context switches: a thread went to sleep.
    pub switches_voluntary: u64,
    /// Involuntary context switches: a thread was preempted.
    pub switches_involuntary: u64,
}

impl Usage {
    /// Reads the usage of this process: one call, less than a microsecond.
    pub fn now() -> Usage {
        let mut found = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a `rusage` of our own, which the call fills.
        let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, found.as_mut_ptr()) };
        assert_eq!(result, 0, "getrusage of the process itself has no error");
        // SAFETY: zeroed above, and all zeroes is a value of it.
        let found = unsafe { found.assume_init() };
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        Usage {
            user: time(found.ru_utime),
            system: time(found.ru_stime),
            faults_minor: count(found.ru_minflt),
            faults_major: count(found.ru_majflt),
            switches_voluntary: count(found.ru_nvcsw),
            switches_involuntary: count(found.ru_nivcsw),
        }
    }
}

fn time(value: libc::timeval) -> Duration {
    let micros = value.tv_sec as u64 * 1_000_000 + value.tv_usec as u64;
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_and_sleeps_are_counted_also_of_ended_threads() {
        let before = Usage::now();
        let touched = std::thread::spawn(|| {
            let pages = vec![1_u8; 512 * 4096];
            std::thread::sleep(Duration::from_millis(1));
            std::hint::black_box(pages.len())
        });
        assert_eq!(touched.join().unwrap(), 512 * 4096);
        let after = Usage::now();
        // A huge page is one fault for 512 of them.
        assert!(after.faults_minor > before.faults_minor, "{before:?} {after:?}");
        assert!(after.switches_voluntary > before.switches_voluntary, "{before:?} {after:?}");
        assert!(after.user + after.system >= before.user + before.system);
    }
}
