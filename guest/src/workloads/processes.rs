// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts this program again as a process that ends at once, and waits for it: what a shell does
//! for every command. `calls` are processes.
//!
//! Sources: posix_spawn(3), which the standard library uses here (vfork and execve).

use super::{Amount, Load, MIX, Spec};
use crate::error::Error;
use crate::program::{command, succeeded};
use crate::protocol::Work;
use crate::role::SELF;

const NAME: &str = "processes";

pub(super) static PROCESSES: Spec = Spec {
    name: NAME,
    groups: MIX,
    amount: Amount::Calls(40),
    open: |amount, _| Ok(Box::new(Processes { count: amount.turns(1, 1) })),
};

struct Processes {
    count: u64,
}

impl Load for Processes {
    fn run(&mut self) -> Result<Work, Error> {
        for _ in 0..self.count {
            let status = command(SELF).arg("role=exit").status();
            succeeded(NAME, status.map_err(Error::host("posix_spawn", SELF))?)?;
        }
        Ok(Work { calls: self.count, ..Work::default() })
    }
}
