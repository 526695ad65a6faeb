// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of one channel: wakes once a burst, makes packets ahead, sends those that are due.
//!
//! Packets are made [`LEAD`] ahead of time, so that a slow disk delays no packet. In a standby pair
//! the server that does not send only listens; at a take-over it begins with the programme of the
//! wall clock and continues the numbers that it has received.
//!
//! Each wake is a [`turn`](PlayoutThread::turn), which is passed the present time; tests call it
//! with times of their own.
//!
//! Costs one wake a burst, one send call a burst and target, and a write for viewers over RTSP.
//!
//! Sources: RFC 3550 §5.1 (SSRC, sequence, timestamp), RFC 2250 §2.
//! Does not retransmit.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clock::Moment;
use media::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};
use paths::{MappedFile, Open, SendStats, StreamPath, Transport};
use wire::mp2t::PAYLOAD_TYPE;
use wire::rtp::Header;

use super::announcer::Announcer;
use super::channel_clock::{ChannelClock, WallClockChange};
use super::outlet::{Burst, Outlet};
use super::overfull::OverfullWatch;
use super::peer_watch::{ChannelIdentity, LISTEN, PeerWatch, SILENCE};
use super::producer::{ChannelPacket, Producer};
use super::{ChannelHost, ChannelShared, OnAirNow};
use crate::channel::name_hash::name_hash;
use crate::channel::send_target::{SendFormat, SendTarget};
use crate::channel::settings::{ChannelConfig, ChannelRole};
use crate::channel::window::WindowWriter;
use crate::error::{Error, Setting};

/// Thread of one channel.
pub(super) struct PlayoutThread {
    shared: Arc<ChannelShared>,
    burst: Duration,
    channel_clock: ChannelClock,
    producer: Producer,
    outlets: Vec<Outlet>,
    announcer: Announcer,
    /// Keeps the sent packets for viewers over RTSP.
    window: Option<WindowWriter>,
    peer: Option<PeerWatch>,
    /// Index of the target in whose group the other server is received.
    peer_at: usize,
    path: Box<dyn StreamPath>,
    /// Source of batches whose bytes are all in memory.
    blank: MappedFile,
    ssrc: u32,
    sequence: u16,
    is_sending: bool,
    /// True until the first packet since the beginning has left.
    is_beginning: bool,
    began: Instant,
    /// Time of the turn before, and the time at which the next one is due.
    turned: Instant,
    wake: Instant,
    heard_at: Option<Instant>,
    plan_version: u64,
    overfull: OverfullWatch,
    version: u64,
    rtp: Burst,
    udp: Burst,
}

impl PlayoutThread {
    /// Opens sockets and path of a channel.
    ///
    /// # Errors
    /// A setting that cannot be carried out on this host.
    pub(super) fn open(
        shared: Arc<ChannelShared>,
        host: ChannelHost<'_>,
    ) -> Result<PlayoutThread, Error> {
        let config = &shared.config;
        let window = shared.window.clone().map(|window| {
            WindowWriter::open(window, config.time_shift, host.cache).map_err(|error| {
                let found = format!("its window for viewers over RTSP: {error}");
                let cure = "give the server a cache folder on a disk, or write rtsp = false";
                refuse(config, &found, cure)
            })
        });
        let window = window.transpose()?;
        let now = shared.clock.moment();
        let outlets = config.targets.iter().map(|target| Outlet::open(config, *target, now.at));
        let outlets = outlets.collect::<Result<Vec<_>, Error>>()?;
        let hash = name_hash(config.name.as_bytes());
        // The same on both servers of a pair: receivers see one sender.
        let (ssrc, transport_stream_id) = (config.ssrc(), hash as u16);
        let group = config.targets.iter().position(SendTarget::is_any_source_group);
        let identity = ChannelIdentity { ssrc, transport_stream_id };
        let peer = watch_peer(config, group.map(|at| &config.targets[at]), identity)?;
        let wall = now.since_epoch().unwrap_or_default();
        let channel_clock = ChannelClock::new(now.at, wall);
        Ok(PlayoutThread {
            window,
            producer: Producer::new(config, channel_clock.ticks_at(now.at)),
            announcer: Announcer::open(config, now.at)?,
            path: open_path()?,
            blank: blank().map_err(|source| Error::Host {
                call: "memfd_create",
                object: format!("channel.{}", config.name),
                source,
            })?,
            ssrc,
            sequence: hash as u16,
            is_sending: false,
            is_beginning: false,
            began: now.at,
            turned: now.at,
            wake: now.at,
            heard_at: None,
            plan_version: 0,
            overfull: OverfullWatch::default(),
            version: wall.as_secs(),
            rtp: Burst::default(),
            udp: Burst::default(),
            shared,
            burst: host.burst,
            channel_clock,
            outlets,
            peer,
            peer_at: group.unwrap_or(0),
        })
    }

