// SPDX-License-Identifier: MIT OR Apache-2.0
//! The canary: a paced session of 5 Mb/s that plays beside an attack and must not notice it.
//!
//! It is `pagewire play`, so its lateness is by the kernel's time stamps. Lost packets always fail
//! the test. Lateness fails it only where `PAGEWIRE_CANARY_MS` gives a bound for 99.9 % of the
//! packets (`make attacks`), because a test machine does other things besides.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{PROGRAM, Server, watchdog};

/// The asset it plays: a minute of 5 Mb/s, which no attack outlasts.
pub(crate) const NAME: &str = "canary.ts";

/// A running canary. Dropped without a verdict, it is killed.
pub(crate) struct Canary {
    child: Child,
    verdict: PathBuf,
    began: Instant,
}

impl Canary {
    /// Starts to play; the attack begins when its first packets are on their way.
    #[track_caller]
    pub(crate) fn play(server: &Server) -> Canary {
        let sent = |server: &Server| server.index()["server"]["packets"].as_u64().expect("a count");
        let before = sent(server);
        let verdict = server.place.top().join(format!("canary-{}.json", fresh_number()));
        let child = Command::new(PROGRAM)
            .args(["play", "--json", &server.rtsp_url(NAME)])
            .stdin(Stdio::null())
            .stdout(fs::File::create(&verdict).expect("room for a verdict"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the program under test starts");
        let canary = Canary { child, verdict, began: Instant::now() };
        server.await_index("the canary plays", |index| {
            index["server"]["packets"].as_u64() > Some(before)
        });
        canary
    }

    /// Stops it, after a second of play at least, and asserts that no packet was lost.
    #[track_caller]
    pub(crate) fn assert_unharmed(mut self) {
        thread::sleep(PLAY_LEAST.saturating_sub(self.began.elapsed()));
        // It may have played to its end.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let status = watchdog::wait(&mut self.child, STOP_WAIT).expect("it stops when it is told");
        let text = fs::read_to_string(&self.verdict).expect("it was made above");
        let verdict: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("canary, {status}: no verdict: {error}: {text:?}"));
        assert!(status.success(), "canary, {status}: {verdict:#}");
        assert_eq!((&verdict["lost"], &verdict["lost_at_ends"]), (&0.into(), &0.into()));
        let lateness = &verdict["lateness"];
        println!(
            "canary: {} packets, 0 lost, late by p50 {} p99 {} p99.9 {} max {} ms",
            verdict["packets"], lateness["p50"], lateness["p99"], lateness["p999"], lateness["max"],
        );
        if let Some(bound) = std::env::var_os("PAGEWIRE_CANARY_MS") {
            let bound: f64 = bound.to_str().and_then(|ms| ms.parse().ok()).expect("milliseconds");
            let p999 = lateness["p999"].as_f64().expect("a figure");
            assert!(p999 <= bound, "the canary's p99.9 is {p999} ms, its bound {bound} ms");
        }
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // Already waited for where it gave a verdict: then neither does anything.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fresh_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const PLAY_LEAST: Duration = Duration::from_secs(3);
const STOP_WAIT: Duration = Duration::from_secs(20);
