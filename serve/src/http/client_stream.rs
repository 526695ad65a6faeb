// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection of an HTTP client, plain or TLS, and its receiving side.
//!
//! Bytes are read into the loop's buffer and parsed from there, so that a silent connection holds
//! none. A read that does not fill the buffer has drained the socket, so it is not repeated (tokio
//! clears the readiness), except where the kernel decrypts. One timer a connection is kept and
//! moved only when it fires early: a request costs no change of the timer wheel.
//!
//! Does not parse.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use wire::http::RequestReader;

use crate::http::event_loops::with_scratch;
use crate::listener::close;
use crate::tls::{ClientTls, KernelTlsStream, TlsTerms};
use crate::write_deadline::Allowance;

/// Connection of a client.
pub(super) enum ClientStream {
    Plain(TcpStream),
    /// Encrypted by this process.
    Tls(Box<ClientTls>),
    /// Encrypted by the kernel.
    KernelTls(KernelTlsStream),
}

impl ClientStream {
    /// Wraps a connection after its handshake; the kernel encrypts it where it can.
    pub(super) fn encrypted(mut stream: ClientTls, terms: &TlsTerms) -> io::Result<ClientStream> {
        match terms.in_kernel(&mut stream) {
            Some(keys) => {
                KernelTlsStream::start(stream, keys, &terms.counters).map(ClientStream::KernelTls)
            }
            None => Ok(ClientStream::Tls(Box::new(stream))),
        }
    }

    /// True where the kernel encrypts.
    pub(super) fn is_in_kernel(&self) -> bool {
        matches!(self, ClientStream::KernelTls(_))
    }

    /// True where closing has an alert of its own.
    pub(super) fn is_encrypted(&self) -> bool {
        !matches!(self, ClientStream::Plain(_))
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            ClientStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            ClientStream::Tls(stream) => {
                let read = Pin::new(&mut *stream).poll_read(context, buffer);
                // TLS itself may have to answer the client's bytes: another handshake (RFC 5246
                // §7.2.2) with an alert, new keys (RFC 8446 §4.6.3) with our own.
                if stream.get_ref().1.wants_write() {
                    // A failure is that of the connection, which the next read reports.
                    let _ = Pin::new(stream).poll_flush(context);
                }
                read
            }
            ClientStream::KernelTls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    /// Returns the TCP socket, for its options.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            ClientStream::Plain(stream) => stream.as_fd(),
            ClientStream::Tls(stream) => stream.get_ref().0.as_fd(),
            ClientStream::KernelTls(stream) => stream.tcp().as_fd(),
        }
    }

    /// Resolves when the peer has closed its side or the connection is broken: for requests that
    /// wait, of clients that read their answer before they close.
    pub(super) async fn hung_up(&self) {
        loop {
            sleep(HUNG_UP_LOOK).await;
            let mut socket = [PollFd::from_borrowed_fd(self.socket(), PollFlags::RDHUP)];
            let polled = poll(&mut socket, Some(&Timespec::default()));
            if polled.is_err() || !socket[0].revents().is_empty() {
                return;
            }
        }
    }

    /// Closes the connection behind its last answer; `wait` is the time-out of a peer that accepts
    /// nothing of it.
    pub(super) async fn close(self, wait: Duration) {
        // In a box: it has a buffer, which the connection does not need before.
        match self {
            ClientStream::Plain(stream) => Box::pin(close(stream)).await,
            ClientStream::Tls(stream) => Box::pin(close(*stream)).await,
            ClientStream::KernelTls(stream) => {
                if has_left(stream.tcp(), &mut Allowance::new(wait)).await {
                    Box::pin(close(stream)).await;
                }
            }
        }
    }
}

