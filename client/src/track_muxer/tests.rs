// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests how the clocks of a camera's tracks are mapped to one timeline.

use std::time::SystemTime;

use clock::SetClock;

use super::*;

#[test]
fn faults_are_bounded_in_number_and_the_rest_is_told_of_once() {
    let mut muxer = TrackMuxer::new(WriterKind::TransportStream, 1, &Clock::HOST);
    (0..40).for_each(|n| muxer.add_fault(format!("clock jumped by {} s", n % 20)));
    let faults = &muxer.counts.faults;
    assert_eq!((faults.len(), &faults[15][..]), (FAULTS_MAX + 1, "clock jumped by 15 s"));
    assert_eq!(faults[FAULTS_MAX], "further faults of the tracks are not named");
}

#[test]
fn the_origin_is_the_nearest_turn_of_the_timestamps() {
    let origin = TrackOrigin { timestamp: u32::MAX - 99, clock_rate_hz: 90_000 };
    let at = i64::from(u32::MAX) - 99;
    assert_eq!(origin.shift(at + 500, 90_000), at);
    // The first unit arrived after the wrap, and its depayloader began there.
    assert_eq!(origin.shift(400, 90_000), at - (1 << 32));
    assert_eq!(origin.shift(200, 45_000), (at - (1 << 32)) / 2);
}

const VIDEO: u32 = 90_000;
const SOUND: u32 = 48_000;
/// Start timestamps of the video and audio clocks; the second soon wraps.
const STARTS: [u32; 2] = [111_111, u32::MAX - 1000];

fn unit(time: i64) -> AccessUnit {
    let bytes = vec![0, 0, 0, 2, 0x65, 0x88];
    AccessUnit { time, bytes, is_start: true, is_after_loss: false }
}

fn muxer() -> TrackMuxer {
    muxer_on(&Clock::HOST)
}

fn muxer_on(clock: &Clock) -> TrackMuxer {
    let mut muxer = TrackMuxer::new(WriterKind::TransportStream, 2, clock);
    let video = media::tracks::H264Config {
        length_bytes: 4,
        profile: [0x4d, 0, 0x29],
        sequence_sets: vec![vec![0x67, 0x4d, 0x00, 0x0a, 0xf2, 0xbc, 0x80]],
        picture_sets: vec![vec![0x68, 7]],
    };
    let codecs = [Codec::H264(video), Codec::Ac3 { rate_hz: SOUND, channels: 2 }];
    for (track, codec) in codecs.into_iter().enumerate() {
        muxer.take(track, TrackEvent::Codec(codec), &mut Vec::new());
    }
    muxer
}

/// A report of a track for the time `at_s` after its start; the sender read the wall clock
/// `late_s` too late.
fn report(track: usize, at_s: f64, late_s: f64) -> TrackEvent {
    let clock_rate_hz = [VIDEO, SOUND][track];
    let stamps = (at_s * f64::from(clock_rate_hz)) as u32;
    let timestamp = STARTS[track].wrapping_add(stamps);
    // The NTP era ends between the reports.
    let ntp = ((at_s + late_s - 0.1) * 4_294_967_296.0) as i64;
    let origin = TrackOrigin { timestamp, clock_rate_hz };
    TrackEvent::Report(SenderClock { ntp: ntp.cast_unsigned(), origin })
}

/// Time in the file of a unit `at_s` after the start of its track's clock.
fn place(muxer: &TrackMuxer, track: usize, at_s: f64) -> f64 {
    let rate = f64::from([VIDEO, SOUND][track]);
    let time = i64::from(STARTS[track]) + (at_s * rate) as i64;
    muxer.tracks[track].clock.as_ref().unwrap().seconds(time)
}

fn places(muxer: &TrackMuxer, at_s: f64) -> [f64; 2] {
    [0, 1].map(|track| place(muxer, track, at_s))
}

/// Passes a unit of each track to the muxer.
fn take_units(muxer: &mut TrackMuxer, at_s: f64) {
    for (track, rate) in [VIDEO, SOUND].into_iter().enumerate() {
        let time = i64::from(STARTS[track]) + (at_s * f64::from(rate)) as i64;
        muxer.take(track, TrackEvent::Unit(unit(time), Instant::now()), &mut Vec::new());
    }
}

#[track_caller]
fn assert_apart(places: [f64; 2], sound_s: f64) {
    let [video, sound] = places;
    assert!((sound - video - sound_s).abs() < 0.001, "{places:?}, not {sound_s} s apart");
    assert!(video >= 0.0 && sound >= 0.0, "{places:?}");
}

