// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports whose numbers a test must know before they are opened, or while they are closed.
//!
//! A port that the kernel chose and a test released may be assigned to another test at once: that
//! one receives datagrams that are not its own, and the first one cannot open the port again. The
//! ports here are assigned to nobody else, open or closed.
//!
//! Source: ip(7), `ip_local_port_range`.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::path::Path;

/// Returns a free even port of this machine whose successor is free as well, by UDP and TCP. No
/// other test gets either of them: each pair has a file that is locked until this process ends. The
/// kernel assigns them to no socket that requests port 0, because they lie below its range.
pub(crate) fn free_port() -> u16 {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
    fs::create_dir_all(&folder).expect("room for a folder");
    let begin = std::process::id().wrapping_mul(2_654_435_761);
    for step in 0..PORT_PAIRS {
        let port = FIRST_PORT + 2 * (begin.wrapping_add(step) % PORT_PAIRS) as u16;
        let lock = File::create(folder.join(port.to_string())).expect("room for a file");
        if lock.try_lock().is_ok() && is_free(port) && is_free(port + 1) {
            std::mem::forget(lock);
            return port;
        }
    }
    panic!("no two neighbouring ports are free");
}

fn is_free(port: u16) -> bool {
    // A host without IPv6 has no such port in use.
    let is_bound =
        |bound: io::Result<()>| bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)].into_iter().all(|any| {
        !is_bound(UdpSocket::bind((any, port)).map(drop))
            && !is_bound(TcpListener::bind((any, port)).map(drop))
    })
}

/// The pairs lie below the kernel's own range, which starts at 32768.
const FIRST_PORT: u16 = 20_000;
const PORT_PAIRS: u32 = 6000;
