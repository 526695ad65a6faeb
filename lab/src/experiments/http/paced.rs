// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many downloads of a clip at its bit rate: CPU cost, and the share of connections at that rate.
//!
//! A server that paces by the kernel (SO_MAX_PACING_RATE) has its packets sent by a timer's softirq
//! on a core that would be idle, and that time is charged to no process. So the busy time of the
//! server's core, interrupts included, is reported beside the processor time of the server's
//! process.
//!
//! Sources: socket(7) (SO_MAX_PACING_RATE), proc_stat(5).
//! Does not judge how even a stream is within a second.

use std::fs;
use std::time::{Duration, Instant};

use super::client::{Client, Target};
use super::figures::Rates;
use super::{Bench, Case, Point, verify, wrong};
use crate::experiments::peers::clip::BITS_PER_SECOND;
use crate::experiments::peers::peer::Running;
use measure::Error;
use measure::meter::thread_time;

/// Figures of paced downloads alone.
pub(super) struct Paced {
    /// Share of connections within [`RATE_PART`] of the clip's rate.
    pub(super) share_at_rate: f64,
    /// Median rate of a connection, Mb/s.
    pub(super) rate_mbps: f64,
    /// Seconds in which the server's core was busy.
    pub(super) busy_s: f64,
}

impl Bench<'_> {
    /// Downloads on all connections; measures after they have settled.
    pub(super) fn paced(&self, running: &Running, case: &Case) -> Result<Point, Error> {
        let clip = fs::read(self.served.join(&case.target.name));
        let clip = clip.map_err(Error::host("reading the clip"))?;
        let is_right = |place: u64, bytes: &[u8]| clip[place as usize..].starts_with(bytes);
        let part = Target { part: Some(VERIFIED_BYTES), ..case.target.clone() };
        verify(running.http_port, &part, is_right).map_err(wrong)?;
        let client = Client::open(running.http_port, case.connections, case.target.requests());
        let mut client = client.map_err(wrong)?;
        client.run(self.paced_settle(), 0).map_err(wrong)?;
        let core = self.server.last();
        let work = || {
            let (began, before, busy) = (Instant::now(), thread_time(), busy(core));
            let (mut bytes, mut rates) = (0, Rates::begin(client.bytes()));
            while began.elapsed() < self.paced_time() {
                bytes += client.run(STEP, 0).map_err(wrong)?.bytes;
                rates.add(began.elapsed().as_secs_f64(), client.bytes());
            }
            Ok((bytes, rates, thread_time() - before, self::busy(core).saturating_sub(busy)))
        };
        let ((bytes, rates, client, busy), cpu_s, seconds) =
            self.instruments.around(&running.processes, work)?;
        Ok(Point {
            responses: 0.0,
            bytes: bytes as f64,
            cpu_s,
            seconds,
            client_s: client.as_secs_f64(),
            latencies: None,
            paced: Some(Paced {
                share_at_rate: rates.share_within(BITS_PER_SECOND as f64, RATE_PART),
                rate_mbps: rates.median() / 1e6,
                busy_s: busy.as_secs_f64(),
            }),
        })
    }
}

/// Returns the time in which a core was not idle since the system started.
fn busy(core: usize) -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_of(&text, core)
}

/// Parses a core's line: user nice system idle iowait irq softirq, in hundredths of a second.
fn busy_of(text: &str, core: usize) -> Duration {
    let name = format!("cpu{core} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    let of = |index: usize| ticks.get(index).copied().unwrap_or(0);
    Duration::from_millis([0, 1, 2, 5, 6].into_iter().map(of).sum::<u64>() * 10)
}

/// Distance from the clip's rate up to which a connection counts as at it.
pub(super) const RATE_PART: f64 = 0.05;
const VERIFIED_BYTES: u64 = 100_000;
const STEP: Duration = Duration::from_millis(100);

#[test]
fn the_busy_time_of_one_core_is_read() {
    let text = "cpu  9 9 9 9 9 9 9\ncpu0 1 2 3 400 500 6 7 8\ncpu10 1 0 0 0 0 0 0\nintr 5\n";
    assert_eq!(busy_of(text, 0), Duration::from_millis(190));
    assert_eq!(busy_of(text, 10), Duration::from_millis(10));
    assert_eq!(busy_of(text, 1), Duration::ZERO);
}
