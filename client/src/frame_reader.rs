// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one reader of an RTSP connection while media flows on it.
//!
//! A task reads the available bytes, splits them (`demultiplexer`), and passes RTP packets to a
//! [`PacketSink`], RTCP packets to the reporter, and replies to the waiting request. Where a sink
//! is full the task stops reading, and TCP flow control slows the sender: nothing is dropped here.
//! Costs one system call and one copy for up to 256 KiB, and no memory between reads but a partial
//! frame: all tasks of a thread share the read buffer. TLS costs more of all three (`tls`).
//!
//! One poll of the task does one read; where more bytes are available, other tasks run first. A
//! server whose non-media input exceeds a bound is left (`unasked_input`).
//!
//! The arrival time of a packet is that of the read that completed it. It includes the scheduling
//! delay of the task, unlike the kernel's timestamps of datagrams.
//!
//! Sources: RFC 2326 §10.12; tcp(7).
//! Does not write.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::sleep;
use wire::rtcp;
use wire::rtp::{HEADER_BYTES, PLAIN_FIRST_BYTE, VERSION_MASK};
use wire::rtsp::client::Reply;
use wire::rtsp::{ChannelPair, Malformed};

use super::control_stream::StreamReader;
use super::demultiplexer::{StreamDemultiplexer, StreamPart};
use super::read_pace::ReadPace;
use super::tls::{TlsFault, late_fault_of};
use super::unasked_input::UnaskedInput;

/// Consumer of the RTP packets of a connection.
pub(crate) trait PacketSink: Send + 'static {
    /// Consumes a packet that arrived at `at`.
    fn take(&mut self, packet: &[u8], at: Instant);

    /// Passes the packets of a read on; false while there is no room.
    fn flush(&mut self) -> bool;
}

/// Reason why no more replies arrive.
#[derive(Debug, Clone)]
pub(crate) enum NoReply {
    /// The connection ended, or was given up.
    Lost(String),
    /// The received bytes are not a reply.
    Malformed(Malformed),
    /// The server refuses the connection of TLS.
    Tls(TlsFault),
}

impl NoReply {
    pub(crate) fn broke(error: &io::Error) -> NoReply {
        match late_fault_of(error) {
            Some(fault) => NoReply::Tls(fault),
            None => NoReply::Lost(format!("the connection broke: {error}")),
        }
    }
}

impl From<Malformed> for NoReply {
    fn from(malformed: Malformed) -> NoReply {
        NoReply::Malformed(malformed)
    }
}

/// Destination of the frames of a stream.
pub(crate) struct FrameRoute<S> {
    pub(crate) channels: ChannelPair,
    pub(crate) sink: S,
    pub(crate) rtcp: mpsc::Sender<Vec<u8>>,
    /// True once an RTP packet has arrived on the channel assigned to RTP.
    pub(crate) is_heard: bool,
}

impl<S> FrameRoute<S> {
    /// True for a frame of RTP. Until one has arrived on the channel assigned to RTP, the content
    /// decides: some servers exchange the two channels.
    fn is_media(&mut self, channel: u8, data: &[u8]) -> bool {
        let is_named = channel == self.channels.rtp;
        if self.is_heard {
            return is_named;
        }
        let is_rtp = is_rtp(data);
        self.is_heard = is_named && is_rtp;
        is_rtp || is_named && rtcp::parse(data).is_err()
    }
}

/// True for an RTP packet with payload, false for RTCP (RFC 5761 §4).
fn is_rtp(data: &[u8]) -> bool {
    data.len() > HEADER_BYTES
        && data[0] & VERSION_MASK == PLAIN_FIRST_BYTE
        && !(192..=223).contains(&data[1])
}

/// The task's state.
pub(crate) struct FrameReader<S> {
    pub(crate) stream: StreamReader,
    pub(crate) demultiplexer: StreamDemultiplexer,
    /// One for each stream.
    pub(crate) routes: Vec<FrameRoute<S>>,
    pub(crate) replies: mpsc::Sender<Reply>,
    pub(crate) unasked: UnaskedInput,
    pub(crate) pace: ReadPace,
}

impl<S: PacketSink> FrameReader<S> {
    /// Reads until the connection ends, and stores the reason in `ended`.
    pub(crate) async fn run(mut self, ended: Arc<OnceLock<NoReply>>) {
        let reason = self.read().await;
        // Set before the channel of replies closes.
        let _ = ended.set(reason);
    }

