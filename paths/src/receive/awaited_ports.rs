// SPDX-License-Identifier: MIT OR Apache-2.0
//! Awaited addresses and ports of a device, each with its owner.
//!
//! A port of any address is awaited at each address that the host has when it is added: datagrams
//! that this host forwards to others must not be received. A binary search finds a port, in some 10
//! ns among a hundred.
//!
//! Sources: RFC 1122 §3.3.4.2 (an address is the host's on every device); RFC 4607.
//!
//! Does not notice addresses that are added to the host later.

use std::net::IpAddr;

/// An awaited address and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AwaitedPort {
    pub(super) port: u16,
    pub(super) target: IpAddr,
    pub(super) key: u32,
    /// Allowed senders; empty for all.
    pub(super) sources: Vec<IpAddr>,
}

/// All awaited ports of a device, in order of port and address.
#[derive(Clone, Debug, Default)]
pub(super) struct AwaitedPorts(Vec<AwaitedPort>);

impl AwaitedPorts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AwaitedPort> {
        self.0.iter()
    }

    pub(super) fn add(&mut self, awaited: AwaitedPort) {
        let place = (awaited.port, awaited.target);
        let at = self.0.partition_point(|other| (other.port, other.target) <= place);
        self.0.insert(at, awaited);
    }

    /// Removes the entries of this key.
    pub(super) fn remove(&mut self, key: u32) {
        self.0.retain(|awaited| awaited.key != key);
    }

    /// True when an owner awaits datagrams there.
    pub(super) fn has(&self, target: IpAddr, port: u16) -> bool {
        self.at(target, port).next().is_some()
    }

    /// Returns the keys of the owners of datagrams from `source`. More than one only for a group.
    pub(super) fn keys(
        &self,
        target: IpAddr,
        port: u16,
        source: IpAddr,
    ) -> impl Iterator<Item = u32> {
        self.at(target, port)
            .filter(move |awaited| awaited.sources.is_empty() || awaited.sources.contains(&source))
            .map(|awaited| awaited.key)
    }

    fn at(&self, target: IpAddr, port: u16) -> impl Iterator<Item = &AwaitedPort> {
        let place = (port, target);
        let first = self.0.partition_point(|other| (other.port, other.target) < place);
        self.0[first..].iter().take_while(move |other| (other.port, other.target) == place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn datagrams_find_those_who_await_them() {
        let mut wanted = AwaitedPorts::default();
        let mut add = |port, target, key, sources: &[&str]| {
            let sources = sources.iter().copied().map(ip).collect();
            wanted.add(AwaitedPort { port, target: ip(target), key, sources });
        };
        add(5004, "239.1.1.1", 1, &[]);
        add(5004, "239.1.1.2", 2, &["10.0.0.1", "10.0.0.2"]);
        add(5004, "239.1.1.2", 3, &["10.0.0.2"]);
        add(5006, "239.1.1.1", 4, &[]);
        add(5002, "2001:db8::1", 5, &[]);
        let keys = |wanted: &AwaitedPorts, target, port, source| -> Vec<u32> {
            let mut keys: Vec<u32> = wanted.keys(ip(target), port, ip(source)).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(keys(&wanted, "239.1.1.1", 5004, "10.0.0.9"), [1]);
        assert_eq!(keys(&wanted, "239.1.1.2", 5004, "10.0.0.9"), []);
        assert_eq!(keys(&wanted, "239.1.1.2", 5004, "10.0.0.1"), [2]);
        assert_eq!(keys(&wanted, "239.1.1.2", 5004, "10.0.0.2"), [2, 3]);
        assert_eq!(keys(&wanted, "239.1.1.1", 5006, "10.0.0.2"), [4]);
        assert_eq!(keys(&wanted, "239.1.1.1", 5005, "10.0.0.2"), []);
        assert_eq!(keys(&wanted, "2001:db8::1", 5002, "2001:db8::2"), [5]);
        assert!(wanted.has(ip("239.1.1.2"), 5004) && !wanted.has(ip("239.1.1.2"), 5006));
        wanted.remove(2);
        assert_eq!(keys(&wanted, "239.1.1.2", 5004, "10.0.0.2"), [3]);
        [1, 3, 4, 5].into_iter().for_each(|key| wanted.remove(key));
        assert!(wanted.is_empty());
    }
}
