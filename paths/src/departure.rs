// SPDX-License-Identifier: MIT OR Apache-2.0
//! Departure times: the queue of a destination's device that holds each packet until its time, and
//! times of that queue's clock.
//!
//! A sender that hands a burst over at once, each call with its own time, wakes once a burst and
//! still sends as smoothly as with one wake-up a packet. Two queueing disciplines respect the
//! times: `fq` (by `CLOCK_MONOTONIC`, without rights) and `etf` (by the clock it was set up with,
//! mostly `CLOCK_TAI`, which needs `CAP_NET_ADMIN`). Any other discipline ignores them and sends at
//! once, so the discipline of a destination is queried first: one question for the route, one for
//! the device and a dump of disciplines, five calls and some 50 µs on a host with a few devices.
//!
//! A segmented send is one packet to the queue (Linux 6.18 `net/sched/sch_fq.c`, `fq_dequeue`; the
//! kernel segments it behind the queue): its segments leave back to back at one time. So the
//! longest burst on the wire is the number of packets a call. `fq` holds 100 packets of a flow and
//! 10,000 of all flows, and drops further ones: a destination with departure times is therefore
//! informed of drops (`ENOBUFS`), which are sends to be repeated.
//!
//! Sources: `tc-fq(8)`, `tc-etf(8)`; Linux 6.18 `net/sched/sch_fq.c` (heeds times since 4.20),
//! `net/sched/sch_etf.c` (drops a packet of a socket with another clock, and one that is late),
//! `net/core/sock.c`.
//!
//! Does not set up a discipline, and does not set `SO_PRIORITY`, by which `mqprio` chooses a queue.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Errno, Unavailable};
use crate::frame::link;
use crate::frame::message::qdisc::{INGRESS, Qdisc, ROOT, ask_qdiscs, read_qdiscs};
use crate::frame::message::{ask_route, route};
use crate::send_stats::SendStats;
use crate::sys::{Netlink, clock_reading};

/// Time at which packets leave: nanoseconds of the clock of a [`DepartureQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Departure(u64);

impl Departure {
    /// Returns the departure at `ns` nanoseconds of the queue's clock.
    pub const fn at_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns its nanoseconds.
    pub(crate) const fn ns(self) -> u64 {
        self.0
    }
}

/// A device's queue that holds packets until their departure times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepartureQueue {
    /// The device's name.
    pub device: Arc<str>,
    /// Name of the queueing discipline: `fq` or `etf`.
    pub discipline: &'static str,
    /// Number of its clock, as in `clock_gettime(2)`.
    pub(crate) clock: i32,
    /// Least time between a send and its departure; the queue drops packets that are later.
    pub lead: Duration,
    /// True for an `etf` whose times are the latest ones.
    pub(crate) is_deadline: bool,
}

/// A reading of a queue's clock, for the conversion of moments.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    at: Instant,
    reading: Duration,
    lead: Duration,
}

impl DepartureQueue {
    /// Finds the queue of packets that leave by this connected socket.
    ///
    /// # Errors
    /// The need and the finding, such as `qdisc noqueue on eth0`, with the command that changes it.
    pub fn of(socket: &UdpSocket) -> Result<Self, Unavailable> {
        let mut stats = SendStats::default();
        let ends = socket.local_addr().and_then(|local| Ok((local, socket.peer_addr()?)));
        let (source, target) = ends.map_err(|error| unknown("getpeername", error.into()))?;
        let kernel = Netlink::open(&mut stats).map_err(|errno| unknown("socket", errno))?;
        let index = device_of(&kernel, canonical(source), canonical(target), &mut stats)?;
        let asked = link(&kernel, index, &mut stats);
        let device: Arc<str> = asked.map_err(|errno| unknown("RTM_GETLINK", errno))?.name.into();
        let list = qdiscs(&kernel, index, &mut stats);
        let list = list.map_err(|errno| unknown("RTM_GETQDISC", errno))?;
        Self::among(&list, device)
    }

    /// Returns the queue of an `fq` on that device. The caller has verified that the device has
    /// one; on a device without one, packets leave at once.
    pub fn fq(device: &str) -> Self {
        Self {
            device: device.into(),
            discipline: FQ,
            clock: libc::CLOCK_MONOTONIC,
            lead: Duration::ZERO,
            is_deadline: false,
        }
    }

