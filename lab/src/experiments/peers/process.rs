// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of a peer: started on the server's core, metered with their children, ended by their
//! ids.
//!
//! `setpriv --pdeathsig` makes the kernel end them when this program ends in any way. Metering
//! reads /proc and each process's CPU clock once before and once after the measured time. The clock
//! counts nanoseconds and includes threads that have ended, which /proc/PID/task no longer lists.
//!
//! Sources: proc_pid_stat(5), clock_getcpuclockid(3), Documentation/filesystems/proc.rst
//! (smaps_rollup), setpriv(1).
//! Does not meter the kernel's memory: socket buffers and the page cache are in no figure.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process};

use measure::Error;
use measure::meter::Cores;

/// Processes of one peer, ended when this is dropped.
pub(crate) struct Processes {
    name: &'static str,
    children: Vec<Child>,
    /// Standard output and standard error of all processes.
    log: PathBuf,
}

impl Processes {
    pub(crate) fn new(name: &'static str, folder: &Path) -> Processes {
        Processes { name, children: Vec::new(), log: folder.join(format!("{name}.log")) }
    }

    /// Makes a command that ends with this program.
    pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    /// Starts a command of [`Processes::command`] on these cores.
    pub(crate) fn start(&mut self, command: &mut Command, cores: &Cores) -> Result<(), Error> {
        let log = || {
            let file = File::options().append(true).create(true).open(&self.log);
            file.map(Stdio::from).map_err(Error::host("the log of a peer"))
        };
        command.stdin(Stdio::null()).stdout(log()?).stderr(log()?);
        let child = cores.start(command).map_err(Error::host(format!("starting {}", self.name)))?;
        self.children.push(child);
        Ok(())
    }

    /// Waits until one of these ports of loopback accepts connections; returns that port.
    pub(crate) fn await_port(&mut self, ports: &[u16]) -> Result<u16, Error> {
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline && self.are_running() {
            for &port in ports {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                if TcpStream::connect(address).is_ok() {
                    return Ok(port);
                }
            }
            std::thread::sleep(LOOK);
        }
        Err(self.failed(format!("no connection to port {ports:?} of loopback")))
    }

    pub(crate) fn are_running(&mut self) -> bool {
        self.children.iter_mut().all(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks the processes to end, and waits until they have.
    ///
    /// # Errors
    /// [`Error::Host`] with the last lines of the log where one does not end.
    pub(crate) fn interrupt(&mut self) -> Result<(), Error> {
        self.children.iter().for_each(|child| signal(child.id(), Signal::INT));
        let deadline = Instant::now() + INTERRUPT_WAIT;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() >= deadline {
                    return Err(self.failed("it does not end at SIGINT".to_owned()));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Standard output and standard error of all processes so far.
    pub(crate) fn log_text(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Makes an error with the last lines of the log.
    pub(crate) fn failed(&self, found: String) -> Error {
        let text = self.log_text();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        let last: String = last.into_iter().rev().collect::<Vec<_>>().join("; ");
        let found = if last.is_empty() { found } else { format!("{found}; its log: {last}") };
        Error::Host { what: self.name.to_owned(), found }
    }

    /// Returns user and system time so far, with that of live and waited-for children.
    pub(crate) fn processor_time(&self) -> Duration {
        let of = |&process: &u32| clock(process) + ticks_of_children(process);
        self.tree().iter().map(of).sum()
    }

    /// Returns the processes' anonymous memory: memory not shared with a file.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.tree().iter().map(|&process| anonymous_bytes(process)).sum()
    }

    /// Returns the processes' memory in RAM, with the pages of files that they have mapped.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let of = |process: &u32| {
            let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
            let pages = text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
            pages.unwrap_or(0) * rustix::param::page_size() as u64
        };
        self.tree().iter().map(of).sum()
    }

    /// Returns the number of their descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let of =
            |process: &u32| fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        self.tree().iter().map(of).sum()
    }

    /// Returns the ids of the children and of all their descendants.
    fn tree(&self) -> Vec<u32> {
        let mut parents = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(process) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let parent = stat(process).get(1).and_then(|word| word.parse::<u32>().ok());
            parents.push((process, parent.unwrap_or(0)));
        }
        let mut tree: Vec<u32> = self.children.iter().map(Child::id).collect();
        let mut index = 0;
        while let Some(&process) = tree.get(index) {
            tree.extend(parents.iter().filter(|pair| pair.1 == process).map(|pair| pair.0));
            index += 1;
        }
        tree
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let tree = self.tree();
        for child in &self.children {
            signal(child.id(), Signal::TERM);
        }
        let deadline = Instant::now() + STOP_WAIT;
        for child in &mut self.children {
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        // Descendants that outlived their parent; their ids are not reused so soon.
        tree.iter().filter(|&&process| has_name(process)).for_each(|&id| signal(id, Signal::KILL));
    }
}

fn signal(process: u32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process as i32) {
        let _ = kill_process(process, signal);
    }
}

fn has_name(process: u32) -> bool {
    !stat(process).is_empty()
}

/// Returns the fields of a process from the third on: its state, its parent.
fn stat(process: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name is in brackets before the fields and may contain spaces.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Returns user and system time of a process, with that of its ended threads; zero once it is gone.
fn clock(process: u32) -> Duration {
    let id = nix::unistd::Pid::from_raw(process as i32);
    ClockId::pid_cpu_clock_id(id).and_then(ClockId::now).map_or(Duration::ZERO, Duration::from)
}

/// Returns the sum of cutime and cstime, fields 16 and 17: children that were waited for.
fn ticks_of_children(process: u32) -> Duration {
    let fields = stat(process);
    let ticks = fields.iter().skip(13).take(2).filter_map(|word| word.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 1000 / USER_HZ)
}

fn anonymous_bytes(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
    };
    of("Pss_Anon:").unwrap_or(0) * 1024
}

/// Ticks a second in /proc, independent of the kernel's own tick rate (proc_stat(5)).
const USER_HZ: u64 = 100;
const START_WAIT: Duration = Duration::from_secs(20);
const INTERRUPT_WAIT: Duration = Duration::from_secs(20);
const STOP_WAIT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_metered_with_their_children_and_end_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new("shell", folder.path());
        let mut command = Processes::command("sh");
        command.args(["-c", "sleep 60 & i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; wait"]);
        processes.start(&mut command, &Cores::allowed()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline
            && (processes.tree().len() < 2 || processes.processor_time().is_zero())
        {
            std::thread::sleep(LOOK);
        }
        let tree = processes.tree();
        assert!(tree.len() >= 2 && processes.are_running(), "{tree:?}");
        assert!(!processes.processor_time().is_zero());
        assert!(processes.memory_bytes() > 0);
        drop(processes);
        // SIGKILL was sent; the kernel ends each process some time later.
        let is_left = |process: u32| stat(process).first().is_some_and(|state| state != "Z");
        let deadline = Instant::now() + Duration::from_secs(60);
        for process in tree {
            while is_left(process) {
                assert!(Instant::now() < deadline, "process {process} is left");
                std::thread::sleep(LOOK);
            }
        }
    }

    #[test]
    fn error_of_a_peer_has_the_last_lines_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = Processes::new("shell", folder.path());
        let mut command = Processes::command("sh");
        command.args(["-c", "echo cannot open the clip >&2; exit 1"]);
        processes.start(&mut command, &Cores::allowed()).unwrap();
        let error = processes.await_port(&[1]).unwrap_err().to_string();
        assert!(error.contains("cannot open the clip"), "{error}");
    }
}
