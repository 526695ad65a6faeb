// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads: one list, a file for each kind, their groups, and the runner.
//!
//! They are the workloads of the simd-copy paper (files through pipes, tmpfs, sockets, processes)
//! and a mix of everyday work, most of it after UnixBench. Each moves a fixed amount, checks that
//! the received bytes are the sent ones, and prints the amount; the laboratory adds the processor
//! time. All data stays in memory: files are on the tmpfs below /tmp.
//!
//! The amounts make a round last a third of a second to a second in User Mode Linux, where a system
//! call costs microseconds; `bytes=`, `calls=` and `percent=` change them.
//!
//! Sources: "SIMD in the OS kernel" (workloads), UnixBench 5.1.3 `USAGE` (the mix).

mod buffer;
pub(crate) mod context_switch;
mod execl;
mod file_copy;
mod pattern;
mod pipe;
mod process_creation;
mod processes;
mod shell_scripts;
mod stream;
mod system_call;
mod tcp;
mod tmpfs;
mod udp;
mod unix;

use crate::error::Error;
use crate::meter::measure;
use crate::protocol::WorkDone;
use crate::settings::GuestSettings;

/// One workload.
#[derive(Debug)]
pub(crate) struct WorkloadSpec {
    /// The word on the command line and in the lines of figures.
    pub(crate) name: &'static str,
    /// Members of [`GROUPS`] that contain the workload.
    pub(crate) groups: &'static [&'static str],
    /// Amount in one round when no setting changes it.
    pub(crate) amount: Amount,
    /// Prepares the workload for this amount.
    pub(crate) open: fn(Amount, &GuestSettings) -> OpenedWorkload,
}

/// A prepared workload, or the error.
type OpenedWorkload = Result<Box<dyn Workload>, Error>;

/// Amount of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// Least bytes copied between program and kernel.
    Bytes(u64),
    /// Number of calls, as the workload counts them.
    Calls(u64),
}

/// A prepared workload.
pub(crate) trait Workload {
    /// Runs the measured section.
    fn run(&mut self) -> Result<WorkDone, Error>;

    /// Checks the result of the section; not measured.
    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Words for more than one workload; `all` names every one.
const GROUPS: &[&str] = &["copies", "tmpfs", "large_buffers", "network", "mix", "all"];

const COPIES: &[&str] = &["copies"];
const FILES: &[&str] = &["copies", "tmpfs"];
/// Workloads of the memcpy profile: buffers that do not fit into the first-level cache.
const LARGE: &[&str] = &["copies", "large_buffers"];
const LARGE_FILES: &[&str] = &["copies", "tmpfs", "large_buffers"];
const NETWORK: &[&str] = &["network"];
const MIX: &[&str] = &["mix"];

/// All workloads, one line each.
static WORKLOADS: &[&WorkloadSpec] = &[
    &pipe::PIPE_4K,
    &pipe::PIPE_64K,
    &tmpfs::READ_4K,
    &tmpfs::READ_16K,
    &tmpfs::READ_64K,
    &tmpfs::READ_256K,
    &tmpfs::READ_1M,
    &tmpfs::WRITE_4K,
    &tmpfs::WRITE_16K,
    &tmpfs::WRITE_64K,
    &tmpfs::WRITE_256K,
    &tmpfs::WRITE_1M,
    &unix::UNIX_32K,
    &udp::UDP_1400,
    &tcp::TCP_64K,
    &processes::PROCESSES,
    &execl::EXECL,
    &file_copy::FILE_COPY_1024,
    &file_copy::FILE_COPY_256,
    &file_copy::FILE_COPY_4096,
    &pipe::PIPE_THROUGHPUT,
    &context_switch::CONTEXT_SWITCH,
    &process_creation::PROCESS_CREATION,
    &system_call::SYSTEM_CALL,
    &shell_scripts::SHELL_SCRIPTS,
];

/// Returns the workloads that a word names: one, a group, or none. A hyphen equals an underscore.
pub(crate) fn named(word: &str) -> Vec<&'static WorkloadSpec> {
    let word = &*word.replace('-', "_");
    let is_meant =
        |spec: &&&WorkloadSpec| word == "all" || spec.name == word || spec.groups.contains(&word);
    WORKLOADS.iter().filter(is_meant).copied().collect()
}

/// Lists every word that names workloads.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().copied().chain(WORKLOADS.iter().map(|spec| spec.name))
}

/// Runs the list as many times as the setting `rounds` specifies. Rounds interleave, so that a
/// machine that becomes slower does so for all workloads.
pub(crate) fn run(list: &[&WorkloadSpec], settings: &GuestSettings) -> Result<(), Error> {
    for _ in 0..settings.number("rounds").unwrap_or(1) {
        for spec in list {
            let mut load = (spec.open)(spec.amount.set(settings), settings)?;
            measure(spec.name, || load.run())?;
            load.check()?;
        }
    }
    Ok(())
}

impl Amount {
    /// Returns the amount after the settings.
    fn set(self, settings: &GuestSettings) -> Amount {
        let part = |own: u64| own * settings.number("percent").unwrap_or(100) / 100;
        match self {
            Amount::Bytes(own) => Amount::Bytes(settings.number("bytes").unwrap_or(part(own))),
            Amount::Calls(own) => Amount::Calls(settings.number("calls").unwrap_or(part(own))),
        }
    }

    /// Returns the number of loops, at least one.
    fn turns(self, bytes_of_turn: u64, calls_of_turn: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes.div_ceil(bytes_of_turn).max(1),
            Amount::Calls(calls) => calls.div_ceil(calls_of_turn).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_groups_are_known() {
        let all: BTreeSet<_> = names().collect();
        assert_eq!(all.len(), GROUPS.len() + WORKLOADS.len());
        for spec in WORKLOADS {
            for group in spec.groups {
                assert!(GROUPS.contains(group), "{}: {group}", spec.name);
            }
        }
        for group in GROUPS {
            assert!(!named(group).is_empty(), "{group} stands for nothing");
        }
        assert_eq!(named("all").len(), WORKLOADS.len());
        assert_eq!(named("large-buffers").len(), named("large_buffers").len());
        assert!(named("").is_empty());
    }

    #[test]
    fn amounts_are_rounded_up_to_whole_turns() {
        assert_eq!(Amount::Bytes(1).turns(8192, 2), 1);
        assert_eq!(Amount::Bytes(8193).turns(8192, 2), 2);
        assert_eq!(Amount::Calls(5).turns(8192, 2), 3);
        assert_eq!(Amount::Calls(0).turns(8192, 2), 1);
    }
}
