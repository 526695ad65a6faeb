// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends a member's traffic: datagrams by a stream path, or a file over TCP.
//!
//! The loop is a server's without the pacing: it makes headers, lays out a batch, calls the path,
//! and waits for a full socket by poll(2). The CPU cost of the loop itself is measured with a path
//! that sends nothing ([`Nothing`]) and subtracted from every CPU cost. Headers are not part of the
//! loop: a path that needs them pays for them, as in a server.
//!
//! Sources: sections 3.3 to 3.5 of the data-paths paper.
//! Does not measure time.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use paths::{
    Batch, Destination, DownloadPath, Due, Feed, MappedFile, Open, Piece, SendError, SendStats,
    Spec, StreamPath, Transport, Unframed,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_tcp_congestion, set_tcp_cork};

use crate::error::Error;
use crate::fixture::{Fixture, HEADER_BYTES, Image, header};

/// Largest UDP payload over IPv4.
pub const DATAGRAM_BYTES_MAX: u32 = 65_507;

/// Sends the fixture's packets in batches; restarts at the first after the last.
pub struct Sender<'a> {
    path: Box<dyn StreamPath>,
    to: Destination,
    media: &'a MappedFile,
    form: Layout,
    datagram_bytes: u32,
    packets: u64,
    batch_packets: u32,
    /// Packet at which the next batch starts.
    pub next: u64,
    heads: Vec<u8>,
    /// Totals of all calls so far.
    pub stats: SendStats,
}

#[derive(Clone, Copy)]
enum Layout {
    /// Headers from memory, payloads from the file.
    Gathered,
    /// Datagrams one after the other in the file.
    Image,
}

impl Layout {
    /// Returns the bytes of a packet in the file.
    fn packet_bytes(self, datagram_bytes: u32) -> u64 {
        u64::from(match self {
            Self::Gathered => datagram_bytes - HEADER_BYTES,
            Self::Image => datagram_bytes,
        })
    }
}

/// Connects a socket from an address of this machine to `to`; wraps it for the paths.
pub fn destination(from: Ipv4Addr, to: SocketAddr) -> Result<Destination, Error> {
    let what = || format!("a socket to {to}");
    let socket = UdpSocket::bind((from, 0));
    let socket = socket.and_then(|socket| socket.connect(to).map(|()| socket));
    let socket = socket.map_err(Error::host(what()))?;
    Destination::new(socket, to.to_string())
        .map_err(|error| Error::Host { what: what(), found: error.to_string() })
}

/// Opens the path that experiments on other subjects send by.
pub fn usual_path() -> Result<Box<dyn StreamPath>, Error> {
    let spec = paths::find(Transport::Rtp, "mmap_gso").expect("it is in the list");
    let Open::Stream { open, .. } = spec.open else { panic!("{spec} sends datagrams") };
    open().map_err(|error| failed(spec, &error))
}

