// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons to doubt a figure, and their cures.
//!
//! Readers trust a figure unless a warning contradicts. Each warning is one line with the finding,
//! and has a cure. It is in the measurement file, beside the figures that it concerns, and in
//! docs/measuring.md by its exact text.
//!
//! Sources: hyperfine's `src/benchmark/` (warnings that carry their cure); the traps that building
//! pagewire's paths uncovered (docs/measuring.md, "Where the packets go").
//! Does not stop a measurement. A fact that makes a figure wrong, not doubtful, is an error.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::results::Row;

/// Reason to doubt figures; `Display` is the exact line. Shares are parts of 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The device accepts super-packets whole, as one that segments itself does.
    SuperPacketsSwallowed {
        /// The sink, as in the parameter of that name.
        sink: String,
    },
    /// Zero-copy sends were copied.
    ZerocopyCopied {
        /// Name of the member.
        member: String,
        /// Parameters of the figure.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// Copied share of its bytes.
        share: f64,
    },
    /// The samples of a figure differ too much for publication.
    NoisySpread {
        /// Name of the member.
        member: String,
        /// Parameters of the figure.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// Name of the quantity.
        metric: String,
        /// Median absolute deviation in parts of the median.
        spread: f64,
        /// Number of samples.
        samples: usize,
    },
    /// The spread of a figure stayed large up to the limit of added rounds.
    SpreadStays {
        /// Name of the member.
        member: String,
        /// Parameters of the figure.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// Name of the quantity.
        metric: String,
        /// Median absolute deviation in parts of the median.
        spread: f64,
        /// Number of measured rounds.
        rounds: usize,
        /// The cause.
        why: String,
    },
    /// Figures have too few samples for a meaningful spread.
    TooFewSamples {
        /// Number of such figures.
        figures: usize,
        /// Samples of the one with the fewest.
        samples: usize,
    },
    /// The same work used different processor times: the frequency changed, or the load on the
    /// other thread of the core.
    FrequencyChanged {
        /// Excess of the longest time over the shortest.
        share: f64,
    },
    /// The hypervisor ran other work on the cores.
    StolenTime {
        /// Stolen share of the cores' time during the measurement.
        share: f64,
    },
    /// The compared measurements differ in more than one variable.
    ManyVariables {
        /// Names of the variables.
        which: Vec<String>,
    },
    /// The file to send was partly on the disk.
    NotInPageCache {
        /// The file's name.
        file: String,
        /// Share of its pages on the disk.
        share: f64,
    },
    /// The file to read from the disk was still in memory.
    StillInPageCache {
        /// The file's name.
        file: String,
        /// Share of its pages in memory.
        share: f64,
    },
    /// A path made other calls or copies than it claims.
    ClaimNotMet {
        /// Name of the member, with its parameters.
        member: String,
        /// Subject of the claim: calls or copies.
        claim: String,
        /// Claimed number per packet, step or byte.
        claimed: f64,
        /// Counted number.
        counted: f64,
    },
    /// Other programs used the cores.
    OtherLoad {
        /// Share of the cores' time.
        busy_share: f64,
    },
    /// The instrument's own cost is large relative to the figure.
    InstrumentLarge {
        /// Name of the member.
        member: String,
        /// Name of the quantity.
        metric: String,
        /// The instrument's cost, which was subtracted, in parts of the figure.
        share: f64,
    },
    /// The client used most of its core, and may limit the figure.
    ClientLimits {
        /// Name of the member, and the load.
        member: String,
        /// Used share of the client's core.
        share: f64,
    },
    /// A member failed; its earlier figures are kept.
    MemberFailed {
        /// Name of the member.
        member: String,
        /// The error.
        found: String,
    },
    /// A warning of a newer program, read from a file.
    #[serde(other)]
    Unknown,
}

