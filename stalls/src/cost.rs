// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cost of a blocked load here: a loop of them against a loop of forwarded ones.
//!
//! Both are chains in which nothing hides the delay, so the difference is the most that a blocked
//! load adds. In a program other work continues meanwhile, so an estimate from it is an upper
//! bound, printed as "up to".
//!
//! Sources: [`crate::forwarding`].
//! Does not warn of a busy machine. The shortest of several runs counts, and there are enough runs
//! that some are undisturbed.

use std::time::Instant;

use serde::Serialize;

/// Nanoseconds from a store to a load of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockedLoadCost {
    /// Time of a load whose bytes are not all in one store.
    pub blocked_ns: f64,
    /// Time of a load that reads its bytes from a store in flight.
    pub forwarded_ns: f64,
}

impl BlockedLoadCost {
    /// Measures both now, in some ten milliseconds.
    pub fn here() -> Self {
        let mut shortest = [f64::INFINITY; 2];
        for _ in 0..RUNS {
            for (best, run) in
                shortest.iter_mut().zip([crate::forwarding::blocked, crate::forwarding::forwarded])
            {
                let began = Instant::now();
                let counted = run(ROUNDS);
                let time = began.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
                assert_eq!(counted, u64::from(ROUNDS), "the loop gives its rounds");
                *best = best.min(time);
            }
        }
        let [blocked_ns, forwarded_ns] = shortest;
        BlockedLoadCost { blocked_ns, forwarded_ns }
    }

    /// The most that a blocked load adds, in nanoseconds.
    pub fn added_ns(&self) -> f64 {
        (self.blocked_ns - self.forwarded_ns).max(0.0)
    }
}

const RUNS: usize = 31;
/// Fewer than the specimen's two bytes count to; a run lasts a tenth of a millisecond.
const ROUNDS: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_delays_are_measured() {
        let cost = BlockedLoadCost::here();
        assert!(cost.blocked_ns > 0.0 && cost.forwarded_ns > 0.0, "{cost:?}");
        assert!(cost.blocked_ns.is_finite() && cost.forwarded_ns.is_finite(), "{cost:?}");
        let hidden = BlockedLoadCost { blocked_ns: 1.0, forwarded_ns: 2.0 };
        assert_eq!(hidden.added_ns(), 0.0, "never less than nothing");
    }
}
