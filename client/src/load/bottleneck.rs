// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the bottleneck of a load: the earliest of all faults, in one line.
//!
//! Refusals, ends, gaps and drops carry their time and their cause. Lateness carries only a time:
//! the kernel timestamps packets on arrival, so they left late or were delayed on the way. The
//! overloaded CPU is inferred, and the line names the evidence. The first is this program's own
//! timers: a thread that needs little CPU and is late all the same does not get a processor. The
//! second is its share of this machine's load. The third is simultaneous lateness of many sessions:
//! a slow server is late for all sessions, a network rarely.
//!
//! Does not examine the server's machine.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::track_receiver::TRACK_REORDER;

/// The first fault of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// All verified sessions were faultless.
    Nothing,
    /// No session was verified, and no other fault is known.
    NotVerified,
    /// Sessions could not be set up.
    SetUp {
        /// Number of sessions.
        sessions: u32,
        /// Reason of the first failure.
        reason: String,
    },
    /// The server ended sessions.
    Ended {
        /// Number of sessions.
        sessions: u32,
        /// Reason of the first end.
        reason: String,
    },
    /// Sessions were granted, and no packet arrived.
    NothingCame {
        /// Number of sessions.
        sessions: u32,
        /// Verified sessions in all.
        verified: u32,
    },
    /// A socket of this machine dropped packets because its buffer was full.
    SocketBuffer {
        /// Packets dropped.
        packets: u64,
    },
    /// Packets are missing, and no buffer of this machine dropped them.
    Loss {
        /// Number of missing packets.
        packets: u64,
    },
    /// Packets were late, and so was this program, which lacked a processor.
    ClientProcessor {
        /// 99 % of this program's own timers were at most this late, in milliseconds.
        timers_late_ms: f64,
        /// Processors this program used.
        cores: f64,
    },
    /// Packets were late on a machine that was busy with other programs.
    OtherLoad {
        /// Processors used by programs other than this one and the server.
        cores: f64,
        /// Processors of the machine.
        cores_all: u32,
    },
    /// Packets of many sessions were late at the same time, while this program had spare CPU time.
    ServerProcessor {
        /// Sessions that were late within one tenth of a second, at its maximum.
        together: u32,
        /// Verified sessions in all.
        verified: u32,
        /// As in [`Bottleneck::ClientProcessor`].
        timers_late_ms: f64,
        /// As in [`Bottleneck::ClientProcessor`].
        cores: f64,
    },
    /// Packets of many sessions were late at the same time, from a server that had spare
    /// processors.
    ServerWaited {
        /// As in [`Bottleneck::ServerProcessor`].
        together: u32,
        /// Verified sessions in all.
        verified: u32,
        /// Processors the server used.
        cores: f64,
    },
    /// Packets of single sessions were late.
    Scattered {
        /// Sessions that were late.
        sessions: u32,
        /// Verified sessions in all.
        verified: u32,
    },
    /// Payloads differed from the asset, were not whole TS packets, or violated their track's
    /// format.
    Bytes {
        /// Number of packets.
        packets: u64,
    },
    /// Frames of tracks were incomplete, although none of their packets is missing.
    Frames {
        /// Number of frames.
        frames: u64,
    },
    /// The number of packets sent to counted sessions is unknown.
    Unaccounted {
        /// Number of sessions.
        sessions: u32,
    },
}

/// Facts known at the end of a load.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// The first session that could not be set up, and the number of such sessions.
    pub(super) failed: Option<(Instant, String, u32)>,
    pub(super) ended: Option<(Instant, String, u32)>,
    pub(super) verified: u32,
    /// Verified sessions without any packet, and those with too many late packets.
    pub(super) silent: u32,
    pub(super) late: u32,
    /// Maximum number of verified sessions that were late within the same tenth of a second.
    pub(super) together: u32,
    pub(super) first_late: Option<Instant>,
    pub(super) first_gap: Option<Instant>,
    pub(super) first_drop: Option<Instant>,
    /// Sums over all sessions for which these are known.
    pub(super) lost: u64,
    pub(super) dropped: u64,
    pub(super) wrong: u64,
    /// Incomplete frames, of tracks without a missing packet.
    pub(super) broken_frames: u64,
    /// Counted sessions whose sender's count is unknown.
    pub(super) unaccounted: u32,
    /// 99 % of this program's timers were at most this late.
    pub(super) timers_late: Duration,
    /// Processors used by this program and by the whole machine.
    pub(super) cores: f64,
    pub(super) cores_machine: Option<f64>,
    pub(super) cores_all: u32,
    /// Processors used by the server, if its process is visible.
    pub(super) cores_server: Option<f64>,
    /// The server is on this machine.
    pub(super) is_local: bool,
}

