// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds the bytes and the frames that a client of HTTP/2 has read, in a turn and in all.
//!
//! The `h2` crate reads frames until the socket is empty, and frames such as PRIORITY, PING and
//! WINDOW_UPDATE (13 bytes, which may wake a stream) request nothing: one connection that sends
//! them occupied its loop for tens of milliseconds a turn. So a turn ends after [`TURN_FRAMES`] or
//! [`TURN_BYTES`], behind the next look at events. A connection that has sent more than its
//! requests and the bytes sent to it warrant is ended ([`Warranted`]): in bytes, in frames of any
//! kind, and in streams that were touched.
//!
//! Frames that touch every stream of the connection cost more than others: a change of
//! SETTINGS_INITIAL_WINDOW_SIZE moves all windows and wakes all streams (15 bytes; RFC 9113
//! §6.9.2), and GOAWAY looks at each (17 bytes; §6.8). These are counted before `h2` has them, each
//! as [`STREAMS_MAX`] streams touched.
//!
//! Costs some additions a read and a write, and a look at the head of each frame that is received.
//! A read ends where [`READ_HEADS`] of the shortest frames would: a long frame takes two reads. Of
//! a client that is ended, up to [`DRAINED_BYTES_MAX`] more are read behind the end.
//!
//! Sources: RFC 9113 §4.1 (frame heads), §10.5 (denial of service).
//! Does not parse frames beyond their heads.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

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

    /// True once a client has sent more than is warranted: no more of its frames are processed.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.load(Ordering::Relaxed)
    }
}

/// A connection whose reads are bounded.
pub(super) struct Budgeted<S> {
    stream: S,
    budget: Arc<Budget>,
    /// Bytes and frames read since the last turn of others.
    bytes_in_turn: usize,
    frames_in_turn: u64,
    received: u64,
    sent: u64,
    heads: FrameHeads,
    frames: Warranted,
    touches: Warranted,
    /// The sending side is shut down.
    is_shut: bool,
    /// Bytes read after that.
    drained: usize,
}

/// Number of things that a client may send: as many as it has earned, and never more than `most` at
/// a time, so that long use saves up no more.
struct Warranted {
    most: u64,
    left: u64,
    /// Sum of all units earned.
    earned: u64,
}

impl Warranted {
    fn new(most: u64) -> Warranted {
        Warranted { most, left: most, earned: 0 }
    }

