// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets and bytes sent, their lateness and their CPU cost.
//!
//! Each pacer thread owns its [`PacerCounters`] and publishes a copy every [`PUBLISH_EVERY`] and
//! before a longer sleep. Counting takes no lock. Publishing locks the copy for an addition of
//! histograms, some microseconds, and is postponed while a reader holds the lock.
//!
//! Does not keep history: rates are differences of two samples.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clock::Clock;
use hdrhistogram::Histogram;
use media::PlanStore;
use parking_lot::Mutex;
use paths::SendStats;
use serde::Serialize;

use crate::limits::RateLimit;
use crate::tls::TlsCounters;

/// Counters of one pacer thread.
pub(crate) struct PacerCounters {
    /// Statistics of the paths.
    pub(crate) stats: SendStats,
    /// Microseconds from each packet's due time to its send call.
    pub(crate) late_us: Histogram<u64>,
    /// Times a session was due but its pages were not in memory.
    pub(crate) cold_stalls: u64,
    /// Times a session fell so far behind that its clock was moved.
    pub(crate) clock_moves: u64,
    /// Packets dropped by a queue because they were late for their departure times.
    pub(crate) departures_missed: u64,
    /// ICMP reports that quote a recently sent packet, and other reports.
    pub(crate) icmp_verified: u64,
    pub(crate) icmp_ignored: u64,
    /// Times a slow reader's session skipped to a later place to start, and the packets skipped.
    pub(crate) reader_skips: u64,
    pub(crate) packets_skipped: u64,
    /// Packets that were late because their reader was.
    pub(crate) packets_late_reader: u64,
    /// Processor time of the thread, as it was published last.
    pub(crate) cpu: Duration,
}

impl PacerCounters {
    pub(crate) fn new() -> PacerCounters {
        let late_us = Histogram::new_with_bounds(1, LATE_US_MAX, 2).expect("bounds are constants");
        PacerCounters {
            stats: SendStats::default(),
            late_us,
            cold_stalls: 0,
            clock_moves: 0,
            departures_missed: 0,
            icmp_verified: 0,
            icmp_ignored: 0,
            reader_skips: 0,
            packets_skipped: 0,
            packets_late_reader: 0,
            cpu: Duration::ZERO,
        }
    }

    /// Adds the statistics of a send call of `packets` that were `late`.
    pub(crate) fn record(&mut self, stats: &SendStats, late: Duration, packets: u64) {
        self.stats += *stats;
        if packets > 0 {
            let us = (late.as_micros() as u64).clamp(1, LATE_US_MAX);
            self.late_us.saturating_record_n(us, packets);
        }
    }

    /// Adds the statistics of a send call of `packets` whose reader was late.
    pub(crate) fn record_late_reader(&mut self, stats: &SendStats, packets: u64) {
        self.stats += *stats;
        self.packets_late_reader += packets;
    }

    /// Adds the counters of a thread.
    pub(crate) fn add(&mut self, other: &PacerCounters) {
        self.stats += other.stats;
        self.late_us.add(&other.late_us).expect("equal bounds");
        self.cold_stalls += other.cold_stalls;
        self.clock_moves += other.clock_moves;
        self.departures_missed += other.departures_missed;
        self.icmp_verified += other.icmp_verified;
        self.icmp_ignored += other.icmp_ignored;
        self.reader_skips += other.reader_skips;
        self.packets_skipped += other.packets_skipped;
        self.packets_late_reader += other.packets_late_reader;
        self.cpu += other.cpu;
    }

    /// Copies `other` without allocation.
    fn copy(&mut self, other: &PacerCounters) {
        let PacerCounters { cold_stalls, clock_moves, icmp_verified, icmp_ignored, .. } = *other;
        let PacerCounters { reader_skips, packets_skipped, packets_late_reader, .. } = *other;
        self.reader_skips = reader_skips;
        self.packets_skipped = packets_skipped;
        self.packets_late_reader = packets_late_reader;
        self.departures_missed = other.departures_missed;
        self.cpu = other.cpu;
        self.stats = other.stats;
        self.late_us.set_to(&other.late_us).expect("equal bounds");
        self.cold_stalls = cold_stalls;
        self.clock_moves = clock_moves;
        self.icmp_verified = icmp_verified;
        self.icmp_ignored = icmp_ignored;
    }
}

