// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verifies and then times a case: the one source of figures for all experiments on paths.
//!
//! A case is a path with its sizes and its sink. It is verified first ([`crate::receiver`]). Each
//! timed run opens a new path object, warms it with a few batches and sends; its figures count only
//! when the device counted all bytes. The CPU cost of the loop without sending is measured for the
//! same sizes and subtracted.
//!
//! Sources: section 3.1 of the data-paths paper (getrusage, repetitions).
//! Does not choose cases or their order; the experiments do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paths::{SendStats, Spec, Transport, Via};

use crate::error::Error;
use crate::fixture::{Fixture, Image};
use crate::framed::{FramedSender, verify_frames};
use crate::meter::{Cores, CpuCost, Meter, pin};
use crate::network::{MTU_BYTES, Network, Sink, sink_counts};
use crate::receiver::{Drain, listen, verify_datagrams, verify_download};
use crate::sender::{Crowd, DownloadSender, Sender};

/// A path with its sizes, its sink and its samples.
pub struct Case {
    /// The path.
    pub spec: &'static Spec,
    /// The device it sends to.
    pub sink: Sink,
    /// Bytes of a datagram, or of a download's step.
    pub bytes: u32,
    /// Bytes of a datagram of the paths that this case is compared with, where its own path sends
    /// the whole file in one call.
    pub instead_of_bytes: Option<u32>,
    /// Packets that a call may carry; 1 for paths with a packet a call and for downloads.
    pub segments: u32,
    /// Packet at which the next run starts.
    pub next: u64,
    /// Calls a step and copies a byte while no socket was full; `None` for datagrams.
    pub unrefused: Option<(f64, f64)>,
    /// One sample a timed round.
    pub samples: Vec<Sample>,
    /// Reason why the case is not measured any further.
    pub failed: Option<String>,
}

impl Case {
    /// Returns a case without samples. `bytes` is the size of a datagram or of a download's step,
    /// `segments` the number of packets a call.
    pub fn new(spec: &'static Spec, sink: &Sink, bytes: u32, segments: u32) -> Case {
        let (sink, samples) = (sink.clone(), Vec::new());
        Case {
            spec,
            sink,
            bytes,
            instead_of_bytes: None,
            segments,
            next: 0,
            unrefused: None,
            samples,
            failed: None,
        }
    }

    /// Returns the parameters that identify the case in the results.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        let mut parameters = BTreeMap::new();
        let mut put = |name: &str, value: String| parameters.insert(name.to_owned(), value);
        put("transport", self.spec.transport.to_string());
        put("bytes", self.instead_of_bytes.unwrap_or(self.bytes).to_string());
        put("sink", self.sink.name().to_owned());
        if self.instead_of_bytes.is_some() {
            put("step", "the file".to_owned());
        }
        if self.segments > 1 {
            put("segments", self.segments.to_string());
        }
        parameters
    }

    /// Returns one line for notes and progress.
    pub fn title(&self) -> String {
        let Case { spec, bytes, segments, sink, .. } = self;
        let segments = if *segments > 1 { format!(", {segments} a call") } else { String::new() };
        format!("{spec}, {bytes} bytes{segments}, {}", sink.name())
    }

    /// True for whole frames onto a device.
    fn is_by_device(&self) -> bool {
        matches!(self.spec.open, paths::Open::Stream { via: Via::Device, .. })
    }

    /// True when the case is possible: a datagram of a device path must fit one frame.
    pub fn fits(&self, mtu_bytes: u32) -> bool {
        !self.is_by_device() || self.bytes + IP_AND_UDP_BYTES <= mtu_bytes
    }
}

/// Figures of one timed run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// CPU cost, s/GB: process and kernel threads, less the loop.
    pub cpu_s_per_gb: f64,
    /// The kernel threads' part of `cpu_s_per_gb`, s/GB.
    pub kernel_threads: f64,
    /// Share of all processors used by neither this process nor kernel threads.
    pub others_share: f64,
    /// The receiving thread's part of `cpu_s_per_gb`, s/GB; over TCP only.
    pub receiver: f64,
    /// Calls a packet; for downloads, calls a step.
    pub calls: f64,
    /// Bytes copied per byte sent.
    pub copies: f64,
    /// Share of the bytes that a zero-copy send copied nevertheless.
    pub zerocopy_copied: f64,
    /// Share of wall time in which the hypervisor ran other work on the processor.
    pub stolen_share: f64,
}

