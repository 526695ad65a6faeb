// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the datagrams of a resumed title until its start is known.
//!
//! Datagrams may arrive before the answer to PLAY, and the answer may announce a start that is
//! already recorded. The gate is bounded ([`HELD_BYTES_MAX`]); datagrams beyond this limit are
//! refused and counted. Costs one copy per byte, for the first packets of a session only.
//!
//! Sources: RFC 2326 §10.5 (Range of the answer to PLAY).
//! Does not check the start of a session ([`crate::title`] does).

use std::net::SocketAddr;
use std::time::Duration;

/// State of the gate.
#[derive(Debug, Default)]
pub(crate) enum PlayGate {
    /// Datagrams pass.
    #[default]
    Open,
    /// Datagrams are held.
    Held { held: Vec<HeldDatagram>, bytes: usize },
    /// Datagrams are dropped.
    Shut,
}

/// A held datagram.
#[derive(Debug)]
pub(crate) struct HeldDatagram {
    pub(crate) bytes: Vec<u8>,
    pub(crate) from: SocketAddr,
    pub(crate) arrived_at: Duration,
}

/// Decision on one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateDecision {
    /// It passes at once.
    Open,
    /// It was copied and is held.
    Held,
    /// It does not fit.
    Full,
    /// It belongs to a session that is not recorded.
    Shut,
}

impl PlayGate {
    /// A gate that holds datagrams.
    pub(crate) fn held() -> PlayGate {
        PlayGate::Held { held: Vec::new(), bytes: 0 }
    }

    /// Decides on a datagram, and copies it if it is held.
    pub(crate) fn pass(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        arrived_at: Duration,
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
                held.push(HeldDatagram { bytes: datagram.to_vec(), from, arrived_at });
                GateDecision::Held
            }
        }
    }

    /// Returns the held datagrams, in the order of arrival.
    pub(crate) fn into_held(self) -> Vec<HeldDatagram> {
        match self {
            PlayGate::Held { held, .. } => held,
            PlayGate::Open | PlayGate::Shut => Vec::new(),
        }
    }

    /// Time of arrival of the first held datagram.
    pub(crate) fn since(&self) -> Option<Duration> {
        match self {
            PlayGate::Held { held, .. } => held.first().map(|first| first.arrived_at),
            PlayGate::Open | PlayGate::Shut => None,
        }
    }
}

/// Three seconds at 20 Mb/s; a server that already sends media answers PLAY sooner.
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
        assert!((0..).zip(&waited).all(|(number, one)| one.arrived_at == at(number)));
        assert_eq!(PlayGate::Open.pass(&[1], from, at(0)), GateDecision::Open);
        assert_eq!(PlayGate::Shut.pass(&[1], from, at(0)), GateDecision::Shut);
    }
}
