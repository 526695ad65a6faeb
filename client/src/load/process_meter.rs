// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the CPU time of this program, of a visible server process, and of the whole machine,
//! over the measured time of a load.
//!
//! Sources: proc_stat(5); clock_gettime(2) CLOCK_PROCESS_CPUTIME_ID.
//! Does not measure a server on another machine or of another user.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::outcome::LoadClient;
use super::server_process::ServerProcess;

/// Counters at the start.
pub(crate) struct ProcessMeter {
    processor_seconds: f64,
    machine: Option<ProcessorTimes>,
    is_local: bool,
    server: Option<ServerProcess>,
}

/// CPU time between two moments.
pub(crate) struct ProcessUsage {
    length: Duration,
    processor_seconds: f64,
    machine_cores: Option<f64>,
    is_local: bool,
    /// CPU seconds of the server.
    pub(crate) server_seconds: Option<f64>,
}

/// Times of all processors since boot, in ticks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessorTimes {
    busy: u64,
    all: u64,
    cores: u32,
}

impl ProcessMeter {
    /// Reads the counters, also those of a server that listens at this address.
    pub(crate) fn begin(server: SocketAddr, is_local: bool) -> ProcessMeter {
        let server = is_local.then(|| ServerProcess::listening_at(server)).flatten();
        let processor_seconds = processor_seconds();
        ProcessMeter { processor_seconds, machine: machine(), is_local, server }
    }

    pub(crate) fn end(self, length: Duration) -> ProcessUsage {
        let busy = self.machine.zip(machine()).and_then(|(before, now)| now.cores_since(before));
        ProcessUsage {
            length,
            processor_seconds: processor_seconds() - self.processor_seconds,
            machine_cores: busy,
            is_local: self.is_local,
            server_seconds: self.server.as_ref().and_then(ServerProcess::seconds_since),
        }
    }
}

impl ProcessUsage {
    /// Usage of a load without a measured time.
    pub(crate) fn nothing(is_local: bool) -> ProcessUsage {
        ProcessUsage {
            length: Duration::ZERO,
            processor_seconds: 0.0,
            machine_cores: None,
            is_local,
            server_seconds: None,
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.length.as_secs_f64()
    }

    pub(crate) fn client(&self, timers: &Histogram<u64>) -> LoadClient {
        let ms = |us: u64| us as f64 / 1e3;
        LoadClient {
            processor_seconds: self.processor_seconds,
            cores: self.processor_seconds / self.seconds().max(1e-3),
            timers_late_ms_p50: ms(quantile(timers, 0.5)),
            timers_late_ms_p99: ms(quantile(timers, 0.99)),
            timers_late_ms_max: ms(timers.max()),
            machine_cores: self.machine_cores,
            machine_cores_all: machine().map_or(0, |machine| machine.cores),
            server_is_local: self.is_local,
            server_cores: self.server_seconds.map(|seconds| seconds / self.seconds().max(1e-3)),
        }
    }
}

/// User and system time of this process so far.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub(super) fn quantile(timers: &Histogram<u64>, quantile: f64) -> u64 {
    if timers.is_empty() { 0 } else { timers.value_at_quantile(quantile) }
}

/// proc_stat(5); none where it cannot be read.
fn machine() -> Option<ProcessorTimes> {
    machine_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn machine_of(stat: &str) -> Option<ProcessorTimes> {
    let cores = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let times: Vec<u64> = times.take(8).map_while(|word| word.parse().ok()).collect();
    let all: u64 = times.iter().sum();
    let idle = times.get(3)? + times.get(4)?;
    Some(ProcessorTimes { busy: all - idle, all, cores: cores as u32 })
}

impl ProcessorTimes {
    /// Average number of busy processors since then.
    fn cores_since(self, before: ProcessorTimes) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(before.busy);
        Some(busy as f64 / all as f64 * f64::from(self.cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_busy_processors_are_read() {
        let stat = |user, idle| {
            format!(
                "cpu  {user} 0 100 {idle} 50 0 10 5 3 0\ncpu0 1 0 0 0\ncpu1 0 0 0 0\nintr 5 6\n"
            )
        };
        let (before, after) = (machine_of(&stat(100, 500)), machine_of(&stat(250, 550)));
        assert_eq!(before, Some(ProcessorTimes { busy: 215, all: 765, cores: 2 }));
        assert_eq!(after.unwrap().cores_since(before.unwrap()), Some(1.5));
        assert_eq!(before.unwrap().cores_since(before.unwrap()), None);
        assert_eq!(machine_of("nonsense"), None);
    }
}
