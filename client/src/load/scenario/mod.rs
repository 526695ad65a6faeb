// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of sessions of a load that behave differently, and their share of the sessions.
//!
//! Real viewers seek, pause, leave and return, and a few read slowly or hang. A scenario sets the
//! number of each, so that a load shows their effect on the others. A run is repeatable: all
//! choices derive from the seed (`timetable`).
//!
//! Modules: `draft` (unchecked settings, and their validation), `timetable` (times and positions of
//! a session's actions).
//!
//! Sources: RFC 2326 §10.5 (PLAY), §10.6 (PAUSE), §10.7 (TEARDOWN), §10.12 (interleaved).
//! Does not read files, play different streams, or change the behaviour of a session.

mod draft;
mod timetable;

use std::time::Duration;

use serde::Serialize;

use crate::error::{ClientSetting, Error};
use crate::transport::StreamTransport;

pub use draft::{GroupDraft, InvalidScenario, ScenarioDraft, ScenarioKey};
pub(super) use timetable::Timetable;

/// A checked scenario.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// Length of the measured time; the load's own by default.
    pub length: Option<Duration>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Groups in the order of the report; at least one.
    pub groups: Vec<ScenarioGroup>,
}

/// Sessions that behave alike.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScenarioGroup {
    /// Name in the report.
    pub name: String,
    /// Share of the sessions, in parts of the sum over all groups.
    pub share: u32,
    /// Transport requested of the server; that of the load by default.
    pub transport: Option<StreamTransport>,
    /// Behaviour of its sessions.
    pub behaviour: Behaviour,
}

impl ScenarioGroup {
    /// The error for a group that slows its sender, which is only possible over a connection.
    pub(super) fn needs_a_connection(&self, transport: StreamTransport) -> Error {
        let ScenarioGroup { name, behaviour, .. } = self;
        Error::Setting {
            setting: ClientSetting::Scenario,
            found: format!("group {name}: {} over {transport}", behaviour.name()),
            cure: r#"write transport = "tcp" or "http" in the group: UDP holds no sender back"#
                .to_owned(),
        }
    }

    /// The error of a transport that carries media past the TLS of the URL.
    pub(super) fn leaves_tls(&self, transport: StreamTransport) -> Error {
        Error::Setting {
            setting: ClientSetting::Scenario,
            found: format!("group {}: {transport} with rtsps://", self.name),
            cure: r#"write transport = "tcp" in the group, or leave it out"#.to_owned(),
        }
    }
}

/// Least and most value of a time, which is chosen uniformly between the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeRange {
    /// Shortest.
    pub least: Duration,
    /// Longest; not below `least`.
    pub most: Duration,
}

/// Behaviour of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Behaviour {
    /// Plays from the beginning to the end of the load.
    Steady,
    /// PAUSE, then PLAY with a Range at a random position, as players seek.
    Seek {
        /// Time between two seeks.
        every: TimeRange,
    },
    /// PAUSE, and PLAY after a while.
    Pause {
        /// Time between PLAY and PAUSE.
        every: TimeRange,
        /// Length of a pause.
        pause: TimeRange,
    },
    /// TEARDOWN; a new session after a while.
    Leave {
        /// Time from PLAY to TEARDOWN.
        stay: TimeRange,
        /// Time until the next session.
        away: TimeRange,
    },
    /// Closes its sockets without TEARDOWN; a new session after a while.
    Vanish {
        /// Time from PLAY to the end.
        stay: TimeRange,
        /// Time until the next session.
        away: TimeRange,
    },
    /// Reads its connection at this rate.
    Slow {
        /// Bytes a second, frames and replies together.
        bytes_per_second: u32,
    },
    /// Plays and never reads its connection again.
    Stall,
}

/// Names of all behaviours.
pub(super) const BEHAVIOURS: [&str; 7] =
    ["steady", "seek", "pause", "leave", "vanish", "slow", "stall"];

impl Behaviour {
    /// Its name in a scenario file.
    pub fn name(self) -> &'static str {
        match self {
            Behaviour::Steady => "steady",
            Behaviour::Seek { .. } => "seek",
            Behaviour::Pause { .. } => "pause",
            Behaviour::Leave { .. } => "leave",
            Behaviour::Vanish { .. } => "vanish",
            Behaviour::Slow { .. } => "slow",
            Behaviour::Stall => "stall",
        }
    }

    /// True where late and lost packets are not the session's own fault.
    pub fn is_judged(self) -> bool {
        !matches!(self, Behaviour::Slow { .. } | Behaviour::Stall)
    }

    /// True where a session that has ended starts again.
    pub(super) fn comes_back(self) -> bool {
        matches!(self, Behaviour::Leave { .. } | Behaviour::Vanish { .. })
    }

    /// Longest time that a session plays from one position, given that of a whole run.
    fn plays_at_most(self, run: Duration) -> Duration {
        match self {
            Behaviour::Seek { every } => every.most + PLACE_MARGIN,
            Behaviour::Leave { stay, .. } | Behaviour::Vanish { stay, .. } => stay.most.min(run),
            _ => run,
        }
    }
}

impl Scenario {
    /// Assigns sessions to groups: returns the group of each session, in order of their starts.
    /// Groups are interleaved, so that each grows over the whole ramp.
    ///
    /// # Errors
    /// Caller: a group would have no session.
    pub(super) fn deal(&self, sessions: u32) -> Result<Vec<usize>, Error> {
        let parts: u64 = self.groups.iter().map(|group| u64::from(group.share)).sum();
        let mut dealt = vec![0_u64; self.groups.len()];
        let mut order = Vec::with_capacity(sessions as usize);
        for number in 1..=u64::from(sessions) {
            // The group that is furthest below its share, multiplied by `parts`.
            let lacks = |group: usize| {
                let due = u64::from(self.groups[group].share) * number;
                (due + parts).saturating_sub(dealt[group] * parts)
            };
            let group = (0..self.groups.len()).rev().max_by_key(|group| lacks(*group)).unwrap_or(0);
            dealt[group] += 1;
            order.push(group);
        }
        match dealt.iter().position(|count| *count == 0) {
            None => Ok(order),
            Some(group) => Err(self.no_session(group, sessions, parts)),
        }
    }

