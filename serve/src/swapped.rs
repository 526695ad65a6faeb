// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value that a reload replaces while others read it.
//!
//! A reader gets a reference count of the current value and keeps it as long as it needs: a request
//! sees one state from its start to its end. Costs a read lock and two reference counts a read; so
//! it is read once a connection, session, request or turn of a download, never for a packet.
//! Alternative: the crate `arc-swap`, whose reads use no lock; no read here is frequent enough to
//! justify a dependency.
//!
//! Does not notify readers of a replacement.

use std::sync::Arc;

use parking_lot::RwLock;

/// A shared value that can be replaced.
#[derive(Debug, Default)]
pub(crate) struct Swapped<T>(RwLock<Arc<T>>);

impl<T> Swapped<T> {
    pub(crate) fn new(value: T) -> Swapped<T> {
        Swapped(RwLock::new(Arc::new(value)))
    }

    /// Returns the current value.
    pub(crate) fn current(&self) -> Arc<T> {
        self.0.read().clone()
    }

    /// Replaces the value; readers of the old one keep it.
    pub(crate) fn replace(&self, value: T) {
        let value = Arc::new(value);
        let old = {
            let mut place = self.0.write();
            std::mem::replace(&mut *place, value)
        };
        // Dropped without the lock: a large value takes a while.
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_its_value_and_the_next_one_gets_the_new() {
        let swapped = Swapped::new("old".to_owned());
        let before = swapped.current();
        swapped.replace("new".to_owned());
        assert_eq!((before.as_str(), swapped.current().as_str()), ("old", "new"));
        assert_eq!(Arc::strong_count(&before), 1, "nobody else holds the old one");
    }
}
