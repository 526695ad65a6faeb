// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes processes that end at once without another program, after UnixBench's spawn. `calls` are
//! processes.
//!
//! A plain fork needs `unsafe`: few calls are safe in the child of a program with threads. The
//! standard library can fork: a user number makes it use fork instead of posix_spawn, and a program
//! that does not exist ends the child right after. Beside fork, exit and wait this costs a pipe for
//! the error, setuid (and setgroups for the superuser), and one look-up of a missing name.
//!
//! Sources: fork(2); UnixBench 5.1.3 `spawn.c`; `std::os::unix::process::CommandExt::uid`.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{Amount, MIX, Workload, WorkloadSpec};
use crate::error::Error;
use crate::protocol::WorkDone;

const NAME: &str = "process_creation";
/// A name that no root folder has.
const NOWHERE: &str = "/no-such-program";

pub(super) static PROCESS_CREATION: WorkloadSpec = WorkloadSpec {
    name: NAME,
    groups: MIX,
    amount: Amount::Calls(150),
    open: |amount, _| Ok(Box::new(ProcessCreation { count: amount.turns(1, 1) })),
};

struct ProcessCreation {
    count: u64,
}

impl Workload for ProcessCreation {
    fn run(&mut self) -> Result<WorkDone, Error> {
        let user = rustix::process::getuid().as_raw();
        for _ in 0..self.count {
            match Command::new(NOWHERE).uid(user).spawn() {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::host("fork", NAME)(error)),
                Ok(_) => {
                    return Err(Error::Unavailable {
                        what: NAME.into(),
                        found: format!("there is a program {NOWHERE}"),
                        cure: "take it out of the root folder",
                    });
                }
            }
        }
        Ok(WorkDone { calls: self.count, ..WorkDone::default() })
    }
}
