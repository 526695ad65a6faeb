// SPDX-License-Identifier: MIT OR Apache-2.0
//! Range of a session: computes the position reached, and checks where a broken title may be
//! resumed.
//!
//! The position in normal play time is that of the last RTP timestamp, counted from the timestamp
//! of the start: the one of RTP-Info, or the first packet's if RTP-Info has none or one that is
//! more than ten seconds away. All sessions of a title together are credited with at most twice the
//! time in which packets arrived, plus 25 s ([`AHEAD_MAX`], more than servers send ahead).
//! Timestamps beyond this limit are wrong; the time in which packets arrived is used instead.
//!
//! A server may resume a title at the random access point before the requested position. That point
//! lies at most 10.5 s before the position ([`ACCESS_POINT_MAX`]: 250 frames at 23.976 Hz, the
//! longest distance between key frames that x264 and x265 leave by default). A server that begins
//! earlier, or does not announce its start, would repeat recorded media: nothing of such a session
//! is recorded. A server that begins later leaves a part out; more than a second of such parts,
//! over all sessions, is a gap.
//!
//! Sources: RFC 2326 §10.5, §12.29 (Range), §12.33 (RTP-Info); x264 and x265 `--keyint`; Darwin
//! Streaming Server `max_send_ahead_time`.
//! Does not begin sessions ([`crate::recording_session`] does).

use std::time::Duration;

use wire::mp2t::CLOCK_RATE_HZ;
use wire::rtsp::client::PlayReply;
use wire::rtsp::{NptRange, NptStart};

use crate::recorded_stream::StreamActivity;

/// The range that a session plays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TitleRange {
    from: Duration,
    /// True if the answer to PLAY names `from`.
    is_from_announced: bool,
    /// `None` for a live source.
    end: Option<Duration>,
    /// RTP timestamp of `from`, if RTP-Info has it.
    timestamp: Option<u32>,
    /// Time at which PLAY was granted, by the recording's clock.
    began: Duration,
    earlier: EarlierSessions,
}

/// Sums over the earlier sessions of a title.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EarlierSessions {
    /// Length of the media credited to them.
    played: Duration,
    /// Time in which packets arrived.
    by_clock: Duration,
}

impl TitleRange {
    /// Determines the range that is played; Range of PLAY takes precedence over the description.
    pub(crate) fn of(
        started: &PlayReply,
        described: Option<Duration>,
        asked: Option<Duration>,
        began: Duration,
    ) -> TitleRange {
        let range = started.range.unwrap_or(NptRange { start: NptStart::Now, end: None });
        let end = range.end.or(described);
        let (from, is_from_announced) = match range.start {
            NptStart::At(from) => (from, true),
            NptStart::Now => (asked.unwrap_or_default(), false),
        };
        let from = end.map_or(from, |end| from.min(end));
        let (timestamp, earlier) = (started.timestamp, EarlierSessions::default());
        TitleRange { from, is_from_announced, end, timestamp, began, earlier }
    }

    /// Returns the same range, after earlier sessions of the title.
    pub(crate) fn behind(self, earlier: EarlierSessions) -> TitleRange {
        TitleRange { earlier, ..self }
    }

    /// Returns the totals including this session.
    pub(crate) fn sums(&self, heard: &StreamActivity, now: Duration) -> EarlierSessions {
        EarlierSessions {
            played: self.earlier.played + self.played(heard, now).unwrap_or_default(),
            by_clock: self.earlier.by_clock + self.by_clock(heard),
        }
    }

