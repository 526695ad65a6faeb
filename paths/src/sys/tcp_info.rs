// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that the kernel keeps of a TCP connection, and sockets that a second thread reads them
//! from.
//!
//! They show why a reader is slow: its network loses packets (retransmissions), it does not read
//! (its window limits the sender), or this side writes too little. One call of less than a
//! microsecond a query.
//!
//! Sources: tcp(7) (`TCP_INFO`), Linux `include/uapi/linux/tcp.h` (fields are only ever added at
//! the end: 4.10 has the limits, 5.4 the window), shutdown(2).
//!
//! Does not keep history: rates are differences of two queries.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::last_errno;

/// Figures of a TCP connection, of the direction in which this side sends. Figures that the kernel
/// is too old for are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpFigures {
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Bytes that the peer is ready to receive, by its last acknowledgement; `None` on kernels that
    /// do not report it (before 5.4).
    pub window_bytes: Option<u32>,
    /// Bytes written and not sent yet.
    pub unsent_bytes: u32,
    /// Segments sent and not acknowledged.
    pub unacknowledged_segments: u32,
    /// Segments with data sent so far, those sent again included.
    pub segments: u64,
    /// Segments sent again so far.
    pub segments_again: u64,
    /// Bytes that the peer has acknowledged so far.
    pub acknowledged_bytes: u64,
    /// Time so far in which there was something to send.
    pub busy: Duration,
    /// Part of it in which the peer's window allowed no further byte.
    pub window_limited: Duration,
    /// Part of it in which this side's send buffer was too small.
    pub buffer_limited: Duration,
}

/// Reads the figures of a TCP socket.
///
/// # Errors
/// `ENOPROTOOPT` or `EOPNOTSUPP` of another kind of socket, `EBADF`.
pub fn tcp_figures(socket: BorrowedFd<'_>) -> Result<TcpFigures, Errno> {
    figures_of(socket.as_raw_fd())
}

fn figures_of(socket: RawFd) -> Result<TcpFigures, Errno> {
    // SAFETY: the number names no memory; a socket that is closed meanwhile is an error.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the record consists of integers only.
    let found: KernelFigures =
        unsafe { super::option(socket, level, name, &mut SendStats::default())? };
    let us = Duration::from_micros;
    // A kernel without the field leaves it unchanged: a window of all ones.
    let window_bytes = (found.snd_wnd != UNSET).then_some(found.snd_wnd);
    Ok(TcpFigures {
        round_trip: us(found.rtt_us.into()),
        window_bytes,
        unsent_bytes: found.notsent_bytes,
        unacknowledged_segments: found.unacked,
        segments: found.data_segs_out.into(),
        segments_again: found.total_retrans.into(),
        acknowledged_bytes: found.bytes_acked,
        busy: us(found.busy_time_us),
        window_limited: us(found.rwnd_limited_us),
        buffer_limited: us(found.sndbuf_limited_us),
    })
}

/// `struct tcp_info` of Linux 5.4; times in microseconds.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelFigures {
    /// State, congestion state, counts of retries, options, window scales.
    states: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last: [u32; 4],
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt_us: u32,
    rttvar_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
}

const _: () = assert!(size_of::<KernelFigures>() == 232, "the kernel's layout has no padding");

impl Default for KernelFigures {
    fn default() -> Self {
        // SAFETY: integers and an array of them, for which all zeroes is a value.
        let zero: KernelFigures = unsafe { std::mem::zeroed() };
        KernelFigures { snd_wnd: UNSET, ..zero }
    }
}

const UNSET: u32 = u32::MAX;

/// Socket of a connection whose owner lets others query it and end it, until it is closed. The
/// alternative, a second descriptor for each, halves the number of connections that a process can
/// have.
#[derive(Debug, Default)]
pub struct WatchedSocket(Mutex<Option<RawFd>>);

impl WatchedSocket {
    /// Publishes a socket. The owner calls [`WatchedSocket::close`] before it closes the socket;
    /// otherwise figures of another socket with the same number are returned, or that one is ended.
    pub fn show(&self, socket: BorrowedFd<'_>) {
        *self.locked() = Some(socket.as_raw_fd());
    }

    /// Withdraws it; waits for a query that is under way.
    pub fn close(&self) {
        *self.locked() = None;
    }

    /// Returns the figures of the connection; `None` once it is closed, or where it is not TCP.
    pub fn figures(&self) -> Option<TcpFigures> {
        let socket = self.locked();
        figures_of((*socket)?).ok()
    }

    /// Ends the connection in both directions: the next call of its owner returns that. False when
    /// it is closed already.
    pub fn shut_down(&self) -> bool {
        let socket = self.locked();
        let Some(number) = *socket else { return false };
        // SAFETY: the call takes a number and no memory; the lock keeps the owner from closing it.
        let done = unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
        done == 0 || last_errno() != Errno::new(libc::ENOTCONN)
    }

    fn locked(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Waits for figures; returns them and the time that had passed before they were read.
    #[track_caller]
    fn figures_once(
        socket: &TcpStream,
        holds: impl Fn(&TcpFigures) -> bool,
    ) -> (TcpFigures, Duration) {
        let began = Instant::now();
        loop {
            let passed = began.elapsed();
            let now = tcp_figures(socket.as_fd()).unwrap();
            if holds(&now) {
                return (now, passed);
            }
            assert!(passed < HANGING, "{now:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Many ticks of the kernel, which counts in them.
    const LIMITED: Duration = Duration::from_millis(150);
    const COARSE: Duration = Duration::from_millis(50);
    const LOOK_EVERY: Duration = Duration::from_millis(5);
    /// Guards against hanging; not a measure of speed.
    const HANGING: Duration = Duration::from_secs(60);

    #[test]
    fn a_reader_that_does_not_read_limits_by_its_window() {
        let (client, mut server) = pair();
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 65_536]).is_ok() {}
        // Nothing is under way, and there is more to send: the window is full.
        let (first, _) = figures_once(&server, |now| {
            now.unacknowledged_segments == 0 && now.window_limited > Duration::ZERO
        });
        let since = |now: &TcpFigures| now.window_limited - first.window_limited;
        let (second, passed) = figures_once(&server, |now| since(now) >= LIMITED);
        assert!(second.unsent_bytes > 0, "{second:?}");
        assert!(second.acknowledged_bytes > 0 && second.segments > 0, "{second:?}");
        assert!(since(&second) + COARSE >= passed, "{:?} of {passed:?}", since(&second));
        assert_eq!(second.segments_again, first.segments_again);
        drop(client);
    }

    #[test]
    fn a_watched_socket_is_seen_and_ended_until_it_is_closed() {
        let (mut client, server) = pair();
        let watched = WatchedSocket::default();
        assert_eq!(watched.figures(), None);
        watched.show(server.as_fd());
        assert!(watched.figures().is_some());
        assert!(watched.shut_down());
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it sees the end");
        watched.close();
        assert!(!watched.shut_down() && watched.figures().is_none());
    }

    #[test]
    fn a_socket_of_datagrams_has_no_figures() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_figures(socket.as_fd()).is_err());
    }
}
