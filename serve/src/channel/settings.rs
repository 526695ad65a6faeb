// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel's settings as an operator writes them, and as the server uses them.
//!
//! [`ChannelDraft`] holds text and numbers of any size; [`ChannelDraft::check`] turns it into a
//! [`ChannelConfig`], which every later part may trust. A fault names the setting, the value and
//! the cure, so that a reader of a file adds the line and nothing else.
//!
//! Multicast without `ttl` stays in one network: the default is 1 (RFC 1112 §6.1).
//!
//! Sources: RFC 4607 §1 (SSM), RFC 2474 §3 (DSCP), RFC 1112 §6.1 (TTL), RFC 2974 (SAP),
//! netdevice(7) (names of interfaces).
//! Does not look at files: a playlist may name a file that comes later.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use media::SPLICE_RATES;

use super::invalid::{ChannelSetting as Setting, InvalidChannel};
use super::name_hash::name_hash;
use super::send_target::SendTarget;
use super::shown_text::is_hidden_control;

mod checks;

use checks::{Checks, Place};

/// Settings of a channel as written; nothing is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelDraft {
    /// Title shown to viewers; the channel's name by default.
    pub title: Option<String>,
    /// Files and folders that play in turn, relative to the served folder.
    pub playlist: Vec<String>,
    /// `loop` (default), `shuffle` or `once`.
    pub order: Option<String>,
    /// File that plays where an entry is missing or broken, and in gaps of the schedule.
    pub filler: Option<String>,
    /// Program number, of files with several.
    pub program: Option<i64>,
    /// Rate filled up with null packets, kilobits (1,000 bits) per second of transport stream.
    pub constant_rate_kbps: Option<i64>,
    /// Addresses to send to, `rtp://` or `udp://`.
    pub send: Vec<String>,
    /// Network interface of multicast.
    pub interface: Option<String>,
    /// Source addresses of source-specific multicast, one per address family.
    pub source: Vec<String>,
    /// Time to live of packets; 1 by default.
    pub ttl: Option<i64>,
    /// Differentiated services code point of packets.
    pub dscp: Option<i64>,
    /// True to announce multicast targets by SAP.
    pub announce: Option<bool>,
    /// `primary` (default) or `standby`.
    pub role: Option<String>,
    /// False for a channel that viewers over RTSP do not get; true by default.
    pub rtsp: Option<bool>,
    /// Seconds that viewers may go back; 0 by default.
    pub time_shift_s: Option<i64>,
    /// Beginning of the playlist's clock (RFC 3339); the Unix epoch by default.
    pub starts_at: Option<String>,
    /// IANA name of the time zone of the schedule; UTC by default.
    pub time_zone: Option<String>,
    /// Schedule by wall clock.
    pub at: Vec<ScheduleDraft>,
}

/// Item of a schedule as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleDraft {
    /// Local time, `20:00` or `20:00:30`.
    pub time: Option<String>,
    /// Days of the week, `mon` to `sun`; all by default.
    pub days: Option<Vec<String>>,
    /// Files and folders that play once.
    pub play: Vec<String>,
}

/// Settings of a channel that were checked. Paths are relative to the served folder, without
/// empty parts, `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelConfig {
    /// Name: letters, digits, `-` and `_`; the last part of its RTSP URL.
    pub name: String,
    /// Title in SDP, SAP, service name, M3U and XMLTV; printable.
    pub title: String,
    /// Files and folders that play in turn; may be empty where a filler or schedule exists.
    pub playlist: Vec<String>,
    /// Order of the playlist.
    pub order: PlayOrder,
    /// File that plays where nothing else can.
    pub filler: Option<String>,
    /// Program number, of files with several.
    pub program: Option<u16>,
    /// Rate filled up with null packets, kilobits per second of transport stream.
    pub constant_rate_kbps: Option<u32>,
    /// Addresses to send to; none for a channel of RTSP viewers alone.
    pub targets: Vec<SendTarget>,
    /// Network interface of multicast.
    pub interface: Option<String>,
    /// Source addresses of source-specific multicast: at most one IPv4 and one IPv6.
    pub sources: Vec<IpAddr>,
    /// Time to live of packets.
    pub ttl: u8,
    /// Differentiated services code point of packets, 6 bits.
    pub dscp: Option<u8>,
    /// True to announce multicast targets by SAP.
    pub announce: bool,
    /// Primary, or standby of a second server with the same channel.
    pub role: ChannelRole,
    /// True when viewers over RTSP get the channel.
    pub rtsp: bool,
    /// How far back viewers may go.
    pub time_shift: Duration,
    /// Beginning of the playlist's clock, since the Unix epoch.
    pub starts_at: Duration,
    /// Time zone of the schedule and of exports.
    pub time_zone: TimeZone,
    /// Schedule by wall clock, in the order written.
    pub schedule: Vec<ScheduleSlot>,
}

/// Order of a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayOrder {
    /// As listed, again and again.
    Loop,
    /// In another order in each cycle.
    Shuffle,
    /// As listed, once.
    Once,
}

/// Role of this server among those that send one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelRole {
    /// Sends from its start.
    Primary,
    /// Sends while the primary is silent.
    Standby,
}

/// Item of a schedule: a hard start at a local time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleSlot {
    /// Local time.
    pub time: Time,
    /// True for each day on which it starts; Monday first.
    pub days: [bool; 7],
    /// Files and folders that play once.
    pub play: Vec<String>,
}

