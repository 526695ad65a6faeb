// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts blocked loads by the processor's own counters; after every so many, the kernel records
//! which instruction was running.
//!
//! It costs the program next to nothing and counts real events of the hardware. But a count names
//! no stores, and when the kernel takes a sample, the processor is some instructions further. So
//! the result is functions with the number of blocked loads in each; the other tracers find the
//! pairs.
//!
//! The number of an event differs between processors, and virtual machines pass on some events or
//! none. So each event is tested first: it is used if it counts a loop of blocked loads and does
//! not count a loop of forwarded ones.
//!
//! Sources: perf_event_open(2); Intel's and AMD's event lists, as in the kernel's
//! tools/perf/pmu-events: LD_BLOCKS.STORE_FORWARD is event 0x03 with mask 0x02, from Golden Cove on
//! 0x82; ls_bad_status2.stli_other, Zen, is event 0x24 with mask 0x02.
//!
//! Does not watch the kernel's own code, or processes that the program starts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use perf_event::data::Record;
use perf_event::events::{Raw, Software};
use perf_event::{Builder, SampleFlag, Sampler};

use crate::images::Images;
use crate::launch::{self, waited};
use crate::{Seen, StallOptions, Tracer};
use measure::Error;

pub(crate) static TRACER: Tracer = Tracer {
    name: "counters",
    summary: "blocked loads by function, as the processor counts them",
    sources: &["perf_event_open(2)"],
    probe: |_| counted().map(|_| ()),
    run: |options| {
        let event = counted().map_err(|found| Error::Unavailable { need: NEED, found })?;
        sample(options, event).map(Seen::Samples)
    },
};

/// A hardware or software event to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An event of this processor: its number, its name.
    Blocked(u64, &'static str),
    /// Nanoseconds that the program ran, which every kernel counts. Tests use it where no event for
    /// blocked loads exists.
    #[cfg_attr(not(test), expect(dead_code, reason = "a stand-in, for tests"))]
    Clock,
}

/// Samples of one run, by function.
pub(crate) struct Samples {
    pub(crate) event: &'static str,
    /// Number of events from one sample to the next.
    pub(crate) period: u64,
    /// Number of all events.
    pub(crate) events: u64,
    /// Number of samples at each address.
    pub(crate) at: HashMap<u64, u64>,
    /// Samples of other processes, and those that the kernel had no room for.
    pub(crate) others: u64,
    pub(crate) lost: u64,
    pub(crate) images: Images,
    pub(crate) exit: Option<i32>,
}

impl Event {
    fn builder(self) -> Builder<'static> {
        match self {
            Event::Blocked(number, _) => Builder::new(Raw::new(number)),
            Event::Clock => Builder::new(Software::CPU_CLOCK),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Event::Blocked(_, name) => name,
            Event::Clock => "cpu-clock",
        }
    }

    /// Events from one sample to the next, enough that sampling costs little: a prime, so that no
    /// loop runs in step with it.
    fn period(self) -> u64 {
        match self {
            Event::Blocked(..) => 1_009,
            Event::Clock => 1_000_003,
        }
    }
}

/// Returns the event by which this processor counts blocked loads, or the facts found instead.
fn counted() -> Result<Event, String> {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let candidates = match processor.lines().find_map(|line| line.strip_prefix("vendor_id")) {
        Some(vendor) if vendor.contains("GenuineIntel") => INTEL,
        Some(vendor) if vendor.contains("AuthenticAMD") => AMD,
        _ => return Err("a processor whose event for blocked loads is not known".to_owned()),
    };
    let mut found = Vec::new();
    for (number, name) in candidates {
        let event = Event::Blocked(*number, name);
        let count = |run: fn(u32) -> u64| count(event, || run(PROBE_ROUNDS));
        let both = count(crate::forwarding::blocked)
            .and_then(|blocked| Ok((blocked, count(crate::forwarding::forwarded)?)));
        match both {
            Ok((blocked, forwarded)) if is_right(blocked, forwarded) => return Ok(event),
            Ok((blocked, forwarded)) => found.push(format!(
                "{name} ({number:#06x}) counts {blocked} of {PROBE_ROUNDS} blocked loads and \
                 {forwarded} that are none"
            )),
            Err(error) => found.push(format!("{name} ({number:#06x}): {}", refused(&error))),
        }
    }
    Err(found.join("; "))
}

/// True when most blocked loads and few forwarded ones were counted.
fn is_right(blocked: u64, forwarded: u64) -> bool {
    let rounds = u64::from(PROBE_ROUNDS);
    blocked >= rounds / 2 && forwarded < rounds / 8
}

fn refused(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no hardware counters here".to_owned(),
        io::ErrorKind::PermissionDenied => {
            let level = fs::read_to_string(PARANOID).unwrap_or_default();
            format!("not permitted; {PARANOID} is {}, 2 or less is needed", level.trim())
        }
        _ => error.to_string(),
    }
}

/// Counts events while `run` runs in this thread.
fn count(event: Event, run: impl FnOnce() -> u64) -> io::Result<u64> {
    let mut counter = event.builder().build()?;
    counter.enable()?;
    std::hint::black_box(run());
    counter.disable()?;
    counter.read()
}

