// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the datagrams of a session that takes up a title until it is known where they belong.
//!
//! A server may send before its answer to PLAY has come, and the answer may say that it began where
//! the recording has been already. Bounded ([`HELD_BYTES_MAX`]); what finds no room is refused and
//! counted. One copy a byte, of the first packets of a session alone.
//!
//! Sources: RFC 2326 §10.5 (Range of the answer to PLAY).
//! Does not do: judge where a session begins ([`crate::title`]).

use std::net::SocketAddr;
use std::time::Duration;

/// Where datagrams wait, if they do.
#[derive(Debug, Default)]
pub(crate) enum Gate {
    /// They pass.
    #[default]
    Open,
    /// They wait.
    Held { waiting: Vec<Waiting>, bytes: usize },
    /// They are dropped.
    Shut,
}

/// A datagram that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Vec<u8>,
    pub(crate) from: SocketAddr,
    pub(crate) came: Duration,
}

/// Verdict on one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is to be taken at once.
    Open,
    /// It was copied and waits.
    Waits,
    /// It found no room.
    Full,
    /// It belongs to a session that is not recorded.
    Shut,
}

impl Gate {
    /// A gate at which datagrams wait.
    pub(crate) fn held() -> Gate {
        Gate::Held { waiting: Vec::new(), bytes: 0 }
    }

    /// Judges a datagram, and copies it if it has to wait.
    pub(crate) fn pass(&mut self, datagram: &[u8], from: SocketAddr, came: Duration) -> Passage {
        match self {
            Gate::Open => Passage::Open,
            Gate::Shut => Passage::Shut,
            Gate::Held { waiting, bytes } => {
                let with_it = *bytes + datagram.len() + size_of::<Waiting>();
                if with_it > HELD_BYTES_MAX {
                    return Passage::Full;
                }
                *bytes = with_it;
                waiting.push(Waiting { bytes: datagram.to_vec(), from, came });
                Passage::Waits
            }
        }
    }

    /// Those that wait, in the order they came.
    pub(crate) fn waiting(self) -> Vec<Waiting> {
        match self {
            Gate::Held { waiting, .. } => waiting,
            Gate::Open | Gate::Shut => Vec::new(),
        }
    }

    /// When the first of those that wait came.
    pub(crate) fn since(&self) -> Option<Duration> {
        match self {
            Gate::Held { waiting, .. } => waiting.first().map(|first| first.came),
            Gate::Open | Gate::Shut => None,
        }
    }
}

/// Three seconds of 20 Mb/s: an answer that takes longer is not that of a server which sends.
const HELD_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_wait_in_order_and_in_bounds() {
        let from = SocketAddr::from(([10, 0, 0, 1], 5004));
        let mut gate = Gate::held();
        let at = |number: u64| Duration::from_millis(number);
        let mut kept = 0;
        while gate.pass(&[kept as u8; 1328], from, at(kept)) == Passage::Waits {
            kept += 1;
        }
        assert_eq!(gate.pass(&[0; 1328], from, at(kept)), Passage::Full);
        assert_eq!(gate.since(), Some(at(0)));
        let waited = gate.waiting();
        assert_eq!(waited.len() as u64, kept);
        assert!((5000..6500).contains(&kept), "{kept}");
        assert!((0..).zip(&waited).all(|(number, one)| one.came == at(number)));
        assert_eq!(Gate::Open.pass(&[1], from, at(0)), Passage::Open);
        assert_eq!(Gate::Shut.pass(&[1], from, at(0)), Passage::Shut);
    }
}
