// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receivers of RTP on loopback: some sockets are read and verified, the kernel counts the packets
//! of the others.
//!
//! A counting socket has the smallest receive buffer and is never read, so that the kernel drops
//! and counts each packet after the first few. A read packet has its time from this program's clock
//! when `recv` returns, which is an upper bound of its arrival.
//!
//! Sources: RFC 3550 §5.1 (header), socket(7) SO_RCVBUF, SO_MEMINFO.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::clip::elementary;
use measure::Error;
use measure::meter::{Cores, pin, thread_time};
use wire::rtp::Header;

/// Sockets on even ports of loopback; the first `sampled` are read.
pub(super) struct Receivers {
    sockets: Vec<UdpSocket>,
    sampled: usize,
    pub(super) ports: Vec<u16>,
    /// Packets read so far.
    received: AtomicU64,
}

impl Receivers {
    pub(super) fn open(count: usize, sampled: usize) -> Result<Receivers, Error> {
        let mut receivers = Receivers {
            sockets: Vec::new(),
            sampled,
            ports: Vec::new(),
            received: AtomicU64::new(0),
        };
        for index in 0..count {
            let port = FIRST_PORT + 2 * index as u16;
            let failed = || Error::host(format!("a socket on port {port}"));
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed())?;
            socket.set_nonblocking(true).map_err(failed())?;
            let bytes = if index < sampled { SAMPLED_BUFFER } else { 0 };
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, bytes)
                .map_err(|errno| failed()(errno.into()))?;
            receivers.sockets.push(socket);
            receivers.ports.push(port);
        }
        Ok(receivers)
    }

    /// Waits for the first packet: a sender may first read its file.
    pub(super) fn await_first(&self) {
        let deadline = Instant::now() + FIRST_WAIT;
        while Instant::now() < deadline && self.received.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Counts the packets at the counting sockets so far, except for the few in their buffers.
    pub(super) fn counted(&self) -> u64 {
        let dropped = |socket| paths::dropped_packets(socket).unwrap_or(0);
        self.sockets[self.sampled..].iter().map(|socket| u64::from(dropped(socket))).sum()
    }

    /// Reads the sampled sockets on the client's core until `stop`; returns the packets and the
    /// processor time of reading.
    pub(super) fn read(&self, cores: &Cores, stop: &AtomicBool) -> (Vec<Capture>, Duration) {
        pin(cores, true);
        let before = thread_time();
        let sockets = &self.sockets[..self.sampled];
        let mut captures: Vec<Capture> = sockets.iter().map(|_| Capture::default()).collect();
        let mut buffer = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            let mut ready: Vec<PollFd<'_>> =
                sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = poll(&mut ready, Some(&wait));
            for (socket, capture) in sockets.iter().zip(&mut captures) {
                while let Ok(bytes) = socket.recv(&mut buffer) {
                    capture.take(Instant::now(), &buffer[..bytes]);
                    self.received.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        (captures, thread_time() - before)
    }
}

/// Packets of one stream.
#[derive(Default)]
pub(super) struct Capture {
    packets: Vec<Packet>,
    /// Payloads in the order of their arrival.
    media: Vec<u8>,
    damaged: u64,
}

struct Packet {
    arrived: Instant,
    sequence: u16,
    stamp: u32,
    bytes: u64,
}

/// Lateness of packets in milliseconds, and the share that is later than the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Late {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    pub(super) share: f64,
}

impl Capture {
    fn take(&mut self, arrived: Instant, datagram: &[u8]) {
        let split = datagram.split_first_chunk();
        let plain = split.and_then(|(fixed, payload)| Some((Header::parse_plain(fixed)?, payload)));
        let Some((header, payload)) = plain else {
            self.damaged += 1;
            return;
        };
        self.packets.push(Packet {
            arrived,
            sequence: header.sequence,
            stamp: header.timestamp,
            bytes: datagram.len() as u64,
        });
        if self.media.len() < MEDIA_BYTES_MAX {
            self.media.extend_from_slice(payload);
        }
    }

    /// Counts packets and their bytes within a time.
    pub(super) fn within(&self, from: Instant, until: Instant) -> (u64, u64) {
        let packets = self.packets.iter().filter(|packet| (from..until).contains(&packet.arrived));
        packets.fold((0, 0), |(count, bytes), packet| (count + 1, bytes + packet.bytes))
    }

    /// Counts packets that are missing, out of order or damaged.
    pub(super) fn faults(&self) -> u64 {
        let follows = |pair: &[Packet]| pair[1].sequence == pair[0].sequence.wrapping_add(1);
        let broken = self.packets.windows(2).filter(|pair| !follows(pair)).count() as u64;
        broken + self.damaged
    }

    /// Compares the elementary stream with that of the clip; returns the number of equal bytes.
    pub(super) fn verify(&self, clip: &[u8]) -> Result<u64, String> {
        if self.faults() > 0 {
            return Err(format!("{} packets missing, out of order or damaged", self.faults()));
        }
        let found = elementary(&self.media).ok_or("a damaged or missing transport packet")?;
        let head = found.get(..KEY_BYTES).ok_or("no media came")?;
        // Every packet of the clip differs from all others.
        let mut places = clip.windows(KEY_BYTES).enumerate().filter(|(_, bytes)| *bytes == head);
        let (place, _) = places.next().ok_or("bytes that the clip does not have")?;
        let same = clip[place..].iter().zip(&found).take_while(|(one, other)| one == other).count();
        // A relay may start the clip again.
        if same < found.len() && place + same < clip.len() {
            return Err(format!("byte {same} of the elementary stream differs from the clip"));
        }
        Ok(same as u64)
    }

    /// Returns the lateness against the packet with the least transit, as in `pagewire load`.
    pub(super) fn late(&self, from: Instant, until: Instant) -> Option<Late> {
        let first = self.packets.first()?;
        let transit = |packet: &Packet| {
            let stamp = packet.stamp.wrapping_sub(first.stamp) as i32;
            let arrived = packet.arrived.duration_since(first.arrived).as_secs_f64();
            arrived * 1e3 - f64::from(stamp) / CLOCK_PER_MS
        };
        let least = self.packets.iter().map(transit).fold(f64::INFINITY, f64::min);
        let measured = self.packets.iter().filter(|one| (from..until).contains(&one.arrived));
        let mut late: Vec<f64> = measured.map(|packet| transit(packet) - least).collect();
        late.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| late.get(((late.len() - 1) as f64 * share) as usize).copied();
        let over = late.iter().filter(|late| **late > BOUND_MS).count();
        (!late.is_empty()).then(|| Late {
            p50: at(0.5).unwrap_or(0.0),
            p99: at(0.99).unwrap_or(0.0),
            max: at(1.0).unwrap_or(0.0),
            share: over as f64 / late.len() as f64,
        })
    }
}

/// Largest delay of a packet after the earliest: `pagewire load`'s own bound.
const BOUND_MS: f64 = 25.0;
const CLOCK_PER_MS: f64 = 90.0;
const KEY_BYTES: usize = 64;
/// First port, below the ephemeral ports.
const FIRST_PORT: u16 = 20_000;
const FIRST_WAIT: Duration = Duration::from_secs(10);
const SAMPLED_BUFFER: usize = 4 << 20;
/// Some seconds of the clip.
const MEDIA_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::super::clip;
    use super::*;

    fn capture(bytes: &[u8], late_from: usize) -> Capture {
        let (mut capture, began) = (Capture::default(), Instant::now());
        for (index, payload) in bytes.chunks(7 * clip::PACKET_BYTES as usize).enumerate() {
            let header = Header {
                marker: false,
                payload_type: wire::mp2t::PAYLOAD_TYPE,
                sequence: index as u16,
                timestamp: index as u32 * 180,
                ssrc: 0,
            };
            let datagram = [&header.write()[..], payload].concat();
            let late = if index >= late_from { 40 } else { 0 };
            capture.take(began + Duration::from_millis(2 * index as u64 + late), &datagram);
        }
        capture
    }

    #[test]
    fn stream_is_compared_with_the_clip_byte_by_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clip.ts");
        clip::write(&path, 1).unwrap();
        let bytes = std::fs::read(path).unwrap();
        let whole = elementary(&bytes).unwrap();
        assert_eq!(capture(&bytes, 1000).verify(&whole), Ok(whole.len() as u64));
        assert!(capture(&bytes[188 * 500..], 1000).verify(&whole).unwrap() > 100_000);
        let mut changed = bytes.clone();
        changed[188 * 800 + 100] ^= 1;
        let found = capture(&changed, 1000).verify(&whole).unwrap_err();
        assert!(found.contains("differs from the clip"), "{found}");
        let hole = [&bytes[..188 * 70], &bytes[188 * 71..]].concat();
        assert!(capture(&hole, 1000).verify(&whole).is_err());
        assert!(Capture::default().verify(&whole).is_err());
    }

    #[test]
    fn lateness_is_beyond_the_least_transit() {
        let capture = capture(&[0x47; 188 * 7 * 100], 90);
        let (from, until) = (capture.packets[0].arrived, Instant::now() + Duration::from_secs(9));
        let late = capture.late(from, until).unwrap();
        assert_eq!((late.p50, late.share), (0.0, 0.1), "{late:?}");
        assert!((late.max - 40.0).abs() < 1e-6, "{late:?}");
        assert_eq!(capture.within(from, until), (100, 100 * 1328));
        assert_eq!(capture.faults(), 0);
    }
}
