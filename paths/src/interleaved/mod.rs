// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths for RTP interleaved on an RTSP connection: a batch of framed packets by one call, one file
//! per path.
//!
//! Each packet has four bytes more before its RTP header (`$`, channel, length), which the caller
//! puts into the batch's headers or which lie in the file. A stream has no datagram borders, so one
//! call carries a whole batch of any number of packets; the kernel has nothing to segment. A socket
//! that accepts a part of a batch may cut a packet in two: the rest of that packet is kept in the
//! [`InterleavedOutput`] and sent before anything else.
//!
//! Costs one call a batch and a copy of at most one packet whenever the socket becomes full.
//!
//! Sources: RFC 2326 §10.12, `writev(2)`, `sendfile(2)`, `tcp(7)`.
//!
//! Does not wait until a socket is writable.

pub(crate) mod framed_sendfile;
pub(crate) mod framed_writev;
mod output;

pub use output::{InterleavedOutput, MESSAGE_BYTES_MAX, OutputTicket, SharedSocket};

use crate::batch::Batch;
use crate::error::{Errno, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::Spec;

/// Every way to send framed packets over TCP, the reference first.
pub static INTERLEAVED_PATHS: &[&Spec] = &[&framed_writev::SPEC, &framed_sendfile::SPEC];

/// Most packets of a call for which a gathered list of header and payload has room.
pub const INTERLEAVED_PACKETS_MAX: u64 = crate::sys::RANGES_MAX as u64 / 2;

/// One way to send framed packets over TCP; belongs to one sending thread and serves all its
/// sessions.
pub trait InterleavedPath: Send {
    /// Sends the batch, or as much of it as the socket accepts now; returns the number of packets
    /// accepted, the last of which may wait in part in `to`.
    ///
    /// [`SendError::Blocked`] means that none was accepted. [`SendError::Shrunk`] means that the
    /// file ends within the next packet. Other errors end the stream.
    ///
    /// # Panics
    /// When the path does not accept the batch's form, or the batch is unsound.
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut InterleavedOutput,
        stats: &mut SendStats,
    ) -> Result<u32, SendError>;
}

/// Interprets the refusal of `call` by the socket of `to`.
fn refusal(
    call: &'static str,
    errno: Errno,
    to: &InterleavedOutput,
    stats: &mut SendStats,
) -> SendError {
    match errno.code() {
        libc::EAGAIN | libc::ENOBUFS | libc::EINTR => {
            stats.refused += 1;
            SendError::Blocked
        }
        libc::EPIPE
        | libc::ECONNRESET
        | libc::ECONNABORTED
        | libc::ECONNREFUSED
        | libc::ENOTCONN
        | libc::ESHUTDOWN
        | libc::ETIMEDOUT
        | libc::EHOSTDOWN
        | libc::EHOSTUNREACH
        | libc::ENETDOWN
        | libc::ENETUNREACH => SendError::Gone { errno },
        _ => SendError::Host { call, object: to.name().into(), errno },
    }
}

/// Counts the `sent` bytes of a batch of which the socket accepted at least one; returns the number
/// of packets accepted, and the number of bytes `cut` of packet `packets - 1` that are sent
/// already: the rest of it must still be sent, unless `cut` is 0.
fn count_accepted(batch: &Batch<'_>, sent: u64, stats: &mut SendStats) -> (u32, u64) {
    let segment_bytes = u64::from(batch.segment_bytes);
    let (packets, cut) = match sent == batch.bytes {
        true => (batch.packets, 0),
        false => (sent.div_ceil(segment_bytes) as u32, sent % segment_bytes),
    };
    stats.packets += u64::from(packets);
    stats.bytes += sent;
    (packets, cut)
}

/// Reads a range of the file into `rest`; bytes beyond its end are zero, so that a frame that has
/// begun keeps its length and the connection remains in sync.
fn read_rest(source: &MappedFile, rest: &mut [u8], offset: u64, stats: &mut SendStats) {
    if crate::stream_path::fill(source, rest, offset, stats).is_err() {
        // The next packet's send reports the end of the file.
        rest.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_packet_counts_as_taken_and_its_rest_is_known() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10_000).unwrap();
        let source = MappedFile::open(file, "a.framed").unwrap();
        let batch = Batch::image(&source, 3, 1000, 0, 2500);
        for (sent, expected) in
            [(1, (1, 1)), (999, (1, 999)), (1000, (1, 0)), (1001, (2, 1)), (2499, (3, 499))]
        {
            let mut stats = SendStats::default();
            assert_eq!(count_accepted(&batch, sent, &mut stats), expected, "{sent}");
            assert_eq!((stats.packets, stats.bytes), (u64::from(expected.0), sent));
        }
        assert_eq!(count_accepted(&batch, 2500, &mut SendStats::default()), (3, 0));
    }
}
