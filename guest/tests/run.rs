// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest as a normal program: every workload runs, prints its work, and refuses unknown words.
//!
//! Expected figures are computed by hand from the description of each workload, so that they do not
//! repeat the code's own arithmetic.
#![forbid(unsafe_code)]

use std::process::{Command, Output};

/// Workload; words; then the expected bytes, calls and datagrams.
const EXPECTED: &[(&str, &str, [u64; 3])] = &[
    ("pipe_4k", "bytes=1", [8192, 2, 0]),
    ("pipe_4k", "bytes=20000", [24576, 6, 0]),
    ("pipe_64k", "bytes=256K", [262_144, 4, 0]),
    ("tmpfs_read_4k", "bytes=12K", [12288, 3, 0]),
    ("tmpfs_read_16k", "bytes=16K", [16384, 1, 0]),
    ("tmpfs_read_64k", "bytes=1M", [1_048_576, 16, 0]),
    ("tmpfs_read_256k", "bytes=1", [262_144, 1, 0]),
    ("tmpfs_read_1m", "bytes=17M", [17_825_792, 17, 0]),
    ("tmpfs_read_1m", "bytes=3M file_bytes=1500000", [3_145_728, 3, 0]),
    ("tmpfs_write_1m", "bytes=3M file_bytes=1", [3_145_728, 3, 0]),
    ("tmpfs_write_4k", "bytes=12K", [12288, 3, 0]),
    ("tmpfs_write_16k", "bytes=16K", [16384, 1, 0]),
    ("tmpfs_write_64k", "bytes=1M", [1_048_576, 16, 0]),
    ("tmpfs_write_256k", "bytes=17M", [17_825_792, 68, 0]),
    ("tmpfs_write_1m", "bytes=17M", [17_825_792, 17, 0]),
    ("unix_32k", "bytes=128K", [131_072, 4, 0]),
    ("udp_1400", "bytes=28000", [28000, 20, 10]),
    ("processes", "calls=2", [0, 2, 0]),
    ("execl", "calls=3", [0, 3, 0]),
    // Three passes over a file of 500 blocks, the last of them over a part.
    ("file_copy_256", "bytes=600000", [600_064, 2344, 0]),
    ("file_copy_1024", "bytes=10K", [10240, 10, 0]),
    ("file_copy_4096", "bytes=1", [8192, 2, 0]),
    ("pipe_throughput", "calls=9", [5120, 10, 0]),
    ("context_switch", "calls=10", [96, 12, 0]),
    ("process_creation", "calls=3", [0, 3, 0]),
    ("system_call", "calls=11", [0, 15, 0]),
];

fn guest(words: &str) -> Output {
    let mut guest = Command::new(env!("CARGO_BIN_EXE_guest"));
    guest.args(words.split_whitespace()).output().expect("the guest runs")
}

/// Output of a run that must succeed.
fn lines(words: &str) -> Vec<String> {
    let output = guest(words);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{words}: {text}");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.pop().as_deref(), Some("guest: end"), "{words}: {text}");
    lines
}

/// Last line of a run that must fail.
fn refusal(words: &str) -> String {
    let output = guest(words);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!output.status.success(), "{words}: {text}");
    assert!(!text.contains("guest: end\n"), "{words}: {text}");
    text.lines().last().unwrap_or_default().to_owned()
}

/// The figures of a line `guest: end-of`, in the order of the protocol.
fn figures(line: &str, name: &str) -> [u64; 6] {
    let rest = line.strip_prefix(&format!("guest: end-of {name} ")).expect(line);
    let keys = ["bytes", "calls", "packets", "wall_ns", "user_ns", "system_ns"];
    let words: Vec<_> = rest.split(' ').collect();
    assert_eq!(words.len(), keys.len(), "{line}");
    std::array::from_fn(|at| {
        let (key, value) = words[at].split_once('=').expect(line);
        assert_eq!(key, keys[at], "{line}");
        value.parse().expect(line)
    })
}

#[test]
fn every_workload_says_what_it_did() {
    for (name, words, expected) in EXPECTED {
        let output = lines(&format!("{name} {words}"));
        let [begin, end_of] = &output[..] else { panic!("{name}: {output:?}") };
        assert_eq!(begin, &format!("guest: begin {name}"));
        let figures = figures(end_of, name);
        assert_eq!(&figures[..3], expected, "{name} {words}");
        assert!(figures[3] > 0, "{name}: no time went by");
    }
}

#[test]
fn a_connection_takes_as_many_calls_as_it_needs() {
    let output = lines("tcp_64k bytes=1M");
    let [bytes, calls, ..] = figures(&output[1], "tcp_64k");
    assert_eq!(bytes, 1 << 20);
    assert!(calls >= 16, "eight blocks are written and read by {calls} calls");
}

