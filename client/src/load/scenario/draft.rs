// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario's settings as an operator writes them, and their validation.
//!
//! [`ScenarioDraft`] holds text and unchecked numbers; [`ScenarioDraft::check`] turns it into a
//! [`Scenario`], which the load may trust. Each fault names the setting, the value and the cure;
//! the reader of the file adds the line.
//!
//! Does not check against the number of sessions or the length of the asset: the load does.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{BEHAVIOURS, Behaviour, Scenario, ScenarioGroup, TimeRange};
use crate::transport::StreamTransport;

/// Unchecked settings of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScenarioDraft {
    /// Length of the measured time.
    pub seconds: Option<f64>,
    /// Seed of all random choices; 1 by default.
    pub seed: Option<i64>,
    /// Groups of sessions.
    pub groups: Vec<GroupDraft>,
}

/// Unchecked settings of a group. A range is its least and most value; a single number sets both.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupDraft {
    /// Name in the report; that of the behaviour by default.
    pub name: Option<String>,
    /// Share of the sessions, relative to the other groups; 1 by default.
    pub share: Option<i64>,
    /// `udp`, `tcp` or `http`; that of the load by default.
    pub transport: Option<String>,
    /// One of the behaviours; `steady` by default.
    pub behaviour: Option<String>,
    /// Time between two actions.
    pub every_s: Option<(f64, f64)>,
    /// Length of a pause.
    pub pause_s: Option<(f64, f64)>,
    /// Time from PLAY to the end of a session.
    pub stay_s: Option<(f64, f64)>,
    /// Time between two sessions.
    pub away_s: Option<(f64, f64)>,
    /// Rate at which a session reads.
    pub bytes_per_second: Option<i64>,
}

/// A setting of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScenarioKey {
    /// `seconds`
    Seconds,
    /// `seed`
    Seed,
    /// `group`
    Group,
    /// `name` of a group
    Name,
    /// `share` of a group
    Share,
    /// `transport` of a group
    Transport,
    /// `behaviour` of a group
    Behaviour,
    /// `every_s` of a group
    Every,
    /// `pause_s` of a group
    Pause,
    /// `stay_s` of a group
    Stay,
    /// `away_s` of a group
    Away,
    /// `bytes_per_second` of a group
    Rate,
}

impl ScenarioKey {
    /// Keys outside groups.
    pub const OF_FILE: &[ScenarioKey] =
        &[ScenarioKey::Seconds, ScenarioKey::Seed, ScenarioKey::Group];
    /// Keys of a group.
    pub const OF_GROUP: &[ScenarioKey] = &[
        ScenarioKey::Name,
        ScenarioKey::Share,
        ScenarioKey::Transport,
        ScenarioKey::Behaviour,
        ScenarioKey::Every,
        ScenarioKey::Pause,
        ScenarioKey::Stay,
        ScenarioKey::Away,
        ScenarioKey::Rate,
    ];

    /// Its name in a scenario file.
    pub fn key(self) -> &'static str {
        match self {
            ScenarioKey::Seconds => "seconds",
            ScenarioKey::Seed => "seed",
            ScenarioKey::Group => "group",
            ScenarioKey::Name => "name",
            ScenarioKey::Share => "share",
            ScenarioKey::Transport => "transport",
            ScenarioKey::Behaviour => "behaviour",
            ScenarioKey::Every => "every_s",
            ScenarioKey::Pause => "pause_s",
            ScenarioKey::Stay => "stay_s",
            ScenarioKey::Away => "away_s",
            ScenarioKey::Rate => "bytes_per_second",
        }
    }
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidScenario {
    /// The setting.
    pub key: ScenarioKey,
    /// Index of the group; none for a setting of the file.
    pub group: Option<usize>,
    /// The value and the fault.
    pub found: String,
    /// The value to write instead.
    pub cure: String,
}

impl fmt::Display for InvalidScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.key.key(), self.found, self.cure)
    }
}

