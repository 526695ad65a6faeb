// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nonces of Digest, which the server recognises without keeping them, and the counts that were
//! used with each.
//!
//! A nonce is the time, a random number, and a MAC of both with the client's address: it is valid
//! for [`NONCE_S`] seconds and for that address. Counts are kept from a nonce's first use on, in a
//! table of [`NONCES_MAX`], of which one user has [`NONCES_OF_USER_MAX`] at most: a client of a
//! full table is given another nonce, so that no count is forgotten before its nonce has expired.
//! Only right passwords enter a nonce.
//!
//! Costs a MAC, a lock and a look-up for each request; a look at the whole table once a second at
//! most, while it is full.
//!
//! Sources: RFC 7616 §3.3 (nonce), §3.4 (nc), §5.12; RFC 4303 §3.4.3 (window of counts).
//! Does not know passwords.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use crate::client_prefix::counted_as;

/// Nonces in use.
pub(crate) struct Nonces {
    key: hmac::Key,
    used: Mutex<UsedNonces>,
}

/// Nonces that were used, and their number by user.
#[derive(Default)]
struct UsedNonces {
    counts: HashMap<[u8; RANDOM_BYTES], UsedCounts>,
    of_users: HashMap<Arc<str>, usize>,
    /// Second of the last look for those that have expired.
    swept_s: u64,
}

/// Counts that were used with a nonce: the largest, and a bit for each of the 64 up to it.
struct UsedCounts {
    user: Arc<str>,
    expires_s: u64,
    largest: u32,
    window: u64,
}

/// State of a nonce.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NonceState {
    Fresh([u8; RANDOM_BYTES], u64),
    /// Made here, and too old: the client may try again with a new one at once.
    Stale,
    /// Not made here for this client.
    Unknown,
}

impl Nonces {
    pub(crate) fn new() -> Nonces {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the kernel has random bits once it runs");
        Nonces { key: hmac::Key::new(hmac::HMAC_SHA256, &key), used: Mutex::default() }
    }

    /// Makes a nonce for a client.
    pub(crate) fn make(&self, address: IpAddr, now_s: u64) -> String {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&now_s.to_be_bytes());
        getrandom::fill(&mut nonce[8..MAC_AT]).expect("the kernel has random bits once it runs");
        let mac = self.mac(&nonce[..MAC_AT], address);
        nonce[MAC_AT..].copy_from_slice(&mac.as_ref()[..NONCE_BYTES - MAC_AT]);
        URL_SAFE_NO_PAD.encode(nonce)
    }

    /// Returns the state of a nonce that a client has sent.
    pub(crate) fn state(&self, nonce: &str, address: IpAddr, now_s: u64) -> NonceState {
        let mut bytes = [0; NONCE_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(nonce, &mut bytes) {
            Ok(NONCE_BYTES) => {}
            _ => return NonceState::Unknown,
        }
        let mac = self.mac(&bytes[..MAC_AT], address);
        let own = &mac.as_ref()[..NONCE_BYTES - MAC_AT];
        let is_own =
            aws_lc_rs::constant_time::verify_slices_are_equal(own, &bytes[MAC_AT..]).is_ok();
        if !is_own {
            return NonceState::Unknown;
        }
        let made_s = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        let random = bytes[8..MAC_AT].try_into().expect("the bytes between");
        let expires_s = made_s + NONCE_S;
        // A clock that was set back makes nonces of the future stale.
        match now_s > expires_s || made_s > now_s + CLOCK_STEP_S {
            true => NonceState::Stale,
            false => NonceState::Fresh(random, expires_s),
        }
    }

    /// True where a right response has used a nonce, which is fresh.
    pub(crate) fn is_used(&self, nonce: [u8; RANDOM_BYTES]) -> bool {
        self.used.lock().counts.contains_key(&nonce)
    }

    /// Enters a count of a fresh nonce; false where it was used before, or lies too far back.
    pub(crate) fn enter(
        &self,
        (nonce, expires_s): ([u8; RANDOM_BYTES], u64),
        count: u32,
        (user, now_s): (&str, u64),
    ) -> bool {
        let mut used = self.used.lock();
        if let Some(counts) = used.counts.get_mut(&nonce) {
            return counts.enter(count);
        }
        if !used.has_room(user) {
            if used.swept_s == now_s {
                return false;
            }
            used.sweep(now_s);
            if !used.has_room(user) {
                return false;
            }
        }
        let known = used.of_users.get_key_value(user).map(|(known, _)| known.clone());
        let user = known.unwrap_or_else(|| Arc::from(user));
        *used.of_users.entry(user.clone()).or_default() += 1;
        used.counts.insert(nonce, UsedCounts { user, expires_s, largest: count, window: 1 });
        true
    }

    fn mac(&self, bytes: &[u8], address: IpAddr) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(bytes);
        match counted_as(address.to_canonical()) {
            IpAddr::V4(own) => context.update(&own.octets()),
            IpAddr::V6(own) => context.update(&own.octets()),
        }
        context.sign()
    }
}

