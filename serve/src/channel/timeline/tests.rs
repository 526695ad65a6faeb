// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of timelines: the documented rules one by one, and random channels against an oracle that
//! walks through every programme.
//!
//! Does not test files: entries are names with durations.

use jiff::civil::time;
use proptest::prelude::*;

use super::super::settings::{ChannelDraft, ScheduleDraft};
use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn entry(name: &str, seconds: Option<u64>) -> TimelineEntry {
    TimelineEntry { name: name.into(), duration: seconds.map(Duration::from_secs) }
}

fn lineup(entries: &[(&str, Option<u64>)], filler: Option<u64>) -> Lineup {
    Lineup {
        entries: entries.iter().map(|(name, duration)| entry(name, *duration)).collect(),
        filler: filler.map(|duration| entry("filler", Some(duration))),
        schedule: Vec::new(),
    }
}

fn config(order: PlayOrder, starts_at: u64) -> ChannelConfig {
    let draft = ChannelDraft { playlist: vec!["any".to_owned()], ..ChannelDraft::default() };
    let mut config = draft.check("news").unwrap();
    config.order = order;
    config.starts_at = seconds(starts_at);
    config
}

fn in_zone(zone: &str, at: &[(&str, &[&str])]) -> ChannelConfig {
    let slot = |(time, days): &(&str, &[&str])| ScheduleDraft {
        time: Some((*time).to_owned()),
        days: (!days.is_empty()).then(|| days.iter().map(|day| (*day).to_owned()).collect()),
        play: vec!["any".to_owned()],
    };
    let draft = ChannelDraft {
        playlist: vec!["any".to_owned()],
        time_zone: Some(zone.to_owned()),
        at: at.iter().map(slot).collect(),
        ..ChannelDraft::default()
    };
    draft.check("news").unwrap()
}

/// Seconds since the Unix epoch of a time in RFC 3339.
fn at(text: &str) -> u64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second().unsigned_abs()
}

/// A programme as `NAME+OFFSET START..END`, times relative to `base`, in seconds.
fn line(programme: &OnAir, base: u64) -> String {
    let name = programme.entry.as_deref().unwrap_or("-");
    let relative = |time: Duration| match time {
        Duration::MAX => "ever".to_owned(),
        time => (i128::from(time.as_secs()) - i128::from(base)).to_string(),
    };
    let (from, to) = (relative(programme.starts_at), relative(programme.ends_at));
    format!("{name}+{} {from}..{to}", programme.offset.as_secs())
}

fn lines(timeline: &Timeline, from: u64, count: usize, base: u64) -> Vec<String> {
    let programmes = timeline.programmes_from(seconds(from)).take(count);
    programmes.map(|programme| line(&programme, base)).collect()
}

#[test]
fn loop_repeats_from_its_start_for_ever() {
    let abc = lineup(&[("a", Some(10)), ("b", Some(20)), ("c", Some(5))], None);
    let timeline = Timeline::new(&config(PlayOrder::Loop, 1000), &abc);
    assert_eq!(timeline.cycle(), seconds(35));
    let expected = ["a+0 0..10", "b+0 10..30", "c+0 30..35", "a+0 35..45"];
    assert_eq!(lines(&timeline, 1000, 4, 1000), expected);
    assert_eq!(lines(&timeline, 1029, 2, 1000), ["b+19 10..30", "c+0 30..35"]);
    // 35 × 10^9 s later, in the year 3078, it is where it was.
    let far = 35_000_000_000 + 1012;
    assert_eq!(lines(&timeline, far, 1, 35_000_001_000), ["b+2 10..30"]);
    let last = timeline.programme_at(Duration::MAX);
    assert_eq!(last.ends_at, Duration::MAX, "the end of time is no overflow");
}

