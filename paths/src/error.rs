// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors by kind: a fact about the host, a failed call, a send that did not happen.
//!
//! [`Unavailable`] is a fact, with the need and the finding, and not an error. [`Error`] is for
//! opening things, [`SendError`] for sending; they are two because refused sends are frequent on a
//! data path, are matched at every batch and must not allocate.
//!
//! Sources: `errno(3)`, `send(2)`, `sendfile(2)`.
//!
//! Does not log. The caller counts repetitions and logs once.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The number of a system call's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Names of the errors that sending, mapping and reading can return; others print as `errno 123`.
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
    /// Returns the error with this number.
    pub const fn new(code: i32) -> Self {
        Self(code)
    }

    /// Returns the number, as in `errno(3)`.
    pub const fn code(self) -> i32 {
        self.0
    }

    /// True when nothing is available now (`EAGAIN`, `EINTR`).
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
    /// Converts an I/O error; one without a system error number (plain calls return none) becomes
    /// `EIO`.
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.code())
    }
}

/// The reason why a path cannot be used on this host: a fact, not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("needs {need}, found {found}")]
pub struct Unavailable {
    /// The path's need, such as `kernel 6.5`.
    pub need: String,
    /// The finding, such as `kernel 5.15.0`.
    pub found: String,
}

/// Error when opening a file, a path or a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{call} on {object}: {errno}")]
    Host {
        /// The call, such as `mmap`.
        call: &'static str,
        /// The object of the call: the name of a file or a destination.
        object: Arc<str>,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Relayed datagrams would return to the receiving address.
    #[error(
        "relaying {port} to {target}: relayed datagrams would come in again; \
         write another address or port, or a device for each"
    )]
    Loop {
        /// The receiving address.
        port: Arc<str>,
        /// The address of the target.
        target: Arc<str>,
    },
    /// Frames cannot be received from a device.
    #[error("frames of {device}: {reason}")]
    Untapped {
        /// The device's name.
        device: Arc<str>,
        /// The reason.
        reason: Untapped,
    },
    /// The device that receives datagrams for the address is unknown.
    #[error("frames for {address}: unknown device; name it, or one of its addresses")]
    NoDevice {
        /// The receiving address.
        address: SocketAddr,
    },
    /// Only regular files can be sent.
    #[error("opening {object} to send from: not a regular file")]
    NotFile {
        /// The file's name.
        object: Arc<str>,
    },
}

impl Error {
    /// Returns the error for a refused ring.
    pub(crate) fn ring(errno: Errno) -> Self {
        Self::Host { call: "io_uring_setup", object: "a path's ring".into(), errno }
    }

    /// Returns the error for a ring's refused buffers: `ENOMEM` means that no more memory may be
    /// locked.
    pub(crate) fn registered(errno: Errno) -> Self {
        Self::Host {
            call: "io_uring_register",
            object: "1 MiB of buffers (ulimit -l)".into(),
            errno,
        }
    }
}

/// The reason why frames cannot be received from a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Untapped {
    /// The device was removed; a new one of its name is another device. Its ports must be added
    /// again.
    #[error("the device is gone; add its ports again when it is back")]
    Gone,
    /// The device is down; frames are received again once it is up.
    #[error("the device is down; ip link set it up")]
    Down,
    /// Another program's XDP program processes its frames first.
    #[error(
        "an XDP program is attached already; detach that one (ip -d link show names it), \
         or take a path by socket"
    )]
    OtherProgram,
    /// A queue's frames go to another program's XDP socket.
    #[error("queue {queue} has an XDP socket already; close that one, or take a path by socket")]
    OtherSocket {
        /// The queue's number.
        queue: u32,
    },
    /// The device's MTU allows frames that are too long.
    #[error("an MTU of {mtu}; an XDP socket takes {most}: set that, or take a path by socket")]
    TooLarge {
        /// The device's MTU.
        mtu: u32,
        /// The largest MTU that fits.
        most: u32,
    },
    /// The kernel's verifier refused the program.
    #[error("the kernel refused the XDP program: {errno}\n{log}")]
    Refused {
        /// The answer of `bpf(2)`.
        errno: Errno,
        /// The verifier's log.
        log: String,
    },
    /// The device has more queues than a path has sockets.
    #[error("more than {most} queues; make them fewer (ethtool -L), or take a path by socket")]
    TooManyQueues {
        /// The largest number of queues.
        most: u32,
    },
    /// The path has rings on as many devices as it can.
    #[error("a path object takes from {most} devices at most; open another")]
    TooMany {
        /// The largest number of devices.
        most: usize,
    },
}

/// The reason why a send stopped.
///
/// After [`SendError::Blocked`] the same packets are sent again later. The others end the stream:
/// packets of the batch may have left before, and are counted in [`crate::SendStats`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket is full (`EAGAIN`, `ENOBUFS`). Nothing was sent.
    #[error("the socket takes no more now")]
    Blocked,
    /// The connection, or the device of a path by frames, is no longer there. ICMP does not cause
    /// this error: see [`crate::PathReport`].
    #[error("the peer is gone: {errno}")]
    Gone {
        /// `EPIPE`, `ECONNRESET`, `ENETDOWN` and similar.
        errno: Errno,
    },
    /// The file ends before the bytes to be sent.
    #[error("the file now ends at byte {at}, before what was to be sent")]
    Shrunk {
        /// The end of the file, in bytes.
        at: u64,
    },
    /// A system call failed, and a later one would fail as well.
    #[error("{call} on {object}: {errno}")]
    Host {
        /// The call, such as `sendfile`.
        call: &'static str,
        /// The object of the call: the name of a file or a destination.
        object: Arc<str>,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Whole frames cannot be made for the destination; a path by socket may serve it.
    #[error("frames to {object}: {reason}")]
    Unframed {
        /// The destination's name.
        object: Arc<str>,
        /// The reason.
        reason: Unframed,
    },
}

/// The reason why whole frames cannot be sent to a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unframed {
    /// The socket is an IPv6 socket.
    #[error("over IPv6; frames are made for IPv4 alone")]
    Ipv6,
    /// The kernel has no route.
    #[error("no route: {errno}")]
    NoRoute {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The route leads to this host, to many, or through a tunnel.
    #[error(
        "the route on {device} does not lead to a single neighbour (kind {kind} of rtnetlink(7))"
    )]
    NotUnicast {
        /// The route's device.
        device: Arc<str>,
        /// The route's type, such as 2 for an address of this host.
        kind: u8,
    },
    /// The device is not an Ethernet device.
    #[error("{device} is not an Ethernet device (type {kind} of netdevice(7))")]
    NotEthernet {
        /// The route's device.
        device: Arc<str>,
        /// The hardware type, such as 772 for loopback.
        kind: u16,
    },
    /// The next hop's Ethernet address is unknown.
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
        /// The largest datagram that fits.
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
