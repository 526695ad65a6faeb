// SPDX-License-Identifier: MIT OR Apache-2.0
//! The media presentation description of a recording while it is written, or of a channel.
//!
//! It is dynamic, with the time shift of the playlist of HLS, and static once a recording is whole.
//! Segments are named by their start times, so that a stream may be silent for a segment. Its time
//! begins with that of the recording; the wall-clock time of that start is the start of
//! availability. Where the source resets its clock or is late, a period begins
//! ([`media::GrowingFragments`]), by the wall clock, as it does with each programme of a channel.
//!
//! Players load it again from the address that it names (`Location`): that of the recording, which
//! stays when the recording is whole and the file has another description. It lies beside the
//! file's: some players resolve all addresses against its folder, others do not.
//!
//! Sources: ISO/IEC 23009-1 §5.3.1 (MPD), §5.3.2 (periods), §5.3.9.6 (SegmentTimeline).
//! Does not cut.

use std::fmt::Write;
use std::ops::Range;
use std::time::SystemTime;

use media::tracks::{Display, TrackMedia as Kind};
use media::{FragmentPeriod, GrowingFragment, GrowingFragments, PeriodTrack, TICKS_PER_SECOND};

use super::mpd_elements::{
    DynamicTimes, begin_representation, write_beginning, write_entries, write_role,
};
use super::names::Language;

/// Units of the starts of periods.
const PERIOD_UNITS: u64 = 90_000;

/// Facts that a description is made of.
pub(super) struct Described<'a> {
    /// Fragments of each programme; a recording is one.
    pub(super) programmes: &'a [&'a GrowingFragments],
    /// Segments that are listed.
    pub(super) listed: Range<usize>,
    /// Time that is listed as long as nothing has left the list, in seconds.
    pub(super) listed_s: u64,
    /// Date of the time zero of recording or channel.
    pub(super) began: SystemTime,
    pub(super) target_s: u64,
    pub(super) is_complete: bool,
    pub(super) identity: &'a str,
}

/// A stream in a period, with its listed fragments.
struct ListedTrack<'a> {
    stream: usize,
    track: &'a PeriodTrack,
    fragments: &'a [GrowingFragment],
}

/// Returns the description but its end ([`super::mpd_elements::end`]), published `now`; `None`
/// without a fragment. Writing to a String cannot fail.
pub(super) fn text(described: &Described<'_>, now: SystemTime) -> Option<String> {
    let Described { target_s, identity, ref listed, .. } = *described;
    let numbered = |&fragments| {
        let periods = GrowingFragments::periods(fragments).iter().enumerate();
        periods.map(move |(number, period)| (fragments, number, period))
    };
    let periods = described.programmes.iter().flat_map(numbered);
    let periods = periods.map(|(fragments, number, period)| {
        let tracks = period.tracks.iter().enumerate().filter_map(|(stream, track)| {
            let fragments = fragments.in_period(stream, number, listed.clone());
            let track = track.as_ref()?;
            (!fragments.is_empty()).then_some(ListedTrack { stream, track, fragments })
        });
        (period, tracks.collect::<Vec<_>>())
    });
    let periods: Vec<_> = periods.filter(|(_, tracks)| !tracks.is_empty()).collect();
    let all = || periods.iter().flat_map(|(_, tracks)| tracks);
    let end_s = all().map(|one| one.seconds(one.fragments.last().map_or(0, |last| last.end)));
    let end_s = end_s.reduce(f64::max)?;
    let start_s = all().map(|one| one.seconds(one.fragments[0].start)).reduce(f64::min)?;
    let longest = |one: &ListedTrack<'_>| {
        let longest = one.fragments.iter().map(|one| one.end - one.start).max().unwrap_or(0);
        (longest * 1000).div_ceil(one.track.timescale.into())
    };
    let longest_s = all().map(longest).max()? as f64 / 1000.0;
    let listed_s = match listed.start {
        0 => described.listed_s as f64,
        _ => end_s - start_s,
    };
    let mut text = String::with_capacity(4096);
    let (began, is_complete) = (described.began, described.is_complete);
    let times = DynamicTimes { began, now, target_s, is_complete, identity };
    write_beginning(&mut text, &times, (end_s, listed_s, longest_s));
    for (period, tracks) in &periods {
        write_period(&mut text, period, tracks, identity);
    }
    Some(text)
}

impl ListedTrack<'_> {
    /// A time of the timeline as seconds of the presentation.
    fn seconds(&self, time: u64) -> f64 {
        let scale = u64::from(self.track.timescale);
        time.saturating_sub(GrowingFragments::ORIGIN_S * scale) as f64 / scale as f64
    }

    fn is_video(&self) -> bool {
        self.track.codec.media() == Kind::Video
    }

    /// Highest rate of a fragment.
    fn bits_per_second(&self) -> u64 {
        let scale = u64::from(self.track.timescale);
        let ticks = |one: &GrowingFragment| (one.end - one.start) * TICKS_PER_SECOND / scale;
        let sizes = self.fragments.iter().map(|one| (one.bytes, ticks(one)));
        media::cmaf::peak_and_mean(sizes).0.clamp(1, u32::MAX.into())
    }
}

