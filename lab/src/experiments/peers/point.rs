// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement of a peer that streams to N clients: CPU time, memory, bytes and lateness.
//!
//! Clients of RTSP peers are those of `pagewire load`, started from this program on the client's
//! core; a peer that pushes has sockets of this process. Loopback charges the work of receiving to
//! the sender, for all peers alike.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paths::Transport;
use serde_json::Value;

use super::capture::{Late, Receivers};
use super::clip::{BITS_PER_SECOND, PACKET_BYTES};
use super::peer::{Contender, Peer, Running, Setting, Streams};
use super::process::Processes;
use measure::Error;
use measure::meter::{Cores, Meter};

/// Instruments and times of all measurements of a run.
pub(crate) struct Instruments {
    pub(crate) meter: Meter,
    /// Processor time of kernel threads a second while nothing is measured.
    pub(super) idle_kernel: f64,
    pub(super) ramp_s: Option<f64>,
}

/// Result of one measurement.
pub(super) struct Point {
    pub(super) cpu_s_per_gb: f64,
    pub(super) cores_used: f64,
    pub(super) memory_kib: f64,
    pub(super) late: Late,
    /// Media received by a client, Mb/s.
    pub(super) rate: f64,
    /// Part of its core that the client used.
    pub(super) client: f64,
    /// First reason why the point is not timely.
    pub(super) fault: Option<String>,
}

/// Processor time of a peer and of kernel threads at a moment.
struct Moment {
    at: Instant,
    process: Duration,
    kernel: Duration,
}

impl Instruments {
    pub(crate) fn new(quick: bool) -> Instruments {
        let (meter, began) = (Meter::of_this_process(), Instant::now());
        let before = meter.of_kernel_threads();
        std::thread::sleep(IDLE);
        let ran = meter.of_kernel_threads().saturating_sub(before);
        let idle_kernel = ran.as_secs_f64() / began.elapsed().as_secs_f64();
        Instruments { meter, idle_kernel, ramp_s: quick.then_some(0.5) }
    }

    fn moment(&self, processes: &Processes) -> Moment {
        let kernel = self.meter.of_kernel_threads();
        Moment { at: Instant::now(), process: processes.processor_time(), kernel }
    }

    /// Returns CPU seconds and seconds from one moment to another.
    fn cost(&self, from: &Moment, until: &Moment) -> (f64, f64) {
        let seconds = (until.at - from.at).as_secs_f64();
        let kernel = until.kernel.saturating_sub(from.kernel).as_secs_f64();
        let kernel = (kernel - self.idle_kernel * seconds).max(0.0);
        ((until.process.saturating_sub(from.process)).as_secs_f64() + kernel, seconds)
    }

