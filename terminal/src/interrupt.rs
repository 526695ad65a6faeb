// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and SIGTERM for verbs that work: the first signal requests a stop, the second ends the
//! program.
//!
//! A separate thread sleeps until a signal arrives. Verbs that serve wait for signals on their own
//! runtime instead.
//!
//! Sources: signal(7); the exit status that a shell shows for a program ended by a signal.
//! Does not wait until the work has stopped.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at the first signal and prints `consequence`, the effect on the work. The second
/// signal ends the program at once.
pub fn on_interrupt(consequence: &'static str, stop: impl Fn() + Send + 'static) {
    // Without a handler or a thread, Ctrl-C ends the program at once.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let wait = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            stop();
            eprintln!("stopping; {consequence} (again to end at once)");
        }
        if signals.next().is_some() {
            std::process::exit(INTERRUPTED);
        }
    };
    let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait);
}

/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: i32 = 130;
