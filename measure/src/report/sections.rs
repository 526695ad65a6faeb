// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups a measurement's rows into the sections of tables and plots.
//!
//! Rows of one metric are compared with each other. Parameters that all of them share (a transport,
//! a sink) are printed once, above; a parameter that every row has and that leaves enough rows on
//! each side divides them; the others are part of a row's label. A number that most members were
//! measured at several values of (packet size, sessions) is the axis of lines.
//!
//! Depends on no name of a parameter except [`APART`] and no value except [`PAPER_SIZE`]. Does not
//! change the experiment's order of rows.

use std::collections::{BTreeMap, BTreeSet};

use super::pairs;
use crate::results::Row;

/// Rows of one metric that are read together.
pub(crate) struct Section<'a> {
    pub metric: &'a str,
    pub unit: &'a str,
    /// Parameters that all rows share; they are not in the labels.
    pub shared: Vec<(&'a str, &'a str)>,
    /// The parameter on the horizontal axis of lines; only from [`plots`].
    pub axis: Option<&'a str>,
    pub rows: Vec<&'a Row>,
}

impl<'a> Section<'a> {
    /// Returns the metric with its unit.
    pub(crate) fn metric_line(&self) -> String {
        match self.unit {
            "" => self.metric.to_owned(),
            unit => format!("{}, {unit}", self.metric),
        }
    }

    /// Returns the shared parameters in a line.
    pub(crate) fn shared_line(&self) -> String {
        pairs(self.shared.iter().copied())
    }

    /// Returns metric and shared parameters.
    pub(crate) fn title(&self) -> String {
        match self.shared_line() {
            shared if shared.is_empty() => self.metric_line(),
            shared => format!("{} ({shared})", self.metric_line()),
        }
    }

    /// Returns the parameters of a row that are not shared.
    pub(crate) fn own(&self, row: &'a Row) -> Vec<(&'a str, &'a str)> {
        let is_shared = |name: &str| self.shared.iter().any(|(shared, _)| *shared == name);
        let own = row.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.filter(|(name, _)| !is_shared(name) && self.axis != Some(*name)).collect()
    }

    /// Returns member and own parameters, which distinguish a row or a line from the others.
    pub(crate) fn label(&self, row: &'a Row) -> String {
        match pairs(self.own(row)) {
            own if own.is_empty() => row.member.clone(),
            own => format!("{}, {own}", row.member),
        }
    }
}

/// Divides rows for tables: also by the axis where that leaves enough to compare.
pub(crate) fn tables<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Section<'a>> {
    let mut sections = Vec::new();
    for rows in by_metric(rows) {
        let axis = axis(&rows);
        let mut keys = dividing_words(&rows, axis);
        if let Some(axis) = axis {
            keys.push(axis);
            if !leaves_enough(&rows, &keys, Some(axis)) {
                keys.pop();
            }
        }
        sections.extend(divided(rows, &keys, None));
    }
    sections
}

/// Divides rows for plots: the axis stays together, and rows that differ in [`APART`] do not.
pub(crate) fn plots<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Section<'a>> {
    let mut sections = Vec::new();
    for rows in by_metric(rows) {
        let axis = axis(&rows);
        let mut keys = dividing_words(&rows, axis);
        for key in APART {
            let differs = |row: &Row| rows[0].parameters.get(key) != row.parameters.get(key);
            if axis != Some(key) && !keys.contains(&key) && measured(&rows).any(differs) {
                keys.push(key);
            }
        }
        sections.extend(divided(rows, &keys, axis));
    }
    sections
}

/// Returns the rows at the commonest value, or at [`PAPER_SIZE`] where more than half as many have
/// it: bars beside the lines of a section. Of two equally common values it uses the first.
pub(crate) fn at_commonest_value<'a>(section: &Section<'a>) -> Option<Section<'a>> {
    let axis = section.axis?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let values = || section.rows.iter().filter_map(|row| row.parameters.get(axis));
    for value in values() {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let preferred = counts.get(PAPER_SIZE).filter(|count| **count * 2 > most);
    let value = match preferred {
        Some(_) => PAPER_SIZE,
        None => values().find(|value| counts[value.as_str()] == most)?,
    };
    let has = |row: &&Row| row.parameters.get(axis).is_some_and(|found| found == value);
    let rows: Vec<&Row> = section.rows.iter().copied().filter(has).collect();
    let (_, value) = rows.first()?.parameters.get_key_value(axis)?;
    let mut shared = section.shared.clone();
    shared.push((axis, value));
    Some(Section { shared, axis: None, rows, ..*section })
}

fn by_metric<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Vec<&'a Row>> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = (row.metric.as_str(), row.unit.as_str());
        let group = groups.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        group.push(row);
    }
    order.into_iter().filter_map(|key| groups.remove(&key)).collect()
}