/// Counters of a pacer thread, and the copy for readers.
pub(crate) struct PacerMeter {
    pub(crate) counters: PacerCounters,
    published: Arc<Mutex<PacerCounters>>,
    next_at: Instant,
}

impl PacerMeter {
    pub(crate) fn new(published: Arc<Mutex<PacerCounters>>, now: Instant) -> PacerMeter {
        PacerMeter { counters: PacerCounters::new(), published, next_at: now }
    }

    /// Publishes if the next publication falls due before `wake`, until which the thread sleeps;
    /// `None` means without end.
    pub(crate) fn publish_before(&mut self, wake: Option<Instant>, clock: &Clock) {
        if wake.is_some_and(|wake| wake < self.next_at) {
            return;
        }
        let published = match wake {
            // If a reader holds the lock, the next wake publishes.
            Some(_) => self.published.try_lock(),
            None => Some(self.published.lock()),
        };
        if let Some(mut published) = published {
            self.counters.cpu = thread_time();
            published.copy(&self.counters);
            self.next_at = clock.now() + PUBLISH_EVERY;
        }
    }
}

/// Greatest age of the numbers in the index. A copy of 5 µs at this interval takes 0.01 % of a
/// core.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

const LATE_US_MAX: u64 = 60_000_000;

/// Counters of paced and limited downloads.
#[derive(Default)]
pub(crate) struct DownloadPaceCounters {
    pub(crate) paced: AtomicU64,
    pub(crate) bytes_paced: AtomicU64,
    limited: [AtomicU64; 3],
}

impl DownloadPaceCounters {
    /// Returns the number of downloads that were slowed to this limit.
    pub(crate) fn limited(&self, limit: RateLimit) -> u64 {
        self.limited[limit as usize].load(Ordering::Relaxed)
    }

