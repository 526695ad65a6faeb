// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two servers with one channel, one of them its hot standby, in a separate network: whatever
//! happens to the primary, a receiver of the group loses at most a second and gets one stream.
//!
//! The receiver distinguishes the servers by their ports; a real one sees one sender.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::await_state;
use crate::capture::{Datagram, RTP_BYTES, longest_gap, rtp, stream};
use crate::harness::Server;
use crate::network::{self, Owner};
use crate::standby::{
    BARE, BY_RTP, LOOPBACK, Receivers, assert_stands_by, files, forged, kill, local_port, ports,
    start,
};

/// Returns the times of the first and the last packet of a port.
fn span(datagrams: &[Datagram], port: u16) -> (Instant, Instant) {
    let mut of_port = datagrams.iter().filter(|datagram| datagram.from.port() == port);
    let first = of_port.next().expect("packets of that port").at;
    (first, of_port.next_back().map_or(first, |last| last.at))
}

impl Receivers {
    /// Asserts that at `moment` one server took over from the other, with a gap and an overlap
    /// below these limits.
    #[track_caller]
    fn assert_handed_over(&self, what: &str, moment: Instant, gap: Duration, overlap: Duration) {
        for (channel, name) in [(BY_RTP, "rtp"), (BARE, "udp")] {
            let datagrams = self.since(channel, moment - BEFORE);
            let ports = ports(&datagrams);
            assert_eq!(ports.len(), 2, "{what}, {name}: {ports:?}");
            let (_, last) = span(&datagrams, ports[0]);
            let (first, _) = span(&datagrams, ports[1]);
            let (silent, both) =
                (first.saturating_duration_since(last), last.saturating_duration_since(first));
            eprintln!("{what}, {name}: silent {silent:?}, both {both:?}");
            assert!(silent <= gap, "{what}, {name}: nothing came for {silent:?}");
            assert!(both <= overlap, "{what}, {name}: both servers sent for {both:?}");
        }
    }
}

#[test]
fn a_receiver_loses_a_second_at_most() {
    network::run(Owner::User, LOOPBACK, "timed::standby::inside_a_network");
}

#[test]
#[ignore = "in a network of its own, by the test above"]
fn inside_a_network() {
    let Some(files) = files("timed::standby::a_receiver_loses_a_second_at_most") else { return };
    let mut receivers = Receivers::open();
    let primary = start("primary", &files);
    receivers.wait_for_both("the primary", Instant::now(), &[vec![], vec![]]);
    let standby = start("standby", &files);
    let together = Instant::now();
    sleep(Duration::from_millis(2500));
    assert_stands_by(&standby);
    let of_primary = receivers.ports_since(together);
    assert!(of_primary.iter().all(|ports| ports.len() == 1), "one sends: {of_primary:?}");

    let killed = Instant::now();
    kill(&primary, Signal::KILL);
    receivers.wait_for_both("the standby", killed, &of_primary);
    sleep(Duration::from_secs(1));
    receivers.assert_handed_over("killed", killed, SILENCE_MAX, OVERLAP_MAX);
    drop(primary);

    hear_strangers(&mut receivers);

    let of_standby = receivers.ports_since(killed + SILENCE_MAX);
    let again = Instant::now();
    let primary = start("primary", &files);
    receivers.wait_for_both("the primary again", again, &of_standby);
    sleep(Duration::from_secs(1));
    let returned = Instant::now();
    sleep(Duration::from_millis(1500));
    let senders = receivers.ports_since(returned);
    assert!(senders.iter().all(|ports| ports.len() == 1), "one sends: {senders:?}");
    receivers.assert_handed_over("returned", again, SILENCE_MAX, OVERLAP_MAX);

    stop_and_continue(&receivers, &primary);
    let ended = Instant::now();
    primary.stop();
    sleep(Duration::from_millis(1500));
    receivers.assert_handed_over("ended", ended, SILENCE_MAX, OVERLAP_MAX);
    await_state(&standby, BY_RTP, "it counts", |state| state["takeovers"].as_u64() >= Some(3));
    standby.stop();
    let [by_rtp, bare] = [BY_RTP, BARE].map(|channel| receivers.since(channel, together));
    for capture in receivers.captures {
        capture.stop();
    }
    assert_one_stream(&by_rtp, &bare);
}

