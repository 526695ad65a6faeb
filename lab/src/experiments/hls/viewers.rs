// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers of HLS by `pagewire load`: the server's processor time for each.
//!
//! Each viewer has a connection of its own, fetches a segment of 6 s when its buffer has less than
//! that, and models its buffer. The client runs on the cores that are not the server's. The
//! server's processor time is read at the events of the load, between which all viewers play.
//!
//! Sources: docs/load.md (HLS).
//! Does not find the largest number of viewers that a server can serve; it counts those that
//! stalled.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rows::{Labels, labelled};
use crate::experiments::peers::CPU_COST;
use crate::experiments::peers::peer::Running;
use measure::meter::Cores;
use measure::results::Results;
use measure::statistics::Figure;

/// Figures of one turn.
pub(super) struct ViewersPoint {
    /// Processor seconds of the server a second.
    pub(super) server_cores: f64,
    pub(super) client_cores: f64,
    pub(super) viewers: f64,
    pub(super) stalled: f64,
    pub(super) bits_per_second: f64,
}

impl ViewersPoint {
    /// Viewers that one core of the server would serve.
    pub(super) fn viewers_a_core(&self) -> f64 {
        self.viewers / self.server_cores
    }

    pub(super) fn cpu_s_per_gb(&self) -> f64 {
        self.server_cores / (self.bits_per_second / 8e9)
    }
}

/// Plays a presentation so many times at once, measured for `time`; they start over as long a time.
pub(super) fn play(
    running: &Running,
    path: &str,
    (viewers, time): (usize, Duration),
    cores: &Cores,
) -> Result<ViewersPoint, String> {
    let program = crate::installed::pagewire().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["load", &format!("http://127.0.0.1:{}{path}", running.http_port)]);
    command.args(["--hls", "--variant", "highest", "--ahead", "6", "--json", "-"]);
    let seconds = time.as_secs().to_string();
    command.args(["--sessions", &viewers.to_string(), "--ramp", &seconds, "--seconds", &seconds]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Ended(cores.start(&mut command).map_err(|error| error.to_string())?);
    let output = client.0.stdout.take().expect("it is piped");
    let (mut began, mut ended, mut result) = (None, None, None);
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| error.to_string())?;
        let event: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let now = || Some((Instant::now(), running.processes.processor_time()));
        match event["event"].as_str() {
            Some("playing") => began = now(),
            Some("measured") => ended = now(),
            Some("result") => result = Some(event),
            _ => {}
        }
    }
    let (Some((began, before)), Some((ended, after)), Some(result)) = (began, ended, result) else {
        return Err("pagewire load ended before it had measured".to_owned());
    };
    let number = |name: &str| result[name].as_f64().unwrap_or(0.0);
    if number("started") < viewers as f64 || number("faults") > 0.0 || number("bytes") == 0.0 {
        return Err(format!("viewers that did not start, faults, or no segment: {result}"));
    }
    let cpu = after.saturating_sub(before).as_secs_f64();
    Ok(ViewersPoint {
        server_cores: cpu / (ended - began).as_secs_f64(),
        client_cores: result["client"]["cores"].as_f64().unwrap_or(0.0),
        viewers: viewers as f64,
        stalled: number("stalled"),
        bits_per_second: number("bit_rate"),
    })
}

/// Adds the figures of members, and the ratio of viewers a core of the first and the last, round by
/// round.
pub(super) fn push(
    members: &[(&'static str, &Vec<ViewersPoint>)],
    labels: &Labels,
    results: &mut Results,
) {
    let figure = |points: &[ViewersPoint], of: fn(&ViewersPoint) -> f64| {
        Figure::of(points.iter().map(of).collect())
    };
    let measured = || members.iter().filter(|(_, points)| !points.is_empty());
    for (member, points) in measured() {
        for (metric, unit, of) in COLUMNS {
            results.rows.push(labelled(member, metric, unit, figure(points, *of), labels));
        }
    }
    let all: Vec<_> = measured().collect();
    if let [(member, own), .., (peer, theirs)] = all[..] {
        let [own, theirs] =
            [own, theirs].map(|points| figure(points, ViewersPoint::viewers_a_core));
        if let Some(ratio) = own.relative_to(&theirs) {
            let title = format!("{VIEWERS_A_CORE}, of {peer}");
            results.rows.push(labelled(member, &title, "of 1", ratio, labels));
        }
    }
}

type Column = (&'static str, &'static str, fn(&ViewersPoint) -> f64);

const COLUMNS: &[Column] = &[
    (VIEWERS_A_CORE, "viewers", ViewersPoint::viewers_a_core),
    (CPU_COST, "s/GB", ViewersPoint::cpu_s_per_gb),
    ("server's core", "of 1", |point| point.server_cores),
    ("client's core", "of 1", |point| point.client_cores),
    ("viewers that stalled", "viewers", |point| point.stalled),
    ("bit rate", "Gb/s", |point| point.bits_per_second / 1e9),
];

const VIEWERS_A_CORE: &str = "viewers a core";

/// A program that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
