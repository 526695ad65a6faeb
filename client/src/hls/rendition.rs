// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches one rendition: its segments in order, its init sections, and reloads of a live playlist.
//!
//! A segment that cannot be fetched is requested once more, and then skipped. Play continues after
//! it, as in players, until several in a row are missing. The clock runs through skipped segments
//! and segments marked with EXT-X-GAP, without media.
//!
//! Sources: RFC 8216 §6.2.1, §6.2.2 (changes of a playlist), §6.3.3 (live start), §6.3.4 (reload).
//! Does not load partial segments, and does not synchronise renditions by EXT-X-PROGRAM-DATE-TIME.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::connection::{BodyTarget, FetchFault, HttpConnections};
use super::playlist::{FetchedMaster, FetchedMedia, ListedResource, ListedSegment, ListedVariant};
use super::segment_check::{FoundFaults, SegmentCheck, SegmentContainer};
use super::verdict::HlsEnd;
use super::viewer::{LoadedPlaylist, Viewer};
use crate::http_url::UrlParts;

/// A fetched rendition.
pub(super) struct Rendition<'a> {
    viewer: &'a Viewer<'a>,
    /// 0 for the main rendition, 1 for the separate audio.
    index: usize,
    connections: HttpConnections,
    playlist: LoadedPlaylist,
    /// Address in the master playlist, which reloads request.
    address: UrlParts,
    /// True if the last reload found a change, and the time of the last change.
    is_changed: bool,
    changed: Instant,
    /// Number of the next segment, and its time.
    next: u64,
    pub(super) time: Duration,
    begins: Duration,
    check: Option<SegmentCheck>,
    init: Option<Arc<ListedResource>>,
    /// The next segment does not follow the last one.
    is_interrupted: bool,
    failed_in_turn: u32,
    /// Variants to switch among; empty for an audio rendition.
    master: FetchedMaster,
    variant: usize,
    /// Playlists with an end, by index of the variant.
    known: HashMap<usize, LoadedPlaylist>,
    /// Smoothed throughput of the last segments, in bits a second.
    throughput: Option<f64>,
}

/// Figures of a rendition.
#[derive(Debug, Clone, Default)]
pub(super) struct RenditionStats {
    pub(super) address: String,
    pub(super) segments: u64,
    pub(super) bytes: u64,
    pub(super) media: Duration,
    /// Highest bit rate of a segment.
    pub(super) peak_bits_per_second: f64,
    pub(super) container: Option<SegmentContainer>,
    pub(super) discontinuities: u64,
    /// Segments that the playlist marks as missing.
    pub(super) gaps: u64,
    /// Segments that could not be fetched, or that left the playlist before.
    pub(super) missed: u64,
    pub(super) init_sections: u64,
}

