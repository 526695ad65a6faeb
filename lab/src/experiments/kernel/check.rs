// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part check: the engine's module, checked from outside in both laboratories.
//!
//! The check is kernel/rtp's own program, which speaks TAP: bytes, fields, faults, sessions, a
//! fuzzing loop, leaks. It runs in User Mode Linux, where packets are fast, and in Debian's kernel
//! under QEMU with a clock that counts instructions, where a paced session's lateness is caused by
//! the kernel alone and not from a busy host. Then every path of the list sends 4,000 packets
//! there, compared byte by byte.
//!
//! Sources: kernel/rtp/check; guest/src/verify.rs.
//! Does not check the module on this machine's own kernel; the check runs there as well, for a user
//! who may open the device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::KernelLab;
use super::boot::{Guest, Unobserved, boot};
use super::console::{Checked, Outcome};
use super::program::Program;
use super::qemu::{Machine, Qemu, engine, into_modules};
use super::uml::{self, Uml};
use measure::Error;
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::Warning;

pub(super) fn measure(lab: &KernelLab<'_>, results: &mut Results) -> Result<(), Error> {
    let program = program(lab)?;
    let seconds = if lab.options.quick { QUICK_SECONDS } else { SECONDS };
    let fuzz = if lab.options.quick { QUICK_FUZZ } else { FUZZ };
    let words = [format!("paced={seconds}"), format!("fuzz={fuzz}")];
    let words = words.each_ref().map(String::as_str);
    results.notes.push(format!(
        "check: a paced session of {seconds} s at 5 Mb/s; lateness is from a packet's time to its \
         arrival at a receiver in the guest; {fuzz} random calls"
    ));

    let in_uml = fit("User Mode Linux", uml_command(lab, &program, &words), results)?;
    let debian = fit("Debian's kernel", Debian::ready(lab), results)?;
    let in_debian = match &debian {
        Some(debian) => {
            results.notes.push(format!("check: Debian's kernel is {}", debian.qemu.version));
            Some(debian.command(lab, &program, &words)?)
        }
        None => None,
    };
    lab.step("check: in User Mode Linux and in Debian's kernel");
    // Both run at once, each on a core: the checks' waits use no processor.
    let (uml, in_debian) = std::thread::scope(|scope| {
        let uml = in_uml.map(|command| scope.spawn(move || tried(lab, "User Mode Linux", command)));
        let in_debian = in_debian.map(|command| tried(lab, "Debian's kernel", command));
        (uml.map(|uml| uml.join().expect("it does not panic")), in_debian)
    });
    for tried in uml.into_iter().chain(in_debian) {
        judged(lab, tried, results);
    }
    // The check has already compared bytes of every mode of the module.
    let Some(debian) = debian.filter(|_| !lab.options.stopped() && !lab.options.quick) else {
        return Ok(());
    };
    let modules =
        [into_modules(&debian.engine, "pagewire_rtp"), into_modules(&debian.qemu.dummy, "dummy")];
    let root = uml::root(lab, ("verify", false), &modules)?;
    lab.step("check: bytes of every path in Debian's kernel");
    let timed = Machine { processor: "max", counts: false };
    let command = debian.qemu.command(&root, (timed, &["verify"]), LIMIT);
    judged(lab, tried(lab, "Debian's, every path", command), results);
    Ok(())
}

