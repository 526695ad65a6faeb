// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab paths`: the bill of each stream path, RTP packets of 1328 bytes (1316 of payload)
//! into a device that drops them at its driver's entry and cannot segment.
//!
//! Each member first sends to a receiver on loopback and every byte is compared; only then is it
//! timed. Rounds are interleaved: each round times every member once, and a member's ratio to
//! `read_writev` is taken within the round. The packets of every timed run are counted at the
//! device.
//!
//! Sources: the study's table 1-B and figures 4 and 5 (`read_writev` is its reference too).
//! Does not do: other packet sizes, devices that can segment.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use paths::{
    Batch, Destination, Feed, Host, Media, Open, PATHS, Piece, SendError, Spec, StreamPath, Tally,
};

use crate::Options;
use crate::error::Error;
use crate::namespace::{make_sink, sunk_packets};
use crate::statistics::Figure;
use crate::table::{Row, Table};

/// A path and how many packets it may put into one call.
struct Member {
    spec: &'static Spec,
    segments: u32,
    samples: Vec<Sample>,
}

struct Sample {
    bill: f64,
    calls_per_packet: f64,
}

/// What is sent: the same bytes as a file of payloads and as a wire image.
struct Material {
    payloads: Media,
    image: Media,
}

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let (rounds, run_bytes) = if options.quick { (3, QUICK_BYTES) } else { (7, FULL_BYTES) };
    let sink = make_sink()?;
    let folder = tempfile::tempdir().map_err(Error::host("a temporary folder"))?;
    let material = Material::make(folder.path())?;
    let host = Host::here();
    let mut skipped = Vec::new();
    let mut members = members(&host, &mut skipped);
    for member in &members {
        verify(member, &material)?;
    }
    for round in 0..=rounds {
        for member in &mut members {
            let sample = time(member, &material, sink, run_bytes)?;
            // The first round warms caches and branch predictors.
            if round > 0 {
                member.samples.push(sample);
            }
        }
    }
    let mut conditions = vec![
        format!("kernel {}, {}", host.kernel_release, processor()),
        format!(
            "RTP packets of {SEGMENT_BYTES} bytes into an ifb device that cannot segment; {rounds} \
             rounds of {} MB a member, interleaved; file of {} MB in the page cache",
            run_bytes / 1_000_000,
            PACKETS * SEGMENT_BYTES / 1_000_000
        ),
        "bill: processor seconds, user and system, per 10⁹ bytes; last column: relative to \
         read_writev"
            .to_owned(),
    ];
    conditions.extend(skipped);
    Ok(Table { experiment: "paths".to_owned(), conditions, rows: rows(&members) })
}

fn members(host: &Host, skipped: &mut Vec<String>) -> Vec<Member> {
    let mut members = Vec::new();
    for spec in PATHS {
        if spec.transport != paths::Transport::Rtp {
            continue;
        }
        if let Err(unavailable) = (spec.probe)(host) {
            skipped.push(format!("skip: {}: {unavailable}", spec.name));
            continue;
        }
        let per_packet = matches!(spec.crossings, paths::Crossings::PerPacket(_));
        let segments: &[u32] = if per_packet { &[1] } else { &[10, 44] };
        members.extend(segments.iter().map(|&segments| Member {
            spec,
            segments,
            samples: Vec::new(),
        }));
    }
    members
}

fn rows(members: &[Member]) -> Vec<Row> {
    let figure = |member: &Member, of: fn(&Sample) -> f64| {
        Figure::of(member.samples.iter().map(of).collect())
    };
    let reference = figure(&members[0], |sample| sample.bill);
    let mut rows = Vec::new();
    for member in members {
        let parameter = format!("{} a call", member.segments);
        let bill = figure(member, |sample| sample.bill);
        rows.push(Row {
            member: member.spec.name.to_owned(),
            parameter: parameter.clone(),
            metric: "bill".to_owned(),
            unit: "s/GB".to_owned(),
            relative: bill.relative_to(&reference),
            figure: bill,
        });
    }
    for member in members {
        rows.push(Row {
            member: member.spec.name.to_owned(),
            parameter: format!("{} a call", member.segments),
            metric: "crossings".to_owned(),
            unit: "per packet".to_owned(),
            relative: None,
            figure: figure(member, |sample| sample.calls_per_packet),
        });
    }
    rows
}

