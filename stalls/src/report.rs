// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report: pairs with their places, instructions, counts and cost, as text and as JSON.
//!
//! The terminal shows the most frequent pairs and the number of the rest; JSON has all of them.
//!
//! Sources: `perf annotate`, whose reader has to find the store alone.
//! Sets no pass/fail thresholds: one blocked load a second is insignificant, one a packet is a
//! fault.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::counters::Samples;
use crate::images::Place;
use crate::pairing::{self, Toucher};
use crate::{BlockedLoadCost, StallOptions, Trace, Tracer};
use measure::Error;
use measure::HostFacts;
use measure::report::{number, plain, wrapped};
use measure::results::Results;

/// Results of one run of a program.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the tracer.
    pub tracer: &'static str,
    /// The command as typed, the program's path reduced to its name.
    pub command: String,
    /// Commit that this program was built from.
    pub commit: String,
    /// Time of the report: UTC, RFC 3339.
    pub taken: String,
    /// Facts about the machine.
    pub host: HostFacts,
    /// Exit status of the program, or 128 and the signal that ended it.
    pub exit: Option<i32>,
    /// Number of stores before a load that it was compared with; 0 for a counter.
    pub window_stores: usize,
    /// Number of instructions before a load that it was compared with.
    pub window_instructions: u64,
    /// Instructions traced.
    pub instructions: u64,
    /// Loads of these instructions.
    pub loads: u64,
    /// Stores of these instructions.
    pub stores: u64,
    /// Loads that wait for a store, those of pairs beyond the list included; for a counter, events.
    pub blocked: u64,
    /// Loads that were not judged: gathers, and loads of saved state.
    pub unjudged: u64,
    /// Cost of a blocked load here, measured in this run.
    pub cost: BlockedLoadCost,
    /// Names of the wanted functions that the program has.
    pub functions: Vec<String>,
    /// Loads with the stores they wait for, the most frequent first.
    pub pairs: Vec<Pair>,
    /// Blocked loads by function, from a counter.
    pub sampled: Vec<Sampled>,
    /// Other remarks for the reader.
    pub notes: Vec<String>,
}

/// A load and the stores it waits for.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The wanted function that made the load, itself or through a function it called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Number of times.
    pub count: u64,
    /// Upper bound of the total cost, in nanoseconds.
    pub cost_ns: f64,
    /// False when a mask decides whether load and store overlap.
    pub certain: bool,
    /// True when some of the load's bytes are loaded from the cache and not from a store.
    pub rest_of_cache: bool,
    /// The load.
    pub load: Touch,
    /// The stores that have some of its bytes, the youngest first.
    pub stores: Vec<Touch>,
}

/// An instruction that touches memory.
#[derive(Clone, Debug, Serialize)]
pub struct Touch {
    /// Bytes it loads or stores.
    pub bytes: u32,
    /// In Intel's syntax; empty when the code is gone.
    pub instruction: String,
    /// Symbol and source line of the instruction.
    #[serde(flatten)]
    pub place: Place,
}

/// Blocked loads of a function, by samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// The function, or the program or object when it has no name.
    pub function: String,
    /// The line with the most samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Samples.
    pub samples: u64,
    /// Blocked loads that the samples represent.
    pub count: u64,
    /// Upper bound of the total cost, in nanoseconds.
    pub cost_ns: f64,
}

