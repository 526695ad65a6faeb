// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of earlier sessions of a source that the next session depends on.
//!
//! Sources: RFC 2326 §10.5, §12.29.

use std::time::Duration;

use crate::title::{EarlierSessions, TitleRange, gap, is_nothing};

/// Results of earlier sessions that the next session depends on.
#[derive(Default)]
pub(crate) struct SessionHistory {
    /// True once UDP was found to be unusable.
    pub(crate) prefers_tcp: bool,
    /// Position at which the next session starts, in normal play time.
    pub(crate) start: Option<Duration>,
    /// True if an end of the range was announced; `None` before the first description.
    pub(crate) is_title: Option<bool>,
    /// Sessions in a row without progress of a title.
    pub(crate) stalled: u32,
    /// True if the last session ended with BYE.
    pub(crate) is_bye: bool,
    /// Total length of the parts left out by the server, and the description of the last of them
    /// once the total exceeds a second.
    pub(crate) left_out: Duration,
    pub(crate) gap: Option<String>,
    /// Length of already recorded media with which this session begins, before the requested
    /// position.
    pub(crate) repeats: Duration,
    /// Totals of the ended sessions of the title, and the range of the current session.
    pub(crate) earlier: EarlierSessions,
    pub(crate) span: Option<TitleRange>,
    /// Start of the first session, by the recording's clock.
    pub(crate) begun: Option<Duration>,
}

impl SessionHistory {
    /// Records the end that a description announces. Returns true if a source that had no end has
    /// one now, and has been recorded up to it.
    pub(crate) fn describe(&mut self, end: Option<Duration>) -> bool {
        let was_live = self.is_title == Some(false);
        let is_title = end.is_some() || self.is_title == Some(true);
        self.is_title = Some(is_title);
        match self.start.zip(end) {
            Some((at, end)) => was_live && is_nothing(end.saturating_sub(at)),
            None => false,
        }
    }

    /// True if the next session resumes a title: its datagrams are not recorded before its start is
    /// known.
    pub(crate) fn is_resumed(&self) -> bool {
        self.start.is_some() && self.is_title == Some(true)
    }

    /// Records the position `from` at which the server resumes a title, where it may differ from
    /// `asked`.
    pub(crate) fn resume(&mut self, url: &str, asked: Duration, from: Duration) {
        self.left_out += from.saturating_sub(asked);
        self.repeats = asked.saturating_sub(from);
        if from > asked
            && let Some(gap) = gap(asked, from, self.left_out)
        {
            tracing::warn!("{url}: {gap}");
            self.gap = Some(gap);
        }
    }

    /// True if a session that has reached `at` advanced the title by `progress` at most.
    pub(crate) fn is_stalled(&self, at: Duration, progress: Duration) -> bool {
        at <= self.start.unwrap_or_default() + progress
    }
}