impl<'a> Rendition<'a> {
    pub(super) fn new(
        viewer: &'a Viewer<'a>,
        index: usize,
        connections: HttpConnections,
        playlist: LoadedPlaylist,
    ) -> Rendition<'a> {
        let media = &playlist.media;
        let (next, time) = match viewer.plan.start {
            Some(start) => media.segment_at(start),
            None if media.has_end => (media.sequence, Duration::ZERO),
            None => (live_start(media), Duration::ZERO),
        };
        let address = playlist.address.clone();
        let stats = RenditionStats { address: address.to_string(), ..RenditionStats::default() };
        viewer.lock().renditions.push(stats);
        let rendition = Rendition {
            viewer,
            index,
            connections,
            address,
            is_changed: true,
            changed: playlist.asked,
            next,
            time,
            begins: time,
            check: viewer.is_verified.then(SegmentCheck::new),
            init: None,
            is_interrupted: false,
            failed_in_turn: 0,
            master: FetchedMaster::default(),
            variant: 0,
            known: HashMap::new(),
            throughput: None,
            playlist,
        };
        rendition.check_durations();
        rendition
    }

    /// Sets the variants to switch among.
    pub(super) fn set_variants(&mut self, master: FetchedMaster, chosen: usize) {
        (self.master, self.variant) = (master, chosen);
    }

    /// Fetches to the end.
    ///
    /// # Errors
    /// The end of play, where the other rendition must end as well.
    pub(super) async fn run(&mut self) -> Result<HlsEnd, HlsEnd> {
        let end = self.fetch_all().await;
        let index = self.index;
        self.viewer.with_model(|model, now| model.finish(now, index));
        end
    }

    async fn fetch_all(&mut self) -> Result<HlsEnd, HlsEnd> {
        loop {
            let fetched = self.time.saturating_sub(self.begins);
            if self.viewer.plan.length.is_some_and(|length| fetched >= length) {
                return Ok(HlsEnd::Length);
            }
            let Some(segment) = self.playlist.media.segment(self.next).cloned() else {
                if self.playlist.media.has_end {
                    return Ok(HlsEnd::Complete);
                }
                self.reload().await?;
                continue;
            };
            self.await_room().await;
            self.segment(&segment).await?;
            self.next += 1;
            self.time += segment.duration;
            self.switch().await;
        }
    }

    /// Waits until less media is buffered than the limit of media fetched ahead.
    async fn await_room(&self) {
        let settings = &self.viewer.plan.settings;
        let most = settings.ahead.max(settings.prebuffer.unwrap_or_default());
        if self.viewer.plan.is_fast {
            return;
        }
        loop {
            let ahead = self.viewer.with_model(|model, now| {
                model.advance(now);
                model.ahead(self.index)
            });
            let Some(beyond) = ahead.checked_sub(most).filter(|beyond| !beyond.is_zero()) else {
                return;
            };
            // While the other rendition stalls play, the remaining time is unknown.
            sleep(beyond.clamp(ROOM_LOOK_MIN, ROOM_LOOK_MAX)).await;
        }
    }

    /// Fetches a segment, and its init section where that has changed; counts it.
    async fn segment(&mut self, segment: &ListedSegment) -> Result<(), HlsEnd> {
        let is_discontinuity = segment.is_discontinuity || self.is_interrupted;
        self.stats(|stats| stats.discontinuities += u64::from(segment.is_discontinuity));
        let mut is_there = !segment.is_gap;
        if segment.is_gap {
            self.stats(|stats| stats.gaps += 1);
        } else {
            let mut result = self.try_segment(segment, is_discontinuity).await;
            if result.is_err() {
                sleep(RETRY_WAIT).await;
                result = self.try_segment(segment, true).await;
            }
            is_there = result.is_ok();
            if let Err(found) = result {
                self.stats(|stats| stats.missed += 1);
                self.failed_in_turn += 1;
                if self.failed_in_turn >= FAILED_IN_TURN_MAX {
                    return Err(HlsEnd::Failed { found });
                }
            }
        }
        if is_there {
            self.failed_in_turn = 0;
            self.stats(|stats| stats.media += segment.duration);
        }
        self.is_interrupted = !is_there;
        let (index, media) = (self.index, segment.duration);
        let is_start = self.viewer.with_model(|model, now| {
            let was_started = model.start().is_some();
            match is_there {
                true => model.add(now, index, media),
                false => model.skip(now, index, media),
            }
            !was_started && model.start().is_some()
        });
        if is_start {
            self.viewer.count_started();
        }
        Ok(())
    }

    /// Requests a segment once; the fault of an error is recorded already.
    async fn try_segment(
        &mut self,
        segment: &ListedSegment,
        is_discontinuity: bool,
    ) -> Result<(), String> {
        if segment.init != self.init {
            if let Some(init) = &segment.init {
                self.init_section(init).await?;
            }
            self.init.clone_from(&segment.init);
        }
        let viewer = self.viewer;
        let is_main = self.index == 0 && viewer.has_output();
        let written = viewer.output_bytes();
        let mut faults = FoundFaults::default();
        if let Some(check) = &mut self.check {
            check.begin(segment.init.is_some(), is_discontinuity, segment.is_enciphered);
        }
        let timeouts = &viewer.plan.timeouts;
        let within = timeouts.segment.max(segment.duration * timeouts.segment_durations);
        let mut check = self.check.as_mut();
        let mut sink = |bytes: &[u8]| {
            if let Some(check) = &mut check {
                check.feed(bytes, &mut faults);
            }
            if is_main {
                viewer.write(bytes);
            }
        };
        let mut target = match viewer.is_verified || is_main {
            true => BodyTarget::Sink(&mut sink),
            false => BodyTarget::Discarded,
        };
        let fetched =
            self.connections.fetch(&segment.resource, SEGMENT_BYTES_MAX, within, &mut target).await;
        match fetched {
            Err(fault) => {
                if is_main {
                    viewer.cut_output(written);
                }
                Err(self.failed(&segment.resource, fault))
            }
            Ok(fetched) => {
                let container = self.check.as_mut().and_then(|check| check.end(&mut faults));
                self.record_faults(&segment.resource, faults);
                viewer.count_bytes(fetched.bytes);
                let bits = fetched.bytes as f64 * 8.0;
                self.throughput = Some(smoothed(self.throughput, bits, fetched.wall));
                self.stats(|stats| {
                    stats.segments += 1;
                    stats.bytes += fetched.bytes;
                    stats.container = container.or(stats.container);
                    let seconds = segment.duration.as_secs_f64();
                    // The rate of a short last segment is not representative.
                    if seconds >= PEAK_S_MIN {
                        stats.peak_bits_per_second = stats.peak_bits_per_second.max(bits / seconds);
                    }
                });
                Ok(())
            }
        }
    }

    async fn init_section(&mut self, init: &ListedResource) -> Result<(), String> {
        let mut bytes = Vec::new();
        let mut append = |part: &[u8]| bytes.extend_from_slice(part);
        let within = self.viewer.plan.timeouts.playlist;
        let mut target = BodyTarget::Sink(&mut append);
        let fetched = self.connections.fetch(init, INIT_BYTES_MAX, within, &mut target).await;
        let fetched = fetched.map_err(|fault| self.failed(init, fault))?;
        if self.index == 0 {
            self.viewer.write(&bytes);
        }
        let mut faults = FoundFaults::default();
        if let Some(check) = &mut self.check {
            check.init(&bytes, &mut faults);
        }
        self.record_faults(init, faults);
        self.viewer.count_bytes(fetched.bytes);
        self.stats(|stats| {
            stats.init_sections += 1;
            stats.bytes += fetched.bytes;
        });
        Ok(())
    }

    /// Records the fault of a request; returns its text.
    fn failed(&self, wanted: &ListedResource, fault: FetchFault) -> String {
        self.viewer.fault(wanted, fault.offset, fault.found.clone());
        format!("GET {}: {}", wanted.address.path, fault.found)
    }

    fn record_faults(&self, at: &ListedResource, faults: FoundFaults) {
        let unlisted = faults.count - faults.listed.len() as u64;
        for (offset, found) in faults.listed {
            self.viewer.fault(at, Some(offset), found);
        }
        self.viewer.lock().fault_count += unlisted;
    }

    /// Reloads a live playlist, no sooner than the RFC allows.
    async fn reload(&mut self) -> Result<(), HlsEnd> {
        let target = self.playlist.media.target.max(RELOAD_WAIT_MIN);
        let wait = if self.is_changed { target } else { target / 2 };
        sleep(wait.saturating_sub(self.playlist.asked.elapsed())).await;
        let address = self.address.clone();
        let asked = Instant::now();
        let loaded = self.viewer.media_playlist(&mut self.connections, &address).await;
        let quiet_max = (target * QUIET_DURATIONS).max(self.viewer.plan.timeouts.quiet);
        match loaded {
            Err(fault) => {
                let at = ListedResource { address, span: None };
                let found = self.failed(&at, fault);
                self.playlist.asked = asked;
                self.is_changed = false;
                if self.changed.elapsed() > quiet_max {
                    return Err(HlsEnd::Failed { found });
                }
            }
            Ok(loaded) => {
                self.compare(&loaded.media);
                self.is_changed = loaded.media.end_sequence() != self.playlist.media.end_sequence()
                    || loaded.media.has_end != self.playlist.media.has_end;
                self.playlist = loaded;
                if self.is_changed {
                    self.changed = asked;
                    self.check_durations();
                } else if self.changed.elapsed() > quiet_max {
                    return Err(HlsEnd::Quiet { seconds: self.changed.elapsed().as_secs() });
                }
                self.step_over_expired();
            }
        }
        Ok(())
    }

    /// Compares a playlist with the previous one (RFC 8216 §6.2.1, §6.2.2).
    fn compare(&self, new: &FetchedMedia) {
        let old = &self.playlist.media;
        let at = ListedResource { address: self.address.clone(), span: None };
        let record_faults = |found: String| self.viewer.fault(&at, None, found);
        if new.sequence < old.sequence {
            record_faults(format!(
                "EXT-X-MEDIA-SEQUENCE {} after {} (RFC 8216 §6.2.2)",
                new.sequence, old.sequence
            ));
        }
        if new.target != old.target {
            let (new, old) = (new.target.as_secs(), old.target.as_secs());
            record_faults(format!("EXT-X-TARGETDURATION {new} after {old} (RFC 8216 §6.2.1)"));
        }
        if new.end_sequence() < old.end_sequence() {
            let (new, old) = (new.end_sequence(), old.end_sequence());
            record_faults(format!("segments were taken from the end: {old} before, now {new}"));
        }
        let first = new.sequence.max(old.sequence);
        let last = new.end_sequence().min(old.end_sequence());
        let changed = (first..last).find(|sequence| {
            let (new, old) = (new.segment(*sequence), old.segment(*sequence));
            new.map(|it| &it.resource) != old.map(|it| &it.resource)
        });
        if let Some(sequence) = changed {
            record_faults(format!(
                "segment {sequence} has another address than before (RFC 8216 §6.2.1)"
            ));
        }
    }

    /// Continues with the first segment, where the next one has left the playlist.
    fn step_over_expired(&mut self) {
        let first = self.playlist.media.sequence;
        if self.next < first {
            let missed = first - self.next;
            let at = ListedResource { address: self.address.clone(), span: None };
            let found = format!("{missed} segments left the playlist before they were fetched");
            self.viewer.fault(&at, None, found);
            self.stats(|stats| stats.missed += missed);
            (self.next, self.is_interrupted) = (first, true);
        }
    }

    /// Compares the segments' durations with the target duration, once for each playlist.
    fn check_durations(&self) {
        let media = &self.playlist.media;
        let rounded = |segment: &ListedSegment| segment.duration.as_secs_f64().round() as u64;
        let is_long = |segment: &&ListedSegment| rounded(segment) > media.target.as_secs();
        if let Some(long) = media.segments.iter().find(is_long) {
            let found = format!(
                "a segment of {:.3} s, the target duration is {} s (RFC 8216 §4.3.3.1)",
                long.duration.as_secs_f64(),
                media.target.as_secs()
            );
            self.viewer.fault(&long.resource, None, found);
        }
    }

    /// Switches to the variant that fits the measured throughput.
    async fn switch(&mut self) {
        let choice = self.viewer.plan.settings.variant;
        let Some(current) = self.master.variants.get(self.variant) else { return };
        let Some(throughput) = self.throughput.filter(|_| choice == super::VariantChoice::Auto)
        else {
            return;
        };
        let group = current.audio_group.clone();
        // Audio continues on its own: only variants of the same group are candidates.
        let is_allowed = |variant: &ListedVariant| variant.audio_group == group;
        let bits = (throughput * THROUGHPUT_SHARE) as u64;
        let best = choice.best(&self.master, bits, is_allowed);
        let is_last =
            self.playlist.media.has_end && self.next >= self.playlist.media.end_sequence();
        if best == self.variant || is_last {
            return;
        }
        let address = self.master.variants[best].address.clone();
        let loaded = match self.known.remove(&best) {
            Some(known) => known,
            None => match self.viewer.media_playlist(&mut self.connections, &address).await {
                Ok(loaded) => loaded,
                Err(fault) => {
                    self.failed(&ListedResource { address, span: None }, fault);
                    // A missing variant is not requested again.
                    self.master.variants[best].audio_group = Some("\0missing".to_owned());
                    return;
                }
            },
        };
        let next = match loaded.media.has_end {
            // Segments of different variants may begin some milliseconds apart.
            true => loaded.media.segment_at(self.time + SWITCH_SLACK).0,
            false => self.next,
        };
        // Live variants may have different sequence numbers.
        let numbers = loaded.media.sequence..=loaded.media.end_sequence();
        if !loaded.media.has_end && !numbers.contains(&next) {
            return;
        }
        let before = std::mem::replace(&mut self.playlist, loaded);
        if before.media.has_end {
            self.known.insert(self.variant, before);
        }
        (self.variant, self.next, self.address) = (best, next, address);
        (self.is_interrupted, self.is_changed) = (true, true);
        self.changed = Instant::now();
        {
            let mut state = self.viewer.lock();
            state.switches += 1;
            state.variant = self.master.variants.get(best).cloned();
        }
        let address = self.playlist.address.to_string();
        self.stats(|stats| stats.address = address);
        self.check_durations();
        self.step_over_expired();
    }

    fn stats(&self, change: impl FnOnce(&mut RenditionStats)) {
        if let Some(stats) = self.viewer.lock().renditions.get_mut(self.index) {
            change(stats);
        }
    }
}

