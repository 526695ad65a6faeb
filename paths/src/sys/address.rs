// SPDX-License-Identifier: MIT OR Apache-2.0
//! Internet addresses in the kernel's form.
//!
//! One record holds either family, as both begin with the family. Costs a few moves.
//!
//! Sources: `ip(7)`, `ipv6(7)` (`sockaddr_in`, `sockaddr_in6`).
//!
//! Does not handle names, or any other family.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either family.
pub(super) type Name = libc::sockaddr_in6;
pub(super) const NAME_BYTES: usize = size_of::<Name>();
const _: () = assert!(size_of::<libc::sockaddr_in>() <= NAME_BYTES);
const _: () = assert!(align_of::<libc::sockaddr_in>() <= align_of::<Name>());

/// Returns the address as a record, and the record's length.
pub(super) fn name(address: SocketAddr) -> (Name, libc::socklen_t) {
    // SAFETY: plain numbers, for which all zeroes is a value.
    let mut name: Name = unsafe { mem::zeroed() };
    match address {
        SocketAddr::V4(address) => {
            let short = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: `name` is as long and as aligned, as asserted above.
            unsafe { (&raw mut name).cast::<libc::sockaddr_in>().write(short) };
            (name, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(address) => {
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = address.port().to_be();
            name.sin6_flowinfo = address.flowinfo();
            name.sin6_addr = libc::in6_addr { s6_addr: address.ip().octets() };
            name.sin6_scope_id = address.scope_id();
            (name, NAME_BYTES as libc::socklen_t)
        }
    }
}

/// Returns the address in a record that the kernel has filled to `bytes` bytes; `None` for another
/// family.
pub(super) fn address(name: &Name, bytes: usize) -> Option<SocketAddr> {
    match libc::c_int::from(name.sin6_family) {
        libc::AF_INET if bytes >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: `name` is as long and as aligned as this record, which is plain numbers.
            let short = unsafe { (&raw const *name).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(short.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(short.sin_port)).into())
        }
        libc::AF_INET6 if bytes >= NAME_BYTES => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            // The flow label belongs to the packet, not to the sender.
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["10.0.0.7:5004", "0.0.0.0:0", "[2001:db8::7]:65535", "[fe80::1%3]:5004"] {
            let wanted: SocketAddr = text.parse().unwrap();
            let (name, bytes) = name(wanted);
            assert_eq!(address(&name, bytes as usize), Some(wanted));
            assert_eq!(address(&name, bytes as usize - 1), None);
        }
        // SAFETY: plain numbers.
        assert_eq!(address(&unsafe { mem::zeroed() }, NAME_BYTES), None);
    }
}
