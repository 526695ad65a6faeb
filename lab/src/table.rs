// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of an experiment: one row per figure, as JSON and as a table with bars.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::statistics::Figure;

/// All figures of one experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    /// The experiment's name.
    pub experiment: String,
    /// Facts about the host and the set-up, in words.
    pub conditions: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// One figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The member measured.
    pub member: String,
    /// Its parameter, such as segments a call; empty where there is none.
    pub parameter: String,
    /// What was measured.
    pub metric: String,
    /// In what.
    pub unit: String,
    /// The figure.
    pub figure: Figure,
    /// The same relative to the reference member of the same experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative: Option<Figure>,
}

impl Table {
    /// The row of a member, parameter and metric.
    pub fn row(&self, member: &str, parameter: &str, metric: &str) -> Option<&Row> {
        let is = |r: &&Row| r.member == member && r.parameter == parameter && r.metric == metric;
        self.rows.iter().find(is)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.conditions {
            writeln!(f, "{condition}")?;
        }
        let width = |text: fn(&Row) -> &str, least: usize| {
            self.rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0).max(least)
        };
        let member = width(|r| &r.member, 6);
        let parameter = width(|r| &r.parameter, 0);
        let metric = width(|r| &r.metric, 6);
        let most = self.rows.iter().filter_map(|r| r.relative.as_ref()).map(|r| r.median);
        let most = most.fold(0.0, f64::max);
        for row in &self.rows {
            let Row { figure, unit, .. } = row;
            write!(
                f,
                "{:member$}  {:parameter$}  {:metric$}  {:>9} {unit:<9} ±{:>3.0} %",
                row.member,
                row.parameter,
                row.metric,
                short(figure.median),
                figure.spread * 100.0
            )?;
            if let Some(relative) = &row.relative {
                let length = (relative.median / most * BAR_CHARS).round().max(1.0) as usize;
                write!(f, "  {:>6.3}  {}", relative.median, "█".repeat(length))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Three significant digits for small figures, none after the point for large.
fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 || value == 0.0 => format!("{value:.0}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

const BAR_CHARS: f64 = 40.0;
