// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profile of a User Mode Linux: its time by function while a workload runs.
//!
//! Its kernel is one process of this machine, so the machine's own clock events sample it, four
//! thousand times a second of its running time, and its symbols map each sample to a function. The
//! events are enabled only between a workload's begin and its end; symbols are resolved after the
//! guest has ended, as its pauses are short. A thousand samples a second cost about a third of a
//! percent, the same for every variant.
//!
//! Seconds are samples times their period: the time of that process outside the machine's kernel,
//! as in gprof. They exclude system calls that the kernel makes for its processes' memory.
//!
//! Sources: perf_event_open(2); the simd-copy paper, section 5.4 (gprof).
//! Does not record call chains or the processes that run inside.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use super::boot::Observer;
use super::load::Family;
use measure::Error;
use stalls::images::Images;

/// Samples the process of a kernel while workloads run.
pub(super) struct Profiler {
    /// Path of the kernel, a program.
    linux: PathBuf,
    sampler: Option<Sampler>,
    maps: String,
    /// Samples at each address, for each workload that ended.
    samples_by_workload: Vec<(String, HashMap<u64, u64>)>,
    lost: u64,
}

/// Profile of one boot.
pub(super) struct Profile {
    /// Seconds in each function, for each workload.
    pub(super) seconds: Vec<(String, BTreeMap<String, f64>)>,
    /// Samples lost for lack of buffer space.
    pub(super) lost: u64,
}

impl Profiler {
    pub(super) fn new(linux: &Path) -> Profiler {
        let linux = linux.canonicalize().unwrap_or_else(|_| linux.to_owned());
        Profiler {
            linux,
            sampler: None,
            maps: String::new(),
            samples_by_workload: Vec::new(),
            lost: 0,
        }
    }

    /// Checks that this machine allows a program to be sampled; the error contains the finding.
    pub(super) fn probe() -> Result<(), String> {
        let own = std::process::id() as i32;
        sampler(own).map(drop).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let level = fs::read_to_string(PARANOID).unwrap_or_default();
                format!("not permitted; {PARANOID} is {}, 2 or less is needed", level.trim())
            }
            _ => format!("perf_event_open: {error}"),
        })
    }

    fn attach(&mut self, family: &Family) -> Result<(), Error> {
        let what = || format!("sampling {}", self.linux.display());
        let pid = family.running(&self.linux).ok_or_else(|| Error::Host {
            what: what(),
            found: "no process of the guest runs it".to_owned(),
        })?;
        self.maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(Error::host(what()))?;
        self.sampler = Some(sampler(pid).map_err(Error::host(what()))?);
        Ok(())
    }

    /// Returns the samples by function, after the guest has ended.
    pub(super) fn profile(self) -> Profile {
        let mut images = Images::default();
        images.read(&self.maps, None);
        let mut names: HashMap<u64, String> = HashMap::new();
        let mut name = |address: u64| {
            let known = names.entry(address);
            known
                .or_insert_with(|| {
                    let place = images.place(address);
                    if place.function.is_empty() { "elsewhere".to_owned() } else { place.function }
                })
                .clone()
        };
        let of = |samples: HashMap<u64, u64>| {
            let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
            for (address, count) in samples {
                *seconds.entry(name(address)).or_default() += count as f64 * PERIOD_SECONDS;
            }
            seconds
        };
        let mut of = of;
        let seconds =
            self.samples_by_workload.into_iter().map(|(workload, samples)| (workload, of(samples)));
        Profile { seconds: seconds.collect(), lost: self.lost }
    }
}

impl Observer for Profiler {
    fn begin(&mut self, family: &Family) -> Result<(), Error> {
        if self.sampler.is_none() {
            self.attach(family)?;
        }
        let sampler = self.sampler.as_mut().expect("attached");
        sampler.as_counter_mut().enable().map_err(Error::host("enabling the samples"))
    }

    fn end(&mut self, name: &str) -> Result<(), Error> {
        let Some(sampler) = self.sampler.as_mut() else { return Ok(()) };
        sampler.as_counter_mut().disable().map_err(Error::host("disabling the samples"))?;
        let mut samples = HashMap::new();
        while let Some(record) = sampler.next_record() {
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    if let Some(address) = sample.ip() {
                        *samples.entry(address).or_default() += 1;
                    }
                }
                Ok(Record::Lost(lost)) => self.lost += lost.lost,
                _ => {}
            }
        }
        self.samples_by_workload.push((name.to_owned(), samples));
        Ok(())
    }
}

