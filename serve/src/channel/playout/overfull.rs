// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects that the constant rate of a channel has too little room for its files.
//!
//! A PES packet that finds no room within 250 ms is dropped whole, so pictures are missing although
//! every sent packet is in order. Only the channel can see that.
//!
//! Costs a comparison of two numbers a wake.
//!
//! Sources: `media/src/ts/splice/mod.rs`, [`media::SpliceCounts::late_units`].
//! Does not choose a rate.

use std::time::{Duration, Instant};

use super::ChannelShared;

/// Watches the count of dropped PES packets of one channel.
#[derive(Default)]
pub(super) struct OverfullWatch {
    units: u64,
    logged_at: Option<Instant>,
}

/// The last drop, for the index.
#[derive(Debug)]
pub(super) struct Overfull {
    at: Instant,
    fault: String,
}

impl OverfullWatch {
    /// Compares the count with the last one. `needed_bits` is the mean rate of the file on the air.
    pub(super) fn look(
        &mut self,
        units: u64,
        needed_bits: Option<u64>,
        shared: &ChannelShared,
        now: Instant,
    ) {
        let dropped = units.saturating_sub(self.units);
        self.units = units;
        let Some(rate) = shared.config.constant_rate_kbps.filter(|_| dropped > 0) else { return };
        let on_air = shared.on_air.lock().clone();
        let name = on_air.entry.unwrap_or_else(|| "the end of a file".into());
        let needed = needed_bits.unwrap_or(0) / 1000;
        let fault = format!(
            "{name}: pictures or sounds are left out: constant_rate_kbps = {rate} has no room for \
             them; the file has {needed} kb/s in the mean and more at times; write a higher rate"
        );
        if self.logged_at.is_none_or(|at| now.saturating_duration_since(at) > LOG_EVERY) {
            self.logged_at = Some(now);
            tracing::warn!("channel.{}: {fault}; {units} left out so far", shared.config.name);
        }
        let mut overfull = shared.overfull.lock();
        *overfull = Some(Overfull { at: now, fault });
    }
}

impl ChannelShared {
    /// Returns the fault of the last minute, if there was one.
    pub(super) fn overfull(&self) -> Option<String> {
        let overfull = self.overfull.lock();
        let now = self.clock.now();
        overfull
            .as_ref()
            .filter(|last| now.saturating_duration_since(last.at) < SHOWN_FOR)
            .map(|last| last.fault.clone())
    }
}

const LOG_EVERY: Duration = Duration::from_secs(60);
const SHOWN_FOR: Duration = Duration::from_secs(60);