#[test]
fn tracks_keep_step_by_the_reports_that_come_before_the_file_begins() {
    for late_s in [-0.4, 0.0, 0.4, 5.0] {
        let mut muxer = muxer();
        take_units(&mut muxer, 0.0);
        assert!(muxer.writer.is_none(), "reports are waited for");
        muxer.take(1, report(1, 1.0, late_s), &mut Vec::new());
        muxer.take(0, report(0, 0.5, 0.0), &mut Vec::new());
        assert!(muxer.writer.is_some());
        assert_apart(places(&muxer, 0.0), late_s);
        // Reports with a zero NTP time or after a clock change are ignored.
        let zero = SenderClock { ntp: 0, origin: muxer.tracks[1].report.unwrap().origin };
        muxer.take(1, TrackEvent::Report(zero), &mut Vec::new());
        muxer.take(1, report(1, 1.5, 3600.0), &mut Vec::new());
        take_units(&mut muxer, 2.0);
        assert_apart(places(&muxer, 2.0), late_s);
    }
}

#[test]
fn tracks_are_moved_on_and_never_back_by_reports_that_come_later() {
    for late_s in [-0.4, 0.4, 0.01, 60.0] {
        let mut muxer = muxer();
        take_units(&mut muxer, 0.0);
        muxer.begin(&mut Vec::new());
        take_units(&mut muxer, 1.0);
        let before = places(&muxer, 1.0);
        let by_arrival = before[1] - before[0];
        muxer.take(0, report(0, 1.0, 0.0), &mut Vec::new());
        muxer.take(1, report(1, 1.0, late_s), &mut Vec::new());
        take_units(&mut muxer, 1.04);
        let after = places(&muxer, 1.04);
        let is_moved = late_s.abs() == 0.4;
        assert_apart(after, if is_moved { late_s } else { by_arrival });
        assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, {after:?}");
        // Tracks are moved only once.
        muxer.take(1, report(1, 2.0, late_s + 0.3), &mut Vec::new());
        take_units(&mut muxer, 2.0);
        assert_apart(places(&muxer, 2.0), after[1] - after[0]);
        assert_eq!(muxer.counts(), &MuxCounts::default());
    }
}

#[test]
fn starts_that_the_server_has_named_for_each_track_hold() {
    let origin = |track: usize| {
        let clock_rate_hz = [VIDEO, SOUND][track];
        Some(TrackOrigin { timestamp: STARTS[track], clock_rate_hz })
    };
    for origins in [[origin(0), origin(1)], [origin(0), None]] {
        let mut muxer = muxer();
        muxer.begin_at(&origins, Duration::ZERO);
        muxer.take(0, report(0, 0.0, 0.0), &mut Vec::new());
        muxer.take(1, report(1, 0.0, 0.4), &mut Vec::new());
        take_units(&mut muxer, 0.0);
        assert_apart(places(&muxer, 0.0), if origins[1].is_some() { 0.0 } else { 0.4 });
    }
}

#[test]
fn a_file_begins_with_the_arrival_of_its_first_unit_and_not_before_the_one_in_front() {
    let mut muxer = muxer();
    let mut reach = |reached_s: u64, arrival_s: u64| {
        muxer.reached = Duration::from_secs(reached_s);
        muxer.note_arrival(Duration::from_secs(arrival_s));
        muxer.last_arrival = Duration::from_secs(arrival_s);
    };
    // The sender pauses from the third second to the tenth, hurries, and pauses again.
    for (reached_s, arrival_s) in [(0, 0), (1, 1), (2, 2), (3, 10), (4, 10), (5, 10), (6, 20)] {
        reach(reached_s, arrival_s);
    }
    // A unit whose place is not known yet has arrived.
    muxer.last_arrival = Duration::from_secs(30);
    let mut start = |age_s| muxer.start_of_file(Duration::from_secs(age_s)).as_secs();
    assert_eq!([start(6), start(5), start(4), start(2), start(0)], [0, 1, 2, 10, 20]);
    assert_eq!([start(4), start(3600)], [20, 30]);
}

#[test]
fn a_file_that_begins_with_the_first_unit_behind_a_pause_has_its_arrival() {
    let mut muxer = muxer();
    let ms = Duration::from_millis;
    // Pictures 40 ms apart; one is delayed by seven seconds, and those behind it are on time.
    for number in 0..100 {
        muxer.reached = ms(40 * number);
        muxer.note_arrival(ms(40 * number) + if number >= 76 { ms(7000) } else { ms(0) });
    }
    let start = muxer.start_of_file(ms(40 * (99 - 76)));
    assert!(start >= ms(40 * 76 + 7000) && start <= ms(40 * 76 + 7100), "{start:?}");
}

#[test]
fn arrivals_are_held_for_as_long_as_a_file_may_wait() {
    let mut muxer = muxer();
    for tenth in 0..10_000_u64 {
        muxer.reached = Duration::from_millis(50 * tenth);
        muxer.note_arrival(muxer.reached);
    }
    assert!(muxer.arrivals.len() <= ARRIVALS_MAX + 1, "{}", muxer.arrivals.len());
    let begins = muxer.reached - AGE_MAX;
    assert!(begins - muxer.start_of_file(AGE_MAX) <= ARRIVALS_APART);
}

