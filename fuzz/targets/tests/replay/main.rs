// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays the seeds of every fuzz target and a fixed set of their mutations; one test a target.
//!
//! The fuzz program needs a build of its own, a C++ compiler and a clock, and its runs are not
//! reproducible. This test needs none of them: the tests are generated from `TARGETS`, the inputs
//! derive from the committed seeds, and a count bounds them. A target gets the empty input, each
//! seed unchanged, and a few thousand mutated seeds.
//!
//! An input that does not pass stays in `fuzz/artifacts/TARGET/`; as `running-PID` when the process
//! died of it, as of a stack that overflows. `FUZZ_INPUT=FILE` runs one file instead of the seeds.
//!
//! Does not limit the time or memory of an input, and does not search by coverage: libFuzzer does
//! (`make fuzz`).
#![forbid(unsafe_code)]

mod artifacts;
mod corpus;
mod mutations;

use std::any::Any;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, iter, panic, thread};

use fuzz_targets::{FuzzTarget, TARGETS};
use libtest_mimic::{Arguments, Failed, Trial};

use artifacts::RunningInput;
use corpus::Corpus;

/// Mutated inputs of a target, divided among its seeds: without optimisation a test should last 2 s
/// at most, and an input of most targets needs less than 0.5 ms.
const MUTATIONS: usize = 4000;
/// Targets with slower inputs (`ts`: 2 ms), and their numbers of mutated inputs.
const MUTATIONS_OF_SLOW: &[(&str, usize)] =
    &[("epub", 1000), ("intake", 2000), ("payload", 2000), ("splice", 2000), ("ts", 700)];
/// The stack of a main thread, on which libFuzzer runs a target.
const STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = |target: &'static FuzzTarget| Trial::test(target.name, move || test_target(target));
    let mut trials: Vec<Trial> = TARGETS.iter().map(trial).collect();
    trials.extend([
        Trial::test("every_seed_belongs_to_a_target", every_seed_belongs_to_a_target),
        Trial::test("finding_is_named_and_kept", finding_is_named_and_kept),
        Trial::test("target_without_seeds_fails", target_without_seeds_fails),
        Trial::test("mutations_repeat_and_differ", mutations_repeat_and_differ),
    ]);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs a target on a thread of its own, which ends and frees its memory before the test does: the
/// threads of the test harness may still run when the process exits.
fn test_target(target: &'static FuzzTarget) -> Result<(), Failed> {
    let test = move || match env::var_os("FUZZ_INPUT") {
        Some(file) => replay_file(target, &repository().join(file)),
        None => replay(target, &fuzz_folder()),
    };
    let thread = thread::Builder::new().name(target.name.to_owned()).stack_size(STACK_BYTES);
    let outcome = thread.spawn(test)?.join();
    Ok(outcome.unwrap_or_else(|panic| panic::resume_unwind(panic))?)
}

fn replay_file(target: &FuzzTarget, file: &Path) -> Result<(), String> {
    let input = fs::read(file).map_err(|fault| format!("{}: {fault}", file.display()))?;
    (target.run)(&input);
    Ok(())
}

/// Runs all inputs of a target; stops at the first that does not pass.
fn replay(target: &FuzzTarget, folder: &Path) -> Result<(), String> {
    let corpus = Corpus::read(folder, target.name)?;
    let artifacts = folder.join("artifacts").join(target.name);
    let at = |fault| format!("{}: {fault}", artifacts.display());
    let running = RunningInput::create(&artifacts).map_err(at)?;
    let slow = MUTATIONS_OF_SLOW.iter().find(|(name, _)| *name == target.name);
    for input in inputs(&corpus, slow.map_or(MUTATIONS, |(_, mutations)| *mutations)) {
        running.write(&input.bytes).map_err(at)?;
        if let Err(panic) = panic::catch_unwind(|| (target.run)(&input.bytes)) {
            let kept = running.keep(&input.file_name()).map_err(at)?;
            return Err(finding(target, &input, message(&*panic), &kept));
        }
    }
    running.remove().map_err(at)
}

/// The empty input, and each seed with its share of the mutations.
fn inputs(corpus: &Corpus, mutations: usize) -> impl Iterator<Item = Input<'_>> {
    let share = mutations.div_ceil(corpus.seeds.len());
    let empty = Input { seed: None, mutation: 0, bytes: Vec::new() };
    let mutated = move |index: usize, seed| {
        (0..=share).map(move |mutation| Input {
            seed: Some(seed),
            mutation,
            bytes: mutations::mutated(corpus, index, mutation),
        })
    };
    let seeds = corpus.seeds.iter().map(|seed| seed.name.as_str()).enumerate();
    iter::once(empty).chain(seeds.flat_map(move |(index, seed)| mutated(index, seed)))
}

