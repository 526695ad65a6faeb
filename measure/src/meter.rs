// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run cost the processor, wherever the kernel did the work.
//!
//! Three accounts. *Process*: user and system time of this process's threads, as getrusage(2) has
//! them (to the nanosecond by CLOCK_PROCESS_CPUTIME_ID); a receiving thread's is in it, io_uring
//! workers are threads of the process and so are in it, as is what softirqs do on a system call's
//! back. *Kernel threads*: what ksoftirqd and kworkers ran meanwhile, from schedstat, in
//! nanoseconds. *Everything*: what all processors did not spend idle, from /proc/stat, in
//! hundredths of a second: an upper bound that has other programs in it. The CPU cost is the first
//! two.
//!
//! A reading costs two clock calls inside the measured time; files are read outside it.
//!
//! Sources: getrusage(2), clock_gettime(2), proc_stat(5), Documentation/scheduler/sched-stats.
//! Does not do: hardware counters; a virtual machine seldom has them.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// What a run cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuCost {
    /// User and system time of the process's threads.
    pub process: Duration,
    /// What the kernel's own threads ran meanwhile.
    pub kernel_threads: Duration,
    /// What all processors did not spend idle.
    pub busy: Duration,
    /// What the host of a virtual machine took from it.
    pub stolen: Duration,
    /// Time that passed.
    pub wall: Duration,
    /// The time of threads that are not the subject.
    pub apart: Duration,
    /// How many processors the machine has.
    pub processors: usize,
}

impl CpuCost {
    /// What is billed.
    pub fn charged(&self) -> Duration {
        self.process + self.kernel_threads
    }

    /// Share of all processors that others had meanwhile; 0 for a run too short to tell.
    pub fn others_share(&self) -> f64 {
        if self.wall < SHARES_FROM {
            return 0.0;
        }
        let others = self.busy.saturating_sub(self.charged() + self.apart);
        others.as_secs_f64() / (self.wall.as_secs_f64() * self.processors as f64)
    }
}

/// Reads the accounts; knows the kernel's threads.
pub struct Meter {
    kernel_threads: Vec<String>,
}

/// A run that has begun.
pub struct Begun<'a> {
    meter: &'a Meter,
    kernel_threads: Duration,
    processors: Processors,
    process: Duration,
    wall: Instant,
}

impl Meter {
    /// A meter of this process and of the kernel threads that work for it.
    pub fn of_this_process() -> Meter {
        let mut kernel_threads = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = entry.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            if name.starts_with("ksoftirqd/") || name.starts_with("kworker/") {
                kernel_threads.push(path.join("schedstat").to_string_lossy().into_owned());
            }
        }
        Meter { kernel_threads }
    }

    /// Begins a run; the process's clock is read last.
    pub fn begin(&self) -> Begun<'_> {
        Begun {
            meter: self,
            kernel_threads: self.of_kernel_threads(),
            processors: Processors::now(),
            wall: Instant::now(),
            process: process_time(),
        }
    }

    /// What the kernel's own threads have run so far.
    pub fn of_kernel_threads(&self) -> Duration {
        let of = |path: &String| -> Option<u64> {
            let text = fs::read_to_string(path).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        Duration::from_nanos(self.kernel_threads.iter().filter_map(of).sum())
    }
}

impl Begun<'_> {
    /// Ends it; the process's clock is read first. `apart` is the time of threads that are not the
    /// subject.
    pub fn end(self, apart: Duration) -> CpuCost {
        let process = process_time();
        let wall = self.wall.elapsed();
        let (processors, before) = (Processors::now(), self.processors);
        CpuCost {
            process: process.saturating_sub(self.process).saturating_sub(apart),
            kernel_threads: self.meter.of_kernel_threads().saturating_sub(self.kernel_threads),
            busy: processors.busy.saturating_sub(before.busy),
            stolen: processors.stolen.saturating_sub(before.stolen),
            wall,
            apart,
            processors: processors.count.max(1),
        }
    }
}

/// All processors, since boot.
struct Processors {
    busy: Duration,
    stolen: Duration,
    count: usize,
}

impl Processors {
    fn now() -> Processors {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Processors::parse(&text)
    }

    /// user nice system idle iowait irq softirq steal, in hundredths of a second.
    fn parse(text: &str) -> Processors {
        let count = text.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1);
        let words = text.lines().next().unwrap_or("").split_whitespace().skip(1);
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        let busy = at(0) + at(1) + at(2) + at(5) + at(6);
        let time = |ticks: u64| Duration::from_millis(ticks * 1000 / USER_HZ);
        Processors { busy: time(busy), stolen: time(at(7)), count }
    }
}

