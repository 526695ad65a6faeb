// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of earlier sessions of a source, as far as the next one depends on them.
//!
//! Sources: RFC 2326 §10.5, §12.29.

use std::time::Duration;

use crate::title::{EarlierSessions, TitleRange, gap, is_nothing};

/// Results of earlier sessions, as far as the next one depends on them.
#[derive(Default)]
pub(crate) struct SessionHistory {
    /// UDP was of no use.
    pub(crate) prefers_tcp: bool,
    /// Position where play goes on, in normal play time.
    pub(crate) start: Option<Duration>,
    /// An end of the range was announced; `None` before the first description.
    pub(crate) is_title: Option<bool>,
    /// Sessions in a row without progress of a title.
    pub(crate) stalled: u32,
    /// The last session ended with BYE.
    pub(crate) is_bye: bool,
    /// Sum of the parts that the server has left out, and the last of them in words once they are
    /// more than a second.
    pub(crate) left_out: Duration,
    pub(crate) gap: Option<String>,
    /// Media before the requested position that this session begins with: it is in the file.
    pub(crate) repeats: Duration,
    /// Sums of the ended sessions of the title, and the range of the playing one.
    pub(crate) earlier: EarlierSessions,
    pub(crate) span: Option<TitleRange>,
    /// When the first session was played, by the recording's clock.
    pub(crate) begun: Option<Duration>,
}

impl SessionHistory {
    /// Notes the end that a description announces. Returns true where a source without an end has
    /// one now, and has been recorded to it.
    pub(crate) fn describe(&mut self, end: Option<Duration>) -> bool {
        let was_live = self.is_title == Some(false);
        let is_title = end.is_some() || self.is_title == Some(true);
        self.is_title = Some(is_title);
        match self.start.zip(end) {
            Some((at, end)) => was_live && is_nothing(end.saturating_sub(at)),
            None => false,
        }
    }

    /// Returns true where the next session resumes a title: datagrams are not recorded before it is
    /// known where it begins.
    pub(crate) fn is_resumed(&self) -> bool {
        self.start.is_some() && self.is_title == Some(true)
    }

    /// Notes that the server resumes a title at another position than requested.
    pub(crate) fn go_on(&mut self, url: &str, asked: Duration, from: Duration) {
        self.left_out += from.saturating_sub(asked);
        self.repeats = asked.saturating_sub(from);
        if from > asked
            && let Some(gap) = gap(asked, from, self.left_out)
        {
            tracing::warn!("{url}: {gap}");
            self.gap = Some(gap);
        }
    }

    /// True for a session that has reached `at` and so brought no more than `progress` of the
    /// title.
    pub(crate) fn is_stalled(&self, at: Duration, progress: Duration) -> bool {
        at <= self.start.unwrap_or_default() + progress
    }
}
