// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guest from boot to end: its console output, and the CPU cost of each workload on this machine.
//!
//! The guest announces a workload and then sleeps, so the exact moment of reading the processor
//! time does not matter; at a workload's end the processor time is read before anything else is
//! done. The time is that of the emulator's or User Mode Linux's processes (`load`), so the guest's
//! own clock is not used.
//!
//! Does not evaluate the output; the parts do.

use std::process::Command;
use std::time::Duration;

use super::console::{self, Checked, Copies, Done, Line, Outcome, SelfTest};
use super::load::Family;
use super::program::{Program, Watch};
use measure::Error;
use measure::meter::{Begun, CpuCost, Meter};

/// Output and CPU cost of a guest.
#[derive(Debug, Default)]
pub(super) struct Guest {
    pub(super) ran: Vec<Ran>,
    pub(super) checks: Vec<Checked>,
    pub(super) copies: Vec<Copies>,
    pub(super) self_tests: Vec<SelfTest>,
    pub(super) speeds: Vec<Done>,
    pub(super) vectors: Vec<Done>,
    pub(super) notes: Vec<String>,
}

/// A workload that ran.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) done: Done,
    /// Processor time of all processes of the guest, on this machine.
    pub(super) processor: Duration,
    /// Activity of the machine meanwhile; the guest's time is `apart`.
    pub(super) cost: CpuCost,
}

impl Guest {
    fn results(&self) -> usize {
        let Guest { ran, checks, copies, self_tests, speeds, vectors, notes } = self;
        let texts = checks.len() + copies.len() + notes.len();
        ran.len() + self_tests.len() + speeds.len() + vectors.len() + texts
    }

    /// Counts the claims that held, failed and were skipped.
    pub(super) fn counted(&self) -> [usize; 3] {
        [Outcome::Holds, Outcome::Fails, Outcome::Skipped]
            .map(|outcome| self.checks.iter().filter(|checked| checked.outcome == outcome).count())
    }
}

/// Observer of the workloads.
pub(super) trait Observer {
    /// Called when a workload begins in the guest with these processes.
    fn begin(&mut self, family: &Family) -> Result<(), Error>;
    /// Called when the workload has ended.
    fn end(&mut self, name: &str) -> Result<(), Error>;
}

/// Observer that does nothing.
pub(super) struct Unobserved;

impl Observer for Unobserved {
    fn begin(&mut self, _: &Family) -> Result<(), Error> {
        Ok(())
    }

