// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segments of a recording or channel so far, and the texts of its playlists.
//!
//! A reload costs a copy of the text, which is written anew when a part was added (100 ns a
//! segment).
//!
//! Does not find media ([`super::live`], [`crate::channel::window`]).

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use media::cmaf::bits_per_second;
use media::{GrowingSegment, GrowingSegments, TICKS_PER_SECOND};

use super::address::WebItem;
use super::item_parts::ItemParts;
use super::live_playlist::{self, LISTED_MAX, LiveList, PartDate};
use super::media_playlist::TICKS_PER_US;
use super::shown_tracks::ShownTracks;

/// Segments at the beginning: players start three behind the last, and Chromium's own treats a
/// playlist with fewer as a fault.
const LISTED_MIN: usize = 3;

/// Difference between reception and media time above which a new date is written.
const DATE_DRIFT: Duration = Duration::from_secs(1);

/// The segments so far.
pub(crate) struct LiveState {
    pub(crate) segments: GrowingSegments,
    /// First segment of a channel's playlist; a recording's is an event, and has none.
    sliding_from: Option<usize>,
    /// Duration that a channel's playlist lists.
    shift_ticks: u64,
    dates: Vec<PartDate>,
    /// Another date that is not confirmed yet.
    doubtful: Option<DoubtfulDate>,
    shown: ShownTracks,
    texts: Option<LiveTexts>,
}

/// Time zero computed at one look.
struct DoubtfulDate {
    /// Number of the segment that was not whole, and of its parts.
    cut: (usize, usize),
    began: SystemTime,
}

/// The playlist, and the update without its beginning.
struct LiveTexts {
    /// First segment, segment that is not whole, and number of its parts; true when no more follow.
    listed: (usize, usize, usize, bool),
    whole: Bytes,
    update: Bytes,
}

/// State of a segment or part in a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    Listed,
    /// It is still to be received.
    Expected,
    TooFar,
}

impl LiveState {
    /// Creates the state of a recording.
    pub(super) fn recording(segments: GrowingSegments, shown: ShownTracks) -> LiveState {
        LiveState {
            segments,
            sliding_from: None,
            shift_ticks: 0,
            dates: Vec::new(),
            doubtful: None,
            shown,
            texts: None,
        }
    }

    /// Creates the state of a channel.
    pub(crate) fn channel(segments: GrowingSegments) -> LiveState {
        let shown = ShownTracks::default();
        LiveState { sliding_from: Some(0), ..LiveState::recording(segments, shown) }
    }

    /// Shows other tracks from now on.
    pub(crate) fn show(&mut self, shown: ShownTracks) {
        self.shown = shown;
    }

    /// Records the wall time of the start of the first segment, computed from the data received so
    /// far. A differing time is accepted only when more was cut since: after a gap the clock's next
    /// reference may still be missing.
    pub(crate) fn note_date(&mut self, began: SystemTime) {
        let differs = |known: SystemTime| {
            let drift = began.duration_since(known).unwrap_or_else(|error| error.duration());
            drift > DATE_DRIFT
        };
        let next = self.segments.next_number();
        let Some(known) = self.dates.last().map(|date| date.began) else {
            self.dates.push(PartDate { segment: 0, began });
            return;
        };
        let doubtful = self.doubtful.take();
        if !differs(known) {
            return;
        }
        let cut = (next, self.segments.parts(next).len());
        match doubtful.filter(|doubtful| !differs(doubtful.began)) {
            // The segment that is not whole may be listed already, by its parts.
            Some(doubtful) if cut > doubtful.cut => {
                self.dates.push(PartDate { segment: next + 1, began });
            }
            doubtful => self.doubtful = doubtful.or(Some(DoubtfulDate { cut, began })),
        }
    }

    /// Returns the wall time at which the first segment began.
    pub(super) fn began(&self) -> SystemTime {
        self.dates.first().map_or(SystemTime::UNIX_EPOCH, |date| date.began)
    }

    /// Returns the time by which the source is late at a segment, in ticks, when the first segment
    /// began at `began`. For a segment that begins with a new clock it is known only when the
    /// segment has a date: that of the next.
    pub(super) fn late_ticks(&self, began: SystemTime, segment: usize, is_break: bool) -> u64 {
        let segment = segment + usize::from(is_break);
        let known = self.dates.iter().rev().find(|date| date.segment <= segment);
        let late = known.and_then(|known| known.began.duration_since(began).ok());
        late.map_or(0, |late| late.as_micros() as u64 * TICKS_PER_US)
    }

    /// Lets the playlist of a channel begin with the segments of its last `ticks`, of those that
    /// are not forgotten.
    pub(crate) fn slide(&mut self, ticks: u64) {
        self.shift_ticks = ticks;
        let since = self.segments.next_start().saturating_sub(ticks);
        let list = self.segments.list();
        let left = list.partition_point(|segment| segment.start + segment.ticks <= since);
        let left = left.max(list.len().saturating_sub(LISTED_MAX));
        // It never goes back (RFC 8216 §6.2.2).
        let first = self.first().max(self.segments.first_number() + left);
        self.sliding_from = Some(first);
        let old = self.dates.partition_point(|date| date.segment <= first);
        self.dates.drain(..old.saturating_sub(1));
    }

