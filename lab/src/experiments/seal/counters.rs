// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel counters of a sealing run; they show why one run took longer.
//!
//! The counters are read before and after a run, outside its time: a getrusage(2) and five small
//! files, a quarter of a millisecond. Counters of the machine include other programs on purpose. A
//! counter that the kernel does not keep (no pressure files) stays 0.
//!
//! Sources: getrusage(2), proc_stat(5), proc_vmstat(5), Documentation/accounting/psi.rst.
//! Does not find the cause; `cause` does.

use std::fs;
use std::time::Instant;

use paths::Usage;

use measure::meter::process_time;

/// Counters of one run, or the usual values of many. Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    /// Wall-clock time.
    pub(super) wall: f64,
    /// Exact processor time of this process.
    pub(super) own: f64,
    /// Part of it within the kernel, at the resolution of clock ticks.
    pub(super) system: f64,
    /// Processor time of all other processes, at a resolution of 10 ms.
    pub(super) others: f64,
    /// Time that the host of a virtual machine used, at a resolution of 10 ms.
    pub(super) stolen: f64,
    /// Time in which at least one thread of the machine waited for a core (pressure: cpu, some).
    pub(super) waited: f64,
    /// Time in which at least one thread waited for a device or was throttled in writing (io,
    /// some).
    pub(super) held_by_io: f64,
    /// Time in which at least one thread waited for memory to be freed (memory, some).
    pub(super) held_by_memory: f64,
    pub(super) faults_minor: f64,
    pub(super) faults_major: f64,
    pub(super) switches_voluntary: f64,
    pub(super) switches_involuntary: f64,
    /// Pages written back to devices.
    pub(super) written_pages: f64,
    /// Allocations that first had to free memory (direct reclaim).
    pub(super) reclaims: f64,
    /// Allocations that first had to compact memory.
    pub(super) compactions: f64,
}

type Field = fn(&mut Counters) -> &mut f64;

impl Counters {
    const FIELDS: [Field; 15] = [
        |c| &mut c.wall,
        |c| &mut c.own,
        |c| &mut c.system,
        |c| &mut c.others,
        |c| &mut c.stolen,
        |c| &mut c.waited,
        |c| &mut c.held_by_io,
        |c| &mut c.held_by_memory,
        |c| &mut c.faults_minor,
        |c| &mut c.faults_major,
        |c| &mut c.switches_voluntary,
        |c| &mut c.switches_involuntary,
        |c| &mut c.written_pages,
        |c| &mut c.reclaims,
        |c| &mut c.compactions,
    ];

    /// Returns the usual values: the median of each counter, 0 without a run.
    pub(super) fn usual(runs: &[Counters]) -> Counters {
        let mut usual = Counters::default();
        for field in Counters::FIELDS {
            let mut values: Vec<f64> = runs.iter().map(|run| *field(&mut run.clone())).collect();
            values.sort_unstable_by(f64::total_cmp);
            if let (Some(low), Some(high)) =
                (values.get(values.len().saturating_sub(1) / 2), values.get(values.len() / 2))
            {
                *field(&mut usual) = f64::midpoint(*low, *high);
            }
        }
        usual
    }

    /// Returns the excess of each counter over `usual`, at least 0.
    pub(super) fn beyond(mut self, usual: &Counters) -> Counters {
        let mut usual = *usual;
        for field in Counters::FIELDS {
            *field(&mut self) = (*field(&mut self) - *field(&mut usual)).max(0.0);
        }
        self
    }
}

/// Counters at the start of a run.
pub(super) struct Begun {
    machine: Machine,
    usage: Usage,
    own: f64,
    wall: Instant,
}

impl Begun {
    /// Reads the counters now; the clocks last.
    pub(super) fn now() -> Begun {
        let (machine, usage) = (Machine::now(), Usage::now());
        Begun { machine, usage, own: process_time().as_secs_f64(), wall: Instant::now() }
    }