/// Rows that a warning concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About<'a> {
    /// The whole run.
    Run,
    /// Every row of a member.
    Member(&'a str),
    /// Rows of a member and a metric.
    Metric(&'a str, &'a str),
    /// One row: member, parameters, metric.
    Row(&'a str, &'a BTreeMap<String, String>, &'a str),
}

impl Warning {
    /// Returns the action that removes the doubt.
    pub fn cure(&self) -> &'static str {
        match self {
            Warning::SuperPacketsSwallowed { .. } => {
                "read these figures as those of a device that segments; for one that cannot, \
                 measure with the sink ifb-software, or set gso_max_segs 1 on the device"
            }
            Warning::ZerocopyCopied { .. } => {
                "measure into an ifb sink or a real card; loopback and veth always \
                 copy, and so does a device without scatter-gather"
            }
            Warning::NoisySpread { .. } => {
                "measure again on an idle machine, in full (not quick), or with more rounds; give \
                 the figure only with this warning"
            }
            Warning::SpreadStays { .. } => {
                "read the figure as no better than its spread, or allow more rounds: \
                 each sample is then the sum of more of them"
            }
            Warning::TooFewSamples { .. } => "measure in full (not quick), or with more rounds",
            Warning::FrequencyChanged { .. } => {
                "set the governor to performance (cpupower frequency-set -g performance), switch \
                 boost off, and measure again"
            }
            Warning::StolenTime { .. } => {
                "measure when the host is idle, or on a machine of your own; trust ratios taken \
                 within a round before absolute figures"
            }
            Warning::ManyVariables { .. } => {
                "change one thing at a time: measure both on the same machine and kernel, with \
                 the same command"
            }
            Warning::NotInPageCache { .. } => {
                "free memory, so that the file stays cached, or measure a smaller one; what a \
                 cold file costs is the experiment cold"
            }
            Warning::StillInPageCache { .. } => {
                "find who holds the file in memory (a map, a lock), or use a file system that \
                 drops pages when asked"
            }
            Warning::ClaimNotMet { .. } => {
                "do not use the figure: the path did not work as it should here; run the tests of \
                 the crate paths on this machine"
            }
            Warning::OtherLoad { .. } => "stop what else runs (see top), and measure again",
            Warning::InstrumentLarge { .. } => {
                "measure more bytes a run, so that reading the clocks weighs less"
            }
            Warning::ClientLimits { .. } => {
                "read sessions and requests a second as lower bounds; CPU cost holds; give the \
                 clients more cores"
            }
            Warning::MemberFailed { .. } => {
                "use only figures from before the failure; mend what the error names and measure \
                 again"
            }
            Warning::Unknown => "read the file with the version of pagewire that wrote it",
        }
    }

    /// Returns the rows that this warning concerns.
    pub fn about(&self) -> About<'_> {
        match self {
            Warning::NoisySpread { member, parameters, metric, .. }
            | Warning::SpreadStays { member, parameters, metric, .. } => {
                About::Row(member, parameters, metric)
            }
            Warning::InstrumentLarge { member, metric, .. } => About::Metric(member, metric),
            Warning::ZerocopyCopied { member, parameters, .. } => {
                About::Row(member, parameters, "CPU cost")
            }
            Warning::MemberFailed { member, .. } => About::Member(member),
            _ => About::Run,
        }
    }

    /// Returns one of each kind, in the order of the list, for docs/measuring.md.
    pub fn examples() -> Vec<Warning> {
        let member = || "wire_sendfile".to_owned();
        let metric = || "CPU cost".to_owned();
        let parameters = BTreeMap::from([("bytes".to_owned(), "1328".to_owned())]);
        vec![
            Warning::SuperPacketsSwallowed { sink: "ifb-device".to_owned() },
            Warning::ZerocopyCopied {
                member: "zerocopy".to_owned(),
                parameters: BTreeMap::from([("sink".to_owned(), "veth".to_owned())]),
                share: 1.0,
            },
            Warning::NoisySpread {
                member: member(),
                parameters,
                metric: metric(),
                spread: 0.071,
                samples: 7,
            },
            Warning::SpreadStays {
                member: "sized".to_owned(),
                parameters: BTreeMap::from([("workloads".to_owned(), "mix".to_owned())]),
                metric: "profile: memcpy's own time".to_owned(),
                spread: 0.14,
                rounds: 10,
                why: "40 samples of the profile a sum: counting alone is ± 16 %".to_owned(),
            },
            Warning::TooFewSamples { figures: 24, samples: 3 },
            Warning::FrequencyChanged { share: 0.21 },
            Warning::StolenTime { share: 0.034 },
            Warning::ManyVariables { which: vec!["kernel".to_owned(), "commit".to_owned()] },
            Warning::NotInPageCache { file: "payloads".to_owned(), share: 0.12 },
            Warning::StillInPageCache { file: "payloads".to_owned(), share: 0.4 },
            Warning::ClaimNotMet {
                member: member(),
                claim: "calls".to_owned(),
                claimed: 0.1,
                counted: 1.0,
            },
            Warning::OtherLoad { busy_share: 0.25 },
            Warning::InstrumentLarge { member: member(), metric: metric(), share: 0.018 },
            Warning::ClientLimits {
                member: "nginx, downloads of 1000 bytes".to_owned(),
                share: 0.97,
            },
            Warning::MemberFailed {
                member: "xdp".to_owned(),
                found: "bind to queue 0 of sink: EBUSY".to_owned(),
            },
            Warning::Unknown,
        ]
    }

    /// Returns the warnings that follow from the rows alone: each measured figure with a large
    /// spread, and the number of figures with few samples. Published values are not judged.
    pub fn of_rows(rows: &[Row]) -> Vec<Warning> {
        let measured = || rows.iter().filter(|row| row.published.is_none());
        let noisy = measured().filter(|row| row.figure.spread > SPREAD_MAX);
        let mut warnings: Vec<_> = noisy
            .map(|row| Warning::NoisySpread {
                member: row.member.clone(),
                parameters: row.parameters.clone(),
                metric: row.metric.clone(),
                spread: row.figure.spread,
                samples: row.figure.samples.len(),
            })
            .collect();
        let few = measured().filter(|row| !row.is_count()).map(|row| row.figure.samples.len());
        // A derived value has no samples; the figure that it derives from is judged.
        let few: Vec<usize> = few.filter(|samples| (1..SAMPLES_MIN).contains(samples)).collect();
        if let Some(samples) = few.iter().copied().min() {
            warnings.push(Warning::TooFewSamples { figures: few.len(), samples });
        }
        warnings
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::SuperPacketsSwallowed { sink } => {
                write!(f, "the sink {sink} takes segmented sends whole")
            }
            Warning::ZerocopyCopied { member, parameters, share } => {
                write!(f, "{member}")?;
                for (name, value) in parameters {
                    write!(f, ", {name}={value}")?;
                }
                write!(f, ": {} of its zerocopy sends were copied", Percent(*share))
            }
            Warning::NoisySpread { member, parameters, metric, spread, samples } => {
                write!(f, "{member}")?;
                for (name, value) in parameters {
                    write!(f, ", {name}={value}")?;
                }
                let (spread, most) = (Percent(*spread), Percent(SPREAD_MAX));
                let plural = if *samples == 1 { "" } else { "s" };
                write!(f, ": {metric}: spread {spread} of {samples} sample{plural}, over {most}")
            }
            Warning::SpreadStays { member, parameters, metric, spread, rounds, why } => {
                write!(f, "{member}")?;
                for (name, value) in parameters {
                    write!(f, ", {name}={value}")?;
                }
                let (spread, most) = (Percent(*spread), Percent(SPREAD_WANTED));
                write!(f, ": {metric}: spread {spread} after {rounds} rounds, over {most}: {why}")
            }
            Warning::TooFewSamples { figures, samples } => {
                let subject = if *figures == 1 { "1 figure has" } else { "figures have" };
                if *figures != 1 {
                    write!(f, "{figures} ")?;
                }
                write!(f, "{subject} fewer than {SAMPLES_MIN} samples (the fewest {samples})")
            }
            Warning::FrequencyChanged { share } => {
                let share = Percent(*share);
                write!(f, "the processor's pace changed: the same work took up to {share} longer")
            }
            Warning::StolenTime { share } => {
                write!(f, "the hypervisor took {} of the cores' time", Percent(*share))
            }
            Warning::ManyVariables { which } => {
                let (count, which) = (which.len(), which.join(", "));
                write!(f, "{count} things differ between the two measurements: {which}")
            }
            Warning::NotInPageCache { file, share } => {
                write!(f, "{} of {file} was not in the page cache", Percent(*share))
            }
            Warning::StillInPageCache { file, share } => {
                write!(f, "{} of {file} stayed in the page cache", Percent(*share))
            }
            Warning::ClaimNotMet { member, claim, claimed, counted } => {
                write!(f, "{member}: claims {claimed:.3} {claim}, counted {counted:.3}")
            }
            Warning::OtherLoad { busy_share } => {
                write!(f, "other programs used {} of the cores' time", Percent(*busy_share))
            }
            Warning::InstrumentLarge { member, metric, share } => {
                write!(f, "{member}: {metric}: measuring itself cost {}", Percent(*share))?;
                write!(f, " of it, over {}", Percent(INSTRUMENT_SHARE_MAX))
            }
            Warning::ClientLimits { member, share } => {
                write!(f, "{member}: the client used {} of its core", Percent(*share))
            }
            Warning::MemberFailed { member, found } => {
                write!(f, "{member}: could not go on: {found}")
            }
            Warning::Unknown => write!(f, "a warning that this version does not know"),
        }
    }
}

