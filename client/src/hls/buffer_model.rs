// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model of a player's buffer: media arrives in segments, and the clock consumes it.
//!
//! Play starts when the prebuffer, or the first segment of each rendition, has arrived. It stalls
//! when the clock reaches the end of the buffered media, and resumes when as much is buffered as
//! for a start. Time is an argument: the model is updated at each segment, and needs no timer.
//!
//! Sources: RFC 8216 §6.3.3 (playing); Apple's HLS tools count stalls in the same way.
//! Does not model decoders, seeks, or players that slow down before a stall.

use std::time::{Duration, Instant};

use serde::Serialize;

/// A stall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PlayStall {
    /// Media time at which play stalled, in seconds.
    pub at_s: f64,
    /// Length of the stall, in seconds.
    pub length_s: f64,
}

/// Buffer of one viewer.
#[derive(Debug)]
pub(super) struct BufferModel {
    began: Instant,
    /// Media required before play starts or resumes; any amount if none.
    prebuffer: Option<Duration>,
    renditions: Vec<BufferedRendition>,
    position: Duration,
    /// Time of the last update.
    until: Instant,
    state: ModelState,
    has_media: bool,
    start: Option<Duration>,
    listed: Vec<PlayStall>,
    stalls: u64,
    stalled: Duration,
}

#[derive(Debug, Clone, Copy)]
struct BufferedRendition {
    /// Media time of the end of the buffered media.
    end: Duration,
    is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelState {
    /// Before the start.
    Waiting,
    Playing,
    Stalled {
        since: Instant,
    },
    Ended,
}

impl BufferModel {
    /// An empty buffer for renditions that begin at these media times.
    pub(super) fn new(
        began: Instant,
        starts: &[Duration],
        prebuffer: Option<Duration>,
    ) -> BufferModel {
        let renditions = starts.iter().map(|end| BufferedRendition { end: *end, is_done: false });
        BufferModel {
            began,
            prebuffer,
            renditions: renditions.collect(),
            position: starts.iter().max().copied().unwrap_or_default(),
            until: began,
            state: ModelState::Waiting,
            has_media: false,
            start: None,
            listed: Vec::new(),
            stalls: 0,
            stalled: Duration::ZERO,
        }
    }

    /// Adds media of a rendition that has just arrived.
    pub(super) fn add(&mut self, now: Instant, rendition: usize, media: Duration) {
        self.advance(now);
        self.renditions[rendition].end += media;
        self.has_media = true;
        self.resume(now);
    }

    /// Skips missing media of a rendition: the clock runs, and play does not start.
    pub(super) fn skip(&mut self, now: Instant, rendition: usize, media: Duration) {
        self.advance(now);
        self.renditions[rendition].end += media;
    }

    /// Marks a rendition as complete.
    pub(super) fn finish(&mut self, now: Instant, rendition: usize) {
        self.advance(now);
        self.renditions[rendition].is_done = true;
        self.resume(now);
        self.advance(now);
    }

    /// Updates the model to this time.
    pub(super) fn advance(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.until);
        let since = self.until;
        self.until = self.until.max(now);
        if self.state != ModelState::Playing {
            return;
        }
        let left = self.end().saturating_sub(self.position);
        if elapsed < left {
            self.position += elapsed;
            return;
        }
        self.position += left;
        self.state = match self.renditions.iter().all(|rendition| rendition.is_done) {
            true => ModelState::Ended,
            false => ModelState::Stalled { since: since + left },
        };
    }

    /// Starts or resumes play where enough is buffered.
    fn resume(&mut self, now: Instant) {
        let is_done = self.renditions.iter().all(|rendition| rendition.is_done);
        let there = self.end().saturating_sub(self.position);
        let is_enough = match self.prebuffer {
            Some(wanted) => there >= wanted,
            None => !there.is_zero(),
        };
        if !is_enough && !is_done {
            return;
        }
        match self.state {
            ModelState::Waiting if there.is_zero() || !self.has_media => return,
            ModelState::Waiting => self.start = Some(now.saturating_duration_since(self.began)),
            ModelState::Stalled { .. } if there.is_zero() => {
                // All media was played already: play has ended, without a stall.
                self.state = ModelState::Ended;
                return;
            }
            ModelState::Stalled { since } => self.end_stall(since, now),
            ModelState::Playing | ModelState::Ended => return,
        }
        self.state = ModelState::Playing;
    }

    fn end_stall(&mut self, since: Instant, now: Instant) {
        let length = now.saturating_duration_since(since);
        if length < STALL_MIN {
            return;
        }
        self.stalls += 1;
        self.stalled += length;
        if self.listed.len() < STALLS_LISTED {
            let (at_s, length_s) = (self.position.as_secs_f64(), length.as_secs_f64());
            self.listed.push(PlayStall { at_s, length_s });
        }
    }

    /// Counts a current stall up to this time: the viewer leaves.
    pub(super) fn leave(&mut self, now: Instant) {
        self.advance(now);
        if let ModelState::Stalled { since } = self.state {
            self.end_stall(since, now);
            self.state = ModelState::Ended;
        }
    }

    /// End of the playable media: the least end among the incomplete renditions; the greatest where
    /// all are complete.
    fn end(&self) -> Duration {
        let open = self.renditions.iter().filter(|rendition| !rendition.is_done);
        let least = open.map(|rendition| rendition.end).min();
        let longest = || self.renditions.iter().map(|rendition| rendition.end).max();
        least.or_else(longest).unwrap_or_default()
    }

    /// Buffered media of a rendition that was not played yet.
    pub(super) fn ahead(&self, rendition: usize) -> Duration {
        self.renditions[rendition].end.saturating_sub(self.position)
    }

