// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and SIGTERM for verbs that work: the first asks to stop, the second ends the program.
//!
//! Verbs that serve wait for `serve::stop_signal` on their own runtime; those that work on all
//! cores have none, and this is a thread beside them that sleeps.
//!
//! Sources: signal(7); a shell's exit status for a program ended by a signal.
//! Does not do: wait until the work has stopped.

use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `stop` at the first signal and says `what_becomes` of the work. At the second the program
/// ends where it is.
pub(crate) fn on_interrupt(what_becomes: &'static str, stop: impl Fn() + Send + 'static) {
    let asked = AtomicBool::new(false);
    let wait = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            while let Ok(signal) = crate::serve::stop_signal() {
                signal.await;
                if asked.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
                stop();
                eprintln!("stopping; {what_becomes} (again to end at once)");
            }
        });
    };
    // Without the thread, Ctrl-C simply ends the program.
    let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait);
}

/// As a shell has it: 128 and the signal's number.
const INTERRUPTED: i32 = 130;