#[test]
fn before_the_start_the_filler_ends_where_the_playlist_begins() {
    let filled = lineup(&[("a", Some(10))], Some(4));
    let timeline = Timeline::new(&config(PlayOrder::Loop, 10), &filled);
    assert_eq!(
        lines(&timeline, 0, 4, 0),
        ["filler+2 0..2", "filler+0 2..6", "filler+0 6..10", "a+0 10..20"]
    );
    assert_eq!(timeline.programme_at(seconds(0)).reason, AirReason::Filler);
    let bare = Timeline::new(&config(PlayOrder::Loop, 10), &lineup(&[("a", Some(10))], None));
    assert_eq!(lines(&bare, 3, 2, 0), ["-+0 0..10", "a+0 10..20"]);
    assert_eq!(bare.programme_at(seconds(3)).reason, AirReason::Nothing);
}

#[test]
fn once_is_followed_by_the_filler_or_by_nothing() {
    let entries = [("a", Some(10)), ("b", Some(10))];
    let timeline = Timeline::new(&config(PlayOrder::Once, 100), &lineup(&entries, Some(3)));
    let expected = ["b+5 10..20", "filler+0 20..23", "filler+0 23..26"];
    assert_eq!(lines(&timeline, 115, 3, 100), expected);
    let bare = Timeline::new(&config(PlayOrder::Once, 100), &lineup(&entries, None));
    assert_eq!(lines(&bare, 115, 9, 100), ["b+5 10..20", "-+0 20..ever"]);
}

#[test]
fn broken_entries_are_replaced_by_the_filler_or_skipped() {
    let entries = [("a", Some(10)), ("gone", None), ("empty", Some(0)), ("b", Some(10))];
    let skipping = Timeline::new(&config(PlayOrder::Loop, 0), &lineup(&entries, None));
    assert_eq!(lines(&skipping, 0, 3, 0), ["a+0 0..10", "b+0 10..20", "a+0 20..30"]);
    let filling = Timeline::new(&config(PlayOrder::Loop, 0), &lineup(&entries, Some(3)));
    let expected = ["a+0 0..10", "filler+0 10..13", "filler+0 13..16", "b+0 16..26"];
    assert_eq!(lines(&filling, 0, 4, 0), expected);
    let programme = filling.programme_at(seconds(11));
    assert_eq!(programme.reason, AirReason::Filler);
    assert_eq!(programme.instead_of.as_deref(), Some("gone"));
    let broken = [("gone", None), ("empty", Some(0))];
    let nothing = Timeline::new(&config(PlayOrder::Loop, 0), &lineup(&broken, None));
    assert_eq!(lines(&nothing, 7, 9, 0), ["-+0 0..ever"]);
    let mut unfilled = lineup(&broken, None);
    unfilled.filler = Some(entry("filler", None));
    let nothing = Timeline::new(&config(PlayOrder::Loop, 0), &unfilled);
    assert_eq!(nothing.programme_at(seconds(7)).reason, AirReason::Nothing);
}

#[test]
fn one_entry_follows_itself() {
    for order in [PlayOrder::Loop, PlayOrder::Shuffle] {
        let timeline = Timeline::new(&config(order, 0), &lineup(&[("a", Some(7))], None));
        assert_eq!(lines(&timeline, 6, 3, 0), ["a+6 0..7", "a+0 7..14", "a+0 14..21"]);
    }
}

#[test]
fn schedule_cuts_and_the_playlist_runs_on() {
    let mut lineup = lineup(&[("a", Some(1000)), ("b", Some(1000))], None);
    lineup.schedule = vec![vec![entry("x", Some(300)), entry("y", Some(900))]];
    let noon = at("2026-03-02T12:00:00Z");
    let mut config = in_zone("UTC", &[("12:00", &[])]);
    config.starts_at = seconds(noon - 500);
    let timeline = Timeline::new(&config, &lineup);
    let expected =
        ["a+0 -500..0", "x+0 0..300", "y+0 300..1200", "b+700 1200..1500", "a+0 1500..2500"];
    assert_eq!(lines(&timeline, noon - 500, 5, noon), expected);
    let reasons: Vec<AirReason> =
        timeline.programmes_from(seconds(noon - 1)).take(3).map(|p| p.reason).collect();
    assert_eq!(reasons, [AirReason::Listed, AirReason::Scheduled, AirReason::Scheduled]);
}

