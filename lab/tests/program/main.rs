// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the laboratory through the real program: measurements are written, compared and kept; each
//! fault is reported in one line.
//!
//! No test judges a figure: the CPU cost of a path is measured on a quiet machine. The tests assert
//! that every figure is present, that counts equal claims, and that bad input and faults are
//! reported. The run lasts about ten seconds; tests that need a network namespace are skipped where
//! the host allows none, with the reason.

#![forbid(unsafe_code)]

mod cameras;
mod hls;
mod http;
mod kernel;
mod namespace;
mod pacing;
mod peers;
mod planning;
mod receive;
mod seal;
mod soak;
mod stalls;
mod tracks;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use namespace::has_network;

/// Against hanging.
const TIME_MAX: Duration = Duration::from_secs(90);
const PROGRAM: &str = env!("CARGO_BIN_EXE_pagewire-lab");

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

fn lab(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes a short measurement of two members, in a file.
fn measure(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(name);
    let output = lab(&[
        "paths",
        "--quick",
        "--transport",
        "rtp",
        "--member",
        "wire_sendfile",
        "--sink",
        "ifb-software",
        "--json",
        file.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    file
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).expect("a measurement file")).expect("JSON")
}

#[test]
fn a_measurement_has_its_host_its_command_and_a_row_per_figure() {
    if !has_network() {
        return;
    }
    let folder = folder();
    let results = read(&measure(folder.path(), "paths.json"));
    assert_eq!(results["experiment"], "paths");
    assert_eq!(results["complete"], true, "{results}");
    assert!(results["host"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
    let command = results["command"].as_str().unwrap();
    assert!(command.starts_with("pagewire lab paths --quick"), "{command}");
    assert!(!command.contains("--inside"), "{command}");
    let rows = results["rows"].as_array().unwrap();
    for (member, metric) in [
        ("read_writev", "CPU cost"),
        ("wire_sendfile", "CPU cost"),
        ("wire_sendfile", "relative to read_writev"),
        ("wire_sendfile", "calls"),
        ("wire_sendfile", "copies"),
        ("wire_sendfile", "a core carries"),
    ] {
        let row = rows.iter().find(|row| row["member"] == member && row["metric"] == metric);
        let row = row.unwrap_or_else(|| panic!("no {metric} of {member}"));
        let samples = row["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 3, "{row}");
        assert_eq!(row["parameters"]["bytes"], "1328", "{row}");
    }
    let published = rows.iter().filter(|row| row["published"].is_string()).count();
    assert!(published >= 8, "{published} values of the study");
    let notes = results["notes"].as_array().unwrap();
    let met = notes.iter().filter_map(Value::as_str).find(|note| note.starts_with("claims"));
    let met = met.expect("claims are compared with counts");
    let (found, of) = met.rsplit_once(": ").unwrap().1.split_once(" of ").unwrap();
    assert_eq!(format!("{found} met"), of, "{met}");
}

#[test]
fn a_measurement_is_shown_in_every_form_and_compared_with_another() {
    if !has_network() {
        return;
    }
    let folder = folder();
    let (first, second) = (measure(folder.path(), "a.json"), measure(folder.path(), "b.json"));
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, markdown, html) = (at("a.csv"), at("a.md"), at("a.html"));
    let output = lab(&[
        "report",
        first.to_str().unwrap(),
        "--csv",
        &csv,
        "--markdown",
        &markdown,
        "--html",
        &html,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let (shown, named) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(shown.is_empty() && named.contains(&format!("wrote {html}\n")), "{shown}{named}");
    let shown = lab(&["report", first.to_str().unwrap()]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for text in [&shown, &fs::read_to_string(csv).unwrap(), &fs::read_to_string(markdown).unwrap()]
    {
        assert!(text.contains("wire_sendfile") && text.contains("CPU cost"), "{text}");
    }
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && page.contains("wire_sendfile"));
    let output = lab(&["compare", first.to_str().unwrap(), second.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let compared = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(compared.contains(" better, ") && compared.contains(" unchanged"), "{compared}");
    assert!(compared.lines().count() <= 20, "{compared}");
    let all = ["compare", first.to_str().unwrap(), second.to_str().unwrap(), "--all"];
    let listed = String::from_utf8_lossy(&lab(&all).stdout).into_owned();
    let verdict = compared.strip_suffix("every figure: --all\n").expect("the other form is named");
    assert!(listed.contains("  ratio  ") && listed.ends_with(verdict), "the verdict comes last");
}

#[test]
fn every_experiment_is_explained_with_the_options_that_it_takes() {
    let list = lab(&[]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 10 && names.contains(&"compare") && names.contains(&"report"), "{list}");
    for name in names.into_iter().filter(|name| *name != "stalls") {
        let output = lab(&[name, "--help"]);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        assert!(shown.starts_with(&format!("pagewire lab {name}: ")), "{shown}");
        for part in ["measures ", "members ", "sinks ", "units ", "duration ", "example "] {
            let line = |line: &str| line.starts_with(part) && line.trim_end().len() > part.len();
            assert!(shown.lines().any(line), "{name}: {part}: {shown}");
        }
        assert!(shown.contains(&format!("pagewire lab {name} ")), "an example: {shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        assert_eq!(output.stdout, lab(&[name, "-h"]).stdout);
    }
    let seal = lab(&["seal", "--help"]);
    let seal = String::from_utf8_lossy(&seal.stdout).into_owned();
    assert!(seal.contains("--threads N ") && !seal.contains("--interface"), "{seal}");
    assert!(
        seal.contains("  --member, --variant NAME\n"),
        "a long option has its own line: {seal}"
    );
    let all = lab(&["--help"]);
    assert!(String::from_utf8_lossy(&all.stdout).contains("--interface"), "{}", stderr(&all));
    let stalls = lab(&["stalls", "--help"]);
    assert!(String::from_utf8_lossy(&stalls.stdout).contains("--self"), "{}", stderr(&stalls));
    let unknown = lab(&["nothing", "--help"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    if !has_network() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("cut.json");
    let mut child = Command::new(PROGRAM)
        .args(["paths", "--transport", "rtp", "--member", "mmap_gso", "--rounds", "900"])
        .args(["--size", "1328", "--json"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // unshare executes the program in its own process: the id stays the same.
    let id = Pid::from_raw(child.id() as i32).unwrap();
    await_processor_time(id, Duration::from_secs(3));
    kill_process(id, Signal::INT).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(stderr.contains("what was measured is kept"), "{stderr}");
    assert!(stderr.contains("not all of it was measured"), "{stderr}");
    let results = read(&file);
    assert_eq!(results["complete"], false);
    assert!(results["rows"].as_array().unwrap().iter().any(|row| row["metric"] == "CPU cost"));
}

/// Waits until a process has used this much processor time: a measurement has its first figures by
/// then, also on a busy machine.
fn await_processor_time(process: Pid, wanted: Duration) {
    let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
    let began = Instant::now();
    loop {
        // proc_pid_stat(5): utime and stime are fields 14 and 15, in hundredths of a second.
        let stat = fs::read_to_string(&stat).expect("it runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = fields.split(' ').skip(14 - 3).take(2).map(|field| field.parse::<u64>());
        let used = Duration::from_millis(10 * ticks.map(Result::unwrap).sum::<u64>());
        if used >= wanted {
            return;
        }
        assert!(began.elapsed() < TIME_MAX, "it has used {used:?} of {wanted:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No namespace is made, so the measurement works on hosts that allow none.
#[test]
fn what_is_measured_in_memory_needs_no_network() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, html) = (at("cipher.json"), at("cipher.html"));
    let output = Command::new(PROGRAM)
        .args(["cipher", "--quick", "--rounds", "3", "--member", "portable"])
        .args(["--size", "1024", "--json", &json, "--html", &html])
        .env("PATH", "/nonexistent")
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let results = read(Path::new(&json));
    assert_eq!((&results["experiment"], &results["complete"]), (&"cipher".into(), &true.into()));
    let rows = results["rows"].as_array().unwrap();
    for direction in ["encrypt", "decrypt"] {
        for (member, metric) in [
            ("openssl", "throughput"),
            ("portable", "throughput"),
            ("portable", "relative to openssl"),
            ("portable", "time"),
        ] {
            let row = rows.iter().find(|row| {
                let found = &row["parameters"]["direction"];
                row["member"] == member && row["metric"] == metric && found == direction
            });
            let row = row.unwrap_or_else(|| panic!("no {metric} of {member} ({direction})"));
            assert_eq!(row["samples"].as_array().unwrap().len(), 3, "{row}");
            assert_eq!(row["parameters"]["bytes"], "1024", "{row}");
        }
    }
    assert!(rows.iter().all(|row| row["member"] == "openssl" || row["member"] == "portable"));
    assert!(fs::read_to_string(html).unwrap().contains("AES-256"));
    let output = lab(&["compare", &json, &json]);
    assert!(output.status.success(), "{}", stderr(&output));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("0 figures better, 0 worse"), "{shown}");
}

#[test]
fn a_full_disk_is_said_after_the_table() {
    if !has_network() {
        return;
    }
    let output = lab(&[
        "paths",
        "--quick",
        "--transport",
        "rtp",
        "--member",
        "mmap_gso",
        "--sink",
        "ifb-device",
        "--json",
        "/dev/full",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("mmap_gso"), "the table comes first: {shown}");
    let stderr = stderr(&output);
    assert!(stderr.contains("writing /dev/full: No space left on device"), "{stderr}");
}

#[test]
fn bad_input_is_told_what_to_write() {
    let folder = folder();
    let newer = folder.path().join("newer.json");
    fs::write(&newer, r#"{"format": 99, "shape": "unheard of"}"#).unwrap();
    let broken = folder.path().join("broken.json");
    fs::write(&broken, "{ \"format\": 1, ").unwrap();
    let (newer, broken) = (newer.to_str().unwrap(), broken.to_str().unwrap());
    for (arguments, code, wanted) in [
        (&["teleport"][..], 2, "teleport: write one of paths, batch"),
        (&["compare", newer][..], 2, "write two measurement files"),
        (&["compare", newer, newer][..], 2, "format 99; this program reads 1 and 2"),
        (&["report", broken][..], 2, "broken.json"),
        (&["report", "/nowhere.json"][..], 1, "/nowhere.json"),
        (&["paths", "--sink", "bucket"][..], 2, "write ifb-software, ifb-device or veth"),
        (&["cipher", "--member", "rot13"][..], 2, "no such cipher here; write one of"),
        (&["cipher", "--size", "100"][..], 2, "no whole blocks; write 112"),
        (&["paths", "--transport", "pigeon"][..], 2, "write rtp, udp, tcp or interleaved"),
        (&["paths", "--interface", "lo"][..], 2, "--to"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn without_unshare_the_need_is_named() {
    let output = Command::new(PROGRAM)
        .args(["paths", "--quick"])
        .env("PATH", "/nonexistent")
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr(&output);
    assert!(stderr.contains("this needs the program unshare (util-linux)"), "{stderr}");
}

#[test]
fn a_device_that_does_not_lead_there_is_refused_and_nothing_is_sent() {
    let output = lab(&["paths", "--quick", "--interface", "no-such-device", "--to", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let stderr = stderr(&output);
    assert!(stderr.contains("the route to 127.0.0.1 leads by lo"), "{stderr}");
}

/// A veth pair stands in for a card; the laboratory then makes no device itself.
#[test]
fn a_device_of_the_machine_is_measured_where_the_route_leads_by_it() {
    if !has_network() {
        return;
    }
    let script = "ip link set lo up; ip link add card type veth peer name wire; \
                  ip addr add 10.98.0.1/24 dev card; ip link set card up; ip link set wire up; \
                  ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:02 dev card nud permanent; \
                  exec \"$0\" paths --quick --member mmap_gso --interface card --to 10.98.0.2 \
                  --json -";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--", "sh", "-ec", script, PROGRAM])
        .output()
        .expect("unshare runs");
    if !output.status.success() && stderr(&output).starts_with("unshare:") {
        return eprintln!("skip: no user namespace: {}", stderr(&output).trim());
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = results["rows"].as_array().unwrap();
    let cpu_s_per_gb =
        rows.iter().find(|row| row["member"] == "mmap_gso" && row["metric"] == "CPU cost");
    assert_eq!(cpu_s_per_gb.unwrap()["parameters"]["sink"], "card", "{results}");
    let notes = results["notes"].to_string();
    assert!(notes.contains("are not measured by an interface"), "{notes}");
}