#[test]
fn scripts_run_where_there_is_a_shell() {
    if let Some(missing) = ["/bin/sh", "/usr/bin/od", "/usr/bin/tee"]
        .iter()
        .find(|program| !std::path::Path::new(program).exists())
    {
        eprintln!("skip: shell_scripts: no {missing} on this host");
        return;
    }
    let output = lines("shell_scripts calls=9");
    assert_eq!(figures(&output[1], "shell_scripts")[..3], [0, 16, 0]);
}

#[test]
fn the_list_is_all_expected() {
    let known = refusal("no_such_workload");
    // Jobs and groups precede the workloads; they are not measured as such.
    let (_, known) = known.split_once(", all, ").expect(&known);
    let elsewhere = ["tcp_64k", "shell_scripts"];
    for name in known.split(", ") {
        let expected = EXPECTED.iter().any(|(expected, ..)| *expected == name);
        assert!(expected || elsewhere.contains(&name), "{name}: no figures expected of it");
    }
}

#[test]
fn rounds_interleave() {
    let output = lines("pipe_4k system_call bytes=1 calls=1 rounds=2");
    let begins = output.iter().filter_map(|line| line.strip_prefix("guest: begin "));
    let expected = ["pipe_4k", "system_call", "pipe_4k", "system_call"];
    assert_eq!(begins.collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_not_understood_is_refused_before_anything_runs() {
    for (words, expected) in [
        ("pipe_4k rounds=0", "guest: not ok setting rounds=0: write a number from 1 to 1000"),
        ("pipe_4k modules=", "guest: end"),
        ("pipe_4k speed=3", "guest: not ok setting speed=3: no such setting; write one of run=, "),
        ("pipe_4k run=", "guest: not ok setting run=: write run=PROGRAM with its arguments "),
    ] {
        if expected == "guest: end" {
            lines(words);
            continue;
        }
        assert!(refusal(words).starts_with(expected), "{words}: {}", refusal(words));
        let text = guest(words).stdout;
        assert!(!String::from_utf8_lossy(&text).contains("guest: begin"), "{words}");
    }
}

#[test]
fn words_of_the_kernel_are_passed_over() {
    assert!(lines("root=98:0 console=tty0").is_empty());
}

#[test]
fn programs_are_checks() {
    let output = lines("run=/bin/echo in the guest then run=/bin/true console=tty0");
    let expected =
        ["in the guest", "guest: ok run /bin/echo in the guest", "guest: ok run /bin/true"];
    assert_eq!(output, expected);
    for (words, expected) in [
        (
            "run=/bin/false 1",
            "guest: not ok /bin/false 1: expected exit status 0, found exit status 1",
        ),
        ("run=/none", "guest: not ok execve /none: No such file or directory (os error 2)"),
    ] {
        assert_eq!(refusal(words), expected);
    }
    let killed = Command::new(env!("CARGO_BIN_EXE_guest"))
        .arg("run=/bin/kill -9 $PPID")
        .output()
        .expect("the guest runs");
    assert!(!killed.status.success(), "kill got no number and did not fail");
}

#[test]
fn what_this_machine_lacks_is_named_with_its_cure() {
    let message = refusal("unixbench=/none pipe_4k bytes=1");
    let begins = "guest: not ok unixbench_execl: no program /none/pgms/execl; build UnixBench";
    assert!(message.starts_with(begins), "{message}");
    if !std::path::Path::new("/sys/kernel/debug/memcpy_sizes").exists() {
        let message = refusal("memcpy-sizes");
        assert!(message.contains("/sys/kernel/debug/memcpy_sizes"), "{message}");
    }
}

#[test]
fn a_real_unixbench_would_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["pgms", "testdir"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    for program in ["execl", "fstime", "pipe", "context1", "spawn", "syscall", "looper"] {
        let unit = if program == "fstime" { "KBps" } else { "lps" };
        let script = format!(
            "#!/bin/sh\necho \"$0 $*\" >>\"$UB_BINDIR/../said\"\necho 'COUNT|7.0|1|{unit}' >&2\n"
        );
        let file = folder.path().join("pgms").join(program);
        std::fs::write(&file, script).expect("a script");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, executable).expect("a script that runs");
    }
    let path = folder.path().display();
    let output = lines(&format!("unixbench={path} seconds=2"));
    assert_eq!(output.len(), 20);
    assert_eq!(figures(&output[1], "unixbench_execl")[..3], [0, 7, 0]);
    assert_eq!(figures(&output[5], "unixbench_file_copy_256")[..3], [7 * 1024 * 2, 0, 0]);
    let called = std::fs::read_to_string(folder.path().join("said")).expect("what was called");
    let called: Vec<_> = called.lines().collect();
    assert_eq!(called[0], format!("{path}/pgms/execl 2"));
    assert!(called[1].starts_with(&format!("{path}/pgms/fstime -c -t 2 -d /")), "{}", called[1]);
    assert!(called[1].ends_with(" -b 1024 -m 2000"), "{}", called[1]);
    assert_eq!(called[9], format!("{path}/pgms/looper 2 {path}/pgms/multi.sh 8"));
}
