// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts this program again as a process that ends at once, and waits for it, as a shell does for
//! every command. `calls` are processes.
//!
//! Sources: posix_spawn(3), which the standard library uses here (vfork and execve).

use super::{Amount, MIX, Workload, WorkloadSpec};
use crate::error::Error;
use crate::program::{command, succeeded};
use crate::protocol::WorkDone;
use crate::role::SELF;

const NAME: &str = "processes";

pub(super) static PROCESSES: WorkloadSpec = WorkloadSpec {
    name: NAME,
    groups: MIX,
    amount: Amount::Calls(40),
    open: |amount, _| Ok(Box::new(Processes { count: amount.turns(1, 1) })),
};

struct Processes {
    count: u64,
}

impl Workload for Processes {
    fn run(&mut self) -> Result<WorkDone, Error> {
        for _ in 0..self.count {
            let status = command(SELF).arg("role=exit").status();
            succeeded(NAME, status.map_err(Error::host("posix_spawn", SELF))?)?;
        }
        Ok(WorkDone { calls: self.count, ..WorkDone::default() })
    }
}
