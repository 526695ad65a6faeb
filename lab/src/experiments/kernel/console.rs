// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parser of a guest's console: the lines with a meaning for the lab.
//!
//! A console carries the kernel's messages and the guest's own lines in one stream, so a line is
//! recognised by its beginning: `guest:` lines of guest/, results of a test in TAP, and the
//! kernel's reports of the memcpy self-test. Everything else is a message and is kept only for
//! errors. A malformed line with a known beginning is an error: a silently missing figure is worse
//! than no run.
//!
//! Sources: the Test Anything Protocol, version 14 (`ok`, `not ok`, `# SKIP`).
//! Does not read bytes; `boot` does.

/// A line of a guest's console.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    /// A workload begins; the guest sleeps a moment.
    Begin(String),
    /// The workload has ended.
    Done(Done),
    /// Result of a tested claim.
    Checked(Checked),
    /// Number of copies of one size by a place in the kernel.
    Copies(Copies),
    /// Self-test of a variant of memcpy.
    SelfTest(SelfTest),
    /// Speed of a variant of memcpy at one size, in the kernel.
    Speed(Done),
    /// Line of the module that measures vector registers: a name and numbers.
    Vector(Done),
    /// Remark of a test, without its mark.
    Note(String),
    /// Last line.
    End,
    /// Any other line.
    Message,
}

/// A name and its numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Done {
    pub(super) name: String,
    /// All `name=value` pairs of the line whose values are numbers.
    numbers: Vec<(String, u64)>,
}

impl Done {
    /// Returns a number of the line; 0 where it has none of that name.
    pub(super) fn number(&self, name: &str) -> u64 {
        let found = self.numbers.iter().find(|(known, _)| known == name);
        found.map_or(0, |(_, value)| *value)
    }
}

/// Result of a tested claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checked {
    pub(super) outcome: Outcome,
    pub(super) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    Fails,
    Skipped,
}

/// Number of copies of one size by a place in the kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copies {
    pub(super) caller: String,
    /// A size or a range of sizes, as named in the kernel's histogram.
    pub(super) bucket: String,
    pub(super) count: u64,
}

/// The kernel's report of a variant of memcpy at boot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SelfTest {
    pub(super) variant: String,
    pub(super) cases: u64,
    pub(super) bad: u64,
}

/// Parses a line of a console; the error is the line and the expected form.
pub(super) fn read(line: &str) -> Result<Line, String> {
    let line = line.trim();
    let wrong = |wanted: &str| Err(format!("{line:?}: expected {wanted}"));
    if let Some(text) = line.strip_prefix("guest: ") {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        return match word {
            "begin" if !rest.is_empty() => Ok(Line::Begin(rest.to_owned())),
            "begin" => wrong("guest: begin NAME"),
            "end-of" => match done(rest) {
                Some(done) => Ok(Line::Done(done)),
                None => wrong("guest: end-of NAME, then name=NUMBER"),
            },
            "ok" | "not" => match checked(text) {
                Some(checked) => Ok(Line::Checked(checked)),
                None => wrong("guest: ok or guest: not ok, then what"),
            },
            "memcpy-sizes" => match copies(rest) {
                Some(copies) => Ok(Line::Copies(copies)),
                None => wrong("guest: memcpy-sizes CALLER BUCKET COUNT"),
            },
            "fpu" => match vector(rest) {
                Some(done) => Ok(Line::Vector(done)),
                None => wrong("guest: fpu WHAT, then name=VALUE"),
            },
            "skip" => {
                let what = rest.to_owned();
                Ok(Line::Checked(Checked { outcome: Outcome::Skipped, what }))
            }
            "end" => Ok(Line::End),
            _ => Ok(Line::Message),
        };
    }
    if let Some(checked) = checked(line) {
        return Ok(Line::Checked(checked));
    }
    if let Some(note) = line.strip_prefix("# ") {
        return Ok(Line::Note(note.to_owned()));
    }
    let Some((_, text)) = line.split_once(MEMCPY) else { return Ok(Line::Message) };
    let speed = text.strip_prefix("speed ").and_then(done).map(Line::Speed);
    Ok(speed.or_else(|| self_test(text).map(Line::SelfTest)).unwrap_or(Line::Message))
}

fn done(text: &str) -> Option<Done> {
    let mut words = text.split_whitespace();
    let name = words.next()?.to_owned();
    let numbers = words.map(|word| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Some(Done { name, numbers: numbers.collect::<Option<_>>()? })
}

/// Parses `copy by=sse bytes=64 ps=78000`: values that are words belong to the name, `copy by=sse`.
pub(super) fn vector(text: &str) -> Option<Done> {
    let (mut names, mut numbers) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let pair = word.split_once('=').map(|(name, value)| (name, value.parse::<u64>()));
        match pair {
            Some((name, Ok(value))) => numbers.push((name.to_owned(), value)),
            _ => names.push(word),
        }
    }
    let name = names.join(" ");
    (!name.is_empty() && !numbers.is_empty()).then_some(Done { name, numbers })
}

/// Parses `ok 3 - what # SKIP why`; number, dash and directive may be missing.
fn checked(text: &str) -> Option<Checked> {
    let (holds, rest) = match text.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok")?),
    };
    // `okay` is not a result.
    let rest = rest.strip_prefix(' ')?.trim_start();
    let rest = rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start();
    let rest = rest.strip_prefix("- ").unwrap_or(rest);
    let (what, directive) = rest.split_once('#').unwrap_or((rest, ""));
    let skipped = directive.trim_start().get(..4).is_some_and(|d| d.eq_ignore_ascii_case("skip"));
    let outcome = match (skipped, holds) {
        (true, _) => Outcome::Skipped,
        (false, true) => Outcome::Holds,
        (false, false) => Outcome::Fails,
    };
    let what = if skipped { rest.trim() } else { what.trim() };
    (!what.is_empty()).then(|| Checked { outcome, what: what.to_owned() })
}

