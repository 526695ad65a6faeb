// SPDX-License-Identifier: MIT OR Apache-2.0
//! Announces a channel's multicast targets by SAP, and withdraws them at the end.
//!
//! Costs one small packet every five minutes and target.
//!
//! Sources: RFC 2974 §3 (groups, interval), §4 (deletion); `wire::sap`.
//! Does not listen to other announcers.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use paths::{MappedFile, SendStats, StreamPath};
use wire::sap::{
    BANDWIDTH_BITS_PER_SECOND, announcement, announcement_delay, announcement_interval,
    announcement_target, deletion, message_hash,
};

use super::outlet::{Burst, Outlet};
use crate::channel::exports::session_description;
use crate::channel::send_target::{SendFormat, SendTarget};
use crate::channel::settings::ChannelConfig;
use crate::error::Error;

/// Announcements of one channel.
pub(super) struct Announcer {
    announced: Vec<Announced>,
    next_at: Instant,
}

struct Announced {
    target: SendTarget,
    outlet: Outlet,
    /// Packet that was sent last, with the source it names.
    sent: Option<(IpAddr, u16, Vec<u8>)>,
}

impl Announcer {
    /// Opens the sockets; none for a channel that is not announced.
    pub(super) fn open(config: &ChannelConfig, now: Instant) -> Result<Announcer, Error> {
        let targets =
            config.targets.iter().filter(|target| config.announce && target.is_multicast());
        let announced = targets.map(|target| {
            let group = announcement_target(target.address.ip()).expect("a multicast target");
            let to = SendTarget { format: SendFormat::Udp, address: group };
            Ok(Announced { target: *target, outlet: Outlet::open(config, to, now)?, sent: None })
        });
        let announced = announced.collect::<Result<Vec<_>, Error>>()?;
        Ok(Announcer { announced, next_at: now })
    }

    /// Announces all targets if it is time.
    pub(super) fn tick(
        &mut self,
        config: &ChannelConfig,
        version: u64,
        (path, blank): (&mut dyn StreamPath, &MappedFile),
        now: Instant,
    ) {
        if self.announced.is_empty() || now < self.next_at {
            return;
        }
        let count = self.announced.len() as u64;
        let mut bytes = 0;
        for announced in &mut self.announced {
            let local = announced.outlet.local;
            let source = config.source_of(&announced.target).or(local.map(|local| local.ip()));
            let Some(source) = source else { continue };
            let sdp = session_description(config, &announced.target, source, version);
            let hash = message_hash(&sdp, |_| false);
            let packet = announcement(source, hash, &sdp);
            bytes = bytes.max(packet.len() as u64);
            send(&mut announced.outlet, &packet, (path, blank), now);
            announced.sent = Some((source, hash, sdp));
        }
        let interval = match bytes {
            // No network yet.
            0 => RETRY_EVERY,
            bytes => announcement_interval(count, bytes, BANDWIDTH_BITS_PER_SECOND),
        };
        self.next_at = now + announcement_delay(interval, crate::random::random_u32());
    }

    /// Withdraws what was announced.
    pub(super) fn withdraw(&mut self, path: &mut dyn StreamPath, blank: &MappedFile, now: Instant) {
        for announced in &mut self.announced {
            if let Some((source, hash, sdp)) = announced.sent.take() {
                let packet = deletion(source, hash, &sdp);
                send(&mut announced.outlet, &packet, (path, blank), now);
            }
        }
        self.next_at = now;
    }
}

fn send(
    outlet: &mut Outlet,
    packet: &[u8],
    (path, blank): (&mut dyn StreamPath, &MappedFile),
    now: Instant,
) {
    let mut burst = Burst::default();
    burst.add(&[], packet);
    // A lost announcement is repeated.
    outlet.send(&burst, (path, blank), now, &mut SendStats::default());
}

const RETRY_EVERY: Duration = Duration::from_secs(3);