/// State that experiments on paths share: network, file and meter.
pub struct Bench {
    /// Cores of the process before it was pinned to one.
    pub cores: Cores,
    /// Devices and sinks of the run.
    pub network: Network,
    /// The file that every member sends.
    pub fixture: Fixture,
    meter: Meter,
    /// Place in the file where the next download begins: bytes that were sent last are in the
    /// processor's caches, and a server's viewers rarely request those.
    next_download: AtomicU64,
}

impl Bench {
    /// Opens a bench with these sinks.
    pub fn new(sinks: &[Sink]) -> Result<Bench, Error> {
        let real = |sink: &Sink| matches!(sink, Sink::Interface(..));
        let mut network = match sinks.iter().any(real) {
            true => Network::of_machine(),
            false => Network::new()?,
        };
        // A sink that is impossible is reported before the file is written.
        for sink in sinks {
            network.make(sink)?;
        }
        Self::with(network, Fixture::make()?)
    }

    /// Opens a bench in an existing network, with this file.
    ///
    /// # Errors
    /// [`Error::Host`]: the meter or a socket cannot be opened.
    pub fn with(network: Network, fixture: Fixture) -> Result<Bench, Error> {
        let cores = Cores::allowed();
        pin(&cores, false);
        let next_download = AtomicU64::new(0);
        Ok(Bench { cores, network, fixture, meter: Meter::of_this_process(), next_download })
    }

    /// Enters the file's pages into this process's page tables; returns seconds per 10⁹ bytes.
    pub fn map_file(&self) -> Option<f64> {
        let file = &self.fixture.file;
        let begun = self.meter.begin();
        file.prefetch(0..file.bytes()).ok()?;
        let cost = begun.end(Duration::ZERO);
        Some(cost.process.as_secs_f64() * 1e9 / file.bytes() as f64)
    }

    /// Sends a part of the file to the far end of the veth pair and compares every byte.
    pub fn verify(&self, case: &mut Case, image: &Image) -> Result<(), Error> {
        match case.spec.transport {
            Transport::Interleaved => {
                let sizes = (case.bytes, case.segments);
                let stats = verify_frames(case.spec, (&self.fixture, image), sizes, &self.network)?;
                case.unrefused = Some((
                    stats.calls as f64 / stats.packets.max(1) as f64,
                    stats.copies_per_byte().unwrap_or(0.0),
                ));
                Ok(())
            }
            Transport::Tcp => {
                let step_bytes = u64::from(case.bytes);
                let file = &self.fixture.file;
                let (stats, steps) = verify_download(case.spec, file, step_bytes, &self.network)?;
                case.unrefused = Some((
                    stats.calls as f64 / steps.max(1) as f64,
                    stats.copies_per_byte().unwrap_or(0.0),
                ));
                Ok(())
            }
            _ => {
                let sizes = (case.bytes, case.segments);
                verify_datagrams(case.spec, (&self.fixture, image), sizes, &self.network)
            }
        }
    }

    /// Times a run of at least `bytes` bytes to `to`; subtracts `loop_cost`.
    pub fn time(
        &self,
        case: &mut Case,
        image: &Image,
        to: SocketAddr,
        (bytes, loop_cost): (u64, f64),
    ) -> Result<Sample, Error> {
        match case.spec.transport {
            Transport::Tcp => self.time_download(case, bytes),
            Transport::Interleaved => self.time_frames(case, image, bytes),
            _ => self.time_datagrams(case, image, to, (bytes, loop_cost)),
        }
    }

    fn time_datagrams(
        &self,
        case: &mut Case,
        image: &Image,
        to: SocketAddr,
        (bytes, loop_cost): (u64, f64),
    ) -> Result<Sample, Error> {
        let spec = case.spec;
        let wrong = |found: String| Error::Wrong { member: spec.to_string(), found };
        let sizes = (case.bytes, case.segments);
        let mut sender = Sender::open(spec, &self.fixture, image, sizes, to)?;
        // A run starts where the last one ended, so that no cache holds its packets already.
        sender.next = case.next;
        let warm_bytes = WARM_BATCHES * u64::from(case.segments * case.bytes);
        sender.first_step().map_err(|error| wrong(error.to_string()))?;
        sender.send_bytes(warm_bytes).map_err(|error| wrong(error.to_string()))?;
        let warm = sender.stats;
        let before = sink_counts(&case.sink)?;
        let begun = self.meter.begin();
        sender.send_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        let cost = begun.end(Duration::ZERO);
        let stats = sender.stats.since(&warm);
        case.next = sender.next;
        check_all_left(case, &mut sender, &warm, before).map_err(wrong)?;
        let mut sample = Sample::of(&cost, &stats, stats.packets, Duration::ZERO);
        sample.cpu_s_per_gb -= loop_cost;
        if sample.cpu_s_per_gb <= 0.0 {
            return Err(wrong("the run cost no more than the loop; more bytes a run".to_owned()));
        }
        Ok(sample)
    }

