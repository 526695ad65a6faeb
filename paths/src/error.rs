// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, by kind: a fact about the host, a call that failed, a send that did not
//! happen.
//!
//! [`Unavailable`] is no error but a fact with what is needed and what was found. [`Error`] is for
//! opening things, [`SendError`] for sending; they are two because a refused send is an everyday
//! event on a data path, is matched on at every batch and must not allocate.
//!
//! Sources: `errno(3)`, `send(2)`, `sendfile(2)`.
//!
//! What it does not do: log. The caller counts what repeats and logs once.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The number of a system call's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Names of the numbers that sending, mapping and reading can give; others print as `errno 123`.
const NAMES: &[(i32, &str)] = &[
    (libc::E2BIG, "E2BIG"),
    (libc::EACCES, "EACCES"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EBADF, "EBADF"),
    (libc::EBUSY, "EBUSY"),
    (libc::ECANCELED, "ECANCELED"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::EDESTADDRREQ, "EDESTADDRREQ"),
    (libc::EEXIST, "EEXIST"),
    (libc::EFAULT, "EFAULT"),
    (libc::EHOSTDOWN, "EHOSTDOWN"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::EINTR, "EINTR"),
    (libc::EINVAL, "EINVAL"),
    (libc::EIO, "EIO"),
    (libc::EISDIR, "EISDIR"),
    (libc::EMFILE, "EMFILE"),
    (libc::EMSGSIZE, "EMSGSIZE"),
    (libc::ENETDOWN, "ENETDOWN"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ENFILE, "ENFILE"),
    (libc::ENOBUFS, "ENOBUFS"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOENT, "ENOENT"),
    (libc::ENOLCK, "ENOLCK"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::ENOPROTOOPT, "ENOPROTOOPT"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ENOTSOCK, "ENOTSOCK"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ENXIO, "ENXIO"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EPERM, "EPERM"),
    (libc::EPIPE, "EPIPE"),
    (libc::EPROTO, "EPROTO"),
    (libc::ESHUTDOWN, "ESHUTDOWN"),
    (libc::ESTALE, "ESTALE"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
];

impl Errno {
    /// The error with this number.
    pub const fn new(code: i32) -> Self {
        Self(code)
    }

    /// The number, as in `errno(3)`.
    pub const fn code(self) -> i32 {
        self.0
    }

    /// Whether it only says that there is nothing to be had now.
    pub(crate) const fn is_again(self) -> bool {
        self.0 == libc::EAGAIN || self.0 == libc::EINTR
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(code, _)| *code == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl From<io::Error> for Errno {
    /// An error that is not the system's own (none comes from a plain call) counts as `EIO`.
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Why a path cannot be used on this host: not an error, a fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("needs {need}, found {found}")]
pub struct Unavailable {
    /// What the path needs, such as `kernel 6.5`.
    pub need: String,
    /// What is there, such as `kernel 5.15.0`.
    pub found: String,
}

/// What kept something from being opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{call} on {object}: {errno}")]
    Host {
        /// The call, such as `mmap`.
        call: &'static str,
        /// What it was made on: a file's or a destination's name.
        object: Arc<str>,
        /// What the kernel answered.
        errno: Errno,
    },
    /// What is relayed would come in again.
    #[error(
        "relaying {port} to {target}: what is sent comes in again; \
         write another address or port, or a device for each"
    )]
    Loop {
        /// Where it is awaited.
        port: Arc<str>,
        /// Where it is sent.
        target: Arc<str>,
    },
    /// What a device receives cannot be taken from it.
    #[error("frames of {device}: {reason}")]
    Untapped {
        /// The device's name.
        device: Arc<str>,
        /// Why not.
        reason: Untapped,
    },
    /// No device is known to bring what is sent there.
    #[error("frames for {address}: on which device is not known; name it, or an address it has")]
    NoDevice {
        /// Where datagrams were to be awaited.
        address: SocketAddr,
    },
    /// MappedFile can be sent from regular files alone.
    #[error("opening {object} to send from: not a regular file")]
    NotFile {
        /// The file's name.
        object: Arc<str>,
    },
}

impl Error {
    /// A ring was refused.
    pub(crate) fn ring(errno: Errno) -> Self {
        Self::Host { call: "io_uring_setup", object: "a path's ring".into(), errno }
    }

    /// A ring's buffers were refused: `ENOMEM` means that no more memory may be locked.
    pub(crate) fn registered(errno: Errno) -> Self {
        Self::Host {
            call: "io_uring_register",
            object: "1 MiB of buffers (ulimit -l)".into(),
            errno,
        }
    }
}

