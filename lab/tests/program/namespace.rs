// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe for network namespaces, for tests of programs that measure in one.
//!
//! Sources: unshare(1).
//! Does not keep the namespace.

use std::process::Command;

/// True where the host lets this program make a network; otherwise prints the reason as a skip.
pub(crate) fn has_network() -> bool {
    for kind in [&["--net", "true"][..], &["--user", "--map-root-user", "--net", "true"]] {
        if Command::new("unshare").args(kind).output().is_ok_and(|tried| tried.status.success()) {
            return true;
        }
    }
    eprintln!("skip: no network namespace can be made here (unshare --user --net)");
    false
}
