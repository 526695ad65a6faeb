// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the CPU cost of a run, including kernel work on other threads.
//!
//! A meter reads three sums. *Process*: user and system time of this process's threads, as in
//! getrusage(2), to the nanosecond by CLOCK_PROCESS_CPUTIME_ID; it includes a receiving thread,
//! io_uring workers (they are threads of the process) and softirqs that run within a system call.
//! *Kernel threads*: time of ksoftirqd and kworkers meanwhile, from schedstat, in nanoseconds.
//! *Busy*: non-idle time of all processors, from /proc/stat, in hundredths of a second: an upper
//! bound that includes other programs. The CPU cost is the sum of the first two.
//!
//! A reading costs two clock calls inside the measured time; files are read outside it.
//!
//! Sources: getrusage(2), clock_gettime(2), proc_stat(5), Documentation/scheduler/sched-stats.
//! Does not read hardware counters; a virtual machine seldom has them.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU and wall times of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuCost {
    /// User and system time of the process's threads.
    pub process: Duration,
    /// Time of the kernel's own threads meanwhile.
    pub kernel_threads: Duration,
    /// Non-idle time of all processors.
    pub busy: Duration,
    /// Time of a virtual machine that the hypervisor used otherwise.
    pub stolen: Duration,
    /// Wall time.
    pub wall: Duration,
    /// CPU time of threads that are not measured.
    pub apart: Duration,
    /// Number of processors of the machine.
    pub processors: usize,
}

impl CpuCost {
    /// Returns the CPU cost: process and kernel threads.
    pub fn charged(&self) -> Duration {
        self.process + self.kernel_threads
    }

    /// Returns the share of all processors that other programs used; 0 for a run under 100 ms.
    pub fn others_share(&self) -> f64 {
        if self.wall < SHARES_FROM {
            return 0.0;
        }
        let others = self.busy.saturating_sub(self.charged() + self.apart);
        others.as_secs_f64() / (self.wall.as_secs_f64() * self.processors as f64)
    }
}

/// Reads CPU times of the process and of the kernel's threads.
pub struct Meter {
    kernel_threads: Vec<String>,
}

/// A started run.
pub struct Begun<'a> {
    meter: &'a Meter,
    kernel_threads: Duration,
    processors: Processors,
    process: Duration,
    wall: Instant,
}

impl Meter {
    /// Returns a meter of this process and of the kernel threads that work for it.
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

    /// Returns the time of the kernel's own threads so far.
    pub fn of_kernel_threads(&self) -> Duration {
        let of = |path: &String| -> Option<u64> {
            let text = fs::read_to_string(path).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        Duration::from_nanos(self.kernel_threads.iter().filter_map(of).sum())
    }
}

impl Begun<'_> {
    /// Ends the run; the process's clock is read first. `apart` is the CPU time of threads that are
    /// not measured.
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

/// Times of all processors since boot.
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

    /// Parses /proc/stat: user nice system idle iowait irq softirq steal, in hundredths of 1 s.
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

/// Returns user and system time of all threads of the process.
pub fn process_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Returns user and system time of the calling thread.
pub fn thread_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time of a fixed piece of work that touches no memory: the present speed of
/// the processor. Costs some two milliseconds. A difference between two calls means that the clock
/// frequency changed, or the load on the other thread of the core.
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

    /// Returns the last core, which has the fewest interrupts.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }

    /// Returns the last `count` cores, and the others; the latter are all cores if none is left.
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
        // The child inherits the affinity of the thread that starts it.
        sched_setaffinity(None, &set)?;
        let started = command.spawn();
        sched_setaffinity(None, &own)?;
        started
    }
}

/// Pins the calling thread, and those it starts later, to one core: the last of `cores`, which has
/// the fewest interrupts; with `other`, the one before, if there is one. A wake-up on the same core
/// needs no interrupt to a sleeping core, which costs more than sending in a virtual machine; and
/// no time is lost to migration.
pub fn pin(cores: &Cores, other: bool) {
    let mut cores = cores.0.iter().rev().copied();
    let Some(last) = cores.next() else { return };
    let core = if other { cores.next().unwrap_or(last) } else { last };
    let mut set = CpuSet::new();
    set.set(core);
    // Where pinning is forbidden, the scheduler places the thread.
    let _ = sched_setaffinity(None, &set);
}

/// Ticks a second in /proc, independent of the kernel's own tick rate (proc_stat(5)).
const USER_HZ: u64 = 100;
/// Shortest run with a share: ten ticks of /proc.
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