impl ScenarioDraft {
    /// Checks the settings.
    ///
    /// # Errors
    /// All invalid settings; at least one.
    pub fn check(self) -> Result<Scenario, Vec<InvalidScenario>> {
        let mut faults = Vec::new();
        let mut file = Checks { group: None, faults: &mut faults };
        let length = self.seconds.and_then(|seconds| file.time(ScenarioKey::Seconds, seconds));
        let seed = match self.seed {
            Some(seed) => file.number(ScenarioKey::Seed, seed, 0..=i64::MAX),
            None => Some(SEED),
        };
        match self.groups.len() {
            0 => file.add(ScenarioKey::Group, "no group", "write one table [[group]] at least"),
            count if count > GROUPS_MAX => {
                let cure = format!("write {GROUPS_MAX} at most");
                file.add(ScenarioKey::Group, format!("{count} groups"), cure);
            }
            _ => {}
        }
        let mut groups: Vec<ScenarioGroup> = Vec::new();
        for (index, draft) in self.groups.into_iter().take(GROUPS_MAX).enumerate() {
            let mut checks = Checks { group: Some(index), faults: &mut faults };
            let Some(group) = checks.group(draft) else { continue };
            if groups.iter().any(|other| other.name == group.name) {
                let found = format!("{}: another group has this name", group.name);
                checks.add(ScenarioKey::Name, found, r#"write another, name = "...""#);
            }
            groups.push(group);
        }
        match seed {
            Some(seed) if faults.is_empty() => {
                Ok(Scenario { length, seed: seed.unsigned_abs(), groups })
            }
            _ => Err(faults),
        }
    }
}

/// Checks of one group, or of the settings of the file.
struct Checks<'f> {
    group: Option<usize>,
    faults: &'f mut Vec<InvalidScenario>,
}

