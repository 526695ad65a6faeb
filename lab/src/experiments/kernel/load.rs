// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time of a process and all its descendants, and their termination.
//!
//! A User Mode Linux is a process for the kernel and one for each address space in it, which the
//! first one traces. The CPU cost of a workload in it is the processor time of all of them. For
//! live processes each thread's schedstat has it to the nanosecond. For processes that ended and
//! were waited for, their parent's account has it in hundredths of a second: too coarse for one
//! process, but not for the sum of thousands. A reading walks /proc once, some milliseconds.
//!
//! Sources: proc_pid_stat(5), Documentation/scheduler/sched-stats.rst in the kernel's tree.
//! Does not separate the guest's kernel from its processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process and all its descendants at one moment.
pub(super) struct Family {
    pids: Vec<i32>,
}

impl Family {
    /// Lists the family of `root`: itself first, parents before children. Empty when it has ended.
    pub(super) fn of(root: i32) -> Family {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid else { continue };
            if let Some(stat) = Stat::read(pid) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        let mut pids = Vec::new();
        let mut next = match Stat::read(root) {
            Some(_) => vec![root],
            None => Vec::new(),
        };
        while let Some(pid) = next.pop() {
            pids.push(pid);
            next.extend(children.remove(&pid).unwrap_or_default());
        }
        Family { pids }
    }

    /// Returns the first process, in the order of descent, that runs this program.
    pub(super) fn running(&self, program: &Path) -> Option<i32> {
        let is = |pid: &&i32| executable(**pid).is_some_and(|found| found == program);
        self.pids.iter().find(is).copied()
    }

    /// Returns their processor time so far, with that of waited-for descendants.
    pub(super) fn processor_time(&self) -> Duration {
        let of = |pid: &i32| {
            let ended = Stat::read(*pid).map_or(Duration::ZERO, |stat| stat.ended);
            threads(*pid).unwrap_or_default() + ended
        };
        self.pids.iter().map(of).sum()
    }

    /// Sends SIGTERM to all, waits for `grace`, and kills those that are left.
    pub(super) fn end(root: i32, grace: Duration) {
        let family = Family::of(root);
        family.signal(Signal::SIGTERM);
        let began = Instant::now();
        while began.elapsed() < grace && family.pids.iter().any(|pid| lives(*pid)) {
            std::thread::sleep(LOOK);
        }
        // Processes started meanwhile, and those no longer below `root` because it has ended.
        Family::of(root).signal(Signal::SIGKILL);
        family.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        for pid in &self.pids {
            // An ended process needs no signal.
            let _ = kill(Pid::from_raw(*pid), signal);
        }
    }
}

fn executable(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Returns false for a process that has ended, also when no process has waited for it yet.
fn lives(pid: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.state != 'Z')
}

/// Returns the processor time of its threads.
fn threads(pid: i32) -> Option<Duration> {
    let mut nanoseconds = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let ran = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        nanoseconds = nanoseconds.saturating_add(ran.unwrap_or(0));
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// Used fields of /proc/PID/stat.
#[derive(Debug, PartialEq)]
struct Stat {
    state: char,
    parent: i32,
    /// User and system time of children that were waited for.
    ended: Duration,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a stat line. The name may contain brackets; numbers begin after the last one.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(')')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| words.get(index)?.parse::<u64>().ok();
        let ended = ticks(CUTIME)?.saturating_add(ticks(CSTIME)?);
        Some(Stat {
            state: words.first()?.chars().next()?,
            parent: words.get(1)?.parse().ok()?,
            ended: Duration::from_millis(ended.saturating_mul(1000 / USER_HZ)),
        })
    }
}

/// Fields 16 and 17, counted from the first one after the name.
const CUTIME: usize = 13;
const CSTIME: usize = 14;
/// Ticks a second in /proc.
const USER_HZ: u64 = 100;
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_any_name() {
        let line = "42 (a) b (c)) S 7 1 1 0 -1 0 0 0 0 0 100 200 30 4 20 0 1 0 5 6 7";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.parent), ('S', 7));
        assert_eq!(stat.ended, Duration::from_millis(340));
        for broken in ["", "42 (x", "42 (x) S", "42 (x) S 7 1 1 0 -1 0 0 0 0 0 100 200 x 4"] {
            assert_eq!(Stat::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn time_of_children_is_of_the_family_and_all_of_it_ends() {
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let script = format!("({work}); echo done; sleep 600 & sleep 600");
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let root = child.id() as i32;
        let mut family = Family::of(root);
        let shell = executable(root).unwrap();
        // A child also counts as the shell's program until it calls exec.
        let has_become = |pid: &i32| executable(*pid).is_some_and(|program| program != shell);
        for _ in 0..500 {
            if family.pids.len() >= 3 && family.pids[1..].iter().all(has_become) {
                break;
            }
            std::thread::sleep(LOOK);
            family = Family::of(root);
        }
        assert_eq!((family.pids.len(), family.pids[0]), (3, root), "a shell and two that sleep");
        assert!(family.processor_time() > Duration::from_millis(10), "the loop's, which has ended");
        let sleep = family.pids[1];
        let program = executable(sleep).unwrap();
        let first = family.running(&program).unwrap();
        assert!(family.pids[1..].contains(&first), "of those that sleep one");
        Family::end(root, Duration::from_secs(5));
        child.wait().unwrap();
        for pid in family.pids {
            let gone = (0..200).any(|_| {
                std::thread::sleep(LOOK);
                !lives(pid)
            });
            assert!(gone, "{pid} is left");
        }
        assert!(Family::of(root).pids.is_empty());
    }
}
