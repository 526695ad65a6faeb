// SPDX-License-Identifier: MIT OR Apache-2.0
//! The canary: a paced session that plays beside an attack and must not be affected by it.
//!
//! It is `pagewire play`, so its lateness is measured by the kernel's time stamps. Every packet
//! must reach its socket: missing ones are allowed only where the kernel counts as many that it
//! dropped there, since a busy machine may keep the canary from its core for longer than its buffer
//! lasts. After the attack it continues for [`PACKETS_AFTER`] packets.
//!
//! `make test-attacks` sets `PAGEWIRE_CANARY_MS`, a bound on the lateness of 99.9 % of the packets.
//! The canary then has 5 Mb/s instead of one, plays for [`PLAY_LEAST`], and may lose nothing.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Server, watchdog};

/// The asset that it plays.
pub(crate) const NAME: &str = "canary.ts";

/// A clip of one minute, longer than any attack.
pub(crate) fn clip() -> Vec<u8> {
    Clip { bits_per_second: bits_per_second(), ..Clip::of_seconds(1, 60) }.bytes()
}

pub(crate) fn bits_per_second() -> u64 {
    if is_judged() { 5_000_000 } else { 1_000_000 }
}

/// True in the suite of attacks, which has an idle machine and time.
pub(crate) fn is_judged() -> bool {
    lateness_bound_ms().is_some()
}

/// Returns the bound on the lateness in milliseconds, where it is to be judged.
fn lateness_bound_ms() -> Option<f64> {
    let bound = std::env::var_os("PAGEWIRE_CANARY_MS")?;
    Some(bound.to_str().and_then(|ms| ms.parse().ok()).expect("PAGEWIRE_CANARY_MS: milliseconds"))
}

/// A running canary. Dropped without a verdict, it is killed.
pub(crate) struct Canary<'a> {
    child: Child,
    server: &'a Server,
    verdict: PathBuf,
    began: Instant,
}

impl Canary<'_> {
    /// Starts to play; the attack begins when its first packets have been sent.
    #[track_caller]
    pub(crate) fn play(server: &Server) -> Canary<'_> {
        let before = sent(&server.index());
        let verdict = server.place.top().join(format!("canary-{}.json", fresh_number()));
        let child = Command::new(PROGRAM)
            .args(["play", "--json", &server.rtsp_url(NAME)])
            .stdin(Stdio::null())
            .stdout(fs::File::create(&verdict).expect("room for a verdict"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the program under test starts");
        let canary = Canary { child, server, verdict, began: Instant::now() };
        server.await_index("the canary plays", |index| sent(index) > before + PACKETS_AFTER);
        canary
    }

    /// Lets it continue for a while, stops it, and asserts that it missed no packet.
    #[track_caller]
    pub(crate) fn assert_unharmed(mut self) {
        self.play_on();
        // It may have played to its end.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let status = watchdog::wait(&mut self.child, STOP_WAIT).expect("it stops when it is told");
        let text = fs::read_to_string(&self.verdict).expect("it was made above");
        let verdict: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("canary, {status}: no verdict: {error}: {text:?}"));
        let count = |name: &str| verdict[name].as_u64().expect("a count");
        let lost = count("lost") + count("lost_at_ends");
        let dropped = verdict["kernel_drops"].as_u64().unwrap_or(0);
        let lateness = &verdict["lateness"];
        println!(
            "canary: {} packets, {lost} lost, {dropped} dropped at its socket, late by p50 {} p99 \
             {} p99.9 {} max {} ms",
            verdict["packets"], lateness["p50"], lateness["p99"], lateness["p999"], lateness["max"],
        );
        // The program reports a loss as a failure, wherever the packet was lost.
        let is_its_own = !is_judged() && lost > 0;
        assert!(status.success() || is_its_own, "canary, {status}: {verdict:#}");
        assert!(count("packets") > 0, "{verdict:#}");
        assert!(lost <= dropped, "{lost} packets did not reach the canary: {verdict:#}");
        if let Some(bound) = lateness_bound_ms() {
            assert_eq!(lost, 0, "{verdict:#}");
            let p999 = lateness["p999"].as_f64().expect("a figure");
            assert!(p999 <= bound, "the canary's p99.9 is {p999} ms, its bound {bound} ms");
        }
    }

    #[track_caller]
    fn play_on(&mut self) {
        if is_judged() {
            thread::sleep(PLAY_LEAST.saturating_sub(self.began.elapsed()));
            return;
        }
        let (before, deadline) = (sent(&self.server.index()), Instant::now() + PLAY_WAIT);
        // It may have played to its end.
        while self.child.try_wait().expect("it is our child").is_none() {
            let now = sent(&self.server.index());
            if now >= before + PACKETS_AFTER {
                return;
            }
            assert!(Instant::now() < deadline, "canary: {} packets since", now - before);
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Canary<'_> {
    fn drop(&mut self) {
        // After a verdict the process has already been waited for, and both calls have no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the RTP packets sent so far to all sessions.
fn sent(index: &Value) -> u64 {
    index["server"]["packets"].as_u64().expect("a count")
}

fn fresh_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Half a second of the canary.
const PACKETS_AFTER: u64 = 50;
const PLAY_LEAST: Duration = Duration::from_secs(3);
const PLAY_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
