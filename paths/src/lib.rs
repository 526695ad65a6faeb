// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way from a file to a socket, in one list ([`PATHS`]), with the cost of each.
//!
//! A content server spends its processor time on moving bytes. This crate holds the ways to move
//! them as members of one list, so that the server, the laboratory, the contract tests and `--help`
//! all see the same set. Each member claims its cost: copies per byte, and system calls per packet,
//! run or step. The contract tests compare the claims with counts ([`SendStats`]).
//!
//! The parts: a [`MappedFile`] is an open file; a [`Batch`] names the packets to send from it; a
//! [`Destination`] is their target and the only object that a session owns. A path object
//! ([`StreamPath`], [`DownloadPath`]) belongs to a sending *thread* and holds that thread's
//! buffers, so a session costs no buffer and a batch no allocation. In the other direction,
//! [`RECEIVE_PATHS`] lists the ways from a socket to memory, and a [`Relay`] sends received
//! datagrams on.
//!
//! Sources: `sendfile(2)`, `writev(2)`, `udp(7)` (`UDP_SEGMENT`), `madvise(2)`
//! (`MADV_POPULATE_READ`), `preadv2(2)` (`RWF_NOWAIT`); Linux `fs/splice.c`, `net/ipv4/udp.c`.
//!
//! Does not interpret packet plans, converts departure times but never waits for one, and starts no
//! thread. `unsafe` is in `sys` alone.

#![deny(unsafe_code)]

mod batch;
mod datagram_reader;
mod departure;
mod descriptor_limit;
mod destination;
mod error;
mod file_datagrams;
mod frame;
mod host;
mod interleaved;
mod mapped_file;
#[cfg(test)]
#[path = "../tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have pairs of their own")]
mod network;
mod receive;
mod relay;
mod report;
mod rtp;
mod send_stats;
mod spec;
mod stream_path;
mod submission;
#[allow(unsafe_code)]
mod sys;
mod tcp;
mod udp;
mod zerocopy;

pub use batch::{Batch, BatchForm, Piece};
pub use datagram_reader::{Datagram, DatagramReader, dropped_packets};
pub use departure::{ClockReading, Departure, DepartureQueue};
pub use descriptor_limit::{descriptor_limit, raise_descriptor_limit};
pub use destination::{Destination, SEGMENTS_MAX, SegmentLimitLowered};
pub use error::{Errno, Error, SendError, Unavailable, Unframed, Untapped};
pub use host::{Host, Uring, segments_udp};
pub use interleaved::{
    INTERLEAVED_PACKETS_MAX, INTERLEAVED_PATHS, InterleavedOutput, InterleavedPath,
    MESSAGE_BYTES_MAX, OutputTicket, SharedSocket,
};
pub use mapped_file::{MappedFile, read_ahead};
pub use receive::{
    FULL_CALL_PACKETS, Port, RECEIVE_PATHS, ReceivePath, ReceiveSpec, ReceiveStats, ReceivedRun,
    find_receive,
};
pub use relay::{HEAD_BYTES_MAX, Relay, RelayMethod, RelayTarget, RelayedRun};
pub use report::{PathFault, PathReport, QUOTE_BYTES};
pub use rtp::dropped_kernels;
pub use send_stats::SendStats;
pub use spec::{Feed, Open, PATHS, Spec, SystemCalls, Transport, Via, find};
pub use stream_path::{Due, StreamPath};
pub use sys::{
    RecordCipher, TcpFigures, TlsVersion, TrafficKeys, UNPACED, Usage, WatchedSocket,
    host_addresses, is_locked_to_write, limit_unsent_bytes, lock_to_write, ready_kernel_tls,
    receive_record, send_record, set_max_pacing_rate, set_scheduler_slice, set_wake_bytes,
    start_kernel_tls, take_inherited, tcp_figures, try_kernel_tls, unacknowledged,
};
pub use tcp::DownloadPath;
