// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending side of an RTSP connection, shared by its replies and its streams.
//!
//! The control side sends replies and RTCP, pacer threads send media. A lock is held for one
//! non-blocking send call, so that no message begins inside another's frame.
//!
//! Sources: RFC 2326 §10.12.
//! Does not read, and does not choose the bytes to send.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use paths::{InterleavedOutput, SendError, SendStats, TcpFigures, tcp_figures};
use tokio::io::Interest;
use tokio::net::TcpStream;
use wire::rtsp::interleaved_header;

use crate::write_deadline::Allowance;

/// Sending side of one connection.
pub(crate) struct RtspOutput {
    stream: Arc<TcpStream>,
    output: Mutex<InterleavedOutput>,
}

impl RtspOutput {
    /// Creates the sending side of `stream`, whose client is `peer`.
    pub(crate) fn new(stream: Arc<TcpStream>, peer: SocketAddr) -> Arc<RtspOutput> {
        let output = Mutex::new(InterleavedOutput::new(stream.clone(), peer.to_string()));
        Arc::new(RtspOutput { stream, output })
    }

    /// Returns the connection.
    pub(crate) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Returns the kernel's TCP figures of the connection; `None` if it has ended.
    pub(crate) fn figures(&self) -> Option<TcpFigures> {
        tcp_figures(self.stream.as_fd()).ok()
    }

    /// Locks the output for one batch of a stream.
    pub(crate) fn lock(&self) -> MutexGuard<'_, InterleavedOutput> {
        self.output.lock()
    }

    /// Sends a reply and waits until the socket has accepted it; false if the peer does not accept
    /// it within `wait`.
    pub(crate) async fn write(&self, reply: &[u8], wait: Duration) -> bool {
        let mut stats = SendStats::default();
        let mut allowance = Allowance::new(wait);
        let ticket = match self.lock().write(reply, &mut stats) {
            Ok(ticket) => ticket,
            // The output is blocked: the client sends requests and does not read the replies.
            Err(_) => return false,
        };
        allowance.handed(reply.len() as u64);
        while !self.lock().has_sent(ticket) {
            if !allowance.writable(&self.stream).await {
                return false;
            }
            if !self.flush() {
                return false;
            }
        }
        true
    }

    /// Sends an RTCP packet on `channel`. Drops it if the socket has no room: the next report has
    /// newer figures.
    pub(crate) fn send_rtcp(&self, channel: u8, packet: &[u8]) {
        let Ok(bytes) = u16::try_from(packet.len()) else { return };
        let mut output = self.lock();
        let mut stats = SendStats::default();
        if output.flush(&mut stats).is_ok() {
            let frame = [&interleaved_header(channel, bytes), packet].concat();
            // The task that reads a failed connection closes it.
            let _ = output.write(&frame, &mut stats);
        }
    }

    /// Sends an RTCP packet on `channel` behind the bytes that wait for a slow reader. Used for
    /// BYE, which no later packet replaces.
    pub(crate) fn send_last_rtcp(&self, channel: u8, packet: &[u8]) {
        let Ok(bytes) = u16::try_from(packet.len()) else { return };
        let frame = [&interleaved_header(channel, bytes), packet].concat();
        // The frame is dropped only behind more unread replies than may wait.
        let _ = self.lock().write(&frame, &mut SendStats::default());
    }

    /// Sends the bytes that wait for the socket; false if the connection has failed.
    pub(crate) fn flush(&self) -> bool {
        // The call uses the runtime, so that the runtime notices a full socket and waits for room.
        let flushed = self.stream.try_io(Interest::WRITABLE, || {
            match self.lock().flush(&mut SendStats::default()) {
                Ok(()) => Ok(true),
                Err(SendError::Blocked) => Err(std::io::ErrorKind::WouldBlock.into()),
                Err(_) => Ok(false),
            }
        });
        flushed.unwrap_or(true)
    }
}
