// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures one section: prints its begin and end, and reads the clocks right around it.
//!
//! In the pauses before and after, the host reads the processor time of the guest's processes: the
//! split into user and system time that User Mode Linux makes is unusable. Nothing sleeps between
//! the two readings of the clock, so under `-icount` the wall clock counts the section's
//! instructions only.
//!
//! Sources: getrusage(2), clock_gettime(2).

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::error::Error;
use crate::protocol::{ConsoleLine, Measurement, WorkDone};

/// Pause after `begin` and after `end-of`.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `section` between its two printed lines.
pub(crate) fn measure(
    name: &str,
    section: impl FnOnce() -> Result<WorkDone, Error>,
) -> Result<(), Error> {
    ConsoleLine::Begin(name).say();
    sleep(PAUSE);
    let before = CpuTimes::now()?;
    let began = Instant::now();
    let work = section()?;
    let wall = began.elapsed();
    let after = CpuTimes::now()?;
    let figures = Measurement {
        work,
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        user_ns: after.user_ns.saturating_sub(before.user_ns),
        system_ns: after.system_ns.saturating_sub(before.system_ns),
    };
    ConsoleLine::EndOf(name, figures).say();
    sleep(PAUSE);
    Ok(())
}

/// Processor time so far of this process and of the children it waited for.
struct CpuTimes {
    user_ns: u64,
    system_ns: u64,
}

impl CpuTimes {
    fn now() -> Result<CpuTimes, Error> {
        let usage = |who, object: &str| getrusage(who).map_err(Error::host("getrusage", object));
        let own = usage(UsageWho::RUSAGE_SELF, "self")?;
        let children = usage(UsageWho::RUSAGE_CHILDREN, "children")?;
        let sum = |of: fn(&Usage) -> nix::sys::time::TimeVal| {
            let ns = of(&own).num_nanoseconds() + of(&children).num_nanoseconds();
            u64::try_from(ns).unwrap_or(0)
        };
        Ok(CpuTimes { user_ns: sum(Usage::user_time), system_ns: sum(Usage::system_time) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_burnt_is_counted() {
        let before = CpuTimes::now().expect("getrusage");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let after = CpuTimes::now().expect("getrusage");
        let burnt = after.user_ns + after.system_ns - before.user_ns - before.system_ns;
        assert!(burnt > 0, "50 ms of spinning took no time of the processor");
    }

    #[test]
    fn what_the_section_says_is_the_result() {
        let error =
            measure("nothing", || crate::error::same("it", 1, 2).map(|()| WorkDone::default()));
        assert_eq!(error.expect_err("1 is not 2").to_string(), "it: expected 1, found 2");
    }
}
