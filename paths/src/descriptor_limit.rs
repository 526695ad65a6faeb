// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the soft limit of descriptors to the hard one: sessions, connections and files take one
//! each, and the usual soft limit of 1,024 is for programs that call select(2).
//!
//! Sources: getrlimit(2) RLIMIT_NOFILE. Does not raise the hard limit.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process; returns the one then in force.
///
/// # Errors
/// The kernel refuses; the limit is as before.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(descriptor_limit())
}

/// Descriptors that this process may have.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let limit = getrlimit(Resource::Nofile);
        let hard = limit.maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_descriptor_limit().unwrap(), hard);
        assert_eq!(raise_descriptor_limit().unwrap(), descriptor_limit());
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}