impl UsedNonces {
    fn has_room(&self, user: &str) -> bool {
        let own = self.of_users.get(user).copied().unwrap_or(0);
        self.counts.len() < NONCES_MAX && own < NONCES_OF_USER_MAX
    }

    /// Forgets the nonces that have expired.
    fn sweep(&mut self, now_s: u64) {
        self.swept_s = now_s;
        self.counts.retain(|_, counts| counts.expires_s >= now_s);
        self.of_users.clear();
        for counts in self.counts.values() {
            *self.of_users.entry(counts.user.clone()).or_default() += 1;
        }
    }
}

impl UsedCounts {
    /// Requests of several connections may overtake each other by up to 63.
    fn enter(&mut self, count: u32) -> bool {
        if count > self.largest {
            let ahead = count - self.largest;
            self.window = self.window.checked_shl(ahead).unwrap_or(0) | 1;
            self.largest = count;
            return true;
        }
        let behind = self.largest - count;
        let bit = 1_u64.checked_shl(behind).unwrap_or(0);
        let is_new = bit != 0 && self.window & bit == 0;
        self.window |= bit;
        is_new
    }
}

const RANDOM_BYTES: usize = 8;
const MAC_AT: usize = 8 + RANDOM_BYTES;
const NONCE_BYTES: usize = MAC_AT + 16;
/// Long enough for a film to be chosen, short enough for the table of counts.
pub(crate) const NONCE_S: u64 = 300;
const CLOCK_STEP_S: u64 = 2;
const NONCES_MAX: usize = 1 << 16;
/// Programs such as curl use a nonce once: thirteen runs a second. Sixteen users fill the table.
const NONCES_OF_USER_MAX: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_known_by_their_client_and_expire() {
        let nonces = Nonces::new();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let nonce = nonces.make(one, 1000);
        assert!(matches!(nonces.state(&nonce, one, 1000), NonceState::Fresh(..)));
        assert!(matches!(nonces.state(&nonce, one, 1300), NonceState::Fresh(..)));
        assert_eq!(nonces.state(&nonce, one, 1301), NonceState::Stale);
        assert_eq!(nonces.state(&nonce, one, 900), NonceState::Stale, "the clock was set back");
        assert_eq!(nonces.state(&nonce, other, 1000), NonceState::Unknown);
        let mut altered = nonce.clone().into_bytes();
        altered[3] = if altered[3] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        assert_eq!(nonces.state(&altered, one, 1000), NonceState::Unknown);
        assert_eq!(nonces.state("", one, 1000), NonceState::Unknown);
        assert_eq!(Nonces::new().state(&nonce, one, 1000), NonceState::Unknown);
    }

    #[test]
    fn a_count_is_used_once() {
        let nonces = Nonces::new();
        let nonce = ([7; RANDOM_BYTES], 1300);
        let enter = |count| nonces.enter(nonce, count, ("anna", 1000));
        assert!(enter(1) && !enter(1) && enter(3) && enter(2) && !enter(2) && !enter(3));
        assert!(enter(100) && enter(99) && !enter(36) && enter(37) && !enter(37));
        let other = ([8; RANDOM_BYTES], 1300);
        assert!(nonces.enter(other, 1, ("anna", 1000)), "of another nonce");
        assert!(enter(u32::MAX) && !enter(100));
    }

    #[test]
    fn a_full_table_forgets_no_count_of_a_nonce_that_lives() {
        let nonces = Nonces::new();
        for number in 0..NONCES_MAX {
            let (nonce, user) = ((number as u64).to_be_bytes(), number / NONCES_OF_USER_MAX);
            assert!(nonces.enter((nonce, 1300), 1, (&user.to_string(), 1000)));
        }
        let late = ([0xff; RANDOM_BYTES], 1600);
        assert!(!nonces.enter(late, 1, ("anna", 1300)));
        assert!(!nonces.enter(([0; RANDOM_BYTES], 1300), 1, ("0", 1300)), "used before");
        assert!(nonces.enter(late, 1, ("anna", 1301)), "the others have expired");
    }

    #[test]
    fn one_user_leaves_room_for_others() {
        let nonces = Nonces::new();
        let nonce = |number: usize| (number as u64).to_be_bytes();
        for number in 0..NONCES_OF_USER_MAX {
            assert!(nonces.enter((nonce(number), 1300), 1, ("anna", 1000)));
        }
        let next = (nonce(NONCES_OF_USER_MAX), 1600);
        assert!(!nonces.enter(next, 1, ("anna", 1000)));
        assert!(nonces.enter((nonce(0), 1300), 2, ("anna", 1000)), "a nonce that is in use");
        assert!(nonces.enter(next, 1, ("ben", 1000)));
        let last = (nonce(NONCES_OF_USER_MAX + 1), 1600);
        assert!(nonces.enter(last, 1, ("anna", 1301)), "the others have expired");
    }
}