    /// End of a title; `None` for a live source.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.end
    }

    /// Returns the same range without an end.
    pub(crate) fn without_end(self) -> TitleRange {
        TitleRange { end: None, ..self }
    }

    /// Position reached, in normal play time; `None` before a packet of the session has arrived,
    /// and for a live source whose server has not announced its start.
    pub(crate) fn reached(&self, heard: &StreamActivity, now: Duration) -> Option<Duration> {
        let is_known = self.end.is_some() || self.is_from_announced;
        let played = self.played(heard, now).filter(|_| is_known)?;
        let at = self.from + played;
        Some(self.end.map_or(at, |end| at.min(end)))
    }

    /// True if packets have arrived for the length of the range, by the clock, and timestamps
    /// either stand still or have advanced as far. Then the server has played the whole range,
    /// regardless of RTP-Info.
    pub(crate) fn has_passed(&self, heard: &StreamActivity) -> bool {
        let Some(end) = self.end else { return false };
        let is_all = |played: Duration| self.from + played + SHORT_MAX >= end;
        let agrees = heard.timestamps.is_none_or(|(first, last)| {
            let moved = last.wrapping_sub(first);
            moved == 0 || is_all(Duration::from_secs(moved.into()) / CLOCK_RATE_HZ)
        });
        agrees && is_all(self.by_clock(heard))
    }

    /// True if the last packet, or the last picture of a track, lasts until the end. Its duration
    /// is assumed to be the longest step between two, which is seconds if pictures are that far
    /// apart. The caller checks that the sender has sent BYE.
    pub(crate) fn ends_with_last(
        &self,
        heard: &StreamActivity,
        now: Duration,
        track_step: Duration,
    ) -> bool {
        let Some((end, moved)) = self.end.zip(self.moved(heard, now)) else { return false };
        let step = Duration::from_secs(heard.longest_step.into()) / CLOCK_RATE_HZ;
        let is_possible = moved <= now.saturating_sub(self.began) + AHEAD_MAX;
        is_possible && self.from + moved + step.max(track_step) + SHORT_MAX >= end
    }

    /// True for a session longer than twice its range plus a minute: it has broken off.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.began);
        self.end.is_some_and(|end| passed > 2 * end.saturating_sub(self.from) + OVERDUE_MIN)
    }

    /// Length of the media of this session; measured by the clock if the timestamps are
    /// implausible.
    pub(crate) fn played(&self, heard: &StreamActivity, now: Duration) -> Option<Duration> {
        let played = self.moved(heard, now)?;
        let arrived_for = self.earlier.by_clock + self.by_clock(heard);
        let is_possible = self.earlier.played + played <= 2 * arrived_for + AHEAD_MAX;
        Some(if is_possible { played } else { self.by_clock(heard) })
    }

    /// Length of the media of this session by its timestamps alone.
    fn moved(&self, heard: &StreamActivity, now: Duration) -> Option<Duration> {
        let (first, last) = heard.timestamps?;
        let is_near = |announced: &u32| {
            announced.wrapping_sub(first).cast_signed().unsigned_abs() <= NEAR_STAMPS_MAX
        };
        let start = self.timestamp.filter(is_near).unwrap_or(first);
        let stamps = last.wrapping_sub(start);
        // 32 bits wrap after 13 hours: the number of wraps is the one that fits the clock best.
        let passed = now.saturating_sub(self.began);
        let ticks = (passed.as_nanos() * u128::from(CLOCK_RATE_HZ) / 1_000_000_000) as u64;
        let ahead = stamps.wrapping_sub(ticks as u32).cast_signed();
        let ticks = u128::from(ticks.saturating_add_signed(ahead.into()));
        Some(Duration::from_nanos((ticks * 1_000_000_000 / u128::from(CLOCK_RATE_HZ)) as u64))
    }

    /// Time in which packets have arrived; silences of a second and more do not count.
    fn by_clock(&self, heard: &StreamActivity) -> Duration {
        let until = heard.at.unwrap_or(self.began);
        until.saturating_sub(self.began).saturating_sub(heard.silent)
    }
}

/// True for a remainder no longer than the last packet may last: everything has arrived.
pub(crate) fn is_nothing(left: Duration) -> bool {
    left <= SHORT_MAX
}

/// True for a remainder so small that the announced end is considered wrong, not the stream:
/// lengths are rounded up, or are those of the longest of several tracks.
pub(crate) fn is_little(left: Duration, end: Duration) -> bool {
    left <= LITTLE_MAX.min(end / LITTLE_SHARE)
}

