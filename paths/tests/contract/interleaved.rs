// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP in frames on an RTSP connection: every path, every shape, every fault, over TCP on loopback.
//!
//! The received bytes are compared with frames made here, packet by packet, so a packet that a full
//! socket cuts in two must continue where it was cut.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use paths::{
    Batch, Feed, INTERLEAVED_PATHS, InterleavedOutput, InterleavedPath, MappedFile, Open, Piece,
    SendError, SendStats, Spec, SystemCalls,
};

use crate::downloads::connection;
use crate::harness::noise;

const TIMEOUT: Duration = Duration::from_secs(60);
/// `$`, channel, two bytes of length; then 12 bytes of RTP.
const HEAD_BYTES: usize = 16;
/// A frame with 7 packets of transport stream.
const FRAME_BYTES: usize = 1332;

fn interleaved_paths() -> Vec<(&'static Spec, Feed, Box<dyn InterleavedPath>)> {
    let opened = |spec: &&'static Spec| {
        let Open::Interleaved { feed, open } = spec.open else { panic!("{spec} sends no frames") };
        (*spec, feed, open().unwrap())
    };
    INTERLEAVED_PATHS.iter().map(opened).collect()
}

/// Frames of one size but the last: as file with headers apart, as image, and as they arrive.
struct Framed {
    source: MappedFile,
    image: MappedFile,
    heads: Vec<u8>,
    packets: u32,
    frame_bytes: usize,
    last_bytes: usize,
    stream: Vec<u8>,
}

impl Framed {
    fn new(packets: usize, frame_bytes: usize, last_bytes: usize) -> Framed {
        let (mut heads, mut stream) = (Vec::new(), Vec::new());
        let payload_bytes = frame_bytes - HEAD_BYTES;
        let all = packets.saturating_sub(1) * payload_bytes + last_bytes.saturating_sub(HEAD_BYTES);
        let content = noise(OFFSET + all, 0xfeed_0000_0000_0015);
        for packet in 0..packets {
            let is_last = packet + 1 == packets;
            let bytes = if is_last { last_bytes } else { frame_bytes };
            let mut head = vec![b'$', 0];
            head.extend(((bytes - 4) as u16).to_be_bytes());
            head.extend(noise(12, packet as u64 + 1));
            let from = OFFSET + packet * payload_bytes;
            stream.extend_from_slice(&head);
            stream.extend_from_slice(&content[from..from + bytes - HEAD_BYTES]);
            heads.extend(head);
        }
        let wire = [noise(OFFSET, 9), stream.clone()].concat();
        let (source, image) = (file_of(&content, "asset.ts"), file_of(&wire, "asset.framed"));
        let packets = packets as u32;
        Framed { source, image, heads, packets, frame_bytes, last_bytes, stream }
    }

    /// Bytes of the frames before number `packet`.
    fn before(&self, packet: u32) -> u64 {
        (packet as usize * self.frame_bytes).min(self.stream.len()) as u64
    }

    /// Sends packets from `first` on, `count` at most, in one call of the path.
    fn send(
        &self,
        (feed, path): (Feed, &mut dyn InterleavedPath),
        (first, count): (u32, u32),
        to: &mut InterleavedOutput,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let end = self.packets.min(first + count);
        let (packets, size) = (end - first, self.frame_bytes as u32);
        let bytes = self.before(end) - self.before(first);
        let heads = &self.heads[first as usize * HEAD_BYTES..end as usize * HEAD_BYTES];
        let payload_bytes = u64::from(first) * (self.frame_bytes - HEAD_BYTES) as u64;
        let offset = OFFSET as u64 + payload_bytes;
        let pieces = [Piece { offset, bytes: bytes - heads.len() as u64 }];
        let batch = match feed {
            Feed::Gathered => Batch::gathered(&self.source, packets, size, heads, &pieces),
            Feed::Image => {
                let offset = OFFSET as u64 + self.before(first);
                Batch::image(&self.image, packets, size, offset, bytes)
            }
        };
        path.send(&batch, to, stats)
    }