    /// Chooses among the disciplines of a device: the root one, or those below `mq` and `mqprio`,
    /// which only spread packets over hardware queues.
    fn among(list: &[Qdisc], device: Arc<str>) -> Result<Self, Unavailable> {
        let root = list.iter().find(|qdisc| qdisc.parent == ROOT);
        let spreads = root.is_some_and(|root| SPREADING.contains(&&*root.kind));
        let below = |qdisc: &&Qdisc| ![ROOT, INGRESS].contains(&qdisc.parent);
        let queues: Vec<&Qdisc> = match spreads {
            true => list.iter().filter(below).collect(),
            false => root.into_iter().collect(),
        };
        let heeds = |qdisc: &&&Qdisc| qdisc.kind == FQ || qdisc.etf.is_some();
        let Some(first) = queues.first().filter(heeds) else {
            let other = queues.first().or(root.as_ref());
            return Err(lacking(other.map_or("none", |qdisc| &qdisc.kind), &device));
        };
        if let Some(other) =
            queues.iter().find(|qdisc| (&qdisc.kind, qdisc.etf) != (&first.kind, first.etf))
        {
            return Err(lacking(&format!("{} and {}", first.kind, other.kind), &device));
        }
        Ok(match first.etf {
            Some(etf) => Self {
                device,
                discipline: ETF,
                clock: etf.clock,
                lead: Duration::from_nanos(etf.delta_ns.max(0).unsigned_abs().into()) + ETF_MARGIN,
                is_deadline: etf.is_deadline,
            },
            None => Self::fq(&device),
        })
    }

    /// True when the queue drops late packets, and reports it.
    pub(crate) fn drops_late(&self) -> bool {
        self.discipline == ETF
    }

    /// Reads the queue's clock: two calls that most kernels implement in the vDSO. A reading serves
    /// the sends of one burst; clocks drift apart by less than a microsecond meanwhile.
    pub fn reading(&self) -> ClockReading {
        ClockReading { at: Instant::now(), reading: clock_reading(self.clock), lead: self.lead }
    }
}

