// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets interfaces up and gives them addresses, by rtnetlink.
//!
//! The guest has no `ip`, and the older ioctls cannot be called without `unsafe`; two messages of
//! rtnetlink suffice. The kernel gives the loopback interface 127.0.0.1 when it comes up.
//!
//! Sources: netlink(7), rtnetlink(7), `linux/rtnetlink.h`, `linux/if_addr.h`; RFC 3549 §2.2-2.3.
//!
//! Does not remove or list addresses and does not set routes; the kernel adds the route of a
//! connected network.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::error::Error;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// Flag with which an existing address is no error.
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
/// Bytes of `struct nlmsghdr`; in an answer the error number follows.
const HEADER_BYTES: usize = 16;
/// Bytes of the answer buffer, more than an acknowledgement, which repeats the request.
const ANSWER_BYTES_MAX: usize = 4096;

/// Sets `interface` up and adds `address`, if any. Returns false when no interface has the name.
pub(crate) fn up(interface: &str, address: Option<(Ipv4Addr, u8)>) -> Result<bool, Error> {
    let family = AddressFamily::NETLINK;
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(Error::host("socket", "AF_NETLINK"))?;
    let index = match name_to_index(&socket, interface) {
        Ok(index) => index,
        Err(Errno::NODEV) => return Ok(false),
        Err(error) => return Err(Error::host("ioctl SIOCGIFINDEX", interface)(error)),
    };
    if let Some((address, prefix_bits)) = address {
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        ask(&socket, RTM_NEWADDR, flags, &new_address(index, address, prefix_bits))
            .map_err(Error::host("rtnetlink RTM_NEWADDR", format!("{interface} {address}")))?;
    }
    ask(&socket, RTM_NEWLINK, 0, &link_up(index))
        .map_err(Error::host("rtnetlink RTM_NEWLINK", format!("{interface} up")))?;
    Ok(true)
}

/// Returns `struct ifaddrmsg` and its two attributes, equal without a point-to-point link.
fn new_address(index: u32, address: Ipv4Addr, prefix_bits: u8) -> Vec<u8> {
    let mut body = vec![AF_INET, prefix_bits, 0, 0];
    body.extend(index.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(address.octets());
    }
    body
}

/// Returns `struct ifinfomsg`: family, pad, type, index, flags, and a mask of the flags to change.
fn link_up(index: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [index, IFF_UP, IFF_UP] {
        body.extend(word.to_ne_bytes());
    }
    body
}

/// Sends one message and waits for the kernel's acknowledgement.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(HEADER_BYTES + body.len()).map_err(io::Error::other)?;
    let flags = flags | NLM_F_REQUEST | NLM_F_ACK;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Leaves sequence and port 0: with one message at a time, an answer belongs to that message.
    message.extend([0; 8]);
    message.extend(body);
    send(socket, &message, SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let (bytes, _) = recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
    verdict(&answer[..bytes])
}

/// Parses the error number of an answer; 0 is an acknowledgement.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let number = answer
        .get(HEADER_BYTES..HEADER_BYTES + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind, number) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(number)) => {
            Err(io::Error::from_raw_os_error(number.wrapping_neg()))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is no verdict")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, number: i32) -> Vec<u8> {
        let mut bytes = 36_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(number.to_ne_bytes());
        bytes
    }

    #[test]
    fn verdicts_are_told_apart() {
        assert!(verdict(&answer(NLMSG_ERROR, 0)).is_ok());
        let refused = verdict(&answer(NLMSG_ERROR, -1)).expect_err("EPERM");
        assert_eq!(refused.raw_os_error(), Some(1));
        assert!(verdict(&answer(RTM_NEWLINK, 0)).is_err());
        assert!(verdict(&answer(NLMSG_ERROR, 0)[..18]).is_err());
        assert!(verdict(&[]).is_err());
    }

    #[test]
    fn messages_have_the_layout_of_the_kernel() {
        let body = new_address(3, Ipv4Addr::new(10, 9, 0, 1), 24);
        assert_eq!(body.len(), 24, "struct ifaddrmsg and two attributes of 8 bytes");
        assert_eq!(body[..4], [AF_INET, 24, 0, 0]);
        assert_eq!(body[12..16], [10, 9, 0, 1]);
        assert_eq!(link_up(3).len(), 16, "struct ifinfomsg");
    }

    #[test]
    fn an_interface_that_is_not_there_is_no_error() {
        assert!(matches!(up("no-such-if0", None), Ok(false)));
    }
}
