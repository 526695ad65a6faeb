// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cause of a slow run, found from the counters that exceed their usual values.
//!
//! The first question is which process used the processors in the extra time. When it is this
//! process, its own work grew; faults, reclaim or system time show the kind. Otherwise other
//! programs or the host used the cores, a device was waited for, or threads slept. A cause is named
//! only when it explains half of the time; otherwise the answer is `unknown`.
//!
//! The file-encryption paper suspected its dynamic allocation and had no counters; here each of its
//! suspects has a counter.
//!
//! Sources: the file-encryption paper, section 4.5; getrusage(2); Documentation/accounting/psi.rst.
//! Does not separate causes that leave the same counters.

use std::fmt;

use super::counters::Counters;

/// Cause of a slow run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// Buffers were allocated by the kernel page by page instead of from the allocator.
    PageFaults,
    /// Memory had to be freed or compacted before an allocation.
    Reclaim,
    /// Pages were written back, and writers were held or had to read.
    WriteBack,
    /// Other programs used the cores.
    Scheduling,
    /// The host of the virtual machine used the cores.
    Stolen,
    /// Threads waited for each other's locks: the address space, the folder.
    Locks,
    /// The kernel did more on behalf of the same calls.
    Kernel,
    /// The same instructions took longer.
    SlowerProcessor,
    /// No counter explains half of the extra time.
    Unknown,
}

impl Cause {
    pub(super) const ALL: [Cause; 9] = [
        Cause::PageFaults,
        Cause::Reclaim,
        Cause::WriteBack,
        Cause::Scheduling,
        Cause::Stolen,
        Cause::Locks,
        Cause::Kernel,
        Cause::SlowerProcessor,
        Cause::Unknown,
    ];