    /// Returns the time that the playlist lists, as long as nothing has left it, in seconds.
    pub(super) fn listed_s(&self) -> u64 {
        match self.sliding_from {
            None => LISTED_MAX as u64 * self.segments.target_s(),
            Some(_) => self.shift_ticks / TICKS_PER_SECOND,
        }
    }

    /// First segment of the playlist.
    pub(super) fn first(&self) -> usize {
        let oldest = self.segments.next_number().saturating_sub(LISTED_MAX);
        self.sliding_from.unwrap_or(oldest).max(self.segments.first_number())
    }

    /// True when there is enough for players to begin.
    pub(super) fn is_playable(&self) -> bool {
        self.segments.is_complete() || self.segments.next_number() >= self.first() + LISTED_MIN
    }

    /// Returns the longest time for which a request waits.
    pub(super) fn wait_max(&self) -> Duration {
        Duration::from_secs(3 * self.segments.target_s())
    }

    /// Returns the state in the playlist of this segment, or of this part of it or a later one.
    pub(super) fn reached(&self, segment: usize, part: Option<usize>) -> Reached {
        let segments = &self.segments;
        let next = segments.next_number();
        if segments.is_complete() {
            return Reached::Listed;
        }
        let (segment, part) = match part {
            // Behind the last part of a segment it is the first of the next.
            Some(part) if segment < next && part >= segments.parts(segment).len() => {
                (segment + 1, Some(0))
            }
            part => (segment, part),
        };
        let there = segments.parts(next).len();
        let ahead = live_playlist::PARTS_AHEAD_MAX;
        match part {
            _ if segment < next => Reached::Listed,
            // Two segments beyond the last.
            _ if segment > next + 1 => Reached::TooFar,
            Some(part) if segment == next && part < there => Reached::Listed,
            Some(part) if segment == next && part >= there + ahead => Reached::TooFar,
            Some(part) if segment > next && part >= ahead => Reached::TooFar,
            _ => Reached::Expected,
        }
    }

    /// True when a part is the one that the playlist announces.
    pub(super) fn is_announced(&self, segment: usize, part: usize) -> bool {
        let next = self.segments.next_number();
        let is_next = segment == next && part == self.segments.parts(next).len();
        is_next && !self.segments.is_complete()
    }

    /// Returns the bytes and ranges of an item; `None` where there is none, or none yet. For an
    /// `update` of the playlist, only its end.
    pub(super) fn parts(
        &mut self,
        identity: &str,
        item: &WebItem,
        update: bool,
    ) -> Option<ItemParts> {
        match item {
            WebItem::Master => {
                let text = master(identity, self.segments.list(), &self.shown)?;
                Some(ItemParts::of_text(text))
            }
            WebItem::LivePlaylist => {
                let texts = self.texts()?;
                let text = if update { &texts.update } else { &texts.whole };
                Some(ItemParts::of_text(text.clone()))
            }
            WebItem::LiveSegment(number) => {
                let segment = self.segments.segment(*number)?;
                let head = Bytes::copy_from_slice(&segment.tables);
                Some(ItemParts { head, ranges: vec![segment.file.clone()] })
            }
            WebItem::LivePart(segment, number) => {
                let part = self.segments.parts(*segment).get(*number)?;
                let head = if *number == 0 { self.segments.tables(*segment) } else { &[] };
                let head = Bytes::copy_from_slice(head);
                Some(ItemParts { head, ranges: vec![part.file.clone()] })
            }
            _ => None,
        }
    }

    /// Returns the playlist; `None` before the first segment.
    fn texts(&mut self) -> Option<&LiveTexts> {
        let (first, next) = (self.first(), self.segments.next_number());
        let listed = (first, next, self.segments.parts(next).len(), self.segments.is_complete());
        if first == next {
            return None;
        }
        if self.texts.as_ref().is_none_or(|texts| texts.listed != listed) {
            let (segments, dates) = (&self.segments, &self.dates[..]);
            let is_event = self.sliding_from.is_none();
            let list = LiveList { segments, dates, first, is_event };
            let text = |update| list.text(update).into();
            self.texts = Some(LiveTexts { listed, whole: text(false), update: text(true) });
        }
        self.texts.as_ref()
    }
}

/// Writes the multivariant playlist; `None` before the first segment.
fn master(identity: &str, segments: &[GrowingSegment], shown: &ShownTracks) -> Option<String> {
    let rate = |segment: &GrowingSegment| {
        let bytes = segment.file.end - segment.file.start + segment.tables.len() as u64;
        bits_per_second(bytes, segment.ticks)
    };
    let peak = segments.iter().map(rate).max()?.max(1);
    let mut text = format!("#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-STREAM-INF:BANDWIDTH={peak}");
    text.push_str(&shown.attributes(None));
    text.push_str(&format!("\n~{identity}/live.m3u8\n"));
    Some(text)
}

