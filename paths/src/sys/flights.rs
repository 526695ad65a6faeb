// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zero-copy sends of a ring from their submission to the kernel's notification.
//!
//! Each has a number, which its completions carry, and holds the buffer it refers to in the ring's
//! [`Pool`]. Costs 8 bytes each and no allocation while sending.
//!
//! Sources: `io_uring_enter(2)` (`IORING_OP_SEND_ZC`).
//!
//! Does not predict completions ([`super::uring`] does).

use crate::sys::pool::Pool;

/// Largest number of zero-copy sends with outstanding notifications.
pub(super) const FLIGHTS_MAX: u16 = 1024;

/// Record of a zero-copy send until its notification.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// Bytes that the kernel accepted.
    bytes: u32,
    /// The pool's buffer that must stay unchanged for it.
    buffer: u16,
}

/// Zero-copy sends with outstanding notifications.
#[derive(Debug, Default)]
pub(super) struct Flights {
    all: Vec<InFlight>,
    free: Vec<u16>,
}

impl Flights {
    /// Allocates records for [`FLIGHTS_MAX`] sends.
    pub(super) fn new() -> Self {
        let all = vec![InFlight { bytes: 0, buffer: 0 }; FLIGHTS_MAX.into()];
        Self { all, free: (0..FLIGHTS_MAX).rev().collect() }
    }

    /// Starts a send from `buffer`; returns its number.
    pub(super) fn begin(&mut self, buffer: u16) -> u16 {
        let flight = self.free.pop().expect("the caller asked for a flight");
        self.all[usize::from(flight)] = InFlight { bytes: 0, buffer };
        flight
    }

    /// Records the bytes that it carries.
    pub(super) fn carry(&mut self, flight: usize, bytes: u32) {
        self.all[flight].bytes = bytes;
    }

    /// Returns the number of further sends that may begin.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Ends a send; returns the bytes that it carried.
    pub(super) fn land(&mut self, flight: usize, pool: &mut Option<Pool>) -> u32 {
        let InFlight { bytes, buffer } = self.all[flight];
        pool.as_mut().expect("a ring with a pool").release(buffer);
        self.free.push(flight as u16);
        bytes
    }
}
