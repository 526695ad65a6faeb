// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks by address and prefix, and the network by which a client is counted.
//!
//! Sources: RFC 4632 §3.1 (prefix notation), RFC 4291 §2.3 and §2.5.4 (a subnet is a /64).
//! Does not resolve names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and the number of its leading bits that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientPrefix {
    address: IpAddr,
    prefix_bits: u8,
}

impl ClientPrefix {
    /// The loopback networks of this machine.
    pub const LOOPBACK: [ClientPrefix; 2] = [
        ClientPrefix { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix_bits: 8 },
        ClientPrefix { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 },
    ];

    /// True when `address` lies in the network. IPv4 addresses must not be mapped into IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()) & mask_v4(self.prefix_bits) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()) & mask_v6(self.prefix_bits) == 0
            }
            _ => false,
        }
    }
}

/// A text that names no network: no address, or more bits than the address has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write a network such as 10.0.0.0/8 or fd00::/8")]
pub struct InvalidPrefix(String);

impl FromStr for ClientPrefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<ClientPrefix, InvalidPrefix> {
        let wrong = || InvalidPrefix(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            Some(prefix) => prefix.trim().parse().map_err(|_| wrong())?,
            None => bits_max,
        };
        if prefix_bits > bits_max {
            return Err(wrong());
        }
        Ok(ClientPrefix { address, prefix_bits })
    }
}

/// Returns the address that limits count: the /64 network for IPv6, where a host has 2⁶⁴ addresses.
pub fn counted_as(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() & mask_v6(SUBNET_BITS)).into(),
    }
}

fn mask_v4(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

fn mask_v6(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

const SUBNET_BITS: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_their_prefix_says() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("100.64.0.0/10", "100.127.255.255", "100.128.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("127.0.0.1/8", "127.9.9.9", "::1"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("fd00::/8", "fdff::1", "fe80::1"),
            ("::1", "::1", "::2"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
        ] {
            let network: ClientPrefix = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network:?} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network:?} {outside}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "host/8", "/8"] {
            assert!(wrong.parse::<ClientPrefix>().is_err(), "{wrong}");
        }
    }
}
