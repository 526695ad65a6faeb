// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies through a TCP connection over loopback, in blocks of 64 KiB.
//!
//! Sources: tcp(7), RFC 9293.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use super::stream::StreamEnds;
use super::{Amount, NETWORK, WorkloadSpec};
use crate::error::Error;

const BLOCK_BYTES: usize = 64 << 10;

pub(super) static TCP_64K: WorkloadSpec = WorkloadSpec {
    name: "tcp_64k",
    groups: NETWORK,
    amount: Amount::Bytes(512 << 20),
    open: |amount, _| {
        let ends = connection().map_err(Error::host("connect", "TCP on 127.0.0.1"))?;
        Ok(Box::new(StreamEnds::new("tcp_64k", ends, BLOCK_BYTES, amount)?))
    },
};

fn connection() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let source = TcpStream::connect(listener.local_addr()?)?;
    // Without it a block's end may wait for an acknowledgement, which waits too (RFC 1122
    // §4.2.3.4).
    source.set_nodelay(true)?;
    let (target, _) = listener.accept()?;
    Ok((source.into(), target.into()))
}