fn write_period(
    text: &mut String,
    period: &FragmentPeriod,
    tracks: &[ListedTrack<'_>],
    identity: &str,
) {
    let start_s = period.start as f64 / PERIOD_UNITS as f64;
    let _ = writeln!(text, "  <Period id=\"{}\" start=\"PT{start_s:.6}S\">", period.first);
    let first_sound = tracks.iter().position(|one| !one.is_video());
    for (at, one) in tracks.iter().enumerate() {
        let (id, kind) = (one.stream + 1, if one.is_video() { "video" } else { "audio" });
        let _ = write!(
            text,
            "    <AdaptationSet id=\"{id}\" contentType=\"{kind}\" mimeType=\"{kind}/mp4\" \
             segmentAlignment=\"true\""
        );
        if one.fragments.iter().all(|fragment| fragment.is_independent) {
            text.push_str(" startWithSAP=\"1\"");
        }
        if let Some(code) = one.track.language_name() {
            let _ = write!(text, " lang=\"{}\"", Language::of(code).tag);
        }
        let is_main = one.is_video() || Some(at) == first_sound;
        let role = if is_main { "main" } else { "alternate" };
        text.push_str(">\n");
        write_role(text, role);
        let codec = (&one.track.codec, Display::default());
        begin_representation(text, id, one.bits_per_second(), codec);
        write_timeline(text, one, period, identity);
        text.push_str("      </Representation>\n    </AdaptationSet>\n");
    }
    text.push_str("  </Period>\n");
}

fn write_timeline(
    text: &mut String,
    one: &ListedTrack<'_>,
    period: &FragmentPeriod,
    identity: &str,
) {
    let FragmentPeriod { first, start, .. } = period;
    let scale = u64::from(one.track.timescale);
    let offset =
        GrowingFragments::ORIGIN_S * scale + (start * scale + PERIOD_UNITS / 2) / PERIOD_UNITS;
    let id = one.stream + 1;
    let _ = write!(
        text,
        "        <SegmentTemplate timescale=\"{scale}\" presentationTimeOffset=\"{offset}\" \
         initialization=\"~{identity}/live/{id}-{first}.mp4\" \
         media=\"~{identity}/live/{id}-{first}-$Time$.m4s\">\n          <SegmentTimeline>\n"
    );
    let next = one.fragments.iter().skip(1).map(|next| next.start).chain([u64::MAX]);
    let entries = one.fragments.iter().zip(next);
    let entries = entries.map(|(one, next)| (one.start, one.end.min(next) - one.start));
    write_entries(text, &entries.collect::<Vec<_>>());
    text.push_str("          </SegmentTimeline>\n        </SegmentTemplate>\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use media::plan::RtpIdentity;
    use media::{GrowingSegments, PartLimit, RecordedStreams, Scanner};

    use super::super::mpd_elements::end;
    use super::*;

    static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");

    /// Fragments of the clip, so many times one behind the other: each time the clock is set anew.
    fn recorded(times: usize) -> (GrowingFragments, u64) {
        let file = CLIP.repeat(times);
        let mut scanner = Scanner::new();
        scanner.feed(&file);
        let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
        let (plan, starts) = scanner.recorded_so_far(identity).expect("a stream");
        let mut segments = GrowingSegments::of(&plan, true).expect("a place to start");
        segments.extend(&plan, &starts, true);
        let streams = RecordedStreams::find(&plan, &file[..]).expect("read").expect("streams");
        let mut fragments = GrowingFragments::new(streams.len(), 0);
        for segment in segments.list() {
            let pids = fragments.pids(&streams);
            let limit = PartLimit::Packet(plan.ts_packets());
            let part = streams.part(&plan, (segment, &pids), limit, &file[..]);
            fragments.push(&streams, part.expect("read"), segment, 0);
        }
        (fragments, segments.target_s())
    }

    /// The description of these segments, published an hour after the recording began.
    fn described(times: usize, listed: Range<usize>, is_complete: bool) -> String {
        let (fragments, target_s) = recorded(times);
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let listed = listed.start..listed.end.min(fragments.next());
        let described = Described {
            programmes: &[&fragments],
            listed,
            listed_s: 14_400,
            began,
            target_s,
            is_complete,
            identity: "R",
        };
        let now = began + Duration::from_millis(3_600_500);
        let text = text(&described, now).expect("it has fragments");
        text + &end(now)
    }

    /// Values of an attribute, in order.
    fn values(text: &str, name: &str) -> Vec<String> {
        let key = format!(" {name}=\"");
        let parts = text.split(&key[..]).skip(1);
        parts.filter_map(|part| part.split('"').next().map(str::to_owned)).collect()
    }

    /// Numbers of segments: the elements of the first timeline with their repetitions.
    fn segments(text: &str) -> u64 {
        let timeline = text.split("<SegmentTimeline>").nth(1).expect("a timeline");
        let timeline = timeline.split("</SegmentTimeline>").next().expect("its end");
        let repeated = values(timeline, "r").iter().map(|r| r.parse::<u64>().unwrap()).sum::<u64>();
        timeline.matches("<S ").count() as u64 + repeated
    }

    #[test]
    fn a_recording_in_progress_is_dynamic_with_all_that_players_need() {
        let text = described(1, 0..usize::MAX, false);
        for (name, expected) in [
            ("type", "dynamic"),
            ("availabilityStartTime", "1970-01-12T13:46:40.000Z"),
            ("publishTime", "1970-01-12T14:46:40.500Z"),
            ("value", "1970-01-12T14:46:40.500Z"),
            ("timeShiftBufferDepth", "PT14400.000S"),
            ("suggestedPresentationDelay", "PT6S"),
            ("minimumUpdatePeriod", "PT1S"),
            ("minBufferTime", "PT2S"),
            ("start", "PT0.000000S"),
            ("initialization", "~R/live/1-0.mp4"),
            ("media", "~R/live/1-0-$Time$.m4s"),
            ("t", "900000"),
        ] {
            assert!(values(&text, name).contains(&expected.to_owned()), "{name}: {text}");
        }
        assert!(text.contains("<Location>~R.mpd</Location>"), "{text}");
        assert_eq!(values(&text, "mediaPresentationDuration"), [""; 0]);
        assert_eq!(values(&text, "contentType"), ["video", "audio"]);
        let (fragments, _) = recorded(1);
        assert_eq!(segments(&text), fragments.next() as u64);
    }

    #[test]
    fn the_list_slides_with_its_times() {
        let (fragments, _) = recorded(1);
        let all = fragments.next();
        let text = described(1, 1..all, false);
        assert_eq!(segments(&text), all as u64 - 1);
        let second = fragments.in_period(0, 0, 1..2)[0];
        assert_eq!(values(&text, "t")[0], second.start.to_string());
        // The period begins where it began, and the depth is that of the list.
        assert_eq!(values(&text, "start"), ["PT0.000000S"]);
        assert_eq!(values(&text, "presentationTimeOffset")[0], "900000");
        let depth = &values(&text, "timeShiftBufferDepth")[0];
        let depth: f64 = depth[2..depth.len() - 1].parse().unwrap();
        let whole = described(1, 0..usize::MAX, true);
        let lasts = &values(&whole, "mediaPresentationDuration")[0];
        let lasts: f64 = lasts[2..lasts.len() - 1].parse().unwrap();
        assert!(depth > 0.0 && depth < lasts - 1.0, "{depth} {lasts}");
    }

    #[test]
    fn a_clock_that_is_set_anew_begins_a_period() {
        let text = described(2, 0..usize::MAX, false);
        assert_eq!(values(&text, "id").iter().filter(|id| *id == "0").count(), 1, "{text}");
        let starts = values(&text, "start");
        assert_eq!(starts.len(), 2, "{text}");
        let start: f64 = starts[1][2..starts[1].len() - 1].parse().unwrap();
        let whole = described(1, 0..usize::MAX, true);
        let lasts = &values(&whole, "mediaPresentationDuration")[0];
        let lasts: f64 = lasts[2..lasts.len() - 1].parse().unwrap();
        assert!((start - lasts).abs() < 0.5, "{start} {lasts}");
        let offsets = values(&text, "presentationTimeOffset");
        let expected = 900_000.0 + start * 90_000.0;
        assert!((offsets[2].parse::<f64>().unwrap() - expected).abs() < 1.0, "{text}");
        // A period whose segments have all left the list leaves it, too.
        let (fragments, _) = recorded(2);
        let second = fragments.periods()[1].first;
        let init = format!("~R/live/2-{second}.mp4");
        assert!(values(&text, "initialization").contains(&init), "{text}");
        // Addresses are those of a period: times of another period are not found there.
        let early = fragments.in_period(1, 0, 0..second)[0].start;
        assert!(fragments.find(1, 0, early).is_some());
        assert!(
            fragments.find(1, second, early).is_none() && fragments.find(1, 1, early).is_none()
        );
        let text = described(2, second..usize::MAX, false);
        assert_eq!(values(&text, "start"), [starts[1].clone()], "{text}");
    }

    #[test]
    fn a_recording_that_is_whole_is_static() {
        let text = described(1, 0..usize::MAX, true);
        assert_eq!(values(&text, "type"), ["static"]);
        for name in ["minimumUpdatePeriod", "timeShiftBufferDepth", "suggestedPresentationDelay"] {
            assert_eq!(values(&text, name), [""; 0], "{name}");
        }
        assert_eq!(values(&text, "mediaPresentationDuration").len(), 1);
    }
}