    /// Time from now to the end of play, for a model whose renditions are complete.
    pub(super) fn left(&self) -> Duration {
        match self.state {
            ModelState::Playing => self.end().saturating_sub(self.position),
            _ => Duration::ZERO,
        }
    }

    /// Current media time.
    pub(super) fn position(&self) -> Duration {
        self.position
    }

    /// Time from the beginning to the start of play.
    pub(super) fn start(&self) -> Option<Duration> {
        self.start
    }

    pub(super) fn is_stalled(&self) -> bool {
        matches!(self.state, ModelState::Stalled { .. })
    }

    /// Number of stalls, their total length, and the first of them.
    pub(super) fn stalls(&self) -> (u64, Duration, &[PlayStall]) {
        (self.stalls, self.stalled, &self.listed)
    }
}

const STALLS_LISTED: usize = 20;
/// Rounding of durations in playlists and the processing time of a segment do not count as stalls.
const STALL_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    struct Run {
        began: Instant,
        model: BufferModel,
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    impl Run {
        fn new(renditions: usize, prebuffer: Option<u64>) -> Run {
            let began = Instant::now();
            let starts = vec![Duration::ZERO; renditions];
            let model = BufferModel::new(began, &starts, prebuffer.map(ms));
            Run { began, model }
        }

        fn add(&mut self, at: u64, rendition: usize, media: u64) {
            self.model.add(self.began + ms(at), rendition, ms(media));
        }

        fn finish(&mut self, at: u64, rendition: usize) {
            self.model.finish(self.began + ms(at), rendition);
        }

        fn position(&mut self, at: u64) -> u64 {
            self.model.advance(self.began + ms(at));
            self.model.position().as_millis() as u64
        }
    }

    #[test]
    fn play_starts_with_the_first_segment_and_follows_the_clock() {
        let mut run = Run::new(1, None);
        assert_eq!(run.position(90), 0);
        run.add(100, 0, 4000);
        assert_eq!(run.model.start(), Some(ms(100)));
        assert_eq!(run.position(1100), 1000);
        assert_eq!(run.model.ahead(0), ms(3000));
        run.add(4000, 0, 4000);
        run.finish(4000, 0);
        assert_eq!(run.model.left(), ms(8000 - 3900));
        assert_eq!(run.position(20_000), 8000);
        run.model.leave(run.began + ms(20_000));
        assert_eq!(run.model.stalls().0, 0, "an end is no stall");
    }

    #[test]
    fn a_stall_lasts_until_enough_is_there_again() {
        let mut run = Run::new(1, Some(3000));
        run.add(0, 0, 2000);
        assert_eq!(run.model.start(), None);
        run.add(500, 0, 2000);
        assert_eq!(run.model.start(), Some(ms(500)));
        // Media time 4000 ms is reached at 4500.
        assert_eq!(run.position(6000), 4000);
        assert!(run.model.is_stalled());
        run.add(6000, 0, 2000);
        assert!(run.model.is_stalled());
        run.add(6500, 0, 2000);
        let (stalls, length, listed) = run.model.stalls();
        assert_eq!((stalls, length), (1, ms(2000)));
        assert_eq!(listed, [PlayStall { at_s: 4.0, length_s: 2.0 }]);
        assert_eq!(run.position(7500), 5000);
    }

    #[test]
    fn the_end_of_the_list_starts_what_is_too_short() {
        let mut run = Run::new(1, Some(3000));
        run.add(0, 0, 2000);
        run.finish(100, 0);
        assert_eq!((run.model.start(), run.model.left()), (Some(ms(100)), ms(2000)));
        let mut empty = Run::new(1, None);
        empty.finish(100, 0);
        assert_eq!((empty.model.start(), empty.model.left()), (None, Duration::ZERO));
    }

    #[test]
    fn a_list_that_ends_after_its_media_has_no_stall() {
        let mut run = Run::new(1, None);
        run.add(0, 0, 1000);
        run.finish(3000, 0);
        run.model.leave(run.began + ms(5000));
        assert_eq!((run.model.stalls().0, run.model.is_stalled()), (0, false));
    }

    #[test]
    fn what_does_not_come_passes_and_starts_nothing() {
        let mut run = Run::new(1, None);
        run.model.skip(run.began, 0, ms(1000));
        assert_eq!(run.model.start(), None);
        run.add(100, 0, 1000);
        assert_eq!(run.model.start(), Some(ms(100)));
        assert_eq!(run.position(1600), 1500);
        let mut none = Run::new(1, None);
        none.model.skip(none.began, 0, ms(1000));
        none.finish(100, 0);
        assert_eq!((none.model.start(), none.model.left()), (None, Duration::ZERO));
    }

    #[test]
    fn the_slower_rendition_stalls_both() {
        let mut run = Run::new(2, None);
        run.add(0, 0, 4000);
        assert_eq!(run.model.start(), None);
        run.add(200, 1, 2000);
        assert_eq!(run.model.start(), Some(ms(200)));
        assert_eq!(run.position(5000), 2000);
        run.add(5000, 1, 2000);
        assert_eq!(run.model.stalls().1, ms(2800));
        // Audio that ends before the video does not stall play.
        run.finish(5000, 1);
        run.add(5000, 0, 1000);
        run.finish(5000, 0);
        assert_eq!(run.position(60_000), 5000);
        assert_eq!(run.model.stalls().0, 1);
    }

    #[test]
    fn who_leaves_in_a_stall_has_stalled() {
        let mut run = Run::new(1, None);
        run.add(0, 0, 1000);
        run.model.leave(run.began + ms(3000));
        assert_eq!(run.model.stalls().1, ms(2000));
    }
}