    /// Returns a name of one or two words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Cause::PageFaults => "page faults (allocator)",
            Cause::Reclaim => "memory reclaim",
            Cause::WriteBack => "write-back",
            Cause::Scheduling => "scheduling",
            Cause::Stolen => "stolen by the host",
            Cause::Locks => "locks",
            Cause::Kernel => "kernel work",
            Cause::SlowerProcessor => "slower processor",
            Cause::Unknown => "unknown",
        }
    }

    /// Finds the cause of a run from its counters and their usual values.
    pub(super) fn of(run: &Counters, usual: &Counters) -> Cause {
        let more = run.beyond(usual);
        let half = more.wall / 2.0;
        if half <= 0.0 {
            return Cause::Unknown;
        }
        // Extra processor time lengthens the run by its quotient with the cores in use.
        let cores = (usual.own / usual.wall.max(f64::MIN_POSITIVE)).max(1.0);
        if more.own / cores >= half {
            return Self::of_own_work(&more);
        }
        if more.faults_major * READ_S >= half || more.held_by_io >= half {
            Cause::WriteBack
        } else if more.held_by_memory >= half {
            Cause::Reclaim
        } else if more.stolen >= half {
            Cause::Stolen
        } else if more.others >= half || Self::waited(&more, usual) >= half {
            Cause::Scheduling
        } else if more.switches_voluntary > SWITCHES_FEW + usual.switches_voluntary / 2.0 {
            Cause::Locks
        } else {
            Cause::Unknown
        }
    }

    /// Finds the cause when this process itself ran for longer.
    fn of_own_work(more: &Counters) -> Cause {
        let half = more.own / 2.0;
        if more.faults_minor * FAULT_S >= half {
            Cause::PageFaults
        } else if more.reclaims + more.compactions > 0.0 && more.system >= half {
            Cause::Reclaim
        } else if more.system >= half {
            Cause::Kernel
        } else {
            Cause::SlowerProcessor
        }
    }

    /// Returns the extra time spent waiting for a core; 0 where the usual run already waits half of
    /// its time, as more threads than cores always wait.
    fn waited(more: &Counters, usual: &Counters) -> f64 {
        if usual.waited > usual.wall / 2.0 { 0.0 } else { more.waited }
    }

    /// Formats the counters that show the cause, beyond the usual.
    pub(super) fn telling(self, run: &Counters, usual: &Counters) -> String {
        let more = run.beyond(usual);
        let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        match self {
            Cause::PageFaults => {
                let (count, own) = (more.faults_minor, ms(more.own));
                format!("{count:.0} more minor faults, {own} more processor time")
            }
            Cause::Reclaim => format!(
                "{:.0} direct reclaims, {:.0} compactions, {} held by memory",
                run.reclaims,
                run.compactions,
                ms(run.held_by_memory)
            ),
            Cause::WriteBack => format!(
                "{} held by devices, {:.0} pages written back, {:.0} major faults",
                ms(more.held_by_io),
                run.written_pages,
                run.faults_major
            ),
            Cause::Scheduling => format!(
                "{} of others, {} waiting for a core, {:.0} more involuntary switches",
                ms(run.others),
                ms(more.waited),
                more.switches_involuntary
            ),
            Cause::Stolen => format!("{} stolen", ms(run.stolen)),
            Cause::Locks => format!("{:.0} more voluntary switches", more.switches_voluntary),
            Cause::Kernel => format!("{} more within the kernel, no faults", ms(more.system)),
            Cause::SlowerProcessor => {
                format!("{} more processor time for the same work", ms(more.own))
            }
            Cause::Unknown => format!(
                "{} more processor time, {} of others, {:.0} more voluntary switches",
                ms(more.own),
                ms(run.others),
                more.switches_voluntary
            ),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Time of a minor fault with its cleared page: 0.25 µs on bare metal to 1 µs in a guest.
const FAULT_S: f64 = 0.25e-6;
/// Time of a fault that reads from a fast disk.
const READ_S: f64 = 100e-6;
/// Context switches that starting and joining threads may add.
const SWITCHES_FEW: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a run of 100 ms on two cores without waiting.
    fn usual() -> Counters {
        let counts = Counters { faults_minor: 100.0, switches_voluntary: 20.0, ..zero() };
        Counters { wall: 0.1, own: 0.2, system: 0.05, ..counts }
    }

    fn zero() -> Counters {
        Counters::default()
    }

    /// Finds the cause of the usual run, 100 ms longer, with `more` added.
    fn longer(more: Counters) -> Cause {
        let mut run = usual();
        run.wall += 0.1;
        run.own += more.own;
        run.system += more.system;
        run.others += more.others;
        run.stolen += more.stolen;
        run.waited += more.waited;
        run.held_by_io += more.held_by_io;
        run.held_by_memory += more.held_by_memory;
        run.faults_minor += more.faults_minor;
        run.faults_major += more.faults_major;
        run.switches_voluntary += more.switches_voluntary;
        run.reclaims += more.reclaims;
        let cause = Cause::of(&run, &usual());
        assert!(!cause.telling(&run, &usual()).is_empty());
        cause
    }

    #[test]
    fn work_that_grew_is_told_by_faults_reclaim_and_where_it_was() {
        let grew = Counters { own: 0.2, ..zero() };
        let faults = Counters { faults_minor: 500_000.0, system: 0.2, ..grew };
        assert_eq!(longer(faults), Cause::PageFaults);
        // These faults account for a tenth of the time.
        let few = Counters { faults_minor: 50_000.0, ..faults };
        assert_eq!(longer(few), Cause::Kernel);
        assert_eq!(longer(Counters { reclaims: 3.0, ..few }), Cause::Reclaim);
        assert_eq!(longer(grew), Cause::SlowerProcessor);
    }

    #[test]
    fn time_that_was_not_ours_was_somebodys() {
        assert_eq!(longer(Counters { others: 0.1, ..zero() }), Cause::Scheduling);
        assert_eq!(longer(Counters { waited: 0.08, ..zero() }), Cause::Scheduling);
        assert_eq!(longer(Counters { stolen: 0.06, ..zero() }), Cause::Stolen);
        assert_eq!(longer(Counters { held_by_io: 0.09, ..zero() }), Cause::WriteBack);
        assert_eq!(longer(Counters { faults_major: 900.0, ..zero() }), Cause::WriteBack);
        assert_eq!(longer(Counters { held_by_memory: 0.09, ..zero() }), Cause::Reclaim);
        assert_eq!(longer(Counters { switches_voluntary: 900.0, ..zero() }), Cause::Locks);
    }

    #[test]
    fn what_explains_less_than_half_is_not_named() {
        assert_eq!(longer(zero()), Cause::Unknown);
        let little = Counters { others: 0.04, stolen: 0.04, held_by_io: 0.04, ..zero() };
        assert_eq!(longer(little), Cause::Unknown);
        assert_eq!(Cause::of(&usual(), &usual()), Cause::Unknown);
    }

    #[test]
    fn waiting_says_nothing_where_threads_always_wait() {
        let crowded = Counters { waited: 0.1, ..usual() };
        let run = Counters { wall: 0.2, waited: 0.2, ..crowded };
        assert_eq!(Cause::of(&run, &crowded), Cause::Unknown);
    }

    #[test]
    fn every_cause_has_a_name_of_its_own() {
        let mut names: Vec<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Cause::ALL.len());
    }
}