    /// Returns the CPU cost of `sockets` destinations that each get a burst alternately, handed
    /// over one by one or all `at_once`.
    pub fn crowd(
        &self,
        spec: &'static Spec,
        image: &Image,
        to: SocketAddr,
        (sockets, at_once): (usize, bool),
    ) -> Result<f64, Error> {
        let wrong = |error: paths::SendError| Error::Wrong {
            member: spec.to_string(),
            found: error.to_string(),
        };
        let mut crowd = Crowd::open(spec, &self.fixture, image, to, sockets)?;
        crowd.round(at_once).map_err(wrong)?;
        let warm = crowd.stats;
        let begun = self.meter.begin();
        while crowd.stats.bytes - warm.bytes < CROWD_BYTES {
            crowd.round(at_once).map_err(wrong)?;
        }
        let cost = begun.end(Duration::ZERO);
        Ok(crowd.stats.since(&warm).cpu_s_per_gb(cost.charged()).expect("bytes were sent"))
    }

    /// Returns the address of a sink that has been made.
    pub fn address(&self, sink: &Sink) -> Result<SocketAddr, Error> {
        self.network.address(sink)
    }

    fn time_download(&self, case: &Case, bytes: u64) -> Result<Sample, Error> {
        let wrong = |found: String| Error::Wrong { member: case.spec.to_string(), found };
        let (listener, to) = listen(&self.network)?;
        let file = &self.fixture.file;
        let mut download = DownloadSender::open(case.spec, file, u64::from(case.bytes), to)?;
        download.begin_at(self.next_download.load(Ordering::Relaxed));
        let drain = Drain::start(listener);
        // The warm-up ends slow start and lets the receiver's window grow.
        download.send_bytes(WARM_BYTES).map_err(|error| wrong(error.to_string()))?;
        let (warm, warm_steps) = (download.stats, download.steps);
        // The cork holds back less than a segment; all other bytes arrive.
        let warm_receiver = drain.await_bytes(warm.bytes - SEGMENT_BYTES_MAX);
        let begun = self.meter.begin();
        download.send_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        download.finish().map_err(Error::host("shutdown"))?;
        let (drained, receiver) = drain.finish()?;
        let receiver = receiver.saturating_sub(warm_receiver);
        // The CPU cost includes both ends: an acknowledgement makes the kernel send on the
        // receiver's time, so the two cannot be separated.
        let cost = begun.end(Duration::ZERO);
        self.next_download.store(download.at(), Ordering::Relaxed);
        let stats = download.stats.since(&warm);
        if drained != download.stats.bytes {
            let sent = download.stats.bytes;
            return Err(wrong(format!("{sent} bytes sent, {drained} received")));
        }
        let mut sample = Sample::of(&cost, &stats, download.steps - warm_steps, receiver);
        if let Some((calls, copies)) = case.unrefused {
            (sample.calls, sample.copies) = (calls, copies);
        }
        Ok(sample)
    }

    /// Times frames over one connection; both ends are in the CPU cost, as with a download.
    fn time_frames(&self, case: &mut Case, image: &Image, bytes: u64) -> Result<Sample, Error> {
        let wrong = |found: String| Error::Wrong { member: case.spec.to_string(), found };
        let (listener, to) = listen(&self.network)?;
        let sizes = (case.bytes, case.segments);
        let mut sender = FramedSender::open(case.spec, (&self.fixture, image), sizes, to)?;
        sender.next = case.next;
        let drain = Drain::start(listener);
        sender.send_bytes(WARM_BYTES).map_err(|error| wrong(error.to_string()))?;
        let warm = sender.stats;
        // Bytes of a frame that waits here for the socket do not arrive before the next call.
        let warm_receiver = drain.await_bytes(warm.bytes - SEGMENT_BYTES_MAX);
        let begun = self.meter.begin();
        sender.send_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        sender.finish()?;
        let (drained, receiver) = drain.finish()?;
        let cost = begun.end(Duration::ZERO);
        let (sent, stats) = (sender.stats.bytes, sender.stats.since(&warm));
        if drained != sent {
            return Err(wrong(format!("{sent} bytes sent, {drained} received")));
        }
        let receiver = receiver.saturating_sub(warm_receiver);
        let mut sample = Sample::of(&cost, &stats, stats.packets, receiver);
        if let Some((calls, copies)) = case.unrefused {
            (sample.calls, sample.copies) = (calls, copies);
        }
        case.next = sender.next;
        Ok(sample)
    }