/// Returns the non-numeric parameters that differ and divide the rows into comparable parts.
fn dividing_words<'a>(rows: &[&'a Row], axis: Option<&str>) -> Vec<&'a str> {
    let mut keys = Vec::new();
    let Some(first) = measured(rows).next() else { return keys };
    for (name, value) in &first.parameters {
        let differs = measured(rows).any(|row| row.parameters.get(name) != Some(value));
        let everywhere = measured(rows).all(|row| row.parameters.contains_key(name));
        if differs && everywhere && !is_number(rows, name) {
            keys.push(name.as_str());
            if !leaves_enough(rows, &keys, axis) {
                keys.pop();
            }
        }
    }
    keys
}

/// True when each part has enough to compare; all points of a line count once.
fn leaves_enough(rows: &[&Row], keys: &[&str], axis: Option<&str>) -> bool {
    let mut parts = BTreeSet::new();
    let mut compared = BTreeSet::new();
    for row in measured(rows) {
        let part = values(row, keys);
        let own = row.parameters.iter().filter(|(name, _)| axis != Some(name.as_str()));
        let own: Vec<_> = own.collect();
        compared.insert((part.clone(), &row.member, own));
        parts.insert(part);
    }
    compared.len() >= parts.len() * PART_MEMBERS_MIN
}

/// Returns the number that members were measured at three or more values of, on average.
fn axis<'a>(rows: &[&'a Row]) -> Option<&'a str> {
    let names: BTreeSet<&str> =
        measured(rows).flat_map(|row| row.parameters.keys()).map(String::as_str).collect();
    let candidates = names.into_iter().filter(|name| is_number(rows, name));
    let sized = candidates.filter_map(|name| {
        let mut lines: BTreeMap<(&str, Vec<_>), usize> = BTreeMap::new();
        let mut points = BTreeSet::new();
        for row in measured(rows).filter(|row| row.parameters.contains_key(name)) {
            let others = row.parameters.iter().filter(|(other, _)| *other != name);
            let others = others.map(|(name, value)| (name.as_str(), value.as_str()));
            *lines.entry((&row.member, others.collect())).or_default() += 1;
            points.insert(&row.parameters[name]);
        }
        let total: usize = lines.values().sum();
        (total >= lines.len() * LINE_POINTS_MIN).then_some((points.len(), name))
    });
    // Of two with equally many values, it is the first by name.
    sized.max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(a.1))).map(|(_, name)| name)
}

/// Returns measured rows, which alone decide the division; published ones if there are no others.
fn measured<'a, 'b>(rows: &'b [&'a Row]) -> impl Iterator<Item = &'a Row> + 'b {
    let any = rows.iter().any(|row| row.published.is_none());
    rows.iter().copied().filter(move |row| row.published.is_none() || !any)
}

fn is_number(rows: &[&Row], name: &str) -> bool {
    let mut values = rows.iter().filter_map(|row| row.parameters.get(name));
    values.all(|value| value.parse::<f64>().is_ok_and(f64::is_finite))
}

fn values<'a>(row: &'a Row, keys: &[&str]) -> Vec<Option<&'a String>> {
    keys.iter().map(|key| row.parameters.get(*key)).collect()
}

fn divided<'a>(
    rows: Vec<&'a Row>,
    keys: &[&str],
    axis: Option<&'a str>,
) -> impl Iterator<Item = Section<'a>> {
    let mut order = Vec::new();
    let mut parts: BTreeMap<Vec<Option<&String>>, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let part = values(row, keys);
        parts.entry(part.clone()).or_insert_with(|| {
            order.push(part);
            Vec::new()
        });
        if let Some(rows) = parts.get_mut(&values(row, keys)) {
            rows.push(row);
        }
    }
    let rows = order.into_iter().filter_map(move |part| parts.remove(&part));
    rows.map(move |rows| {
        // A published value counts for all conditions that its source does not name.
        let first = rows.iter().find(|row| row.published.is_none()).unwrap_or(&rows[0]);
        let same = |name: &String, value: &String| {
            rows.iter().all(|row| match row.parameters.get(name) {
                Some(found) => found == value,
                None => row.published.is_some(),
            })
        };
        let shared = first.parameters.iter().filter(|(name, value)| same(name, value));
        let shared = shared.filter(|(name, _)| axis != Some(name.as_str()));
        let shared = shared.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Section { metric: &first.metric, unit: &first.unit, shared, axis, rows }
    })
}

