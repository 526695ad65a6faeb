// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relay targets, and the thread that relays streams without recording them.
//!
//! Without files only the heads of datagrams are copied to user memory: [`paths::Relay`] splices
//! the datagrams, and the figures are computed from the heads. Of a segment run that the kernel has
//! coalesced only the first head is visible; the others are assumed to be consecutive, and a loss
//! within the run appears at the head of the next. Recorded datagrams are sent with one call each
//! from the receive buffer ([`RelaySocket`]). Datagrams of senders other than the followed one are
//! not relayed; the first datagrams of a new sender, before it is followed, are not held for later.
//!
//! Sources: `paths::Relay`; RFC 3550 §5.1.
//! Does not change headers, reorder, or pace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::rtp_receiver::ArrivalClock;
use paths::{Port, Relay, RelayTarget, RelayedRun};

use crate::error::{Error, RecordSetting};
use crate::receiving_thread::{
    Pacing, PortCommand, ReceiverStats, STAMP_AGE_MAX, Streams, lock, raise_priority, tick,
};

/// Parses `ADDRESS:PORT[?interface=NAME&hops=N]`.
fn target(text: &str) -> Result<RelayTarget, Error> {
    let wrong = |cure: &str| Error::Setting {
        setting: RecordSetting::Relay,
        found: text.to_owned(),
        cure: cure.to_owned(),
    };
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let address = address.strip_prefix("udp://").unwrap_or(address).parse();
    let address = address.map_err(|_| wrong("write ADDRESS:PORT, such as 239.2.2.2:5004"))?;
    let mut target = RelayTarget { address, interface: None, hops: None };
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("interface", name)) if !name.is_empty() => target.interface = Some(name.into()),
            Some(("hops", hops)) => {
                let hops = hops.parse().map_err(|_| wrong("write hops=N, 255 at most"))?;
                target.hops = Some(hops);
            }
            _ => return Err(wrong("write interface=NAME or hops=N behind the ?")),
        }
    }
    Ok(target)
}

/// Parses one target for each stream, or none at all.
pub(crate) fn targets(texts: &[String], streams: usize) -> Result<Vec<RelayTarget>, Error> {
    if !texts.is_empty() && texts.len() != streams {
        return Err(Error::Setting {
            setting: RecordSetting::Relay,
            found: format!("{} for {streams} streams", texts.len()),
            cure: "write one for each, in their order".to_owned(),
        });
    }
    texts.iter().map(|text| target(text)).collect()
}

/// Relays recorded datagrams.
#[derive(Debug)]
pub(crate) struct RelaySocket {
    socket: UdpSocket,
    to: SocketAddr,
    /// Datagrams that the socket refused.
    pub(crate) lost: u64,
    pub(crate) sent: u64,
}

impl RelaySocket {
    pub(crate) fn new(target: &RelayTarget) -> Result<RelaySocket, Error> {
        let host = |call, source| Error::Host { call, object: target.address.to_string(), source };
        let any: IpAddr = match target.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).map_err(|error| host("bind", error))?;
        let options = socket2::SockRef::from(&socket);
        if let Some(hops) = target.hops.map(u32::from) {
            let set = match (target.address.ip(), target.address.ip().is_multicast()) {
                (IpAddr::V4(_), true) => options.set_multicast_ttl_v4(hops),
                (IpAddr::V4(_), false) => options.set_ttl_v4(hops),
                (IpAddr::V6(_), true) => options.set_multicast_hops_v6(hops),
                (IpAddr::V6(_), false) => options.set_unicast_hops_v6(hops),
            };
            set.map_err(|error| host("setsockopt IP_TTL", error))?;
        }
        if let Some(name) = &target.interface {
            let bound = options.bind_device(Some(name.as_bytes()));
            bound.map_err(|error| host("setsockopt SO_BINDTODEVICE", error))?;
        }
        socket.set_nonblocking(true).map_err(|error| host("fcntl", error))?;
        Ok(RelaySocket { socket, to: target.address, lost: 0, sent: 0 })
    }

    /// Sends a datagram; one that does not fit the socket's buffer is lost, as on a wire.
    pub(crate) fn send(&mut self, datagram: &[u8]) {
        match self.socket.send_to(datagram, self.to) {
            Ok(_) => self.sent += 1,
            Err(_) => self.lost += 1,
        }
    }
}

