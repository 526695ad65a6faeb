// SPDX-License-Identifier: MIT OR Apache-2.0
//! A timing wheel of sessions, one slot a millisecond.
//!
//! Insert and take are O(1) and allocate nothing once the slots have grown to their working size.
//! An entry is never searched for and removed: a session stores the tick at which it is due, and an
//! entry with another tick is stale.
//!
//! Sources: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987 (scheme 4: one
//! wheel, bounded horizon).
//! Does not hold deadlines beyond [`HORIZON_TICKS`]; a session that needs one is woken earlier and
//! enters again.

/// Milliseconds since the pacer began.
pub(crate) type Tick = u64;

/// Farthest tick of an entry, counted from the last expired one.
pub(crate) const HORIZON_TICKS: u64 = SLOTS as u64 - 1;

const SLOTS: usize = 256;

pub(crate) struct Wheel {
    slots: Vec<Vec<u64>>,
    /// Every tick up to and including this one has expired.
    expired: Tick,
    entries: usize,
}

impl Wheel {
    pub(crate) fn new(now: Tick) -> Wheel {
        Wheel { slots: vec![Vec::new(); SLOTS], expired: now, entries: 0 }
    }

    /// Enters `id` at `tick`, clamped to the wheel's range; returns the tick of the entry.
    pub(crate) fn insert(&mut self, id: u64, tick: Tick) -> Tick {
        let tick = tick.clamp(self.expired + 1, self.expired + HORIZON_TICKS);
        self.slots[slot(tick)].push(id);
        self.entries += 1;
        tick
    }

    /// Moves every entry due at or before `now` to `due`, with its tick, in order of ticks.
    pub(crate) fn take(&mut self, now: Tick, due: &mut Vec<(u64, Tick)>) {
        if now.saturating_sub(self.expired) > HORIZON_TICKS {
            // The thread slept longer than one turn of the wheel: every entry is due.
            let first = self.expired + 1;
            for tick in first..first + SLOTS as u64 {
                self.take_slot(tick, due);
            }
        } else {
            for tick in self.expired + 1..=now {
                self.take_slot(tick, due);
            }
        }
        self.expired = self.expired.max(now);
    }

    /// Returns the earliest tick with an entry.
    pub(crate) fn next(&self) -> Option<Tick> {
        if self.entries == 0 {
            return None;
        }
        let first = self.expired + 1;
        (first..first + SLOTS as u64).find(|&tick| !self.slots[slot(tick)].is_empty())
    }

    /// Returns the number of entries at `tick`, by which a new session chooses a quiet tick.
    pub(crate) fn load(&self, tick: Tick) -> usize {
        self.slots[slot(tick)].len()
    }

    fn take_slot(&mut self, tick: Tick, due: &mut Vec<(u64, Tick)>) {
        let entries = &mut self.slots[slot(tick)];
        self.entries -= entries.len();
        due.extend(entries.drain(..).map(|id| (id, tick)));
    }
}

fn slot(tick: Tick) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(wheel: &mut Wheel, now: Tick) -> Vec<(u64, Tick)> {
        let mut due = Vec::new();
        wheel.take(now, &mut due);
        due
    }

    #[test]
    fn entries_come_out_at_their_tick_and_in_order() {
        let mut wheel = Wheel::new(1000);
        for id in 0..200 {
            assert_eq!(wheel.insert(id, 1001 + id), 1001 + id);
        }
        assert_eq!(wheel.next(), Some(1001));
        assert_eq!(expired(&mut wheel, 1000), []);
        assert_eq!(expired(&mut wheel, 1003), [(0, 1001), (1, 1002), (2, 1003)]);
        assert_eq!(wheel.next(), Some(1004));
        assert_eq!(expired(&mut wheel, 1300).len(), 197);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn ticks_out_of_reach_are_moved_into_it() {
        let mut wheel = Wheel::new(10);
        assert_eq!(wheel.insert(1, 3), 11, "the past is the next tick");
        assert_eq!(wheel.insert(2, 10_000), 10 + HORIZON_TICKS);
        assert_eq!(expired(&mut wheel, 11), [(1, 11)]);
    }

    #[test]
    fn a_long_sleep_loses_nobody() {
        let mut wheel = Wheel::new(0);
        for id in 0..100 {
            wheel.insert(id, id * 2 + 1);
        }
        assert_eq!(expired(&mut wheel, 1_000_000).len(), 100);
        assert_eq!(wheel.insert(7, 1_000_001), 1_000_001);
        assert_eq!(wheel.load(1_000_001), 1);
        assert_eq!(expired(&mut wheel, 1_000_001), [(7, 1_000_001)]);
    }
}
