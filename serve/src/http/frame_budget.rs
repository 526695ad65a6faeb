// SPDX-License-Identifier: MIT OR Apache-2.0
//! frame_budget: bounds the bytes that a client of HTTP/2 has read, in a turn and in all.
//!
//! The `h2` crate reads frames until the socket is empty, and frames such as PRIORITY and
//! WINDOW_UPDATE ask for nothing: one connection that sends them occupied its loop for tens of
//! milliseconds a turn. So a turn ends after [`TURN_BYTES`], and a connection that has sent more
//! than its requests and what it was sent warrant ([`Budget`]) is ended.
//!
//! Costs two additions a read and a write.
//!
//! Sources: RFC 9113 §10.5 (denial of service).
//! Does not parse frames.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a client may still send; shared with the connection, which adds its requests.
#[derive(Default)]
pub(super) struct Budget {
    requests: AtomicU64,
}

impl Budget {
    /// Adds a request.
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// True when a client that was sent `sent` bytes may have sent `received`.
    fn allows(&self, received: u64, sent: u64) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        received <= SLACK_BYTES + requests * REQUEST_BYTES + sent / SENT_SHARE
    }
}

/// A connection whose reads are bounded.
pub(super) struct Budgeted<S> {
    stream: S,
    budget: Arc<Budget>,
    /// Bytes read since the last turn of others.
    in_turn: usize,
    received: u64,
    sent: u64,
}

impl<S> Budgeted<S> {
    pub(super) fn new(stream: S, budget: Arc<Budget>) -> Budgeted<S> {
        Budgeted { stream, budget, in_turn: 0, received: 0, sent: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Budgeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.in_turn >= TURN_BYTES {
            self.in_turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        self.in_turn += read;
        self.received += read as u64;
        if !self.budget.allows(self.received, self.sent) {
            return Poll::Ready(Err(io::Error::other("more frames than its requests warrant")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Budgeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.sent += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices))?;
        self.sent += written as u64;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Bytes of a turn: four TLS records.
const TURN_BYTES: usize = 64 << 10;
/// Bytes of frames beside requests, such as SETTINGS, PING and PRIORITY.
const SLACK_BYTES: u64 = 1 << 20;
/// A request: a head of 16 KiB and content of 64, with their frames.
const REQUEST_BYTES: u64 = 96 << 10;
/// Part of what was sent that WINDOW_UPDATE may take: clients send 26 bytes for some KiB at least.
const SENT_SHARE: u64 = 16;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_asks_for_nothing_is_ended_and_requests_are_not() {
        let endless = || tokio::io::repeat(7);
        let mut buffer = vec![0; 16 << 10];
        let mut idle = Budgeted::new(endless(), Arc::default());
        let mut read = 0;
        let error = loop {
            match idle.read(&mut buffer).await {
                Ok(bytes) => read += bytes as u64,
                Err(error) => break error,
            }
        };
        assert!(read <= SLACK_BYTES && error.to_string().contains("requests"), "{read} {error}");
        let budget: Arc<Budget> = Arc::default();
        let mut asking = Budgeted::new(endless(), budget.clone());
        for _ in 0..1000 {
            budget.request();
            assert!(asking.read(&mut buffer).await.is_ok());
        }
        let mut fed = Budgeted::new(endless(), Arc::default());
        for _ in 0..1000 {
            fed.sent += 16 * buffer.len() as u64;
            assert!(fed.read(&mut buffer).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_turn_ends_after_its_bytes() {
        let mut stream = Budgeted::new(tokio::io::repeat(7), Arc::default());
        let mut buffer = vec![0; TURN_BYTES];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), TURN_BYTES);
        let next = std::future::poll_fn(|context| {
            let mut space = [0; 8];
            let mut buffer = ReadBuf::new(&mut space);
            Poll::Ready(Pin::new(&mut stream).poll_read(context, &mut buffer).is_pending())
        });
        assert!(next.await);
        assert_eq!(stream.read(&mut buffer).await.unwrap(), TURN_BYTES, "and goes on");
    }
}
