// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorder under test: this program, started again as `receive` in the second namespace, and its
//! final report.
//!
//! Sources: proc_pid_stat(5), proc_pid_net(5).
//! Does not read the files; the sender compares them.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::installed;
use measure::Error;
use measure::network::Network;

/// A recorder that has bound all its ports.
pub(super) struct Recorder {
    child: Child,
}

/// Report of a recording.
#[derive(Default)]
pub(super) struct Report {
    /// Name of its receive path.
    pub(super) path: String,
    /// Datagrams of the streams.
    pub(super) received: u64,
    /// Packets dropped for lack of memory or disk space, and those for which its socket buffers had
    /// no room.
    pub(super) dropped: u64,
    pub(super) processor_seconds: f64,
}

/// Returns the path of a stream's file.
pub(super) fn file(folder: &Path, stream: usize) -> PathBuf {
    folder.join(format!("{stream}.ts"))
}

impl Recorder {
    /// Records datagrams for these addresses into files of `folder`.
    pub(super) fn start(
        network: &Network,
        way: &str,
        to: &[SocketAddr],
        folder: &Path,
    ) -> Result<Recorder, Error> {
        std::fs::create_dir(folder).map_err(Error::host("a folder for the files"))?;
        let program = installed::pagewire()?;
        let mut command = network.far_command(&program);
        command.args(["receive", "--json", "--path", way, "--output"]);
        command.arg(folder.join("{index}.ts"));
        command.arg("--cache").arg(folder.join("cache"));
        command.args(to.iter().map(|address| format!("udp://{address}")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(Error::host("starting the recorder"))?;
        let mut recorder = Recorder { child };
        recorder.await_ports(to)?;
        Ok(recorder)
    }

    /// Waits until its sockets are in the second namespace's list; then they accept datagrams.
    fn await_ports(&mut self, to: &[SocketAddr]) -> Result<(), Error> {
        let list = format!("/proc/{}/net/udp", self.child.id());
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                break;
            }
            let text = std::fs::read_to_string(&list).unwrap_or_default();
            let there = |address: &SocketAddr| text.contains(&format!(":{:04X} ", address.port()));
            if to.iter().all(there) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let mut stderr_text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut stderr_text);
        }
        Err(Error::Host { what: "the recorder".to_owned(), found: stderr_text.trim().to_owned() })
    }

    /// Ends the recorder; its files are complete then.
    pub(super) fn finish(mut self) -> Result<Report, Error> {
        let failed = |found: String| Error::Host { what: "the recorder".to_owned(), found };
        let processor_seconds = self.processor_seconds();
        self.interrupt();
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().expect("it is piped");
        stdout.read_to_string(&mut text).map_err(Error::host("what the recorder says"))?;
        self.child.wait().map_err(Error::host("waiting for the recorder"))?;
        let summary: Value = serde_json::from_str(&text)
            .map_err(|error| failed(format!("{error}: {}", text.trim())))?;
        let streams = summary["streams"].as_array().map_or(&[][..], Vec::as_slice);
        let sum = |names: &[&str]| -> u64 {
            let of = |stream: &Value| -> u64 {
                names.iter().filter_map(|name| stream[*name].as_u64()).sum()
            };
            streams.iter().map(of).sum()
        };
        Ok(Report {
            path: summary["path"].as_str().unwrap_or_default().to_owned(),
            received: sum(&["packets"]),
            dropped: sum(&["dropped_by_kernel", "dropped_by_disk"]),
            processor_seconds,
        })
    }

    /// Returns user and system time of all its threads so far.
    fn processor_seconds(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // After the name in brackets: state is field 3, utime 14, stime 15.
        let words = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
        ticks as f64 / USER_HZ
    }

    fn interrupt(&self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ticks a second in /proc, independent of the kernel's own tick rate (proc_stat(5)).
const USER_HZ: f64 = 100.0;
const START_WAIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