    fn end(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// Boots a guest by `command` and ends it after `limit`. After an error, `guest` has the output up
/// to it.
///
/// # Errors
/// [`Error::Host`] when the guest dies, hangs, prints a malformed line, or its script fails.
pub(super) fn boot(
    what: &str,
    command: &mut Command,
    limit: Duration,
    (watch, observer): (&dyn Watch, &mut dyn Observer),
    guest: &mut Guest,
) -> Result<(), Error> {
    let wrong = |found: String| Error::Host { what: what.to_owned(), found };
    let mut program = Program::start(what, command, limit)?;
    let meter = Meter::of_this_process();
    let mut running: Option<(String, Duration, Begun<'_>)> = None;
    let mut ended = false;
    while let Some(line) = program.line(watch)? {
        match console::read(&line).map_err(wrong)? {
            Line::Begin(name) => {
                let family = Family::of(program.pid());
                observer.begin(&family)?;
                watch.progress(&name);
                running = Some((name, family.processor_time(), meter.begin()));
            }
            Line::Done(done) => {
                let now = Family::of(program.pid()).processor_time();
                observer.end(&done.name)?;
                let begun = running.take().filter(|(name, ..)| *name == done.name);
                let Some((_, before, begun)) = begun else {
                    return Err(wrong(format!("{} ended and had not begun", done.name)));
                };
                let processor = now.saturating_sub(before);
                guest.ran.push(Ran { done, processor, cost: begun.end(processor) });
            }
            Line::Checked(checked) => guest.checks.push(checked),
            Line::Copies(copies) => guest.copies.push(copies),
            Line::SelfTest(test) => guest.self_tests.push(test),
            Line::Speed(speed) => guest.speeds.push(speed),
            Line::Vector(done) => guest.vectors.push(done),
            Line::Note(note) => guest.notes.push(note),
            Line::End => ended = true,
            Line::Message => {}
        }
        if guest.results() > RESULTS_MAX {
            return Err(wrong(format!("more than {RESULTS_MAX} results; ended")));
        }
    }
    program.finish(watch)?;
    match (ended, running) {
        (true, None) => Ok(()),
        (_, Some((name, ..))) => Err(wrong(format!("ended while {name} ran"))),
        (false, None) => Err(wrong("ended without the line `guest: end`".to_owned())),
    }
}

/// Limit of lines, far above the output of a guest.
const RESULTS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::super::program::tests::{Heard, script};
    use super::*;

    #[derive(Default)]
    struct Noted(Vec<String>);

    impl Observer for Noted {
        fn begin(&mut self, family: &Family) -> Result<(), Error> {
            self.0.push(format!("begin {}", family.processor_time() < Duration::from_secs(60)));
            Ok(())
        }

        fn end(&mut self, name: &str) -> Result<(), Error> {
            self.0.push(format!("end {name}"));
            Ok(())
        }
    }

    /// Boots a shell script in place of a guest.
    fn booted(text: &str, limit: Duration) -> (Guest, Vec<String>, Result<(), String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uml/boot.sh");
        script(&path, text);
        let (mut guest, mut noted) = (Guest::default(), Noted::default());
        let heard = Heard::default();
        let mut command = Command::new(&path);
        let done = boot("booting", &mut command, limit, (&heard, &mut noted), &mut guest);
        (guest, noted.0, done.map_err(|error| error.to_string()))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_workload_costs_what_its_processes_ran() {
        let text = "echo '[ 0.1] pagewire_memcpy: avx2 cases=10 bad=0'\n\
            echo 'guest: begin idle'; sleep 0.02; echo 'guest: end-of idle calls=1'; sleep 0.1\n\
            echo 'guest: begin busy'; sleep 0.05\n\
            (i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done)\n\
            echo 'guest: end-of busy bytes=1000 wall_ns=5'; sleep 0.1\n\
            echo 'guest: ok one'; echo 'not ok 2 - two'; echo 'ok 3 - three # SKIP'\n\
            echo 'guest: memcpy-sizes here 64 3'; echo 'guest: end'";
        let (guest, noted, done) = booted(text, LONG);
        done.unwrap();
        assert_eq!(noted, ["begin true", "end idle", "begin true", "end busy"]);
        assert_eq!(guest.counted(), [1, 1, 1]);
        assert_eq!((guest.copies.len(), guest.self_tests[0].cases), (1, 10));
        let [idle, busy] = &guest.ran[..] else { panic!("two workloads: {:?}", guest.ran) };
        assert_eq!((busy.done.name.as_str(), busy.done.number("bytes")), ("busy", 1000));
        assert!(busy.processor > Duration::from_millis(30), "{busy:?}");
        assert!(idle.processor < busy.processor, "{idle:?}, {busy:?}");
    }

    #[test]
    fn a_guest_that_dies_midway_is_an_error_with_its_last_words() {
        let text = "echo 'guest: ok first'; echo 'guest: begin x'; echo 'Kernel panic'; exit 134";
        let (guest, _, done) = booted(text, LONG);
        let expected = "booting: exit status: 134; guest: ok first; guest: begin x; Kernel panic";
        assert_eq!(done.unwrap_err(), expected);
        assert_eq!(guest.counted(), [1, 0, 0], "what it said until then is kept");
        let (.., done) = booted("echo 'guest: begin x'", LONG);
        assert_eq!(done.unwrap_err(), "booting: ended while x ran");
        let (.., done) = booted("echo hello", LONG);
        assert_eq!(done.unwrap_err(), "booting: ended without the line `guest: end`");
    }

    #[test]
    fn a_guest_that_hangs_is_ended_in_time() {
        let text = "echo 'guest: begin x'; sleep 600";
        let (.., done) = booted(text, Duration::from_millis(500));
        assert_eq!(done.unwrap_err(), "booting: no end after 0.5 s; ended; guest: begin x");
    }

    #[test]
    fn figures_that_do_not_fit_are_errors() {
        let (.., done) = booted("echo 'guest: end-of x calls=1'; echo 'guest: end'", LONG);
        assert_eq!(done.unwrap_err(), "booting: x ended and had not begun");
        let (.., done) = booted("echo 'guest: begin x'; echo 'guest: end-of y calls=1'", LONG);
        assert_eq!(done.unwrap_err(), "booting: y ended and had not begun");
        let (.., done) = booted("echo 'guest: end-of x calls=many'", LONG);
        assert!(done.unwrap_err().starts_with("booting: \"guest: end-of x calls=many\": expected"));
    }
}
