// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's socket, which can be read record by record during the handshake.
//!
//! The kernel can accept a connection only if nothing behind the handshake has been read, and a
//! client's first request often follows it directly. So the socket of such a connection ends each
//! poll at the end of one record, and the reader decides about the next record in another poll.
//! Costs two reads and a poll a record, of some three records a connection.
//!
//! Sources: RFC 8446 §5.1 (header of a record).
//! Does not look into records; bytes that are no record are rustls's to refuse.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Connection of a client of TLS that this process encrypts.
pub(crate) type ClientTls = TlsStream<RecordSocket>;

/// Socket below TLS.
pub(crate) struct RecordSocket {
    stream: TcpStream,
    reading: Reading,
}

enum Reading {
    /// Reads all available bytes.
    Freely,
    /// A record has ended in this poll.
    BetweenPolls,
    /// The header of a record.
    Header { filled: usize, header: [u8; HEADER_BYTES] },
    /// The rest of a record.
    Content { left: usize },
}

impl RecordSocket {
    /// Wraps a connection of which no byte was read yet.
    pub(super) fn new(stream: TcpStream, is_by_record: bool) -> RecordSocket {
        let reading = if is_by_record { Reading::START } else { Reading::Freely };
        RecordSocket { stream, reading }
    }

    /// Returns the TCP connection, for its options.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.stream
    }

    /// True if whole records were read and not a byte behind them.
    pub(super) fn is_between_records(&self) -> bool {
        matches!(self.reading, Reading::BetweenPolls | Reading::Header { filled: 0, .. })
    }

    /// Reads all available bytes from now on.
    pub(crate) fn read_freely(&mut self) {
        self.reading = Reading::Freely;
    }

    pub(super) fn into_tcp(self) -> TcpStream {
        self.stream
    }
}

impl Reading {
    const START: Reading = Reading::Header { filled: 0, header: [0; HEADER_BYTES] };

    /// Records bytes that were read.
    fn advance(&mut self, bytes: &[u8]) {
        match self {
            Reading::Freely | Reading::BetweenPolls => {}
            Reading::Header { filled, header } => {
                header[*filled..*filled + bytes.len()].copy_from_slice(bytes);
                *filled += bytes.len();
                if *filled == HEADER_BYTES {
                    let left = usize::from(u16::from_be_bytes([header[3], header[4]]));
                    *self = Reading::Content { left };
                }
            }
            Reading::Content { left } => *left -= bytes.len(),
        }
        if matches!(self, Reading::Content { left: 0 }) {
            *self = Reading::BetweenPolls;
        }
    }
}

impl AsyncRead for RecordSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let RecordSocket { stream, reading } = self.get_mut();
        let bytes_max = match reading {
            Reading::Freely => return Pin::new(stream).poll_read(context, buffer),
            Reading::BetweenPolls => {
                *reading = Reading::START;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Reading::Header { filled, .. } => HEADER_BYTES - *filled,
            Reading::Content { left } => *left,
        };
        let part = buffer.initialize_unfilled();
        let length = part.len().min(bytes_max);
        let mut part = ReadBuf::new(&mut part[..length]);
        ready!(Pin::new(stream).poll_read(context, &mut part))?;
        reading.advance(part.filled());
        let read = part.filled().len();
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl AsFd for RecordSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Bytes of a record's type, version and length.
const HEADER_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Polls once; the bytes that were read.
    async fn read(socket: &mut RecordSocket, length: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; length];
        poll_fn(|context| {
            let mut buffer = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *socket).poll_read(context, &mut buffer) {
                Poll::Ready(read) => Poll::Ready(read.ok().map(|()| buffer.filled().to_vec())),
                Poll::Pending => Poll::Ready(None),
            }
        })
        .await
    }

    #[tokio::test]
    async fn a_poll_ends_behind_a_record_of_any_length() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (mut client, mut socket) =
            (client.unwrap(), RecordSocket::new(accepted.unwrap().0, true));
        let first: &[u8] = &[22, 3, 1, 0, 3, 7, 8, 9];
        let empty: &[u8] = &[23, 3, 3, 0, 0];
        let last: &[u8] = &[23, 3, 3, 1, 0];
        client.write_all(&[first, empty, last, &[5; 300]].concat()).await.unwrap();
        socket.tcp().readable().await.unwrap();
        assert!(socket.is_between_records());
        assert_eq!(read(&mut socket, 2).await.as_deref(), Some(&first[..2]), "a small buffer");
        assert!(!socket.is_between_records());
        assert_eq!(read(&mut socket, 100).await.as_deref(), Some(&first[2..5]));
        assert_eq!(read(&mut socket, 100).await.as_deref(), Some(&first[5..]));
        assert!(socket.is_between_records());
        assert_eq!(read(&mut socket, 100).await, None, "the poll ends");
        assert_eq!(read(&mut socket, 100).await.as_deref(), Some(empty));
        assert_eq!(read(&mut socket, 100).await, None);
        assert_eq!(read(&mut socket, 100).await.as_deref(), Some(last));
        assert_eq!(read(&mut socket, 400).await.as_deref(), Some(&[5; 256][..]));
        assert!(socket.is_between_records());
        socket.read_freely();
        assert_eq!(read(&mut socket, 400).await.as_deref(), Some(&[5; 44][..]));
    }
}