impl Material {
    fn make(folder: &std::path::Path) -> Result<Material, Error> {
        let create = |name: &str| {
            let mut options = File::options();
            options.read(true).write(true).create_new(true);
            options.open(folder.join(name)).map_err(Error::host(format!("creating {name}")))
        };
        let (mut payloads, mut image) = (create("payloads")?, create("image")?);
        let mut filler = Filler(0x9e37_79b9_7f4a_7c15);
        let (mut payload, mut wire) = (Vec::new(), Vec::new());
        for first in (0..PACKETS).step_by(CHUNK_PACKETS as usize) {
            payload.clear();
            wire.clear();
            for packet in first..(first + CHUNK_PACKETS).min(PACKETS) {
                let start = payload.len();
                filler.fill(&mut payload);
                wire.extend_from_slice(&header(packet));
                wire.extend_from_slice(&payload[start..]);
            }
            payloads.write_all(&payload).map_err(Error::host("writing the file"))?;
            image.write_all(&wire).map_err(Error::host("writing the wire image"))?;
        }
        let open = |file, name: &str| {
            Media::open(file, name)
                .map_err(|e| Error::Host { what: "opening".into(), found: e.to_string() })
        };
        Ok(Material { payloads: open(payloads, "payloads")?, image: open(image, "image")? })
    }
}

/// Bytes without a pattern that a mistake in offsets could hide in (xorshift64).
struct Filler(u64);

impl Filler {
    fn fill(&mut self, target: &mut Vec<u8>) {
        let end = target.len() + PAYLOAD_BYTES as usize;
        while target.len() < end {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let word = self.0.to_le_bytes();
            let count = word.len().min(end - target.len());
            target.extend_from_slice(&word[..count]);
        }
    }
}

/// Made for each packet sent, as a server must: sequence and timestamp differ.
fn header(packet: u64) -> [u8; 12] {
    let sequence = (packet as u16).to_be_bytes();
    let timestamp = ((packet * 190) as u32).to_be_bytes();
    let mut header = [0x80, 33, 0, 0, 0, 0, 0, 0, 0x70, 0x77, 0x61, 0x67];
    header[2..4].copy_from_slice(&sequence);
    header[4..8].copy_from_slice(&timestamp);
    header
}

/// One sending thread's tools.
struct Sender<'a> {
    path: Box<dyn StreamPath>,
    feed: Feed,
    to: Destination,
    material: &'a Material,
    heads: Vec<u8>,
    tally: Tally,
}

impl<'a> Sender<'a> {
    fn open(
        member: &Member,
        material: &'a Material,
        peer: SocketAddr,
    ) -> Result<Sender<'a>, Error> {
        let failed = |found: String| Error::Host { what: member.spec.name.to_owned(), found };
        let Open::Stream { feed, open, .. } = member.spec.open else {
            return Err(failed("not a stream path".to_owned()));
        };
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| {
                socket.connect(peer)?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            })
            .map_err(Error::host(format!("a socket to {peer}")))?;
        let mut to =
            Destination::new(socket, peer.to_string()).map_err(|e| failed(e.to_string()))?;
        to.limit_segments(member.segments);
        let path = open().map_err(|e| failed(e.to_string()))?;
        Ok(Sender { path, feed, to, material, heads: Vec::new(), tally: Tally::default() })
    }

    /// Sends `count` packets from `packet` on; the number taken.
    fn send(&mut self, packet: u64, count: u32) -> Result<u64, SendError> {
        let batch = match self.feed {
            Feed::Image => {
                let bytes = u64::from(count) * SEGMENT_BYTES;
                let offset = packet * SEGMENT_BYTES;
                let image = &self.material.image;
                Batch::image(image, count, SEGMENT_BYTES as u32, offset, bytes)
            }
            Feed::Gathered => {
                self.heads.clear();
                let packets = packet..packet + u64::from(count);
                self.heads.extend(packets.flat_map(header));
                let bytes = u64::from(count) * PAYLOAD_BYTES;
                let pieces = [Piece { offset: packet * PAYLOAD_BYTES, bytes }];
                let batch = Batch::gathered(
                    &self.material.payloads,
                    count,
                    SEGMENT_BYTES as u32,
                    &self.heads,
                    &pieces,
                );
                return self.path.send(&batch, &mut self.to, &mut self.tally).map(u64::from);
            }
        };
        self.path.send(&batch, &mut self.to, &mut self.tally).map(u64::from)
    }
}