impl Checks<'_> {
    fn add(&mut self, key: ScenarioKey, found: impl Into<String>, cure: impl Into<String>) {
        let (found, cure) = (found.into(), cure.into());
        self.faults.push(InvalidScenario { key, group: self.group, found, cure });
    }

    /// Returns the group; none where one of its settings is invalid.
    fn group(&mut self, draft: GroupDraft) -> Option<ScenarioGroup> {
        let before = self.faults.len();
        let behaviour = self.behaviour(&draft);
        let share = self.number(ScenarioKey::Share, draft.share.unwrap_or(1), 1..=SHARE_MAX);
        let transport = draft.transport.and_then(|name| self.transport(&name));
        let (behaviour, share) = (behaviour?, share?);
        if matches!(behaviour, Behaviour::Slow { .. } | Behaviour::Stall)
            && transport == Some(StreamTransport::Udp)
        {
            let found = "udp: nothing holds a sender back that sends over UDP";
            self.add(ScenarioKey::Transport, found, "write tcp or http");
        }
        let name = draft.name.unwrap_or_else(|| behaviour.name().to_owned());
        let chars = name.chars().count();
        if chars == 0 || chars > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            let cure = format!("write 1 to {NAME_CHARS_MAX} printable characters");
            self.add(ScenarioKey::Name, format!("{chars} characters"), cure);
        }
        let share = u32::try_from(share).ok()?;
        let is_whole = self.faults.len() == before;
        is_whole.then_some(ScenarioGroup { name, share, transport, behaviour })
    }

    fn behaviour(&mut self, draft: &GroupDraft) -> Option<Behaviour> {
        let name = draft.behaviour.as_deref().unwrap_or(BEHAVIOURS[0]);
        let Some(used) = keys_of(name) else {
            let cure = format!("write one of {}", BEHAVIOURS.join(", "));
            self.add(ScenarioKey::Behaviour, format!("{name:?}: no such behaviour"), cure);
            return None;
        };
        let times = [
            (ScenarioKey::Every, draft.every_s),
            (ScenarioKey::Pause, draft.pause_s),
            (ScenarioKey::Stay, draft.stay_s),
            (ScenarioKey::Away, draft.away_s),
        ];
        let written = times.iter().filter(|(_, range)| range.is_some()).map(|(key, _)| *key);
        let rate = draft.bytes_per_second.map(|_| ScenarioKey::Rate);
        let of_others: Vec<_> = written.chain(rate).filter(|key| !used.contains(key)).collect();
        for key in &of_others {
            self.add(*key, format!("no setting of behaviour {name}"), "leave it out");
        }
        let [every, pause, stay, away] =
            times.map(|(key, range)| used.contains(&key).then(|| self.range(key, range)).flatten());
        Some(match name {
            "steady" => Behaviour::Steady,
            "seek" => Behaviour::Seek { every: every? },
            "pause" => Behaviour::Pause { every: every?, pause: pause? },
            "leave" => Behaviour::Leave { stay: stay?, away: away? },
            "vanish" => Behaviour::Vanish { stay: stay?, away: away? },
            "slow" => Behaviour::Slow { bytes_per_second: self.rate(draft.bytes_per_second)? },
            _ => Behaviour::Stall,
        })
    }

    fn transport(&mut self, name: &str) -> Option<StreamTransport> {
        match name.parse() {
            Ok(StreamTransport::Multicast) => {
                let found = "multicast: all sessions would share one group of addresses";
                self.add(ScenarioKey::Transport, found, "write udp, tcp or http");
                None
            }
            Ok(transport) => Some(transport),
            Err(_) => {
                let found = format!("{name:?}: no such transport");
                self.add(ScenarioKey::Transport, found, "write udp, tcp or http");
                None
            }
        }
    }

    fn rate(&mut self, rate: Option<i64>) -> Option<u32> {
        let Some(rate) = rate else {
            self.add(ScenarioKey::Rate, "missing", "write bytes_per_second = 100000, say");
            return None;
        };
        let rate = self.number(ScenarioKey::Rate, rate, RATES)?;
        u32::try_from(rate).ok()
    }

    fn number(&mut self, key: ScenarioKey, number: i64, of: RangeInclusive<i64>) -> Option<i64> {
        if of.contains(&number) {
            return Some(number);
        }
        let cure = format!("write {} to {}", of.start(), of.end());
        self.add(key, number.to_string(), cure);
        None
    }

    fn range(&mut self, key: ScenarioKey, range: Option<(f64, f64)>) -> Option<TimeRange> {
        let Some((least, most)) = range else {
            let cure = format!("write {} = [2, 8], say, for 2 to 8 seconds", key.key());
            self.add(key, "missing", cure);
            return None;
        };
        let (least_time, most_time) = (self.time(key, least)?, self.time(key, most)?);
        if least_time > most_time {
            let cure = format!("write the lesser first, [{most}, {least}]");
            self.add(key, format!("[{least}, {most}]: the first is the greater"), cure);
            return None;
        }
        Some(TimeRange { least: least_time, most: most_time })
    }

    fn time(&mut self, key: ScenarioKey, seconds: f64) -> Option<Duration> {
        if SECONDS.contains(&seconds) {
            return Some(Duration::from_secs_f64(seconds));
        }
        let cure = format!("write {} to {} seconds", SECONDS.start(), SECONDS.end());
        self.add(key, seconds.to_string(), cure);
        None
    }
}

/// Settings that a behaviour has in addition to those of every group.
fn keys_of(behaviour: &str) -> Option<&'static [ScenarioKey]> {
    Some(match behaviour {
        "steady" | "stall" => &[],
        "seek" => &[ScenarioKey::Every],
        "pause" => &[ScenarioKey::Every, ScenarioKey::Pause],
        "leave" | "vanish" => &[ScenarioKey::Stay, ScenarioKey::Away],
        "slow" => &[ScenarioKey::Rate],
        _ => return None,
    })
}