    /// Ends the run; reads the clocks first.
    pub(super) fn end(self) -> Counters {
        let wall = self.wall.elapsed().as_secs_f64();
        let own = process_time().as_secs_f64() - self.own;
        let (usage, machine) = (Usage::now(), Machine::now());
        let (before, then) = (self.usage, self.machine);
        let count = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let since = |now: f64, before: f64| (now - before).max(0.0);
        Counters {
            wall,
            own,
            system: usage.system.saturating_sub(before.system).as_secs_f64(),
            others: (since(machine.busy, then.busy) - own).max(0.0),
            stolen: since(machine.stolen, then.stolen),
            waited: since(machine.waited, then.waited),
            held_by_io: since(machine.held_by_io, then.held_by_io),
            held_by_memory: since(machine.held_by_memory, then.held_by_memory),
            faults_minor: count(usage.faults_minor, before.faults_minor),
            faults_major: count(usage.faults_major, before.faults_major),
            switches_voluntary: count(usage.switches_voluntary, before.switches_voluntary),
            switches_involuntary: count(usage.switches_involuntary, before.switches_involuntary),
            written_pages: since(machine.written_pages, then.written_pages),
            reclaims: since(machine.reclaims, then.reclaims),
            compactions: since(machine.compactions, then.compactions),
        }
    }
}

/// Counters of the whole machine since boot, in seconds and counts.
#[derive(Default)]
struct Machine {
    busy: f64,
    stolen: f64,
    waited: f64,
    held_by_io: f64,
    held_by_memory: f64,
    written_pages: f64,
    reclaims: f64,
    compactions: f64,
}

impl Machine {
    fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (busy, stolen) = processors(&read("/proc/stat"));
        let memory = read("/proc/vmstat");
        Machine {
            busy,
            stolen,
            waited: pressure(&read("/proc/pressure/cpu")),
            held_by_io: pressure(&read("/proc/pressure/io")),
            held_by_memory: pressure(&read("/proc/pressure/memory")),
            written_pages: sum(&memory, "nr_written"),
            reclaims: sum(&memory, "allocstall"),
            compactions: sum(&memory, "compact_stall"),
        }
    }
}

/// Returns busy and stolen seconds of all processors; fields: user nice system idle iowait irq
/// softirq steal.
fn processors(stat: &str) -> (f64, f64) {
    let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = words.map(|word| word.parse().unwrap_or(0.0)).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
    ((at(0) + at(1) + at(2) + at(5) + at(6)) / USER_HZ, at(7) / USER_HZ)
}

/// Returns the seconds in which some thread was stalled.
fn pressure(text: &str) -> f64 {
    let some = text.lines().find(|line| line.starts_with("some ")).unwrap_or_default();
    let total = some.split_whitespace().find_map(|word| word.strip_prefix("total="));
    total.and_then(|micros| micros.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// Sums the lines with this name, alone or as the prefix of a zone.
fn sum(vmstat: &str, name: &str) -> f64 {
    let values = vmstat.lines().filter_map(|line| line.split_once(' '));
    let of_name = values.filter(|(found, _)| {
        found.strip_prefix(name).is_some_and(|zone| zone.is_empty() || zone.starts_with('_'))
    });
    of_name.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
}

/// Ticks a second in /proc, independent of the kernel's own tick rate (proc_stat(5)).
const USER_HZ: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(processors("cpu  10 1 20 5000 30 4 5 6 0 0\ncpu0 1"), (0.4, 0.06));
        let text = "some avg10=3.97 avg60=23.87 avg300=38.00 total=3523284\nfull total=7";
        assert_eq!(pressure(text), 3.523284);
        let text = "nr_written 7\nallocstall_dma 1\nallocstall_normal 2\nallocstalled 9\nx";
        assert_eq!((sum(text, "allocstall"), sum(text, "nr_written")), (3.0, 7.0));
        assert_eq!((processors(""), pressure(""), sum("", "x")), ((0.0, 0.0), 0.0, 0.0));
    }

    #[test]
    fn usual_is_the_median_of_each_and_beyond_it_is_what_is_more() {
        let run = |wall, faults_minor| Counters { wall, faults_minor, ..Counters::default() };
        let usual = Counters::usual(&[run(1.0, 9.0), run(2.0, 5.0), run(9.0, 7.0)]);
        assert_eq!(usual, run(2.0, 7.0));
        assert_eq!(run(9.0, 5.0).beyond(&usual), run(7.0, 0.0));
        assert_eq!(Counters::usual(&[run(1.0, 2.0), run(2.0, 4.0)]), run(1.5, 3.0));
        assert_eq!(Counters::usual(&[]), Counters::default());
    }

    #[test]
    fn what_a_run_does_is_counted() {
        let begun = Begun::now();
        // Over the 32 MiB that malloc may keep for itself (mallopt(3), M_MMAP_THRESHOLD): a smaller
        // buffer may lie where another test has already touched every page.
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        let counted = begun.end();
        assert!(counted.wall > 0.0 && counted.own > 0.0, "{counted:?}");
        assert!(counted.faults_minor >= 1.0, "{counted:?}, {} bytes", pages.len());
    }
}