/// Parameters whose values never share a scale: a datagram of 1328 bytes and a step of 128 KiB are
/// different work, as are packets and a byte stream.
const APART: [&str; 2] = ["bytes", "transport"];
/// Fewest members of a part; smaller parts stay in one table or plot.
const PART_MEMBERS_MIN: usize = 3;
/// Fewest points of a line.
const LINE_POINTS_MIN: usize = 3;
/// The MTU-sized packet of the data-paths paper, for which most comparisons are made.
pub(crate) const PAPER_SIZE: &str = "1328";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Figure;

    fn row(member: &str, metric: &str, parameters: &[(&str, &str)]) -> Row {
        let row = Row::new("paths", member, metric, "s/GB", Figure::of(vec![1.0]));
        parameters.iter().fold(row, |row, (name, value)| row.with(name, value))
    }

    /// Returns members × sizes × sinks; the last member has two numbers of segments.
    fn sweep(sizes: &[&str], sinks: &[&str]) -> Vec<Row> {
        let mut rows = Vec::new();
        for sink in sinks {
            for size in sizes {
                for (member, segments) in [("a", "1"), ("b", "1"), ("c", "10"), ("c", "44")] {
                    let parameters =
                        [("bytes", *size), ("segments", segments), ("sink", sink), ("as", "rtp")];
                    rows.push(row(member, "CPU cost", &parameters));
                }
            }
        }
        rows
    }

    #[test]
    fn a_sweep_is_lines_over_its_size_divided_by_sink() {
        let rows = sweep(&["64", "1328", "9000"], &["soft", "device"]);
        let sections = plots(rows.iter());
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].axis, Some("bytes"));
        assert_eq!(sections[0].title(), "CPU cost, s/GB (as=rtp, sink=soft)");
        assert_eq!(sections[0].label(sections[0].rows[3]), "c, segments=44");
        assert_eq!(sections[0].rows.len(), 12);
        let bars = at_commonest_value(&sections[1]).unwrap();
        assert_eq!(bars.title(), "CPU cost, s/GB (as=rtp, sink=device, bytes=1328)");
        assert_eq!((bars.rows.len(), bars.axis), (4, None));
    }

    #[test]
    fn a_sweep_is_a_table_for_each_size() {
        let rows = sweep(&["64", "1328", "9000"], &["soft", "device"]);
        let sections = tables(rows.iter());
        assert_eq!(sections.len(), 6);
        assert!(sections.iter().all(|section| section.rows.len() == 4 && section.axis.is_none()));
        assert_eq!(sections[1].shared_line(), "as=rtp, bytes=1328, sink=soft");
    }

    #[test]
    fn one_size_is_bars_and_few_rows_are_one_table() {
        let rows = sweep(&["1328"], &["soft"]);
        assert!(plots(rows.iter())[0].axis.is_none());
        let few = [("soft", "a"), ("soft", "b"), ("device", "a"), ("device", "b")]
            .map(|(sink, member)| row(member, "CPU cost", &[("sink", sink)]));
        let sections = tables(few.iter());
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].label(sections[0].rows[2]), "a, sink=device");
    }

    #[test]
    fn a_packet_and_a_large_step_never_share_a_scale() {
        let of = |transport: &str, bytes: &str| {
            ["a", "b"].map(|m| row(m, "CPU cost", &[("transport", transport), ("bytes", bytes)]))
        };
        let rows = [of("rtp", "1328"), of("tcp", "1328"), of("tcp", "131072")].concat();
        let sections = plots(rows.iter());
        let shared: Vec<String> = sections.iter().map(Section::shared_line).collect();
        let expected = [
            "bytes=1328, transport=rtp",
            "bytes=1328, transport=tcp",
            "bytes=131072, transport=tcp",
        ];
        assert_eq!(shared, expected);
    }

    #[test]
    fn one_member_over_sessions_is_a_line_and_one_table() {
        let rows = ["100", "500", "2500"].map(|n| row("server", "CPU cost", &[("sessions", n)]));
        assert_eq!(plots(rows.iter())[0].axis, Some("sessions"));
        let sections = tables(rows.iter());
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].label(sections[0].rows[1]), "server, sessions=500");
    }

    #[test]
    fn lines_that_are_to_be_compared_stay_together() {
        let mut rows = Vec::new();
        for path in ["auto", "mmap_gso"] {
            for sessions in ["100", "500", "1000", "2500"] {
                rows.push(row("server", "CPU cost", &[("sessions", sessions), ("path", path)]));
            }
        }
        let sections = plots(rows.iter());
        assert_eq!((sections.len(), sections[0].axis), (1, Some("sessions")));
        assert_eq!(sections[0].label(sections[0].rows[7]), "server, path=mmap_gso");
        assert_eq!(tables(rows.iter()).len(), 1);
    }

    #[test]
    fn published_values_do_not_decide() {
        let mut rows = sweep(&["64", "1328", "9000"], &["soft", "device"]);
        let published = row("krtpsendfile", "CPU cost", &[]);
        rows.push(Row { published: Some("the study".to_owned()), ..published });
        let sections = plots(rows.iter());
        assert!(sections.iter().all(|section| section.axis == Some("bytes")));
        assert_eq!(sections.len(), 3, "without a sink it belongs to neither");
        assert!(plots([].iter()).is_empty());
    }

    #[test]
    fn metrics_and_units_are_never_mixed() {
        let rows = [row("a", "CPU cost", &[]), row("a", "calls", &[]), row("b", "CPU cost", &[])];
        let sections = tables(rows.iter());
        let found: Vec<_> = sections.iter().map(|s| (s.metric, s.rows.len())).collect();
        assert_eq!(found, [("CPU cost", 2), ("calls", 1)]);
    }
}