#[test]
fn an_item_cuts_an_earlier_one_which_does_not_come_back() {
    let mut lineup = lineup(&[("a", Some(100_000))], None);
    lineup.schedule = vec![vec![entry("long", Some(7200))], vec![entry("news", Some(600))]];
    let config = in_zone("UTC", &[("20:00", &["mon"]), ("21:00", &["mon"])]);
    let timeline = Timeline::new(&config, &lineup);
    let evening = at("2026-03-02T20:00:00Z");
    let found = lines(&timeline, evening, 3, evening);
    assert_eq!(found[..2], ["long+0 0..3600", "news+0 3600..4200"]);
    assert!(found[2].starts_with("a+") && found[2].contains(" 4200.."), "{found:?}");
}

#[test]
fn an_item_without_anything_to_play_does_not_start() {
    let mut lineup = lineup(&[("a", Some(100_000))], None);
    lineup.schedule = vec![vec![entry("long", Some(7200))], vec![entry("gone", None)]];
    let config = in_zone("UTC", &[("20:00", &[]), ("21:00", &[])]);
    let evening = at("2026-03-02T20:00:00Z");
    let timeline = Timeline::new(&config, &lineup);
    assert_eq!(lines(&timeline, evening + 3700, 1, evening), ["long+3700 0..7200"]);
}

#[test]
fn an_item_longer_than_a_week_is_cut_by_itself() {
    let mut lineup = lineup(&[("a", Some(100))], None);
    lineup.schedule = vec![vec![entry("long", Some(30 * 86_400))]];
    let config = in_zone("UTC", &[("20:00", &["mon"])]);
    let timeline = Timeline::new(&config, &lineup);
    let monday = at("2026-03-02T20:00:00Z");
    let week = 7 * 86_400;
    let expected = format!("long+{} 0..{week}", week - 1);
    assert_eq!(lines(&timeline, monday + week - 1, 1, monday), [expected]);
}

#[test]
fn local_times_follow_daylight_saving() {
    let mut lineup = lineup(&[("a", Some(10_000_000))], None);
    lineup.schedule = vec![vec![entry("x", Some(60))]];
    let start_of = |zone: &str, time: &str, after: &str| {
        let timeline = Timeline::new(&in_zone(zone, &[(time, &[])]), &lineup);
        let mut programmes = timeline.programmes_from(seconds(at(after)));
        let scheduled = programmes.find(|p| p.reason == AirReason::Scheduled).unwrap();
        scheduled.starts_at.as_secs()
    };
    // Winter and summer time.
    assert_eq!(
        start_of("Europe/Berlin", "20:00", "2026-01-05T12:00:00Z"),
        at("2026-01-05T19:00:00Z")
    );
    assert_eq!(
        start_of("Europe/Berlin", "20:00", "2026-07-05T12:00:00Z"),
        at("2026-07-05T18:00:00Z")
    );
    // 02:30 of 29 March 2026 does not exist: 03:30 of summer time. That of 25 October is twice.
    assert_eq!(
        start_of("Europe/Berlin", "02:30", "2026-03-28T12:00:00Z"),
        at("2026-03-29T01:30:00Z")
    );
    assert_eq!(
        start_of("Europe/Berlin", "02:30", "2026-10-24T12:00:00Z"),
        at("2026-10-25T00:30:00Z")
    );
    let second = at("2026-10-25T01:30:00Z");
    assert_eq!(start_of("Europe/Berlin", "02:30", "2026-10-25T00:31:30Z"), second + 86_400);
    // A day that Samoa skipped, zones far ahead and behind, and half an hour of daylight saving.
    assert_eq!(
        start_of("Pacific/Apia", "20:00", "2011-12-30T07:00:00Z"),
        at("2011-12-31T06:00:00Z")
    );
    assert_eq!(
        start_of("Pacific/Kiritimati", "00:00", "2026-03-01T00:00:00Z"),
        at("2026-03-01T10:00:00Z")
    );
    assert_eq!(
        start_of("Pacific/Pago_Pago", "23:59", "2026-03-01T00:00:00Z"),
        at("2026-03-01T10:59:00Z")
    );
    assert_eq!(
        start_of("Australia/Lord_Howe", "02:15", "2026-10-03T00:00:00Z"),
        at("2026-10-03T15:45:00Z")
    );
}

