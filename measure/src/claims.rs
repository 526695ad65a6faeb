// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claimed cost of a path at given sizes, and the comparison of a count with it.
//!
//! A member of the list claims calls per packet, run, batch or step, and copies per byte of payload
//! and of headers. Counts are per packet and per byte, so the claims are converted here, once for
//! the experiment that warns and for the table in the documents.
//!
//! Sources: [`paths::SystemCalls`], [`paths::Spec`].
//! Does not count; the paths do, in [`paths::SendStats`].

use paths::{Feed, Open, Spec, SystemCalls, Transport};

use crate::fixture::{FRAME_BYTES, HEADER_BYTES};
use crate::sender::DATAGRAM_BYTES_MAX;

/// Claims of a path at given sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claims {
    /// System calls a packet; over TCP, a step.
    pub calls: f64,
    /// Copies a byte sent, headers included.
    pub copies: f64,
}

impl Claims {
    /// Returns the claims for datagrams of `bytes` (over TCP, steps). A call carries `segments` of
    /// them where the path can and 64 KiB allow.
    pub fn of(spec: &Spec, bytes: u32, segments: u32) -> Claims {
        // A stream has no limit of 64 KiB a call.
        let most = match spec.transport {
            Transport::Interleaved => segments,
            _ => DATAGRAM_BYTES_MAX / bytes.max(1),
        };
        let batch = f64::from(segments.min(most).max(1));
        let calls = match spec.system_calls {
            SystemCalls::PerPacket(calls) | SystemCalls::PerStep(calls) => f64::from(calls),
            SystemCalls::PerRun(calls) | SystemCalls::PerBatch(calls) => f64::from(calls) / batch,
        };
        let headers = match spec.open {
            Open::Stream { feed: Feed::Gathered, .. } => f64::from(HEADER_BYTES) / f64::from(bytes),
            Open::Interleaved { feed: Feed::Gathered, .. } => {
                f64::from(HEADER_BYTES + FRAME_BYTES) / f64::from(bytes + FRAME_BYTES)
            }
            _ => 0.0,
        };
        let copies = f64::from(spec.copies_per_byte) * (1.0 - headers)
            + f64::from(spec.header_copies) * headers;
        Claims { calls, copies }
    }

    /// True when a count agrees with the claim.
    pub fn met(claimed: f64, counted: f64) -> bool {
        (counted - claimed).abs() <= TOLERANCE * claimed.max(LEAST)
    }
}

/// The first batch sets an option, and one byte in a thousand is sent again.
const TOLERANCE: f64 = 0.02;
/// A claim of 0 is met by a count below a fiftieth of this.
const LEAST: f64 = 0.05;

#[cfg(test)]
mod tests {
    use paths::Transport::{Rtp, Tcp, Udp};

    use super::*;

    #[test]
    fn claims_are_in_terms_of_what_is_counted() {
        let of = |transport, name, bytes, segments| {
            let claims = Claims::of(paths::find(transport, name).unwrap(), bytes, segments);
            (claims.calls, claims.copies)
        };
        // 12 bytes of each packet are headers, which are copied once.
        let (calls, copies) = of(Rtp, "read_writev", 1200, 1);
        assert!(calls == 2.0 && (copies - 1.99).abs() < 1e-9, "{copies}");
        let (calls, copies) = of(Rtp, "rtp_sendfile", 1200, 1);
        assert!(calls == 4.0 && (copies - 0.01).abs() < 1e-9, "{copies}");
        assert_eq!(of(Rtp, "wire_sendfile", 1328, 10), (0.1, 0.0));
        // Four of these fit into 64 KiB.
        assert_eq!(of(Udp, "splice", 16_376, 44), (0.5, 0.0));
        assert_eq!(of(Tcp, "read_write", 1 << 20, 1), (2.0, 2.0));
    }

    #[test]
    fn a_count_may_be_off_by_what_starting_costs() {
        assert!(Claims::met(2.0, 2.03) && !Claims::met(2.0, 2.05));
        assert!(Claims::met(0.0, 0.0009) && !Claims::met(0.0, 0.01));
    }
}
