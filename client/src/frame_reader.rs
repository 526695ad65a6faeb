// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place that reads an RTSP connection while media flows on it.
//!
//! A task reads what the socket has, splits it (`demultiplexer`), and hands RTP packets to a
//! [`PacketSink`], RTCP packets to the reporter and replies to the request that waits. Where a sink
//! is full the task stops reading, and TCP holds the sender back: nothing is dropped here. Costs
//! one system call and one copy for up to 256 KiB, and no memory between reads but a partial frame:
//! all tasks of a thread share its buffer.
//!
//! The time of a packet is that of the read that completed it; the scheduling delay of the task is
//! in it, unlike the kernel's times of datagrams.
//!
//! Sources: RFC 2326 §10.12; tcp(7).
//! Does not write.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::time::sleep;
use wire::rtsp::client::Reply;
use wire::rtsp::{ChannelPair, Malformed};

use super::demultiplexer::{StreamDemultiplexer, StreamPart};
use super::read_pace::ReadPace;

/// Consumer of the RTP packets of a connection.
pub(crate) trait PacketSink: Send + 'static {
    /// Takes a packet that arrived at `at`.
    fn take(&mut self, packet: &[u8], at: Instant);

    /// Passes the packets of a read on; false where there is no room yet.
    fn flush(&mut self) -> bool;
}

/// Reason why no more replies arrive.
#[derive(Debug, Clone)]
pub(crate) enum NoReply {
    /// The connection ended.
    Lost(String),
    /// The received bytes are no reply.
    Malformed(Malformed),
}

impl NoReply {
    pub(crate) fn broke(error: &io::Error) -> NoReply {
        NoReply::Lost(format!("the connection broke: {error}"))
    }
}

/// Frames on channels that SETUP has not named.
#[derive(Debug, Default)]
pub(crate) struct UnexpectedFrames {
    frames: AtomicU64,
    last: AtomicU32,
}

impl UnexpectedFrames {
    /// Their number, and the channel of the last.
    pub(crate) fn seen(&self) -> (u64, Option<u8>) {
        let frames = self.frames.load(Ordering::Relaxed);
        (frames, (frames > 0).then(|| self.last.load(Ordering::Relaxed) as u8))
    }

