// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of this host, by device.
//!
//! Sources: `getifaddrs(3)`.
//!
//! Does not follow changes.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::error::Errno;
use crate::sys::last_errno;

/// Returns all addresses of IP that devices of this host have, each with its device's name.
pub(crate) fn addresses() -> Result<Vec<(String, IpAddr)>, Errno> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `list` is a live pointer to be written to.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(last_errno());
    }
    let mut all = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the list is ours until freeifaddrs, below, and its entries are whole.
        let entry = unsafe { &*next };
        // SAFETY: the address, where there is one, lives as long as the list.
        if let Some(address) = unsafe { address_of(entry.ifa_addr) } {
            // SAFETY: the name is a string that a zero ends and lives as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            all.push((name.to_string_lossy().into_owned(), address));
        }
        next = entry.ifa_next;
    }
    // SAFETY: `list` was returned by getifaddrs and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(all)
}

/// Returns the addresses that devices of this host have; none where the kernel returns none.
pub fn host_addresses() -> Vec<IpAddr> {
    addresses().unwrap_or_default().into_iter().map(|(_, address)| address).collect()
}

/// Returns the IP address in a socket address.
///
/// # Safety
/// `address` is null, or a live socket address of the length that its family requires.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so alive (caller).
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of this family, so as long as this type (caller). It need not have its
            // alignment.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address() {
        let all = addresses().unwrap();
        let lo = ("lo".to_string(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(all.contains(&lo), "{all:?}");
    }
}