/// Returns the prepared item; a missing requirement of the host becomes a note with the reason and
/// the cure.
fn fit<T>(name: &str, ready: Result<T, Error>, results: &mut Results) -> Result<Option<T>, Error> {
    match ready {
        Ok(ready) => Ok(Some(ready)),
        Err(error @ Error::Unavailable { .. }) => {
            results.notes.push(format!("skip: check in {name}: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn uml_command(lab: &KernelLab<'_>, program: &Path, words: &[&str]) -> Result<Command, Error> {
    let uml = Uml::ready(lab)?;
    let engine = engine(lab, "uml")?;
    let root = root(lab, "check-uml", program, &[("pagewire_rtp", &engine)])?;
    Ok(uml.command(&root, (&[], words), LIMIT))
}

/// Debian's kernel, and the module for it.
struct Debian {
    qemu: Qemu,
    engine: PathBuf,
}

impl Debian {
    fn ready(lab: &KernelLab<'_>) -> Result<Debian, Error> {
        Ok(Debian { qemu: Qemu::ready(lab)?, engine: engine(lab, "debian")? })
    }

    fn command(
        &self,
        lab: &KernelLab<'_>,
        program: &Path,
        words: &[&str],
    ) -> Result<Command, Error> {
        let modules =
            [("pagewire_rtp", self.engine.as_path()), ("dummy", self.qemu.dummy.as_path())];
        let root = root(lab, "check-debian", program, &modules)?;
        let counting = Machine { processor: "max", counts: true };
        Ok(self.qemu.command(&root, (counting, words), LIMIT))
    }
}

/// Makes a root folder whose first process is the check, which loads the modules.
fn root(
    lab: &KernelLab<'_>,
    name: &str,
    program: &Path,
    modules: &[(&str, &Path)],
) -> Result<PathBuf, Error> {
    let root = lab.folder(name);
    let make = || -> io::Result<()> {
        for folder in ["dev", "lib/modules", "proc", "sys", "tmp"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::copy(program, root.join("init"))?;
        for (name, module) in modules {
            fs::copy(module, root.join(format!("lib/modules/{name}.ko")))?;
        }
        Ok(())
    };
    make().map_err(Error::host(format!("making {name}, a guest's root")))?;
    Ok(root)
}

/// Returns the path of the check, a static program.
fn program(lab: &KernelLab<'_>) -> Result<PathBuf, Error> {
    let makefile = lab.checkout.file("kernel/rtp/Makefile")?;
    lab.step("the program that checks the module");
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(makefile.parent().expect("it has a folder")).arg("check");
    Program::start("make -C kernel/rtp check", &mut make, LIMIT)?.finish(lab)?;
    lab.checkout.file("kernel/rtp/check/pagewire_rtp_check")
}

/// Output of a checking guest, and its end.
struct Tried {
    name: &'static str,
    guest: Guest,
    ended: Result<(), Error>,
}

/// Boots a guest that checks.
fn tried(lab: &KernelLab<'_>, name: &'static str, mut command: Command) -> Tried {
    let mut guest = Guest::default();
    let what = format!("the check in {name}");
    let ended = boot(&what, &mut command, LIMIT + GRACE, (lab, &mut Unobserved), &mut guest);
    Tried { name, guest, ended }
}

/// Counts its results; a failure becomes a warning.
fn judged(lab: &KernelLab<'_>, tried: Tried, results: &mut Results) {
    let Tried { name, guest, ended } = tried;
    if let Err(error @ Error::Unavailable { .. }) = &ended {
        results.notes.push(format!("skip: check in {name}: {error}"));
        return;
    }
    count(name, &guest, results);
    if lab.options.stopped() {
        return;
    }
    let mut failed: Vec<String> = guest
        .checks
        .iter()
        .filter(|checked| checked.outcome == Outcome::Fails)
        .map(|Checked { what, .. }| format!("not ok: {what}"))
        .collect();
    failed.extend(ended.err().map(|error| error.to_string()));
    if guest.counted()[0] == 0 {
        failed.push("not one claim was tried".to_owned());
    }
    if let Some(found) = failed.into_iter().next() {
        results.complete = false;
        results.warn(Warning::MemberFailed { member: name.to_owned(), found });
    }
}

fn count(name: &str, guest: &Guest, results: &mut Results) {
    let [holds, fails, skipped] = guest.counted();
    for (metric, count) in
        [("claims that hold", holds), ("claims that fail", fails), ("claims skipped", skipped)]
    {
        let figure = Figure::of(vec![count as f64]);
        results.rows.push(Row::new("kernel", name, metric, "checks", figure));
    }
    let reasons = guest.checks.iter().filter(|checked| checked.outcome == Outcome::Skipped);
    results.notes.extend(reasons.map(|skip| format!("check: {name}: skip: {}", skip.what)));
    for (metric, unit, value) in guest.notes.iter().filter_map(|note| paced(note)).flatten() {
        let row = Row::new("kernel", name, metric, unit, Figure::derived(value));
        results.rows.push(row);
    }
}

/// Parses `paced: p50 0.012 ms, p99 0.034 ms, max 0.120 ms late; 99.987 % within 2 ms`.
fn paced(note: &str) -> Option<[(&'static str, &'static str, f64); 4]> {
    let words: Vec<&str> = note.strip_prefix("paced: p50 ")?.split_whitespace().collect();
    let [
        p50,
        "ms,",
        "p99",
        p99,
        "ms,",
        "max",
        most,
        "ms",
        "late;",
        share,
        "%",
        "within",
        "2",
        "ms",
    ] = words[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
    Some([
        ("paced session, late: median", "ms", number(p50)?),
        ("paced session, late: p99", "ms", number(p99)?),
        ("paced session, late: most", "ms", number(most)?),
        ("paced session, within 2 ms", "%", number(share)?),
    ])
}

const SECONDS: u32 = 60;
const QUICK_SECONDS: u32 = 5;
/// Random calls of the fuzzing loop.
const FUZZ: u32 = 20_000;
const QUICK_FUZZ: u32 = 1_000;
const LIMIT: Duration = Duration::from_secs(600);
const GRACE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(outcome: Outcome, what: &str) -> Checked {
        Checked { outcome, what: what.to_owned() }
    }

    #[test]
    fn claims_are_counted_and_lateness_is_read() {
        let guest = Guest {
            checks: vec![
                checked(Outcome::Holds, "a"),
                checked(Outcome::Holds, "b"),
                checked(Outcome::Skipped, "c: no root"),
            ],
            notes: vec![
                "fields".to_owned(),
                "paced: p50 0.012 ms, p99 0.034 ms, max 1.200 ms late; 99.987 % within 2 ms"
                    .to_owned(),
            ],
            ..Guest::default()
        };
        let mut results = Results::new("kernel", []);
        count("here", &guest, &mut results);
        let median = |metric: &str| results.figure("here", metric, &[]).map(|f| f.median);
        assert_eq!(median("claims that hold"), Some(2.0));
        assert_eq!(median("claims that fail"), Some(0.0));
        assert_eq!(median("claims skipped"), Some(1.0));
        assert_eq!(median("paced session, late: p99"), Some(0.034));
        assert_eq!(median("paced session, within 2 ms"), Some(99.987));
        assert_eq!(results.notes, ["check: here: skip: c: no root"]);
        assert!(Warning::of_rows(&results.rows).is_empty(), "counts are no samples");
    }

    #[test]
    fn a_laboratory_that_this_host_lacks_something_for_is_a_note() {
        let mut results = Results::new("kernel", []);
        let lacking = || Error::Unavailable { need: "a thing", found: "none; get one".to_owned() };
        assert_eq!(fit("here", Ok(7), &mut results).unwrap(), Some(7));
        assert_eq!(fit::<u8>("here", Err(lacking()), &mut results).unwrap(), None);
        assert_eq!(results.notes, ["skip: check in here: this needs a thing; none; get one"]);
        let broken = Error::Host { what: "boot".to_owned(), found: "a panic".to_owned() };
        assert!(fit::<u8>("here", Err(broken), &mut results).is_err(), "no skip");
    }

    #[test]
    fn other_notes_have_no_lateness() {
        for note in [
            "paced",
            "paced: late 0, greatest lateness 0.1 ms, retries 0 by the engine's count",
            "paced: p50 x ms, p99 0.034 ms, max 1.200 ms late; 99.987 % within 2 ms",
            "paced: p50 1 ms, p99 inf ms, max 1.200 ms late; 99.987 % within 2 ms",
        ] {
            assert_eq!(paced(note), None, "{note}");
        }
    }
}
