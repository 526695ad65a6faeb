// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending side of one RTSP connection: frames of media and messages, none inside another.
//!
//! Pacer threads send media and the control side sends replies and RTCP over the same socket. The
//! part of a frame or message that the socket did not accept is kept here and sent first. Memory is
//! bounded: the rest of one frame, and messages up to [`MESSAGE_BYTES_MAX`] behind it.
//!
//! Costs nothing while the socket accepts all bytes; otherwise a copy of at most one packet.
//!
//! Sources: RFC 2326 §10.12, `tcp(7)` (`TCP_NOTSENT_LOWAT`).
//!
//! Does not wait and holds no lock: the caller shares it under one.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::refusal;
use crate::error::SendError;
use crate::send_stats::SendStats;
use crate::sys;

/// A connected, non-blocking TCP socket that its reader holds, too.
pub type SharedSocket = Arc<dyn AsFd + Send + Sync>;

/// Sending side of an RTSP connection.
pub struct InterleavedOutput {
    socket: SharedSocket,
    name: Arc<str>,
    /// Bytes to be sent before all others; those before `rest_at` are sent.
    rest: Vec<u8>,
    rest_at: usize,
    /// Bytes that have ever been kept here since the connection began, and those of them that are
    /// sent.
    kept_bytes: u64,
    flushed_bytes: u64,
}

/// Place of a message among the waiting bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputTicket(u64);

impl fmt::Debug for InterleavedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterleavedOutput")
            .field("name", &self.name)
            .field("rest_bytes", &self.rest_bytes())
            .finish_non_exhaustive()
    }
}

impl InterleavedOutput {
    /// Makes the sending side of `socket`, which does not block; `name` is its name in log lines.
    pub fn new(socket: SharedSocket, name: impl Into<Arc<str>>) -> Self {
        Self {
            socket,
            name: name.into(),
            rest: Vec::new(),
            rest_at: 0,
            kept_bytes: 0,
            flushed_bytes: 0,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes that wait for the socket.
    pub fn rest_bytes(&self) -> usize {
        self.rest.len() - self.rest_at
    }

    /// Limits the bytes that the kernel holds unsent for this socket: beyond the limit the socket
    /// accepts no more, so a reader that falls behind is noticed early and costs little memory.
    ///
    /// # Errors
    /// Host: the kernel refuses (`setsockopt`).
    pub fn set_unsent_bytes_max(&self, bytes: u32, stats: &mut SendStats) -> Result<(), SendError> {
        let set = sys::set_unsent_bytes_max(self.as_fd(), bytes, stats);
        set.map_err(|errno| SendError::Host {
            call: "setsockopt TCP_NOTSENT_LOWAT",
            object: self.name.clone(),
            errno,
        })
    }

    /// Sends the waiting bytes.
    ///
    /// # Errors
    /// [`SendError::Blocked`]: some are left.
    pub fn flush(&mut self, stats: &mut SendStats) -> Result<(), SendError> {
        while self.rest_at < self.rest.len() {
            match sys::send(self.socket.as_fd(), &self.rest[self.rest_at..], stats) {
                Ok(sent) => {
                    self.rest_at += sent;
                    self.flushed_bytes += sent as u64;
                    stats.bytes += sent as u64;
                }
                Err(errno) => return Err(refusal("send", errno, self, stats)),
            }
        }
        (self.rest, self.rest_at) = (Vec::new(), 0);
        Ok(())
    }

    /// Sends a whole message (a reply, a frame) behind the waiting bytes; the bytes that the socket
    /// does not accept now wait as well. [`InterleavedOutput::has_sent`] later returns, for the
    /// ticket, whether the socket has accepted all of it.
    ///
    /// # Errors
    /// [`SendError::Blocked`]: more than [`MESSAGE_BYTES_MAX`] would wait; the message is dropped.
    pub fn write(
        &mut self,
        message: &[u8],
        stats: &mut SendStats,
    ) -> Result<OutputTicket, SendError> {
        match self.flush(stats) {
            Ok(()) | Err(SendError::Blocked) => {}
            Err(error) => return Err(error),
        }
        if self.rest_bytes() > 0 {
            if self.rest_bytes() + message.len() > MESSAGE_BYTES_MAX {
                return Err(SendError::Blocked);
            }
            self.rest.extend_from_slice(message);
            self.kept_bytes += message.len() as u64;
            return Ok(OutputTicket(self.kept_bytes));
        }
        match sys::send(self.socket.as_fd(), message, stats) {
            Ok(sent) => {
                stats.bytes += sent as u64;
                self.keep(&message[sent..]);
                Ok(OutputTicket(self.kept_bytes))
            }
            Err(errno) => match refusal("send", errno, self, stats) {
                SendError::Blocked if message.len() <= MESSAGE_BYTES_MAX => {
                    self.keep(message);
                    Ok(OutputTicket(self.kept_bytes))
                }
                error => Err(error),
            },
        }
    }

    /// True when the socket has accepted all of a message.
    pub fn has_sent(&self, ticket: OutputTicket) -> bool {
        self.flushed_bytes >= ticket.0
    }

    /// Keeps the rest of a frame that has begun, to be sent before anything else.
    pub(super) fn keep(&mut self, rest: &[u8]) {
        debug_assert_eq!(self.rest_bytes(), 0, "one rest at a time");
        self.rest.clear();
        self.rest.extend_from_slice(rest);
        self.rest_at = 0;
        self.kept_bytes += rest.len() as u64;
    }
}

impl AsFd for InterleavedOutput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Most bytes that wait for a reader, the rest of a frame included: more than all replies to
/// pipelined requests.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (InterleavedOutput, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (writer, _) = listener.accept().unwrap();
        writer.set_nonblocking(true).unwrap();
        let output = InterleavedOutput::new(Arc::new(writer), "reader");
        output.set_unsent_bytes_max(16 * 1024, &mut SendStats::default()).unwrap();
        (output, reader)
    }

    #[test]
    fn messages_of_a_full_socket_wait_in_order_up_to_the_limit() {
        let (mut output, mut reader) = pair();
        let mut stats = SendStats::default();
        let message: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
        let mut written = 0;
        let refused = loop {
            match output.write(&message, &mut stats) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "a reader that does not read takes no end of messages");
        };
        assert_eq!(refused, SendError::Blocked);
        assert!(output.rest_bytes() <= MESSAGE_BYTES_MAX);
        let mut found = vec![0; message.len()];
        for number in 0..written {
            // The last ones wait until there is room.
            if output.rest_bytes() > 0 {
                let _ = output.flush(&mut stats);
            }
            reader.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
            let mut at = 0;
            while at < found.len() {
                match reader.read(&mut found[at..]) {
                    Ok(0) => panic!("message {number} was lost"),
                    Ok(bytes) => at += bytes,
                    Err(_) => drop(output.flush(&mut stats)),
                }
            }
            assert_eq!(found, message, "message {number}");
        }
        assert_eq!(output.flush(&mut stats), Ok(()));
        assert_eq!((output.rest_bytes(), stats.bytes), (0, written * message.len() as u64));
    }

    #[test]
    fn a_reader_that_is_gone_is_reported() {
        let (mut output, reader) = pair();
        drop(reader);
        let mut stats = SendStats::default();
        let error = (0..100).find_map(|_| output.write(&[0; 4096], &mut stats).err());
        assert!(matches!(error, Some(SendError::Gone { .. })), "{error:?}");
    }
}
