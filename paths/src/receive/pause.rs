// SPDX-License-Identifier: MIT OR Apache-2.0
//! Longest pause of a reader between two visits to emptied ports without loss.
//!
//! A socket's buffer is charged with a datagram's memory in the kernel (its true size), not with
//! its bytes. On loopback the true size is 768 bytes for a datagram of 20 bytes and 2304 for one of
//! 1328; a driver that receives into halves of pages charges 2304 for either. At the rate below a
//! buffer fills evenly; half of it is left for a reader that the scheduler wakes late.
//!
//! Sources: Linux 6.18 `include/linux/skbuff.h` (`SKB_TRUESIZE`), `net/ipv4/udp.c`
//! (`__udp_enqueue_schedule_skb`); `socket(7)` (`SO_RCVBUF`). Does not measure the rate: a flood
//! begins without notice.

use std::time::Duration;

/// Datagrams a second that one port accepts without loss: the load of one core with small ones, and
/// 5.3 Gb/s with those of 1328 bytes.
pub(super) const PACKETS_PER_S: u64 = 500_000;

/// Largest memory that the kernel charges a socket for a datagram of up to 1500 bytes.
const TRUE_BYTES: u64 = 2304;

/// Bytes that a frame of up to 1500 bytes occupies in a ring, headers included.
const FRAME_BYTES: u64 = 1664;

/// Bytes of frames a second that one device delivers without loss: [`PACKETS_PER_S`] of any size.
const RING_BYTES_PER_S: u64 = PACKETS_PER_S * FRAME_BYTES;

/// Returns the pause for a socket whose buffer has `granted_bytes` (`SO_RCVBUF` as the kernel
/// reports it: twice the requested size).
pub(super) fn of_socket(granted_bytes: usize) -> Duration {
    half_of(granted_bytes as u64, PACKETS_PER_S * TRUE_BYTES)
}

/// Returns the pause for a ring of `bytes` bytes, filled without gaps.
pub(super) fn of_ring(bytes: usize) -> Duration {
    half_of(bytes as u64, RING_BYTES_PER_S)
}

/// Returns the pause for `slots` slots of a frame each.
pub(super) fn of_slots(slots: u64) -> Duration {
    half_of(slots, PACKETS_PER_S)
}

fn half_of(room: u64, per_s: u64) -> Duration {
    Duration::from_nanos((room / 2).saturating_mul(1_000_000_000) / per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_fills_half_of_the_room() {
        // The default of a process without rights: 212,992 bytes, doubled.
        assert_eq!(of_socket(425_984).as_micros(), 184);
        assert_eq!(of_socket(16 << 20).as_micros(), 7281);
        assert_eq!(of_ring(8 << 20).as_micros(), 5041);
        assert_eq!(of_slots(2048), Duration::from_micros(2048));
        assert_eq!(of_socket(0), Duration::ZERO);
    }
}