    /// Counts a download that is slowed to this limit.
    pub(crate) fn count_limited(&self, limit: RateLimit) {
        self.limited[limit as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Server-wide meters.
pub(crate) struct Meters {
    /// Copies published by the threads.
    pub(crate) pacers: Vec<Arc<Mutex<PacerCounters>>>,
    pub(crate) downloads: Mutex<SendStats>,
    pub(crate) sessions_total: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) sessions_refused: AtomicU64,
    /// Shared with the pacers.
    pub(crate) sessions_txtime: Arc<AtomicU64>,
    pub(crate) requests_malformed: AtomicU64,
    /// Answers over HTTP by the first digit of their status; 0 is not used.
    pub(crate) http_answers: [AtomicU64; 6],
    pub(crate) frames_unexpected: AtomicU64,
    pub(crate) download_pace: DownloadPaceCounters,
    /// Counters shared with the terms of TLS.
    pub(crate) tls: Arc<TlsCounters>,
    /// Counters shared with the store of images.
    pub(crate) images_dropped: Arc<AtomicU64>,
    pub(crate) images_invalid: Arc<AtomicU64>,
    /// Plan store with its own counters; set once when it is open.
    pub(crate) plans: OnceLock<PlanStore>,
}

/// Statistics of a server since its start; part of `/index.json`.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Sessions set up and not yet ended.
    pub sessions: usize,
    /// Sessions among them whose media uses their RTSP connection.
    pub sessions_interleaved: usize,
    /// Sessions set up since the start.
    pub sessions_total: u64,
    /// Sessions refused at a limit, or for want of a file descriptor or a port.
    pub sessions_refused: u64,
    /// Sessions set up and not yet ended whose packets the kernel holds until they are due
    /// ([`crate::PacketPacing::Txtime`]); the pacer alone paces the others.
    pub sessions_txtime: u64,
    /// Connections open now (RTSP and HTTP).
    pub connections: usize,
    /// Connections refused at a limit, or for want of a file descriptor.
    pub connections_refused: u64,
    /// Refusals at each limit on clients, by the limit's name.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Requests that broke their protocol.
    pub requests_malformed: u64,
    /// Interleaved frames of clients on channels that carry nothing from clients.
    pub frames_unexpected: u64,
    /// Downloads that were held to a multiple of their media's rate.
    pub downloads_paced: u64,
    /// Bytes of them that left at that rate, behind their start bursts.
    pub bytes_paced: u64,
    /// Downloads that were slowed to the limit of their connection.
    pub downloads_limited_connection: u64,
    /// Downloads that were slowed to their share of the limit of their address.
    pub downloads_limited_address: u64,
    /// Downloads that were slowed to their share of the limit in total.
    pub downloads_limited_total: u64,
    /// TLS handshakes completed, resumed ones included.
    pub tls_handshakes: u64,
    /// Handshakes that resumed an earlier session.
    pub tls_resumed: u64,
    /// Connections that the kernel encrypted behind their handshake.
    pub tls_in_kernel: u64,
    /// Handshakes that did not complete.
    pub tls_failed: u64,
    /// Certificates loaded while the server ran.
    pub tls_reloads: u64,
    /// Changes of the certificate's files that could not be loaded.
    pub tls_reloads_failed: u64,
    /// RTP packets handed to the kernel.
    pub packets: u64,
    /// Bytes of RTP (header and payload) and of download bodies handed to the kernel.
    pub bytes: u64,
    /// Bytes of these that were copied by the processor on the way to the socket.
    pub bytes_copied: u64,
    /// System calls made for them.
    pub calls: u64,
    /// Sends the kernel refused for want of buffer space (repeated a moment later, nothing lost).
    pub refused: u64,
    /// Lateness of packets. None is ever dropped: it is sent, or its session ends with a
    /// reason.
    pub late_us: SendLateness,
    /// Times a due session waited for pages that were not in memory.
    pub cold_stalls: u64,
    /// Times a session's clock was moved because it was too far behind.
    pub clock_moves: u64,
    /// Packets that a queue dropped because they were late for their departure times.
    pub departures_missed: u64,
    /// ICMP reports to media sockets that quote a packet which was sent lately.
    pub icmp_verified: u64,
    /// ICMP reports that do not, or that claim no more than a passing fault: counted and ignored.
    pub icmp_ignored: u64,
    /// Times the session of a slow reader over TCP skipped to a later place to start.
    pub reader_skips: u64,
    /// RTP packets that these readers missed.
    pub packets_skipped: u64,
    /// RTP packets that waited for a slow reader over TCP; not counted in `late_us`.
    pub packets_late_reader: u64,
    /// Cache look-ups that found a damaged or outdated plan, which is made again.
    pub plans_invalid: u64,
    /// Cache look-ups that found a damaged or outdated wire image, which is made again.
    pub images_invalid: u64,
    /// Wire images dropped because a block had changed.
    pub images_dropped: u64,
    /// CPU seconds, user and system, of the whole process.
    pub processor_seconds: f64,
    /// CPU seconds per 10⁹ bytes delivered since the start.
    pub cpu_s_per_gb: Option<f64>,
    /// Bytes of the process's anonymous memory (heap and stacks, without the mapped page cache).
    pub memory_bytes: u64,
}

/// Microseconds from a packet's due time to its send call.
#[derive(Debug, Clone, Copy, Serialize, Default)]
#[non_exhaustive]
pub struct SendLateness {
    /// Median.
    pub p50: u64,
    /// 99 % of packets were at most this late.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

impl Meters {
    pub(crate) fn new(pacers: usize) -> Meters {
        let meter = || Arc::new(Mutex::new(PacerCounters::new()));
        Meters {
            pacers: (0..pacers).map(|_| meter()).collect(),
            downloads: Mutex::new(SendStats::default()),
            sessions_total: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            sessions_refused: AtomicU64::new(0),
            sessions_txtime: Arc::default(),
            requests_malformed: AtomicU64::new(0),
            http_answers: Default::default(),
            frames_unexpected: AtomicU64::new(0),
            download_pace: DownloadPaceCounters::default(),
            tls: Arc::default(),
            images_dropped: Arc::default(),
            images_invalid: Arc::default(),
            plans: OnceLock::new(),
        }
    }

    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters of all pacers together.
    pub(crate) fn pacer_counters(&self) -> PacerCounters {
        let mut all = PacerCounters::new();
        self.pacers.iter().for_each(|pacer| all.add(&pacer.lock()));
        all
    }

