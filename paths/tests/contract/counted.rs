// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tally's system calls are the ones that were made, as `strace(1)` sees them.

use std::collections::HashMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::Command;

use paths::{Media, Open, PATHS, Tally};

use crate::asset::{Asset, Shape};
use crate::peer::Peer;
use crate::stream_paths;

pub(crate) const BEGIN: &str = "tally-begins";
pub(crate) const END: &str = "tally-ends";

/// One call that stands out in the trace; straight to the descriptor, for a test's output is held
/// back.
pub(crate) fn mark(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_the_tally_has"]
fn inside_a_tracer() {
    let asset = Asset::new(Shape { offset: 78, ..Shape::full(100) });
    // Mapping is a call for each file, not for a send.
    asset.media.map().unwrap();
    asset.image.map().unwrap();
    let pieces = asset.pieces(0..100);
    for (spec, feed, mut path) in stream_paths() {
        let peer = Peer::on_loopback();
        let mut to = peer.destination();
        let batch = asset.batch(feed, 0..100, &pieces);
        for _ in 0..2 {
            let mut tally = Tally::default();
            let begin = format!("{BEGIN} {spec}\n");
            mark(&begin);
            let taken = path.send(&batch, &mut to, &mut tally);
            // Nothing between but what is counted; one call in all is this one.
            mark(END);
            mark(&format!(" {spec} {}\n", tally.calls));
            assert_eq!(taken, Ok(100));
        }
    }
    for spec in PATHS {
        let Open::Download(open) = spec.open else { continue };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut path = open().unwrap();
        let mut tally = Tally::default();
        mark(&format!("{BEGIN} {spec}\n"));
        let sent = path.send(&asset.media, 5, 30_000, server.as_fd(), &mut tally);
        mark(END);
        mark(&format!(" {spec} {}\n", tally.calls));
        assert_eq!(sent, Ok(30_000));
    }
}

#[test]
#[ignore = "run by residence_of_a_mebibyte_is_two_calls"]
fn residence_inside_a_tracer() {
    const BYTES: u64 = 1 << 20;
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![1; BYTES as usize], 0).unwrap();
    let media = Media::open(file, "asset.ts").unwrap();
    mark(BEGIN);
    let resident = media.is_resident(0..BYTES);
    mark(END);
    mark(if resident { " yes" } else { " no" });
}

/// A download asks before each step, so it has to be cheap.
#[test]
fn residence_of_a_mebibyte_is_two_calls() {
    let Some(trace) = traced("counted::residence_inside_a_tracer") else { return };
    let calls: Vec<_> = trace
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(_, call)| call))
        .skip_while(|call| !call.contains(BEGIN))
        .skip(1)
        .take_while(|call| !call.contains(END))
        .collect();
    if !trace.contains("\" yes\"") || !calls[0].contains("= 0") {
        return eprintln!("skip: pages of this file are not counted here: {calls:?}");
    }
    assert_eq!(calls.len(), 2, "{calls:?}");
}

/// Of a trace: for each path, pairs of calls seen and calls in the tally.
pub(crate) fn pairs(trace: &str) -> HashMap<String, Vec<(u64, u64)>> {
    let mut pairs: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
    let mut begun: Option<(&str, u64)> = None;
    let mut ended = None;
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        if call.contains(BEGIN) {
            begun = Some((thread, 0));
        } else if begun.is_some_and(|(tracked, _)| tracked != thread) {
            // Another thread's.
        } else if call.contains(END) {
            ended = begun.take().map(|(_, calls)| calls);
        } else if let Some(seen) = ended.take() {
            // The line that names the path and what its tally has.
            let words: Vec<_> = call.split(['"', ' ', '\\']).filter(|w| !w.is_empty()).collect();
            let of_path = |word: &&str| PATHS.iter().any(|spec| spec.to_string() == **word);
            let at = words.iter().position(of_path).unwrap();
            let counted = words[at + 1].parse().unwrap();
            pairs.entry(words[at].to_string()).or_default().push((seen, counted));
        } else if let Some((_, calls)) = &mut begun
            && !call.contains("resumed>")
            // Made again by the kernel itself: a ring that was closed interrupts its thread once.
            && !call.contains("ERESTARTSYS")
            && !call.trim_start().starts_with("---")
        {
            *calls += 1;
        }
    }
    pairs
}

/// The trace of the ignored test `name`; skips where the host has no tracer or does not let it.
pub(crate) fn traced(name: &str) -> Option<String> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(trace.path()).arg(&program);
    strace.args(["--exact", name, "--ignored", "--test-threads=1"]);
    let output = match strace.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: strace: {error}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if complained.contains("ptrace") {
        eprintln!("skip: strace may not trace here: {}", complained.trim());
        return None;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    Some(std::fs::read_to_string(trace.path()).unwrap())
}

#[test]
fn a_tracer_counts_the_calls_that_the_tally_has() {
    let Some(trace) = traced("counted::inside_a_tracer") else { return };
    let pairs = pairs(&trace);
    let usable = stream_paths().len();
    assert!(pairs.len() > usable, "{pairs:?}");
    for (name, counts) in &pairs {
        for (seen, counted) in counts {
            assert!(*counted > 0, "{name}");
            assert_eq!(seen, counted, "{name}: calls traced, calls in the tally");
        }
    }
}