    fn note(&self, channel: u8) {
        self.last.store(channel.into(), Ordering::Relaxed);
        self.frames.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where the frames of a stream go.
pub(crate) struct FrameRoute<S> {
    pub(crate) channels: ChannelPair,
    pub(crate) sink: S,
    pub(crate) rtcp: mpsc::Sender<Vec<u8>>,
}

/// The task's state.
pub(crate) struct FrameReader<S> {
    pub(crate) stream: OwnedReadHalf,
    pub(crate) demultiplexer: StreamDemultiplexer,
    /// One a stream.
    pub(crate) routes: Vec<FrameRoute<S>>,
    pub(crate) replies: mpsc::Sender<Reply>,
    pub(crate) unexpected: Arc<UnexpectedFrames>,
    pub(crate) pace: ReadPace,
}

impl<S: PacketSink> FrameReader<S> {
    /// Reads until the connection ends, and leaves the reason.
    pub(crate) async fn run(mut self, ended: Arc<OnceLock<NoReply>>) {
        let reason = self.read().await;
        // Before the channel of replies closes.
        let _ = ended.set(reason);
    }

    async fn read(&mut self) -> NoReply {
        let is_gathered = matches!(self.pace, ReadPace::Gathered(_));
        if is_gathered {
            // Without it each burst wakes this program for nothing, on the sender's time where
            // both are on one machine; the sessions are the same.
            let _ = paths::set_wake_bytes(self.stream.as_ref().as_fd(), READ_BYTES as u32);
        }
        loop {
            let bytes_max = self.pace.allowed(READ_BYTES).await;
            if !is_gathered && let Err(error) = self.stream.readable().await {
                return NoReply::broke(&error);
            }
            let read = BUFFER.with_borrow_mut(|buffer| {
                buffer.resize(READ_BYTES, 0);
                match self.receive(&mut buffer[..bytes_max], is_gathered) {
                    Ok(0) => Err(NoReply::Lost(CLOSED.to_owned())),
                    Ok(bytes) => {
                        self.take(&buffer[..bytes]).map_err(NoReply::Malformed).map(|()| bytes)
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                    Err(error) => Err(NoReply::broke(&error)),
                }
            });
            for route in &mut self.routes {
                while !route.sink.flush() {
                    sleep(FULL_WAIT).await;
                }
            }
            match read {
                // More may be there.
                Ok(READ_BYTES) if is_gathered => tokio::task::yield_now().await,
                Ok(bytes) => self.pace.pause(bytes).await,
                Err(reason) => return reason,
            }
        }
    }

    /// Reads what is there. A reader that looks by a timer does not wait for the runtime to note
    /// readiness, which the socket's wake-up mark holds back.
    fn receive(&self, buffer: &mut [u8], is_gathered: bool) -> io::Result<usize> {
        if !is_gathered {
            return self.stream.try_read(buffer);
        }
        let socket: &tokio::net::TcpStream = self.stream.as_ref();
        let (_, bytes) = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)?;
        Ok(bytes)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let at = Instant::now();
        let FrameReader { demultiplexer, routes, replies, unexpected, .. } = self;
        demultiplexer.feed(bytes, |part| match part {
            StreamPart::Frame { channel, data } => {
                let is_its = |route: &&mut FrameRoute<S>| {
                    let ChannelPair { rtp, rtcp } = route.channels;
                    channel == rtp || channel == rtcp
                };
                match routes.iter_mut().find(is_its) {
                    Some(route) if channel == route.channels.rtp => route.sink.take(data, at),
                    // A reporter that is behind misses a report, and the next makes up for it.
                    Some(route) => drop(route.rtcp.try_send(data.to_vec())),
                    None => unexpected.note(channel),
                }
            }
            // More replies than requests: those beyond the queue are nobody's.
            StreamPart::Reply(reply) => drop(replies.try_send(reply)),
        })
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The RTP packets of one read.
#[derive(Debug)]
pub struct FrameBatch {
    /// Time of the read.
    pub at: Instant,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl FrameBatch {
    fn new() -> FrameBatch {
        FrameBatch { at: Instant::now(), bytes: Vec::new(), ends: Vec::new() }
    }

    /// The packets, in the order of arrival.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Receiving end of the packets of a connection.
#[derive(Debug)]
pub struct FrameQueue {
    batches: Receiver<FrameBatch>,
    /// The server's end of the connection.
    pub from: SocketAddr,
}

impl FrameQueue {
    /// A queue and its sending end.
    pub(crate) fn new(from: SocketAddr) -> (QueueSink, FrameQueue) {
        let (sender, batches) = sync_channel(QUEUE_BATCHES);
        (QueueSink { batch: FrameBatch::new(), sender }, FrameQueue { batches, from })
    }

    /// The next batch, if there is one.
    pub fn next(&self) -> Option<FrameBatch> {
        self.batches.try_recv().ok()
    }

    /// Waits for a batch, for so long at most.
    pub(crate) fn wait(&self, at_most: Duration) -> Option<FrameBatch> {
        match self.batches.recv_timeout(at_most) {
            Ok(batch) => Some(batch),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(at_most);
                None
            }
        }
    }
}

/// Sink that queues packets for a thread.
pub(crate) struct QueueSink {
    batch: FrameBatch,
    sender: SyncSender<FrameBatch>,
}

impl PacketSink for QueueSink {
    fn take(&mut self, packet: &[u8], at: Instant) {
        self.batch.at = at;
        self.batch.bytes.extend_from_slice(packet);
        self.batch.ends.push(self.batch.bytes.len());
    }

    fn flush(&mut self) -> bool {
        if self.batch.ends.is_empty() {
            return true;
        }
        match self.sender.try_send(std::mem::replace(&mut self.batch, FrameBatch::new())) {
            Err(TrySendError::Full(batch)) => {
                self.batch = batch;
                false
            }
            // Nobody receives any more.
            Ok(()) | Err(TrySendError::Disconnected(_)) => true,
        }
    }
}

pub(crate) const CLOSED: &str = "the server closed the connection";
const READ_BYTES: usize = 256 << 10;
/// With the largest reads: 16 MiB.
const QUEUE_BATCHES: usize = 64;
const FULL_WAIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_keeps_the_batch_and_loses_no_packet() {
        let (mut sink, queue) = FrameQueue::new(SocketAddr::from(([127, 0, 0, 1], 554)));
        let at = Instant::now();
        let mut sent = 0_u32;
        loop {
            sink.take(&sent.to_be_bytes(), at);
            sent += 1;
            if !sink.flush() {
                break;
            }
        }
        assert_eq!(sent as usize, QUEUE_BATCHES + 1);
        let mut found = Vec::new();
        while let Some(batch) = queue.next() {
            found.extend(batch.packets().map(<[u8]>::to_vec));
            sink.flush();
        }
        let expected: Vec<_> = (0..sent).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(found, expected);
    }
}