/// Returns the earliest of all faults.
pub(super) fn bottleneck(evidence: &Evidence) -> Bottleneck {
    let mut found: Vec<(Option<Instant>, Bottleneck)> = Vec::new();
    let verified = evidence.verified;
    if let Some((at, reason, sessions)) = &evidence.failed {
        let (reason, sessions) = (reason.clone(), *sessions);
        found.push((Some(*at), Bottleneck::SetUp { sessions, reason }));
    }
    if let Some((at, reason, sessions)) = &evidence.ended {
        let (reason, sessions) = (reason.clone(), *sessions);
        found.push((Some(*at), Bottleneck::Ended { sessions, reason }));
    }
    if evidence.dropped > 0 {
        found.push((evidence.first_drop, Bottleneck::SocketBuffer { packets: evidence.dropped }));
    }
    if evidence.silent > 0 {
        found.push((None, Bottleneck::NothingCame { sessions: evidence.silent, verified }));
    }
    if evidence.lost > evidence.dropped {
        let packets = evidence.lost - evidence.dropped;
        found.push((evidence.first_gap, Bottleneck::Loss { packets }));
    }
    if evidence.late > 0 {
        found.push((evidence.first_late, late(evidence)));
    }
    if evidence.wrong > 0 {
        found.push((None, Bottleneck::Bytes { packets: evidence.wrong }));
    }
    if evidence.broken_frames > 0 {
        found.push((None, Bottleneck::Frames { frames: evidence.broken_frames }));
    }
    if evidence.unaccounted > 0 {
        found.push((None, Bottleneck::Unaccounted { sessions: evidence.unaccounted }));
    }
    // The sort is stable: faults of the same time keep the order above. Faults without a time are
    // last.
    found.sort_by_key(|(at, _)| (at.is_none(), *at));
    let well = if verified > 0 { Bottleneck::Nothing } else { Bottleneck::NotVerified };
    found.into_iter().next().map_or(well, |(_, broke)| broke)
}

/// Determines the cause of lateness.
fn late(evidence: &Evidence) -> Bottleneck {
    let timers_late_ms = evidence.timers_late.as_secs_f64() * 1e3;
    let (cores, verified) = (evidence.cores, evidence.verified);
    let cores_all = f64::from(evidence.cores_all);
    let busy = evidence.cores_machine.unwrap_or(0.0);
    // Programs on one machine compete for the same processors: the one that uses them is the cause.
    let others = busy - cores;
    let is_others_doing = evidence.is_local && others > cores;
    if let Some(server) = evidence.cores_server
        && busy > cores_all * FULL
        && others - server > server.max(cores)
    {
        return Bottleneck::OtherLoad { cores: others - server, cores_all: evidence.cores_all };
    }
    if evidence.timers_late > TIMERS_LATE && !is_others_doing {
        return Bottleneck::ClientProcessor { timers_late_ms, cores };
    }
    let together = evidence.together;
    if together * 2 >= verified {
        if let Some(cores) = evidence.cores_server.filter(|cores| *cores < SERVER_BUSY) {
            return Bottleneck::ServerWaited { together, verified, cores };
        }
        return Bottleneck::ServerProcessor { together, verified, timers_late_ms, cores };
    }
    Bottleneck::Scattered { sessions: evidence.late, verified }
}

