// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement file: all figures of one run of an experiment, with the facts that are needed to
//! judge and to repeat them.
//!
//! Every table, plot and comparison is made from this file only, so a table in the documents can be
//! made again from the committed file. It is JSON, one row a figure.
//!
//! A file is written under a temporary name and renamed, so that a full disk leaves the old file
//! intact and no partial new one; a device or a pipe is written directly.
//!
//! Sources: rename(2); RFC 3339 §5.6 for the time.
//! Does not read versions later than this program's, and writes only the latest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::host::{COMMIT, HostFacts};
use crate::statistics::Figure;
use crate::warning::Warning;

/// The version of the measurement file's format.
pub const FORMAT: u32 = 2;
/// The previous version, which called the CPU cost `bill`; read, and never written.
const FORMAT_BEFORE: u32 = 1;

/// All figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The command line, with the program's path reduced to its name.
    pub command: String,
    /// Commit that the program was built from: [`COMMIT`].
    pub commit: String,
    /// Start of the run: UTC, RFC 3339, seconds.
    pub taken: String,
    /// Facts about the machine.
    pub host: HostFacts,
    /// False when it was interrupted or a member failed midway; the rows present are valid.
    pub complete: bool,
    /// The set-up in words: sink, rounds, bytes, the instrument's own cost, skips with the reason.
    pub notes: Vec<String>,
    /// Reasons to doubt the figures.
    pub warnings: Vec<Warning>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The experiment's name.
    pub experiment: String,
    /// Name of the measured object: a path, a server.
    pub member: String,
    /// Parameters, such as size and sink.
    pub parameters: BTreeMap<String, String>,
    /// Name of the measured quantity.
    pub metric: String,
    /// Unit; empty for a ratio.
    pub unit: String,
    /// The figure.
    #[serde(flatten)]
    pub figure: Figure,
    /// Source of a published value; `None` for one that was measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// True for one cell of many: shown in files and plots, not in tables read line by line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detail: bool,
}

/// The part of a file that is read first, to find its version.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl Results {
    /// Returns the results of a run that starts now on this machine: no rows, not complete.
    pub fn new(experiment: &str, command: impl IntoIterator<Item = String>) -> Results {
        Results {
            format: FORMAT,
            experiment: experiment.to_owned(),
            command: command_line(command),
            commit: COMMIT.to_owned(),
            taken: rfc3339(SystemTime::now()),
            host: HostFacts::here(),
            complete: false,
            notes: Vec::new(),
            warnings: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a warning unless it is already there.
    pub fn warn(&mut self, warning: Warning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Warns where a fixed piece of work, repeated over the run, had different durations.
    pub fn warn_of_paces(&mut self, paces: &[f64]) {
        let fastest = paces.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = paces.iter().copied().fold(0.0, f64::max);
        if fastest.is_finite() && slowest > fastest * PACE_CHANGE_MAX {
            self.warn(Warning::FrequencyChanged { share: slowest / fastest - 1.0 });
        }
    }

    /// Returns the figure of a member's metric whose parameters include `parameters`.
    pub fn figure(
        &self,
        member: &str,
        metric: &str,
        parameters: &[(&str, &str)],
    ) -> Option<&Figure> {
        let has = |row: &Row, (name, value): &(&str, &str)| {
            row.parameters.get(*name).is_some_and(|found| found == value)
        };
        let row = self.rows.iter().find(|row| {
            row.member == member
                && row.metric == metric
                && row.published.is_none()
                && parameters.iter().all(|parameter| has(row, parameter))
        });
        row.map(|row| &row.figure)
    }

    /// Returns the text of the measurement file.
    pub fn json(&self) -> String {
        // Strings and finite numbers always convert to JSON.
        let head = Results { rows: Vec::new(), ..self.clone() };
        let text = serde_json::to_string_pretty(&head).expect("plain data");
        // One row a line, so that a changed figure is one line of a diff.
        let rows = self.rows.iter().map(|row| serde_json::to_string(row).expect("plain data"));
        let rows: Vec<String> = rows.map(|row| format!("    {row}")).collect();
        let end = text.rfind(NO_ROWS).expect("rows are the last field");
        match rows.is_empty() {
            true => format!("{text}\n"),
            false => format!("{}\"rows\": [\n{}\n  ]\n}}\n", &text[..end], rows.join(",\n")),
        }
    }

    /// Parses the text of a measurement file; `name` is for the error.
    ///
    /// # Errors
    /// [`Error::Caller`] for a file of another version, a damaged one, or any other file.
    pub fn from_json(text: &str, name: &str) -> Result<Results, Error> {
        let wrong = |found: String| Error::Caller { what: name.to_owned(), found };
        let damaged = |error: serde_json::Error| {
            wrong(format!("damaged measurement file: {error}; measure again"))
        };
        let head: Head = serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => wrong(format!(
                "not a measurement file: {error}; give one that pagewire lab wrote as JSON"
            )),
            _ => damaged(error),
        })?;
        let results: Results = match head.format {
            FORMAT => serde_json::from_str(text).map_err(damaged),
            FORMAT_BEFORE => {
                let mut value: serde_json::Value = serde_json::from_str(text).map_err(damaged)?;
                value["format"] = FORMAT.into();
                translate(&mut value);
                serde_json::from_value(value).map_err(damaged)
            }
            format => Err(wrong(format!(
                "measurement format {format}; this program reads {FORMAT_BEFORE} and {FORMAT}; \
                 measure again or use the version that wrote it"
            ))),
        }?;
        match results.rows.iter().find(|row| !row.figure.is_consistent()) {
            None => Ok(results),
            Some(Row { member, metric, figure, .. }) => Err(wrong(format!(
                "damaged measurement file: {member}, {metric}: the median {} is not that of its \
                 samples; measure again",
                figure.median
            ))),
        }
    }

    /// Reads a measurement file.
    ///
    /// # Errors
    /// Those of [`Results::from_json`], and [`Error::Host`] when the file cannot be read.
    pub fn read(path: &Path) -> Result<Results, Error> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(Error::host(format!("reading {name}")))?;
        let wrong = |found: String| Error::Caller { what: name.clone(), found };
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let most = FILE_BYTES_MAX >> 20;
            return Err(wrong(format!("over {most} MiB; give a file that pagewire lab wrote")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            wrong(format!("not a measurement file: {error}; give one that pagewire lab wrote"))
        })?;
        Results::from_json(&text, &name)
    }

    /// Writes the measurement file. An existing file is replaced completely or not at all.
    ///
    /// # Errors
    /// [`Error::Host`], with the remedy.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        save(path, &self.json())
    }
}