impl<'a> Sender<'a> {
    /// Opens a sender; `segments` is the number of packets of a call and of a batch, as far as
    /// 64 KiB allow.
    pub fn open(
        spec: &'static Spec,
        fixture: &'a Fixture,
        image: &'a Image,
        (datagram_bytes, segments): (u32, u32),
        to: SocketAddr,
    ) -> Result<Sender<'a>, Error> {
        let media = match (spec.open, spec.transport) {
            (Open::Stream { feed: Feed::Image, .. }, Transport::Rtp) => &image.media,
            _ => &fixture.file,
        };
        Self::of_media(spec, media, (datagram_bytes, segments), to)
    }

    /// Opens a sender from `media`: a wire image or the file, as the path requires.
    pub fn of_media(
        spec: &'static Spec,
        media: &'a MappedFile,
        (datagram_bytes, segments): (u32, u32),
        to: SocketAddr,
    ) -> Result<Sender<'a>, Error> {
        let Open::Stream { feed, open, .. } = spec.open else {
            panic!("{spec} does not send datagrams");
        };
        let path = open().map_err(|error| failed(spec, &error))?;
        let form = match feed {
            Feed::Gathered => Layout::Gathered,
            Feed::Image => Layout::Image,
        };
        Self::with(path, (media, form), (datagram_bytes, segments), to)
            .map_err(|found| Error::Host { what: spec.to_string(), found })
    }

    /// Opens the loop alone: it makes batches and sends none.
    pub fn of_nothing(
        fixture: &'a Fixture,
        (datagram_bytes, segments): (u32, u32),
        to: SocketAddr,
    ) -> Result<Sender<'a>, Error> {
        let what = (&fixture.file, Layout::Image);
        Self::with(Box::new(Nothing), what, (datagram_bytes, segments), to)
            .map_err(|found| Error::Host { what: "the loop".to_owned(), found })
    }

    fn with(
        path: Box<dyn StreamPath>,
        (media, form): (&'a MappedFile, Layout),
        (datagram_bytes, segments): (u32, u32),
        to: SocketAddr,
    ) -> Result<Sender<'a>, String> {
        let to = destination(Ipv4Addr::UNSPECIFIED, to);
        let mut to = to.map_err(|error| error.to_string())?;
        to.limit_segments(segments);
        Ok(Sender {
            path,
            to,
            media,
            form,
            datagram_bytes,
            packets: media.bytes() / form.packet_bytes(datagram_bytes),
            batch_packets: segments.min(DATAGRAM_BYTES_MAX / datagram_bytes).max(1),
            next: 0,
            heads: Vec::new(),
            stats: SendStats::default(),
        })
    }

    /// Returns the first packet of the next batch, and the number of packets.
    pub fn coming(&self) -> (u64, u32) {
        let first =
            if self.next + u64::from(self.batch_packets) > self.packets { 0 } else { self.next };
        (first, self.batch_packets)
    }

    /// Sends a batch, or the rest of one; returns the packets sent.
    pub fn step(&mut self) -> Result<std::ops::Range<u64>, SendError> {
        let (first, count) = self.coming();
        let bytes = self.form.packet_bytes(self.datagram_bytes);
        let result = match self.form {
            Layout::Image => {
                let all = u64::from(count) * bytes;
                let batch =
                    Batch::image(self.media, count, self.datagram_bytes, first * bytes, all);
                self.path.send(&batch, &mut self.to, &mut self.stats)
            }
            Layout::Gathered => {
                self.heads.clear();
                self.heads.extend((first..first + u64::from(count)).flat_map(header));
                let pieces = [Piece { offset: first * bytes, bytes: u64::from(count) * bytes }];
                let (size, heads) = (self.datagram_bytes, &self.heads);
                let batch = Batch::gathered(self.media, count, size, heads, &pieces);
                self.path.send(&batch, &mut self.to, &mut self.stats)
            }
        };
        match result {
            Ok(accepted) => self.next = first + u64::from(accepted),
            Err(SendError::Blocked) => {
                self.next = first;
                wait_writable(&self.to);
                return Ok(first..first);
            }
            Err(error) => return Err(error),
        }
        Ok(first..self.next)
    }

    /// Sends the first batch, and repeats it for up to ten seconds where a device's queue is busy:
    /// the kernel releases the queue of a closed socket with some delay.
    pub fn first_step(&mut self) -> Result<std::ops::Range<u64>, SendError> {
        for _ in 0..QUEUE_LOOKS {
            match self.step() {
                Err(SendError::Unframed { reason: Unframed::NoQueue { .. }, .. }) => {
                    std::thread::sleep(QUEUE_LOOK);
                }
                done => return done,
            }
        }
        self.step()
    }

    /// Sends until the path has accepted `bytes` more.
    pub fn send_bytes(&mut self, bytes: u64) -> Result<(), SendError> {
        let end = self.stats.bytes + bytes;
        while self.stats.bytes < end {
            self.step()?;
        }
        Ok(())
    }

    /// Returns the end of the next batch as an offset in the file.
    pub fn reaches(&self) -> u64 {
        let (first, count) = self.coming();
        (first + u64::from(count)) * self.form.packet_bytes(self.datagram_bytes)
    }
}