    /// Sends all in batches of `count`; waits while the socket is full.
    fn send_all(
        &self,
        (feed, path): (Feed, &mut dyn InterleavedPath),
        count: u32,
        to: &mut InterleavedOutput,
        stats: &mut SendStats,
    ) -> Result<(), SendError> {
        let (mut next, start) = (0, Instant::now());
        while next < self.packets || to.rest_bytes() > 0 {
            assert!(start.elapsed() < TIMEOUT, "{next} packets after {TIMEOUT:?}");
            let sent = match next < self.packets {
                true => self.send((feed, &mut *path), (next, count), to, stats),
                false => to.flush(stats).map(|()| 0),
            };
            match sent {
                Ok(accepted) => next += accepted,
                Err(SendError::Blocked) => thread::sleep(Duration::from_micros(100)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn file_of(bytes: &[u8], name: &str) -> MappedFile {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    MappedFile::open(file, name).unwrap()
}

/// Returns the sending side of a connection and the client's end.
fn output() -> (InterleavedOutput, Arc<TcpStream>, TcpStream) {
    let (server, client) = connection();
    let server = Arc::new(server);
    (InterleavedOutput::new(server.clone(), "client"), server, client)
}

fn reader(mut client: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        // A connection with unread bytes ends by a reset.
        let _ = client.read_to_end(&mut all);
        all
    })
}

fn shapes() -> Vec<Framed> {
    let mut shapes = Vec::new();
    for packets in [1, 2, 7, 44, 511, 512, 513, 700] {
        for (frame_bytes, last_bytes) in [(FRAME_BYTES, FRAME_BYTES), (FRAME_BYTES, 17), (204, 16)]
        {
            shapes.push(Framed::new(packets, frame_bytes, last_bytes));
        }
    }
    shapes
}

#[test]
fn frames_of_every_shape_arrive_in_order_and_whole() {
    for shape in shapes() {
        for (spec, feed, mut path) in interleaved_paths() {
            for count in [1, 10, 44, 700] {
                let (mut to, socket, client) = output();
                let arrived = reader(client);
                let mut stats = SendStats::default();
                let sent = shape.send_all((feed, &mut *path), count, &mut to, &mut stats);
                drop((to, socket));
                let what = format!(
                    "{spec}: {} of {} and {}, {count} a call",
                    shape.packets, shape.frame_bytes, shape.last_bytes
                );
                assert_eq!(sent, Ok(()), "{what}");
                assert!(arrived.join().unwrap() == shape.stream, "{what}");
                let expected = (u64::from(shape.packets), shape.stream.len() as u64);
                assert_eq!((stats.packets, stats.bytes), expected, "{what}");
            }
        }
    }
}

/// The send buffer holds less than a batch, so a call often cuts a packet.
#[test]
fn a_socket_that_takes_parts_of_packets_gets_every_byte_once() {
    let shape = Framed::new(400, FRAME_BYTES, 1000);
    for (spec, feed, mut path) in interleaved_paths() {
        let (mut to, socket, client) = output();
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 16 << 10).unwrap();
        socket.set_nodelay(true).unwrap();
        let (mut stats, mut cuts, mut next) = (SendStats::default(), 0, 0);
        let arrived = reader(client);
        let start = Instant::now();
        while next < shape.packets || to.rest_bytes() > 0 {
            assert!(start.elapsed() < TIMEOUT, "{spec}: {next} packets after {TIMEOUT:?}");
            let sent = match next < shape.packets {
                true => shape.send((feed, &mut *path), (next, 44), &mut to, &mut stats),
                false => to.flush(&mut stats).map(|()| 0),
            };
            match sent {
                Ok(accepted) => next += accepted,
                Err(SendError::Blocked) => thread::sleep(Duration::from_micros(50)),
                Err(error) => panic!("{spec}: {error}"),
            }
            cuts += u32::from(to.rest_bytes() > 0);
        }
        drop((to, socket));
        assert!(arrived.join().unwrap() == shape.stream, "{spec}");
        assert!(cuts > 0, "{spec}: no packet was cut");
        assert_eq!(stats.bytes, shape.stream.len() as u64, "{spec}");
    }
}

#[test]
fn a_batch_of_frames_costs_the_calls_and_copies_claimed() {
    for packets in [1_usize, 10, 44, 100] {
        let shape = Framed::new(packets, FRAME_BYTES, FRAME_BYTES);
        for (spec, feed, mut path) in interleaved_paths() {
            let SystemCalls::PerBatch(claimed) = spec.system_calls else {
                panic!("{spec}: a call carries a batch")
            };
            let (mut to, _socket, client) = output();
            let arrived = reader(client);
            let mut stats = SendStats::default();
            let count = packets as u32;
            let sent = shape.send((feed, &mut *path), (0, count), &mut to, &mut stats);
            assert_eq!(sent, Ok(count), "{spec}");
            assert_eq!(stats.calls, u64::from(claimed), "{spec}: {packets} packets");
            let head_bytes = if feed == Feed::Gathered { packets * HEAD_BYTES } else { 0 };
            let payload_bytes = (shape.stream.len() - head_bytes) as u64;
            let copied = u64::from(spec.copies_per_byte) * payload_bytes
                + u64::from(spec.header_copies) * head_bytes as u64;
            assert_eq!(stats.copied_bytes, copied, "{spec}: {packets} packets");
            drop((to, _socket));
            assert!(arrived.join().unwrap() == shape.stream, "{spec}");
        }
    }
}

#[test]
fn an_empty_batch_of_frames_makes_no_call() {
    let shape = Framed::new(0, FRAME_BYTES, HEAD_BYTES);
    for (spec, feed, mut path) in interleaved_paths() {
        let (mut to, _socket, _client) = output();
        let mut stats = SendStats::default();
        let sent = shape.send((feed, &mut *path), (0, 0), &mut to, &mut stats);
        assert_eq!((sent, stats), (Ok(0), SendStats::default()), "{spec}");
    }
}

#[test]
fn a_reader_that_stops_blocks_and_then_gets_all() {
    let shape = Framed::new(12_000, FRAME_BYTES, FRAME_BYTES);
    for (spec, feed, mut path) in interleaved_paths() {
        let (mut to, socket, client) = output();
        let mut stats = SendStats::default();
        let mut next = 0;
        let blocked = loop {
            assert!(next < shape.packets, "{spec}: all of it fits the socket");
            match shape.send((feed, &mut *path), (next, 44), &mut to, &mut stats) {
                Ok(accepted) => next += accepted,
                Err(error) => break error,
            }
        };
        assert_eq!((blocked, stats.refused), (SendError::Blocked, 1), "{spec}");
        assert!(to.rest_bytes() < FRAME_BYTES, "{spec}: no more than a packet waits here");
        let arrived = reader(client);
        let start = Instant::now();
        while next < shape.packets || to.rest_bytes() > 0 {
            assert!(start.elapsed() < TIMEOUT, "{spec}: {next} packets");
            match shape.send((feed, &mut *path), (next, 44), &mut to, &mut stats) {
                Ok(accepted) => next += accepted,
                Err(SendError::Blocked) => thread::sleep(Duration::from_micros(100)),
                Err(error) => panic!("{spec}: {error}"),
            }
        }
        drop((to, socket));
        assert!(arrived.join().unwrap() == shape.stream, "{spec}");
    }
}

/// A message waits for the rest of the frame that has begun, and is never sent inside it.
#[test]
fn a_message_stands_between_frames() {
    let shape = Framed::new(12_000, FRAME_BYTES, FRAME_BYTES);
    let message = b"RTSP/1.0 200 OK\r\nCSeq: 7\r\n\r\n";
    for (spec, feed, mut path) in interleaved_paths() {
        let (mut to, socket, client) = output();
        let mut stats = SendStats::default();
        let mut next = 0;
        while let Ok(accepted) = shape.send((feed, &mut *path), (next, 44), &mut to, &mut stats) {
            next += accepted;
        }
        to.write(message, &mut stats).unwrap();
        let arrived = reader(client);
        let start = Instant::now();
        while to.flush(&mut stats).is_err() {
            assert!(start.elapsed() < TIMEOUT, "{spec}");
            thread::sleep(Duration::from_micros(100));
        }
        drop((to, socket));
        let at = shape.before(next) as usize;
        let expected = [&shape.stream[..at], &message[..]].concat();
        assert!(arrived.join().unwrap() == expected, "{spec}");
    }
}

#[test]
fn a_reader_that_closes_is_gone_and_kills_nobody() {
    let shape = Framed::new(12_000, FRAME_BYTES, FRAME_BYTES);
    for (spec, feed, mut path) in interleaved_paths() {
        let (mut to, _socket, client) = output();
        drop(client);
        let mut stats = SendStats::default();
        let sent = shape.send_all((feed, &mut *path), 44, &mut to, &mut stats);
        assert!(matches!(sent, Err(SendError::Gone { .. })), "{spec}: {sent:?}");
    }
}

/// A file cut to nothing reports its end; bytes of a frame that has begun are replaced by zeroes at
/// most, so that the connection remains in sync.
#[test]
fn a_shrunken_file_ends_the_frames_at_a_packet() {
    for (spec, feed, mut path) in interleaved_paths() {
        for kept in [0_u64, 100 * FRAME_BYTES as u64] {
            let shape = Framed::new(300, FRAME_BYTES, FRAME_BYTES);
            for file in [&shape.source, &shape.image] {
                file.file().set_len(kept).unwrap();
            }
            let (mut to, socket, client) = output();
            let arrived = reader(client);
            let mut stats = SendStats::default();
            let sent = shape.send_all((feed, &mut *path), 44, &mut to, &mut stats);
            assert!(matches!(sent, Err(SendError::Shrunk { .. })), "{spec} {kept}: {sent:?}");
            while to.flush(&mut stats).is_err() {
                thread::sleep(Duration::from_micros(100));
            }
            drop((to, socket));
            let arrived = arrived.join().unwrap();
            assert_eq!(arrived.len() % FRAME_BYTES, 0, "{spec} {kept}: a frame is cut");
            let whole = (kept as usize).saturating_sub(OFFSET + FRAME_BYTES).min(arrived.len());
            assert!(arrived[..whole] == shape.stream[..whole], "{spec} {kept}");
            assert!(kept == 0 || !arrived.is_empty(), "{spec}: nothing of {kept} bytes arrived");
        }
    }
}

/// Bytes before the first payload in the file, and before the first frame in the image.
const OFFSET: usize = 77;
