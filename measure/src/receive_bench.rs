// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verifies and then times a receive path under a load, on one core.
//!
//! One thread sends a burst to every port and then receives all of it, so nothing is lost and no
//! thread waits for another core. A run's processor time is the CPU cost of both ends: the kernel
//! does the receiver's softirq work within the sender's system call. The CPU cost of sending alone,
//! to a device that drops at its driver's entry, is measured in the same round and subtracted. The
//! rest is the cost of receiving: veth, XDP, IP, UDP, the socket's queue, system calls, copies.
//!
//! Sources: Linux 6.18 `drivers/net/veth.c` (`veth_xmit`), `net/core/dev.c` (`netif_rx`).
//! Does not measure the wake-up of a sleeping thread; a busy receiver seldom sleeps.

use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use paths::{Port, ReceivePath, ReceiveSpec, ReceiveStats, Via};

use crate::error::Error;
use crate::feed::{BurstFeed, Sending};
use crate::fixture::{Fixture, HEADER_BYTES, header};
use crate::meter::Meter;
use crate::network::{Network, Sink};

/// Traffic to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveLoad {
    /// Bytes of a datagram, RTP header included.
    pub bytes: u32,
    /// Ports that get a burst each, one after the other.
    pub streams: usize,
    /// Number of sends for a burst.
    pub sending: Sending,
}

impl ReceiveLoad {
    /// Returns the packets of a burst: 5 ms of 20 Mb/s for many streams, the longest run for one.
    pub fn burst(self) -> u32 {
        if self.streams > 1 { SHORT_BURST } else { LONG_BURST }
    }

    /// Returns bytes of a packet, packets of a burst, bursts in a turn. A turn is some hundred
    /// packets, so that many packets share a ring's wait for its block, or for its next poll.
    pub fn sizes(self) -> (u32, u32, u32) {
        (self.bytes, self.burst(), if self.streams > 1 { 1 } else { LONG_BURSTS })
    }
}

/// A receive path with its load and its samples.
pub struct Case {
    /// The receive path.
    pub spec: &'static ReceiveSpec,
    /// Traffic that it receives.
    pub load: ReceiveLoad,
    /// One sample a timed round.
    pub samples: Vec<Sample>,
    /// Reason why the case is not measured any further.
    pub failed: Option<String>,
}

/// Figures of one timed run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// CPU cost of receiving, s/GB: sending is subtracted.
    pub cpu_s_per_gb: f64,
    /// CPU cost of both ends, s/GB.
    pub whole: f64,
    /// Calls a packet, without those that wait.
    pub calls: f64,
    /// Waiting calls a packet.
    pub waits: f64,
    /// Bytes copied per byte received.
    pub copies: f64,
    /// Share of all processors that other programs used.
    pub others_share: f64,
}

impl Case {
    /// A case without samples.
    pub fn new(spec: &'static ReceiveSpec, load: ReceiveLoad) -> Case {
        Case { spec, load, samples: Vec::new(), failed: None }
    }

    /// Returns one line for notes and progress.
    pub fn title(&self) -> String {
        let ReceiveLoad { bytes, streams, sending } = self.load;
        format!("{}, {bytes} bytes, {streams} streams, {}", self.spec, sending.name())
    }
}

/// State that runs of all cases share.
pub struct Bench {
    /// The veth pair.
    pub network: Network,
    /// The file that the sender sends.
    pub fixture: Fixture,
    /// Meter of both ends.
    pub meter: Meter,
}

/// An open receive path and its addresses.
pub struct Intake {
    /// The open path.
    pub path: Box<dyn ReceivePath>,
    /// Addresses of its ports, one a stream.
    pub to: Vec<SocketAddr>,
}

