// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures as comma-separated values, one a line, for spreadsheets and scripts.
//!
//! The columns are fixed, so that files of several runs can be concatenated: names of parameters
//! differ by experiment, so they share a column as `name=value` joined by `;`. Numbers have all
//! their digits.
//!
//! Sources: RFC 4180 (quoting); lines end with a line feed alone, for awk and cut.
//! Does not contain notes and warnings; they are in the measurement file.

use crate::results::{Results, Row};

/// Returns the figures as CSV with a header line.
pub fn csv(results: &Results) -> String {
    let mut text = String::from(HEADER);
    for row in &results.rows {
        text.push('\n');
        let Row { experiment, member, metric, unit, figure, published, .. } = row;
        let parameters = row.parameters.iter();
        let parameters = parameters.map(|(name, value)| format!("{}={}", part(name), part(value)));
        let parameters: Vec<String> = parameters.collect();
        let samples: Vec<String> = figure.samples.iter().map(f64::to_string).collect();
        let fields = [
            experiment,
            member,
            &parameters.join(";"),
            metric,
            unit,
            &figure.median.to_string(),
            &figure.spread.to_string(),
            &samples.join(";"),
            published.as_deref().unwrap_or_default(),
            &results.commit,
            &results.taken,
        ];
        text.push_str(&fields.map(field).join(","));
    }
    text.push('\n');
    text
}

/// Quotes a text that would otherwise read as several fields.
fn field(text: &str) -> String {
    let special = |letter: char| matches!(letter, ',' | '"' | '\n' | '\r');
    if text.contains(special) || text.trim() != text {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Escapes a name or value within the column of parameters.
fn part(text: &str) -> String {
    text.replace('\\', "\\\\").replace(';', "\\;").replace('=', "\\=")
}

const HEADER: &str =
    "experiment,member,parameters,metric,unit,median,spread,samples,published,commit,taken";