    /// Runs until the channel stops.
    pub(super) fn run(mut self) {
        let clock = self.shared.clock.clone();
        self.wake = clock.now();
        self.turned = self.wake;
        while !self.shared.is_stopping.load(Ordering::Relaxed) {
            let wake = self.turn(clock.moment());
            std::thread::sleep(wake.saturating_duration_since(clock.now()));
        }
        if !self.has_no_targets() {
            self.announcer.withdraw(&mut *self.path, &self.blank, clock.now());
        }
    }

    /// Receives and sends what is due at `now`; returns the time of the next turn.
    fn turn(&mut self, now: Moment) -> Instant {
        let at = now.at;
        if at.saturating_duration_since(self.wake) > self.burst && self.is_sending {
            self.count(&self.shared.counters.late_bursts, 1);
        }
        let turned = std::mem::replace(&mut self.turned, at);
        self.listen(at, at.saturating_duration_since(turned) > SILENCE);
        if self.is_sending {
            self.play(now);
        }
        // A thread that was preempted for longer than a burst omits the wakes of that time.
        self.wake = at.max(self.wake + self.burst);
        self.wake
    }

    /// True while another process sends to the targets.
    fn has_no_targets(&self) -> bool {
        self.shared.has_no_targets.load(Ordering::Relaxed)
    }

    /// Receives the other server of a pair, and begins or stops to send.
    fn listen(&mut self, now: Instant, was_stopped: bool) {
        let mut heard_any = false;
        if let Some(peer) = &mut self.peer {
            let own = self.outlets[self.peer_at].local;
            let (producer, is_sending) = (&mut self.producer, self.is_sending);
            let heard = peer.listen(own, |payload| {
                if !is_sending {
                    producer.observe(payload);
                }
            });
            heard_any = heard.packets > 0;
            if heard_any {
                self.heard_at = Some(now);
            }
            if let Some(next) = heard.next_sequence.filter(|_| !self.is_sending) {
                self.sequence = next;
            }
        }
        let silent = now.saturating_duration_since(self.heard_at.unwrap_or(self.began));
        let name = &self.shared.config.name;
        match (self.shared.config.role, self.is_sending) {
            (ChannelRole::Primary, false) => {
                let is_early = self.peer.is_some() && now < self.began + LISTEN;
                // The last packets of the previous server process are continued.
                let listens = is_early || self.has_no_targets();
                if !listens {
                    tracing::info!("channel.{name}: on the air");
                    self.begin(now);
                }
            }
            // The standby has begun meanwhile: its numbers are continued, as after a start.
            (ChannelRole::Primary, true) if was_stopped && heard_any => {
                tracing::warn!(
                    "channel.{name}: was stopped for long; the standby sends, listening"
                );
                self.is_sending = false;
                self.window.iter_mut().for_each(WindowWriter::close);
                self.began = now;
            }
            (ChannelRole::Standby, false) if silent > SILENCE => {
                tracing::warn!("channel.{name}: the primary is silent; sending in its place");
                self.count(&self.shared.counters.takeovers, 1);
                self.begin(now);
            }
            (ChannelRole::Standby, true) if heard_any => {
                tracing::info!("channel.{name}: the primary sends again; standing by");
                self.is_sending = false;
                self.window.iter_mut().for_each(WindowWriter::close);
                self.shared.window.iter().for_each(|window| window.clear());
                self.announcer.withdraw(&mut *self.path, &self.blank, now);
                self.shared.note_on_air(OnAirNow::default());
            }
            _ => {}
        }
    }

    fn begin(&mut self, now: Instant) {
        (self.is_sending, self.is_beginning) = (true, true);
        // The other server may have sent all packets due before its next wake.
        self.producer.restart_at(self.channel_clock.ticks_at(now + self.burst));
    }

