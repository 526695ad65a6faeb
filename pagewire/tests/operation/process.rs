// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes by number: their status in /proc, and their end, also of processes that are not
//! children of the test.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::await_true;

/// A process that is killed when this is dropped.
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// Returns the lines of `/proc/N/status` by name, of every thread.
    pub(crate) fn status(&self, name: &str) -> Vec<String> {
        let folder = format!("/proc/{}/task", self.0);
        let threads = fs::read_dir(folder).expect("it runs").filter_map(Result::ok);
        let values = threads.filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("status")).ok()?;
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
            Some(line?.split_whitespace().collect::<Vec<_>>().join(" "))
        });
        values.collect()
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    pub(crate) fn has_ended(&self) -> bool {
        // An orphan may stay as a zombie, where process 1 does not reap it.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']))
            || stat.is_empty()
    }

    #[track_caller]
    pub(crate) fn await_end(&self) {
        await_true("the process ends", || self.has_ended());
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.cast_signed()).expect("numbers of processes are positive")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = kill_process(self.pid(), Signal::KILL);
        }
    }
}

/// A child that is killed when this is dropped, with the addresses that it has printed.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Started {
    /// Starts a server and waits for its ready line.
    #[track_caller]
    pub(crate) fn by(command: &mut Command) -> Started {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            use std::io::{BufRead, BufReader};
            // Reads to the end, so that the program never blocks on its output.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let Ok(ready) = lines.recv_timeout(WAIT) else {
            let _ = child.kill();
            panic!("no ready line; {:?}", child.wait());
        };
        let address = |scheme: &str| {
            let word = ready.split(' ').find_map(|word| word.strip_prefix(scheme));
            word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{ready}"))
        };
        Started { rtsp: address("rtsp://"), http: address("http://"), child }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const WAIT: Duration = Duration::from_secs(60);
