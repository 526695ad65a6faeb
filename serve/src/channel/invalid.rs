// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of a channel's settings, and the error about one of them.
//!
//! A reader of configuration files needs the key of each setting and the place of a fault, so that
//! it can name the line; the list here is the only one.
//!
//! Sources: TOML 1.0, "Keys".
//! Does not know files or lines.

use std::fmt;

/// Setting of a channel; [`ChannelSetting::key`] is its name in a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChannelSetting {
    /// The name in `[channel.NAME]`.
    Name,
    /// Title shown to viewers.
    Title,
    /// Files and folders that play one after the other.
    Playlist,
    /// Order of the playlist.
    Order,
    /// File that plays when nothing else can.
    Filler,
    /// Program of files that have several.
    Program,
    /// Constant rate of the transport stream.
    ConstantRate,
    /// Addresses to send to.
    Send,
    /// Network interface of multicast.
    Interface,
    /// Source addresses of source-specific multicast.
    Source,
    /// Time to live of packets.
    Ttl,
    /// Differentiated services code point of packets.
    Dscp,
    /// Announcements by SAP.
    Announce,
    /// Primary or standby.
    Role,
    /// Viewers over RTSP.
    Rtsp,
    /// How far back viewers may go.
    TimeShift,
    /// Beginning of the playlist's clock.
    StartsAt,
    /// Time zone of the schedule.
    TimeZone,
    /// Items of the schedule.
    At,
    /// Local time of an item of the schedule.
    AtTime,
    /// Days of an item of the schedule.
    AtDays,
    /// Files that an item of the schedule plays.
    AtPlay,
}

impl ChannelSetting {
    /// Settings of a channel, in the order of the documentation.
    pub const OF_CHANNEL: &[ChannelSetting] = &[
        ChannelSetting::Title,
        ChannelSetting::Playlist,
        ChannelSetting::Order,
        ChannelSetting::Filler,
        ChannelSetting::Program,
        ChannelSetting::ConstantRate,
        ChannelSetting::Send,
        ChannelSetting::Interface,
        ChannelSetting::Source,
        ChannelSetting::Ttl,
        ChannelSetting::Dscp,
        ChannelSetting::Announce,
        ChannelSetting::Role,
        ChannelSetting::Rtsp,
        ChannelSetting::TimeShift,
        ChannelSetting::StartsAt,
        ChannelSetting::TimeZone,
        ChannelSetting::At,
    ];
    /// Settings of an item of the schedule.
    pub const OF_SCHEDULE: &[ChannelSetting] =
        &[ChannelSetting::AtTime, ChannelSetting::AtDays, ChannelSetting::AtPlay];

    /// Key of the setting in a configuration file.
    pub fn key(self) -> &'static str {
        match self {
            ChannelSetting::Name => "name",
            ChannelSetting::Title => "title",
            ChannelSetting::Playlist => "playlist",
            ChannelSetting::Order => "order",
            ChannelSetting::Filler => "filler",
            ChannelSetting::Program => "program",
            ChannelSetting::ConstantRate => "constant_rate_kbps",
            ChannelSetting::Send => "send",
            ChannelSetting::Interface => "interface",
            ChannelSetting::Source => "source",
            ChannelSetting::Ttl => "ttl",
            ChannelSetting::Dscp => "dscp",
            ChannelSetting::Announce => "announce",
            ChannelSetting::Role => "role",
            ChannelSetting::Rtsp => "rtsp",
            ChannelSetting::TimeShift => "time_shift_s",
            ChannelSetting::StartsAt => "starts_at",
            ChannelSetting::TimeZone => "time_zone",
            ChannelSetting::At => "at",
            ChannelSetting::AtTime => "time",
            ChannelSetting::AtDays => "days",
            ChannelSetting::AtPlay => "play",
        }
    }
}

/// Setting of a channel that cannot be used: its place, its value, the fault and the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidChannel {
    /// Name of the channel, as written.
    pub channel: String,
    /// The setting.
    pub setting: ChannelSetting,
    /// Index of the value in a list, or of the item of the schedule; from 0.
    pub item: Option<usize>,
    /// Value as written; empty where the setting is missing.
    pub found: String,
    /// Rule that the value breaks.
    pub fault: String,
    /// Value to write.
    pub cure: String,
    /// Other settings that the rule reads: a fault in one of them may be the cause.
    pub others: &'static [ChannelSetting],
}

impl InvalidChannel {
    /// Returns the setting with its value, as a configuration file has it, and fault and cure.
    pub fn finding(&self) -> String {
        let key = self.setting.key();
        let value = if self.found.is_empty() { key.to_owned() } else { self.assignment() };
        format!("{value}: {}; {}", self.fault, self.cure)
    }

    fn assignment(&self) -> String {
        format!("{} = {}", self.setting.key(), self.found)
    }
}

impl fmt::Display for InvalidChannel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "channel.{}: {}", self.channel, self.finding())
    }
}