#[test]
fn of_items_that_meet_at_a_skipped_hour_the_later_in_the_list_plays() {
    let mut lineup = lineup(&[("a", Some(10_000_000))], None);
    lineup.schedule = vec![vec![entry("x", Some(600))], vec![entry("y", Some(600))]];
    let config = in_zone("Europe/Berlin", &[("03:30", &[]), ("02:30", &[])]);
    let timeline = Timeline::new(&config, &lineup);
    let meeting = at("2026-03-29T01:30:00Z");
    assert_eq!(lines(&timeline, meeting, 1, meeting), ["y+0 0..600"]);
}

#[test]
fn a_schedule_ends_with_the_calendar_and_the_loop_goes_on() {
    let mut lineup = lineup(&[("a", Some(100))], None);
    lineup.schedule = vec![vec![entry("x", Some(60))]];
    let timeline = Timeline::new(&in_zone("Europe/Berlin", &[("12:00", &[])]), &lineup);
    for time in [0, 86_400 * 10, at("9999-12-30T22:00:00Z"), u64::MAX / 4, u64::MAX] {
        let programme = timeline.programme_at(seconds(time));
        assert!(programme.starts_at <= seconds(time) && programme.ends_at > seconds(time));
    }
}

#[test]
fn clock_steps_are_told_from_drift() {
    let now = seconds(1_800_000_000);
    assert!(!is_clock_step(now, now + Duration::from_millis(499)));
    assert!(is_clock_step(now, now + Duration::from_millis(500)));
    assert!(is_clock_step(now, now - Duration::from_millis(500)));
    // After a step either way the answer is that of the new time, whatever was asked before.
    let abc = lineup(&[("a", Some(10)), ("b", Some(20)), ("c", Some(5))], None);
    let stepped = Timeline::new(&config(PlayOrder::Shuffle, 0), &abc);
    for time in [1_800_000_000, 1_700_000_000, 1_900_000_000, 5, 1_800_000_000] {
        let fresh = Timeline::new(&config(PlayOrder::Shuffle, 0), &abc);
        assert_eq!(stepped.programme_at(seconds(time)), fresh.programme_at(seconds(time)));
    }
}

/// A channel of so many titles, in this order.
fn of_titles(count: u64, order: PlayOrder) -> Timeline {
    let entries = (0..count).map(|n| entry(&n.to_string(), Some(1 + n % 7))).collect();
    Timeline::new(&config(order, 0), &Lineup { entries, ..Lineup::default() })
}

#[test]
fn programme_is_found_among_ten_thousand_entries() {
    for order in [PlayOrder::Loop, PlayOrder::Shuffle] {
        let timeline = of_titles(10_000, order);
        let base = timeline.cycle().as_secs() * 50;
        let mut ends_at = timeline.programme_at(seconds(base)).ends_at;
        for second in base..base + 20_000 {
            let programme = timeline.programme_at(seconds(second));
            assert!(programme.starts_at <= seconds(second) && seconds(second) < programme.ends_at);
            assert!(programme.starts_at == ends_at || programme.ends_at == ends_at, "no gap");
            ends_at = programme.ends_at;
        }
    }
}

/// Measures a clock: `make test-time`.
mod timed {
    use super::*;

    /// Measured in a release: 0.15 µs for a loop and 0.25 µs for a shuffle. A scan would compare
    /// 50 ends of a hundred titles and 5,000 of ten thousand.
    #[test]
    fn ten_thousand_entries_are_found_by_search() {
        for order in [PlayOrder::Loop, PlayOrder::Shuffle] {
            let [few, many] = [100, 10_000].map(|count| {
                let timeline = of_titles(count, order);
                let base = timeline.cycle().as_secs() * 50;
                timeline.programme_at(seconds(base));
                let begun = std::time::Instant::now();
                for question in 0..100_000 {
                    let time = seconds(base + question % timeline.cycle().as_secs());
                    assert!(timeline.programme_at(time).ends_at > time);
                }
                begun.elapsed()
            });
            assert!(many < few * 5, "{order:?}: {few:?} with few titles, {many:?} with many");
        }
    }
}