/// User and system time of the process, all its threads.
pub fn process_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread.
pub fn thread_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How fast the processor runs now: nanoseconds of processor time for a fixed piece of work that
/// touches no memory. Costs some two milliseconds. Where it differs between two moments, the
/// clock's frequency did, or what shares the core.
pub fn pace() -> Duration {
    let began = thread_time();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..PACE_STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    std::hint::black_box(state);
    thread_time() - began
}

/// Cores that this process may run on.
#[derive(Clone)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// Cores in this thread's affinity mask (sched_getaffinity(2)).
    pub fn allowed() -> Cores {
        let Ok(set) = sched_getaffinity(None) else { return Cores(vec![0]) };
        Cores((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
    }

    /// Number of cores in the set.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The last of them, where interrupts are fewest.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }

    /// The last `count` of them, and the others; all of them twice where none is left over.
    pub fn split(&self, count: usize) -> (Cores, Cores) {
        let (others, last) = self.0.split_at(self.count().saturating_sub(count));
        let others = if others.is_empty() { &self.0 } else { others };
        (Cores(last.to_vec()), Cores(others.to_vec()))
    }

    /// Starts a program on these cores.
    pub fn start(&self, command: &mut Command) -> std::io::Result<Child> {
        let own = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        self.0.iter().for_each(|&core| set.set(core));
        // The child has what the thread has that starts it.
        sched_setaffinity(None, &set)?;
        let started = command.spawn();
        sched_setaffinity(None, &own)?;
        started
    }
}

/// Keeps the calling thread, and those it starts later, to one core: the last of `cores`, where
/// interrupts are fewest; `other` for the one before, if there is one. A thread that wakes another
/// on the same core sends no interrupt to one that sleeps, which in a virtual machine costs more
/// than sending does; and no time is lost to moving.
pub fn pin(cores: &Cores, other: bool) {
    let mut cores = cores.0.iter().rev().copied();
    let Some(last) = cores.next() else { return };
    let core = if other { cores.next().unwrap_or(last) } else { last };
    let mut set = CpuSet::new();
    set.set(core);
    // Where it is forbidden, the scheduler places the thread.
    let _ = sched_setaffinity(None, &set);
}

/// Ticks of a second in /proc, whatever the kernel's own (proc_stat(5)).
const USER_HZ: u64 = 100;
/// Ten ticks of /proc.
const SHARES_FROM: Duration = Duration::from_millis(100);
const PACE_STEPS: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_is_on_its_account() {
        let meter = Meter::of_this_process();
        let begun = meter.begin();
        let worked = pace() + pace();
        let cost = begun.end(Duration::ZERO);
        assert!(cost.process >= worked, "{cost:?}, worked {worked:?}");
        assert!(cost.wall > Duration::ZERO && cost.charged() >= cost.process, "{cost:?}");
    }

    #[test]
    fn time_of_threads_apart_is_not_charged() {
        let begun_at = process_time();
        let meter = Meter::of_this_process();
        let begun = meter.begin();
        let apart = std::thread::spawn(|| {
            let before = thread_time();
            let _ = pace();
            thread_time() - before
        });
        let apart = apart.join().unwrap();
        let cost = begun.end(apart);
        assert!(cost.process + apart <= process_time() - begun_at, "{cost:?}, apart {apart:?}");
    }

    #[test]
    fn cores_are_split_and_shared_when_there_are_too_few() {
        let cores = Cores(vec![1, 3, 5]);
        let (server, clients) = cores.split(1);
        assert_eq!((server.0, clients.0), (vec![5], vec![1, 3]));
        let (server, clients) = cores.split(3);
        assert_eq!((server.0, clients.0), (vec![1, 3, 5], vec![1, 3, 5]));
    }

    #[test]
    fn a_line_of_all_processors() {
        let processors = Processors::parse("cpu  10 1 20 5000 30 4 5 6 0 0\ncpu0 1\ncpu1 9\nx 0");
        assert_eq!(processors.count, 2);
        assert_eq!(processors.busy, Duration::from_millis(400));
        assert_eq!(processors.stolen, Duration::from_millis(60));
        assert_eq!(Processors::parse("").busy, Duration::ZERO);
    }
}