    fn no_session(&self, group: usize, sessions: u32, parts: u64) -> Error {
        let ScenarioGroup { name, share, .. } = &self.groups[group];
        let enough = parts.div_ceil(u64::from(*share));
        Error::Setting {
            setting: ClientSetting::Scenario,
            found: format!("group {name}: {share} of {parts} parts of {sessions} sessions is none"),
            cure: format!("write {enough} sessions or more, or a larger share"),
        }
    }

    /// Checks that the asset is long enough, with `run` from the first start to the end of the
    /// measured time. Without a duration the stream is live.
    pub(super) fn check_asset(
        &self,
        duration: Option<Duration>,
        run: Duration,
    ) -> Result<(), Error> {
        for ScenarioGroup { name, behaviour, .. } in &self.groups {
            let wrong = |found: String, cure: &str| Error::Setting {
                setting: ClientSetting::Scenario,
                found: format!("group {name}: {found}"),
                cure: cure.to_owned(),
            };
            let is_seek = matches!(behaviour, Behaviour::Seek { .. });
            let Some(duration) = duration else {
                if is_seek {
                    let found = "no seeks in a stream without a duration, such as a channel";
                    return Err(wrong(found.to_owned(), "name an asset, or leave the group out"));
                }
                continue;
            };
            let needed = behaviour.plays_at_most(run);
            if duration < needed {
                let found = format!(
                    "a session plays for up to {:.1} s and the asset ends after {:.1} s",
                    needed.as_secs_f64(),
                    duration.as_secs_f64()
                );
                return Err(wrong(found, "name a longer asset, or write shorter times"));
            }
        }
        Ok(())
    }
}

/// Description of a group for its report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupIdentity {
    /// Name in the scenario.
    pub name: String,
    /// Name of its behaviour.
    pub behaviour: &'static str,
    /// Transport of its packets.
    pub transport: StreamTransport,
    /// True where late and lost packets are not the sessions' own fault.
    pub is_judged: bool,
    /// Sessions of the group.
    pub sessions: u32,
}

/// Time that a session may need in addition: the answers to PAUSE and PLAY.
pub(super) const PLACE_MARGIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, share: u32, behaviour: Behaviour) -> ScenarioGroup {
        ScenarioGroup { name: name.to_owned(), share, transport: None, behaviour }
    }

    fn scenario(groups: Vec<ScenarioGroup>) -> Scenario {
        Scenario { length: None, seed: 1, groups }
    }

    fn shares(shares: &[u32]) -> Scenario {
        scenario(shares.iter().map(|share| group("g", *share, Behaviour::Steady)).collect())
    }

    #[test]
    fn sessions_are_dealt_by_share_and_mixed() {
        let order = shares(&[70, 20, 10]).deal(100).unwrap();
        let count = |group| order.iter().filter(|other| **other == group).count();
        assert_eq!((count(0), count(1), count(2)), (70, 20, 10));
        for tenth in order.chunks(10) {
            assert_eq!(tenth.iter().filter(|group| **group == 2).count(), 1, "{order:?}");
        }
        // For any sum of parts, no group is off by a whole session.
        for sessions in 6..200_u32 {
            let order = shares(&[3, 1, 2]).deal(sessions).unwrap();
            for (group, share) in [3.0, 1.0, 2.0].into_iter().enumerate() {
                let count = order.iter().filter(|other| **other == group).count() as f64;
                let due = f64::from(sessions) * share / 6.0;
                assert!((count - due).abs() < 1.0, "group {group} of {sessions}: {count}, {due}");
            }
        }
    }

    #[test]
    fn a_group_without_a_session_is_refused_with_the_number_that_helps() {
        let error = shares(&[99, 1]).deal(20).unwrap_err();
        assert_eq!(
            error.to_string(),
            "scenario: group g: 1 of 100 parts of 20 sessions is none; write 100 sessions or more, \
             or a larger share"
        );
        assert!(shares(&[99, 1]).deal(100).is_ok());
    }

    #[test]
    fn each_behaviour_needs_its_own_length_of_the_asset() {
        let seconds = Duration::from_secs;
        let range = |least, most| TimeRange { least: seconds(least), most: seconds(most) };
        let seek = Behaviour::Seek { every: range(2, 8) };
        let leave = Behaviour::Leave { stay: range(5, 20), away: range(1, 2) };
        for (behaviour, needed) in [(Behaviour::Steady, 60), (seek, 11), (leave, 20)] {
            let scenario = scenario(vec![group("g", 1, behaviour)]);
            let run = seconds(60);
            assert!(scenario.check_asset(Some(seconds(needed)), run).is_ok(), "{behaviour:?}");
            let error = scenario.check_asset(Some(seconds(needed - 1)), run).unwrap_err();
            let words = format!("group g: a session plays for up to {needed}.0 s and the asset");
            assert!(error.to_string().contains(&words), "{error}");
        }
        let live = scenario(vec![group("zap", 1, seek)]).check_asset(None, seconds(60));
        assert!(live.unwrap_err().to_string().contains("group zap: no seeks in a stream without"));
        let live = scenario(vec![group("g", 1, leave)]).check_asset(None, seconds(60));
        assert!(live.is_ok());
    }
}
