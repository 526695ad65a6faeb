// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names with recent events, held until each has been quiet for [`QUIET`], so that a file being
//! copied in is examined once and not at every write. A name that is never quiet is examined every
//! [`UNQUIET_MAX`].
//!
//! Costs O(log n) a call for n waiting names; an event for a name that waits costs one hash
//! look-up.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Names that wait to be quiet.
#[derive(Default)]
pub(super) struct Touched {
    /// Times of each name's first and last event.
    events: HashMap<String, (Instant, Instant)>,
    /// Names by the time at which their quiet is checked.
    due: BTreeMap<(Instant, u64), String>,
    pushed: u64,
    /// Insertions into `due`, counted by tests as the work done.
    #[cfg(test)]
    steps: u64,
}

impl Touched {
    /// Records an event at `now`.
    pub(super) fn touch(&mut self, name: String, now: Instant) {
        if let Some((_, last)) = self.events.get_mut(&name) {
            *last = now;
            return;
        }
        self.events.insert(name.clone(), (now, now));
        self.push(name, now + QUIET);
    }

    /// Removes and returns the next name that has been quiet long enough.
    pub(super) fn pop(&mut self, now: Instant) -> Option<String> {
        while let Some(due) = self.due.first_entry().filter(|due| due.key().0 <= now) {
            let name = due.remove();
            let (first, last) = self.events[&name];
            let quiet_at = (last + QUIET).min(first + UNQUIET_MAX);
            if quiet_at <= now {
                self.events.remove(&name);
                return Some(name);
            }
            self.push(name, quiet_at);
        }
        None
    }

    /// Returns the earliest time at which [`Touched::pop`] may return a name.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn push(&mut self, name: String, at: Instant) {
        self.due.insert((at, self.pushed), name);
        self.pushed += 1;
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

pub(super) const QUIET: Duration = Duration::from_millis(300);
/// A recording of a high rate is never quiet and has to be examined nevertheless.
const UNQUIET_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_once_when_its_events_have_ended() {
        let (mut touched, start) = (Touched::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        touched.touch("a".to_owned(), at(0));
        touched.touch("b".to_owned(), at(100));
        touched.touch("a".to_owned(), at(250));
        assert_eq!((touched.pop(at(299)), touched.next_at()), (None, Some(at(300))));
        assert_eq!(touched.pop(at(400)).as_deref(), Some("b"));
        assert_eq!((touched.pop(at(549)), touched.next_at()), (None, Some(at(550))));
        assert_eq!(touched.pop(at(550)).as_deref(), Some("a"));
        assert!(touched.pop(at(9000)).is_none() && touched.next_at().is_none());
    }

    #[test]
    fn a_name_that_is_never_quiet_comes_all_the_same() {
        let (mut touched, start) = (Touched::default(), Instant::now());
        let mut popped = Vec::new();
        for ms in (0..10_000).step_by(100) {
            let now = start + Duration::from_millis(ms);
            touched.touch("a".to_owned(), now);
            popped.extend(touched.pop(now).map(|_| ms));
        }
        assert_eq!(popped, [2000, 4100, 6200, 8300]);
    }

    /// Regression: every event visited every waiting name.
    #[test]
    fn an_event_costs_no_work_in_proportion_to_the_names_that_wait() {
        let (mut touched, start) = (Touched::default(), Instant::now());
        const NAMES: u64 = 5000;
        for event in 0..4 * NAMES {
            touched.touch(format!("{}", event % NAMES), start + Duration::from_micros(event));
            assert!(touched.pop(start + Duration::from_micros(event)).is_none());
        }
        let later = start + Duration::from_secs(9);
        let names = std::iter::from_fn(|| touched.pop(later)).count() as u64;
        assert_eq!((names, touched.steps), (NAMES, NAMES));
    }
}
