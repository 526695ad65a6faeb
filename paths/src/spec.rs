// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of paths and what a member of it says about itself.
//!
//! Adding a path is one file and one line in [`PATHS`]; server, laboratory, contract tests and
//! `--help` take it from there. Dispatch is per batch, through a box that each sending thread opens
//! once; nothing is chosen per packet.
//!
//! Sources: DPDK's path tables (`i40e_rx_path_infos`) for the form: one row each, the same name in
//! log, statistics and code.
//!
//! What it does not do: choose. The caller picks by name, or by measuring.

use std::fmt;

use crate::download::{self, DownloadPath};
use crate::error::{Error, Unavailable};
use crate::host::Host;
use crate::stream::{self, StreamPath};

/// Every way from file to socket: streams (UDP), then downloads (TCP), the reference of each first.
pub static PATHS: &[&Spec] = &[
    &stream::read_writev::SPEC,
    &stream::mmap_writev::SPEC,
    &stream::mmap_gso::SPEC,
    &stream::wire_sendfile::SPEC,
    &download::read_write::SPEC,
    &download::sendfile::SPEC,
];

/// The path of that name.
pub fn find(name: &str) -> Option<&'static Spec> {
    PATHS.iter().copied().find(|spec| spec.name == name)
}

/// What a path is and what it claims.
#[derive(Debug)]
pub struct Spec {
    /// Its name: in `--path`, log, statistics and code alike.
    pub name: &'static str,
    /// One line on how it moves the bytes.
    pub summary: &'static str,
    /// How often each byte of the file is copied between kernel and user memory. Headers made in
    /// memory are copied once wherever this is not 0.
    pub copies_per_byte: u32,
    /// System calls, when nothing is refused.
    pub crossings: Crossings,
    /// Where to read up on it.
    pub sources: &'static [&'static str],
    /// Whether this host can use it.
    pub probe: fn(&Host) -> Result<(), Unavailable>,
    /// Makes the path object for one sending thread.
    pub open: Open,
}

/// A claim: system calls made when nothing is refused. Setting `UDP_SEGMENT` when a destination's
/// segment size changes is one call more, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossings {
    /// That many for each packet.
    PerPacket(u32),
    /// That many for each run of as many packets as the destination's segments and 64 KiB allow.
    PerRun(u32),
    /// That many for each step of a download.
    PerStep(u32),
}

impl fmt::Display for Crossings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerPacket(calls) => write!(f, "{calls} per packet"),
            Self::PerRun(calls) => write!(f, "{calls} per run"),
            Self::PerStep(calls) => write!(f, "{calls} per step"),
        }
    }
}

/// How a path object is made, by what it is for.
#[derive(Clone, Copy, Debug)]
pub enum Open {
    /// A stream of datagrams.
    Stream {
        /// The form of batch it wants.
        feed: Feed,
        /// Makes one.
        open: fn() -> Result<Box<dyn StreamPath>, Error>,
    },
    /// A download over TCP.
    Download(fn() -> Result<Box<dyn DownloadPath>, Error>),
}

/// The form of batch a stream path wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// [`crate::Form::Gathered`]: the asset itself.
    Gathered,
    /// [`crate::Form::Image`]: the asset's wire image.
    Image,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_and_found() {
        for spec in PATHS {
            assert_eq!(PATHS.iter().filter(|other| other.name == spec.name).count(), 1);
            assert!(std::ptr::eq(find(spec.name).unwrap(), *spec));
            assert!(!spec.summary.is_empty() && !spec.sources.is_empty(), "{}", spec.name);
        }
        assert!(find("teleport").is_none());
    }

    #[test]
    fn an_old_kernel_is_told_what_is_needed() {
        let old = Host { kernel_release: "4.9.0".to_string() };
        let refused: Vec<_> =
            PATHS.iter().filter(|spec| (spec.probe)(&old).is_err()).map(|spec| spec.name).collect();
        assert_eq!(refused, ["mmap_gso", "wire_sendfile"]);
    }
}
