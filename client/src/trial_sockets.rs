// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of this machine, as the client's tests meet them.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// Prints a skip, and returns true, where the kernel dropped datagrams at sockets of the client:
/// this process was not scheduled for long enough to read them.
pub(super) fn skips_for_drops(dropped: u64) -> bool {
    if dropped > 0 {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a trial");
        eprintln!("skip: busy machine: {test}: the kernel dropped {dropped} datagrams");
    }
    dropped > 0
}

/// Address without a listener. The returned socket keeps the port, which another process could
/// otherwise bind.
pub(super) fn nobody() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}