/// Waits until TCP has all that was written; false when the peer is gone or too slow.
///
/// Where TCP has no room, the kernel counts a record as written of which it holds a part back, and
/// it loses that part when the sending side is shut down. Where there is room for the next alert
/// (tcp(7): a third of the buffer), it leaves with the alert.
async fn has_left(stream: &TcpStream, allowance: &mut Allowance) -> bool {
    loop {
        let has_room = stream.try_io(Interest::WRITABLE, || {
            let mut socket = [PollFd::new(stream, PollFlags::OUT)];
            poll(&mut socket, Some(&Timespec::default()))?;
            match socket[0].revents() {
                PollFlags::OUT => Ok(true),
                events if events.is_empty() => Err(ErrorKind::WouldBlock.into()),
                _ => Ok(false),
            }
        });
        match has_room {
            Ok(has_room) => return has_room,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !allowance.writable(stream).await {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// Pause between two looks at whether the peer has left; most waits are over before.
const HUNG_UP_LOOK: Duration = Duration::from_millis(500);

/// Timer of a connection.
pub(super) struct Deadline(Option<Pin<Box<Sleep>>>);

/// Result of waiting for bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The reader has more.
    Bytes,
    /// The peer has closed or failed.
    Closed,
    /// No byte was received in time.
    TimedOut,
}

impl Deadline {
    pub(super) fn new() -> Deadline {
        Deadline(None)
    }

    /// Ready once `until` has passed.
    fn poll(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() > until {
            timer.as_mut().reset(until);
        }
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}

/// Feeds `reader` with bytes of the peer, or waits for some `until`.
pub(super) async fn receive(
    stream: &mut ClientStream,
    reader: &mut RequestReader,
    deadline: &mut Deadline,
    until: Instant,
) -> Received {
    poll_fn(|context| {
        let read = with_scratch(|scratch| {
            let mut buffer = ReadBuf::new(&mut scratch[..READ_BYTES]);
            let read = stream.poll_read(context, &mut buffer);
            read.map_ok(|()| {
                reader.feed(buffer.filled());
                buffer.filled().len()
            })
        });
        match read {
            Poll::Ready(Ok(1..)) => Poll::Ready(Received::Bytes),
            Poll::Ready(Ok(0)) => Poll::Ready(Received::Closed),
            Poll::Ready(Err(error)) => {
                tracing::debug!("http: {error}");
                Poll::Ready(Received::Closed)
            }
            Poll::Pending => deadline.poll(until, context).map(|()| Received::TimedOut),
        }
    })
    .await
}

/// A head of usual length, many times over: pipelined requests are parsed before more are read.
const READ_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use wire::http::Limits;

    use super::*;

    #[tokio::test]
    async fn a_deadline_that_moves_later_and_earlier_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (mut client, stream) = (client.unwrap(), accepted.unwrap().0);
        let mut stream = ClientStream::Plain(stream);
        let (mut reader, mut deadline) = (RequestReader::new(Limits::default()), Deadline::new());
        let after = |ms| Instant::now() + Duration::from_millis(ms);
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let received = receive(&mut stream, &mut reader, &mut deadline, after(50)).await;
        assert_eq!(received, Received::Bytes);
        // The later deadline holds although the timer fires at the first.
        let first = receive(&mut stream, &mut reader, &mut deadline, after(20)).await;
        assert_eq!(first, Received::TimedOut);
        let began = Instant::now();
        let second = receive(&mut stream, &mut reader, &mut deadline, after(150)).await;
        assert_eq!(second, Received::TimedOut);
        assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());
        // An earlier one, too.
        let hour = Instant::now() + Duration::from_secs(3600);
        deadline.0 = Some(Box::pin(sleep_until(hour)));
        let third = receive(&mut stream, &mut reader, &mut deadline, after(20)).await;
        assert_eq!(third, Received::TimedOut);
        client.write_all(b"Host: a\r\n\r\n").await.unwrap();
        let last = receive(&mut stream, &mut reader, &mut deadline, after(500)).await;
        assert_eq!(last, Received::Bytes);
        assert_eq!(reader.next().unwrap().unwrap().path, "/");
        drop(client);
        let closed = receive(&mut stream, &mut reader, &mut deadline, after(500)).await;
        assert_eq!(closed, Received::Closed);
    }
}