fn verify(member: &Member, material: &Material) -> Result<(), Error> {
    let wrong = |found: String| Error::Wrong { member: member.spec.name.to_owned(), found };
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::host("loopback"))?;
    receiver.set_read_timeout(Some(Duration::from_secs(2))).map_err(Error::host("a time-out"))?;
    let peer = receiver.local_addr().map_err(Error::host("loopback"))?;
    let mut sender = Sender::open(member, material, peer)?;
    let mut expected = vec![0; SEGMENT_BYTES as usize];
    let mut found = vec![0; SEGMENT_BYTES as usize + 1];
    let mut packet = 0;
    while packet < VERIFIED_PACKETS {
        let sent = sender.send(packet, member.segments).map_err(|e| wrong(e.to_string()))?;
        for packet in packet..packet + sent {
            let bytes = receiver.recv(&mut found).map_err(|e| wrong(format!("{packet}: {e}")))?;
            let image = material.image.file();
            image
                .read_exact_at(&mut expected, packet * SEGMENT_BYTES)
                .map_err(Error::host("reading the wire image"))?;
            if found[..bytes] != expected {
                return Err(wrong(format!("packet {packet}: not the bytes that were sent")));
            }
        }
        packet += sent;
    }
    Ok(())
}

fn time(
    member: &Member,
    material: &Material,
    sink: SocketAddr,
    run_bytes: u64,
) -> Result<Sample, Error> {
    let wrong = |found: String| Error::Wrong { member: member.spec.name.to_owned(), found };
    let mut sender = Sender::open(member, material, sink)?;
    let sunk = sunk_packets()?;
    let began = processor_time();
    let mut packet = 0;
    while sender.tally.bytes < run_bytes {
        let count = member.segments;
        if packet + u64::from(count) > PACKETS {
            packet = 0;
        }
        match sender.send(packet, count) {
            Ok(sent) => packet += sent,
            Err(SendError::Blocked) => std::thread::yield_now(),
            Err(error) => return Err(wrong(error.to_string())),
        }
    }
    let spent = processor_time().saturating_sub(began);
    let arrived = sunk_packets()? - sunk;
    if arrived < sender.tally.packets {
        let sent = sender.tally.packets;
        return Err(wrong(format!("{sent} packets sent, {arrived} at the device")));
    }
    Ok(Sample {
        bill: sender.tally.bill(spent).expect("bytes were sent"),
        calls_per_packet: sender.tally.calls_per_packet().expect("packets were sent"),
    })
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{cores} cores of {}", model.map_or("an unnamed processor", |(_, name)| name))
}

const PAYLOAD_BYTES: u64 = 1316;
const SEGMENT_BYTES: u64 = 1328;
/// 256 MB: larger than any last-level cache share, small enough to make in a second.
const PACKETS: u64 = 192_720;
const CHUNK_PACKETS: u64 = 720;
const VERIFIED_PACKETS: u64 = 2_000;
const QUICK_BYTES: u64 = 60_000_000;
const FULL_BYTES: u64 = 400_000_000;
