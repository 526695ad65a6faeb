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
pub(crate) enum PlayGate {
    /// They pass.
    #[default]
    Open,
    /// They wait.
    Held { held: Vec<HeldDatagram>, bytes: usize },
    /// They are dropped.
    Shut,
}

/// A datagram that waits.
#[derive(Debug)]
pub(crate) struct HeldDatagram {
    pub(crate) bytes: Vec<u8>,
    pub(crate) from: SocketAddr,
    pub(crate) came: Duration,
}

/// Verdict on one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateDecision {
    /// It is to be taken at once.
    Open,
    /// It was copied and waits.
    Held,
    /// It found no room.
    Full,
    /// It belongs to a session that is not recorded.
    Shut,
}

impl PlayGate {
    /// A gate at which datagrams wait.
    pub(crate) fn held() -> PlayGate {
        PlayGate::Held { held: Vec::new(), bytes: 0 }
    }

    /// Judges a datagram, and copies it if it has to wait.
    pub(crate) fn pass(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        came: Duration,
    ) -> GateDecision {
        match self {
            PlayGate::Open => GateDecision::Open,
            PlayGate::Shut => GateDecision::Shut,
            PlayGate::Held { held, bytes } => {
                let with_it = *bytes + datagram.len() + size_of::<HeldDatagram>();
                if with_it > HELD_BYTES_MAX {
                    return GateDecision::Full;
                }
                *bytes = with_it;
                held.push(HeldDatagram { bytes: datagram.to_vec(), from, came });
                GateDecision::Held
            }
        }
    }

    /// Those that wait, in the order they came.
    pub(crate) fn into_held(self) -> Vec<HeldDatagram> {
        match self {
            PlayGate::Held { held, .. } => held,
            PlayGate::Open | PlayGate::Shut => Vec::new(),
        }
    }

    /// When the first of those that wait came.
    pub(crate) fn since(&self) -> Option<Duration> {
        match self {
            PlayGate::Held { held, .. } => held.first().map(|first| first.came),
            PlayGate::Open | PlayGate::Shut => None,
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
        let mut gate = PlayGate::held();
        let at = |number: u64| Duration::from_millis(number);
        let mut kept = 0;
        while gate.pass(&[kept as u8; 1328], from, at(kept)) == GateDecision::Held {
            kept += 1;
        }
        assert_eq!(gate.pass(&[0; 1328], from, at(kept)), GateDecision::Full);
        assert_eq!(gate.since(), Some(at(0)));
        let waited = gate.into_held();
        assert_eq!(waited.len() as u64, kept);
        assert!((5000..6500).contains(&kept), "{kept}");
        assert!((0..).zip(&waited).all(|(number, one)| one.came == at(number)));
        assert_eq!(PlayGate::Open.pass(&[1], from, at(0)), GateDecision::Open);
        assert_eq!(PlayGate::Shut.pass(&[1], from, at(0)), GateDecision::Shut);
    }
}