/// Many destinations on one thread, each with its burst of the wire image or the file.
pub struct Crowd<'a> {
    path: Box<dyn StreamPath>,
    to: Vec<Destination>,
    media: &'a MappedFile,
    form: Layout,
    next: u64,
    /// Totals of all calls so far.
    pub stats: SendStats,
}

impl<'a> Crowd<'a> {
    /// Opens the path of `spec`.
    ///
    /// # Errors
    /// [`Error::Host`] names the path that the host refuses.
    pub fn open(
        spec: &'static Spec,
        fixture: &'a Fixture,
        image: &'a Image,
        to: SocketAddr,
        sockets: usize,
    ) -> Result<Crowd<'a>, Error> {
        let sizes = (CROWD_DATAGRAM_BYTES, CROWD_BURST);
        let Sender { path, to: first, media, form, .. } =
            Sender::open(spec, fixture, image, sizes, to)?;
        let mut destinations = vec![first];
        for _ in 1..sockets {
            // A path for each destination would need a ring or a buffer for each.
            destinations.push(Sender::of_nothing(fixture, sizes, to)?.to);
        }
        Ok(Crowd { path, to: destinations, media, form, next: 0, stats: SendStats::default() })
    }

    /// Sends a burst to each destination; drops the packets that a full socket refuses.
    pub fn round(&mut self, at_once: bool) -> Result<(), SendError> {
        let packet_bytes = self.form.packet_bytes(CROWD_DATAGRAM_BYTES);
        let burst = u64::from(CROWD_BURST);
        let packets = self.media.bytes() / packet_bytes - burst;
        let firsts: Vec<u64> =
            (0..self.to.len() as u64).map(|n| (self.next + n * CROWD_APART) % packets).collect();
        self.next += burst;
        let heads: Vec<Vec<u8>> = match self.form {
            Layout::Gathered => {
                firsts.iter().map(|&f| (f..f + burst).flat_map(header).collect()).collect()
            }
            Layout::Image => Vec::new(),
        };
        let bytes = burst * packet_bytes;
        let pieces: Vec<[Piece; 1]> =
            firsts.iter().map(|f| [Piece { offset: f * packet_bytes, bytes }]).collect();
        let (media, form, size) = (self.media, self.form, CROWD_DATAGRAM_BYTES);
        let batch = |n: usize| match form {
            Layout::Gathered => Batch::gathered(media, CROWD_BURST, size, &heads[n], &pieces[n]),
            Layout::Image => Batch::image(media, CROWD_BURST, size, pieces[n][0].offset, bytes),
        };
        let mut dues: Vec<Due<'_>> =
            self.to.iter_mut().enumerate().map(|(n, to)| Due::new(batch(n), to)).collect();
        if at_once {
            self.path.send_all(&mut dues, &mut self.stats);
        } else {
            for due in &mut dues {
                due.outcome = self.path.send(&due.batch, due.to, &mut self.stats);
            }
        }
        for due in dues {
            match due.outcome {
                Ok(_) | Err(SendError::Blocked) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A path that sends nothing, so that a run costs the loop only.
struct Nothing;

impl StreamPath for Nothing {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        _: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        stats.packets += u64::from(batch.packets);
        stats.bytes += std::hint::black_box(batch).bytes;
        Ok(batch.packets)
    }
}

/// Sends the file over a TCP connection; restarts at its end.
pub struct DownloadSender<'a> {
    path: Box<dyn DownloadPath>,
    socket: TcpStream,
    media: &'a MappedFile,
    step_bytes: u64,
    at: u64,
    /// Totals of all calls so far.
    pub stats: SendStats,
    /// Calls of the path, including those that found the socket full.
    pub steps: u64,
}

impl<'a> DownloadSender<'a> {
    /// Opens the path of `spec`.
    ///
    /// # Errors
    /// [`Error::Host`] names the path that the host refuses.
    pub fn open(
        spec: &'static Spec,
        media: &'a MappedFile,
        step_bytes: u64,
        to: SocketAddr,
    ) -> Result<DownloadSender<'a>, Error> {
        let Open::Download(open) = spec.open else { panic!("{spec} does not download") };
        let path = open().map_err(|error| failed(spec, &error))?;
        let socket = TcpStream::connect(to);
        let socket = socket.and_then(|s| s.set_nonblocking(true).map(|()| s));
        let socket = socket.map_err(Error::host(format!("{spec}: a connection to {to}")))?;
        // A server corks from head to last byte: segments are full for any size of a step.
        set_tcp_cork(&socket, true).map_err(|error| failed(spec, &error))?;
        // Every kernel has reno, and it needs no timer a segment: BBR's pacing, the default of some
        // hosts, costs a virtual machine more than sending does.
        set_tcp_congestion(&socket, "reno").map_err(|error| failed(spec, &error))?;
        Ok(DownloadSender {
            path,
            socket,
            media,
            step_bytes,
            at: 0,
            stats: SendStats::default(),
            steps: 0,
        })
    }

    /// Continues with the byte at this offset, which the file has.
    pub fn begin_at(&mut self, offset: u64) {
        self.at = offset;
    }

    /// Returns the offset of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Sends `bytes` bytes of the file; restarts at its end.
    ///
    /// # Errors
    /// [`SendError`] of the first call that fails.
    pub fn send_bytes(&mut self, bytes: u64) -> Result<(), SendError> {
        let end = self.stats.bytes + bytes;
        while self.stats.bytes < end {
            self.step(end)?;
        }
        Ok(())
    }

    /// Calls the path once, for a step or the rest of `end` bytes in all; waits where the socket is
    /// full.
    pub fn step(&mut self, end: u64) -> Result<(), SendError> {
        let left = self.media.bytes() - self.at;
        let wanted = self.step_bytes.min(left).min(end - self.stats.bytes);
        let socket = self.socket.as_fd();
        self.steps += 1;
        match self.path.send(self.media, self.at, wanted, socket, &mut self.stats) {
            Ok(sent) => self.at = if sent == left { 0 } else { self.at + sent },
            Err(SendError::Blocked) => wait_writable(&self.socket),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes the cork: bytes leave as soon as they are sent.
    pub fn uncork(&self) -> std::io::Result<()> {
        Ok(set_tcp_cork(&self.socket, false)?)
    }

    /// Ends the sending direction.
    pub fn finish(&self) -> std::io::Result<()> {
        self.socket.shutdown(std::net::Shutdown::Write)
    }
}

/// Datagrams of a crowd have the usual size, a burst is 20 ms of 5 Mb/s, and the bursts of
/// different sockets are [`CROWD_APART`] packets apart in the file.
const CROWD_DATAGRAM_BYTES: u32 = 1328;
const CROWD_BURST: u32 = 10;
const CROWD_APART: u64 = 1489;
/// Attempts in ten seconds: on a busy machine the kernel's worker is slow.
const QUEUE_LOOKS: u32 = 1000;
const QUEUE_LOOK: std::time::Duration = std::time::Duration::from_millis(10);

pub(crate) fn wait_writable(socket: &impl AsFd) {
    let mut asked = [PollFd::new(socket, PollFlags::OUT)];
    // A poll that was interrupted does no harm: the send is tried again.
    let _ = poll(&mut asked, None);
}

pub(crate) fn failed(spec: &Spec, error: &dyn std::fmt::Display) -> Error {
    Error::Host { what: spec.to_string(), found: error.to_string() }
}
