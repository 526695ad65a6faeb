// SPDX-License-Identifier: MIT OR Apache-2.0
//! A datagram made by several calls on a corked socket: shared by `mmap_send_rtp`, `rtp_sendfile`,
//! `more_sendfile` and `mmap_send_msend`.
//!
//! While a socket is corked, the kernel collects the bytes of all sends and sends them as one
//! datagram when the cork is removed. A call in the middle may be refused, and then no byte may
//! remain, because the next packet would be appended to it: after every refusal the corked bytes
//! are discarded before the cork is removed.
//!
//! Sources: `udp(7)` (`UDP_CORK`); Linux 6.18 `net/ipv4/ip_output.c` (`__ip_append_data`).
//!
//! Does not report the fate of a corked datagram: the removal of the cork returns no refusal by a
//! firewall or a device.

use std::os::fd::AsFd;

use crate::destination::Destination;
use crate::send_stats::SendStats;
use crate::stream_path::SendFailure;
use crate::sys;

/// Sends the bytes that `parts` sends as one datagram, or none of them.
pub(super) fn corked(
    to: &Destination,
    stats: &mut SendStats,
    parts: impl FnOnce(&mut SendStats) -> Result<(), SendFailure>,
) -> Result<(), SendFailure> {
    let refused = |call| move |errno| SendFailure::Refused { call, errno };
    sys::set_cork(to.as_fd(), true, stats).map_err(refused("setsockopt UDP_CORK=1"))?;
    let sent = parts(stats);
    if sent.is_err() {
        sys::discard_corked(to.as_fd(), stats);
    }
    let uncorked = sys::set_cork(to.as_fd(), false, stats);
    sent.and(uncorked.map_err(refused("setsockopt UDP_CORK=0")))
}

/// Sends a header into the cork; makes no call when there is none.
pub(super) fn send_head(
    head: &[u8],
    to: &Destination,
    stats: &mut SendStats,
) -> Result<(), SendFailure> {
    if head.is_empty() {
        return Ok(());
    }
    let sent = sys::send(to.as_fd(), head, stats);
    sent.map(|_| ()).map_err(|errno| SendFailure::Refused { call: "send", errno })
}

/// True when a copied send may succeed, or return a more precise error.
pub(super) fn is_for_a_copy(failure: &SendFailure) -> bool {
    match failure {
        SendFailure::InPieces => true,
        // EMSGSIZE: more fragments than a datagram may have.
        SendFailure::Refused { errno, .. } => errno.code() == libc::EMSGSIZE,
        SendFailure::Cut { .. } => false,
    }
}
