// SPDX-License-Identifier: MIT OR Apache-2.0
//! copies: the bytes of made segments that one address reads at a time.
//!
//! A segment whose bytes were put together lies in memory or on the disk as long as somebody reads
//! it, and all of them have a limit together ([`crate::web`]). A client that asks for many and
//! reads none would take all of it from the others.
//!
//! Costs a look into the table of addresses for each of these answers, and another at its end.
//!
//! Does not count segments that are ranges of a file: they take no memory.

use std::net::IpAddr;
use std::sync::Arc;

use super::Limiter;

/// Bytes of made segments on their way to one address: some fifty segments of 5 Mb/s.
const BYTES_PER_ADDRESS: u64 = 256 << 20;

/// One counted answer; dropping it uncounts it.
pub(crate) struct CopyPermit {
    limiter: Arc<Limiter>,
    address: Option<IpAddr>,
    bytes: u64,
}

impl Limiter {
    /// Counts an answer with so many bytes of a made segment; `None` where the address has too many
    /// on their way. One alone may be larger.
    pub(crate) fn read_copy(self: &Arc<Self>, peer: IpAddr, bytes: u64) -> Option<CopyPermit> {
        let address = self.counted(peer);
        if let Some(address) = address {
            let mut table = self.table();
            let held = table.addresses.entry(address).or_default();
            if held.copied_bytes > 0 && held.copied_bytes + bytes > BYTES_PER_ADDRESS {
                return None;
            }
            held.copied_bytes += bytes;
        }
        Some(CopyPermit { limiter: self.clone(), address, bytes })
    }
}

impl Drop for CopyPermit {
    fn drop(&mut self) {
        let mut table = self.limiter.table();
        table.give_back(self.address, |held| held.copied_bytes -= self.bytes);
    }
}
