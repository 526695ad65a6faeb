// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of a matrix, several at a time: each lasts as long as its film. Every case is printed with
//! its outcome, and after a failure the others still run.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// One cell of a matrix.
pub(crate) trait Case: Sync + Send {
    /// Name for messages.
    fn name(&self) -> String;

    /// Plays it, and panics where the received stream is wrong; returns false, with the reason
    /// printed as a skip, where a component is not installed.
    fn plays(&self, name: &str) -> bool;
}

/// Runs all cases.
///
/// # Panics
/// Some have failed; their panics are printed.
#[track_caller]
pub(crate) fn run(cases: Vec<impl Case>) {
    let (waiting, failed) = (Mutex::new(VecDeque::from(cases)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let Some(case) = waiting.lock().unwrap().pop_front() else { break };
                    if !succeeds(&case) {
                        failed.lock().unwrap().push(case.name());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed, as said above: {}", failed.join(", "));
}

fn succeeds(case: &impl Case) -> bool {
    let (name, began) = (case.name(), Instant::now());
    // A thread of its own, so that its panic affects only this case.
    let played = thread::scope(|scope| scope.spawn(|| case.plays(&name)).join());
    let took = began.elapsed().as_secs_f64();
    match played {
        Ok(true) => println!("case: {name}: equal, {took:.1} s"),
        // The reason has been printed.
        Ok(false) => {}
        Err(_) => println!("case: {name}: FAILED, {took:.1} s"),
    }
    played.is_ok()
}

/// Concurrent cases: more would delay clients on two cores.
const SIDE_BY_SIDE: usize = 8;