/// Regression: a microphone that is switched off held up the first file for as long as the silence
/// that ends a session, and was then left out, also when it was switched on.
#[test]
fn a_track_that_sends_nothing_is_awaited_for_seconds_and_is_in_the_file() {
    let set = SetClock::at(SystemTime::UNIX_EPOCH);
    let (mut muxer, mut out) = (muxer_on(&set.clock()), Vec::new());
    let video = |at_s: i64| {
        let time = i64::from(STARTS[0]) + at_s * i64::from(VIDEO);
        TrackEvent::Unit(unit(time), set.now())
    };
    muxer.take(0, video(0), &mut out);
    set.advance(SILENT_WAIT - Duration::from_nanos(1));
    muxer.check_time(&mut out);
    assert!(muxer.writer.is_none(), "sound may be seconds late");
    set.advance(Duration::from_nanos(1));
    muxer.check_time(&mut out);
    assert!(muxer.writer.is_some());
    muxer.take(0, video(1), &mut out);
    take_units(&mut muxer, 2.0);
    assert_eq!((muxer.tracks[1].number, &muxer.counts().faults[..]), (Some(1), &[][..]));
    assert_eq!(muxer.counts().left_out_units, 0);
}

/// Regression: a track whose first unit came after its timestamps had wrapped began a day away.
#[test]
fn a_track_that_begins_after_a_wrap_of_its_timestamps_is_in_place() {
    let origins = [0, 1].map(|track| {
        let clock_rate_hz = [VIDEO, SOUND][track];
        Some(TrackOrigin { timestamp: STARTS[track], clock_rate_hz })
    });
    let (mut muxer, began) = (muxer(), Instant::now());
    muxer.begin_at(&origins, Duration::ZERO);
    let at = |track: usize, at_s: u64| {
        let stamps = at_s * u64::from([VIDEO, SOUND][track]) % (1 << 32);
        let time = i64::from(STARTS[track]) + stamps as i64;
        TrackEvent::Unit(unit(time), began + Duration::from_secs(at_s))
    };
    muxer.take(0, at(0, 0), &mut Vec::new());
    muxer.begin(&mut Vec::new());
    let late_s = 20 * 3600;
    muxer.take(1, at(1, late_s), &mut Vec::new());
    let clock = muxer.tracks[1].clock.as_ref().expect("it has begun");
    assert!((clock.seconds(clock.last_time()) - late_s as f64).abs() < 0.001);
}

/// Regression: a microphone that was switched on with other timestamps than PLAY was answered with
/// was a day away, and all of its units were left out.
#[test]
fn a_track_that_begins_far_from_its_announced_start_begins_at_its_arrival() {
    let origin = |track: usize, ahead_s: u32| {
        let clock_rate_hz = [VIDEO, SOUND][track];
        let timestamp = STARTS[track].wrapping_sub(ahead_s * clock_rate_hz);
        Some(TrackOrigin { timestamp, clock_rate_hz })
    };
    let late = |muxer: &mut TrackMuxer, began: Instant| {
        let video = i64::from(STARTS[0]) + 20 * i64::from(VIDEO);
        let arrived = began + Duration::from_secs(20);
        for (track, time) in [(0, video), (1, STARTS[1].into())] {
            muxer.take(track, TrackEvent::Unit(unit(time), arrived), &mut Vec::new());
        }
        place(muxer, 1, 0.0)
    };
    for (ahead_s, sound_s) in [(0, 20.0), (19, 19.0), (50, 20.0), (3600, 20.0)] {
        let (mut muxer, began) = (muxer(), Instant::now());
        muxer.begin_at(&[origin(0, 0), origin(1, ahead_s)], Duration::ZERO);
        muxer.take(0, TrackEvent::Unit(unit(STARTS[0].into()), began), &mut Vec::new());
        muxer.begin(&mut Vec::new());
        let found_s = late(&mut muxer, began);
        assert!((found_s - sound_s).abs() < 0.001, "{ahead_s}: {found_s}");
    }
    // The sender's reports tell where the sound is, to a part of a second.
    let (mut muxer, began) = (muxer(), Instant::now());
    muxer.begin_at(&[origin(0, 0), origin(1, 50)], Duration::ZERO);
    muxer.take(0, TrackEvent::Unit(unit(STARTS[0].into()), began), &mut Vec::new());
    muxer.begin(&mut Vec::new());
    muxer.take(0, report(0, 20.0, 0.0), &mut Vec::new());
    muxer.take(1, report(1, 0.0, 19.5), &mut Vec::new());
    let found_s = late(&mut muxer, began);
    assert!((found_s - 19.5).abs() < 0.001, "{found_s}");
}
