// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part memcpy: the kernel's copies by the stock routine and by others, in User Mode Linux.
//!
//! One kernel has all variants and selects one when it boots. First a boot tests them all. Then
//! every round boots each variant once, every other round in reverse order, and runs the same
//! workloads, for as many rounds as [`rounds`] requires. A workload's figure is the processor time
//! of all processes of the guest for its bytes, or for its calls. While it runs, the kernel's own
//! process is sampled, so that memcpy's own time is reported beside the total ([`super::profile`]).
//! A last boot counts the copied bytes by caller.
//!
//! Sources: Saito and Oikawa, sections 5 to 7; kernel/memcpy for the variants.
//! Does not measure a variant in a native kernel; there each use of vector registers has a cost of
//! its own (part fpu).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::boot::{Guest, Observer, Unobserved, boot};
use super::profile::{PERIOD_SECONDS, Profile, Profiler};
use super::uml::{self, Uml};
use super::{KernelLab, paper};
use measure::Error;
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::Warning;

mod rounds;
mod sizes;
mod times;

use rounds::{Next, Stopping};
use times::Times;
pub(super) use times::{FUNCTIONS, OWN, OWN_RATIO, SHARE, WHOLE};

/// Returns the selected variants, all when none is named; the reference is always included.
pub(super) fn variants(asked: &[String]) -> Result<Vec<&'static str>, Error> {
    if let Some(other) = asked.iter().find(|name| !VARIANTS.contains(&name.as_str())) {
        return Err(Error::Caller {
            what: format!("--variant {other}"),
            found: format!("no such memcpy; write one of {}", VARIANTS.join(", ")),
        });
    }
    let is_asked =
        |name: &&str| asked.is_empty() || *name == STOCK || asked.iter().any(|other| other == name);
    Ok(VARIANTS.iter().copied().filter(is_asked).collect())
}

pub(super) fn measure(lab: &KernelLab<'_>, results: &mut Results) -> Result<(), Error> {
    let options = lab.options;
    let image = UmlImage { uml: Uml::ready(lab)?, root: uml::root(lab, ("memcpy", true), &[])? };
    let tested = self_test(lab, &image, results)?;
    let mut members = match (options.members.is_empty(), options.quick) {
        (true, true) => QUICK_VARIANTS.to_vec(),
        _ => variants(&options.members)?,
    };
    members.retain(|variant| {
        let is_here = tested.contains(*variant);
        if !is_here {
            let note = format!("memcpy: {variant} is not for this processor");
            results.notes.push(note);
        }
        is_here
    });
    let words: &[&str] = if options.quick { &QUICK_WORDS } else { &WORDS };
    let profiled = match Profiler::probe() {
        Ok(()) => true,
        Err(found) => {
            results.notes.push(format!("memcpy: no profile: {found}"));
            false
        }
    };
    let stopping = Stopping::of(options);
    let plan = Plan { stopping, words, profiled };
    let mut times = Times::default();
    plan.run(lab, &image, members, &mut times, results);
    paper::memcpy(results);
    if !options.stopped() {
        sizes::measure(lab, &image, results)?;
    }
    Ok(())
}

/// Plan of the rounds.
struct Plan<'a> {
    stopping: Stopping,
    words: &'a [&'a str],
    profiled: bool,
}

impl Plan<'_> {
    /// Runs rounds until [`Stopping`] ends them; adds the rows and warnings.
    fn run(
        &self,
        lab: &KernelLab<'_>,
        image: &UmlImage,
        mut members: Vec<&'static str>,
        times: &mut Times,
        results: &mut Results,
    ) {
        let (began, mut done) = (Instant::now(), 0);
        let variants = members.len();
        let ended = loop {
            let widest = || rounds::widest(&times.rows(self.stopping.rounds_a_sample(done)));
            let more = match self.stopping.next(done, began.elapsed(), widest) {
                Next::Rounds(more) if !lab.options.stopped() && !members.is_empty() => more,
                ended => break ended,
            };
            for round in done..done + more {
                self.round(lab, (image, round), &mut members, times, results);
            }
            done += more;
        };
        let ended = match ended {
            Next::Calm => "every spread was at most 10 %",
            Next::MostRounds => "the most rounds",
            Next::TimeLimit => "the time limit",
            Next::Rounds(_) => "interrupted",
        };
        let done = done.min(times.most_rounds());
        let summed = self.stopping.rounds_a_sample(done);
        results.notes.push(format!(
            "memcpy: {done} interleaved rounds of {variants} variants, a boot each ({}; ended by: \
             {ended}); a sample is the sum of {summed}; CPU cost: processor seconds of all \
             processes of the guest per 10⁹ bytes that cross between its programs and its kernel; \
             profile: {:.0} samples a second of the kernel's own process, outside the machine's \
             kernel; n samples are uncertain by √n",
            self.stopping.words(),
            1.0 / PERIOD_SECONDS
        ));
        let before = results.rows.len();
        times.report(summed, results);
        let stay = rounds::stays(&results.rows[before..], done, &times.machine());
        if matches!(ended, "the most rounds" | "the time limit") && self.stopping.is_adaptive() {
            stay.into_iter().for_each(|warning| results.warn(warning));
        }
    }

    /// Boots each variant; a variant that fails has no more rounds, as ratios are computed within
    /// one.
    fn round(
        &self,
        lab: &KernelLab<'_>,
        (image, round): (&UmlImage, usize),
        members: &mut Vec<&'static str>,
        times: &mut Times,
        results: &mut Results,
    ) {
        let count = members.len();
        for turn in 0..count {
            if lab.options.stopped() {
                return;
            }
            let variant = members[measure::schedule::in_turn(round, turn, count)];
            lab.step(&format!("memcpy: {variant}, round {}", round + 1));
            let run = Run { image, variant, words: self.words, profiled: self.profiled };
            match run.boot(lab) {
                Ok((guest, profile)) => times.add(variant, &guest, profile),
                Err(_) if lab.options.stopped() => return,
                Err(error) => {
                    results.complete = false;
                    let member = variant.to_owned();
                    results.warn(Warning::MemberFailed { member, found: error.to_string() });
                }
            }
        }
        members.retain(|variant| times.rounds(variant) == round + 1);
    }
}