impl ClockReading {
    /// Returns the departure at `moment`; the soonest one for a moment that is past or too near.
    pub fn departure(&self, moment: Instant) -> Departure {
        let ahead = moment.saturating_duration_since(self.at).max(self.lead);
        let ns = self.reading.saturating_add(ahead).as_nanos();
        Departure(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Returns the number of the device by which datagrams leave.
fn device_of(
    kernel: &Netlink,
    source: SocketAddr,
    target: SocketAddr,
    stats: &mut SendStats,
) -> Result<u32, Unavailable> {
    // A link-local address has no route without its device.
    if let SocketAddr::V6(target) = target
        && target.scope_id() != 0
    {
        return Ok(target.scope_id());
    }
    let mut answer = vec![0; ANSWER_BYTES];
    let asked = kernel.ask(&ask_route(source, target), &mut answer, stats).and_then(route);
    asked.map(|route| route.device).map_err(|errno| unknown("RTM_GETROUTE", errno))
}

/// Returns an IPv4-mapped IPv6 address as an IPv4 address, and any other unchanged.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn qdiscs(kernel: &Netlink, device: u32, stats: &mut SendStats) -> Result<Vec<Qdisc>, Errno> {
    let mut answer = vec![0; ANSWER_BYTES];
    let mut list = Vec::new();
    let mut part = kernel.ask(&ask_qdiscs(), &mut answer, stats)?;
    for _ in 0..PARTS_MAX {
        if read_qdiscs(part, device, (&mut list, QDISCS_MAX))? {
            return Ok(list);
        }
        part = kernel.more(&mut answer, stats)?;
    }
    Err(Errno::new(libc::EMSGSIZE))
}

fn lacking(found: &str, device: &str) -> Unavailable {
    Unavailable {
        need: NEED.to_owned(),
        // The queue's own limit of 10,000 packets suffices for few sessions (tc-fq(8)).
        found: format!(
            "qdisc {found} on {device}; tc qdisc replace dev {device} root fq limit 100000"
        ),
    }
}

fn unknown(call: &str, errno: Errno) -> Unavailable {
    Unavailable { need: NEED.to_owned(), found: format!("{call}: {errno}") }
}

const NEED: &str = "a queueing discipline that heeds departure times (fq or etf)";
const FQ: &str = "fq";
const ETF: &str = "etf";
/// Disciplines that have a queue for each queue of the hardware.
const SPREADING: &[&str] = &["mq", "mqprio", "multiq"];
/// Time from reading the clock to the packet's entry in an `etf`, which drops late packets.
const ETF_MARGIN: Duration = Duration::from_micros(200);
/// Part of a dump (the kernel sends up to 32 KiB at a time).
const ANSWER_BYTES: usize = 32 * 1024;
/// Parts of a dump: some 200,000 devices.
const PARTS_MAX: usize = 2048;
/// Disciplines of one device: more than there are hardware queues on a card.
const QDISCS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::message::qdisc::EtfParameters;

    fn qdisc(kind: &str, parent: u32) -> Qdisc {
        let parameters = EtfParameters { delta_ns: 300_000, clock: 11, is_deadline: false };
        let etf = (kind == ETF).then_some(parameters);
        Qdisc { kind: kind.to_owned(), parent, etf }
    }

    fn among(list: &[(&str, u32)]) -> Result<(&'static str, i32), String> {
        let list: Vec<Qdisc> = list.iter().map(|(kind, parent)| qdisc(kind, *parent)).collect();
        let queue = DepartureQueue::among(&list, "eth0".into());
        queue.map(|queue| (queue.discipline, queue.clock)).map_err(|reason| reason.to_string())
    }

    #[test]
    fn fq_and_etf_heed_times_also_below_hardware_queues() {
        assert_eq!(among(&[("fq", ROOT)]), Ok((FQ, libc::CLOCK_MONOTONIC)));
        assert_eq!(among(&[("clsact", INGRESS), ("fq", ROOT)]), Ok((FQ, libc::CLOCK_MONOTONIC)));
        assert_eq!(among(&[("mq", ROOT), ("fq", 1), ("fq", 2)]), Ok((FQ, libc::CLOCK_MONOTONIC)));
        assert_eq!(among(&[("etf", ROOT)]), Ok((ETF, 11)));
        let lead = DepartureQueue::among(&[qdisc("etf", ROOT)], "eth0".into()).unwrap().lead;
        assert_eq!(lead, Duration::from_micros(500));
    }

    #[test]
    fn other_disciplines_are_refused_with_the_command_that_changes_them() {
        let refusal = |found| {
            Err(format!(
                "needs a queueing discipline that heeds departure times (fq or etf), found qdisc \
                 {found} on eth0; tc qdisc replace dev eth0 root fq limit 100000"
            ))
        };
        assert_eq!(among(&[("noqueue", ROOT)]), refusal("noqueue"));
        assert_eq!(among(&[("mq", ROOT), ("fq_codel", 1)]), refusal("fq_codel"));
        assert_eq!(among(&[("mqprio", ROOT), ("fq", 1), ("etf", 2)]), refusal("fq and etf"));
        assert_eq!(among(&[("prio", ROOT), ("fq", 0x1_0001)]), refusal("prio"));
        assert_eq!(among(&[("mq", ROOT)]), refusal("mq"));
        assert_eq!(among(&[]), refusal("none"));
    }

    #[test]
    fn moments_become_times_of_the_queues_clock() {
        let (at, reading) = (Instant::now(), Duration::from_secs(1000));
        let fq = ClockReading { at, reading, lead: Duration::ZERO };
        let ms = Duration::from_millis;
        assert_eq!(fq.departure(at + ms(3)), Departure(1_000_003_000_000));
        assert_eq!(fq.departure(at), Departure(1_000_000_000_000), "past moments are now");
        let etf = ClockReading { lead: ms(5), ..fq };
        assert_eq!(etf.departure(at + ms(3)), Departure(1_000_005_000_000));
        assert!(etf.departure(at + ms(9)) > etf.departure(at + ms(8)));
    }

    #[test]
    fn the_monotonic_clock_is_that_of_instants() {
        let queue = DepartureQueue::among(&[qdisc(FQ, ROOT)], "lo".into()).unwrap();
        // Each reads both clocks one after the other, and may be delayed in between.
        let differences = (0..100).map(|_| {
            let (first, second) = (queue.reading(), queue.reading());
            (second.at - first.at).abs_diff(second.reading - first.reading)
        });
        let least = differences.min().unwrap();
        assert!(least < Duration::from_millis(50), "{least:?}");
    }

    /// Every host has loopback, which has no queue.
    #[test]
    fn loopback_is_refused_by_its_discipline() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else {
                eprintln!("skip: no loopback for {address}");
                continue;
            };
            socket.connect(socket.local_addr().unwrap()).unwrap();
            match DepartureQueue::of(&socket) {
                Ok(queue) => eprintln!("skip: this host's loopback has {}", queue.discipline),
                Err(reason) => {
                    let found = reason.found;
                    let cure = " on lo; tc qdisc replace dev lo root fq limit 100000";
                    assert!(found.ends_with(cure), "{found}");
                }
            }
        }
    }
}