/// The thread that relays without recording.
pub(crate) struct RelayThread {
    pub(crate) relay: Box<Relay>,
    pub(crate) streams: Streams,
    /// Address of each stream, by key.
    pub(crate) ports: Vec<(u32, SocketAddr)>,
    pub(crate) inbox: Receiver<PortCommand>,
    pub(crate) stats: Arc<Mutex<ReceiverStats>>,
    pub(crate) clock: ArrivalClock,
}

/// Opens a relay with all routes.
pub(crate) fn open(routes: &[(u32, &Port, &RelayTarget)]) -> Result<Relay, Error> {
    let mut relay = Relay::new().map_err(Error::Relay)?;
    for (key, port, target) in routes {
        relay.add(port, *key, target).map_err(Error::Relay)?;
    }
    Ok(relay)
}

impl RelayThread {
    pub(crate) fn run(mut self) {
        raise_priority();
        let mut pace = Pacing::default();
        while let Err(TryRecvError::Empty) = self.inbox.try_recv() {
            let forwarded = self.forward(WAIT);
            let now = self.clock.now();
            pace.after(forwarded, self.relay.pause_max(), &self.stats, now);
            if pace.is_tick_due(self.clock.now()) {
                self.tick();
            }
        }
        // Datagrams still in the sockets arrived before the stop; they are relayed too.
        let until = self.clock.now() + LAST;
        while self.clock.now() < until && matches!(self.forward(Duration::ZERO), Ok(1..)) {}
        self.tick();
    }

    fn forward(&mut self, wait: Duration) -> Result<usize, paths::Error> {
        let (streams, clock) = (&self.streams, &self.clock);
        let mut admit = |run: &RelayedRun<'_>| {
            let Some(stream) = streams.get(run.key as usize) else { return false };
            let (now, wall) = clock.moment();
            let arrived_at = ArrivalClock::arrival(run.time, now, wall, STAMP_AGE_MAX);
            lock(stream).observe_headers(run.head, (run.packets, run.bytes), run.source, arrived_at)
        };
        self.relay.forward_if(wait, &mut admit, &mut |_| {})
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        let mut stats = lock(&self.stats);
        stats.received = self.relay.receive_stats();
        for &(key, address) in &self.ports {
            tick(&self.streams[key as usize], address, now);
            stats.set_dropped(key, self.relay.dropped(key));
            stats.set_unsent(key, self.relay.lost(key));
        }
    }
}

const WAIT: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_port_and_perhaps_an_interface() {
        let read = target("239.2.2.2:5004?interface=eth1&hops=16").unwrap();
        assert_eq!(read.address, "239.2.2.2:5004".parse().unwrap());
        assert_eq!((read.interface.as_deref(), read.hops), (Some("eth1"), Some(16)));
        assert_eq!(target("udp://[::1]:5004").unwrap().address, "[::1]:5004".parse().unwrap());
        for (text, cure) in [
            ("239.2.2.2", "write ADDRESS:PORT"),
            ("239.2.2.2:1?hops=300", "write hops=N"),
            ("239.2.2.2:1?ttl=3", "write interface=NAME or hops=N"),
        ] {
            let error = target(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("relay: {text}; {cure}")), "{error}");
        }
    }

    #[test]
    fn a_copier_counts_what_it_sends() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = receiver.local_addr().unwrap();
        let to = RelayTarget { address, interface: None, hops: Some(1) };
        let mut copier = RelaySocket::new(&to).unwrap();
        copier.send(b"abc");
        copier.send(&vec![0; 70_000]);
        assert_eq!((copier.sent, copier.lost), (1, 1));
        let mut buffer = [0; 10];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);
    }
}