/// Bytes for a target, and their origin.
struct Input<'a> {
    /// None: the empty input.
    seed: Option<&'a str>,
    /// Number 0 is the unchanged seed.
    mutation: usize,
    bytes: Vec<u8>,
}

impl Input<'_> {
    fn file_name(&self) -> String {
        match self.seed {
            None => "empty".to_owned(),
            Some(seed) => format!("{seed}-{}", self.mutation),
        }
    }
}

/// The message of a test that fails: the input's origin, the panic, the command to repeat it.
fn finding(target: &FuzzTarget, input: &Input, panic: &str, kept: &Path) -> String {
    let name = target.name;
    let origin = match (input.seed, input.mutation) {
        (None, _) => "the empty input".to_owned(),
        (Some(seed), 0) => format!("seed {seed}"),
        (Some(seed), mutation) => format!("seed {seed}, mutation {mutation}"),
    };
    let kept = kept.strip_prefix(repository()).unwrap_or(kept).display();
    format!(
        "fuzz target {name}, {origin}, {} bytes: {panic}\n\
         kept in {kept}; again, and alone, with:\n\
         FUZZ_INPUT={kept} cargo test -p fuzz-targets --test replay -- --exact {name}",
        input.bytes.len()
    )
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

/// A folder of seeds of a renamed target would never be replayed.
fn every_seed_belongs_to_a_target() -> Result<(), Failed> {
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len(), "two targets have one name");
    for entry in fs::read_dir(fuzz_folder().join("seeds"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(names.contains(name), "{}: no target of that name", path.display());
    }
    for (name, _) in MUTATIONS_OF_SLOW {
        assert!(names.contains(name), "{name}: no target of that name");
    }
    Ok(())
}

fn finding_is_named_and_kept() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    fs::create_dir_all(folder.path().join("seeds/picky"))?;
    fs::write(folder.path().join("seeds/picky/ordinary"), b"seed")?;
    let picky = FuzzTarget {
        name: "picky",
        run: |data| {
            if !data.is_empty() && !data.starts_with(b"se") {
                // A panic that prints nothing.
                panic::resume_unwind(Box::new("no se"));
            }
        },
    };
    let finding = replay(&picky, folder.path()).expect_err("a mutation that the target refuses");
    assert!(finding.starts_with("fuzz target picky, seed ordinary, mutation "), "{finding}");
    assert!(finding.contains(" bytes: no se\nkept in "), "{finding}");

    let kept: Vec<_> = fs::read_dir(folder.path().join("artifacts/picky"))?.collect();
    let [Ok(file)] = &kept[..] else { panic!("{kept:?}") };
    assert!(finding.contains(&format!("FUZZ_INPUT={} ", file.path().display())), "{finding}");
    assert!(panic::catch_unwind(|| (picky.run)(&fs::read(file.path()).expect("kept"))).is_err());
    Ok(())
}

fn target_without_seeds_fails() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let target = FuzzTarget { name: "bare", run: |_| () };
    let missing = replay(&target, folder.path()).expect_err("no folder");
    assert!(missing.contains("seeds/bare: "), "{missing}");
    fs::create_dir_all(folder.path().join("seeds/bare"))?;
    let empty = replay(&target, folder.path()).expect_err("an empty folder");
    assert!(empty.ends_with("seeds/bare: no seeds; add a typical input"), "{empty}");
    Ok(())
}

fn mutations_repeat_and_differ() -> Result<(), Failed> {
    const COUNT: usize = 300;
    let corpus = Corpus::read(&fuzz_folder(), "rtsp")?;
    let inputs = || (0..=COUNT).map(|number| mutations::mutated(&corpus, 0, number));
    assert!(inputs().eq(inputs()), "the same inputs in every run");
    assert_eq!(inputs().next().as_ref(), Some(&corpus.seeds[0].bytes), "the seed as it is");
    let different: BTreeSet<_> = inputs().collect();
    assert!(different.len() > COUNT * 9 / 10, "{} of {COUNT}", different.len());
    Ok(())
}

/// The folder of seeds and artifacts.
fn fuzz_folder() -> PathBuf {
    repository().join("fuzz")
}

/// The top of the repository.
fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).expect("the crate lies two below the top").to_owned()
}
