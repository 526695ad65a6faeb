// SPDX-License-Identifier: MIT OR Apache-2.0
//! frame_budget: bounds the bytes and the frames that a client of HTTP/2 has read, in a turn and in
//! all.
//!
//! The `h2` crate reads frames until the socket is empty, and frames such as PRIORITY and
//! WINDOW_UPDATE ask for nothing: one connection that sends them occupied its loop for tens of
//! milliseconds a turn. So a turn ends after [`TURN_BYTES`], and a connection that has sent more
//! than its requests and what it was sent warrant ([`Budget`]) is ended.
//!
//! A frame costs the same for each of its bytes, except those that touch every stream of the
//! connection: a change of SETTINGS_INITIAL_WINDOW_SIZE moves all windows and wakes all streams
//! (15 bytes; RFC 9113 §6.9.2), and GOAWAY looks at each (17 bytes; §6.8). These are counted before
//! `h2` has them, each as [`STREAMS_MAX`] streams touched. [`TOUCHES_MAX`] of them are warranted at
//! a time, which requests and bytes that were sent fill up again.
//!
//! Costs two additions a read and a write, and a look at the head of each frame that is received.
//!
//! Sources: RFC 9113 §4.1 (frame heads), §10.5 (denial of service).
//! Does not parse frames beyond their heads.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http2::STREAMS_MAX;

/// Requests of a client, for which it may send frames; shared with the connection, which adds them.
#[derive(Default)]
pub(super) struct Budget {
    requests: AtomicU64,
    is_exhausted: AtomicBool,
}

impl Budget {
    /// Adds a request.
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// True once a client has sent more than is warranted: nothing more of it is read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.load(Ordering::Relaxed)
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
    heads: FrameHeads,
    /// Touches of streams that are warranted now, and those that were until now.
    touches: u64,
    touches_earned: u64,
}

impl<S> Budgeted<S> {
    pub(super) fn new(stream: S, budget: Arc<Budget>) -> Budgeted<S> {
        let (heads, touches) = (FrameHeads::new(), TOUCHES_MAX);
        let (in_turn, received, sent, touches_earned) = (0, 0, 0, 0);
        Budgeted { stream, budget, in_turn, received, sent, heads, touches, touches_earned }
    }

    /// True when the client may have sent these bytes, too.
    fn allows(&mut self, bytes: &[u8]) -> bool {
        let requests = self.budget.requests.load(Ordering::Relaxed);
        self.received += bytes.len() as u64;
        let warranted = SLACK_BYTES + requests * REQUEST_BYTES + self.sent / SENT_SHARE;
        let touched = u64::from(self.heads.touching_all(bytes)) * u64::from(STREAMS_MAX);
        if touched > 0 {
            let earned = requests * REQUEST_TOUCHES + self.sent / TOUCH_BYTES;
            self.touches = (self.touches + earned - self.touches_earned).min(TOUCHES_MAX);
            self.touches_earned = earned;
        }
        let left = self.touches.checked_sub(touched);
        self.touches = left.unwrap_or_default();
        left.is_some() && self.received <= warranted
    }
}

/// Reader of the heads of the frames that a client sends.
struct FrameHeads {
    /// The part of a head that has arrived.
    head: [u8; HEAD_BYTES],
    arrived: usize,
    /// Bytes of the preface (RFC 9113 §3.4) or of a frame before the next head.
    skip: usize,
}

impl FrameHeads {
    fn new() -> FrameHeads {
        FrameHeads { head: [0; HEAD_BYTES], arrived: 0, skip: PREFACE_BYTES }
    }

