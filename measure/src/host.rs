// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the machine and the program of a measurement.
//!
//! A CPU cost depends on its machine. These facts are in every measurement file and above every
//! table made from one, and `compare` compares those of two files. They cost a dozen file reads,
//! once a run.
//!
//! Sources: proc(5) (cpuinfo, meminfo), the kernel's Documentation/ABI for /sys/class/dmi and
//! /sys/devices/system/cpu.
//! Names neither the machine nor its user: a measurement file can be published.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The commit this program was built from: short hash, `+` when a source differed from it,
/// `unknown` when it was not built in a git checkout.
pub const COMMIT: &str = env!("PAGEWIRE_COMMIT");

/// Facts about the machine that influence the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// Cores this process may use.
    pub cores: u64,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Name of the hypervisor's maker if the machine is virtual, as far as it is known.
    pub virtualised: Option<String>,
    /// The frequency governor of the cores, where frequencies can be governed.
    pub governor: Option<String>,
}

impl HostFacts {
    /// Reads the facts of this machine. A fact that cannot be read is `unknown`, 0 or `None`.
    pub fn here() -> HostFacts {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        HostFacts {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| UNKNOWN.to_owned()),
            processor: processor(&cpuinfo),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_bytes: memory_bytes(&read("/proc/meminfo").unwrap_or_default()),
            virtualised: virtualised(&cpuinfo, maker()),
            governor: governor(Path::new("/sys/devices/system/cpu/cpufreq")),
        }
    }

    /// Returns all facts in one line.
    pub fn line(&self) -> String {
        let HostFacts { kernel, processor, cores, memory_bytes, .. } = self;
        let plural = if *cores == 1 { "" } else { "s" };
        let mut line = format!("{cores} core{plural} of {processor}, ");
        line += &format!("{:.1} GiB, kernel {kernel}", *memory_bytes as f64 / GIBIBYTE_BYTES);
        if let Some(maker) = &self.virtualised {
            line += &format!(", virtual ({maker})");
        }
        if let Some(governor) = &self.governor {
            line += &format!(", governor {governor}");
        }
        line
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the processor's name: x86 and others have `model name`, ARM numbers of maker and part.
fn processor(cpuinfo: &str) -> String {
    let field = |name: &str| field(cpuinfo, name);
    match (field("model name"), field("CPU implementer"), field("CPU part")) {
        (Some(model), ..) => model.to_owned(),
        (None, Some(maker), Some(part)) => format!("ARM implementer {maker} part {part}"),
        _ => field("Model").or(field("uarch")).unwrap_or(UNKNOWN).to_owned(),
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = field(meminfo, "MemTotal").and_then(|value| value.strip_suffix(" kB"));
    total.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
}

/// Returns the maker of the machine; hypervisors put their name there.
fn maker() -> Option<String> {
    let vendor = read("/sys/class/dmi/id/sys_vendor");
    let product = read("/sys/class/dmi/id/product_name");
    match (vendor, product) {
        (Some(vendor), Some(product)) if vendor != product => Some(format!("{vendor} {product}")),
        (vendor, product) => vendor.or(product).or_else(|| read("/sys/hypervisor/type")),
    }
}

/// Returns the hypervisor's name: x86 guests see a processor flag, others are found by the maker.
fn virtualised(cpuinfo: &str, maker: Option<String>) -> Option<String> {
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    let flagged = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let known = maker.as_deref().is_some_and(|maker| {
        HYPERVISORS.iter().any(|name| maker.to_ascii_lowercase().contains(name))
    });
    (flagged || known).then(|| maker.unwrap_or_else(|| "a hypervisor without a name".to_owned()))
}

/// Returns every governor in use, as cores may differ.
fn governor(folder: &Path) -> Option<String> {
    let policies = fs::read_dir(folder).ok()?.flatten();
    let governors = policies.filter_map(|policy| read(policy.path().join("scaling_governor")));
    let governors: BTreeSet<String> = governors.collect();
    (!governors.is_empty()).then(|| governors.into_iter().collect::<Vec<_>>().join(", "))
}

/// Returns the value of the first `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

const UNKNOWN: &str = "unknown";
const GIBIBYTE_BYTES: f64 = (1_u64 << 30) as f64;
/// Parts of the names that guests find in /sys/class/dmi, in lower case.
const HYPERVISORS: &[&str] = &[
    "qemu",
    "kvm",
    "vmware",
    "virtualbox",
    "innotek",
    "xen",
    "amazon ec2",
    "google compute",
    "bochs",
    "parallels",
    "virtual machine",
];

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO_X86: &str = "processor\t: 0\nmodel name\t: AMD EPYC\n\
        flags\t\t: fpu hypervisor\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n";
    const CPUINFO_ARM: &str = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n\
        CPU part\t: 0xd0c\n";

    #[test]
    fn processors_name_themselves_in_two_ways() {
        assert_eq!(processor(CPUINFO_X86), "AMD EPYC");
        assert_eq!(processor(CPUINFO_ARM), "ARM implementer 0x41 part 0xd0c");
        assert_eq!(processor(""), "unknown");
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(memory_bytes("MemTotal:       16316412 kB\nMemFree: 1 kB"), 16_316_412 * 1024);
        assert_eq!(memory_bytes("MemTotal: many"), 0);
        assert_eq!(memory_bytes(&format!("MemTotal: {} kB", u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_guest_is_told_by_flag_or_by_maker() {
        let maker = |name: &str| Some(name.to_owned());
        assert_eq!(virtualised(CPUINFO_X86, None).unwrap(), "a hypervisor without a name");
        assert_eq!(virtualised(CPUINFO_X86, maker("Acme")).unwrap(), "Acme");
        assert_eq!(virtualised(CPUINFO_ARM, maker("QEMU virt")).unwrap(), "QEMU virt");
        assert_eq!(virtualised(CPUINFO_ARM, maker("Ampere Altra")), None);
        assert_eq!(virtualised("flags : fpu hypervisorless", None), None);
    }

    #[test]
    fn governors_of_all_cores_are_named_once() {
        let folder = tempfile::tempdir().unwrap();
        for (policy, name) in [("policy0", "schedutil\n"), ("policy1", "schedutil"), ("x", "")] {
            fs::create_dir(folder.path().join(policy)).unwrap();
            fs::write(folder.path().join(policy).join("scaling_governor"), name).unwrap();
        }
        assert_eq!(governor(folder.path()).unwrap(), "schedutil");
        fs::write(folder.path().join("x/scaling_governor"), "performance").unwrap();
        assert_eq!(governor(folder.path()).unwrap(), "performance, schedutil");
        assert_eq!(governor(&folder.path().join("none")), None);
    }

    #[test]
    fn this_machine_and_this_program_have_facts() {
        let host = HostFacts::here();
        assert!(host.cores > 0 && host.memory_bytes > 0, "{host:?}");
        assert!(host.kernel.starts_with(|first: char| first.is_ascii_digit()), "{host:?}");
        assert!(host.line().contains(&host.kernel));
        let hash = COMMIT.strip_suffix('+').unwrap_or(COMMIT);
        let is_hash = hash.len() >= 12 && hash.chars().all(|digit| digit.is_ascii_hexdigit());
        assert!(COMMIT == "unknown" || is_hash, "{COMMIT}");
    }
}