/// Checks the position at which a server resumes a title that was requested from `asked`; returns
/// it.
///
/// # Errors
/// The reason why the recording cannot continue with this session.
pub(crate) fn check_start(asked: Duration, range: Option<NptRange>) -> Result<Duration, String> {
    let asked_s = asked.as_secs_f64();
    let from = match range.map(|range| range.start) {
        Some(NptStart::At(from)) => from,
        Some(NptStart::Now) | None => {
            return Err(format!(
                "asked for what comes from {asked_s:.1} s on, the server does not say where it \
                 began (no Range in its answer to PLAY): it cannot go on where it broke off"
            ));
        }
    };
    let from_s = from.as_secs_f64();
    if from + ACCESS_POINT_MAX < asked {
        return Err(format!(
            "the server began again at {from_s:.1} s, asked for {asked_s:.1} s: it cannot go on \
             where it broke off"
        ));
    }
    Ok(from)
}

/// Describes the parts of a title that its server has left out, if they exceed a second in total.
pub(crate) fn gap(asked: Duration, from: Duration, left_out: Duration) -> Option<String> {
    let (asked_s, from_s) = (asked.as_secs_f64(), from.as_secs_f64());
    (left_out > SHORT_MAX).then(|| {
        format!(
            "the server went on at {from_s:.1} s, asked for {asked_s:.1} s: {:.1} s are missing \
             in all",
            left_out.as_secs_f64()
        )
    })
}