impl ScheduleSlot {
    /// True when the item starts on this day of the week.
    pub fn is_on(&self, day: Weekday) -> bool {
        self.days[usize::from(day.to_monday_zero_offset().unsigned_abs())]
    }
}

impl ChannelConfig {
    /// SSRC of the channel's packets to its targets, the same on all servers that send it.
    pub fn ssrc(&self) -> u32 {
        (name_hash(self.name.as_bytes()) >> 32) as u32
    }

    /// Source address announced for a target: that of the target's family, where it is
    /// source-specific.
    pub fn source_of(&self, target: &SendTarget) -> Option<IpAddr> {
        let is_same = |source: &&IpAddr| source.is_ipv4() == target.address.is_ipv4();
        self.sources.iter().find(is_same).copied().filter(|_| target.is_source_specific())
    }
}

impl ChannelDraft {
    /// Checks the settings of the channel `name`.
    ///
    /// # Errors
    /// Every setting that cannot be used, at least one; a fault that may follow from another one
    /// is left out.
    pub fn check(self, name: &str) -> Result<ChannelConfig, Vec<InvalidChannel>> {
        let mut check = Checks::new(name);
        let is_empty = self.playlist.is_empty() && self.filler.is_none() && self.at.is_empty();
        if is_empty {
            let cure = r#"write playlist = ["FILE", "FOLDER/"], or filler, or at"#;
            let place = Place::from(Setting::Playlist).beside(&[Setting::Filler, Setting::At]);
            check.missing(place, "nothing to play", cure);
        }
        let config = check.settings(self);
        let faults = check.into_faults();
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            _ => Err(faults),
        }
    }
}

impl Checks<'_> {
    /// Returns the settings that later parts use; none where one of them is at fault.
    fn settings(&mut self, draft: ChannelDraft) -> Option<ChannelConfig> {
        self.name();
        let title = match draft.title {
            Some(title) => self.title(title),
            None => Some(self.channel().to_owned()),
        };
        let playlist = self.paths(Setting::Playlist, None, draft.playlist);
        let filler = draft.filler.and_then(|path| self.path(Setting::Filler, &path));
        let schedule = self.schedule(draft.at);
        let targets = self.targets(&draft.send);
        let sources = self.sources(&draft.source, &targets);
        let interface = self.interface(draft.interface, &targets);
        let announce = self.announce(draft.announce.unwrap_or(false), &targets);
        let program = self.number(Setting::Program, draft.program, 1..=0xffff, "");
        let rate = self.number(Setting::ConstantRate, draft.constant_rate_kbps, RATE_KBPS, "");
        let ttl = self.number(Setting::Ttl, draft.ttl, 1..=255, TTL_RULE);
        let dscp = self.number(Setting::Dscp, draft.dscp, 0..=63, DSCP_RULE);
        let rtsp = self.rtsp(draft.rtsp.unwrap_or(true), &targets);
        let shift = self.time_shift(draft.time_shift_s, rtsp);
        let order = self.word(Setting::Order, draft.order, ORDERS);
        let role = self.role(draft.role, &targets);
        let starts_at = self.starts_at(draft.starts_at);
        let time_zone = self.time_zone(draft.time_zone);
        Some(ChannelConfig {
            name: self.channel().to_owned(),
            title: title?,
            playlist: playlist?,
            order: order?,
            filler,
            program: program.map(|number| number as u16),
            constant_rate_kbps: rate.map(|rate| rate as u32),
            targets,
            interface,
            sources,
            ttl: ttl.map_or(TTL_DEFAULT, |ttl| ttl as u8),
            dscp: dscp.map(|dscp| dscp as u8),
            announce,
            role: role?,
            rtsp,
            time_shift: Duration::from_secs(shift.unwrap_or(0)),
            starts_at: starts_at?,
            time_zone: time_zone?,
            schedule,
        })
    }
}

/// Checks that no two channels have one name or one target.
///
/// # Errors
/// Each such name and target, of the second of two channels.
pub fn check_channels(channels: &[ChannelConfig]) -> Result<(), Vec<InvalidChannel>> {
    let mut faults = Vec::new();
    for (at, channel) in channels.iter().enumerate() {
        let mut check = Checks::new(&channel.name);
        if at >= CHANNELS_MAX {
            let cure = format!("write {CHANNELS_MAX} at most");
            check.missing(Setting::Name, "too many channels", &cure);
            faults.extend(check.into_faults());
            break;
        }
        check.others(channel, &channels[..at]);
        faults.extend(check.into_faults());
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

const ORDERS: &[(&str, PlayOrder)] =
    &[("loop", PlayOrder::Loop), ("shuffle", PlayOrder::Shuffle), ("once", PlayOrder::Once)];
const ROLES: &[(&str, ChannelRole)] =
    &[("primary", ChannelRole::Primary), ("standby", ChannelRole::Standby)];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const TTL_DEFAULT: u8 = 1;
const TTL_RULE: &str = "a packet's time to live is 8 bits, and 0 leaves no machine";
const DSCP_RULE: &str = "a code point has 6 bits (RFC 2474 §3)";
/// Rates that the splicer makes.
const RATE_KBPS: std::ops::RangeInclusive<i64> =
    *SPLICE_RATES.start() as i64 / 1000..=*SPLICE_RATES.end() as i64 / 1000;
/// A week: 378 GB at 5 Mb/s.
const SHIFT_S_MAX: i64 = 7 * 86_400;
/// Most channels of a server; each has a thread's attention many times a second.
const CHANNELS_MAX: usize = 1000;

#[cfg(test)]
mod tests;