    /// Counts the frames of which the heads end in these bytes and that touch all streams.
    fn touching_all(&mut self, mut bytes: &[u8]) -> u32 {
        let mut found = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let copied = (HEAD_BYTES - self.arrived).min(bytes.len());
            self.head[self.arrived..][..copied].copy_from_slice(&bytes[..copied]);
            self.arrived += copied;
            bytes = &bytes[copied..];
            if self.arrived == HEAD_BYTES {
                self.arrived = 0;
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                found += u32::from((kind == SETTINGS && flags & ACK == 0) || kind == GOAWAY);
            }
        }
        found
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Budgeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Nothing wakes the connection: it looks at its budget after each turn.
        if self.budget.is_exhausted() {
            return Poll::Pending;
        }
        if self.in_turn >= TURN_BYTES {
            self.in_turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        self.in_turn += read.len();
        if !self.allows(read) {
            buffer.set_filled(before);
            self.budget.is_exhausted.store(true, Ordering::Relaxed);
            return Poll::Pending;
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
/// Touches of streams at a time: 64 changes of the settings, 2 ms. Clients change theirs once, or
/// some ten times while they measure the path.
const TOUCHES_MAX: u64 = 64 * STREAMS_MAX as u64;
/// Touches that a request warrants: a tenth of its own cost.
const REQUEST_TOUCHES: u64 = 8;
/// Bytes sent that warrant a touch: a frame of the longest that clients accept unasked.
const TOUCH_BYTES: u64 = 16 << 10;
/// RFC 9113 §3.4, §4.1, §6.5 and §6.8.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// The bytes that are read of a client until nothing more of it is.
    async fn read_of<S: AsyncRead + Unpin>(stream: &mut Budgeted<S>, at_once: usize) -> u64 {
        let (mut read, mut buffer) = (0, vec![0; at_once]);
        while !stream.budget.is_exhausted() {
            let mut buffer = ReadBuf::new(&mut buffer);
            read += poll_fn(|context| {
                let polled = Pin::new(&mut *stream).poll_read(context, &mut buffer);
                let (is_turn, bytes) = (polled.is_pending(), buffer.filled().len() as u64);
                assert!(is_turn || (matches!(polled, Poll::Ready(Ok(()))) && bytes > 0), "read");
                Poll::Ready(bytes)
            })
            .await;
        }
        read
    }

    #[tokio::test]
    async fn what_asks_for_nothing_is_ended_and_requests_are_not() {
        let endless = || tokio::io::repeat(7);
        let mut buffer = vec![0; 16 << 10];
        let read = read_of(&mut Budgeted::new(endless(), Arc::default()), buffer.len()).await;
        assert_eq!(read, SLACK_BYTES);
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

    /// SETTINGS of one parameter, their acknowledgement, GOAWAY, PING and DATA of 300 bytes.
    fn frames() -> Vec<u8> {
        let frame = |kind, flags, length: u16| {
            let [high, low] = length.to_be_bytes();
            [&[0, high, low, kind, flags, 0, 0, 0, 0][..], &vec![SETTINGS; length.into()]].concat()
        };
        let (settings, acknowledged) = (frame(SETTINGS, 0, 6), frame(SETTINGS, ACK, 0));
        [settings, acknowledged, frame(GOAWAY, 0, 8), frame(6, 0, 8), frame(0, 0, 300)].concat()
    }

    #[test]
    fn frames_that_touch_all_streams_are_counted_however_they_are_cut() {
        let bytes = [vec![SETTINGS; PREFACE_BYTES], frames().repeat(5)].concat();
        for piece in [1, 2, 8, 9, 10, 23, 24, 25, 100, bytes.len()] {
            let mut heads = FrameHeads::new();
            let found = bytes.chunks(piece).map(|bytes| heads.touching_all(bytes)).sum::<u32>();
            assert_eq!(found, 10, "pieces of {piece} bytes");
        }
    }

    #[tokio::test]
    async fn settings_are_read_while_the_streams_that_they_touch_are_warranted() {
        let settings = [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
        let bytes = [vec![0; PREFACE_BYTES], settings.repeat(1000)].concat();
        let most = TOUCHES_MAX / u64::from(STREAMS_MAX);
        // Long use saves up no more than one measure.
        for (requests, sent, again) in [(0, 0, 0), (100, 0, 8), (0, 100 * TOUCH_BYTES, 1)]
            .into_iter()
            .chain([(1 << 20, 1 << 40, most)])
        {
            let mut stream = Budgeted::new(&bytes[..], Arc::default());
            let mut read = vec![0; PREFACE_BYTES + settings.len() * most as usize];
            stream.read_exact(&mut read).await.unwrap();
            (0..requests).for_each(|_| stream.budget.request());
            stream.sent = sent;
            let read = read_of(&mut stream, settings.len()).await;
            assert_eq!(read, again * settings.len() as u64, "{requests} requests, {sent} bytes");
        }
    }

    #[tokio::test]
    async fn a_turn_ends_after_its_bytes() {
        let mut stream = Budgeted::new(tokio::io::repeat(7), Arc::default());
        let mut buffer = vec![0; TURN_BYTES];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), TURN_BYTES);
        let next = poll_fn(|context| {
            let mut space = [0; 8];
            let mut buffer = ReadBuf::new(&mut space);
            Poll::Ready(Pin::new(&mut stream).poll_read(context, &mut buffer).is_pending())
        });
        assert!(next.await);
        assert_eq!(stream.read(&mut buffer).await.unwrap(), TURN_BYTES, "and goes on");
    }
}
