// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls with almost no work in the kernel, after UnixBench's syscall: dup, close, getpid,
//! getuid, umask, repeatedly.
//!
//! Sources: syscalls(2); UnixBench 5.1.3 `syscall.c` (the choice of calls).

use std::fs::File;

use rustix::fs::Mode;
use rustix::process::{getpid, getuid, umask};

use super::{Amount, MIX, Workload, WorkloadSpec};
use crate::error::{Error, same};
use crate::protocol::WorkDone;

const CALLS_OF_TURN: u64 = 5;

pub(super) static SYSTEM_CALL: WorkloadSpec = WorkloadSpec {
    name: "system_call",
    groups: MIX,
    amount: Amount::Calls(25_000),
    open: |amount, _| Ok(Box::new(SystemCall { turns: amount.turns(u64::MAX, CALLS_OF_TURN) })),
};

struct SystemCall {
    turns: u64,
}

impl Workload for SystemCall {
    fn run(&mut self) -> Result<WorkDone, Error> {
        let null = File::open("/dev/null").map_err(Error::host("open", "/dev/null"))?;
        let mask = umask(Mode::from_raw_mode(0o022));
        let own = std::process::id();
        for _ in 0..self.turns {
            drop(rustix::io::dup(&null).map_err(Error::host("dup", "/dev/null"))?);
            let found = getpid().as_raw_nonzero().get().unsigned_abs();
            if found != own {
                same("getpid", own.into(), found.into())?;
            }
            std::hint::black_box(getuid());
            let before = umask(Mode::from_raw_mode(0o022)).bits();
            if before != 0o022 {
                same("umask", 0o022, before.into())?;
            }
        }
        umask(mask);
        Ok(WorkDone { calls: self.turns * CALLS_OF_TURN, ..WorkDone::default() })
    }
}
