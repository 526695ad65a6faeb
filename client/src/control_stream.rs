// SPDX-License-Identifier: MIT OR Apache-2.0
//! The byte stream of an RTSP connection: TCP, or TLS over it.
//!
//! Over TLS a read has as many records as are there and fit, so that a reader of frames makes one
//! batch of them, as it does over TCP. An end without `close_notify` counts as a close: messages
//! and frames of RTSP have a length, so that a part of one is not taken for the whole.
//!
//! Sources: tcp(7); RFC 8446 §6.1; `TlsStream` of tokio-rustls 0.26.
//! Does not connect.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;

/// The socket beneath TLS. rustls reads 4 KiB at a time; the buffer takes what is there at once.
pub(crate) type TlsSocket = BufReader<TcpStream>;

/// An open connection.
pub(crate) enum ControlStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TlsSocket>>),
}

/// Receiving side of a connection.
pub(crate) enum StreamReader {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<TlsStream<TlsSocket>>),
}

/// Sending side of a connection.
#[derive(Debug)]
pub(crate) enum StreamWriter {
    Plain(OwnedWriteHalf),
    Tls(WriteHalf<TlsStream<TlsSocket>>),
}

impl ControlStream {
    /// Local and remote address.
    pub(crate) fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let socket = match self {
            ControlStream::Plain(stream) => stream,
            ControlStream::Tls(stream) => stream.get_ref().0.get_ref(),
        };
        Ok((socket.local_addr()?, socket.peer_addr()?))
    }

    pub(crate) fn into_split(self) -> (StreamReader, StreamWriter) {
        match self {
            ControlStream::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (StreamReader::Plain(reader), StreamWriter::Plain(writer))
            }
            ControlStream::Tls(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                (StreamReader::Tls(reader), StreamWriter::Tls(writer))
            }
        }
    }
}

impl StreamReader {
    /// The socket, where its bytes are those of RTSP.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            StreamReader::Plain(stream) => Some(stream.as_ref()),
            StreamReader::Tls(_) => None,
        }
    }

    /// Waits for bytes; 0 is the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// As [`read`](Self::read).
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(buffer);
        let read = match self {
            StreamReader::Plain(stream) => Pin::new(stream).poll_read(context, &mut space),
            StreamReader::Tls(stream) => Pin::new(stream).poll_read(context, &mut space),
        };
        match read {
            // TLS ended without `close_notify`.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(0))
            }
            read => read.map_ok(|()| space.filled().len()),
        }
    }

    /// Reads the bytes that are there; `None` if there are none. Does not wait for the runtime's
    /// readiness event of a socket, which its wake-up mark delays. No [`read`](Self::read) may be
    /// pending: it would not be woken.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(socket) = self.socket() {
            return match rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT) {
                Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
                Err(errno) => Err(errno.into()),
                Ok((_, bytes)) => Ok(Some(bytes)),
            };
        }
        match at_once(|context| self.poll_read(context, buffer)) {
            Poll::Pending => Ok(None),
            Poll::Ready(read) => read.map(Some),
        }
    }
}

/// Polls once, without a task to wake and without its share of time.
fn at_once<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let polled = pin!(unconstrained(poll_fn(poll)));
    polled.poll(&mut Context::from_waker(Waker::noop()))
}

impl StreamWriter {
    /// Writes some of the bytes as soon as that is possible; returns their number.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, bytes)).await
    }

    /// Waits until the kernel has all that was written.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Writes some of the bytes if that is possible at once. No other call of this writer may be
    /// pending: it would not be woken.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it is not possible.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let StreamWriter::Plain(stream) = self {
            return stream.try_write(bytes);
        }
        let written = match at_once(|context| self.poll_write(context, bytes)) {
            Poll::Ready(written) => written?,
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
        };
        // Records that remain are written by the next call.
        match at_once(|context| self.poll_flush(context)) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(written),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            StreamWriter::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            StreamWriter::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            StreamWriter::Plain(stream) => Pin::new(stream).poll_flush(context),
            StreamWriter::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }
}

impl Drop for StreamWriter {
    /// Closes the sending side of TLS by `close_notify`, if the socket has room for it: an
    /// `OwnedWriteHalf` closes by itself, and a TLS connection when its reader is dropped, too.
    fn drop(&mut self) {
        if let StreamWriter::Tls(stream) = self {
            let _ = at_once(|context| Pin::new(&mut *stream).poll_shutdown(context));
        }
    }
}
