// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, `MSG_ZEROCOPY`, and the kernel's report.
//!
//! The socket refers to the page cache's pages, as with `sendfile`, but by way of the page tables:
//! each page is looked up and pinned, and the kernel reports when the peer has acknowledged them.
//! Costs no copy and three calls per step of at most 1 MiB: the socket's identity (`SO_COOKIE`),
//! the send, and reading one report from the socket's error queue. A socket used for the first time
//! costs two more. A report is read after a refused send too, because reports in the queue make
//! `poll(2)` return `POLLERR` without waiting.
//!
//! Reports name sends by number, and a path object serves many connections, whose descriptors are
//! used again; so it remembers the last [`SOCKETS_MAX`] sockets by their cookies. `SO_ZEROCOPY` is
//! already set on a socket that it has forgotten, or that another thread has used this way: the
//! numbers of such a socket are unknown, and its bytes are sent by a copy, counted as one. The same
//! holds for a step while 128 reports are outstanding or the kernel has no more memory to account
//! for (`ENOBUFS`).
//!
//! Bytes that the kernel copied nevertheless are in [`SendStats::zerocopy_copied_bytes`]: all of
//! them on loopback. TCP reports when bytes are acknowledged and joins neighbouring reports; those
//! of the last steps may never be read, and end with the socket.
//!
//! When the file has been cut, a step may end with the zeroes of the last page, as for `mmap_send`.
//!
//! Sources: Linux `Documentation/networking/msg_zerocopy.rst`, 6.18 `net/ipv4/tcp.c`
//! (`tcp_sendmsg_locked`), `net/core/skbuff.c` (`__msg_zerocopy_callback`).
//!
//! Does not protect the file's content: bytes overwritten in place before they are acknowledged are
//! sent, and retransmitted, with their new content.

use std::os::fd::BorrowedFd;

use crate::error::{Errno, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Open, Spec, SystemCalls, Transport};
use crate::sys::{self, FileMap};
use crate::tcp::{DownloadPath, refusal, send_mapped};
use crate::zerocopy::Unreported;

pub(crate) static SPEC: Spec = Spec {
    name: "zerocopy",
    transport: Transport::Tcp,
    summary: "mapped file, MSG_ZEROCOPY a step, and the kernel's report of it",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerStep(3),
    sources: &["msg_zerocopy.rst", "mmap(2)", "socket(7) SO_COOKIE", "linux 6.18 net/ipv4/tcp.c"],
    probe: |host| host.needs_kernel(4, 14),
    open: Open::Download(|| Ok(Box::new(Zerocopy { sockets: Vec::new() }))),
};

/// Sockets that a path object remembers; the one used longest ago is forgotten first.
const SOCKETS_MAX: usize = 256;

/// A socket by its cookie, and its unreported sends; `None` when their numbers are unknown.
#[derive(Debug)]
struct Known {
    cookie: u64,
    unreported: Option<Unreported>,
}

struct Zerocopy {
    /// Known sockets, the last used one last.
    sockets: Vec<Known>,
}

impl Zerocopy {
    /// Returns the record of the socket, to be put back at the end of `sockets`.
    fn known(&mut self, socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<Known, Errno> {
        let cookie = sys::cookie(socket, stats)?;
        // Downloads come in runs of steps: the wanted one is mostly the last.
        if let Some(at) = self.sockets.iter().rposition(|known| known.cookie == cookie) {
            return Ok(self.sockets.remove(at));
        }
        if self.sockets.len() >= SOCKETS_MAX {
            self.sockets.remove(0);
        }
        let used = sys::is_zerocopy(socket, stats)?;
        if !used {
            sys::set_zerocopy(socket, stats)?;
        }
        Ok(Known { cookie, unreported: (!used).then(Unreported::default) })
    }
}

impl DownloadPath for Zerocopy {
    fn send(
        &mut self,
        source: &MappedFile,
        offset: u64,
        bytes: u64,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<u64, SendError> {
        if bytes == 0 {
            return Ok(0);
        }
        let known = self.known(socket, stats);
        let mut known = known.map_err(|errno| refusal("setsockopt", errno, source, stats))?;
        let sent =
            send_mapped(source, offset, bytes, stats, |map, bytes, stats| match &mut known {
                Known { unreported: Some(unreported), .. } => {
                    send(unreported, map, offset, bytes, socket, stats)
                }
                Known { unreported: None, .. } => {
                    let sent = sys::send_mapped(socket, map, offset, bytes, stats);
                    // No other code reads these reports.
                    let _ = sys::next_error(socket, stats);
                    sent
                }
            });
        self.sockets.push(known);
        sent
    }
}

/// Sends as much as the socket accepts, and reads a report.
fn send(
    unreported: &mut Unreported,
    map: &FileMap,
    offset: u64,
    bytes: u64,
    socket: BorrowedFd<'_>,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    let mut sent = Err(Errno::new(libc::ENOBUFS));
    if unreported.has_room() {
        sent = sys::send_mapped_zerocopy(socket, map, offset, bytes, stats);
    }
    match sent {
        Ok(accepted) => unreported.sent(accepted as u64),
        Err(errno) if errno.code() == libc::ENOBUFS => {
            sent = sys::send_mapped(socket, map, offset, bytes, stats);
        }
        // TCP uses a number for bytes that it accepts, and none when it accepts nothing.
        Err(_) => {}
    }
    // The report may not have arrived yet.
    let _ = unreported.reap(socket, stats);
    sent
}
