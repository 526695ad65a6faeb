// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pacer's core and priority: it works for microseconds at a time, and must do so on time.
//!
//! Sources: sched_setaffinity(2), setpriority(2), sched(7) (`sched_runtime` as a slice).
//! Does not reserve a core: others run there while the pacer sleeps.

use std::time::Duration;

/// Returns the cores this process may run on: one pacer each.
pub(crate) fn allowed_cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Binds the thread to a core.
pub(super) fn pin(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!("sched_setaffinity core {core}: {error}; the pacer floats between cores");
    }
}

/// Raises the thread's priority: a pacer works for microseconds at a time and must do so on time.
/// If the process has the right (root, CAP_SYS_NICE, RLIMIT_NICE), the pacer precedes other threads
/// on its core; otherwise it has normal priority.
pub(super) fn raise_priority() {
    // On Linux the nice value belongs to the thread (setpriority(2)).
    let own = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(own), PACER_NICE) {
        tracing::debug!("setpriority {PACER_NICE}: {error}; the pacer has no priority");
    }
    // Priority sets a share of time; the slice decides which thread runs first on a wake.
    if let Err(error) = paths::set_scheduler_slice(PACER_SLICE) {
        tracing::debug!("sched_setattr: {error}; the pacer waits for other threads' slices");
    }
}

/// Precedes desktops and builds, and follows the kernel's own work at -20.
const PACER_NICE: i32 = -15;
/// The shortest slice that the kernel accepts: a wake's work takes tens of microseconds.
const PACER_SLICE: Duration = Duration::from_micros(100);
