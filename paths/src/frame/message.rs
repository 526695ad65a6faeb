// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of rtnetlink: four questions, and the parsing of their answers.
//!
//! Written and parsed by hand: four questions of 28 to 92 bytes need less code than any crate for
//! them, and the answers are parsed like all input, with every length checked.
//!
//! Sources: `netlink(7)`, `rtnetlink(7)`; Linux `include/uapi/linux/{netlink,rtnetlink,if_link,
//! neighbour}.h`.
//!
//! Does not send messages. Parses dumps of queueing disciplines alone ([`qdisc`]).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::error::Errno;

const HEADER_BYTES: usize = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// All questions have this number: a socket sends one and then waits for its answer.
const SEQUENCE: u32 = 1;

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;

const LINK_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const NEIGHBOUR_BYTES: usize = 12;

const INET: u8 = libc::AF_INET as u8;
const INET6: u8 = libc::AF_INET6 as u8;
const UDP: u8 = libc::IPPROTO_UDP as u8;

/// Attributes of routes (`RTA_`).
mod rta {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const SOURCE: u16 = 2;
    pub(super) const OUT_DEVICE: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const METRICS: u16 = 8;
    pub(super) const VIA: u16 = 18;
    pub(super) const ENCAPSULATION: u16 = 22;
    pub(super) const IP_PROTOCOL: u16 = 27;
    pub(super) const SOURCE_PORT: u16 = 28;
    pub(super) const DESTINATION_PORT: u16 = 29;
    /// Attribute in METRICS: `RTAX_MTU`.
    pub(super) const METRIC_MTU: u16 = 2;
}

/// Attributes of devices (`IFLA_`).
mod ifla {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const NAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const LINK_INFO: u16 = 18;
}

/// Attributes of neighbours (`NDA_`).
mod nda {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const ADDRESS: u16 = 2;
}

/// A message being written.
struct Question(Vec<u8>);

impl Question {
    /// Begins a question with `flags`, besides the flag that every question has.
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        bytes[8..12].copy_from_slice(&SEQUENCE.to_ne_bytes());
        bytes.extend_from_slice(body);
        Self(bytes)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let bytes = (4 + value.len()) as u16;
        self.0.extend_from_slice(&bytes.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn done(mut self) -> Vec<u8> {
        let bytes = self.0.len() as u32;
        self.0[..4].copy_from_slice(&bytes.to_ne_bytes());
        self.0
    }
}

/// Returns the query for the route of a datagram between two addresses; ports matter where there
/// are several routes.
pub(crate) fn ask_route(source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let mut body = [0; ROUTE_BYTES];
    let (source_ip, target_ip) = (octets(source.ip()), octets(target.ip()));
    let family = if target.is_ipv4() { INET } else { INET6 };
    let bits = |ip: &[u8]| (8 * ip.len()) as u8;
    body[..3].copy_from_slice(&[family, bits(&target_ip), bits(&source_ip)]);
    Question::new(GET_ROUTE, 0, &body)
        .with(rta::DESTINATION, &target_ip)
        .with(rta::SOURCE, &source_ip)
        .with(rta::IP_PROTOCOL, &[UDP])
        .with(rta::SOURCE_PORT, &source.port().to_be_bytes())
        .with(rta::DESTINATION_PORT, &target.port().to_be_bytes())
        .done()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the query for a device's properties.
pub(super) fn ask_link(device: u32) -> Vec<u8> {
    let mut body = [0; LINK_BYTES];
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    Question::new(GET_LINK, 0, &body).done()
}

/// Returns the query for the Ethernet address of a neighbour.
pub(super) fn ask_neighbour(device: u32, hop: Ipv4Addr) -> Vec<u8> {
    let mut body = [0; NEIGHBOUR_BYTES];
    body[0] = INET;
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    Question::new(GET_NEIGHBOUR, 0, &body).with(nda::DESTINATION, &hop.octets()).done()
}

/// The route of datagrams to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// `RTN_UNICAST` and so on.
    pub(crate) kind: u8,
    pub(crate) device: u32,
    pub(super) gateway: Option<Ipv4Addr>,
    /// True for an IPv6 gateway or a tunnel, which plain frames cannot use.
    pub(super) is_wrapped: bool,
    /// The route's own MTU.
    pub(super) mtu: Option<u32>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// `ARPHRD_ETHER` and so on.
    pub(crate) kind: u16,
    pub(crate) is_up: bool,
    /// True when it does not resolve addresses (`IFF_NOARP`): it has one neighbour at most.
    pub(crate) is_silent: bool,
    /// True when it was made by software (`IFLA_LINKINFO`) or is loopback, without a wire.
    pub(crate) is_virtual: bool,
    pub(crate) address: Option<[u8; 6]>,
    pub(crate) mtu: u32,
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// `NUD_REACHABLE` and so on.
    pub(super) state: u16,
    pub(super) address: Option<[u8; 6]>,
}

/// Error for an answer that violates the protocol.
const MALFORMED: Errno = Errno::new(libc::EPROTO);

pub(crate) fn route(answer: &[u8]) -> Result<Route, Errno> {
    let (body, attributes) = open(answer, NEW_ROUTE, ROUTE_BYTES)?;
    let mut route = Route { kind: body[7], device: 0, gateway: None, is_wrapped: false, mtu: None };
    for (kind, value) in attributes {
        match kind {
            rta::OUT_DEVICE => route.device = number(value)?,
            rta::GATEWAY => {
                let octets: Option<[u8; 4]> = value.try_into().ok();
                route.gateway = octets.map(Into::into);
                route.is_wrapped |= octets.is_none();
            }
            rta::VIA | rta::ENCAPSULATION => route.is_wrapped = true,
            rta::METRICS => {
                let mtu = Attributes(value).find(|(kind, _)| *kind == rta::METRIC_MTU);
                route.mtu = mtu.map(|(_, value)| number(value)).transpose()?;
            }
            _ => {}
        }
    }
    if route.device == 0 { Err(MALFORMED) } else { Ok(route) }
}

pub(super) fn link(answer: &[u8]) -> Result<Link, Errno> {
    let (body, attributes) = open(answer, NEW_LINK, LINK_BYTES)?;
    let flags = u32::from_ne_bytes([body[8], body[9], body[10], body[11]]);
    let mut link = Link {
        name: String::new(),
        kind: u16::from_ne_bytes([body[2], body[3]]),
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_silent: flags & libc::IFF_NOARP as u32 != 0,
        is_virtual: flags & libc::IFF_LOOPBACK as u32 != 0,
        address: None,
        mtu: 0,
    };
    for (kind, value) in attributes {
        match kind {
            ifla::NAME => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(text).into_owned();
            }
            ifla::ADDRESS => link.address = value.try_into().ok(),
            ifla::MTU => link.mtu = number(value)?,
            ifla::LINK_INFO => link.is_virtual = true,
            _ => {}
        }
    }
    Ok(link)
}

