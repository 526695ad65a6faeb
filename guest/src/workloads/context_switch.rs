// SPDX-License-Identifier: MIT OR Apache-2.0
//! Token that goes to a second process through one pipe and returns through another, after
//! UnixBench's context1: with one processor each way is a context switch. `calls` are the reads and
//! writes of both processes, four a round trip.
//!
//! Sources: pipe(7); UnixBench 5.1.3 `context1.c`.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::{Amount, MIX, Workload, WorkloadSpec, pattern};
use crate::error::{Error, same};
use crate::program::{command, succeeded};
use crate::protocol::WorkDone;
use crate::role::SELF;
use crate::settings::GuestSettings;

const NAME: &str = "context_switch";
/// Bytes of the token.
pub(crate) const TOKEN_BYTES: usize = pattern::WORD_BYTES;
const CALLS_OF_TRIP: u64 = 4;

pub(super) static CONTEXT_SWITCH: WorkloadSpec =
    WorkloadSpec { name: NAME, groups: MIX, amount: Amount::Calls(10_000), open };

struct ContextSwitch {
    echo: Child,
    /// Pipes to and from the echo, which ends when they are closed.
    pipes: Option<(ChildStdin, ChildStdout)>,
    trips: u64,
}

fn open(amount: Amount, _: &GuestSettings) -> Result<Box<dyn Workload>, Error> {
    let mut echo = command(SELF)
        .arg("role=echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::host("posix_spawn", SELF))?;
    let pipes = echo.stdin.take().zip(echo.stdout.take());
    let trips = amount.turns(2 * TOKEN_BYTES as u64, CALLS_OF_TRIP);
    let mut load = ContextSwitch { echo, pipes, trips };
    // Makes the first trip unmeasured: it waits for the start of the process.
    load.trip(0)?;
    Ok(Box::new(load))
}

impl ContextSwitch {
    fn trip(&mut self, number: u64) -> Result<(), Error> {
        let (source, target) = self.pipes.as_mut().expect("the pipes are open until the check");
        let mut token = number.to_le_bytes();
        source.write_all(&token).map_err(Error::host("write", NAME))?;
        target.read_exact(&mut token).map_err(Error::host("read", NAME))?;
        same(NAME, number, u64::from_le_bytes(token))
    }
}

impl Workload for ContextSwitch {
    fn run(&mut self) -> Result<WorkDone, Error> {
        for number in 0..self.trips {
            self.trip(number)?;
        }
        let calls = self.trips * CALLS_OF_TRIP;
        Ok(WorkDone { bytes: calls * TOKEN_BYTES as u64, calls, packets: 0 })
    }

    fn check(&mut self) -> Result<(), Error> {
        self.pipes = None;
        succeeded(NAME, self.echo.wait().map_err(Error::host("wait", NAME))?)
    }
}