/// Strangers send to both groups for three seconds; the standby, which is on the air, continues.
#[track_caller]
fn hear_strangers(receivers: &mut Receivers) {
    let hostile = forged();
    receivers.strangers = hostile.iter().map(|(sender, _)| local_port(sender)).collect();
    let began = Instant::now();
    for _ in 0..60 {
        hostile.iter().for_each(|(sender, datagram)| sender.send_raw(datagram));
        sleep(Duration::from_millis(50));
    }
    for channel in [BY_RTP, BARE] {
        let gap = longest_gap(&receivers.since(channel, began));
        assert!(gap < SILENCE_MAX, "a stranger's packets silence channel {channel} for {gap:?}");
    }
}

/// The primary loses its processor for longer than the standby waits, and gets it back.
#[track_caller]
fn stop_and_continue(receivers: &Receivers, primary: &Server) {
    let senders = receivers.ports_since(Instant::now() - BEFORE);
    let stopped = Instant::now();
    kill(primary, Signal::STOP);
    sleep(Duration::from_millis(2500));
    receivers.assert_handed_over("stopped", stopped, SILENCE_MAX, OVERLAP_MAX);
    let continued = Instant::now();
    kill(primary, Signal::CONT);
    sleep(Duration::from_millis(2500));
    receivers.assert_handed_over("continued", continued, SILENCE_MAX, OVERLAP_MAX);
    let last = receivers.ports_since(continued + Duration::from_millis(1500));
    assert_eq!(last, senders, "the primary has the group again");
}

/// Asserts that a receiver got one stream: consecutive numbers and counters, and a clock that never
/// goes back except while both servers sent.
#[track_caller]
fn assert_one_stream(by_rtp: &[Datagram], bare: &[Datagram]) {
    // An RTP receiver drops packets that are repeated or too late.
    let (mut in_order, mut dropped, mut missing) = (Vec::<Datagram>::new(), 0, 0);
    let mut next: Option<u16> = None;
    for datagram in by_rtp {
        let sequence = rtp(datagram).0;
        let ahead = sequence.wrapping_sub(next.unwrap_or(sequence));
        if ahead >= 0x8000 {
            dropped += 1;
            continue;
        }
        missing += u32::from(ahead);
        next = Some(sequence.wrapping_add(1));
        in_order.push(datagram.clone());
    }
    let sources: Vec<u32> = by_rtp.iter().map(|datagram| rtp(datagram).2).collect();
    assert!(sources.iter().all(|source| *source == sources[0]), "one sender, to a receiver");
    eprintln!("of {}: {dropped} again or too late, {missing} numbers missing", by_rtp.len());
    assert!(dropped <= DROPPED_MAX, "{dropped} packets again or too late");
    assert!(missing <= MISSING_MAX, "{missing} numbers missing");
    for (name, stream) in [("rtp", stream(&in_order, RTP_BYTES)), ("udp", stream(bare, 0))] {
        let walk = stream.walk();
        let gaps = walk.counter_gaps.len();
        let steps = walk.clocks.windows(2).map(|pair| (pair[1].1 - pair[0].1) / 27_000);
        let back: Vec<i128> = steps.filter(|step_ms| *step_ms < 0).collect();
        eprintln!("{name}: {gaps} gaps of counters, the clock goes back by {back:?} ms");
        assert!(gaps <= SEAM_GAPS_MAX, "{name}: {gaps} gaps: {:?}", walk.counter_gaps);
        // Only where both sent, and by no more than they both sent.
        let limit_ms = -(OVERLAP_MAX.as_millis() as i128);
        let is_short = back.iter().all(|step_ms| *step_ms >= limit_ms);
        assert!(back.len() <= CHANGES && is_short, "{name}: the clock goes back: {back:?} ms");
        assert!(walk.faults.is_empty(), "{name}: {:?}", walk.faults);
    }
}

/// The promise: a receiver loses at most a second.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// One or two wake-ups of the server that steps back, on a busy machine.
const OVERLAP_MAX: Duration = Duration::from_millis(500);
/// Length of the window before a change in which the active sender is identified.
const BEFORE: Duration = Duration::from_millis(300);
/// Packets of two overlaps of [`OVERLAP_MAX`] at 190 packets a second.
const DROPPED_MAX: u32 = 200;
const MISSING_MAX: u32 = 20;
/// Changes of server.
const CHANGES: usize = 5;
/// A counter of each of five PIDs.
const SEAM_GAPS_MAX: usize = 5 * CHANGES;