    /// Returns CPU seconds of a peer while `work` runs, and its duration in seconds.
    pub(crate) fn around<T>(
        &self,
        processes: &Processes,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(T, f64, f64), Error> {
        let before = self.moment(processes);
        let done = work()?;
        let (cpu, seconds) = self.cost(&before, &self.moment(processes));
        Ok((done, cpu, seconds))
    }

    /// Starts the peer, streams to `sessions` clients and measures for `seconds`.
    pub(super) fn stream(
        &self,
        Contender { peer, transport }: Contender,
        setting: &Setting<'_>,
        sessions: usize,
        seconds: f64,
    ) -> Result<Point, Error> {
        match peer.streams {
            Streams::No => unreachable!("callers ask peers that stream"),
            Streams::Pushed => self.push(peer, setting, sessions, seconds),
            streams => {
                let mut running = (peer.start)(setting)?;
                let is_live = streams == Streams::Live;
                let asked = (sessions, is_live, transport);
                self.load(&mut running, setting.other_cores, asked, seconds)
            }
        }
    }

    fn load(
        &self,
        running: &mut Running,
        cores: &Cores,
        (sessions, is_live, transport): (usize, bool, Transport),
        seconds: f64,
    ) -> Result<Point, Error> {
        let program = crate::installed::pagewire()?;
        let idle_bytes = running.processes.memory_bytes();
        let mut command: Command = Processes::command(program);
        command.args(["load", &running.stream_url, "--json", "-"]);
        command.args(["--sessions", &sessions.to_string(), "--seconds", &seconds.to_string()]);
        command.args(["--transport", transport.name()]);
        command.args(["--sample", &(sessions / SAMPLES).max(1).to_string()]);
        if let Some(ramp) = self.ramp_s {
            command.args(["--ramp", &ramp.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cores.start(&mut command).map_err(Error::host("starting the clients"))?;
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut events = || {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            Some(serde_json::from_str::<Value>(&line).unwrap_or_default())
        };
        let (mut from, mut until, mut memory, mut result) = (None, None, 0, Value::Null);
        while let Some(event) = events() {
            match event["event"].as_str() {
                Some("playing") => from = Some(self.moment(&running.processes)),
                Some("measured") => {
                    until = Some(self.moment(&running.processes));
                    memory = running.processes.memory_bytes();
                }
                Some("result") => result = event,
                _ => {}
            }
        }
        let mut stderr_text = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut stderr_text);
        }
        let _ = child.wait();
        if !running.processes.are_running() {
            return Err(running.processes.failed("ended while it was measured".to_owned()));
        }
        let (Some(from), Some(until), false) = (from, until, result.is_null()) else {
            let found = format!("the clients ended without a result: {}", stderr_text.trim());
            return Err(running.processes.failed(found));
        };
        let (cpu, wall) = self.cost(&from, &until);
        let clients = Clients::of(&result, is_live);
        let bytes = clients.bytes.max(1.0);
        Ok(Point {
            cpu_s_per_gb: cpu * 1e9 / bytes,
            cores_used: cpu / wall,
            memory_kib: memory.saturating_sub(idle_bytes) as f64 / sessions as f64 / 1024.0,
            late: clients.late,
            rate: bytes * 8e-6 / wall / sessions as f64,
            client: result["client"]["cores"].as_f64().unwrap_or(0.0),
            fault: clients.fault,
        })
    }

    fn push(
        &self,
        peer: &Peer,
        setting: &Setting<'_>,
        sessions: usize,
        seconds: f64,
    ) -> Result<Point, Error> {
        let receivers = Receivers::open(sessions, SAMPLES_PUSHED.min(sessions))?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| receivers.read(setting.other_cores, &stop));
            let measured = (|| {
                let setting = Setting { ports: &receivers.ports, ..*setting };
                let mut running = (peer.start)(&setting)?;
                receivers.await_first();
                std::thread::sleep(SETTLE);
                let (from, counted) = (self.moment(&running.processes), receivers.counted());
                std::thread::sleep(Duration::from_secs_f64(seconds));
                let (until, after) = (self.moment(&running.processes), receivers.counted());
                let memory = running.processes.memory_bytes();
                if !running.processes.are_running() {
                    return Err(running.processes.failed("ended too soon".to_owned()));
                }
                Ok((from, until, after - counted, memory))
            })();
            stop.store(true, Ordering::Relaxed);
            let (captures, client) = reading.join().expect("it does not panic");
            let (from, until, counted, memory) = measured?;
            let (mut packets, mut bytes, mut faults) = (0, 0, 0);
            let mut late = Late::default();
            for capture in &captures {
                let (count, size) = capture.within(from.at, until.at);
                (packets, bytes) = (packets + count, bytes + size);
                faults += capture.faults();
                // The worst of several.
                let found = capture.late(from.at, until.at).unwrap_or_default();
                if found.share > late.share || found.p99 > late.p99 {
                    late = found;
                }
            }
            let each = if packets == 0 { 0.0 } else { bytes as f64 / packets as f64 };
            let (cpu, wall) = self.cost(&from, &until);
            let bytes = (bytes as f64 + counted as f64 * each).max(1.0);
            let rate = bytes * 8e-6 / wall / sessions as f64;
            let fault = if faults > 0 {
                Some(format!("{faults} packets missing or damaged"))
            } else if late.share > LATE_SHARE_MAX {
                Some(format!("{:.1} % of packets late", late.share * 100.0))
            } else {
                (rate * 1e6 < RATE_SHARE_MIN * BITS_PER_SECOND as f64)
                    .then(|| format!("{rate:.2} Mb/s a client"))
            };
            Ok(Point {
                cpu_s_per_gb: cpu * 1e9 / bytes,
                cores_used: cpu / wall,
                memory_kib: memory as f64 / sessions as f64 / 1024.0,
                late,
                rate,
                client: client.as_secs_f64() / wall,
                fault,
            })
        })
    }
}