/// First segment of a live play: at least three target durations before the end.
fn live_start(media: &FetchedMedia) -> u64 {
    let wanted = media.target * LIVE_TARGETS;
    let mut there = Duration::ZERO;
    let mut start = media.end_sequence();
    for segment in media.segments.iter().rev() {
        if there >= wanted {
            break;
        }
        there += segment.duration;
        start -= 1;
    }
    start
}

/// Averages the previous throughput and that of a segment, half each.
fn smoothed(before: Option<f64>, bits: f64, wall: Duration) -> f64 {
    let now = bits / wall.as_secs_f64().max(1e-6);
    before.map_or(now, |before| (before + now) / 2.0)
}

const LIVE_TARGETS: u32 = 3;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
const INIT_BYTES_MAX: u64 = 4 << 20;
const RETRY_WAIT: Duration = Duration::from_millis(500);
const FAILED_IN_TURN_MAX: u32 = 3;
/// Minimum wait before a reload, for a playlist with a zero target duration.
const RELOAD_WAIT_MIN: Duration = Duration::from_millis(500);
const QUIET_DURATIONS: u32 = 6;
const ROOM_LOOK_MIN: Duration = Duration::from_millis(5);
const ROOM_LOOK_MAX: Duration = Duration::from_secs(1);
const PEAK_S_MIN: f64 = 0.5;
/// Share of the measured throughput that a variant may need.
const THROUGHPUT_SHARE: f64 = 0.8;
const SWITCH_SLACK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hls::playlist::{FetchedPlaylist, read_playlist};

    #[test]
    fn live_play_begins_three_target_durations_before_the_end() {
        let start = |segments: usize| {
            let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:5\n".to_owned();
            text.push_str(&"#EXTINF:1.5,\na.ts\n".repeat(segments));
            let read = read_playlist(text.as_bytes(), &UrlParts::parse("http://h/").unwrap());
            let Ok(FetchedPlaylist::Media(media)) = read else { panic!("{read:?}") };
            live_start(&media)
        };
        assert_eq!([0, 1, 4, 9].map(start), [5, 5, 5, 10]);
    }

    #[test]
    fn throughput_follows_the_last_segments() {
        assert_eq!(smoothed(None, 8000.0, Duration::from_secs(2)), 4000.0);
        assert_eq!(smoothed(Some(4000.0), 8000.0, Duration::from_secs(4)), 3000.0);
    }
}