/// A share as a percentage, with a digit after the point below 10.
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        let whole = percent.abs() >= 9.95 || (percent - percent.round()).abs() < 1e-9;
        let text = match percent.abs() {
            huge if huge >= 1e5 => format!("{percent:.0e} %"),
            _ if whole => format!("{percent:.0} %"),
            _ => format!("{percent:.1} %"),
        };
        f.pad(&text)
    }
}

/// Largest spread of a figure for publication.
pub const SPREAD_MAX: f64 = 0.05;
/// Largest spread at which an experiment stops adding rounds.
pub const SPREAD_WANTED: f64 = 0.10;
/// Fewest samples of a figure; with two, one disturbed sample moves the median.
pub const SAMPLES_MIN: usize = 5;
/// Largest share of the instrument's cost, which is subtracted, without a warning.
pub const INSTRUMENT_SHARE_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Figure;

    #[test]
    fn every_kind_has_an_example_of_one_line_and_a_cure() {
        let examples = Warning::examples();
        let mut lines: Vec<String> = examples.iter().map(Warning::to_string).collect();
        for (warning, line) in examples.iter().zip(&lines) {
            assert!(!line.is_empty() && !line.contains('\n'), "{line}");
            assert!(!line.ends_with('.') && !warning.cure().ends_with('.'), "{line}");
            assert!(warning.cure().len() > 10, "{line}");
            // No wildcard: a new variant does not compile here until it is in the examples.
            match warning {
                Warning::SuperPacketsSwallowed { .. }
                | Warning::ZerocopyCopied { .. }
                | Warning::NoisySpread { .. }
                | Warning::SpreadStays { .. }
                | Warning::TooFewSamples { .. }
                | Warning::FrequencyChanged { .. }
                | Warning::StolenTime { .. }
                | Warning::ManyVariables { .. }
                | Warning::NotInPageCache { .. }
                | Warning::StillInPageCache { .. }
                | Warning::ClaimNotMet { .. }
                | Warning::OtherLoad { .. }
                | Warning::InstrumentLarge { .. }
                | Warning::ClientLimits { .. }
                | Warning::MemberFailed { .. }
                | Warning::Unknown => {}
            }
        }
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), VARIANTS, "one example a variant");
    }

    /// Number of variants in the match above.
    const VARIANTS: usize = 16;

    #[test]
    fn warnings_survive_a_file() {
        for warning in Warning::examples() {
            let text = serde_json::to_string(&warning).unwrap();
            assert_eq!(serde_json::from_str::<Warning>(&text).unwrap(), warning, "{text}");
        }
        let newer = r#"{"kind":"moon_too_full","phase":0.99}"#;
        assert_eq!(serde_json::from_str::<Warning>(newer).unwrap(), Warning::Unknown);
    }

    #[test]
    fn rows_are_doubted_by_spread_and_by_number() {
        let row = |member: &str, metric: &str, unit: &str, samples: &[f64]| {
            Row::new("paths", member, metric, unit, Figure::of(samples.to_vec()))
        };
        let calm = row("a", "CPU cost", "s/GB", &[1.0, 1.05, 0.95, 1.0, 1.0]);
        let noisy = row("b", "CPU cost", "s/GB", &[1.0, 1.2, 0.8, 1.1, 0.9]).with("bytes", 64);
        let few = row("c", "CPU cost", "s/GB", &[1.0, 1.0]);
        let count = row("c", "crossings", "per packet", &[2.0]);
        let reference = Row {
            figure: Figure::published(0.73),
            published: Some("the study, section 4".to_owned()),
            ..row("d", "CPU cost", "s/GB", &[1.0])
        };
        let derived = Row { figure: Figure::derived(3.0), ..row("e", "maximum", "ms", &[1.0]) };
        let sound = [calm.clone(), count.clone(), reference.clone(), derived];
        assert_eq!(Warning::of_rows(&sound), []);
        let found = Warning::of_rows(&[calm, noisy, few, count, reference]);
        let lines: Vec<_> = found.iter().map(Warning::to_string).collect();
        let expected = [
            "b, bytes=64: CPU cost: spread 10 % of 5 samples, over 5 %",
            "1 figure has fewer than 5 samples (the fewest 2)",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn percentages_are_short() {
        let shown = [0.0, 0.034, 0.05, 0.0995, 0.25, 1.0, 1e9].map(|s| Percent(s).to_string());
        assert_eq!(shown, ["0 %", "3.4 %", "5 %", "10 %", "25 %", "100 %", "1e11 %"]);
    }
}