    pub(crate) fn report(
        &self,
        (sessions, sessions_interleaved): (usize, usize),
        connections: usize,
        refusals: BTreeMap<&'static str, u64>,
    ) -> ServerMetrics {
        let mut all = self.pacer_counters();
        let packets = all.stats.packets;
        all.stats += *self.downloads.lock();
        let late = |quantile| all.late_us.value_at_quantile(quantile);
        let processor_seconds = processor_seconds();
        let bytes = all.stats.bytes;
        ServerMetrics {
            sessions,
            sessions_interleaved,
            sessions_total: self.sessions_total.load(Ordering::Relaxed),
            sessions_refused: self.sessions_refused.load(Ordering::Relaxed),
            sessions_txtime: self.sessions_txtime.load(Ordering::Relaxed),
            connections,
            connections_refused: self.connections_refused.load(Ordering::Relaxed),
            refusals,
            requests_malformed: self.requests_malformed.load(Ordering::Relaxed),
            frames_unexpected: self.frames_unexpected.load(Ordering::Relaxed),
            downloads_paced: self.download_pace.paced.load(Ordering::Relaxed),
            bytes_paced: self.download_pace.bytes_paced.load(Ordering::Relaxed),
            downloads_limited_connection: self.download_pace.limited(RateLimit::Connection),
            downloads_limited_address: self.download_pace.limited(RateLimit::Address),
            downloads_limited_total: self.download_pace.limited(RateLimit::Total),
            tls_handshakes: self.tls.handshakes.load(Ordering::Relaxed),
            tls_resumed: self.tls.resumed.load(Ordering::Relaxed),
            tls_in_kernel: self.tls.in_kernel.load(Ordering::Relaxed),
            tls_failed: self.tls.failed.load(Ordering::Relaxed),
            tls_reloads: self.tls.reloads.load(Ordering::Relaxed),
            tls_reloads_failed: self.tls.reloads_failed.load(Ordering::Relaxed),
            packets,
            bytes,
            bytes_copied: all.stats.copied_bytes,
            calls: all.stats.calls,
            refused: all.stats.refused,
            late_us: SendLateness {
                p50: late(0.5),
                p99: late(0.99),
                p999: late(0.999),
                max: all.late_us.max(),
            },
            cold_stalls: all.cold_stalls,
            clock_moves: all.clock_moves,
            departures_missed: all.departures_missed,
            icmp_verified: all.icmp_verified,
            icmp_ignored: all.icmp_ignored,
            reader_skips: all.reader_skips,
            packets_skipped: all.packets_skipped,
            packets_late_reader: all.packets_late_reader,
            plans_invalid: self.plans.get().map_or(0, PlanStore::invalid_plans),
            images_invalid: self.images_invalid.load(Ordering::Relaxed),
            images_dropped: self.images_dropped.load(Ordering::Relaxed),
            processor_seconds,
            cpu_s_per_gb: (bytes > 0).then(|| processor_seconds / (bytes as f64 / 1e9)),
            memory_bytes: memory_bytes(),
        }
    }
}

/// Returns the user and system time of the process so far.
pub(crate) fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the user and system time of the calling thread so far.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Returns RssAnon of proc_pid_status(5), converted from KiB to bytes.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = field.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
