// SPDX-License-Identifier: MIT OR Apache-2.0
//! Up to 64 runs of datagrams a call, each as the kernel has joined it.
//!
//! A sender's super-packet (`UDP_SEGMENT`) over a virtual device, and datagrams of a stream that
//! the receiving device's driver delivers together, pass through the kernel as one packet: the work
//! per datagram becomes work per run of up to 64 of them. A lone datagram costs as much as by
//! `recvmmsg`: 16 slots instead of 64 raised that cost by a tenth, and did not lower the cost of
//! runs.
//!
//! Costs a copy a byte and a call for up to 64 runs of a port. The kernel counts a run that it
//! drops for lack of memory as one drop ([`crate::ReceivePath::dropped`]), of any length, and
//! charges a run with its pages, so a buffer holds fewer short runs than their bytes suggest.
//!
//! Sources: `udp(7)` (`UDP_GRO`); Linux commit e20cf8d3f1f7 (5.0), `net/ipv4/udp_offload.c`.
//!
//! Does not cut runs apart; [`ReceivedRun::datagrams`](crate::ReceivedRun::datagrams) does, at no
//! cost.

use crate::receive::ReceiveSpec;
use crate::receive::recvmmsg::Recvmmsg;
use crate::receive::sockets::SocketOptions;
use crate::spec::{SystemCalls, Via};

pub(crate) static SPEC: ReceiveSpec = ReceiveSpec {
    name: "recvmmsg_gro",
    summary: "up to 64 runs a call, each as the kernel has joined it",
    copies_per_byte: 1,
    system_calls: SystemCalls::PerBatch(1),
    via: Via::Socket,
    sources: &["udp(7) UDP_GRO", "linux net/ipv4/udp_offload.c"],
    probe: |host| host.needs_kernel(5, 0),
    open: || {
        Ok(Box::new(Recvmmsg::new(SocketOptions { time: true, joined: true, discard: false })?))
    },
};