/// Runs the command and samples it by `event`.
pub(crate) fn sample(options: &StallOptions, event: Event) -> Result<Samples, Error> {
    let what = || format!("sampling {} by {}", options.name(), event.name());
    let mut program = launch::stopped(&options.command, options.aside)?;
    let pid = program.pid;
    let mut samples = Samples {
        event: event.name(),
        period: event.period(),
        events: 0,
        at: HashMap::new(),
        others: 0,
        lost: 0,
        images: Images::default(),
        exit: None,
    };
    let mut samplers = samplers(event, pid.as_raw()).map_err(Error::host(what()))?;
    let mut follow = || -> io::Result<Option<i32>> {
        kill(pid, Signal::SIGCONT)?;
        loop {
            let status = waited(pid, WaitPidFlag::WNOHANG)?;
            samplers.iter_mut().for_each(|sampler| drain(sampler, pid.as_raw(), &mut samples));
            match status {
                WaitStatus::Exited(_, code) => return Ok(Some(code)),
                WaitStatus::Signaled(_, signal, _) => return Ok(Some(128 + signal as i32)),
                _ => std::thread::sleep(DRAIN_EVERY),
            }
        }
    };
    let exit = follow().map_err(Error::host(what()))?;
    program.gone = true;
    samples.exit = exit;
    for sampler in &mut samplers {
        samples.events += sampler.as_counter_mut().read().map_err(Error::host(what()))?;
    }
    Ok(samples)
}

/// Opens one sampler for each core, because a counter that threads inherit has a buffer on one core
/// only. Each begins with the program, at the exec.
fn samplers(event: Event, pid: i32) -> io::Result<Vec<Sampler>> {
    let cores = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let mut samplers = Vec::new();
    for core in listed(&cores) {
        let mut builder = event.builder();
        builder.observe_pid(pid).one_cpu(core).inherit(true).enable_on_exec(true);
        builder.sample_period(event.period()).sample(SampleFlag::IP | SampleFlag::TID).mmap(true);
        samplers.push(builder.build()?.sampled(BUFFER_BYTES)?);
    }
    Ok(samplers)
}

/// Parses the numbers of a list such as `0-3,8`.
fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

fn drain(sampler: &mut Sampler, pid: i32, samples: &mut Samples) {
    while let Some(record) = sampler.next_record() {
        // A record of an unknown, later kind is skipped.
        let Ok(record) = record.parse_record() else { continue };
        match record {
            Record::Sample(sample) if sample.pid() == Some(pid as u32) => {
                let Some(address) = sample.ip() else { continue };
                if samples.at.len() < ADDRESSES_MAX || samples.at.contains_key(&address) {
                    *samples.at.entry(address).or_default() += 1;
                } else {
                    samples.lost += 1;
                }
            }
            Record::Sample(_) => samples.others += 1,
            Record::Mmap(mapping) if mapping.pid == pid as u32 => {
                let path = Path::new(mapping.filename_os());
                let end = mapping.addr.saturating_add(mapping.len);
                samples.images.add(mapping.addr, end, mapping.pgoff, path);
            }
            Record::Lost(lost) => samples.lost += lost.lost,
            _ => {}
        }
    }
}

const NEED: &str = "a hardware counter of blocked loads";
const INTEL: &[(u64, &str)] =
    &[(0x0203, "LD_BLOCKS.STORE_FORWARD"), (0x8203, "LD_BLOCKS.STORE_FORWARD")];
const AMD: &[(u64, &str)] = &[(0x0224, "ls_bad_status2.stli_other")];
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Below the wrap of the specimen's two bytes; lasts a quarter of a millisecond.
const PROBE_ROUNDS: u32 = 50_000;
/// A second of a thousand samples needs some 40 KB.
const BUFFER_BYTES: usize = 512 << 10;
const DRAIN_EVERY: Duration = Duration::from_millis(10);
/// Few of a program's instructions are sampled.
const ADDRESSES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_from_a_list() {
        assert_eq!(listed("0\n"), [0]);
        assert_eq!(listed("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(listed("\n").is_empty());
    }

    #[test]
    fn an_event_is_believed_when_it_tells_the_loops_apart() {
        assert!(is_right(50_000, 0) && is_right(49_000, 12));
        assert!(!is_right(0, 0) && !is_right(50_000, 50_000) && !is_right(120, 0));
    }

    /// Uses the kernel's clock where the processor cannot count blocked loads: sampling and the
    /// assignment of samples to functions are the same.
    #[test]
    fn samples_are_of_the_function_that_runs() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = crate::tests::compiled(folder.path(), "spin", SPIN) else {
            return;
        };
        let options = StallOptions { command: vec![program.into()], ..StallOptions::default() };
        let samples = match sample(&options, Event::Clock) {
            Ok(samples) => samples,
            Err(error) => return eprintln!("skip: {error}"),
        };
        assert_eq!(samples.exit, Some(3));
        let (mut spinning, mut all) = (0, 0);
        for (address, count) in &samples.at {
            all += count;
            if samples.images.place(*address).function == "spins" {
                spinning += count;
            }
        }
        assert!(all >= 20, "a tenth of a second is a hundred samples: {all}");
        assert!(spinning * 10 >= all * 8, "{spinning} of {all}");
        assert!(samples.events >= all * samples.period, "{} events", samples.events);
    }

    /// Spends a tenth of a second of processor time in one function.
    const SPIN: &str = "#include <time.h>\n\
        __attribute__((noinline)) void spins(volatile long *n) {\n\
            for (long i = 0; i < 100000; i++) *n += i;\n\
        }\n\
        int main(void) {\n\
            long n = 0;\n\
            while (clock() < CLOCKS_PER_SEC / 10) spins(&n);\n\
            return 3;\n\
        }\n";
}