#[test]
fn shuffle_plays_each_entry_once_a_cycle() {
    let names: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    let entries: Vec<(&str, Option<u64>)> =
        names.iter().enumerate().map(|(n, name)| (name.as_str(), Some(n as u64 + 1))).collect();
    let timeline = Timeline::new(&config(PlayOrder::Shuffle, 77), &lineup(&entries, None));
    let cycle = timeline.cycle().as_secs();
    let mut orders = std::collections::BTreeSet::new();
    for number in 0..50 {
        let from = 77 + number * cycle;
        let mut order: Vec<Arc<str>> = Vec::new();
        for programme in timeline.programmes_from(seconds(from)).take(9) {
            order.push(programme.entry.unwrap());
        }
        let after = timeline.programme_at(seconds(from + cycle)).entry;
        assert_ne!(order.last().cloned(), after, "no repeat over the border");
        orders.insert(order.clone());
        order.sort();
        assert!(order.iter().map(|name| &**name).eq(names.iter().map(String::as_str)));
    }
    assert!(orders.len() > 45, "orders differ from cycle to cycle");
}

/// A random channel in UTC, whose clock begins within an hour of the probes.
#[derive(Debug, Clone)]
struct Random {
    order: PlayOrder,
    starts_at: u64,
    entries: Vec<Option<u64>>,
    filler: Option<u64>,
    slots: Vec<RandomSlot>,
}

/// Second of the day, days, durations.
type RandomSlot = (u32, [bool; 7], Vec<Option<u64>>);

/// A Monday, 2026-03-02.
const MONDAY: u64 = 1_772_409_600;

fn random() -> impl Strategy<Value = Random> {
    let durations = || prop::collection::vec(prop::option::weighted(0.8, 0_u64..2000), 0..8);
    let order = prop::sample::select(vec![PlayOrder::Loop, PlayOrder::Shuffle, PlayOrder::Once]);
    let slot = (0_u32..86_400, prop::array::uniform7(any::<bool>()), durations());
    let slots = prop::collection::vec(slot, 0..4);
    let filler = prop::option::of(0_u64..500);
    let parts = (order, MONDAY - 7200..MONDAY + 7200, durations(), filler, slots);
    parts.prop_map(|(order, starts_at, entries, filler, mut slots)| {
        slots.sort_by_key(|slot| slot.0);
        slots.dedup_by_key(|slot| slot.0);
        Random { order, starts_at, entries, filler, slots }
    })
}

impl Random {
    fn timeline(&self) -> Timeline {
        let named = |of: &str, list: &[Option<u64>]| {
            let entries = list.iter().enumerate();
            entries.map(|(at, duration)| entry(&format!("{of}{at}"), *duration)).collect()
        };
        let mut config = config(self.order, self.starts_at);
        let mut lineup = lineup(&[], self.filler);
        lineup.entries = named("e", &self.entries);
        for (index, (second, days, entries)) in self.slots.iter().enumerate() {
            let part = |seconds: u32| i8::try_from(seconds).unwrap();
            let time = time(part(second / 3600), part(second / 60 % 60), part(second % 60), 0);
            config.schedule.push(ScheduleSlot { time, days: *days, play: Vec::new() });
            lineup.schedule.push(named(&format!("s{index}-"), entries));
        }
        Timeline::new(&config, &lineup)
    }

    /// Returns the entries of a list that play: name and duration.
    fn playable(&self, of: &str, list: &[Option<u64>]) -> Vec<(String, u64)> {
        let filler = self.filler.filter(|duration| *duration > 0);
        let entries = list.iter().enumerate().filter_map(|(at, duration)| match duration {
            None | Some(0) => filler.map(|duration| ("filler".to_owned(), duration)),
            Some(duration) => Some((format!("{of}{at}"), *duration)),
        });
        entries.collect()
    }