pub(super) fn neighbour(answer: &[u8]) -> Result<Neighbour, Errno> {
    let (body, mut attributes) = open(answer, NEW_NEIGHBOUR, NEIGHBOUR_BYTES)?;
    let state = u16::from_ne_bytes([body[8], body[9]]);
    let address = attributes.find(|(kind, _)| *kind == nda::ADDRESS);
    Ok(Neighbour { state, address: address.and_then(|(_, value)| value.try_into().ok()) })
}

/// Returns the body and attributes of an answer of that kind, or its error.
fn open(answer: &[u8], kind: u16, body_bytes: usize) -> Result<(&[u8], Attributes<'_>), Errno> {
    let (header, _) = answer.split_first_chunk::<HEADER_BYTES>().ok_or(MALFORMED)?;
    let bytes = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let rest = answer.get(HEADER_BYTES..bytes).ok_or(MALFORMED)?;
    match u16::from_ne_bytes([header[4], header[5]]) {
        ERROR => match rest.first_chunk::<4>().map(|code| i32::from_ne_bytes(*code)) {
            Some(code) if code < 0 => Err(Errno::new(code.saturating_neg())),
            _ => Err(MALFORMED),
        },
        found if found == kind && rest.len() >= body_bytes => {
            let (body, rest) = rest.split_at(body_bytes);
            Ok((body, Attributes(rest)))
        }
        _ => Err(MALFORMED),
    }
}

fn number(value: &[u8]) -> Result<u32, Errno> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| MALFORMED)
}

/// Attributes one after the other; ends at the first that does not fit.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        /// Bits of the kind that are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
        const FLAGS: u16 = 0xc000;
        let (header, _) = self.0.split_first_chunk::<4>()?;
        let bytes = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !FLAGS;
        let value = self.0.get(4..bytes)?;
        self.0 = self.0.get(bytes.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

pub(crate) mod qdisc;

#[cfg(test)]
mod tests;
