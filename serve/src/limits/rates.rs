// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on the rate of downloads per connection, per address and in total, and each download's
//! share of them.
//!
//! A share is the limit divided by the downloads in progress, read again at each turn of a
//! download, so it follows their beginnings and ends. Shares are equal: the part of its share that
//! a slow or paced peer leaves stays unused, so that no rate depends on a guess which peers are
//! slow. Costs nothing without limits; otherwise a lock at each end of a download, and three reads
//! a turn. A limit that a reload changes holds from the next turn on; one that was not there when a
//! download began does not hold for it.
//!
//! Does not delay anything ([`crate::http::download_pace`] does), and does not count media of RTSP,
//! whose rate is that of the media.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::{ClientLimits, Limiter};

/// Downloads in progress; counted only where a limit asks for it.
#[derive(Default)]
pub(crate) struct DownloadCounts {
    total: AtomicU32,
    /// Keyed as the addresses of connections are; only addresses with a download.
    addresses: Mutex<HashMap<IpAddr, Arc<AtomicU32>>>,
}

/// The limit that a rate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateLimit {
    Connection,
    Address,
    Total,
}

/// One counted download; dropping it uncounts it.
pub(crate) struct DownloadPermit {
    limiter: Arc<Limiter>,
    /// Address with its downloads; `None` for exempt networks, and without a limit per address.
    address: Option<(IpAddr, Arc<AtomicU32>)>,
}

impl Limiter {
    /// Counts a download that begins; `None` where no limit applies to downloads.
    pub(crate) fn download(self: &Arc<Self>, peer: IpAddr) -> Option<DownloadPermit> {
        let limits = self.limits();
        let ClientLimits { http_rate_per_connection, http_rate_per_address, http_rate, .. } =
            *limits;
        http_rate_per_connection.or(http_rate_per_address).or(http_rate)?;
        self.downloads.total.fetch_add(1, Ordering::Relaxed);
        let address = http_rate_per_address.and_then(|_| self.counted(peer)).map(|address| {
            let mut addresses = self.downloads.addresses.lock();
            let count = addresses.entry(address).or_default();
            count.fetch_add(1, Ordering::Relaxed);
            (address, count.clone())
        });
        Some(DownloadPermit { limiter: self.clone(), address })
    }
}

impl DownloadCounts {}

impl DownloadPermit {
    /// Returns the present rate, bytes a second, of a download whose connection has
    /// `of_connection` in progress, with the limit that it comes from.
    pub(crate) fn share(&self, of_connection: u32) -> Option<(u64, RateLimit)> {
        let limits = self.limiter.limits();
        let share = |bits: Option<u64>, count: u32, limit| {
            bits.map(|bits| ((bits / 8 / u64::from(count.max(1))).max(1), limit))
        };
        let total = self.limiter.downloads.total.load(Ordering::Relaxed);
        let address = self.address.as_ref().and_then(|(_, count)| {
            let count = count.load(Ordering::Relaxed);
            share(limits.http_rate_per_address, count, RateLimit::Address)
        });
        let connection =
            share(limits.http_rate_per_connection, of_connection, RateLimit::Connection);
        let total = share(limits.http_rate, total, RateLimit::Total);
        [connection, address, total].into_iter().flatten().min_by_key(|&(rate, _)| rate)
    }
}

impl Drop for DownloadPermit {
    fn drop(&mut self) {
        self.limiter.downloads.total.fetch_sub(1, Ordering::Relaxed);
        let Some((address, count)) = &self.address else { return };
        // Locked first: no download may increment a count that is about to be removed.
        let mut addresses = self.limiter.downloads.addresses.lock();
        if count.fetch_sub(1, Ordering::Relaxed) == 1 {
            addresses.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(change: impl FnOnce(&mut ClientLimits)) -> Arc<Limiter> {
        let mut limits = ClientLimits { exempt: Vec::new(), ..ClientLimits::default() };
        change(&mut limits);
        Arc::new(Limiter::new(limits, 1024))
    }

    fn begin(limiter: &Arc<Limiter>, peer: &str) -> DownloadPermit {
        limiter.download(peer.parse().unwrap()).expect("a limit")
    }

    #[test]
    fn shares_are_equal_and_follow_downloads_that_begin_and_end() {
        let limiter = limiter(|limits| {
            limits.http_rate_per_connection = Some(80_000_000);
            limits.http_rate_per_address = Some(96_000_000);
            limits.http_rate = Some(128_000_000);
        });
        let first = begin(&limiter, "2001:db8::1");
        assert_eq!(first.share(1), Some((10_000_000, RateLimit::Connection)));
        assert_eq!(first.share(2), Some((5_000_000, RateLimit::Connection)), "of two streams");
        let neighbour = begin(&limiter, "2001:db8::2");
        assert_eq!(first.share(1), Some((6_000_000, RateLimit::Address)));
        assert_eq!(neighbour.share(1), Some((6_000_000, RateLimit::Address)));
        let other = begin(&limiter, "192.0.2.1");
        assert_eq!(other.share(1), Some((128_000_000 / 8 / 3, RateLimit::Total)));
        drop((neighbour, other));
        assert_eq!(first.share(1), Some((10_000_000, RateLimit::Connection)));
        drop(first);
        assert_eq!(limiter.downloads.addresses.lock().len(), 0, "nothing is left behind");
        assert_eq!(limiter.downloads.total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn exempt_networks_share_no_limit_of_an_address() {
        let limiter = limiter(|limits| {
            limits.exempt = vec!["10.0.0.0/8".parse().unwrap()];
            limits.http_rate_per_address = Some(8_000_000);
        });
        assert_eq!(begin(&limiter, "10.1.2.3").share(1), None);
        assert_eq!(begin(&limiter, "11.1.2.3").share(1), Some((1_000_000, RateLimit::Address)));
    }

    #[test]
    fn downloads_without_limits_are_not_counted() {
        assert!(limiter(|_| {}).download("192.0.2.1".parse().unwrap()).is_none());
    }
}