    /// The latest start of the schedule by a time, and its slot: walks back day by day. No two
    /// slots begin at one second.
    fn latest_start(&self, time: u64) -> Option<(u64, usize)> {
        let today = time / 86_400;
        for day in (today.saturating_sub(8)..=today).rev() {
            for (index, (second, days, entries)) in self.slots.iter().enumerate().rev() {
                let begin = day * 86_400 + u64::from(*second);
                let is_due = begin <= time && days[((day + 3) % 7) as usize];
                if is_due && !self.playable("", entries).is_empty() {
                    return Some((begin, index));
                }
            }
        }
        None
    }

    /// Name and position in the file at a time, found by walking from beginnings.
    fn oracle(&self, time: u64) -> (String, u64) {
        if let Some((begin, index)) = self.latest_start(time) {
            let mut at = begin;
            for (name, duration) in self.playable(&format!("s{index}-"), &self.slots[index].2) {
                if time < at + duration {
                    return (name, time - at);
                }
                at += duration;
            }
        }
        let filler = self.filler.filter(|duration| *duration > 0);
        let mut listed = self.playable("e", &self.entries);
        if time < self.starts_at {
            let mut at = self.starts_at;
            let Some(duration) = filler else { return ("-".to_owned(), 0) };
            while at > time {
                at -= duration;
            }
            return ("filler".to_owned(), time - at);
        }
        let (mut at, mut cycle) = (self.starts_at, 0);
        loop {
            if self.order == PlayOrder::Once && cycle > 0 || listed.is_empty() {
                let Some(duration) = filler else { return ("-".to_owned(), 0) };
                listed = vec![("filler".to_owned(), duration)];
            }
            let is_same = |a: u32, b: u32| listed[a as usize].0 == listed[b as usize].0;
            let order = match self.order {
                PlayOrder::Shuffle => shuffle::order("news", cycle, listed.len(), is_same),
                _ => (0..listed.len() as u32).collect(),
            };
            for index in order {
                let (name, duration) = &listed[index as usize];
                if time < at + duration {
                    return (name.clone(), time - at);
                }
                at += duration;
            }
            cycle += 1;
        }
    }
}

/// Findings are kept as tests of their own and not in files.
fn cases() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_channels_play_as_a_walk_through_them_says(
        channel in random(),
        times in prop::collection::vec(MONDAY - 10_000..MONDAY + 100_000, 1..12),
    ) {
        let timeline = channel.timeline();
        for time in times {
            let found = timeline.programme_at(seconds(time));
            let name = found.entry.as_deref().unwrap_or("-").to_owned();
            prop_assert_eq!((name, found.offset.as_secs()), channel.oracle(time), "{:?}", found);
            prop_assert!(found.starts_at <= seconds(time) && seconds(time) < found.ends_at);
            prop_assert_eq!(found.entry.is_none(), found.reason == AirReason::Nothing);
        }
    }

    #[test]
    fn programmes_follow_each_other_without_gap_or_overlap(
        channel in random(),
        from in MONDAY - 10_000..MONDAY + 100_000,
    ) {
        let timeline = channel.timeline();
        let mut before: Option<OnAir> = None;
        for programme in timeline.programmes_from(seconds(from)).take(100) {
            // Asked anywhere in a programme, the answer is the same programme.
            let last = programme.ends_at.saturating_sub(Duration::from_nanos(1));
            let again = timeline.programme_at(last);
            prop_assert_eq!(&again.entry, &programme.entry);
            if programme.ends_at < Duration::MAX {
                prop_assert_eq!(again.starts_at, programme.starts_at);
                prop_assert_eq!(again.ends_at, programme.ends_at);
            }
            if let Some(before) = before {
                prop_assert_eq!(before.ends_at, programme.starts_at);
            }
            before = Some(programme);
        }
    }
}