/// Why what a device receives cannot be taken from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Untapped {
    /// It was removed, and one of the same name is another. Its ports are to be added anew.
    #[error("the device is gone; add its ports again when it is back")]
    Gone,
    /// It is switched off; what comes when it is on again is taken.
    #[error("the device is down; ip link set it up")]
    Down,
    /// Somebody else's program sees its frames first.
    #[error(
        "an XDP program is attached already; detach that one (ip -d link show names it), \
         or take a path by socket"
    )]
    OtherProgram,
    /// A queue's frames go to somebody else's XDP socket.
    #[error("queue {queue} has an XDP socket already; close that one, or take a path by socket")]
    OtherSocket {
        /// The queue's number.
        queue: u32,
    },
    /// Its frames may be too long.
    #[error("an MTU of {mtu}; an XDP socket takes {most}: set that, or take a path by socket")]
    TooLarge {
        /// The device's MTU.
        mtu: u32,
        /// The largest that will do.
        most: u32,
    },
    /// The kernel's verifier did not take the program.
    #[error("the kernel refused the XDP program: {errno}\n{log}")]
    Refused {
        /// What `bpf(2)` answered.
        errno: Errno,
        /// What the verifier said.
        log: String,
    },
    /// It has more queues than a path has sockets for.
    #[error("more than {most} queues; make them fewer (ethtool -L), or take a path by socket")]
    TooManyQueues {
        /// How many will do.
        most: u32,
    },
    /// A path has rings on many others.
    #[error("a path object takes from {most} devices at most; open another")]
    TooMany {
        /// How many those are.
        most: usize,
    },
}

/// Why a send stopped.
///
/// After [`SendError::Blocked`] the same packets are sent again later. The others end the stream:
/// packets of the batch may have left before, and the [`crate::SendStats`] has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket takes nothing now (`EAGAIN`, `ENOBUFS`). Nothing was sent.
    #[error("the socket takes no more now")]
    Blocked,
    /// The connection, or the device of a path by frames, is no longer there. ICMP does not say so:
    /// see [`crate::PathReport`].
    #[error("the peer is gone: {errno}")]
    Gone {
        /// `EPIPE`, `ECONNRESET`, `ENETDOWN` and their like.
        errno: Errno,
    },
    /// The file ends before what was to be sent.
    #[error("the file now ends at byte {at}, before what was to be sent")]
    Shrunk {
        /// Where the file ends, in bytes.
        at: u64,
    },
    /// A system call failed in a way that waiting does not mend.
    #[error("{call} on {object}: {errno}")]
    Host {
        /// The call, such as `sendfile`.
        call: &'static str,
        /// What it was made on: a file's or a destination's name.
        object: Arc<str>,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Whole frames cannot be made for the destination; a path by socket may serve it.
    #[error("frames to {object}: {reason}")]
    Unframed {
        /// The destination's name.
        object: Arc<str>,
        /// Why not.
        reason: Unframed,
    },
}

/// Why a destination cannot be sent whole frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unframed {
    /// The socket is one of IPv6.
    #[error("over IPv6; frames are made for IPv4 alone")]
    Ipv6,
    /// The kernel has no route.
    #[error("no route: {errno}")]
    NoRoute {
        /// What the kernel answered.
        errno: Errno,
    },
    /// The route leads to this host, to many, or through a tunnel.
    #[error("the route on {device} is none to a single neighbour (kind {kind} of rtnetlink(7))")]
    NotUnicast {
        /// The route's device.
        device: Arc<str>,
        /// The route's type, such as 2 for an address of this host.
        kind: u8,
    },
    /// The device takes no Ethernet frames.
    #[error("{device} is no Ethernet (type {kind} of netdevice(7))")]
    NotEthernet {
        /// The route's device.
        device: Arc<str>,
        /// The hardware type, such as 772 for loopback.
        kind: u16,
    },
    /// The next hop's Ethernet address is not known.
    #[error(
        "no neighbour entry for {hop} on {device}; \
         send to it by a socket first, or make the entry permanent"
    )]
    NoNeighbour {
        /// The destination, or the gateway to it.
        hop: Ipv4Addr,
        /// The route's device.
        device: Arc<str>,
    },
    /// The datagram would have to be cut into fragments.
    #[error("a datagram of {bytes} bytes; {device} carries {most} in a frame")]
    TooLarge {
        /// The datagram's UDP payload.
        bytes: u32,
        /// What fits.
        most: u32,
        /// The route's device.
        device: Arc<str>,
    },
    /// All of the device's queues have an XDP socket already.
    #[error("no queue of {device} is free for an XDP socket; each serves one sending thread")]
    NoQueue {
        /// The route's device.
        device: Arc<str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_call_object_and_name() {
        let error = SendError::Host {
            call: "sendfile",
            object: "10.0.0.7:5004".into(),
            errno: Errno::new(libc::EIO),
        };
        assert_eq!(error.to_string(), "sendfile on 10.0.0.7:5004: EIO");
        assert_eq!(Errno::new(4095).to_string(), "errno 4095");
        assert_eq!(Errno::from(io::Error::other("x")).code(), libc::EIO);
    }

    #[test]
    fn names_are_in_order_and_single() {
        assert!(NAMES.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }
}