    async fn read(&mut self) -> NoReply {
        let is_gathered = matches!(self.pace, ReadPace::Gathered(_));
        if let Some(socket) = self.stream.socket().filter(|_| is_gathered) {
            // Without this mark each burst wakes this program needlessly, and costs the sender CPU
            // time where both run on one machine; the sessions are the same.
            let _ = paths::set_wake_bytes(socket.as_fd(), READ_BYTES as u32);
        }
        loop {
            let bytes_max = self.pace.allowed(READ_BYTES).await;
            let read = match is_gathered {
                true => self.receive(),
                false => poll_fn(|context| self.poll_receive(context, bytes_max)).await,
            };
            for route in &mut self.routes {
                while !route.sink.flush() {
                    sleep(FULL_WAIT).await;
                }
            }
            match read {
                Ok(bytes) => {
                    // More bytes may be available. After a shorter read the socket is not ready
                    // until the runtime polls it again, after the other tasks have run.
                    if bytes == bytes_max {
                        tokio::task::yield_now().await;
                    }
                    if bytes < bytes_max || !is_gathered {
                        self.pace.pause(bytes).await;
                    }
                }
                Err(reason) => return reason,
            }
        }
    }

    /// Waits for bytes and processes one read; returns the number of bytes.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
    ) -> Poll<Result<usize, NoReply>> {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(READ_BYTES, 0);
            let read = ready!(self.stream.poll_read(context, &mut buffer[..bytes_max]));
            Poll::Ready(self.take(read.map(|bytes| &buffer[..bytes])))
        })
    }

    /// Processes the available bytes, without waiting.
    fn receive(&mut self) -> Result<usize, NoReply> {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(READ_BYTES, 0);
            match self.stream.try_read(&mut buffer[..]) {
                Ok(None) => Ok(0),
                Ok(Some(bytes)) => self.take(Ok(&buffer[..bytes])),
                Err(error) => self.take(Err(error)),
            }
        })
    }

    fn take(&mut self, read: io::Result<&[u8]>) -> Result<usize, NoReply> {
        let bytes = read.map_err(|error| NoReply::broke(&error))?;
        if bytes.is_empty() {
            return Err(NoReply::Lost(CLOSED.to_owned()));
        }
        let at = Instant::now();
        let FrameReader { demultiplexer, routes, replies, unasked, .. } = self;
        unasked.advance(at);
        demultiplexer.feed(bytes, |part| {
            let accepted = match part {
                StreamPart::Frame { channel, data } => {
                    let is_its = |route: &&mut FrameRoute<S>| {
                        let ChannelPair { rtp, rtcp } = route.channels;
                        channel == rtp || channel == rtcp
                    };
                    match routes.iter_mut().find(is_its) {
                        Some(route) => {
                            if route.is_media(channel, data) {
                                route.sink.take(data, at);
                                if data.len() > HEADER_BYTES {
                                    unasked.note_packet();
                                    return Ok(());
                                }
                            } else {
                                // A slow reporter misses a report; the next one makes up for it.
                                let _ = route.rtcp.try_send(data.to_vec());
                            }
                            unasked.note_bare(data.len())
                        }
                        None => unasked.note_frame(channel, data.len()),
                    }
                }
                // More replies than requests: those that exceed the queue are discarded.
                StreamPart::Reply(reply) => {
                    let _ = replies.try_send(reply);
                    Ok(())
                }
                StreamPart::Message(bytes) => unasked.note_message(bytes),
                StreamPart::Strays(bytes) => unasked.note_strays(bytes),
            };
            accepted.map_err(|_| NoReply::Lost(unasked.reason()))
        })?;
        Ok(bytes.len())
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
    fn new(at: Instant) -> FrameBatch {
        FrameBatch { at, bytes: Vec::new(), ends: Vec::new() }
    }

    /// Bytes of all packets.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The packets in order of arrival.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Receiving end of the packets of a connection.
#[derive(Debug)]
pub struct FrameQueue {
    batches: Receiver<FrameBatch>,
    /// Address of the server.
    pub from: SocketAddr,
}

impl FrameQueue {
    /// A queue and its sending end.
    pub(crate) fn new(from: SocketAddr) -> (QueueSink, FrameQueue) {
        FrameQueue::of_batches(QUEUE_BATCHES, from)
    }

    /// A queue of fragments of files, each a batch of up to two seconds of media.
    pub(crate) fn of_fragments(from: SocketAddr) -> (QueueSink, FrameQueue) {
        FrameQueue::of_batches(QUEUE_FRAGMENTS, from)
    }

    fn of_batches(most: usize, from: SocketAddr) -> (QueueSink, FrameQueue) {
        let (sender, batches) = sync_channel(most);
        (QueueSink { batch: None, sender }, FrameQueue { batches, from })
    }

    /// The next batch, if there is one.
    pub fn next(&self) -> Option<FrameBatch> {
        self.batches.try_recv().ok()
    }

    /// Waits for a batch, for this time at most.
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
    /// Packets that are not passed on.
    batch: Option<FrameBatch>,
    sender: SyncSender<FrameBatch>,
}

impl QueueSink {
    /// Bytes of the packets that are not passed on.
    pub(crate) fn bytes(&self) -> usize {
        self.batch.as_ref().map_or(0, FrameBatch::bytes)
    }

    /// Reserves memory for packets of this many bytes, which are made at `at`.
    pub(crate) fn reserve(&mut self, at: Instant, bytes: usize) {
        self.batch.get_or_insert_with(|| FrameBatch::new(at)).bytes.reserve_exact(bytes);
    }

    /// Adds a packet made at `at`, which `append` appends to the bytes.
    pub(crate) fn add(&mut self, at: Instant, append: impl FnOnce(&mut Vec<u8>)) {
        let batch = self.batch.get_or_insert_with(|| FrameBatch::new(at));
        batch.at = at;
        append(&mut batch.bytes);
        batch.ends.push(batch.bytes.len());
    }
}

impl PacketSink for QueueSink {
    fn take(&mut self, packet: &[u8], at: Instant) {
        self.add(at, |bytes| bytes.extend_from_slice(packet));
    }

    fn flush(&mut self) -> bool {
        let Some(batch) = self.batch.take() else { return true };
        match self.sender.try_send(batch) {
            Err(TrySendError::Full(batch)) => {
                self.batch = Some(batch);
                false
            }
            // The receiver is gone.
            Ok(()) | Err(TrySendError::Disconnected(_)) => true,
        }
    }
}

pub(crate) const CLOSED: &str = "the server closed the connection";
const READ_BYTES: usize = 256 << 10;
/// With reads of the largest size: 16 MiB.
const QUEUE_BATCHES: usize = 64;
/// Few, as each may be megabytes; the queue of units before it has the greater bound.
const QUEUE_FRAGMENTS: usize = 4;
const FULL_WAIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use wire::rtsp::Limits;
    use wire::rtsp::client::ReplyReader;

    use super::*;
    use crate::scripted_server::frame;

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

    /// Records the most packet bytes between two polls of another task.
    struct TurnSink {
        turn: Arc<AtomicU64>,
        seen: u64,
        bytes: usize,
        most: Arc<AtomicUsize>,
    }

    impl PacketSink for TurnSink {
        fn take(&mut self, packet: &[u8], _: Instant) {
            let turn = self.turn.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.seen, turn) != turn {
                self.bytes = 0;
            }
            self.bytes += packet.len();
            self.most.fetch_max(self.bytes, Ordering::Relaxed);
        }

        fn flush(&mut self) -> bool {
            true
        }
    }

    #[test]
    fn channels_named_the_wrong_way_round_are_told_by_their_packets() {
        let rtp = [&[0x80, 33][..], &[7; 40]].concat();
        let report = rtcp::sender_report(&rtcp::SenderInfo::default(), "server");
        let media = |frames: &[(u8, &[u8])]| -> Vec<bool> {
            let (channels, (rtcp, _)) = (ChannelPair { rtp: 1, rtcp: 0 }, mpsc::channel(1));
            let mut route = FrameRoute { channels, sink: (), rtcp, is_heard: false };
            frames.iter().map(|&(channel, data)| route.is_media(channel, data)).collect()
        };
        let swapped = media(&[(1, &report), (0, &rtp), (1, &report), (0, &rtp)]);
        assert_eq!(swapped, [false, true, false, true]);
        let right = media(&[(0, &report), (0, &rtp[..12]), (0, &[0x80]), (1, &rtp), (0, &rtp)]);
        assert_eq!(right, [false, false, false, true, false]);
        // One stray packet on the other channel does not disturb the stream.
        let stray = media(&[(1, &rtp[..12]), (0, &rtp), (1, &rtp), (0, &rtp), (1, &rtp)]);
        assert_eq!(stray, [true, true, true, false, true]);
    }

    /// A server that always has more data must not starve other sessions.
    #[test]
    fn a_turn_is_one_read_however_much_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (turn, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let (sink_turn, sink_most) = (turn.clone(), most.clone());
        let reason = runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let writing = std::thread::spawn(move || {
                let (mut server, _) = listener.accept().unwrap();
                let frames = frame(0, &[&[0x80][..], &[0; 1023]].concat()).repeat(64);
                for _ in 0..1000 {
                    io::Write::write_all(&mut server, &frames).unwrap();
                }
            });
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let sink = TurnSink { turn: sink_turn, seen: 0, bytes: 0, most: sink_most };
            let (rtcp, _reports) = mpsc::channel(1);
            let channels = ChannelPair { rtp: 0, rtcp: 1 };
            let (replies, _waiting) = mpsc::channel(1);
            let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
            demultiplexer.channels = vec![0, 1];
            let reader = FrameReader {
                stream: StreamReader::Plain(stream.into_split().0),
                demultiplexer,
                routes: vec![FrameRoute { channels, sink, rtcp, is_heard: false }],
                replies,
                unasked: UnaskedInput::new(),
                pace: ReadPace::Prompt,
            };
            let ended = Arc::new(OnceLock::new());
            let reading = tokio::spawn(reader.run(ended.clone()));
            while !reading.is_finished() {
                turn.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
            writing.join().unwrap();
            ended.get().cloned().unwrap()
        });
        assert!(matches!(reason, NoReply::Lost(found) if found == CLOSED));
        let most = most.load(Ordering::Relaxed);
        assert!(most > 0 && most <= READ_BYTES, "{most} bytes in a turn");
    }
}