/// A kernel with all variants, and a guest.
struct UmlImage {
    uml: Uml,
    root: PathBuf,
}

impl UmlImage {
    fn boot(
        &self,
        lab: &KernelLab<'_>,
        what: &str,
        words: (&[&str], &[&str]),
        observer: &mut dyn Observer,
    ) -> Result<Guest, Error> {
        let mut command = self.uml.command(&self.root, words, LIMIT);
        let mut guest = Guest::default();
        boot(what, &mut command, LIMIT + GRACE, (lab, observer), &mut guest)?;
        Ok(guest)
    }
}

/// A boot of one variant.
struct Run<'a> {
    image: &'a UmlImage,
    variant: &'static str,
    words: &'a [&'a str],
    profiled: bool,
}

impl Run<'_> {
    fn boot(&self, lab: &KernelLab<'_>) -> Result<(Guest, Option<Profile>), Error> {
        let what = format!("User Mode Linux with {}", self.variant);
        let select = format!("{SELECT}{}", self.variant);
        let mut profiler = self.profiled.then(|| Profiler::new(&self.image.uml.linux));
        let mut nobody = Unobserved;
        let observer: &mut dyn Observer = match &mut profiler {
            Some(profiler) => profiler,
            None => &mut nobody,
        };
        let guest = self.image.boot(lab, &what, (&[&select], self.words), observer)?;
        Ok((guest, profiler.map(Profiler::profile)))
    }
}

/// Tests all variants in a boot; returns those that this processor supports and that are correct.
fn self_test(
    lab: &KernelLab<'_>,
    image: &UmlImage,
    results: &mut Results,
) -> Result<BTreeSet<String>, Error> {
    lab.step("memcpy: self-test of all variants");
    let what = "the self-test of memcpy in User Mode Linux";
    let guest = image.boot(lab, what, (&[SELF_TEST, SPEED], &[]), &mut Unobserved)?;
    if guest.self_tests.is_empty() {
        let found = "the kernel tested none; is it of this checkout's kernel/memcpy?".to_owned();
        return Err(Error::Host { what: what.to_owned(), found });
    }
    let mut right = BTreeSet::new();
    for test in &guest.self_tests {
        let row = |metric: &str, count: u64| {
            let figure = Figure::of(vec![count as f64]);
            Row::new("kernel", &test.variant, metric, "cases", figure)
        };
        results.rows.push(row("self-test, compared with a plain loop", test.cases));
        results.rows.push(row("self-test, wrong", test.bad));
        if test.bad == 0 && test.cases > 0 {
            right.insert(test.variant.clone());
        } else {
            results.complete = false;
            let found = format!("self-test: {} of {} cases wrong", test.bad, test.cases);
            results.warn(Warning::MemberFailed { member: test.variant.clone(), found });
        }
    }
    // Details, shown below the CPU costs.
    let speeds = guest.speeds.iter().map(|speed| {
        // Best of the kernel's repetitions.
        let figure = Figure::derived(speed.number("mb_per_s") as f64 / 1e3);
        let row = Row::new("kernel", &speed.name, SPEEDS, "GB/s", figure);
        row.with("bytes", speed.number("bytes")).as_detail()
    });
    results.rows.extend(speeds);
    Ok(right)
}

/// Reference of the other variants.
const STOCK: &str = "stock";
/// Names in kernel/memcpy.
const VARIANTS: [&str; 7] = [STOCK, "movsb", "movsq", "sse_published", "avx2", "avx512", "sized"];
const QUICK_VARIANTS: [&str; 3] = [STOCK, "sse_published", "sized"];
/// Groups of guest/src/workloads. A round of the mix has few samples in memcpy, so it runs twice.
const WORDS: [&str; 4] = ["copies", "network", "mix", "mix"];
const QUICK_WORDS: [&str; 1] = ["large_buffers"];
const SPEEDS: &str = "speed in the kernel, one buffer to another";
/// Parameters of the kernel, from kernel/memcpy.
const SELECT: &str = "pagewire_memcpy=";
const SELF_TEST: &str = "pagewire_memcpy_test";
const SPEED: &str = "pagewire_memcpy_speed";
const LIMIT: Duration = Duration::from_secs(300);
/// Extra time, as the script's own message about a hanging guest is better.
const GRACE: Duration = Duration::from_secs(15);
