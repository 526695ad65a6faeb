// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text in which Prometheus reads metrics.
//!
//! Every label value is from a list in this program (protocols, paths, causes, limits): no request
//! can create a series. Costs one string for a scrape.
//!
//! Sources: Prometheus, "Exposition formats" (text format 0.0.4); OpenMetrics 1.0.
//! Does not measure ([`super::metrics`] does).

use std::fmt::{Display, Write};

use hdrhistogram::Histogram;

/// Format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextFormat {
    Prometheus,
    OpenMetrics,
}

impl TextFormat {
    /// Returns the format that a client's Accept requests.
    pub(super) fn wanted(accept: Option<&str>) -> TextFormat {
        let names = |kind: &str| kind.trim().starts_with("application/openmetrics-text");
        match accept.is_some_and(|accept| accept.split(',').any(names)) {
            true => TextFormat::OpenMetrics,
            false => TextFormat::Prometheus,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The text written so far.
pub(super) struct Exposition {
    text: String,
    format: TextFormat,
}

impl Exposition {
    pub(super) fn new(format: TextFormat) -> Exposition {
        Exposition { text: String::with_capacity(16 << 10), format }
    }

    /// Adds a counter; its name ends with `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "counter");
        self.sample(name, "", value);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.sample(name, "", value);
    }

    /// Adds a counter for each value of a label.
    pub(super) fn counters<V: Display>(
        &mut self,
        (name, label): (&str, &str),
        help: &str,
        values: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        self.head(name, help, "counter");
        self.labelled((name, label), values);
    }

    /// Adds a gauge for each value of a label.
    pub(super) fn gauges<V: Display>(
        &mut self,
        (name, label): (&str, &str),
        help: &str,
        values: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        self.head(name, help, "gauge");
        self.labelled((name, label), values);
    }

    /// Adds a histogram of microseconds, in seconds, with these upper bounds in microseconds.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        (histogram, bounds): (&Histogram<u64>, &[u64]),
    ) {
        self.head(name, help, "histogram");
        let (mut below, mut from) = (0, 0);
        for &bound in bounds {
            below += histogram.count_between(from, bound);
            from = bound + 1;
            let le = bound as f64 / 1e6;
            self.sample(&format!("{name}_bucket"), &format!("le=\"{le}\""), below);
        }
        self.sample(&format!("{name}_bucket"), "le=\"+Inf\"", histogram.len());
        self.sample(&format!("{name}_sum"), "", histogram.mean() * histogram.len() as f64 / 1e6);
        self.sample(&format!("{name}_count"), "", histogram.len());
    }

    /// Returns the text.
    pub(super) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn labelled<V: Display>(
        &mut self,
        (name, label): (&str, &str),
        values: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        for (value, number) in values {
            self.sample(name, &format!("{label}=\"{value}\""), number);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        let family = match self.format {
            // A family of counters has the name without its ending.
            TextFormat::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
            TextFormat::Prometheus => name,
        };
        // Writing to a string has no error.
        let _ = write!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_in_both_formats() {
        let mut late = Histogram::new_with_bounds(1, 60_000_000, 2).unwrap();
        late.record_n(500, 3).unwrap();
        late.record(2_000_000).unwrap();
        let text = |format| {
            let mut text = Exposition::new(format);
            text.counters(("a_total", "limit"), "Help.", [("x", 1), ("y", 2)]);
            text.histogram("b_seconds", "Late.", (&late, &[1_000, 1_000_000]));
            text.finish()
        };
        let expected = "# HELP a_total Help.\n# TYPE a_total counter\na_total{limit=\"x\"} 1\n\
            a_total{limit=\"y\"} 2\n# HELP b_seconds Late.\n# TYPE b_seconds histogram\n\
            b_seconds_bucket{le=\"0.001\"} 3\nb_seconds_bucket{le=\"1\"} 3\n\
            b_seconds_bucket{le=\"+Inf\"} 4\nb_seconds_sum ";
        let found = text(TextFormat::Prometheus);
        assert!(found.starts_with(expected) && found.ends_with("b_seconds_count 4\n"), "{found}");
        let open = text(TextFormat::OpenMetrics);
        assert!(open.starts_with("# HELP a Help.\n# TYPE a counter\na_total{limit=\"x\"} 1\n"));
        assert!(open.ends_with("b_seconds_count 4\n# EOF\n"), "{open}");
    }

    #[test]
    fn format_is_what_the_client_accepts() {
        let wanted = TextFormat::wanted;
        assert_eq!(wanted(None), TextFormat::Prometheus);
        assert_eq!(wanted(Some("text/plain;version=0.0.4")), TextFormat::Prometheus);
        let both = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
        assert_eq!(wanted(Some(both)), TextFormat::OpenMetrics);
    }
}