impl Row {
    /// Returns a row measured here, without parameters.
    pub fn new(experiment: &str, member: &str, metric: &str, unit: &str, figure: Figure) -> Row {
        Row {
            experiment: experiment.to_owned(),
            member: member.to_owned(),
            parameters: BTreeMap::new(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            figure,
            published: None,
            detail: false,
        }
    }

    /// Adds one parameter.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: impl ToString) -> Row {
        self.parameters.insert(parameter.to_owned(), value.to_string());
        self
    }

    /// Marks the row as one cell of many: see [`Row::detail`].
    #[must_use]
    pub fn as_detail(mut self) -> Row {
        self.detail = true;
        self
    }

    /// True for a count: equal in every run, so that one sample suffices.
    pub fn is_count(&self) -> bool {
        COUNT_UNITS.contains(&self.unit.as_str())
    }
}

/// Renames metrics of rows and warnings in a file of [`FORMAT_BEFORE`]. Notes stay as they are.
fn translate(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), &mut *value) {
                    ("metric", Value::String(metric)) => {
                        let words = metric.split(' ').map(|word| match word {
                            "bill" => "CPU cost",
                            word => word,
                        });
                        *metric = words.collect::<Vec<_>>().join(" ");
                    }
                    (_, value) => translate(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(translate),
        _ => {}
    }
}

/// The end of a file without rows.
const NO_ROWS: &str = "\"rows\": []\n}";

/// Writes a measurement file or a report completely or not at all.
///
/// # Errors
/// [`Error::Host`], with the remedy.
pub fn save(path: &Path, text: &str) -> Result<(), Error> {
    let written = match fs::metadata(path) {
        // A rename would replace the device by a file.
        Ok(found) if !found.is_file() => File::options()
            .write(true)
            .open(path)
            .and_then(|mut target| target.write_all(text.as_bytes())),
        // A rename would replace the link by a file.
        Ok(_) => path.canonicalize().and_then(|target| replace(&target, text)),
        Err(_) => replace(path, text),
    };
    written.map_err(|error| Error::Host {
        what: format!("writing {}", path.display()),
        found: format!("{error}; {}", cure(&error)),
    })
}