/// One line: the fault, its evidence, and the cure where it is known.
impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bottleneck::Nothing => f.write_str("nothing"),
            Bottleneck::NotVerified => f.write_str("not known: no session was verified"),
            Bottleneck::SetUp { sessions, reason } => {
                write!(f, "set-up: {sessions} sessions were not granted: {reason}")
            }
            Bottleneck::Ended { sessions, reason } => {
                write!(f, "the server: {sessions} sessions ended before their time: {reason}")
            }
            Bottleneck::NothingCame { sessions, verified } => write!(
                f,
                "the way: nothing came to {sessions} of {verified} verified sessions; is a \
                 firewall between?"
            ),
            Bottleneck::SocketBuffer { packets } => write!(
                f,
                "socket buffer: this machine dropped {packets} packets before they were read; \
                 raise net.core.rmem_max, or verify fewer sessions"
            ),
            Bottleneck::Loss { packets } => write!(
                f,
                "loss: {packets} packets did not come, and no buffer of this machine dropped them"
            ),
            Bottleneck::ClientProcessor { timers_late_ms, cores } => write!(
                f,
                "client CPU: this program's own timers were {timers_late_ms:.1} ms late (99 %), it \
                 used {cores:.2} cores; give it cores of its own, or another machine"
            ),
            Bottleneck::OtherLoad { cores, cores_all } => write!(
                f,
                "this machine: other programs used {cores:.2} of its {cores_all} cores; measure \
                 where nothing else runs"
            ),
            Bottleneck::ServerProcessor { together, verified, timers_late_ms, cores } => write!(
                f,
                "server CPU: {together} of {verified} verified sessions were late together, while \
                 this program used {cores:.2} cores and its timers were {timers_late_ms:.1} ms \
                 late (99 %)"
            ),
            Bottleneck::ServerWaited { together, verified, cores } => write!(
                f,
                "the server waited: {together} of {verified} verified sessions were late together, \
                 and it used {cores:.2} cores, so it was not short of them: its disk, or a machine \
                 that stood still (a hypervisor's other guests)"
            ),
            Bottleneck::Scattered { sessions, verified } => write!(
                f,
                "lateness: {sessions} of {verified} verified sessions, not together: the network, \
                 or the server's disk"
            ),
            Bottleneck::Bytes { packets } => {
                write!(f, "bytes: {packets} packets did not hold what they should")
            }
            Bottleneck::Frames { frames } => write!(
                f,
                "frames: {frames} were not whole, and no packet of theirs was lost; packets that \
                 come {} ms too late for their frame count as missing there",
                TRACK_REORDER.wait.as_millis()
            ),
            Bottleneck::Unaccounted { sessions } => write!(
                f,
                "not known: the senders of {sessions} sessions did not say in the end how many \
                 packets they sent"
            ),
        }
    }
}

/// A busy pacing thread uses a whole processor.
const SERVER_BUSY: f64 = 0.5;
/// A sleeping thread is woken within a millisecond where a processor is free.
const TIMERS_LATE: Duration = Duration::from_millis(5);

