// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the results: figures of a member's turns, and ratios within a round.
//!
//! Sources: docs/measuring.md (ratios within a round).
//! Does not measure.

use std::time::Duration;

use super::{NGINX, NGINX_OPEN, PAGEWIRE, PLAIN};
use crate::experiments::peers::{CPU_COST, warn_of_client};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Figures of one turn of a member.
pub(super) struct Point {
    /// Responses in the measured time, by their bytes.
    pub(super) responses: f64,
    pub(super) bytes: f64,
    /// Processor seconds of the server's process, user and system.
    pub(super) cpu_s: f64,
    pub(super) seconds: f64,
    /// Processor seconds of the client.
    pub(super) client_s: f64,
    /// Median and 99 % of the time to a whole response.
    pub(super) latencies: [Duration; 2],
    /// Counts of the server; of pagewire alone.
    pub(super) counted: Option<Counted>,
}

/// Counts of pagewire's index over the measured time.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    /// Bytes of files that were sent.
    pub(super) bytes: f64,
    pub(super) bytes_copied: f64,
    /// System calls that sent them.
    pub(super) calls: f64,
}

/// Parameters of a case.
pub(super) type Labels = [(&'static str, String); 2];

type Column = (&'static str, &'static str, fn(&Point) -> Option<f64>);

const COLUMNS: &[Column] = &[
    (REQUEST, "µs", |point| Some(point.cpu_s * 1e6 / point.responses)),
    (CPU_COST, "s/GB", |point| Some(point.cpu_s * 1e9 / point.bytes)),
    (BOTH_ENDS, "s/GB", |point| Some((point.cpu_s + point.client_s) * 1e9 / point.bytes)),
    ("requests", "1/s", |point| Some(point.responses / point.seconds)),
    ("latency, median", "ms", |point| Some(point.latencies[0].as_secs_f64() * 1e3)),
    ("latency, 99 %", "ms", |point| Some(point.latencies[1].as_secs_f64() * 1e3)),
    ("server's core", "of 1", |point| Some(point.cpu_s / point.seconds)),
    ("client's core", "of 1", |point| Some(point.client_s / point.seconds)),
    (COPIED, "per byte", |point| {
        let counted = point.counted.filter(|counted| counted.bytes > 0.0)?;
        Some(counted.bytes_copied / counted.bytes)
    }),
    ("sends of file ranges", "calls/request", |point| {
        let counted = point.counted.filter(|counted| counted.bytes > 0.0)?;
        Some(counted.calls * point.bytes / point.responses / counted.bytes)
    }),
];

/// Adds the figures of a member's turns; warns when the client may have been the limit.
pub(super) fn push(member: &str, labels: &Labels, points: &[Point], results: &mut Results) {
    if points.is_empty() {
        return;
    }
    for (metric, unit, of) in COLUMNS {
        let samples: Option<Vec<f64>> = points.iter().map(of).collect();
        let Some(samples) = samples else { continue };
        results.rows.push(labelled(member, metric, unit, Figure::of(samples), labels));
    }
    let share = points.iter().map(|point| point.client_s / point.seconds).fold(0.0, f64::max);
    let [(_, part), (_, connections)] = labels;
    warn_of_client(member, &format!("{part}, {connections} connections"), share, results);
}

/// Adds a figure of a list of requests.
pub(super) fn push_count(
    member: &str,
    (metric, unit): (&str, &str),
    value: f64,
    labels: &Labels,
    results: &mut Results,
) {
    results.rows.push(labelled(member, metric, unit, Figure::derived(value), labels).as_detail());
}

/// Adds ratios, computed round by round.
pub(super) fn push_ratios(labels: &Labels, results: &mut Results) {
    let is_of_case =
        |row: &&Row| labels.iter().all(|(name, value)| row.parameters.get(*name) == Some(value));
    let mut ratios = Vec::new();
    for metric in [REQUEST, CPU_COST, BOTH_ENDS] {
        let rows: Vec<&Row> =
            results.rows.iter().filter(is_of_case).filter(|row| row.metric == metric).collect();
        let of = |member: &str| rows.iter().find(|row| row.member == member);
        let Some(own) = of(PAGEWIRE) else { continue };
        for (reference, title) in REFERENCES {
            let ratio = of(reference).and_then(|row| own.figure.relative_to(&row.figure));
            if let Some(figure) = ratio {
                let title = format!("{metric}, of {title}");
                ratios.push(labelled(PAGEWIRE, &title, "of 1", figure, labels));
            }
        }
    }
    results.rows.extend(ratios);
}

pub(super) fn labelled(
    member: &str,
    metric: &str,
    unit: &str,
    figure: Figure,
    labels: &Labels,
) -> Row {
    let row = Row::new("hls", member, metric, unit, figure);
    labels.iter().fold(row, |row, (label, value)| row.with(label, value))
}

const REQUEST: &str = "CPU time of a request";
/// With the client's: over loopback an acknowledgement makes the kernel send on its time.
const BOTH_ENDS: &str = "CPU cost, both ends";
const COPIED: &str = "copies";
/// Members to which pagewire's answers are compared, with their names in ratios.
const REFERENCES: [(&str, &str); 3] =
    [(PLAIN, "plain ranges"), (NGINX, NGINX), (NGINX_OPEN, NGINX_OPEN)];

#[cfg(test)]
mod tests {
    use super::*;

    fn point(cpu_s: f64) -> Point {
        Point {
            responses: 100.0,
            bytes: 4e8,
            cpu_s,
            seconds: 2.0,
            client_s: 0.5,
            latencies: [Duration::from_millis(3), Duration::from_millis(9)],
            counted: Some(Counted { bytes: 2e8, bytes_copied: 0.0, calls: 200.0 }),
        }
    }

    #[test]
    fn figures_follow_from_counts_and_ratios_from_rounds() {
        let mut results = Results::new("hls", ["pagewire".to_owned()]);
        let labels = [("part", "together".to_owned()), ("connections", "1".to_owned())];
        push(PAGEWIRE, &labels, &[point(0.2), point(0.4)], &mut results);
        push(PLAIN, &labels, &[point(0.1), point(0.4)], &mut results);
        let nginx = Point { counted: None, ..point(0.4) };
        push(NGINX, &labels, &[Point { counted: None, ..point(0.2) }, nginx], &mut results);
        push_ratios(&labels, &mut results);
        let figure = |member: &str, metric: &str| results.figure(member, metric, &[]);
        let of = |metric: &str| figure(PAGEWIRE, metric).unwrap();
        assert_eq!(of(REQUEST).samples, [2000.0, 4000.0]);
        assert_eq!(of(CPU_COST).samples, [0.5, 1.0]);
        assert_eq!(of("CPU time of a request, of plain ranges").samples, [2.0, 1.0]);
        assert_eq!(of("CPU cost, of nginx").samples, [1.0, 1.0]);
        assert_eq!(of("sends of file ranges").median, 4.0);
        assert_eq!(of(COPIED).median, 0.0);
        assert!(figure(NGINX, COPIED).is_none());
        assert!(figure(PAGEWIRE, "CPU cost, of nginx_open_file_cache").is_none());
    }
}
