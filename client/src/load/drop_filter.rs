// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns sockets into counters: a filter drops every datagram before it is queued.
//!
//! The kernel counts the drops, so each packet of a session is counted at no cost to this process:
//! no wake-up, no copy, no buffer. The remaining cost is the kernel's receive path up to the
//! socket. On a device without checksum offload it includes one pass over the bytes: the kernel
//! verifies the checksum before it runs a filter.
//!
//! Sources: socket(7) SO_ATTACH_FILTER; bpf (classic), Linux `Documentation/networking/filter.rst`;
//! `net/ipv4/udp.c` udp_queue_rcv_one_skb.
//! Does not distinguish a packet of the stream from another datagram to the same port.

use std::io;
use std::net::UdpSocket;

use socket2::{SockFilter, SockRef};

/// Makes the kernel drop and count every datagram to this socket.
pub(super) fn drop_all(socket: &UdpSocket) -> io::Result<()> {
    // One instruction: return 0 bytes of the packet, which drops it.
    SockRef::from(socket).attach_filter(&[SockFilter::new(RETURN_CONSTANT, 0, 0, 0)])
}

/// BPF_RET | BPF_K.
const RETURN_CONSTANT: u16 = 0x06;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use paths::dropped_packets;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (receiver, sender)
    }

    #[test]
    fn a_refusing_socket_receives_nothing_and_counts_everything() {
        let (receiver, sender) = pair();
        drop_all(&receiver).unwrap();
        assert_eq!(dropped_packets(&receiver).unwrap(), 0);
        for n in 0..1000_u32 {
            sender.send(&n.to_be_bytes().repeat(332)).unwrap();
        }
        assert_eq!(dropped_packets(&receiver).unwrap(), 1000);
        let nothing = receiver.recv(&mut [0; 2048]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