/// Share of busy processors above which a machine has no spare one.
const FULL: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGAN.get_or_init(Instant::now) + Duration::from_millis(ms)
    }

    fn line(evidence: Evidence) -> String {
        bottleneck(&Evidence { verified: 41, ..evidence }).to_string()
    }

    fn late_evidence() -> Evidence {
        Evidence {
            late: 41,
            together: 39,
            first_late: Some(at(50)),
            timers_late: Duration::from_micros(800),
            cores: 0.04,
            ..Evidence::default()
        }
    }

    #[test]
    fn every_line_is_as_documented() {
        assert_eq!(line(Evidence::default()), "nothing");
        assert_eq!(
            bottleneck(&Evidence::default()).to_string(),
            "not known: no session was verified"
        );
        let failed = Some((at(0), "rtsp h:554: SETUP: 453".to_owned(), 3));
        assert_eq!(
            line(Evidence { failed, ..Evidence::default() }),
            "set-up: 3 sessions were not granted: rtsp h:554: SETUP: 453"
        );
        let ended = Some((at(0), "the server closed the connection".to_owned(), 7));
        assert_eq!(
            line(Evidence { ended, ..Evidence::default() }),
            "the server: 7 sessions ended before their time: the server closed the connection"
        );
        assert_eq!(
            line(Evidence { silent: 2, ..Evidence::default() }),
            "the way: nothing came to 2 of 41 verified sessions; is a firewall between?"
        );
        let dropped = Evidence { dropped: 5, lost: 5, first_gap: Some(at(1)), ..late_evidence() };
        assert_eq!(
            line(Evidence { first_drop: Some(at(1)), ..dropped }),
            "socket buffer: this machine dropped 5 packets before they were read; raise \
             net.core.rmem_max, or verify fewer sessions"
        );
        assert_eq!(
            line(Evidence { lost: 9, first_gap: Some(at(1)), ..Evidence::default() }),
            "loss: 9 packets did not come, and no buffer of this machine dropped them"
        );
        assert_eq!(
            line(late_evidence()),
            "server CPU: 39 of 41 verified sessions were late together, while this program used \
             0.04 cores and its timers were 0.8 ms late (99 %)"
        );
        assert_eq!(
            line(Evidence { timers_late: Duration::from_millis(40), ..late_evidence() }),
            "client CPU: this program's own timers were 40.0 ms late (99 %), it used 0.04 cores; \
             give it cores of its own, or another machine"
        );
        assert_eq!(
            line(Evidence { late: 3, together: 1, ..late_evidence() }),
            "lateness: 3 of 41 verified sessions, not together: the network, or the server's disk"
        );
        let busy = Evidence { cores_machine: Some(1.9), cores_all: 2, ..late_evidence() };
        assert_eq!(
            line(Evidence { cores_server: Some(0.25), is_local: true, ..busy }),
            "this machine: other programs used 1.61 of its 2 cores; measure where nothing else runs"
        );
        assert_eq!(
            line(Evidence { wrong: 4, ..Evidence::default() }),
            "bytes: 4 packets did not hold what they should"
        );
        assert_eq!(
            line(Evidence { broken_frames: 3, ..Evidence::default() }),
            "frames: 3 were not whole, and no packet of theirs was lost; packets that come 200 ms \
             too late for their frame count as missing there"
        );
        assert_eq!(
            line(Evidence { unaccounted: 2, ..Evidence::default() }),
            "not known: the senders of 2 sessions did not say in the end how many packets they sent"
        );
    }

    #[test]
    fn what_came_first_is_told_and_not_what_followed() {
        let all = |late, gap, end| Evidence {
            first_late: Some(at(late)),
            first_gap: Some(at(gap)),
            lost: 3,
            ended: Some((at(end), "it left".to_owned(), 1)),
            ..late_evidence()
        };
        let first = |evidence| line(evidence).split(':').next().unwrap().to_owned();
        assert_eq!(first(all(1, 2, 3)), "server CPU");
        assert_eq!(first(all(2, 1, 3)), "loss");
        assert_eq!(first(all(3, 2, 1)), "the server");
    }

    #[test]
    fn a_gap_that_this_machine_made_is_not_called_loss() {
        let full = |lost| Evidence {
            lost,
            dropped: 5,
            first_drop: Some(at(2)),
            first_gap: Some(at(2)),
            ..Evidence::default()
        };
        assert_eq!(
            bottleneck(&full(5)),
            Bottleneck::SocketBuffer { packets: 5 },
            "the same packets, counted twice"
        );
        let also_lost = Evidence { first_gap: Some(at(1)), ..full(8) };
        assert_eq!(bottleneck(&also_lost), Bottleneck::Loss { packets: 3 });
    }

    #[test]
    fn on_one_machine_whoever_takes_the_processors_is_named() {
        let starved = Evidence {
            timers_late: Duration::from_millis(40),
            cores: 0.1,
            cores_machine: Some(2.0),
            is_local: true,
            verified: 41,
            ..late_evidence()
        };
        assert!(matches!(bottleneck(&starved), Bottleneck::ServerProcessor { .. }));
        let greedy = Evidence { cores: 1.2, ..starved.clone() };
        assert!(matches!(bottleneck(&greedy), Bottleneck::ClientProcessor { .. }));
        let served = Evidence { cores_server: Some(1.7), cores_all: 2, ..starved.clone() };
        assert!(matches!(bottleneck(&served), Bottleneck::ServerProcessor { .. }));
        let idle = Evidence { cores_server: Some(0.01), is_local: true, ..late_evidence() };
        let idle = Evidence { cores_all: 2, cores_machine: Some(0.2), verified: 41, ..idle };
        assert!(matches!(bottleneck(&idle), Bottleneck::ServerWaited { cores: 0.01, .. }));
        // On another machine the server has its own processors.
        let remote = Evidence { is_local: false, ..starved };
        assert!(matches!(bottleneck(&remote), Bottleneck::ClientProcessor { .. }));
    }
}