impl Bench {
    /// Opens a receive path behind the veth pair, with a port for each stream.
    pub fn open(&self, spec: &'static ReceiveSpec, streams: usize) -> Result<Intake, Error> {
        let address = self.network.far_address();
        let device = (spec.via == Via::Device).then(|| FAR_DEVICE.to_owned());
        self.network
            .in_far(move || {
                let failed = |error: paths::Error| std::io::Error::other(error.to_string());
                let mut path = (spec.open)().map_err(failed)?;
                let mut to = Vec::with_capacity(streams);
                for key in 0..streams as u32 {
                    let address = SocketAddr::new(address.into(), FIRST_PORT + key as u16);
                    let port = Port {
                        address,
                        sources: Vec::new(),
                        interface: device.clone(),
                        buffer_bytes: BUFFER_BYTES,
                    };
                    path.add(&port, key).map_err(failed)?;
                    to.push(path.address(key).unwrap_or(address));
                }
                Ok(Intake { path, to })
            })
            .map_err(|error| Error::Host { what: spec.to_string(), found: error.to_string() })
    }

    /// Receives some turns and compares every byte, in the order sent.
    pub fn verify(&self, case: &Case) -> Result<(), Error> {
        let ReceiveLoad { bytes, streams, sending } = case.load;
        let wrong = |found: String| Error::Wrong { member: case.spec.to_string(), found };
        let mut intake = self.open(case.spec, streams)?;
        let mut feed = BurstFeed::new(&self.fixture, case.load.sizes(), sending, &intake.to)?;
        let payload_bytes = (bytes - HEADER_BYTES) as usize;
        let mut payload = vec![0; payload_bytes];
        for _ in 0..VERIFIED_TURNS {
            let mut due: Vec<_> = (0..streams).map(|stream| feed.coming(stream)).collect();
            let sent = feed.turn()?;
            let (mut found, mut received) = (None, 0);
            intake.take(sent, TIMEOUT, |key, datagram| {
                received += 1;
                let Some(packet) = due.get_mut(key as usize).and_then(Iterator::next) else {
                    found = Some(format!("port {key}: a packet more than was sent"));
                    return;
                };
                let offset = packet * payload_bytes as u64;
                let read = self.fixture.file.file().read_exact_at(&mut payload, offset);
                let same = read.is_ok()
                    && datagram.get(..HEADER_BYTES as usize) == Some(&header(packet)[..])
                    && datagram.get(HEADER_BYTES as usize..) == Some(&payload[..]);
                if !same {
                    found.get_or_insert(format!("port {key}: packet {packet} has other bytes"));
                }
            })?;
            if let Some(found) = found {
                return Err(wrong(found));
            }
            if received != sent {
                return Err(wrong(format!("{sent} packets sent, {received} received")));
            }
        }
        Ok(())
    }

    /// Times sending alone (its CPU cost is added to `alone`), and right after it a run.
    ///
    /// Another program may disturb the first more than the second, and leave no difference: both
    /// are then repeated, [`TRIES`] times at most.
    pub fn time_after_sending(
        &self,
        case: &Case,
        bytes: u64,
        segments: bool,
        alone: &mut Vec<f64>,
    ) -> Result<Sample, Error> {
        for _ in 0..TRIES {
            let cpu_s_per_gb = self.sending(case.load, bytes, segments)?;
            alone.push(cpu_s_per_gb);
            if let Some(sample) = self.time(case, (bytes, cpu_s_per_gb))? {
                return Ok(sample);
            }
        }
        let found = format!("{TRIES} runs cost no more than sending; a quieter machine is needed");
        Err(Error::Wrong { member: case.spec.to_string(), found })
    }