    /// Spends `count` units, after adding the growth of the total to `earned`; false when fewer are
    /// left.
    fn take(&mut self, count: u64, earned: u64) -> bool {
        self.left = (self.left + earned - self.earned).min(self.most);
        self.earned = earned;
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

impl<S> Budgeted<S> {
    pub(super) fn new(stream: S, budget: Arc<Budget>) -> Budgeted<S> {
        let (heads, frames) = (FrameHeads::new(), Warranted::new(FRAMES_MAX));
        let touches = Warranted::new(TOUCHES_MAX);
        let (bytes_in_turn, frames_in_turn, received, sent) = (0, 0, 0, 0);
        Budgeted {
            stream,
            budget,
            bytes_in_turn,
            frames_in_turn,
            received,
            sent,
            heads,
            frames,
            touches,
            is_shut: false,
            drained: 0,
        }
    }

    /// True when the client may have sent these bytes, too.
    fn allows(&mut self, bytes: &[u8]) -> bool {
        let requests = self.budget.requests.load(Ordering::Relaxed);
        let seen = self.heads.observe(bytes);
        self.received += bytes.len() as u64;
        self.bytes_in_turn += bytes.len();
        self.frames_in_turn += seen.frames;
        let warranted = SLACK_BYTES + requests * REQUEST_BYTES + self.sent / SENT_SHARE;
        let frames_earned = requests * REQUEST_FRAMES + self.sent / FRAME_BYTES;
        let touches_earned = requests * REQUEST_TOUCHES + self.sent / TOUCH_BYTES;
        let touched = seen.touching_all * u64::from(STREAMS_MAX);
        self.received <= warranted
            && self.frames.take(seen.frames, frames_earned)
            && self.touches.take(touched, touches_earned)
    }
}

/// Number of frames whose heads end in some bytes.
#[derive(Default)]
struct SeenFrames {
    frames: u64,
    /// Heads of frames that touch all streams.
    touching_all: u64,
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

    /// Returns a number of bytes in which no more than [`READ_HEADS`] heads end.
    fn bytes_of_a_read(&self) -> usize {
        self.skip + READ_HEADS * HEAD_BYTES - self.arrived
    }

    /// Counts the frames of which the heads end in these bytes.
    fn observe(&mut self, mut bytes: &[u8]) -> SeenFrames {
        let mut seen = SeenFrames::default();
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
                let touches_all = (kind == SETTINGS && flags & ACK == 0) || kind == GOAWAY;
                seen.frames += 1;
                seen.touching_all += u64::from(touches_all);
            }
        }
        seen
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
        let is_full = self.frames_in_turn + READ_HEADS as u64 > TURN_FRAMES;
        if is_full || self.bytes_in_turn >= TURN_BYTES {
            (self.bytes_in_turn, self.frames_in_turn) = (0, 0);
            // Its first poll wakes the connection behind the next look at events.
            return pin!(yield_now()).poll(context).map(Ok);
        }
        let before = buffer.filled().len();
        let most = self.heads.bytes_of_a_read() as u64;
        ready!(pin!((&mut self.stream).take(most)).poll_read(context, buffer))?;
        if !self.allows(&buffer.filled()[before..]) {
            buffer.set_filled(before);
            self.budget.is_exhausted.store(true, Ordering::Relaxed);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Budgeted<S> {
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

    /// Reads some of what an exhausted client still sends: unread bytes at close would cause a
    /// reset that overtakes the reason of the end (GOAWAY). `http2` bounds the time (`LINGER`).
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            self.is_shut = true;
        }
        let mut bytes = [0; READ_BYTES];
        while self.budget.is_exhausted() && self.drained < DRAINED_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            let bytes = buffer.filled().len();
            if read.is_err() || bytes == 0 {
                break;
            }
            self.drained += bytes;
            self.bytes_in_turn += bytes;
            if self.bytes_in_turn >= TURN_BYTES {
                self.bytes_in_turn = 0;
                return pin!(yield_now()).poll(context).map(Ok);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Bytes of a turn: four TLS records.
const TURN_BYTES: usize = 64 << 10;
/// Frames of a turn, and heads of a read: those of the requests of a page in a read or two.
const TURN_FRAMES: u64 = 128;
const READ_HEADS: usize = 64;
/// Bytes of frames beside requests, such as SETTINGS, PING and PRIORITY.
const SLACK_BYTES: u64 = 1 << 20;
/// A request: a head of 16 KiB and content of 64, with their frames.
const REQUEST_BYTES: u64 = 96 << 10;
/// Part of the bytes sent that WINDOW_UPDATE may amount to: clients send 26 bytes for some KiB at
/// least.
const SENT_SHARE: u64 = 16;
/// Frames of any kind at a time: WINDOW_UPDATEs for 64 MiB that were on their way, in frames of the
/// length that clients accept unasked, 15 ms.
const FRAMES_MAX: u64 = 8192;
/// Frames that a request warrants: its head, its content and credit for the windows.
const REQUEST_FRAMES: u64 = 64;
/// Bytes sent that warrant a frame: clients credit two windows (RFC 9113 §6.9.1) for some KiB.
const FRAME_BYTES: u64 = 1 << 9;
/// Touches of streams at a time: 64 changes of the settings, 2 ms. Clients change theirs once, or
/// some ten times while they measure the path.
const TOUCHES_MAX: u64 = 64 * STREAMS_MAX as u64;
/// Touches that a request warrants: a tenth of its own cost.
const REQUEST_TOUCHES: u64 = 8;
/// Bytes sent that warrant a touch: a frame of the longest that clients accept unasked.
const TOUCH_BYTES: u64 = 16 << 10;
/// Bytes read of an exhausted client after the end of its connection, and of each read.
const DRAINED_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 4096;
/// RFC 9113 §3.4, §4.1, §6.5 and §6.8.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::task::unconstrained;

    use super::*;

    /// Bytes that are read of a client until reading stops.
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

    /// Bytes of frames of this length without end, behind a preface: DATA that asks for nothing.
    fn endless(length: usize) -> impl AsyncRead + Unpin {
        let [.., high, middle, low] = length.to_be_bytes();
        let head = [high, middle, low, 0, 0, 0, 0, 0, 0];
        let frame = [&head[..], &vec![7; length]].concat();
        let frames = frame.repeat((4 << 20) / frame.len());
        io::Cursor::new([vec![0; PREFACE_BYTES], frames].concat())
    }

    #[tokio::test]
    async fn bytes_that_ask_for_nothing_are_ended_and_requests_are_not() {
        const LONG: usize = 16 << 10;
        let mut buffer = vec![0; LONG];
        let read = read_of(&mut Budgeted::new(endless(LONG), Arc::default()), buffer.len()).await;
        assert!(read <= SLACK_BYTES && read > SLACK_BYTES - LONG as u64, "{read}");
        let budget: Arc<Budget> = Arc::default();
        let mut asking = Budgeted::new(endless(LONG), budget.clone());
        for _ in 0..256 {
            budget.request();
            assert!(asking.read(&mut buffer).await.is_ok());
        }
        let mut fed = Budgeted::new(endless(LONG), Arc::default());
        for _ in 0..256 {
            fed.sent += 16 * buffer.len() as u64;
            assert!(fed.read(&mut buffer).await.is_ok());
        }
    }

    #[tokio::test]
    async fn bytes_of_an_exhausted_client_are_read_after_the_end_up_to_a_limit() {
        for (beyond, is_all) in [(DRAINED_BYTES_MAX / 2, true), (2 * DRAINED_BYTES_MAX, false)] {
            let (mut client, server) = tokio::io::duplex(8 << 20);
            let mut stream = Budgeted::new(server, Arc::default());
            let exhausting = vec![0; PREFACE_BYTES + (FRAMES_MAX as usize + 1) * HEAD_BYTES];
            client.write_all(&exhausting).await.unwrap();
            // A budget of tokio would end reads from a pipe in memory.
            unconstrained(read_of(&mut stream, 8 << 10)).await;
            client.write_all(&vec![0; beyond]).await.unwrap();
            client.shutdown().await.unwrap();
            stream.shutdown().await.unwrap();
            let left = stream.stream.read(&mut [0; 1]).await.unwrap();
            assert_eq!(left == 0, is_all, "{beyond} bytes");
        }
    }

    #[tokio::test]
    async fn frames_that_ask_for_nothing_are_ended_before_their_bytes_are() {
        for length in [0, 4, 8, 64] {
            let frame = HEAD_BYTES + length;
            let mut stream = Budgeted::new(endless(length), Arc::default());
            let read = read_of(&mut stream, 8 << 10).await;
            let frames = (read - PREFACE_BYTES as u64) / frame as u64;
            let most = FRAMES_MAX - READ_HEADS as u64..=FRAMES_MAX;
            assert!(most.contains(&frames), "{frames} frames of {frame} bytes");
            // No more than the maximum is saved up of the frames earned by requests and downloads.
            for (requests, sent, again) in
                [(1, 0, REQUEST_FRAMES), (0, 70 * FRAME_BYTES, 70), (1 << 20, 1 << 40, FRAMES_MAX)]
            {
                let mut stream = Budgeted::new(endless(length), Arc::default());
                let whole = PREFACE_BYTES + frame * (FRAMES_MAX as usize - READ_HEADS);
                let mut before = vec![0; whole];
                stream.read_exact(&mut before).await.unwrap();
                let left = stream.frames.left;
                (0..requests).for_each(|_| stream.budget.request());
                stream.sent = sent;
                let read = read_of(&mut stream, frame).await;
                let most = (left + again).min(FRAMES_MAX) * frame as u64;
                assert!(read <= most && read + 64 * frame as u64 >= most, "{read} of {most}");
            }
        }
    }

    #[tokio::test]
    async fn a_turn_ends_after_its_frames() {
        for length in [0, 4, 8, 64, 1 << 10] {
            let frame = HEAD_BYTES + length;
            let mut stream = Budgeted::new(endless(length), Arc::default());
            let mut buffer = vec![0; 64 << 10];
            stream.read_exact(&mut buffer[..PREFACE_BYTES]).await.unwrap();
            for _ in 0..8 {
                let read = poll_fn(|context| {
                    let mut bytes = 0;
                    loop {
                        let mut part = ReadBuf::new(&mut buffer);
                        if Pin::new(&mut stream).poll_read(context, &mut part).is_pending() {
                            return Poll::Ready(bytes);
                        }
                        bytes += part.filled().len();
                    }
                });
                let read = read.await;
                let frames = read / frame;
                assert!(frames <= TURN_FRAMES as usize, "{frames} of {frame} bytes in a turn");
                assert!(frames > TURN_FRAMES as usize / 4 || read >= TURN_BYTES / 2, "{frames}");
            }
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
            let found = bytes.chunks(piece).map(|bytes| heads.observe(bytes));
            let counts = |(all, touching), seen: SeenFrames| {
                (all + seen.frames, touching + seen.touching_all)
            };
            let found = found.fold((0, 0), counts);
            assert_eq!(found, (25, 10), "pieces of {piece} bytes");
        }
    }

    #[tokio::test]
    async fn settings_are_read_while_the_streams_that_they_touch_are_warranted() {
        let settings = [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
        let bytes = [vec![0; PREFACE_BYTES], settings.repeat(1000)].concat();
        let most = TOUCHES_MAX / u64::from(STREAMS_MAX);
        // Long use saves up no more than one maximum.
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
        let mut stream = Budgeted::new(endless(TURN_BYTES), Arc::default());
        let mut buffer = vec![0; TURN_BYTES];
        stream.read_exact(&mut buffer).await.unwrap();
        let next = poll_fn(|context| {
            let mut space = [0; 8];
            let mut buffer = ReadBuf::new(&mut space);
            Poll::Ready(Pin::new(&mut stream).poll_read(context, &mut buffer).is_pending())
        });
        assert!(next.await);
        assert!(stream.read_exact(&mut buffer).await.is_ok(), "and goes on");
    }
}
