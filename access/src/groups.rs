// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names for sets of users, from the `[groups]` table of the configuration.
//!
//! Does not check that the users exist: a user may be added to the file of users later.

use std::collections::{HashMap, HashSet};

/// Users of each group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups(HashMap<String, HashSet<String>>);

impl Groups {
    /// Adds a group, or users to it.
    pub fn add(&mut self, group: &str, users: impl IntoIterator<Item = String>) {
        self.0.entry(group.to_owned()).or_default().extend(users);
    }

    /// True when the user is in the group.
    pub(crate) fn has(&self, group: &str, user: &str) -> bool {
        self.0.get(group).is_some_and(|users| users.contains(user))
    }

    /// True when there is such a group.
    pub(crate) fn is_known(&self, group: &str) -> bool {
        self.0.contains_key(group)
    }
}
