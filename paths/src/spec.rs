// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of paths, and the description of each member.
//!
//! A new path needs one file, or a SPEC in its family's file, and a line in the list of its folder;
//! server, laboratory, contract tests and `--help` read the list. Dispatch is per batch, through a
//! box that each sending thread opens once; nothing is chosen per packet.
//!
//! Sources: DPDK's path tables (`i40e_rx_path_infos`) for the form: one row each, the same name in
//! log, statistics and code.
//!
//! Does not choose. The caller picks a path by name or by measurement.

use std::fmt;

use crate::error::{Error, Unavailable};
use crate::host::Host;
use crate::interleaved::InterleavedPath;
use crate::rtp;
use crate::stream_path::StreamPath;
use crate::tcp::{self, DownloadPath};
use crate::udp;

/// Every way from file to socket: RTP, then the file as datagrams, then the file over TCP; the
/// reference of each first. The lists are in `rtp/mod.rs`, `udp/mod.rs` and `tcp/mod.rs`.
pub static PATHS: &[&Spec] = &joined::<COUNT>([rtp::PATHS, udp::PATHS, tcp::PATHS]);

const COUNT: usize = rtp::PATHS.len() + udp::PATHS.len() + tcp::PATHS.len();

/// Concatenates the members of three lists into one of `N`, in their order.
const fn joined<const N: usize>(lists: [&[&'static Spec]; 3]) -> [&'static Spec; N] {
    let mut all = [lists[0][0]; N];
    let (mut list, mut index, mut count) = (0, 0, 0);
    while count < N {
        if index == lists[list].len() {
            (list, index) = (list + 1, 0);
        } else {
            all[count] = lists[list][index];
            (index, count) = (index + 1, count + 1);
        }
    }
    all
}

/// Returns the path of that name for that transport.
pub fn find(transport: Transport, name: &str) -> Option<&'static Spec> {
    PATHS.iter().copied().find(|spec| spec.transport == transport && spec.name == name)
}

/// Payload and transport of a path. A name belongs to one way of moving bytes and may occur once
/// for each transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// RTP packets, a datagram each.
    Rtp,
    /// The file's own bytes in datagrams, with nothing added.
    Udp,
    /// The file's own bytes as a TCP stream.
    Tcp,
    /// RTP packets in frames on an RTSP connection.
    Interleaved,
}

impl Transport {
    /// The transports of [`PATHS`], in the order of the list, then that of
    /// [`crate::INTERLEAVED_PATHS`].
    pub const ALL: [Self; 4] = [Self::Rtp, Self::Udp, Self::Tcp, Self::Interleaved];

    /// Returns its name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtp => "rtp",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Interleaved => "interleaved",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Description of a path, with its claims.
#[derive(Debug)]
pub struct Spec {
    /// Its name: in `--path`, log, statistics and code alike.
    pub name: &'static str,
    /// Its payload and transport.
    pub transport: Transport,
    /// One line about its way of moving bytes.
    pub summary: &'static str,
    /// Copies of each byte of the file between kernel and user memory.
    pub copies_per_byte: u32,
    /// Copies of each byte of a header made in memory to the kernel; 0 where headers lie in the
    /// file, or there are none.
    pub header_copies: u32,
    /// System calls, when nothing is refused.
    pub system_calls: SystemCalls,
    /// Sources to read.
    pub sources: &'static [&'static str],
    /// Checks that this host can use it.
    pub probe: fn(&Host) -> Result<(), Unavailable>,
    /// Makes the path object for one sending thread.
    pub open: Open,
}

/// Writes transport and name, as in logs and tests: `rtp/mmap_gso`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.transport, self.name)
    }
}

/// A claim: system calls made when nothing is refused. Setting `UDP_SEGMENT` when a destination's
/// segment size changes is one call more, once, and so are two at most to set up a socket for zero
/// copies. A socket that accepts a part of a send refuses the rest: emptying a pipe of it is a call
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCalls {
    /// This number for each packet.
    PerPacket(u32),
    /// This number for each segment run: as many packets as the destination's segments and 64 KiB
    /// allow.
    PerRun(u32),
    /// This number for each batch that fits one call (1,024 messages, where that limit applies).
    PerBatch(u32),
    /// This number for each step of a download.
    PerStep(u32),
}

impl fmt::Display for SystemCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerPacket(calls) => write!(f, "{calls} per packet"),
            Self::PerRun(calls) => write!(f, "{calls} per run"),
            Self::PerBatch(calls) => write!(f, "{calls} per batch"),
            Self::PerStep(calls) => write!(f, "{calls} per step"),
        }
    }
}

/// Constructor of a path object, by its use.
#[derive(Clone, Copy, Debug)]
pub enum Open {
    /// A stream of datagrams.
    Stream {
        /// The form of batch that it requires.
        feed: Feed,
        /// Its entry to the network.
        via: Via,
        /// Opens the path.
        open: fn() -> Result<Box<dyn StreamPath>, Error>,
    },
    /// A download over TCP.
    Download(fn() -> Result<Box<dyn DownloadPath>, Error>),
    /// A stream of frames over TCP; a member of [`crate::INTERLEAVED_PATHS`].
    Interleaved {
        /// The form of batch that it requires, frame headers included.
        feed: Feed,
        /// Opens the path.
        open: fn() -> Result<Box<dyn InterleavedPath>, Error>,
    },
}

/// Entry of a path to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The destination's socket: the kernel routes, filters, fragments and segments.
    Socket,
    /// Whole Ethernet frames onto the device of the destination's route at the first send: no
    /// firewall, no fragments, IPv4 alone; needs `CAP_NET_RAW`.
    Device,
}

/// The form of batch that a stream path requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// [`crate::BatchForm::Gathered`]: the asset itself.
    Gathered,
    /// [`crate::BatchForm::Image`]: the asset's wire image.
    Image,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_and_found() {
        for spec in PATHS {
            let same =
                |other: &&&Spec| (other.transport, other.name) == (spec.transport, spec.name);
            assert_eq!(PATHS.iter().filter(same).count(), 1, "{spec}");
            assert!(std::ptr::eq(find(spec.transport, spec.name).unwrap(), *spec));
            assert!(!spec.summary.is_empty() && !spec.sources.is_empty(), "{spec}");
            let tcp = matches!(spec.open, Open::Download(_));
            assert_eq!(tcp, spec.transport == Transport::Tcp, "{spec}");
        }
        assert!(find(Transport::Rtp, "teleport").is_none());
        assert!(find(Transport::Udp, "wire_sendfile").is_none());
    }

    #[test]
    fn the_list_is_in_the_order_of_transports() {
        assert!(PATHS.is_sorted_by_key(|spec| spec.transport));
    }

    #[test]
    fn an_old_kernel_is_told_what_is_needed() {
        let old = Host { kernel_release: "4.9.0".to_string(), ..Host::here() };
        for name in ["mmap_gso", "wire_sendfile"] {
            let refusal = (find(Transport::Rtp, name).unwrap().probe)(&old).unwrap_err();
            assert!(refusal.to_string().ends_with("found kernel 4.9.0"), "{name}: {refusal}");
        }
    }
}
