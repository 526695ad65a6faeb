// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a member claims to cost is what was counted, and what was counted is what was done.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use paths::{Crossings, Port, Relay, Taken, Target, Via, Way};

use crate::sender::Sender;
use crate::{ROOM_BYTES, Receiver, datagrams, joins, places};

const PACKETS: usize = 256;
const BYTES: usize = 1328;
/// Datagrams of a run of this length, in 64 KiB.
const RUN: usize = 49;

fn since(now: Taken, before: Taken) -> Taken {
    Taken {
        packets: now.packets - before.packets,
        bytes: now.bytes - before.bytes,
        calls: now.calls - before.calls,
        waits: now.waits - before.waits,
        copied_bytes: now.copied_bytes - before.copied_bytes,
        truncated: now.truncated - before.truncated,
        malformed: now.malformed - before.malformed,
    }
}

#[test]
fn taking_in_costs_the_calls_and_copies_it_claims() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        let sent = datagrams(PACKETS, BYTES, BYTES);
        // What is claimed is what it costs when all is in place, and there is plenty.
        for round in 0..3 {
            sender.runs(&sent);
            let before = receiver.taken();
            (receiver.bursts, receiver.arrivals) = (0, 0);
            receiver.wait_for(PACKETS);
            assert_eq!(receiver.got.len(), PACKETS, "{place}");
            receiver.got.clear();
            let taken = since(receiver.taken(), before);
            let what = format!("{place} round {round}: {taken:?}, {} bursts", receiver.bursts);
            let bytes = (PACKETS * BYTES) as u64;
            assert_eq!((taken.packets, taken.bytes), (PACKETS as u64, bytes), "{what}");
            assert_eq!((taken.truncated, taken.malformed), (0, 0), "{what}");
            let copies = u64::from(place.spec.copies_per_byte);
            assert_eq!(taken.copied_bytes, copies * bytes, "{what}");
            let (each, most) = match place.spec.crossings {
                Crossings::PerPacket(each) => (each, PACKETS as u64),
                Crossings::PerRun(each) => (each, (PACKETS as u64).div_ceil(RUN as u64)),
                // With plenty there, a batch is of many.
                Crossings::PerBatch(each) => {
                    assert!(receiver.bursts <= PACKETS as u64 / 16, "{what}");
                    (each, receiver.bursts)
                }
                Crossings::PerStep(_) => panic!("{what}: nothing is taken in by steps"),
            };
            assert_eq!(taken.calls, u64::from(each) * most, "{what}");
            // What is in a ring already is seen without a call.
            assert!(taken.waits >= 1 || place.spec.via == Via::Device, "{what}");
        }
    }
}

#[test]
fn what_joins_runs_hands_them_over_joined() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        sender.runs(&datagrams(PACKETS, BYTES, BYTES));
        receiver.wait_for(PACKETS);
        let joined = receiver.arrivals < PACKETS as u64;
        assert_eq!(receiver.got.len(), PACKETS, "{place}");
        let claimed = joins(place.spec);
        assert_eq!(joined, claimed, "{place}: {} pieces", receiver.arrivals);
    }
}

const BEGIN: &str = "taking-begins";
const END: &str = "taking-ends";

/// One call that stands out in the trace; straight to the descriptor, for a test's output is held
/// back.
fn mark(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_were_counted"]
fn inside_a_tracer() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        let sent = datagrams(PACKETS, BYTES, 10);
        // Memory to put what comes into, so that none is asked for between the marks.
        let mut lengths: Vec<usize> = Vec::with_capacity(4 * PACKETS);
        for _ in 0..3 {
            sender.runs(&sent);
            sent[..20].iter().for_each(|datagram| sender.one(datagram));
            lengths.clear();
            let before = receiver.taken();
            mark(&format!("{BEGIN}\n"));
            while lengths.len() < PACKETS + 20 {
                let mut each = |burst: &[paths::Arrival<'_>]| {
                    for arrival in burst {
                        lengths.extend(arrival.datagrams().map(<[u8]>::len));
                    }
                };
                receiver.path.receive(Duration::from_secs(10), &mut each).unwrap();
            }
            // And once in vain.
            receiver.path.receive(Duration::from_millis(1), &mut |_| {}).unwrap();
            mark(END);
            let taken = since(receiver.taken(), before);
            mark(&format!(" {} {}\n", place.spec, taken.calls + taken.waits));
        }
    }
}

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_were_counted"]
fn relaying_inside_a_tracer() {
    for mut relay in [Relay::new().unwrap(), Relay::copying().unwrap()] {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let peer = UdpSocket::bind(here).unwrap();
        let target = Target { address: peer.local_addr().unwrap(), interface: None, hops: None };
        let port = Port { address: here, sources: vec![], interface: None, buffer_bytes: 1 << 20 };
        relay.add(&port, 1, &target).unwrap();
        let mut sender = Sender::new(here.ip(), relay.address(1).unwrap());
        let sent = datagrams(PACKETS, BYTES, 10);
        for _ in 0..3 {
            sender.runs(&sent);
            sent[..20].iter().for_each(|datagram| sender.one(datagram));
            sender.one(b"");
            let calls =
                |relay: &Relay| relay.taken().calls + relay.taken().waits + relay.tally().calls;
            let before = calls(&relay);
            mark(&format!("{BEGIN}\n"));
            let mut came = 0;
            while came < PACKETS + 21 {
                came += relay.forward(Duration::from_secs(10), &mut |_| {}).unwrap();
            }
            relay.forward(Duration::from_millis(1), &mut |_| {}).unwrap();
            mark(END);
            let way = if *relay.way() == Way::Splice { "splice" } else { "copy" };
            mark(&format!(" receive/relay_{way} {}\n", calls(&relay) - before));
        }
    }
}

/// Of a trace: the member, calls seen, calls counted.
fn counts(trace: &str) -> Vec<(String, u64, u64)> {
    let mut counts = Vec::new();
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
            // The line that names the member and what it has counted.
            let words: Vec<_> = call.split(['"', ' ', '\\']).filter(|w| !w.is_empty()).collect();
            let at = words.iter().position(|word| word.starts_with("receive/")).unwrap();
            counts.push((words[at].to_string(), seen, words[at + 1].parse().unwrap()));
        } else if let Some((_, calls)) = &mut begun
            && !call.contains("resumed>")
            // The kernel goes on with it by itself, and the tracer sees that as another.
            && !call.contains("ERESTART")
            && !call.trim_start().starts_with("---")
        {
            *calls += 1;
        }
    }
    counts
}

/// The trace of the ignored test `name`; skips where the host has no tracer or does not let it.
fn traced(name: &str) -> Option<String> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(trace.path()).arg(std::env::current_exe().unwrap());
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
fn a_tracer_counts_the_calls_that_were_counted() {
    let members = 3 * places().len();
    for (name, count) in [("inside_a_tracer", members), ("relaying_inside_a_tracer", 6)] {
        let Some(trace) = traced(&format!("claims::{name}")) else { return };
        let counts = counts(&trace);
        assert!((1..=count).contains(&counts.len()), "{counts:?}");
        for (name, seen, counted) in counts {
            assert!(counted > 0, "{name}");
            assert_eq!(seen, counted, "{name}: calls traced, calls counted");
        }
    }
}