/// The clients' side of a measurement, from the result of `pagewire load`.
struct Clients {
    bytes: f64,
    late: Late,
    fault: Option<String>,
}

impl Clients {
    fn of(result: &Value, is_live: bool) -> Clients {
        let (verified, counted) = (&result["verified"], &result["counted"]);
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let lateness = |name: &str| number(&verified["lateness_ms"][name]);
        let late = Late {
            p50: lateness("p50"),
            p99: lateness("p99"),
            max: lateness("max"),
            share: lateness("late_share"),
        };
        let packet_bytes = number(&verified["bytes"]) / number(&verified["packets"]).max(1.0);
        let bytes = number(&verified["bytes"]) + number(&counted["packets"]) * packet_bytes;
        let due = BITS_PER_SECOND as f64 / 8.0 / (7 * PACKET_BYTES) as f64;
        let due = due * number(&result["seconds"]) * RATE_SHARE_MIN;
        // A client that joins a running stream may miss packets between the PLAY response and the
        // first.
        let joining = if is_live { JOIN_PACKETS * number(&verified["sessions"]) } else { 0.0 };
        let sessions = number(&verified["sessions"]);
        let punctual = if is_live { sessions } else { number(&verified["timely"]) };
        let ended = result["ended"].as_array().map_or(0, Vec::len);
        let fault = if result["played"] != result["asked"] || ended > 0 {
            let asked = number(&result["asked"]);
            Some(format!("{} of {asked} sessions played, others ended", number(&result["played"])))
        } else if number(&verified["lost"]) > joining {
            Some(format!("{} packets lost", number(&verified["lost"])))
        } else if late.share > LATE_SHARE_MAX || punctual < sessions {
            Some(format!("{:.1} % of packets late", late.share * 100.0))
        } else if number(&counted["sessions"]) > 0.0 && number(&counted["packets_least"]) < due {
            Some(format!("{} packets of {due:.0} due", number(&counted["packets_least"])))
        } else {
            None
        };
        Clients { bytes, late, fault }
    }
}

/// Most sessions that are verified packet by packet.
const SAMPLES: usize = 20;
const SAMPLES_PUSHED: usize = 4;
/// Share of packets within the bound: 999 in 1000.
const LATE_SHARE_MAX: f64 = 0.001;
/// Least part of the clip's rate for each client.
const RATE_SHARE_MIN: f64 = 0.98;
const JOIN_PACKETS: f64 = 20.0;
const IDLE: Duration = Duration::from_millis(500);
/// Settling time, as in `pagewire load`.
const SETTLE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> Value {
        serde_json::json!({
            "asked": 40, "played": 40, "ended": [], "seconds": 4.0,
            "verified": {"sessions": 4, "timely": 4, "lost": 0, "packets": 8000,
                "bytes": 10_624_000,
                "lateness_ms": {"p50": 0.1, "p99": 1.0, "max": 2.0, "late_share": 0.0}},
            "counted": {"sessions": 36, "packets": 72_000, "packets_least": 1900},
        })
    }

    #[test]
    fn every_condition_of_timeliness_is_judged() {
        let fault = |pointer: &str, value: Value, is_live: bool| {
            let mut result = result();
            *result.pointer_mut(pointer).unwrap() = value;
            Clients::of(&result, is_live).fault
        };
        assert_eq!(fault("/asked", 40.into(), false), None);
        assert!(fault("/played", 39.into(), false).unwrap().contains("39 of 40"));
        assert!(fault("/verified/lost", 1.into(), false).unwrap().contains("lost"));
        assert_eq!(fault("/verified/lost", 9.into(), true), None);
        assert!(fault("/verified/lost", 900.into(), true).is_some());
        assert!(fault("/verified/timely", 3.into(), false).unwrap().contains("late"));
        let late = "/verified/lateness_ms/late_share";
        assert!(fault(late, 0.2.into(), true).unwrap().contains("20.0 %"));
        assert!(fault("/counted/packets_least", 1500.into(), true).unwrap().contains("due"));
    }

    #[test]
    fn bytes_of_counted_sessions_follow_from_verified_packets() {
        assert_eq!(Clients::of(&result(), false).bytes, 80_000.0 * 1328.0);
    }
}
