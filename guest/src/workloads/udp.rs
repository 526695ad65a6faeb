// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams of 1400 bytes over loopback, one sent and one received.
//!
//! Sources: udp(7).

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::buffer::Buffer;
use super::{Amount, NETWORK, Workload, WorkloadSpec, pattern};
use crate::error::{Error, same, same_bytes};
use crate::protocol::WorkDone;

const DATAGRAM_BYTES: usize = 1400;
/// Longest wait. A datagram on loopback arrives before its send returns; a later one is lost.
const WAIT_MAX: Duration = Duration::from_secs(5);
const NAME: &str = "udp_1400";

pub(super) static UDP_1400: WorkloadSpec = WorkloadSpec {
    name: NAME,
    groups: NETWORK,
    amount: Amount::Bytes(16 << 20),
    open: |amount, _| {
        let (source, target) = pair().map_err(Error::host("connect", "UDP on 127.0.0.1"))?;
        Ok(Box::new(Udp {
            source,
            target,
            sent: pattern::buffer(DATAGRAM_BYTES),
            // Has one byte more, which a datagram that is too long would fill.
            received: Buffer::zeros(DATAGRAM_BYTES + 1),
            datagrams: amount.turns(2 * DATAGRAM_BYTES as u64, 2),
        }))
    },
};

struct Udp {
    source: UdpSocket,
    target: UdpSocket,
    sent: Buffer,
    received: Buffer,
    datagrams: u64,
}

fn pair() -> std::io::Result<(UdpSocket, UdpSocket)> {
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let source = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    source.connect(target.local_addr()?)?;
    target.connect(source.local_addr()?)?;
    target.set_read_timeout(Some(WAIT_MAX))?;
    Ok((source, target))
}

impl Workload for Udp {
    fn run(&mut self) -> Result<WorkDone, Error> {
        for number in 0..self.datagrams {
            pattern::stamp(&mut self.sent, number);
            let sent = self.source.send(&self.sent);
            pattern::whole("send", NAME, DATAGRAM_BYTES, sent)?;
            let received = self.target.recv(&mut self.received);
            pattern::whole("recv", NAME, DATAGRAM_BYTES, received)?;
            if pattern::first(&self.received) != number {
                same(NAME, number, pattern::first(&self.received))?;
            }
        }
        Ok(WorkDone {
            bytes: self.datagrams * 2 * DATAGRAM_BYTES as u64,
            calls: self.datagrams * 2,
            packets: self.datagrams,
        })
    }

    fn check(&mut self) -> Result<(), Error> {
        same_bytes(NAME, &self.sent, &self.received[..DATAGRAM_BYTES])
    }
}