    /// Returns the CPU cost of the loop for these sizes without sending, s/GB: the median of
    /// [`LOOP_RUNS`] runs.
    pub fn loop_cost(&self, (bytes, segments): (u32, u32), to: SocketAddr) -> Result<f64, Error> {
        let mut cpu_costs = Vec::new();
        for _ in 0..LOOP_RUNS {
            let mut sender = Sender::of_nothing(&self.fixture, (bytes, segments), to)?;
            let begun = self.meter.begin();
            // A sender without a path cannot fail.
            let _ = sender.send_bytes(LOOP_PACKETS * u64::from(bytes));
            let cost = begun.end(Duration::ZERO);
            cpu_costs.push(sender.stats.cpu_s_per_gb(cost.process).unwrap_or(0.0));
        }
        cpu_costs.sort_by(f64::total_cmp);
        Ok(cpu_costs[cpu_costs.len() / 2])
    }
}

impl Sample {
    fn of(cost: &CpuCost, stats: &SendStats, units: u64, receiver: Duration) -> Sample {
        let cpu_s_per_gb = |time| stats.cpu_s_per_gb(time).unwrap_or(0.0);
        let share = |part: u64| part as f64 / stats.bytes.max(1) as f64;
        Sample {
            cpu_s_per_gb: cpu_s_per_gb(cost.charged()),
            kernel_threads: cpu_s_per_gb(cost.kernel_threads),
            others_share: cost.others_share(),
            receiver: cpu_s_per_gb(receiver),
            calls: stats.calls as f64 / units.max(1) as f64,
            copies: share(stats.copied_bytes),
            // The kernel may report earlier zero-copy sends within this run.
            zerocopy_copied: share(stats.zerocopy_copied_bytes).min(1.0),
            stolen_share: cost.stolen.as_secs_f64() / cost.wall.as_secs_f64().max(1e-9),
        }
    }
}

/// Checks that a device counted all bytes sent since `warm`. Frames may wait in a ring while the
/// device's queue is stopped, as on a busy machine, and leave at the next call: a few batches more
/// are sent for them, in no figure.
fn check_all_left(
    case: &Case,
    sender: &mut Sender<'_>,
    warm: &SendStats,
    before: (u64, u64),
) -> Result<(), String> {
    let mut looks = if case.is_by_device() { RING_LOOKS } else { 0 };
    loop {
        let now = sink_counts(&case.sink).map_err(|error| error.to_string())?;
        let counted = (now.0 - before.0, now.1 - before.1);
        match check_device(case, &sender.stats.since(warm), counted) {
            Err(_) if looks > 0 => looks -= 1,
            checked => return checked,
        }
        std::thread::sleep(RING_LOOK);
        sender.step().map_err(|error| error.to_string())?;
    }
}

/// Checks that a device counted all bytes sent; its `packets` and `bytes` include headers. Compares
/// packets where the kernel segments, and payload bytes where it does not.
fn check_device(
    case: &Case,
    stats: &SendStats,
    (packets, bytes): (u64, u64),
) -> Result<(), String> {
    let in_one = case.bytes + IP_AND_UDP_BYTES <= MTU_BYTES;
    if case.sink == Sink::IfbSoftware && in_one && packets < stats.packets {
        return Err(format!("{} packets sent, {packets} at the device", stats.packets));
    }
    let header_bytes = packets * u64::from(ETHERNET_BYTES + IP_AND_UDP_BYTES);
    // A fragment has no UDP header, so some payload may be subtracted as header: never the reverse.
    let there = bytes.saturating_sub(header_bytes);
    let slack = if in_one { 0 } else { packets * 8 };
    if there + slack < stats.bytes {
        return Err(format!("{} bytes sent, {there} at the device", stats.bytes));
    }
    Ok(())
}

/// Number of checks for frames that wait in a ring: half a second.
const RING_LOOKS: u32 = 50;
const RING_LOOK: Duration = Duration::from_millis(10);
const IP_AND_UDP_BYTES: u32 = 28;
const ETHERNET_BYTES: u32 = 14;
const CROWD_BYTES: u64 = 40_000_000;
const WARM_BATCHES: u64 = 4;
const SEGMENT_BYTES_MAX: u64 = 65_536;
const WARM_BYTES: u64 = 16 << 20;
const LOOP_RUNS: usize = 5;
const LOOP_PACKETS: u64 = 200_000;
