// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process that replaces itself with this program repeatedly, after UnixBench's execl. `calls` are
//! calls of execve.
//!
//! Sources: execve(2); UnixBench 5.1.3 `execl.c`.

use super::{Amount, MIX, Workload, WorkloadSpec};
use crate::error::Error;
use crate::program::{command, succeeded};
use crate::protocol::WorkDone;
use crate::role::SELF;

const NAME: &str = "execl";

pub(super) static EXECL: WorkloadSpec = WorkloadSpec {
    name: NAME,
    groups: MIX,
    amount: Amount::Calls(100),
    open: |amount, _| Ok(Box::new(Execl { count: amount.turns(1, 1) })),
};

struct Execl {
    count: u64,
}

impl Workload for Execl {
    fn run(&mut self) -> Result<WorkDone, Error> {
        // Counts the start of the process as one of them.
        let left = (self.count - 1).to_string();
        let status = command(SELF).args(["role=exec", &left]).status();
        succeeded(NAME, status.map_err(Error::host("execve", SELF))?)?;
        Ok(WorkDone { calls: self.count, ..WorkDone::default() })
    }
}