/// Opens a sampler that is not yet enabled.
fn sampler(pid: i32) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder.observe_pid(pid).any_cpu().sample_period(PERIOD_NS).sample(SampleFlag::IP);
    builder.build()?.sampled(BUFFER_BYTES)
}

/// True when a function of the kernel is memcpy, in any variant.
pub(super) fn is_memcpy(function: &str) -> bool {
    MEMCPY.contains(&function) || MEMCPY_STARTS.iter().any(|start| function.starts_with(start))
}

/// Names of the kernel tree's own routine; kernel/uml/profile.sh counts the same.
const MEMCPY: [&str; 3] = ["memcpy", "__memcpy", "memcpy_orig"];
/// Name prefixes from kernel/memcpy: the variants, and the routines of `sized` for a constant size.
const MEMCPY_STARTS: [&str; 2] = ["pagewire_memcpy_", "pagewire_fixed_"];

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// A prime, so that no loop runs in step with it.
const PERIOD_NS: u64 = 250_007;
pub(super) const PERIOD_SECONDS: f64 = PERIOD_NS as f64 / 1e9;
/// Eight seconds of four thousand samples a second, 16 bytes each; a workload runs for two at most.
const BUFFER_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn functions_that_copy_are_told_from_those_that_call_them() {
        for name in ["memcpy", "__memcpy", "memcpy_orig", "pagewire_memcpy_avx2"] {
            assert!(is_memcpy(name), "{name}");
        }
        assert!(is_memcpy("pagewire_fixed_512") && is_memcpy("pagewire_fixed_4096"));
        for name in ["nla_memcpy", "memcpy_and_pad", "memset", "copy_page_to_iter", "memmove"] {
            assert!(!is_memcpy(name), "{name}");
        }
    }

    /// Every routine of kernel/memcpy is counted, and profile.sh counts the same routines as this
    /// file.
    #[test]
    fn the_script_counts_the_same_functions() {
        let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel");
        let mut routines = Vec::new();
        for entry in fs::read_dir(kernel.join("memcpy")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "S") {
                let text = fs::read_to_string(&path).unwrap();
                for start in ["SYM_FUNC_START(", "SYM_INNER_LABEL("] {
                    let named = text.lines().filter_map(|line| line.strip_prefix(start));
                    let names = named.filter_map(|rest| rest.split([')', ',']).next());
                    routines.extend(names.map(str::to_owned));
                }
            }
        }
        assert!(routines.len() >= 9, "{routines:?}");
        for routine in &routines {
            assert!(is_memcpy(routine), "{routine} of kernel/memcpy is left out");
        }
        let starts = MEMCPY_STARTS.map(|start| format!("{start}.*"));
        let pattern = format!("/^({}|{})$/", MEMCPY.join("|"), starts.join("|"));
        let script = fs::read_to_string(kernel.join("uml/profile.sh")).unwrap();
        assert!(script.contains(&pattern), "kernel/uml/profile.sh has no {pattern}");
    }

    /// A shell stands in for the kernel: a program with symbols that is busy for a while.
    #[test]
    fn a_workload_is_sampled_between_its_begin_and_its_end() {
        if let Err(found) = Profiler::probe() {
            return eprintln!("skip: samples: {found}");
        }
        let work = "while read word; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; done";
        let mut child =
            Command::new("/bin/sh").args(["-c", work]).stdin(Stdio::piped()).spawn().unwrap();
        let family = Family::of(child.id() as i32);
        let shell = fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
        let mut profiler = Profiler::new(&shell);
        profiler.begin(&family).unwrap();
        profiler.end("idle").unwrap();
        profiler.begin(&family).unwrap();
        let mut input = child.stdin.take().unwrap();
        io::Write::write_all(&mut input, b"go\n").unwrap();
        drop(input);
        child.wait().unwrap();
        profiler.end("busy").unwrap();
        let profile = profiler.profile();
        let total = |index: usize| profile.seconds[index].1.values().sum::<f64>();
        assert_eq!(
            (profile.seconds[0].0.as_str(), profile.seconds[1].0.as_str()),
            ("idle", "busy")
        );
        assert!(total(1) > 0.02 && total(0) < total(1) / 4.0, "{} and {}", total(0), total(1));
        assert_eq!(profile.lost, 0);
        let mut other = Profiler::new(Path::new("/no/such/linux"));
        let error = other.begin(&family).unwrap_err().to_string();
        assert_eq!(error, "sampling /no/such/linux: no process of the guest runs it");
    }
}