    /// Times a run of `bytes` bytes, or of [`RUN_MAX`]. Subtracts `sending_cost`; returns `None`
    /// where that is not less than the cost of the run.
    pub fn time(
        &self,
        case: &Case,
        (bytes, sending_cost): (u64, f64),
    ) -> Result<Option<Sample>, Error> {
        let ReceiveLoad { streams, sending, .. } = case.load;
        let wrong = |found: String| Error::Wrong { member: case.spec.to_string(), found };
        let mut intake = self.open(case.spec, streams)?;
        let mut feed = BurstFeed::new(&self.fixture, case.load.sizes(), sending, &intake.to)?;
        let mut turn = |feed: &mut BurstFeed<'_>| -> Result<(), Error> {
            let sent = feed.turn()?;
            let received = intake.take(sent, TIMEOUT, |_, datagram| {
                // The access stands for a reader that looks at each header.
                std::hint::black_box(datagram.first());
            })?;
            if received == sent {
                return Ok(());
            }
            Err(wrong(format!("{sent} packets sent, {received} received")))
        };
        for _ in 0..WARM_TURNS {
            turn(&mut feed)?;
        }
        let warm = feed.stats.bytes;
        let (begun, end) = (self.meter.begin(), Instant::now() + RUN_MAX);
        while feed.stats.bytes - warm < bytes && Instant::now() < end {
            turn(&mut feed)?;
        }
        let cost = begun.end(Duration::ZERO);
        let whole = cost.charged().as_secs_f64() * 1e9 / (feed.stats.bytes - warm) as f64;
        // These statistics include the warm turns, which do the same work.
        let stats: ReceiveStats = intake.path.stats();
        let cpu_s_per_gb = whole - sending_cost;
        if cpu_s_per_gb <= 0.0 {
            return Ok(None);
        }
        let per_packet = |calls: u64| calls as f64 / stats.packets.max(1) as f64;
        Ok(Some(Sample {
            cpu_s_per_gb,
            whole,
            calls: per_packet(stats.calls),
            waits: per_packet(stats.waits),
            copies: stats.copied_bytes as f64 / stats.bytes.max(1) as f64,
            others_share: cost.others_share(),
        }))
    }

    /// Returns the CPU cost of sending a load alone, s/GB, to a device that receives the same
    /// packets as the near end of the veth pair and drops them.
    fn sending(&self, load: ReceiveLoad, bytes: u64, segments: bool) -> Result<f64, Error> {
        let sink = if segments { Sink::IfbDevice } else { Sink::IfbSoftware };
        let to = self.network.address(&sink)?;
        let to: Vec<SocketAddr> = (0..load.streams as u16)
            .map(|stream| SocketAddr::new(to.ip(), FIRST_PORT + stream))
            .collect();
        let mut feed = BurstFeed::new(&self.fixture, load.sizes(), load.sending, &to)?;
        for _ in 0..WARM_TURNS {
            feed.turn()?;
        }
        let warm = feed.stats.bytes;
        let begun = self.meter.begin();
        while feed.stats.bytes - warm < bytes {
            feed.turn()?;
        }
        let cost = begun.end(Duration::ZERO);
        Ok(cost.charged().as_secs_f64() * 1e9 / (feed.stats.bytes - warm) as f64)
    }
}

impl Intake {
    /// Receives until `wanted` datagrams arrived or none arrives within `wait`; returns the count.
    pub fn take(
        &mut self,
        wanted: u64,
        wait: Duration,
        mut each: impl FnMut(u32, &[u8]),
    ) -> Result<u64, Error> {
        let mut received = 0;
        while received < wanted {
            let count = self.path.receive(wait, &mut |arrivals| {
                for arrival in arrivals {
                    for datagram in arrival.datagrams() {
                        each(arrival.key, datagram);
                    }
                }
            });
            let count = count.map_err(|error| Error::Wrong {
                member: format!("{:?}", self.path),
                found: error.to_string(),
            })?;
            if count == 0 {
                break;
            }
            received += count as u64;
        }
        Ok(received)
    }
}

/// Name of the veth pair's far end in the second namespace.
const FAR_DEVICE: &str = "far";
const FIRST_PORT: u16 = 6000;
const BUFFER_BYTES: u32 = 8 << 20;
/// Packets of 1328 bytes in 64 KiB, not aligned to pages; then those in 5 ms of 20 Mb/s.
const LONG_BURST: u32 = 44;
const SHORT_BURST: u32 = 10;
const LONG_BURSTS: u32 = 4;
const VERIFIED_TURNS: usize = 4;
const WARM_TURNS: usize = 8;
/// Limit for a ring that waits for its block; its run has fewer bytes.
const RUN_MAX: Duration = Duration::from_millis(700);
/// A ring hands a block over when it is full or after some milliseconds.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of repetitions after disturbance by another program.
const TRIES: usize = 4;
