// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the tracers on C programs whose blocked loads are known exactly.
//!
//! The programs are compiled here; where there is no C compiler, or no valgrind, the tests that
//! need it print so and are skipped. Counts are exact: no test depends on time.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// Compiles a C program; prints the reason and returns none where there is no compiler.
pub(crate) fn compiled(folder: &Path, name: &str, source: &str) -> Option<PathBuf> {
    let (text, program) = (folder.join(name).with_extension("c"), folder.join(name));
    std::fs::write(&text, source).expect("a file of C");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-pthread", "-o"]).arg(&program).arg(&text);
    match compiler.output() {
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "the program compiles: {stderr}");
            Some(program)
        }
        Err(error) => {
            eprintln!("skip: cc: not installed: {error}");
            None
        }
    }
}

/// Returns the report of each tracer of pairs on `function` in a program; skips tracers that cannot
/// be used here, with the reason.
fn reports(source: &str, function: Option<&str>, arguments: &[&str]) -> Vec<Report> {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(folder.path(), "program", source) else { return Vec::new() };
    let mut reports = Vec::new();
    for name in ["lackey", "steps"] {
        let mut command = vec![program.clone().into_os_string()];
        command.extend(arguments.iter().map(OsString::from));
        let function = function.map(str::to_owned);
        let options = StallOptions {
            command,
            function,
            by: Some(name.to_owned()),
            aside: true,
            ..StallOptions::default()
        };
        match find(&options) {
            Ok(report) => reports.push(report),
            Err(error @ Error::Unavailable { .. }) => eprintln!("skip: {error}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    reports
}

/// Returns the line on which a source has `mark`.
fn line(source: &str, mark: &str) -> String {
    let at = source.lines().position(|line| line.contains(mark)).expect("a mark in the source");
    format!("program.c:{}", at + 1)
}

/// Handles four descriptors a batch: each is spilled whole, its length written narrow, and read
/// whole. A second version sets the length before the spill.
const DRIVER: &str = r#"
#include <stdint.h>
#include <string.h>
typedef struct { uint64_t words[2]; } __attribute__((aligned(16))) descriptor;
static descriptor ring[4], done[4];

__attribute__((noinline)) void narrow(uint16_t length) {
    for (int n = 0; n < 4; n++) {
        __asm__ volatile(
            "movdqa (%0), %%xmm0\n movdqa %%xmm0, (%1)\n" // spill
            : : "r"(&ring[n]), "r"(&done[n]) : "xmm0", "memory");
    }
    __asm__ volatile("movw %w0, 14(%1)" : : "r"(length), "r"(&done[0]) : "memory"); // narrow 0
    __asm__ volatile("movw %w0, 14(%1)" : : "r"(length), "r"(&done[1]) : "memory"); // narrow 1
    __asm__ volatile("movw %w0, 14(%1)" : : "r"(length), "r"(&done[2]) : "memory"); // narrow 2
    __asm__ volatile("movw %w0, 14(%1)" : : "r"(length), "r"(&done[3]) : "memory"); // narrow 3
    __asm__ volatile("movdqa (%0), %%xmm1" : : "r"(&done[0]) : "xmm1"); // wide 0
    __asm__ volatile("movdqa (%0), %%xmm1" : : "r"(&done[1]) : "xmm1"); // wide 1
    __asm__ volatile("movdqa (%0), %%xmm1" : : "r"(&done[2]) : "xmm1"); // wide 2
    __asm__ volatile("movdqa (%0), %%xmm1" : : "r"(&done[3]) : "xmm1"); // wide 3
}

__attribute__((noinline)) void blended(uint16_t length) {
    for (int n = 0; n < 4; n++) {
        __asm__ volatile(
            "movdqa (%0), %%xmm0\n pinsrw $7, %k2, %%xmm0\n movdqa %%xmm0, (%1)\n"
            "movdqa (%1), %%xmm1\n"
            : : "r"(&ring[n]), "r"(&done[n]), "r"((uint32_t)length) : "xmm0", "xmm1", "memory");
    }
}

__attribute__((noinline)) void give(uint16_t *half) {
    __asm__ volatile("movw $7, (%0)" : : "r"(half) : "memory"); // given
}

__attribute__((noinline)) uint64_t take(uint64_t *whole) {
    uint64_t value;
    __asm__ volatile("movq (%1), %0" : "=r"(value) : "r"(whole) : "memory"); // taken
    return value;
}

__attribute__((noinline)) uint64_t across(void) {
    give((uint16_t *)&done[0] + 1);
    return take(&done[0].words[0]);
}

int main(int count, char **words) {
    for (int batch = 0; batch < 25; batch++) narrow(64 + batch);
    for (int batch = 0; batch < 25; batch++) blended(64 + batch);
    uint64_t sum = 0;
    for (int call = 0; call < 10; call++) sum += across();
    return count > 1 ? (int)(sum & 1) + words[1][0] - '0' : 0;
}
"#;

#[test]
fn four_narrow_stores_a_batch_are_reported_with_line_and_instructions() {
    for report in reports(DRIVER, Some("narrow"), &[]) {
        let tracer = report.tracer;
        assert_eq!(report.functions, ["narrow"], "{tracer}");
        assert_eq!(report.exit, Some(0), "{tracer}");
        assert_eq!((report.pairs.len(), report.blocked), (4, 100), "{tracer}: {report:#?}");
        for number in 0..4 {
            let wide = line(DRIVER, &format!("// wide {number}"));
            let is_wide = |pair: &&Pair| {
                pair.load.place.source.as_ref().is_some_and(|source| source.ends_with(&wide))
            };
            let pair = report.pairs.iter().find(is_wide).expect("one pair for each load");
            assert_eq!((pair.count, pair.certain, pair.rest_of_cache), (25, true, false));
            assert_eq!(pair.within.as_deref(), Some("narrow"), "{tracer}");
            assert_eq!((pair.load.bytes, pair.load.place.function.as_str()), (16, "narrow"));
            assert!(pair.load.instruction.starts_with("movdqa xmm1, ["), "{pair:?}");
            let [narrow, spill] = &pair.stores[..] else { panic!("two stores: {pair:#?}") };
            assert_eq!((narrow.bytes, spill.bytes), (2, 16), "youngest first");
            assert!(narrow.instruction.starts_with("mov ["), "{narrow:?}");
            assert!(spill.instruction.starts_with("movdqa ["), "{spill:?}");
            let narrow_line = line(DRIVER, &format!("// narrow {number}"));
            assert!(narrow.place.source.as_ref().unwrap().ends_with(&narrow_line), "{narrow:?}");
            let added_ns = report.cost.added_ns();
            assert_eq!(pair.cost_ns, 25.0 * added_ns);
        }
        let shown = report.terminal();
        assert!(shown.contains("100 blocked loads") && shown.contains("movdqa xmm1"), "{shown}");
        assert!(report.has_stalls());
    }
}

#[test]
fn the_remedy_is_clean() {
    for report in reports(DRIVER, Some("blended"), &[]) {
        assert_eq!(report.blocked, 0, "{}: {:#?}", report.tracer, report.pairs);
        assert!(!report.has_stalls());
        assert!(report.loads >= 25 * 8 && report.stores >= 25 * 4, "it was looked at: {report:?}");
        assert!(report.terminal().contains("no load waits for a store"));
    }
}

#[test]
fn a_store_and_a_load_in_two_functions_that_are_called_meet() {
    for report in reports(DRIVER, Some("across"), &[]) {
        let tracer = report.tracer;
        assert_eq!((report.pairs.len(), report.blocked), (1, 10), "{tracer}: {report:#?}");
        let pair = &report.pairs[0];
        assert_eq!(pair.within.as_deref(), Some("across"));
        assert_eq!(pair.load.place.function, "take", "{tracer}");
        assert!(pair.load.place.source.as_ref().unwrap().ends_with(&line(DRIVER, "// taken")));
        assert!(pair.stores.iter().any(|store| store.place.function == "give"), "{pair:#?}");
        assert!(report.terminal().contains("in give"), "{}", report.terminal());
    }
}

#[test]
fn without_a_function_the_whole_program_is_looked_at() {
    for report in reports(DRIVER, None, &["", "1"]) {
        let tracer = report.tracer;
        let of = |function: &str| {
            let loads = report.pairs.iter().filter(|pair| pair.load.place.function == function);
            loads.map(|pair| pair.count).sum::<u64>()
        };
        assert_eq!((of("narrow"), of("blended"), of("take")), (100, 0, 10), "{tracer}");
        assert!(report.instructions > 3_000, "{tracer}: {}", report.instructions);
        assert!(report.pairs.iter().all(|pair| pair.within.is_none()));
    }
}

#[test]
fn what_the_program_makes_of_its_arguments_is_its_own() {
    for report in reports(DRIVER, Some("across"), &["5"]) {
        assert!([Some(5), Some(6)].contains(&report.exit), "{}: {:?}", report.tracer, report.exit);
        assert!(report.terminal().contains("the program ended with"), "{}", report.terminal());
    }
}

#[test]
fn a_name_that_no_function_has_is_the_callers_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(folder.path(), "program", DRIVER) else { return };
    for name in ["lackey", "steps"] {
        let options = StallOptions {
            command: vec![program.clone().into()],
            function: Some("no_such_function".to_owned()),
            by: Some(name.to_owned()),
            ..StallOptions::default()
        };
        match find(&options) {
            Err(Error::Unavailable { found, .. }) => eprintln!("skip: {name}: {found}"),
            Err(error @ Error::Caller { .. }) => {
                assert!(error.to_string().contains("function no_such_function: no function"));
            }
            other => panic!("{name}: {:?}", other.map(|report| report.pairs)),
        }
    }
}

/// Threads that run the wanted function at once, processes that start and end, signals.
const BUSY: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int rang;
static void ring(int signal) { (void)signal; rang++; }

__attribute__((noinline)) uint64_t wanted(uint64_t *word) {
    uint64_t value;
    __asm__ volatile("movb $1, 3(%1)\n movq (%1), %0" : "=r"(value) : "r"(word) : "memory");
    return value;
}

static void *works(void *unused) {
    uint64_t word = 0;
    for (int n = 0; n < 20; n++) wanted(&word);
    return unused;
}

__attribute__((noinline)) uint64_t waits(void) {
    pthread_t thread;
    uint64_t word = 0;
    if (pthread_create(&thread, 0, works, 0)) abort();
    raise(SIGUSR1);
    pid_t child = fork();
    if (child == 0) _exit((int)wanted(&word) & 1);
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) abort();
    if (system("exit 9") != 9 << 8) abort();
    pthread_join(thread, 0);
    return wanted(&word);
}

int main(void) {
    signal(SIGUSR1, ring);
    waits();
    works(0);
    return rang == 1 ? 0 : 1;
}
"#;

/// A joined thread runs the wanted function, a fork's child meets its breakpoint, a handler runs
/// within it: the program ends as it would alone, and its main thread is counted.
#[test]
fn threads_children_and_signals_go_their_way() {
    for report in reports(BUSY, Some("waits"), &[]) {
        assert_eq!(report.exit, Some(0), "{}: {:?}", report.tracer, report.notes);
        let mine = report.pairs.iter().filter(|pair| pair.load.place.function == "wanted");
        let count: u64 = mine.map(|pair| pair.count).sum();
        // Valgrind's trace has the twenty pairs of the thread too, if they precede the function's
        // return, and none of the child; steps has one, of the stepped thread.
        assert!((1..=21).contains(&count), "{}: {:#?}", report.tracer, report.pairs);
    }
    for report in reports(BUSY, Some("wanted"), &[]) {
        assert_eq!(report.exit, Some(0), "{}: {:?}", report.tracer, report.notes);
        let count: u64 = report.pairs.iter().map(|pair| pair.count).sum();
        assert!((21..=41).contains(&count), "{}: {:?}", report.tracer, report.notes);
    }
}

#[test]
fn steps_end_where_they_are_told_to_and_the_program_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(folder.path(), "program", DRIVER) else { return };
    let options = |steps, function: Option<&str>| StallOptions {
        command: vec![program.clone().into()],
        function: function.map(str::to_owned),
        by: Some("steps".to_owned()),
        steps,
        ..StallOptions::default()
    };
    for (steps, function) in [(100, Some("narrow")), (1, None), (0, Some("narrow")), (0, None)] {
        match find(&options(steps, function)) {
            Ok(report) => {
                assert_eq!((report.exit, report.instructions), (Some(0), steps), "{function:?}");
                assert!(report.notes[0].contains("stopped after"), "{:?}", report.notes);
            }
            Err(Error::Unavailable { found, .. }) => return eprintln!("skip: steps: {found}"),
            // No code was searched, so there is no function.
            Err(error) => assert!(steps == 0 && function.is_some(), "{error}"),
        }
    }
}

/// A file with permission to execute that is no program.
#[test]
fn what_cannot_be_executed_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("script");
    std::fs::write(&file, "#!/nonexistent/interpreter\n").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    for name in ["lackey", "steps"] {
        let (command, by) = (vec![file.clone().into_os_string()], Some(name.to_owned()));
        match find(&StallOptions { command, by, ..StallOptions::default() }) {
            Err(Error::Unavailable { found, .. }) => eprintln!("skip: {name}: {found}"),
            Err(error) => assert!(error.to_string().contains("above"), "{name}: {error}"),
            Ok(report) => panic!("{name}: {:?}", report.exit),
        }
    }
}

#[test]
fn a_tracer_that_is_none_is_named_with_those_that_are() {
    let options = StallOptions {
        command: vec!["/bin/true".into()],
        by: Some("guess".to_owned()),
        ..StallOptions::default()
    };
    let error = find(&options).unwrap_err().to_string();
    assert_eq!(error, "tracer guess: no such tracer; write one of counters, lackey, steps");
}