const SEED: i64 = 1;
/// Limits the report to a readable length.
const GROUPS_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 32;
const SHARE_MAX: i64 = 1_000_000;
/// The minimum limits a session to 20 requests a second; the maximum is a day.
const SECONDS: RangeInclusive<f64> = 0.1..=86_400.0;
const RATES: RangeInclusive<i64> = 1..=1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(group: GroupDraft) -> ScenarioDraft {
        ScenarioDraft { groups: vec![group], ..ScenarioDraft::default() }
    }

    fn behaviour(name: &str) -> GroupDraft {
        GroupDraft { behaviour: Some(name.to_owned()), ..GroupDraft::default() }
    }

    fn faults(draft: ScenarioDraft) -> Vec<String> {
        draft.check().unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let scenario = of(GroupDraft::default()).check().unwrap();
        assert_eq!((scenario.seed, scenario.length), (1, None));
        let [group] = &scenario.groups[..] else { panic!("{scenario:?}") };
        assert_eq!((&*group.name, group.share, group.transport), ("steady", 1, None));
        assert_eq!(group.behaviour, Behaviour::Steady);
    }

    #[test]
    fn every_behaviour_is_read_with_its_settings() {
        for name in BEHAVIOURS {
            let used = keys_of(name).unwrap();
            let mut group = behaviour(name);
            let range = |key| used.contains(&key).then_some((2.0, 8.0));
            group.every_s = range(ScenarioKey::Every);
            group.pause_s = range(ScenarioKey::Pause);
            group.stay_s = range(ScenarioKey::Stay);
            group.away_s = range(ScenarioKey::Away);
            group.bytes_per_second = used.contains(&ScenarioKey::Rate).then_some(1000);
            let scenario = of(group.clone()).check().unwrap();
            assert_eq!(scenario.groups[0].behaviour.name(), name);
            // Each of these settings is required, and no other is accepted.
            assert_eq!(of(behaviour(name)).check().is_ok(), used.is_empty(), "{name}");
            group.bytes_per_second.get_or_insert(1000);
            let others = of(group).check();
            assert_eq!(others.is_err(), !used.contains(&ScenarioKey::Rate), "{name}");
        }
    }

    #[test]
    fn faults_are_told_with_the_cure_and_all_at_once() {
        let slow = GroupDraft {
            transport: Some("udp".to_owned()),
            bytes_per_second: Some(1000),
            ..behaviour("slow")
        };
        let found = "transport: udp: nothing holds a sender back that sends over UDP; write tcp or";
        assert!(faults(of(slow))[0].starts_with(found));
        let cases: [(GroupDraft, &str); 8] = [
            (
                GroupDraft { share: Some(0), ..GroupDraft::default() },
                "share: 0; write 1 to 1000000",
            ),
            (
                GroupDraft { every_s: Some((0.0, 3.0)), ..behaviour("seek") },
                "every_s: 0; write 0.1 to 86400 seconds",
            ),
            (
                GroupDraft { every_s: Some((f64::NAN, 3.0)), ..behaviour("seek") },
                "every_s: NaN; write 0.1 to 86400 seconds",
            ),
            (
                GroupDraft { every_s: Some((8.0, 2.0)), ..behaviour("seek") },
                "every_s: [8, 2]: the first is the greater; write the lesser first, [2, 8]",
            ),
            (
                behaviour("seek"),
                "every_s: missing; write every_s = [2, 8], say, for 2 to 8 seconds",
            ),
            (
                GroupDraft { away_s: Some((1.0, 2.0)), ..behaviour("steady") },
                "away_s: no setting of behaviour steady; leave it out",
            ),
            (
                behaviour("dance"),
                "behaviour: \"dance\": no such behaviour; write one of steady, seek, pause, leave, \
                 vanish, slow, stall",
            ),
            (
                GroupDraft { transport: Some("multicast".to_owned()), ..GroupDraft::default() },
                "transport: multicast: all sessions would share one group of addresses; write udp, \
                 tcp or http",
            ),
        ];
        for (group, expected) in cases {
            assert_eq!(faults(of(group)), [expected]);
        }
        let many = ScenarioDraft { seconds: Some(-1.0), seed: Some(-1), groups: Vec::new() };
        assert_eq!(faults(many).len(), 3);
        let crowd = vec![GroupDraft::default(); 33];
        let crowd = faults(ScenarioDraft { groups: crowd, ..ScenarioDraft::default() });
        assert_eq!(crowd[0], "group: 33 groups; write 32 at most");
        assert!(crowd[1].starts_with("name: steady: another group has this name; write another"));
    }
}
