// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) for verbs that work: the first signal
//! requests a stop, the second ends the program.
//!
//! A separate thread sleeps until a signal arrives. Verbs that serve wait for signals on their own
//! runtime instead.
//!
//! Sources: signal(7); the exit status that a shell shows for a program ended by a signal.
//! Does not wait until the work has stopped.

use std::io::Write as _;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at the first signal and prints `consequence`, the effect on the work. The second
/// signal ends the program at once.
pub fn on_interrupt(consequence: &'static str, stop: impl Fn() + Send + 'static) {
    // Without a handler or a thread, Ctrl-C ends the program at once.
    let all = [SIGINT, SIGTERM, SIGHUP];
    // nohup(1) has a program ignore the end of its terminal.
    let heeded = all.iter().filter(|&&signal| signal != SIGHUP || !is_ignored(SIGHUP));
    let Ok(mut signals) = Signals::new(heeded) else { return };
    let wait = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            stop();
            // The terminal may be gone.
            let _ = writeln!(std::io::stderr(), "stopping; {consequence} (again to end at once)");
        }
        if signals.next().is_some() {
            std::process::exit(INTERRUPTED);
        }
    };
    let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait);
}

/// True if this process ignores a signal, as it was started (proc_pid_status(5), SigIgn).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: i32 = 130;
