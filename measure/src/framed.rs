// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends RTP packets in frames over one TCP connection by an interleaved path, and verifies them.
//!
//! The loop is a server's without the pacing: it makes frame and RTP headers where the path gathers
//! them, lays out a batch, calls the path, and waits for a full socket by poll(2). A member is
//! verified in steps: the next batch starts when the bytes of the previous one have arrived, so no
//! socket is full, and calls and copies are those of a batch without refusals.
//!
//! Sources: RFC 2326 §10.12.
//! Does not measure time.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paths::{
    Batch, Feed, InterleavedOutput, InterleavedPath, MappedFile, Open, Piece, SendError, SendStats,
    Spec,
};
use rustix::net::sockopt::set_tcp_congestion;

use crate::error::Error;
use crate::fixture::{FRAME_BYTES, Fixture, HEADER_BYTES, Image, framed_header};
use crate::network::Network;
use crate::receiver::{ARRIVAL_LOOK, compare, listen};
use crate::sender::{failed, wait_writable};

/// Sends the fixture's packets in frames; restarts at the first after the last.
pub struct FramedSender<'a> {
    path: Box<dyn InterleavedPath>,
    feed: Feed,
    socket: Arc<TcpStream>,
    to: InterleavedOutput,
    media: &'a MappedFile,
    packet_bytes: u32,
    packets: u64,
    batch_packets: u32,
    /// Packet at which the next batch starts.
    pub next: u64,
    heads: Vec<u8>,
    /// Totals of all calls so far.
    pub stats: SendStats,
}

impl<'a> FramedSender<'a> {
    /// Opens the path of `spec`; `packet_bytes` is the size of an RTP packet without its frame,
    /// `image` the framed image.
    ///
    /// # Errors
    /// [`Error::Host`] names the path that the host refuses.
    pub fn open(
        spec: &'static Spec,
        (fixture, image): (&'a Fixture, &'a Image),
        (packet_bytes, batch_packets): (u32, u32),
        to: SocketAddr,
    ) -> Result<FramedSender<'a>, Error> {
        let Open::Interleaved { feed, open } = spec.open else {
            panic!("{spec} does not send frames");
        };
        let path = open().map_err(|error| failed(spec, &error))?;
        let socket = TcpStream::connect(to);
        let socket = socket.and_then(|s| s.set_nonblocking(true).map(|()| s));
        let socket = socket.and_then(|s| s.set_nodelay(true).map(|()| s));
        let socket = socket.map_err(Error::host(format!("{spec}: a connection to {to}")))?;
        // As for downloads: no member pays for the pacing of BBR, the default of some hosts.
        set_tcp_congestion(&socket, "reno").map_err(|error| failed(spec, &error))?;
        let socket = Arc::new(socket);
        Ok(FramedSender {
            path,
            feed,
            to: InterleavedOutput::new(socket.clone(), to.to_string()),
            socket,
            media: match feed {
                Feed::Gathered => &fixture.file,
                Feed::Image => &image.media,
            },
            packet_bytes,
            packets: fixture.packets(packet_bytes),
            batch_packets,
            next: 0,
            heads: Vec::new(),
            stats: SendStats::default(),
        })
    }

    /// Sends a batch, or as much of it as the socket accepts; waits where it is full. Returns false
    /// when the socket accepted none.
    ///
    /// # Errors
    /// [`SendError`] of the path.
    pub fn step(&mut self) -> Result<bool, SendError> {
        let count = self.batch_packets;
        let first = if self.next + u64::from(count) > self.packets { 0 } else { self.next };
        let frame_bytes = self.packet_bytes + FRAME_BYTES;
        let result = match self.feed {
            Feed::Image => {
                let (offset, all) = (first * u64::from(frame_bytes), count * frame_bytes);
                let batch = Batch::image(self.media, count, frame_bytes, offset, all.into());
                self.path.send(&batch, &mut self.to, &mut self.stats)
            }
            Feed::Gathered => {
                self.heads.clear();
                for packet in first..first + u64::from(count) {
                    self.heads.extend(framed_header(packet, self.packet_bytes));
                }
                let payload_bytes = u64::from(self.packet_bytes - HEADER_BYTES);
                let bytes = u64::from(count) * payload_bytes;
                let pieces = [Piece { offset: first * payload_bytes, bytes }];
                let batch = Batch::gathered(self.media, count, frame_bytes, &self.heads, &pieces);
                self.path.send(&batch, &mut self.to, &mut self.stats)
            }
        };
        match result {
            Ok(accepted) => self.next = first + u64::from(accepted),
            Err(SendError::Blocked) => {
                self.next = first;
                wait_writable(&self.socket);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Sends until the path has accepted `bytes` more.
    ///
    /// # Errors
    /// [`SendError`] of the first call that fails.
    pub fn send_bytes(&mut self, bytes: u64) -> Result<(), SendError> {
        let end = self.stats.bytes + bytes;
        while self.stats.bytes < end {
            self.step()?;
        }
        Ok(())
    }

    /// Sends the waiting bytes of a frame that has begun, and ends the sending direction.
    ///
    /// # Errors
    /// [`Error::Host`]: the connection is broken.
    pub fn finish(&mut self) -> Result<(), Error> {
        loop {
            match self.to.flush(&mut self.stats) {
                Ok(()) => break,
                Err(SendError::Blocked) => wait_writable(&self.socket),
                Err(error) => {
                    let (what, found) = ("the rest of a frame".to_owned(), error.to_string());
                    return Err(Error::Host { what, found });
                }
            }
        }
        self.socket.shutdown(std::net::Shutdown::Write).map_err(Error::host("shutdown"))
    }
}

/// Sends some batches of a member and compares every byte with the framed image. Returns the
/// statistics of all batches but the first.
///
/// # Errors
/// [`Error::Wrong`] with the byte; also when the path refuses to send.
pub fn verify_frames(
    spec: &'static Spec,
    fixture: (&Fixture, &Image),
    sizes: (u32, u32),
    network: &Network,
) -> Result<SendStats, Error> {
    let wrong = |found: String| Error::Wrong { member: spec.to_string(), found };
    let (listener, to) = listen(network)?;
    let mut sender = FramedSender::open(spec, fixture, sizes, to)?;
    let so_far = AtomicU64::new(0);
    let media = &fixture.1.media;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| compare(&listener, media, &so_far));
        let mut first = None;
        let mut batch_by_batch = || {
            while sender.next < VERIFIED_PACKETS && !reader.is_finished() {
                sender.step()?;
                while so_far.load(Ordering::Acquire) < sender.stats.bytes && !reader.is_finished() {
                    std::thread::sleep(ARRIVAL_LOOK);
                }
                // The first batch warms the connection.
                first.get_or_insert(sender.stats);
            }
            Ok(())
        };
        let sent: Result<(), SendError> = batch_by_batch();
        let finished = sender.finish();
        let (stats, bytes) = (sender.stats, sender.stats.bytes);
        drop(sender);
        // An error of the reader explains one of the sender, so it is reported first.
        let found = reader.join().expect("it does not panic").map_err(wrong)?;
        sent.map_err(|error| wrong(error.to_string()))?;
        finished?;
        if found != bytes {
            return Err(wrong(format!("{bytes} bytes sent, {found} received")));
        }
        Ok(stats.since(&first.unwrap_or_default()))
    })
}

const VERIFIED_PACKETS: u64 = 500;