fn copies(text: &str) -> Option<Copies> {
    let mut words = text.split_whitespace();
    let (caller, bucket) = (words.next()?.to_owned(), words.next()?.to_owned());
    let count = words.next()?.parse().ok()?;
    words.next().is_none().then_some(Copies { caller, bucket, count })
}

fn self_test(text: &str) -> Option<SelfTest> {
    let (variant, numbers) = text.trim().split_once(' ')?;
    let numbers = done(&format!("- {numbers}"))?;
    let has = |name: &str| numbers.numbers.iter().any(|(known, _)| known == name);
    (has("cases") && has("bad")).then(|| SelfTest {
        variant: variant.to_owned(),
        cases: numbers.number("cases"),
        bad: numbers.number("bad"),
    })
}

/// Prefix after the kernel's time.
const MEMCPY: &str = "pagewire_memcpy: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_guest_are_read() {
        assert_eq!(read("guest: begin tmpfs-read\r").unwrap(), Line::Begin("tmpfs-read".into()));
        let Line::Done(done) =
            read("guest: end-of krtpsendfile bytes=5600000 calls=1 packets=4000 wall_ns=77")
                .unwrap()
        else {
            panic!("it has ended");
        };
        assert_eq!((done.name.as_str(), done.number("packets")), ("krtpsendfile", 4000));
        assert_eq!((done.number("wall_ns"), done.number("user_ns")), (77, 0));
        let copies = Copies { caller: "shmem_read".into(), bucket: "4096".into(), count: 17 };
        assert_eq!(read("guest: memcpy-sizes shmem_read 4096 17").unwrap(), Line::Copies(copies));
        let Line::Vector(copy) = read("guest: fpu copy by=sse bytes=64 ps=78").unwrap() else {
            panic!("of vector registers");
        };
        assert_eq!((copy.name.as_str(), copy.number("ps")), ("copy by=sse", 78));
        assert_eq!(read("# paced: p50 1 ms").unwrap(), Line::Note("paced: p50 1 ms".into()));
        assert_eq!(read("guest: end").unwrap(), Line::End);
        assert_eq!(read("guest: hello").unwrap(), Line::Message);
        assert_eq!(read("[    0.10] random: crng init done").unwrap(), Line::Message);
        assert_eq!(read("").unwrap(), Line::Message);
    }

    #[test]
    fn results_are_read_with_and_without_a_number() {
        let checked = |line: &str| match read(line).unwrap() {
            Line::Checked(Checked { outcome, what }) => Some((outcome, what)),
            _ => None,
        };
        let of = |outcome, what: &str| Some((outcome, what.to_owned()));
        assert_eq!(checked("guest: ok pipes"), of(Outcome::Holds, "pipes"));
        assert_eq!(checked("guest: not ok pipes"), of(Outcome::Fails, "pipes"));
        assert_eq!(checked("ok 12 - 4000 packets"), of(Outcome::Holds, "4000 packets"));
        assert_eq!(checked("not ok 3 - wrap # at 65535"), of(Outcome::Fails, "wrap"));
        let skipped = "guest: ok 7 - faults # SKIP no fault injection";
        let what = "faults # SKIP no fault injection";
        assert_eq!(checked(skipped), of(Outcome::Skipped, what));
        let paths = of(Outcome::Skipped, "rtp/xdp: no AF_XDP");
        // A script's own line beside a result with the same meaning.
        assert_eq!(checked("skip: rtp/xdp: no AF_XDP"), None);
        assert_eq!(checked("guest: skip rtp/xdp: no AF_XDP"), paths);
        assert_eq!(checked("okay, booting"), None);
        assert_eq!(checked("ok"), None);
    }

    #[test]
    fn the_self_test_is_read_behind_the_kernels_time() {
        let line = "[    0.321000] pagewire_memcpy: avx2 cases=12345 bad=0";
        let test = SelfTest { variant: "avx2".into(), cases: 12_345, bad: 0 };
        assert_eq!(read(line).unwrap(), Line::SelfTest(test));
        let line = "[ 0.5] pagewire_memcpy: speed avx2 bytes=64 mb_per_s=4106 ps_per_copy=15000";
        let Line::Speed(speed) = read(line).unwrap() else { panic!("a speed") };
        assert_eq!((speed.name.as_str(), speed.number("mb_per_s")), ("avx2", 4106));
        assert_eq!(read("[ 0.1] pagewire_memcpy: using avx2").unwrap(), Line::Message);
        assert_eq!(read("pagewire_memcpy: avx2 cases=many bad=0").unwrap(), Line::Message);
    }

    #[test]
    fn a_line_that_begins_as_one_of_ours_and_is_none_is_an_error() {
        for line in [
            "guest: begin",
            "guest: fpu section",
            "guest: fpu bytes=7",
            "guest: end-of",
            "guest: end-of x bytes=many",
            "guest: end-of x bytes",
            "guest: ok",
            "guest: not quite",
            "guest: memcpy-sizes caller 4096",
            "guest: memcpy-sizes caller 4096 17 18",
            "guest: memcpy-sizes caller 4096 -1",
        ] {
            let error = read(line).unwrap_err();
            assert!(error.starts_with(&format!("{line:?}: expected guest: ")), "{error}");
        }
    }
}
