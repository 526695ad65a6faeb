// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programme of a channel at any time, a pure function of settings, durations and the wall
//! clock.
//!
//! Two servers with the same settings and files compute the same programme without a message
//! between them, a viewer in the past asks about an earlier time, and a restart changes nothing.
//! The rules, all times being wall-clock times since the Unix epoch:
//!
//! 1. The playlist's clock begins at `starts_at`. A loop repeats its entries for ever; each cycle
//!    of a shuffle has an order of its own (`shuffle`); an order of `once` ends after one cycle.
//! 2. An item of the schedule starts at its local time and cuts whatever plays, an earlier item
//!    included, which does not come back. Its files play once. The playlist's clock runs on
//!    meanwhile: afterwards the playlist is where it would be without the schedule.
//! 3. A local time that a change to summer time skips is later by the skipped hour; one that occurs
//!    twice is the first (`schedule`).
//! 4. An entry without a duration (missing or broken; a duration of 0 counts as none) is replaced
//!    by one showing of the filler, or skipped where there is no filler. So a file that breaks or
//!    heals moves everything behind it: servers stay in step as far as their files are the same.
//!    An item of the schedule without anything to play does not start.
//! 5. Before `starts_at`, after `once`, and with an empty playlist the filler repeats, or nothing
//!    plays. Before `starts_at` its showings end there; after `once` the first begins there.
//!
//! Clock steps: callers advance by a monotonic clock and compare it with the wall clock. A
//! difference below [`CLOCK_STEP`] is slewed by the caller (it plays a little slower or faster); a
//! larger one is a step, and the caller asks again for the programme of the new time, which cuts.
//!
//! Cost: two binary searches per question. The order of a shuffled cycle (10,000 entries) and the
//! starts of the schedule around a day are computed once and the last four of each kept.
//!
//! Sources: RFC 5545 §3.3.5 (local times that do not exist or occur twice).
//! Does not know files, frames or packets: positions are times.

mod schedule;
mod shuffle;

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use parking_lot::Mutex;

use super::settings::{ChannelConfig, PlayOrder, ScheduleSlot};

/// A file of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Name in the library.
    pub name: Arc<str>,
    /// Duration of play; none where the file is missing or broken.
    pub duration: Option<Duration>,
}

/// Files of a channel, as a playlist names them at the moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineup {
    /// Entries of the playlist.
    pub entries: Vec<TimelineEntry>,
    /// The filler.
    pub filler: Option<TimelineEntry>,
    /// Entries of each item of the schedule, in the order of [`ChannelConfig::schedule`].
    pub schedule: Vec<Vec<TimelineEntry>>,
}

/// Reason why a file plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AirReason {
    /// An entry of the playlist.
    Listed,
    /// An entry of an item of the schedule.
    Scheduled,
    /// The filler.
    Filler,
    /// There is nothing to play.
    Nothing,
}

/// A programme: a file, or nothing, from one time to another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnAir {
    /// File; none where there is nothing to play.
    pub entry: Option<Arc<str>>,
    /// Reason why it plays.
    pub reason: AirReason,
    /// Missing or broken file in whose place the filler plays.
    pub instead_of: Option<Arc<str>>,
    /// Time at which it starts on the air: the end of the preceding one.
    pub starts_at: Duration,
    /// Position in the file at the time asked for.
    pub offset: Duration,
    /// Time at which it ends, or is cut; [`Duration::MAX`] for never.
    pub ends_at: Duration,
}

/// Programmes of a channel by time.
#[derive(Debug)]
pub struct Timeline {
    channel: String,
    order: PlayOrder,
    starts_at: Duration,
    time_zone: TimeZone,
    /// The playlist, without entries that have nothing to play.
    listed: Line,
    filler: Option<Showing>,
    /// Items of the schedule that have something to play.
    slots: Vec<ScheduleSlot>,
    slot_lines: Vec<Line>,
    /// Orders of recent cycles of a shuffle.
    cycles: Mutex<Recent<Cycle>>,
    /// Starts of the schedule around recent days.
    days: Mutex<Recent<schedule::Starts>>,
}

/// Difference between wall clock and monotonic clock from which a caller asks for the programme
/// anew. Smaller ones are slewed: half a second at one part in a thousand takes eight minutes.
pub const CLOCK_STEP: Duration = Duration::from_millis(500);

/// True when the wall clock was set: it differs from the expected time by [`CLOCK_STEP`] or more.
pub fn is_clock_step(expected: Duration, found: Duration) -> bool {
    expected.abs_diff(found) >= CLOCK_STEP
}

/// A file that plays for some time, which is not 0.
#[derive(Debug, Clone)]
struct Showing {
    entry: Arc<str>,
    instead_of: Option<Arc<str>>,
    duration: Duration,
}

/// Showings one after another, and the time from the beginning to the end of each.
#[derive(Debug, Clone, Default)]
struct Line {
    showings: Vec<Showing>,
    ends: Vec<Duration>,
}