impl Report {
    fn new(tracer: &Tracer, options: &StallOptions) -> Report {
        let Results { command, commit, taken, host, .. } =
            Results::new("stalls", options.typed.iter().cloned());
        Report {
            tracer: tracer.name,
            command,
            commit,
            taken,
            host,
            exit: None,
            window_stores: 0,
            window_instructions: 0,
            instructions: 0,
            loads: 0,
            stores: 0,
            blocked: 0,
            unjudged: 0,
            cost: BlockedLoadCost::here(),
            functions: Vec::new(),
            pairs: Vec::new(),
            sampled: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn of_trace(
        tracer: &Tracer,
        options: &StallOptions,
        trace: Trace,
    ) -> Result<Report, Error> {
        let Trace { pairing, code, images, functions, exit, notes } = trace;
        if let Some(wanted) = &options.function
            && functions.is_empty()
        {
            return Err(Error::Caller {
                what: format!("function {wanted}"),
                found: "no function of such a name is in the symbols of what was loaded; write a \
                        part of its demangled name, and do not strip the program"
                    .to_owned(),
            });
        }
        let mut report = Report { exit, notes, ..Report::new(tracer, options) };
        let totals = pairing.totals();
        let reach = options.reach();
        (report.window_stores, report.window_instructions) = (reach.stores, reach.instructions);
        (report.instructions, report.loads) = (totals.instructions, totals.loads);
        (report.stores, report.unjudged) = (totals.stores, totals.unjudged);
        report.blocked = totals.unlisted;
        let added_ns = report.cost.added_ns();
        let touch = |toucher: &Toucher| Touch {
            bytes: toucher.bytes,
            instruction: code.text(toucher.site).unwrap_or_default(),
            place: images.place(toucher.site),
        };
        for (pair, count) in pairing.into_pairs() {
            let pairing::Pair { part, load, stores, rest, certain } = pair;
            report.blocked += if certain { count } else { 0 };
            let number = (part as usize).checked_sub(1);
            report.pairs.push(Pair {
                within: number.and_then(|number| functions.get(number).cloned()),
                count,
                cost_ns: count as f64 * added_ns,
                certain,
                rest_of_cache: rest,
                load: touch(&load),
                stores: stores.iter().map(touch).collect(),
            });
        }
        if totals.unlisted > 0 {
            let unlisted = totals.unlisted;
            report.notes.push(format!("{unlisted} blocked loads are of pairs beyond the list"));
        }
        if options.function.is_some() && totals.instructions == 0 {
            let count = functions.len();
            report.notes.push(format!("none of the {count} functions of that name was called"));
        }
        report.functions = functions;
        Ok(report)
    }

    pub(crate) fn of_samples(tracer: &Tracer, options: &StallOptions, samples: Samples) -> Report {
        let mut report = Report { exit: samples.exit, ..Report::new(tracer, options) };
        report.blocked = samples.events;
        let added_ns = report.cost.added_ns();
        let mut functions: BTreeMap<String, BTreeMap<Option<String>, u64>> = BTreeMap::new();
        for (address, count) in &samples.at {
            let place = samples.images.place(*address);
            let name = if place.function.is_empty() { place.image } else { place.function };
            let wanted = options.function.as_ref().is_none_or(|part| name.contains(part));
            if wanted {
                *functions.entry(name).or_default().entry(place.source).or_default() += count;
            }
        }
        for (function, lines) in functions {
            let all: u64 = lines.values().sum();
            let most = lines.into_iter().max_by_key(|(_, count)| *count);
            let count = all * samples.period;
            report.sampled.push(Sampled {
                function,
                source: most.and_then(|(source, _)| source),
                samples: all,
                count,
                cost_ns: count as f64 * added_ns,
            });
        }
        report.sampled.sort_by_key(|row| std::cmp::Reverse(row.samples));
        let Samples { event, period, others, lost, .. } = samples;
        report.notes.push(format!("{event}, one sample each {period} events"));
        report.notes.push("which store: the tracers lackey and steps find it".to_owned());
        if others + lost > 0 {
            let text = format!("{others} samples of processes that it started, {lost} lost");
            report.notes.push(text);
        }
        report
    }

    /// True when a load was found that waits.
    pub fn has_stalls(&self) -> bool {
        self.pairs.iter().any(|pair| pair.certain) || !self.sampled.is_empty()
    }

    /// Returns the report as JSON, with a line break at the end.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a report is plain data");
        text + "\n"
    }

    /// Returns the report as text for a terminal.
    pub fn terminal(&self) -> String {
        let mut text = String::new();
        let Report { tracer, blocked, loads, .. } = self;
        let up_to = cost(*blocked as f64 * self.cost.added_ns());
        let of = if *loads > 0 { format!(" of {loads}") } else { String::new() };
        let head = format!("lab stalls by {tracer}: {blocked} blocked loads{of}, up to {up_to}");
        wrapped(&mut text, "", &head);
        for (name, value) in self.facts() {
            wrapped(&mut text, &format!("{name:FACT$}"), &value);
        }
        for note in &self.notes {
            wrapped(&mut text, "·", note);
        }
        for pair in self.pairs.iter().take(PAIRS_SHOWN) {
            text.push('\n');
            shown(&mut text, pair);
        }
        if let Some(more @ 1..) = self.pairs.len().checked_sub(PAIRS_SHOWN) {
            let _ = writeln!(text, "\nand {more} more pairs; the JSON form has all");
        }
        if !self.sampled.is_empty() {
            text.push('\n');
        }
        for row in self.sampled.iter().take(PAIRS_SHOWN) {
            let Sampled { function, source, samples, count, cost_ns } = row;
            let source = source.as_deref().unwrap_or_default();
            let up_to = cost(*cost_ns);
            let line = format!("{function} {source} ({samples} samples), up to {up_to}");
            wrapped(&mut text, &format!("{count:>COUNT$}×"), &line);
        }
        if self.pairs.is_empty() && self.sampled.is_empty() {
            text.push_str("\nno load waits for a store\n");
        }
        text
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let BlockedLoadCost { blocked_ns, forwarded_ns } = self.cost;
        let (blocked, forwarded) = (number(blocked_ns), number(forwarded_ns));
        let mut facts = vec![
            ("command", self.command.clone()),
            ("host", self.host.line()),
            ("cost", format!("blocked {blocked} ns, forwarded {forwarded} ns, measured now")),
        ];
        if self.window_stores > 0 {
            let Report { window_stores, window_instructions, instructions, unjudged, .. } = self;
            let text = format!("{window_stores} stores, {window_instructions} instructions");
            facts.push(("window", text));
            let rest = match unjudged {
                0 => String::new(),
                count => format!(", {count} loads not judged (gathers, saved state)"),
            };
            facts.push(("seen", format!("{instructions} instructions{rest}")));
        }
        match self.exit {
            Some(0) | None => {}
            Some(status) => facts.push(("exit", format!("the program ended with {status}"))),
        }
        facts
    }
}

/// Writes a pair in a few lines: cost and place, then its instructions.
fn shown(text: &mut String, pair: &Pair) {
    let Pair { within, count, cost_ns, certain, rest_of_cache, load, stores } = pair;
    let function = name(&load.place);
    let mut head = format!("{function}, up to {}", cost(*cost_ns));
    if let Some(within) = within.as_ref().filter(|within| **within != function) {
        let _ = write!(head, ", within {within}");
    }
    if !certain {
        head.push_str(" (only where the mask lets them meet)");
    }
    wrapped(text, &format!("{count:>COUNT$}×"), &head);
    touched(text, "load", load, &function);
    for store in stores {
        touched(text, "store", store, &function);
    }
    if *rest_of_cache {
        let _ = writeln!(text, "{:COUNT$}  rest of the cache", "");
    }
}

/// Writes one instruction: direction, bytes, text and line; its function when it is another.
fn touched(text: &mut String, what: &str, touch: &Touch, function: &str) {
    let Touch { bytes, instruction, place } = touch;
    let mut at = match &place.source {
        Some(source) => nearer(source).to_owned(),
        None => format!("{} +{:#x}", place.image, place.address),
    };
    let own = name(place);
    if own != function {
        let _ = write!(at, " in {own}");
    }
    if let Some(inlined) = &place.inlined {
        let _ = write!(at, " ({inlined}, inlined)");
    }
    let instruction = if instruction.is_empty() { "(code is gone)" } else { instruction };
    let head = format!("{:COUNT$}  {what:5} {bytes:>2}  {:TEXT$}", "", plain(instruction));
    let place = plain(&at);
    if head.chars().count() + 1 + place.chars().count() <= COLUMNS {
        let _ = writeln!(text, "{head} {place}");
    } else {
        let _ = writeln!(text, "{}\n{:PLACE$}{place}", head.trim_end(), "");
    }
}

/// Shortens the path of a file below the working directory to a relative one.
fn nearer(source: &str) -> &str {
    let here = std::env::current_dir().unwrap_or_default();
    let rest =
        here.to_str().filter(|here| here.len() > 1).and_then(|here| source.strip_prefix(here));
    rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(source)
}

fn name(place: &Place) -> String {
    if place.function.is_empty() { place.image.clone() } else { place.function.clone() }
}

/// Formats nanoseconds in a unit that suits them.
fn cost(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{} ns", number(ns)),
        _ if ns < 1e6 => format!("{} µs", number(ns / 1e3)),
        _ if ns < 1e9 => format!("{} ms", number(ns / 1e6)),
        _ => format!("{} s", number(ns / 1e9)),
    }
}

const FACT: usize = 8;
const COUNT: usize = 9;
const TEXT: usize = 36;
const COLUMNS: usize = 100;
/// Column of a place that has a line of its own.
const PLACE: usize = COUNT + 12;
const PAIRS_SHOWN: usize = 20;