/// Allowance for the duration of the last packet, whose timestamp is that of its first byte.
pub(crate) const SHORT_MAX: Duration = Duration::from_secs(1);
/// Limit for a title of more than a minute; for a shorter one it is a twentieth.
const LITTLE_MAX: Duration = Duration::from_secs(3);
const LITTLE_SHARE: u32 = 20;
/// 250 frames at 24000/1001 Hz plus one frame, rounded up.
const ACCESS_POINT_MAX: Duration = Duration::from_millis(10_500);
/// Distance by which Darwin Streaming Server sends ahead (`max_send_ahead_time`).
const AHEAD_MAX: Duration = Duration::from_secs(25);
const OVERDUE_MIN: Duration = Duration::from_secs(60);
/// Ten seconds: covers a lost first packet, and a server that starts at the previous key frame.
const NEAR_STAMPS_MAX: u32 = 10 * CLOCK_RATE_HZ;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn at(from: f64) -> Option<NptRange> {
        Some(NptRange { start: NptStart::At(seconds(from)), end: None })
    }

    fn heard(first: u32, last: u32, at: f64, silent: f64) -> StreamActivity {
        let timestamps = Some((first, last));
        let silent = seconds(silent);
        StreamActivity { timestamps, longest_step: 0, at: Some(seconds(at)), silent }
    }

    /// A title of one minute, played from its start and granted at second 100.
    fn minute() -> TitleRange {
        let started = PlayReply { range: at(0.0), ..PlayReply::default() };
        TitleRange::of(&started, Some(seconds(60.0)), None, seconds(100.0))
    }

    #[test]
    fn a_title_is_taken_up_at_the_random_access_point_before_and_not_earlier() {
        let asked = seconds(12.3);
        for from in [12.3, 10.0, 1.9, 13.2] {
            assert_eq!(check_start(asked, at(from)), Ok(seconds(from)), "{from}");
        }
        let expected = "the server began again at 0.0 s, asked for 12.3 s: it cannot go on where \
                        it broke off";
        assert_eq!(check_start(asked, at(0.0)), Err(expected.to_owned()));
        let now = Some(NptRange { start: NptStart::Now, end: None });
        for unannounced in [None, now] {
            let why = check_start(asked, unannounced).unwrap_err();
            assert!(why.contains("from 12.3 s on, the server does not say where"), "{why}");
        }
        let from = check_start(asked, at(20.0)).unwrap();
        let message = gap(asked, from, from - asked).unwrap();
        assert!(message.ends_with("asked for 12.3 s: 7.7 s are missing in all"), "{message}");
    }

    /// Pictures arrive every ten seconds: the last is shown for as long.
    #[test]
    fn a_title_of_few_pictures_ends_with_the_last() {
        let rate = CLOCK_RATE_HZ;
        let slow = StreamActivity { longest_step: 10 * rate, ..heard(0, 50 * rate, 151.0, 50.0) };
        let ends = |heard: &StreamActivity, at: f64, step: f64| {
            minute().ends_with_last(heard, seconds(at), seconds(step))
        };
        assert!(ends(&slow, 151.0, 0.0));
        let early = StreamActivity { timestamps: Some((0, 40 * rate)), ..slow };
        assert!(!ends(&early, 141.0, 0.0));
        let even = heard(0, 50 * rate, 151.0, 0.0);
        assert!(!ends(&even, 151.0, 0.0) && ends(&even, 151.0, 9.5), "a track's own step");
        // The clock contradicts these timestamps.
        assert!(!ends(&slow, 110.0, 0.0));
    }

    #[test]
    fn parts_left_out_are_a_gap_when_they_are_a_second_in_all() {
        let (asked, from) = (seconds(5.0), seconds(5.99));
        assert_eq!(gap(asked, from, seconds(0.99)), None);
        assert!(gap(asked, from, seconds(1.98)).unwrap().ends_with(": 2.0 s are missing in all"));
    }

    #[test]
    fn sending_ahead_is_granted_once_a_title() {
        let jump = |began: f64| heard(0, 24 * CLOCK_RATE_HZ, began + 0.3, 0.0);
        let first = minute();
        assert_eq!(first.reached(&jump(100.0), seconds(101.0)), Some(seconds(24.0)));
        let sums = first.sums(&jump(100.0), seconds(101.0));
        let started = PlayReply { range: at(24.0), ..PlayReply::default() };
        let second =
            TitleRange::of(&started, Some(seconds(60.0)), None, seconds(102.0)).behind(sums);
        let reached = second.reached(&jump(102.0), seconds(103.0)).unwrap();
        assert!(reached < seconds(24.5), "{reached:?}");
        // A session in which packets arrived for long enough is credited in full.
        let steady = heard(0, 20 * CLOCK_RATE_HZ, 122.0, 0.0);
        assert_eq!(second.reached(&steady, seconds(122.0)), Some(seconds(44.0)));
    }

    #[test]
    fn little_is_seconds_and_a_small_share() {
        assert!(is_little(seconds(3.0), seconds(60.0)) && is_little(seconds(3.0), seconds(6000.0)));
        assert!(!is_little(seconds(3.1), seconds(6000.0)));
        assert!(!is_little(seconds(1.1), seconds(20.0)));
    }

    #[test]
    fn timestamps_say_how_far_it_is_unless_they_cannot_be_right() {
        let reached = |heard: StreamActivity, now: f64| minute().reached(&heard, seconds(now));
        let first = u32::MAX - 1000;
        let after = |s: u32| first.wrapping_add(s * CLOCK_RATE_HZ);
        assert_eq!(reached(heard(first, after(5), 105.0, 0.0), 105.0), Some(seconds(5.0)));
        assert_eq!(reached(heard(first, after(30), 105.0, 0.0), 105.0), Some(seconds(30.0)));
        // 59 s of media in 5 s exceed the credit; 2 s of them were silent.
        assert_eq!(reached(heard(first, after(59), 105.0, 2.0), 105.0), Some(seconds(3.0)));
        assert_eq!(minute().reached(&StreamActivity::default(), seconds(105.0)), None);
    }

    #[test]
    fn the_clock_counts_while_packets_come() {
        assert!(minute().has_passed(&heard(0, 0, 159.2, 0.0)));
        assert!(!minute().has_passed(&heard(0, 0, 158.8, 0.0)));
        assert!(!minute().has_passed(&heard(0, 0, 165.0, 20.0)), "it was silent");
        let slow = heard(0, 6 * CLOCK_RATE_HZ, 161.0, 0.0);
        assert!(!minute().has_passed(&slow), "timestamps move, at a tenth of the speed");
    }

    #[test]
    fn a_session_is_overdue_after_twice_its_range_and_a_minute() {
        assert!(!minute().is_overdue(seconds(280.0)) && minute().is_overdue(seconds(280.1)));
        assert!(!minute().without_end().is_overdue(seconds(9999.0)));
    }

    #[test]
    fn a_live_source_has_a_place_when_its_server_says_where_it_began() {
        let started = |range| PlayReply { range, ..PlayReply::default() };
        let reached = |range| {
            let span = TitleRange::of(&started(range), None, None, seconds(100.0));
            span.reached(&heard(0, 5 * CLOCK_RATE_HZ, 105.0, 0.0), seconds(105.0))
        };
        assert_eq!((reached(at(7.0)), reached(None)), (Some(seconds(12.0)), None));
    }
}
