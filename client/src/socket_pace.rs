// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pace of reading a socket: as datagrams arrive, or in batches.
//!
//! A wake-up of a thread costs as much as several datagrams: a switch, and cold caches. A recorder
//! needs no datagram at once, so its threads let datagrams collect between two reads. The kernel
//! timestamps datagrams, so times of arrival stay exact. A pause is no longer than the socket's
//! buffer allows at the rate of a fast sender; a small buffer allows none, and costs more.
//! Wake-ups at moments common to all threads saved nothing.
//!
//! Sources: socket(7) SO_RCVBUF; Linux `include/linux/skbuff.h` (`SKB_TRUESIZE`).
//! Does not measure the rate: a large picture arrives without notice.

use std::net::UdpSocket;
use std::sync::Once;
use std::time::Duration;

/// Pace of reading a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SocketPace {
    /// As soon as datagrams arrive.
    Prompt,
    /// With this pause after a read that has emptied the socket.
    Gathered(Duration),
}

impl SocketPace {
    /// The pace of taking frames of a connection from their queue. The queue has room for as many
    /// reads as 30 Mb/s need meanwhile; then TCP keeps the rest, and with it the answers of RTSP.
    pub(super) const OF_FRAMES: SocketPace = SocketPace::Gathered(Duration::from_millis(20));

    /// The pace of a recorder, by the receive buffer that the kernel has granted.
    pub(super) fn of_recorder(socket: &UdpSocket) -> SocketPace {
        let granted_bytes = rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap_or(0);
        let pace = SocketPace::of_buffer(granted_bytes);
        if pace == SocketPace::Prompt {
            IS_LOGGED.call_once(|| {
                tracing::info!(
                    "the receive buffer of a track has {granted_bytes} bytes: packets are read as \
                     they arrive, which costs more; raise net.core.rmem_max to {} or more",
                    BUFFER_BYTES_MIN.div_ceil(2)
                );
            });
        }
        pace
    }

    /// The pace for a buffer of `granted_bytes` (`SO_RCVBUF` as the kernel reports it: twice the
    /// requested size): half of it holds the datagrams of a pause, and the rest those that arrive
    /// while the thread is late.
    fn of_buffer(granted_bytes: usize) -> SocketPace {
        if granted_bytes < BUFFER_BYTES_MIN {
            return SocketPace::Prompt;
        }
        let half_ms = granted_bytes as u64 / 2 / TRUE_BYTES_PER_MS;
        SocketPace::Gathered(Duration::from_millis(half_ms).min(GATHER_EVERY))
    }
}

/// Longest pause of a recorder's threads: short beside the silence that counts as an outage, and
/// beside the two seconds of a fragment.
const GATHER_EVERY: Duration = Duration::from_millis(100);
/// A shorter pause saves next to nothing: the packets of a 4 Mb/s stream are 3 ms apart.
const PAUSE_MS_MIN: u64 = 10;
/// Memory that the kernel charges a socket with in a millisecond at 1 Gb/s: 2304 bytes for each
/// datagram of 1400 (`SKB_TRUESIZE`).
const TRUE_BYTES_PER_MS: u64 = 125_000 * 2304 / 1400;
const BUFFER_BYTES_MIN: usize = (2 * PAUSE_MS_MIN * TRUE_BYTES_PER_MS) as usize;
static IS_LOGGED: Once = Once::new();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket_pair::enlarge;

    #[test]
    fn a_pause_fills_half_of_the_buffer_and_a_small_buffer_has_none() {
        let gathered = |ms| SocketPace::Gathered(Duration::from_millis(ms));
        // The default of a process without rights: 212,992 bytes, doubled.
        assert_eq!(SocketPace::of_buffer(425_984), SocketPace::Prompt);
        assert_eq!(SocketPace::of_buffer(BUFFER_BYTES_MIN - 1), SocketPace::Prompt);
        assert_eq!(SocketPace::of_buffer(BUFFER_BYTES_MIN), gathered(10));
        assert_eq!(SocketPace::of_buffer(8 << 20), gathered(20));
        assert_eq!(SocketPace::of_buffer(64 << 20), gathered(100));
        assert_eq!(SocketPace::of_buffer(0), SocketPace::Prompt);
    }

    #[test]
    fn a_recorder_asks_the_socket_for_its_buffer() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        assert_eq!(SocketPace::of_recorder(&socket), SocketPace::Prompt);
        enlarge(&socket).unwrap();
        let granted = rustix::net::sockopt::socket_recv_buffer_size(&socket).unwrap();
        assert_eq!(SocketPace::of_recorder(&socket), SocketPace::of_buffer(granted));
    }
}