/// Order of one cycle of a shuffle.
#[derive(Debug)]
struct Cycle {
    order: Vec<u32>,
    ends: Vec<Duration>,
}

/// The last few results by key, the newest first.
#[derive(Debug)]
struct Recent<T>(Vec<(u128, Arc<T>)>);

/// A showing, or nothing, before the schedule cuts it.
struct Piece<'a> {
    showing: Option<&'a Showing>,
    reason: AirReason,
    /// Beginning of the file; a showing that began before the Unix epoch has `offset` alone.
    starts_at: Duration,
    offset: Duration,
    ends_at: Duration,
}

impl Timeline {
    /// Makes the timeline of a channel from its settings and its files of the moment.
    pub fn new(config: &ChannelConfig, lineup: &Lineup) -> Timeline {
        let filler = lineup.filler.as_ref().and_then(|filler| showing(filler, None));
        let lines = lineup.schedule.iter().map(|entries| Line::new(entries, filler.as_ref()));
        let playable = config.schedule.iter().cloned().zip(lines);
        let (slots, slot_lines) = playable.filter(|(_, line)| !line.showings.is_empty()).unzip();
        Timeline {
            channel: config.name.clone(),
            order: config.order,
            starts_at: config.starts_at,
            time_zone: config.time_zone.clone(),
            listed: Line::new(&lineup.entries, filler.as_ref()),
            filler,
            slots,
            slot_lines,
            cycles: Mutex::new(Recent(Vec::new())),
            days: Mutex::new(Recent(Vec::new())),
        }
    }

    /// Returns the programme at a time.
    pub fn programme_at(&self, time: Duration) -> OnAir {
        let (latest, next) = self.starts_around(time);
        let cut = next.unwrap_or(Duration::MAX);
        let mut back_at = Duration::ZERO;
        if let Some((start, slot)) = latest {
            let line = &self.slot_lines[slot];
            let elapsed = time.saturating_sub(start);
            if elapsed < line.total() {
                let (index, begins) = position(&line.ends, elapsed);
                let piece = Piece {
                    showing: Some(&line.showings[index]),
                    reason: AirReason::Scheduled,
                    starts_at: start + begins,
                    offset: elapsed - begins,
                    ends_at: start.saturating_add(line.ends[index]),
                };
                return piece.on_air(Duration::ZERO, cut);
            }
            back_at = start.saturating_add(line.total());
        }
        self.unscheduled(time, |piece| piece.on_air(back_at, cut))
    }

    /// Returns the programmes from a time on, each beginning where the one before ends; without an
    /// end unless a programme is the last for ever. The first is the one at `time`.
    pub fn programmes_from(&self, time: Duration) -> impl Iterator<Item = OnAir> {
        let first = self.programme_at(time);
        std::iter::successors(Some(first), |before| {
            (before.ends_at < Duration::MAX).then(|| self.programme_at(before.ends_at))
        })
    }

    /// Total duration of the playlist; 0 where nothing of it can be played.
    pub fn cycle(&self) -> Duration {
        self.listed.total()
    }

    /// Time zone of the schedule.
    pub fn time_zone(&self) -> &TimeZone {
        &self.time_zone
    }

    /// Passes on the piece that plays where the schedule does not.
    fn unscheduled<T>(&self, time: Duration, pass: impl FnOnce(Piece<'_>) -> T) -> T {
        let Some(elapsed) = time.checked_sub(self.starts_at) else {
            return pass(self.gap_before(time, self.starts_at));
        };
        let total = self.listed.total();
        if total.is_zero() {
            return pass(self.gap_after(time, self.starts_at));
        }
        let cycle = elapsed.as_nanos() / total.as_nanos();
        let in_cycle = from_nanos(elapsed.as_nanos() % total.as_nanos());
        let piece = |ends: &[Duration], index_of: &dyn Fn(usize) -> usize| {
            let (index, begins) = position(ends, in_cycle);
            let starts_at = time - (in_cycle - begins);
            Piece {
                showing: Some(&self.listed.showings[index_of(index)]),
                reason: AirReason::Listed,
                starts_at,
                offset: in_cycle - begins,
                ends_at: starts_at.saturating_add(ends[index] - begins),
            }
        };
        match self.order {
            PlayOrder::Once if cycle > 0 => {
                pass(self.gap_after(time, self.starts_at.saturating_add(total)))
            }
            PlayOrder::Loop | PlayOrder::Once => pass(piece(&self.listed.ends, &|index| index)),
            PlayOrder::Shuffle => {
                let order = self.shuffled(cycle);
                pass(piece(&order.ends, &|index| order.order[index] as usize))
            }
        }
    }

    /// The gap that ends at `end`; the last showing of the filler ends there too.
    fn gap_before(&self, time: Duration, end: Duration) -> Piece<'_> {
        let Some(filler) = &self.filler else { return nothing(Duration::ZERO, end) };
        let left = from_nanos((end - time).as_nanos() % filler.duration.as_nanos());
        let left = if left.is_zero() { filler.duration } else { left };
        let offset = filler.duration - left;
        Piece {
            showing: Some(filler),
            reason: AirReason::Filler,
            starts_at: time.saturating_sub(offset),
            offset,
            ends_at: time + left,
        }
    }