fn replace(target: &Path, text: &str) -> std::io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // This error names the folder; that of the temporary file would name the temporary file.
    fs::metadata(folder)?;
    // The umask applies, as to any new file; a temporary file would have mode 0600.
    let mut beside = tempfile::Builder::new()
        .prefix(".pagewire-")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    beside.as_file_mut().write_all(text.as_bytes())?;
    beside.as_file().sync_all()?;
    beside.persist(target).map(drop).map_err(|error| error.error)
}

fn cure(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "make room there, or name a file on another disk"
        }
        ErrorKind::NotFound => "make the folder, or name a file in one that exists",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "name a file where you may write"
        }
        _ => "name another file",
    }
}

/// Returns the command line, quoted for a shell, the program's path reduced to its name.
fn command_line(arguments: impl IntoIterator<Item = String>) -> String {
    let mut words = Vec::new();
    for (index, argument) in arguments.into_iter().enumerate() {
        let plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
        if index == 0 {
            words.push(argument.rsplit('/').next().unwrap_or_default().to_owned());
        } else if !argument.is_empty() && argument.chars().all(plain) {
            words.push(argument);
        } else {
            words.push(format!("'{}'", argument.replace('\'', "'\\''")));
        }
    }
    words.join(" ")
}

/// Formats a time as `2026-11-21T07:08:09Z`; the epoch for an earlier one.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, second) = (seconds / DAY_S, seconds % DAY_S);
    let mut year = 1970;
    while days >= year_days(year) {
        days -= year_days(year);
        year += 1;
    }
    let mut month = 1;
    while days >= month_days(year, month) {
        days -= month_days(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

fn year_days(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 => year_days(year) - 337,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Ratio of the slowest to the fastest pace above which the run gets a warning.
const PACE_CHANGE_MAX: f64 = 1.05;
const DAY_S: u64 = 86_400;
/// A full run of all experiments is some 10 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Units of counts.
const COUNT_UNITS: &[&str] =
    &["per packet", "per byte", "blocks", "cases", "checks", "copies", "loops", "samples"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // Reference: `date -u -d @SECONDS +%FT%TZ`.
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_795_244_889, "2026-11-21T07:08:09Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in known {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), known[0].1);
    }

    #[test]
    fn commands_can_be_typed_again() {
        let line = |words: &[&str]| command_line(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(line(&["./target/release/pagewire", "lab", "paths"]), "pagewire lab paths");
        assert_eq!(line(&["pagewire", "--json", "my $file"]), "pagewire --json 'my $file'");
        assert_eq!(line(&["pagewire", "it's", ""]), r"pagewire 'it'\''s' ''");
        assert_eq!(line(&[]), "");
    }

    #[test]
    fn another_pace_is_a_warning() {
        let doubts = |paces: &[f64]| {
            let mut results = Results::new("paths", []);
            results.warn_of_paces(paces);
            results.warnings
        };
        assert_eq!(doubts(&[]), []);
        assert_eq!(doubts(&[100.0, 104.0, 101.0]), []);
        assert_eq!(doubts(&[100.0, 150.0]), [Warning::FrequencyChanged { share: 0.5 }]);
    }

    #[test]
    fn figures_are_found_by_some_of_their_parameters() {
        let mut results = Results::new("paths", ["pagewire".to_owned()]);
        let row = |value: f64, sink: &str| {
            let figure = Figure::of(vec![value]);
            Row::new("paths", "m", "CPU cost", "s/GB", figure)
                .with("sink", sink)
                .with("bytes", 1328)
        };
        let published = Row { published: Some("the study".to_owned()), ..row(9.0, "veth") };
        results.rows = vec![published, row(1.0, "ifb software"), row(2.0, "veth")];
        let median = |parameters: &[(&str, &str)]| {
            results.figure("m", "CPU cost", parameters).map(|figure| figure.median)
        };
        assert_eq!(median(&[]), Some(1.0));
        assert_eq!(median(&[("sink", "veth")]), Some(2.0));
        assert_eq!(median(&[("bytes", "1328"), ("sink", "lo")]), None);
        assert_eq!(median(&[("size", "1328")]), None);
    }
}