    /// Makes packets ahead and sends those that are due before the next wake.
    fn play(&mut self, now: Moment) {
        let (name, wall) = (&self.shared.config.name, now.since_epoch());
        let now = now.at;
        match self.channel_clock.compare(now, wall) {
            Some(WallClockChange::Set) => {
                tracing::warn!(
                    "channel.{name}: the wall clock was set; its programme of now begins"
                );
                self.producer.cut();
            }
            Some(WallClockChange::Lost) => tracing::warn!(
                "channel.{name}: the wall clock is before 1970; the programme goes on by the \
                 clock that it had; set the clock"
            ),
            None => {}
        }
        let plan = self.shared.plan();
        if plan.version != self.plan_version {
            self.plan_version = plan.version;
            // A programme is played to its end; the new plan is queried only if nothing plays.
            if self.producer.on_air().is_none_or(|on_air| on_air.entry.is_none()) {
                self.producer.cut();
            }
        }
        let ticks = self.channel_clock.ticks_at(now);
        if ticks.saturating_sub(self.producer.at()) > TICKS_PER_SECOND {
            let name = &self.shared.config.name;
            tracing::warn!("channel.{name}: over 1 s behind; what was due meanwhile is left out");
            self.producer.restart_at(ticks);
        }
        let until = self.channel_clock.ticks_at(now + LEAD);
        let begun = self.producer.advance(until, &self.channel_clock, &plan);
        if begun > 0 {
            self.count(&self.shared.counters.programmes, begun);
            let on_air = self.producer.on_air();
            self.shared.note_on_air(OnAirNow {
                entry: on_air.and_then(|on_air| on_air.entry.clone()),
                reason: on_air.map(|on_air| on_air.reason),
                is_sending: true,
            });
        }
        let units = self.producer.overfull_units();
        self.overfull.look(units, self.producer.bits_per_second(), &self.shared, now);
        self.shared.counters.overfull_units.store(units, Ordering::Relaxed);
        let due = self.channel_clock.ticks_at(now + self.burst);
        // A server that still sends must hear this one before its own next wake: its next packets
        // would have the same numbers.
        if self.is_beginning
            && let Some(packet) = self.producer.next(u64::MAX)
        {
            self.is_beginning = false;
            self.add(&packet, now);
        }
        while let Some(packet) = self.producer.next(due) {
            self.add(&packet, now);
        }
        self.send(now);
        self.window.iter_mut().for_each(WindowWriter::flush);
        if !self.has_no_targets() {
            let config = &self.shared.config;
            self.announcer.tick(config, self.version, (&mut *self.path, &self.blank), now);
        }
    }

    /// Adds a packet to the burst, and sends the burst when it is full.
    fn add(&mut self, packet: &ChannelPacket, now: Instant) {
        if let Some(window) = &mut self.window {
            window.add(&packet.payload, packet.begins, packet.is_join);
        }
        let head = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE,
            sequence: self.sequence,
            timestamp: (packet.begins / TICKS_PER_TIMESTAMP) as u32,
            ssrc: self.ssrc,
        };
        let head = head.write();
        if !self.rtp.add(&head, &packet.payload) {
            self.send(now);
            self.rtp.add(&head, &packet.payload);
        }
        self.udp.add(&[], &packet.payload);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Sends the burst to all targets.
    fn send(&mut self, now: Instant) {
        let is_mute = self.has_no_targets();
        let PlayoutThread { outlets, rtp, udp, path, blank, shared, .. } = self;
        for outlet in outlets.iter_mut().filter(|_| !is_mute) {
            let burst = match outlet.target.format {
                SendFormat::Rtp => &*rtp,
                SendFormat::Udp => &*udp,
            };
            let mut stats = SendStats::default();
            let sent = outlet.send(burst, (&mut **path, blank), now, &mut stats);
            let counters = &shared.counters;
            counters.packets.fetch_add(u64::from(sent), Ordering::Relaxed);
            counters.bytes.fetch_add(stats.bytes, Ordering::Relaxed);
            let dropped = u64::from(burst.packets - sent);
            counters.dropped_packets.fetch_add(dropped, Ordering::Relaxed);
        }
        self.rtp.clear();
        self.udp.clear();
    }

    fn count(&self, counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// Joins the group in which the other server of a pair is received. A primary can run without it.
fn watch_peer(
    config: &ChannelConfig,
    group: Option<&SendTarget>,
    identity: ChannelIdentity,
) -> Result<Option<PeerWatch>, Error> {
    let is_standby = config.role == ChannelRole::Standby;
    let Some(group) = group else {
        assert!(!is_standby, "a standby without a group is refused with the settings");
        return Ok(None);
    };
    match PeerWatch::join(group, config.interface.as_deref(), identity) {
        Ok(peer) => Ok(Some(peer)),
        Err(error) if is_standby => {
            let found = format!("role = \"standby\" on {group}: {error}");
            let cure = "a standby hears the primary in a group; name an interface that is up";
            Err(refuse(config, &found, cure))
        }
        Err(error) => {
            tracing::debug!("channel.{}: {group}: {error}", config.name);
            Ok(None)
        }
    }
}

/// A setting that cannot be carried out, of a channel.
fn refuse(config: &ChannelConfig, found: &str, cure: &str) -> Error {
    Error::Setting {
        setting: Setting::Channels,
        found: format!("channel.{}: {found}", config.name),
        cure: cure.to_owned(),
    }
}

fn open_path() -> Result<Box<dyn StreamPath>, Error> {
    let spec = paths::find(Transport::Rtp, "mmap_gso").expect("a member of the list");
    let Open::Stream { open, .. } = spec.open else { panic!("{spec} sends streams") };
    Ok(open()?)
}

/// A file of one page that no batch refers to.
fn blank() -> io::Result<MappedFile> {
    let file = rustix::fs::memfd_create("blank", rustix::fs::MemfdFlags::CLOEXEC)?;
    let file = std::fs::File::from(file);
    file.set_len(4096)?;
    MappedFile::open(file, "blank").map_err(io::Error::other)
}

/// Time by which packets are made ahead: longer than a disk needs to find one.
const LEAD: Duration = Duration::from_millis(300);

#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod tests;