    /// The gap without end that begins at `start`, as does the first showing of the filler.
    fn gap_after(&self, time: Duration, start: Duration) -> Piece<'_> {
        let Some(filler) = &self.filler else { return nothing(start, Duration::MAX) };
        let offset = from_nanos((time - start).as_nanos() % filler.duration.as_nanos());
        let starts_at = time - offset;
        Piece {
            showing: Some(filler),
            reason: AirReason::Filler,
            starts_at,
            offset,
            ends_at: starts_at.saturating_add(filler.duration),
        }
    }

    /// The order of a cycle.
    fn shuffled(&self, cycle: u128) -> Arc<Cycle> {
        let mut recent = self.cycles.lock();
        recent.get_or_make(cycle, || {
            let showings = &self.listed.showings;
            let is_same = |a: u32, b: u32| showings[a as usize].entry == showings[b as usize].entry;
            let order = shuffle::order(&self.channel, cycle as u64, showings.len(), is_same);
            let durations = order.iter().map(|index| showings[*index as usize].duration);
            let ends = cumulated(durations);
            Cycle { order, ends }
        })
    }

    /// The last start of the schedule up to `time` with its item, and the first one after.
    fn starts_around(&self, time: Duration) -> (Option<(Duration, usize)>, Option<Duration>) {
        if self.slots.is_empty() {
            return (None, None);
        }
        let day = u128::from(time.as_secs() / schedule::DAY_S);
        let mut recent = self.days.lock();
        let starts =
            recent.get_or_make(day, || schedule::Starts::around(day, &self.slots, &self.time_zone));
        starts.around_time(time)
    }
}

impl Line {
    fn new(entries: &[TimelineEntry], filler: Option<&Showing>) -> Line {
        let showings: Vec<Showing> =
            entries.iter().filter_map(|entry| showing(entry, filler)).collect();
        let ends = cumulated(showings.iter().map(|showing| showing.duration));
        Line { showings, ends }
    }

    fn total(&self) -> Duration {
        self.ends.last().copied().unwrap_or_default()
    }
}

impl<T> Recent<T> {
    fn get_or_make(&mut self, key: u128, make: impl FnOnce() -> T) -> Arc<T> {
        let at = self.0.iter().position(|(found, _)| *found == key);
        let newest = match at {
            Some(at) => self.0.remove(at),
            None => (key, Arc::new(make())),
        };
        self.0.insert(0, newest);
        self.0.truncate(RECENT_MAX);
        self.0[0].1.clone()
    }
}

impl Piece<'_> {
    /// The piece on the air, not before `from` and not after `to`.
    fn on_air(self, from: Duration, to: Duration) -> OnAir {
        let reason = match self.showing {
            Some(showing) if showing.instead_of.is_some() => AirReason::Filler,
            _ => self.reason,
        };
        OnAir {
            entry: self.showing.map(|showing| showing.entry.clone()),
            reason,
            instead_of: self.showing.and_then(|showing| showing.instead_of.clone()),
            starts_at: self.starts_at.max(from),
            offset: self.offset,
            ends_at: self.ends_at.min(to),
        }
    }
}

/// The entry where it can be played, else the filler in its place, else none.
fn showing(entry: &TimelineEntry, filler: Option<&Showing>) -> Option<Showing> {
    match entry.duration.filter(|duration| !duration.is_zero()) {
        Some(duration) => {
            let duration = duration.min(ENTRY_DURATION_MAX);
            Some(Showing { entry: entry.name.clone(), instead_of: None, duration })
        }
        None => {
            filler.map(|filler| Showing { instead_of: Some(entry.name.clone()), ..filler.clone() })
        }
    }
}

fn nothing(starts_at: Duration, ends_at: Duration) -> Piece<'static> {
    let (showing, reason) = (None, AirReason::Nothing);
    Piece { showing, reason, starts_at, offset: Duration::ZERO, ends_at }
}

/// The time from the beginning to the end of each.
fn cumulated(durations: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut end = Duration::ZERO;
    durations
        .map(|duration| {
            end += duration;
            end
        })
        .collect()
}

/// Index of the showing at a time below the last end, and the time of its beginning.
fn position(ends: &[Duration], time: Duration) -> (usize, Duration) {
    let index = ends.partition_point(|end| *end <= time);
    assert!(index < ends.len(), "callers pass a time before the end");
    let begins = if index == 0 { Duration::ZERO } else { ends[index - 1] };
    (index, begins)
}

fn from_nanos(nanos: u128) -> Duration {
    let second = 1_000_000_000;
    Duration::new((nanos / second) as u64, (nanos % second) as u32)
}

/// A file that claims a longer play is cut; sums of all entries stay far below a Duration's limit.
const ENTRY_DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Viewers of the present, and of a few times in the past.
const RECENT_MAX: usize = 4;

#[cfg(test)]
mod tests;
