// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of made segments and long texts that one address reads at a time.
//!
//! A segment whose bytes were put together occupies memory or disk as long as a client reads it,
//! and all of them have a limit together ([`crate::web`]). A text that was made for one answer
//! occupies memory until it is sent: a playlist with a client's credentials behind each address,
//! the cues of a segment, the description of a folder. A client that requests many and reads none
//! would use up the limit of all others.
//!
//! Costs a look into the table of addresses for each of these answers, and another at its end.
//!
//! Does not count segments that are ranges of a file, and texts that are kept for all: an answer
//! with them occupies no memory of its own.

use std::net::IpAddr;
use std::sync::Arc;

use super::Limiter;

/// Bytes on their way to one address: some fifty segments of 5 Mb/s.
const BYTES_PER_ADDRESS: u64 = 256 << 20;

/// Bytes of texts on their way to all addresses. Made segments have such a limit where they are
/// kept.
const TEXT_BYTES: u64 = 1 << 30;

/// Bytes of an answer that occupy memory or disk until it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    /// Text that was made for it.
    pub(crate) text: u64,
    /// The made segment that it sends.
    pub(crate) made: u64,
}

/// One counted answer; dropping it uncounts it.
pub(crate) struct CopyPermit {
    limiter: Arc<Limiter>,
    address: Option<IpAddr>,
    copied: Copied,
}

impl Limiter {
    /// Counts an answer; `None` where the address has too many bytes on their way, or all have too
    /// much text. One answer alone may be larger than the share of an address.
    pub(crate) fn read_copy(self: &Arc<Self>, peer: IpAddr, copied: Copied) -> Option<CopyPermit> {
        let address = self.counted(peer);
        let bytes = copied.text + copied.made;
        let mut table = self.table.lock();
        if copied.text > 0 && table.text_bytes + copied.text > TEXT_BYTES {
            return None;
        }
        if let Some(address) = address {
            let held = table.addresses.entry(address).or_default();
            if held.copied_bytes > 0 && held.copied_bytes + bytes > BYTES_PER_ADDRESS {
                return None;
            }
            held.copied_bytes += bytes;
        }
        table.text_bytes += copied.text;
        drop(table);
        Some(CopyPermit { limiter: self.clone(), address, copied })
    }
}

impl Drop for CopyPermit {
    fn drop(&mut self) {
        let mut table = self.limiter.table.lock();
        let Copied { text, made } = self.copied;
        table.text_bytes -= text;
        table.give_back(self.address, |held| held.copied_bytes -= text + made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::limiter;

    fn made(bytes: u64) -> Copied {
        Copied { text: 0, made: bytes }
    }

    #[test]
    fn an_address_reads_so_many_made_segments_at_a_time() {
        let limiter = limiter(|_| {});
        let [one, other] = [1, 2].map(|n| IpAddr::from([192, 0, 2, n]));
        let segment = made(100 << 20);
        let read = [(); 2].map(|()| limiter.read_copy(one, segment).expect("a share"));
        assert!(limiter.read_copy(one, segment).is_none(), "300 MiB at once");
        assert!(limiter.read_copy(other, segment).is_some());
        drop(read);
        let large = limiter.read_copy(one, made(1 << 30)).expect("one alone may be larger");
        assert!(limiter.read_copy(one, made(1)).is_none());
        drop(large);
        assert!(limiter.table.lock().addresses.is_empty());
    }

    /// Regression: 119 readers of a text of 20 MiB, of one address, took 2.5 GB.
    #[test]
    fn texts_are_counted_with_segments_and_all_together() {
        let limiter = limiter(|limits| limits.exempt = vec!["10.0.0.0/8".parse().unwrap()]);
        let text = Copied { text: 20 << 20, made: 0 };
        let one = IpAddr::from([192, 0, 2, 1]);
        let read: Vec<_> = std::iter::from_fn(|| limiter.read_copy(one, text)).collect();
        assert_eq!(read.len(), 12, "240 of 256 MiB");
        assert!(limiter.read_copy(one, made(20 << 20)).is_none());
        // Clients behind a proxy have no share of their own.
        let proxy = IpAddr::from([10, 0, 0, 1]);
        let all: Vec<_> = std::iter::from_fn(|| limiter.read_copy(proxy, text)).collect();
        assert_eq!(all.len(), 51 - 12, "1,020 of 1,024 MiB");
        assert!(limiter.read_copy(IpAddr::from([192, 0, 2, 2]), made(20 << 20)).is_some());
        drop((read, all));
        let table = limiter.table.lock();
        assert_eq!((table.text_bytes, table.addresses.len()), (0, 0));
    }
}
