// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the results: figures of a server's turns, and ratios to the reference.
//!
//! Sources: docs/measuring.md (ratios within a round).
//! Does not measure.

use super::Point;
use super::server::REFERENCE;
use crate::experiments::peers::{CPU_COST, warn_of_client};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Parameters of a case.
pub(super) type Labels = [(&'static str, String); 3];

/// Metric, unit and the value of a point; `None` where the part has no such figure.
type Column = (&'static str, &'static str, fn(&Point) -> Option<f64>);

const COLUMNS: &[Column] = &[
    (REQUESTS, "1/s", |point| per(point, point.seconds)),
    (REQUESTS_OF_A_CORE, "1/s", |point| per(point, point.cpu_s)),
    ("CPU time of a request", "µs", |point| Some(1e6 / per(point, point.cpu_s)?)),
    (CPU_COST, "s/GB", |point| Some(point.cpu_s * 1e9 / point.bytes)),
    (BOTH_ENDS, "s/GB", |point| Some((point.cpu_s + point.client_s) * 1e9 / point.bytes)),
    ("throughput", "Gb/s", |point| Some(point.bytes * 8e-9 / point.seconds)),
    ("latency, median", "ms", |point| Some(point.latencies?[0].as_secs_f64() * 1e3)),
    ("latency, 99 %", "ms", |point| Some(point.latencies?[1].as_secs_f64() * 1e3)),
    ("server's core", "of 1", |point| Some(point.cpu_s / point.seconds)),
    ("client's core", "of 1", |point| Some(point.client_s / point.seconds)),
    ("core with interrupts", "of 1", |point| Some(point.paced.as_ref()?.busy_s / point.seconds)),
    ("CPU cost with interrupts", "s/GB", |point| {
        Some(point.paced.as_ref()?.busy_s * 1e9 / point.bytes)
    }),
    ("rate, median", "Mb/s", |point| Some(point.paced.as_ref()?.rate_mbps)),
    ("within 5 % of the rate", "%", |point| Some(point.paced.as_ref()?.share_at_rate * 100.0)),
];

/// Returns responses by a number of seconds; `None` where responses are not counted.
fn per(point: &Point, seconds: f64) -> Option<f64> {
    (point.responses > 0.0 && seconds > 0.0).then(|| point.responses / seconds)
}

/// Adds the figures of a server's turns; warns when the client may have been the limit.
pub(super) fn push(
    name: &str,
    part: &str,
    labels: &Labels,
    points: &[Point],
    results: &mut Results,
) {
    for (metric, unit, of) in COLUMNS {
        let samples: Option<Vec<f64>> = points.iter().map(of).collect();
        let Some(samples) = samples.filter(|samples| !samples.is_empty()) else { continue };
        results.rows.push(labelled(name, metric, unit, Figure::of(samples), labels));
    }
    let share = points.iter().map(|point| point.client_s / point.seconds).fold(0.0, f64::max);
    let [_, (_, bytes), (_, connections)] = labels;
    let what = format!("{part}, {bytes} bytes, {connections} connections");
    warn_of_client(name, &what, share, results);
}

/// Adds each server's ratios to the reference, computed round by round.
pub(super) fn push_ratios(labels: &Labels, results: &mut Results) {
    let is_of_case =
        |row: &&Row| labels.iter().all(|(name, value)| row.parameters.get(*name) == Some(value));
    let mut ratios = Vec::new();
    for (metric, title) in RATIOS {
        let rows = results.rows.iter().filter(is_of_case).filter(|row| row.metric == *metric);
        let rows: Vec<&Row> = rows.collect();
        let Some(reference) = rows.iter().find(|row| row.member == REFERENCE) else { continue };
        for row in rows.iter().filter(|row| row.member != REFERENCE) {
            if let Some(figure) = row.figure.relative_to(&reference.figure) {
                ratios.push(labelled(&row.member, title, "of 1", figure, labels));
            }
        }
    }
    results.rows.extend(ratios);
}

/// Notes the reason, once for a server and part, for which it is not measured.
pub(super) fn push_skips(results: &mut Results, name: &str, part: &str, reason: &str) {
    let note = format!("skip: {name}, {part}: {reason}");
    if !results.notes.contains(&note) {
        results.notes.push(note);
    }
}

fn labelled(name: &str, metric: &str, unit: &str, figure: Figure, labels: &Labels) -> Row {
    let row = Row::new("http", name, metric, unit, figure);
    labels.iter().fold(row, |row, (label, value)| row.with(label, value))
}

const REQUESTS: &str = "requests";
const REQUESTS_OF_A_CORE: &str = "requests of a core";
/// With the client's: over loopback an acknowledgement makes the kernel send on its time.
const BOTH_ENDS: &str = "CPU cost, both ends";
const RATIOS: &[(&str, &str)] = &[
    (REQUESTS_OF_A_CORE, "requests of a core, of nginx"),
    (CPU_COST, "CPU cost, of nginx"),
    (BOTH_ENDS, "CPU cost, both ends, of nginx"),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn point(cpu_s: f64) -> Point {
        Point {
            responses: 1_000.0,
            bytes: 1e6,
            cpu_s,
            seconds: 2.0,
            client_s: 0.5,
            latencies: Some([Duration::from_millis(3), Duration::from_millis(9)]),
            paced: None,
        }
    }

    #[test]
    fn figures_follow_from_counts_and_ratios_from_rounds() {
        let mut results = Results::new("http", ["pagewire".to_owned()]);
        let labels = ["part", "bytes", "connections"].map(|name| (name, "1000".to_owned()));
        push("nginx", "small", &labels, &[point(0.1), point(0.2)], &mut results);
        push("pagewire", "small", &labels, &[point(0.2), point(0.4)], &mut results);
        push_ratios(&labels, &mut results);
        let of = |member: &str, metric: &str| results.figure(member, metric, &[]).unwrap().median;
        assert_eq!(of("pagewire", REQUESTS), 500.0);
        assert_eq!(results.figure("nginx", REQUESTS_OF_A_CORE, &[]).unwrap().samples, [1e4, 5e3]);
        assert!((of("pagewire", "CPU time of a request") - 300.0).abs() < 1e-9);
        assert!((of("pagewire", CPU_COST) - 300.0).abs() < 1e-9);
        assert!((of("pagewire", BOTH_ENDS) - 800.0).abs() < 1e-9);
        assert_eq!(of("nginx", "latency, 99 %"), 9.0);
        assert_eq!(of("pagewire", "CPU cost, of nginx"), 2.0);
        assert_eq!(of("pagewire", "requests of a core, of nginx"), 0.5);
        assert!(results.figure("nginx", "within 5 % of the rate", &[]).is_none());
        assert!(results.warnings.is_empty());
    }
}
