// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of handshakes and tickets; unavailable while this host's clock is before 1970.
//!
//! `rustls-pki-types` counts seconds since 1970 and panics before: at the start of a server, when
//! keys of tickets are made, and in each handshake of a client that may have a ticket. So the time
//! is checked before either; meanwhile handshakes are refused with this reason, and tickets are
//! neither made nor read.
//!
//! Sources: rustls 0.23 `TimeProvider`, `ProducesTickets`, `TicketRotator` (which reads the clock
//! itself).
//! Does not check that the time is right.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

/// The clock of this host.
#[derive(Debug)]
pub(super) struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.ok().map(UnixTime::since_unix_epoch)
    }
}

/// Makes and reads tickets while there is a time.
#[derive(Debug)]
pub(super) struct TimedTickets {
    pub(super) tickets: Arc<dyn ProducesTickets>,
    pub(super) clock: Arc<dyn TimeProvider>,
}

impl ProducesTickets for TimedTickets {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.clock.current_time().and_then(|_| self.tickets.encrypt(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.clock.current_time().and_then(|_| self.tickets.decrypt(cipher))
    }
}
