// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies through a pair of unix stream sockets, in blocks of 32 KiB.
//!
//! Sources: unix(7), socketpair(2).

use std::os::unix::net::UnixStream;

use super::stream::StreamEnds;
use super::{Amount, COPIES, WorkloadSpec};
use crate::error::Error;

const BLOCK_BYTES: usize = 32 << 10;

pub(super) static UNIX_32K: WorkloadSpec = WorkloadSpec {
    name: "unix_32k",
    groups: COPIES,
    amount: Amount::Bytes(512 << 20),
    open: |amount, _| {
        let (source, target) = UnixStream::pair().map_err(Error::host("socketpair", "AF_UNIX"))?;
        let ends = (source.into(), target.into());
        Ok(Box::new(StreamEnds::new("unix_32k", ends, BLOCK_BYTES, amount)?))
    },
};
