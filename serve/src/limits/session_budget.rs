// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of the rates of sessions, in all and of each user, and the sessions of each user and asset.
//!
//! A session counts with the mean rate of its media from SETUP to its end, also while it pauses: it
//! may play on at any time. Only users and assets with a session have an entry. Costs a lock and
//! two look-ups at each end of a session.
//!
//! Sources: RFC 2326 §11.3.4 (453).
//! Does not measure ([`super::capacity`] does); does not count downloads ([`super::rates`]).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ClientLimits, Refused};

/// Sessions by user and asset.
#[derive(Default)]
pub(super) struct SessionBudget(Mutex<Sums>);

#[derive(Default)]
struct Sums {
    bits_per_s: u64,
    users: HashMap<Arc<str>, UserSum>,
    assets: HashMap<Arc<str>, u32>,
}

#[derive(Default)]
struct UserSum {
    sessions: u32,
    bits_per_s: u64,
}

/// Share of the sums that one session occupies.
pub(super) struct SessionShare {
    user: Option<Arc<str>>,
    asset: Arc<str>,
    bits_per_s: u64,
}

impl SessionBudget {
    /// Counts a session, or returns the limit that it exceeds.
    pub(super) fn take(
        &self,
        limits: &ClientLimits,
        user: Option<Arc<str>>,
        (asset, bits_per_s): (&str, u64),
    ) -> Result<SessionShare, Refused> {
        let mut sums = self.0.lock();
        let total = sums.bits_per_s.saturating_add(bits_per_s);
        if limits.rate.is_some_and(|most| total > most) {
            return Err(Refused::Rate);
        }
        let of_asset = sums.assets.get(asset).copied().unwrap_or_default();
        if limits.sessions_per_asset.is_some_and(|most| of_asset >= most) {
            return Err(Refused::SessionsPerAsset);
        }
        if let Some(user) = &user {
            let (sessions, rate) =
                sums.users.get(user).map_or((0, 0), |sum| (sum.sessions, sum.bits_per_s));
            if limits.sessions_per_user.is_some_and(|most| sessions >= most) {
                return Err(Refused::SessionsPerUser);
            }
            let rate = rate.saturating_add(bits_per_s);
            if limits.rate_per_user.is_some_and(|most| rate > most) {
                return Err(Refused::RatePerUser);
            }
            let sum = sums.users.entry(user.clone()).or_default();
            (sum.sessions, sum.bits_per_s) = (sessions + 1, rate);
        }
        sums.bits_per_s = total;
        let asset: Arc<str> = asset.into();
        *sums.assets.entry(asset.clone()).or_default() += 1;
        Ok(SessionShare { user, asset, bits_per_s })
    }

    pub(super) fn give_back(&self, share: &SessionShare) {
        let mut sums = self.0.lock();
        sums.bits_per_s = sums.bits_per_s.saturating_sub(share.bits_per_s);
        if let Some(user) = &share.user
            && let Some(sum) = sums.users.get_mut(user)
        {
            sum.sessions -= 1;
            sum.bits_per_s = sum.bits_per_s.saturating_sub(share.bits_per_s);
            if sum.sessions == 0 {
                sums.users.remove(user);
            }
        }
        if let Some(sessions) = sums.assets.get_mut(&share.asset) {
            *sessions -= 1;
            if *sessions == 0 {
                sums.assets.remove(&share.asset);
            }
        }
    }

    /// Returns the rate of all sessions, bits a second.
    pub(super) fn bits_per_s(&self) -> u64 {
        self.0.lock().bits_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_limited_by_user_asset_and_rate() {
        let limits = ClientLimits {
            sessions_per_user: Some(2),
            sessions_per_asset: Some(3),
            rate: Some(10_000_000),
            rate_per_user: Some(6_000_000),
            ..ClientLimits::default()
        };
        let budget = SessionBudget::default();
        let take = |user: Option<&str>, asset, mbps: u64| {
            budget.take(&limits, user.map(Arc::from), (asset, mbps * 1_000_000))
        };
        let first = take(Some("anna"), "a", 5).ok().unwrap();
        assert_eq!(take(Some("anna"), "b", 2).err(), Some(Refused::RatePerUser));
        let second = take(Some("anna"), "a", 1).ok().unwrap();
        assert_eq!(take(Some("anna"), "b", 0).err(), Some(Refused::SessionsPerUser));
        let third = take(None, "a", 1).ok().unwrap();
        assert_eq!(take(Some("ben"), "a", 1).err(), Some(Refused::SessionsPerAsset));
        assert_eq!(take(Some("ben"), "b", 4).err(), Some(Refused::Rate));
        assert_eq!(budget.bits_per_s(), 7_000_000);
        [first, second, third].iter().for_each(|share| budget.give_back(share));
        let sums = budget.0.lock();
        assert_eq!((sums.bits_per_s, sums.users.len(), sums.assets.len()), (0, 0, 0));
    }
}
