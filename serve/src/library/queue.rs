// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that wait for the background planner, each once, the shortest first, so that a long file
//! does not delay the others. A file may have a time before which it is not due.
//!
//! Costs a name and a tree entry per waiting file; O(log n) a call.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// The planner's queue.
#[derive(Default)]
pub(super) struct Queue {
    /// Due files, keyed by size and order of arrival.
    ready: BTreeMap<(u64, u64), String>,
    later: BTreeMap<(Instant, u64), Later>,
    /// Position of each name in the two maps.
    waits: HashMap<String, Wait>,
    pushed: u64,
}

struct Later {
    name: String,
    bytes: u64,
}

enum Wait {
    Ready((u64, u64)),
    Later((Instant, u64)),
}

impl Queue {
    /// Queues a file for `at`; replaces its earlier entry.
    pub(super) fn push(&mut self, name: String, bytes: u64, at: Instant) {
        match self.waits.remove(&name) {
            Some(Wait::Ready(turn)) => drop(self.ready.remove(&turn)),
            Some(Wait::Later(turn)) => drop(self.later.remove(&turn)),
            None => {}
        }
        let turn = (at, self.pushed);
        self.pushed += 1;
        self.waits.insert(name.clone(), Wait::Later(turn));
        self.later.insert(turn, Later { name, bytes });
    }

    /// Returns the size of the file that [`Queue::pop`] would return.
    pub(super) fn peek_bytes(&mut self, now: Instant) -> Option<u64> {
        while let Some(due) = self.later.first_entry().filter(|due| due.key().0 <= now) {
            let ((_, number), Later { name, bytes }) = due.remove_entry();
            self.waits.insert(name.clone(), Wait::Ready((bytes, number)));
            self.ready.insert((bytes, number), name);
        }
        self.ready.first_key_value().map(|((bytes, _), _)| *bytes)
    }

    /// Removes and returns the shortest due file.
    pub(super) fn pop(&mut self, now: Instant) -> Option<String> {
        self.peek_bytes(now)?;
        let (_, name) = self.ready.pop_first()?;
        self.waits.remove(&name);
        Some(name)
    }

    /// Returns when the next file becomes due, of those not due at the last call.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_shortest_file_comes_first_and_each_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(9);
        let pushed =
            [("b", 7, now), ("a", 7, now), ("b", 7, now), ("d", 1, later), ("c", 9, later)];
        for (name, bytes, at) in pushed {
            queue.push(name.to_owned(), bytes, at);
        }
        queue.push("c".to_owned(), 5, now);
        let mut ready = || queue.pop(now);
        assert_eq!([ready(), ready(), ready()], ["c", "a", "b"].map(|n| Some(n.to_owned())));
        assert_eq!((queue.pop(now), queue.next_at()), (None, Some(later)));
        assert_eq!(queue.pop(later).as_deref(), Some("d"));
        assert!(queue.next_at().is_none() && queue.waits.is_empty());
    }
}
