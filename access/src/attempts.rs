// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slows wrong passwords by address, and by address and user.
//!
//! Each pair of address and user has [`PAIR_BURST`] wrong attempts, and gains one more every
//! [`PAIR_MS`]; each address as a whole has more attempts, and gains them faster. An attempt over
//! the limit is refused without verifying the password, and does not lengthen the wait. So a right
//! password behind the same address succeeds: at once for another user, and after the wait for the
//! same one. Passwords that were verified before bypass this limit.
//!
//! The table has a fixed size and stores no keys: a keyed hash maps an address to a slot, so that
//! nobody can fill the table, and addresses that share a slot share its wait. Costs a hash and an
//! atomic.
//!
//! Sources: the generic cell rate algorithm (ITU-T I.371); NIST SP 800-63B §5.2.2.
//! Does not remember an address for longer than its wait.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client_prefix::counted_as;

/// Times at which each slot is at rest again, in milliseconds of [`crate::Access`]'s steady clock.
pub(crate) struct Attempts {
    hash: RandomState,
    pairs: Box<[AtomicU64]>,
    addresses: Box<[AtomicU64]>,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        let slots = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Attempts { hash: RandomState::new(), pairs: slots(), addresses: slots() }
    }

    /// Returns the milliseconds after which a password may be tried; 0 for now.
    pub(crate) fn wait_ms(&self, address: IpAddr, user: &str, now_ms: u64) -> u64 {
        let (pair, whole) = self.slots(address, user);
        let wait = |slot: &AtomicU64, burst: u64, interval: u64| {
            let rests_at = slot.load(Ordering::Relaxed);
            // A slot is never further ahead than this.
            let ahead = rests_at.saturating_sub(now_ms).min(burst * interval);
            ahead.saturating_sub((burst - 1) * interval)
        };
        wait(pair, PAIR_BURST, PAIR_MS).max(wait(whole, ADDRESS_BURST, ADDRESS_MS))
    }

    /// Counts a wrong password.
    pub(crate) fn note_wrong(&self, address: IpAddr, user: &str, now_ms: u64) {
        let (pair, whole) = self.slots(address, user);
        let add = |slot: &AtomicU64, burst: u64, interval: u64| {
            let later = |rests_at: u64| {
                let limit = now_ms + burst * interval;
                Some((rests_at.clamp(now_ms, limit) + interval).min(limit))
            };
            let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        };
        add(pair, PAIR_BURST, PAIR_MS);
        add(whole, ADDRESS_BURST, ADDRESS_MS);
    }

    fn slots(&self, address: IpAddr, user: &str) -> (&AtomicU64, &AtomicU64) {
        let address = counted_as(address.to_canonical());
        let at = |hash: u64| (hash % SLOTS) as usize;
        let pair = at(self.hash.hash_one((address, user)));
        (&self.pairs[pair], &self.addresses[at(self.hash.hash_one(address))])
    }
}

/// A mistyped password or two, on each of a few devices.
const PAIR_BURST: u64 = 5;
const PAIR_MS: u64 = 10_000;
/// A household's or an office's mistakes.
const ADDRESS_BURST: u64 = 30;
const ADDRESS_MS: u64 = 1_000;
/// 256 KiB for both tables.
const SLOTS: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_passwords_are_slowed_and_other_users_are_not() {
        let attempts = Attempts::new();
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        for _ in 0..PAIR_BURST {
            assert_eq!(attempts.wait_ms(address, "anna", 1_000_000), 0);
            attempts.note_wrong(address, "anna", 1_000_000);
        }
        assert_eq!(attempts.wait_ms(address, "anna", 1_000_000), PAIR_MS);
        assert_eq!(attempts.wait_ms(neighbour, "anna", 1_000_000), PAIR_MS, "of the same /64");
        assert_eq!(attempts.wait_ms(address, "ben", 1_000_000), 0);
        let later = 1_000_000 + PAIR_MS;
        assert_eq!(attempts.wait_ms(address, "anna", later), 0, "one more");
        attempts.note_wrong(address, "anna", later);
        assert_eq!(attempts.wait_ms(address, "anna", later), PAIR_MS);
        // Attempts that are refused do not lengthen the wait.
        let quiet = later + PAIR_BURST * PAIR_MS;
        assert_eq!(attempts.wait_ms(address, "anna", quiet), 0);
    }

    #[test]
    fn an_address_that_tries_many_names_is_slowed_as_a_whole() {
        let attempts = Attempts::new();
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        for number in 0..1000 {
            attempts.note_wrong(address, &number.to_string(), 5_000);
        }
        let wait = attempts.wait_ms(address, "another", 5_000);
        assert_eq!(wait, ADDRESS_MS, "however many came before");
        assert_eq!(attempts.wait_ms(address, "another", 5_000 + ADDRESS_MS), 0);
        let stranger = "198.51.100.1".parse().unwrap();
        assert!(attempts.wait_ms(stranger, "another", 5_000) <= ADDRESS_MS);
    }
}