#[cfg(test)]
mod tests {
    use media::StreamUnits;

    use super::*;

    static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");

    /// A channel that plays the clip again and again.
    struct Channel {
        units: StreamUnits,
        state: LiveState,
        programmes: usize,
    }

    impl Channel {
        fn begin() -> Channel {
            let mut units = StreamUnits::default();
            while GrowingSegments::of_channel(&units, 0).is_none() {
                units.feed(CLIP);
            }
            let segments = GrowingSegments::of_channel(&units, 0).unwrap();
            let mut state = LiveState::channel(segments);
            state.note_date(SystemTime::UNIX_EPOCH);
            Channel { units, state, programmes: 0 }
        }

        fn play(&mut self, listed_s: u64) -> String {
            self.units.note_join(self.units.packets());
            self.programmes += 1;
            self.units.feed(CLIP);
            self.state.segments.extend_channel(&self.units);
            self.state.slide(listed_s * TICKS_PER_SECOND);
            self.units.forget_before(self.state.segments.next_byte() / 188);
            self.text()
        }

        fn text(&mut self) -> String {
            let made = self.state.parts("1-2-3.1", &WebItem::LivePlaylist, false).unwrap();
            String::from_utf8(made.head.into()).unwrap()
        }
    }

    fn number(text: &str, tag: &str) -> usize {
        let line = text.lines().find_map(|line| line.strip_prefix(tag)).expect(tag);
        line.parse().unwrap()
    }

    fn segments(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn a_playlist_slides_and_its_numbers_count_on() {
        let mut channel = Channel::begin();
        let (mut first, mut target) = (0, None);
        let mut durations = std::collections::BTreeMap::new();
        for round in 0..12 {
            let text = channel.play(12);
            assert!(!text.contains("PLAYLIST-TYPE") && !text.contains("ENDLIST"), "{text}");
            let sequence = number(&text, "#EXT-X-MEDIA-SEQUENCE:");
            assert!(sequence >= first, "round {round}: {text}");
            first = sequence;
            let uris = segments(&text);
            assert_eq!(uris[0], format!("live/{sequence}.ts"), "{text}");
            let found = number(&text, "#EXT-X-TARGETDURATION:");
            assert_eq!(*target.get_or_insert(found), found);
            // Each discontinuity is listed, or counted when its segment has left.
            let listed = text.lines().filter(|line| *line == "#EXT-X-DISCONTINUITY").count();
            let gone = number(&text, "#EXT-X-DISCONTINUITY-SEQUENCE:");
            assert_eq!(listed + gone, channel.programmes, "{text}");
            let lasts = text.lines().filter_map(|line| line.strip_prefix("#EXTINF:"));
            for (uri, lasts) in uris.iter().zip(lasts) {
                let before = durations.entry((*uri).to_owned()).or_insert(lasts.to_owned());
                assert_eq!(before, lasts, "{uri} has the duration that it had");
            }
        }
        assert!(first > 0, "it slides");
        let known = channel.state.segments.next_number();
        // Forgotten segments are neither listed nor available.
        let gone = channel.state.segments.segment(first).unwrap().file.end;
        channel.state.segments.forget_before(gone);
        channel.state.slide(12 * TICKS_PER_SECOND);
        let text = channel.text();
        assert_eq!(number(&text, "#EXT-X-MEDIA-SEQUENCE:"), first + 1);
        assert_eq!(segments(&text).len(), known - first - 1);
        let item = |number| WebItem::LiveSegment(number);
        assert!(channel.state.parts("1-2-3.1", &item(first), false).is_none());
        assert!(channel.state.parts("1-2-3.1", &item(first + 1), false).is_some());
        assert_eq!(channel.state.segments.next_number(), known);
    }

    #[test]
    fn a_wall_clock_that_is_set_dates_the_segments_behind() {
        let mut channel = Channel::begin();
        let before = channel.play(600);
        let hour = Duration::from_secs(3600);
        channel.state.note_date(SystemTime::UNIX_EPOCH + hour + Duration::from_millis(900));
        // Once is not enough.
        channel.state.note_date(SystemTime::UNIX_EPOCH);
        channel.play(600);
        channel.state.note_date(SystemTime::UNIX_EPOCH + hour);
        let doubtful = channel.play(600);
        assert!(!doubtful.contains("#EXT-X-PROGRAM-DATE-TIME:1970-01-01T01:"));
        channel.state.note_date(SystemTime::UNIX_EPOCH + hour);
        let text = (0..4).map(|_| channel.play(600)).last().unwrap();
        let tag = "#EXT-X-PROGRAM-DATE-TIME:";
        assert!(!before.contains(&format!("{tag}1970-01-01T01:")), "{before}");
        let dates: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(tag)).collect();
        assert!(dates[0].starts_with("1970-01-01T00:00:0"), "{text}");
        assert!(dates.last().unwrap().starts_with("1970-01-01T01:0"), "{text}");
    }
}
