// SPDX-License-Identifier: MIT OR Apache-2.0
//! One check per setting of a channel, each with its rule and its cure.
//!
//! Sources: those of `settings`; RFC 3339 §5.6 (times).
//! Does not look at files or interfaces.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::*;

/// Place of a value: its setting, its index in a list, and the other settings that its rule reads.
#[derive(Clone, Copy)]
pub(super) struct Place {
    setting: Setting,
    item: Option<usize>,
    others: &'static [Setting],
}

impl Place {
    /// Returns the place with the other settings that the rule reads.
    pub(super) fn beside(self, others: &'static [Setting]) -> Place {
        Place { others, ..self }
    }
}

impl From<Setting> for Place {
    fn from(setting: Setting) -> Place {
        Place { setting, item: None, others: &[] }
    }
}

impl From<(Setting, usize)> for Place {
    fn from((setting, item): (Setting, usize)) -> Place {
        Place { setting, item: Some(item), others: &[] }
    }
}

/// Checks of the settings of one channel; each returns nothing where it adds a fault.
pub(super) struct Checks<'a> {
    /// Name of the channel, as written.
    channel: &'a str,
    faults: Vec<InvalidChannel>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(channel: &'a str) -> Checks<'a> {
        Checks { channel, faults: Vec::new() }
    }

    /// Name of the channel, as written.
    pub(super) fn channel(&self) -> &'a str {
        self.channel
    }

    /// Returns the faults found, in the order of the checks.
    pub(super) fn into_faults(self) -> Vec<InvalidChannel> {
        self.faults
    }

    /// Adds a fault, unless it may follow from a fault of another setting.
    pub(super) fn refuse(
        &mut self,
        place: impl Into<Place>,
        found: impl Display,
        (fault, cure): (&str, &str),
    ) {
        let Place { setting, item, others } = place.into();
        if self.faults.iter().any(|fault| others.contains(&fault.setting)) {
            return;
        }
        let found: String = found.to_string().chars().take(FOUND_CHARS_MAX).collect();
        let (channel, fault, cure) = (self.channel.to_owned(), fault.to_owned(), cure.to_owned());
        self.faults.push(InvalidChannel { channel, setting, item, found, fault, cure, others });
    }

    /// Adds a fault about text, shown in quotes.
    fn refuse_text(&mut self, place: impl Into<Place>, text: &str, rule: (&str, &str)) {
        let shown: String = text.chars().take(FOUND_CHARS_MAX).collect();
        self.refuse(place, format!("{shown:?}"), rule);
    }

    pub(super) fn missing(&mut self, place: impl Into<Place>, fault: &str, cure: &str) {
        self.refuse(place, "", (fault, cure));
    }

    pub(super) fn name(&mut self) {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let name = self.channel;
        if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter) {
            return;
        }
        let fault = "no name that a URL can have";
        let cure = format!("write 1 to {NAME_BYTES_MAX} of the letters a to z, digits, - and _");
        self.refuse_text(Setting::Name, name, (fault, &cure));
    }

    pub(super) fn title(&mut self, title: String) -> Option<String> {
        let fault = if title.trim().is_empty() {
            "no letter"
        } else if title.chars().any(is_hidden_control) {
            "a control character, or one that turns the direction of writing"
        } else if title.chars().count() > TITLE_CHARS_MAX {
            "too long"
        } else {
            return Some(title);
        };
        let cure = format!("write one line of 1 to {TITLE_CHARS_MAX} printable characters");
        self.refuse_text(Setting::Title, &title, (fault, &cure));
        None
    }

    /// Returns the paths of a list that can be used; `item` is that of the schedule.
    pub(super) fn paths(
        &mut self,
        setting: Setting,
        item: Option<usize>,
        paths: Vec<String>,
    ) -> Option<Vec<String>> {
        if paths.len() > PATHS_MAX {
            let fault = format!("{} entries", paths.len());
            let cure = format!("write {PATHS_MAX} at most, or a folder");
            self.missing(Place { setting, item, others: &[] }, &fault, &cure);
            return None;
        }
        let indexed = paths.iter().enumerate();
        let checked: Vec<_> =
            indexed.map(|(at, path)| self.path((setting, item.unwrap_or(at)), path)).collect();
        checked.into_iter().collect()
    }

    /// Returns the path without empty parts and `.`.
    pub(super) fn path(&mut self, place: impl Into<Place>, path: &str) -> Option<String> {
        let below = "write a path below the served folder, such as films/intro.ts";
        let (fault, cure) = if path.is_empty() {
            ("no path", below)
        } else if path.starts_with('/') {
            ("an absolute path", below)
        } else if path.split('/').any(|part| part == "..") {
            ("a path that may leave the served folder", below)
        } else if path.chars().any(is_hidden_control) {
            let cure = "rename the file; write a name of printable characters";
            ("a control character, or one that turns the direction of writing", cure)
        } else if path.split('/').any(|part| part.starts_with('.') && part != ".") {
            ("a hidden name, which is not served", "rename it without the dot in front")
        } else if path.len() > PATH_BYTES_MAX {
            ("longer than Linux opens", below)
        } else {
            // "." and "./" name the served folder itself.
            let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
            return Some(parts.collect::<Vec<_>>().join("/"));
        };
        self.refuse_text(place, path, (fault, cure));
        None
    }

    /// Returns the items of a schedule without faults.
    pub(super) fn schedule(&mut self, drafts: Vec<ScheduleDraft>) -> Vec<ScheduleSlot> {
        if drafts.len() > SLOTS_MAX {
            let fault = format!("{} items", drafts.len());
            let cure = format!("write {SLOTS_MAX} at most");
            self.missing(Setting::At, &fault, &cure);
            return Vec::new();
        }
        let mut slots: Vec<ScheduleSlot> = Vec::with_capacity(drafts.len());
        for (item, draft) in drafts.into_iter().enumerate() {
            let Some(slot) = self.slot(item, draft) else { continue };
            let is_taken = |other: &ScheduleSlot| {
                let mut days = other.days.iter().zip(slot.days);
                other.time == slot.time && days.any(|(a, b)| *a && b)
            };
            if slots.iter().any(is_taken) {
                let fault = "another item of the schedule starts at this time of one day";
                let cure = "write another time, or other days";
                self.refuse((Setting::AtTime, item), slot.time, (fault, cure));
            }
            slots.push(slot);
        }
        slots
    }

    fn slot(&mut self, item: usize, draft: ScheduleDraft) -> Option<ScheduleSlot> {
        let time = self.time(item, draft.time.as_deref());
        let days = self.days(item, draft.days.as_deref());
        if draft.play.is_empty() {
            let cure = r#"write play = ["FILE"]"#;
            self.missing((Setting::AtPlay, item), "nothing to play", cure);
        }
        let play = self.paths(Setting::AtPlay, Some(item), draft.play);
        Some(ScheduleSlot { time: time?, days: days?, play: play? })
    }

    fn time(&mut self, item: usize, text: Option<&str>) -> Option<Time> {
        let cure = "write a local time such as 20:00 or 06:30:15";
        let Some(text) = text else {
            self.missing((Setting::AtTime, item), "no time", cure);
            return None;
        };
        let time = time_of_day(text);
        if time.is_none() {
            self.refuse_text((Setting::AtTime, item), text, ("no time of a day", cure));
        }
        time
    }

    fn days(&mut self, item: usize, days: Option<&[String]>) -> Option<[bool; 7]> {
        let Some(days) = days else { return Some([true; 7]) };
        let place = (Setting::AtDays, item);
        let cure = "write mon, tue, wed, thu, fri, sat or sun, or leave days out for all of them";
        if days.is_empty() {
            self.refuse(place, "[]", ("no day", cure));
            return None;
        }
        let mut chosen = Some([false; 7]);
        for day in days {
            match DAYS.iter().position(|name| name.eq_ignore_ascii_case(day)) {
                Some(index) => chosen.iter_mut().for_each(|chosen| chosen[index] = true),
                None => {
                    self.refuse_text(place, day, ("no day of the week", cure));
                    chosen = None;
                }
            }
        }
        chosen
    }

    /// Returns the addresses without faults.
    pub(super) fn targets(&mut self, texts: &[String]) -> Vec<SendTarget> {
        if texts.len() > TARGETS_MAX {
            let fault = format!("{} addresses", texts.len());
            let cure = format!("write {TARGETS_MAX} at most, or a multicast group");
            self.missing(Setting::Send, &fault, &cure);
            return Vec::new();
        }
        let mut targets: Vec<SendTarget> = Vec::with_capacity(texts.len());
        for (item, text) in texts.iter().enumerate() {
            let target = match SendTarget::parse(text) {
                Ok(target) => target,
                Err((fault, cure)) => {
                    self.refuse_text((Setting::Send, item), text, (&fault, &cure));
                    continue;
                }
            };
            if let Some(other) = targets.iter().find(|other| other.collides(&target)) {
                let fault = format!("the ports of {other} (RTP takes the next port too, for RTCP)");
                let cure = "write another address or port, or leave it out";
                self.refuse_text((Setting::Send, item), text, (&fault, cure));
                continue;
            }
            targets.push(target);
        }
        targets
    }

    /// Returns the sources without faults.
    pub(super) fn sources(&mut self, texts: &[String], targets: &[SendTarget]) -> Vec<IpAddr> {
        let mut sources: Vec<IpAddr> = Vec::new();
        for (item, text) in texts.iter().enumerate() {
            let place = Place::from((Setting::Source, item));
            let Ok(source) = text.parse::<IpAddr>() else {
                let cure = "write this server's address, such as 10.0.0.1";
                self.refuse_text(place, text, ("no numeric address", cure));
                continue;
            };
            if source.is_unspecified() || source.is_multicast() {
                let cure = "write this server's address on the network of the channel";
                self.refuse_text(place, text, ("no address that packets come from", cure));
                continue;
            }
            if sources.iter().any(|other| other.is_ipv4() == source.is_ipv4()) {
                let cure = "write one IPv4 and one IPv6 address at most";
                self.refuse_text(place, text, ("a second source of one address family", cure));
                continue;
            }
            let same = |target: &&SendTarget| target.address.is_ipv4() == source.is_ipv4();
            if !targets.iter().filter(same).any(SendTarget::is_source_specific) {
                let fault = "send has no group of source-specific multicast for it (RFC 4607)";
                let cure = match source {
                    IpAddr::V4(_) => "send to a group of 232.0.0.0/8, or leave it out",
                    IpAddr::V6(_) => "send to a group such as ff35::8000:1, or leave it out",
                };
                self.refuse_text(place.beside(&[Setting::Send]), text, (fault, cure));
                continue;
            }
            sources.push(source);
        }
        for is_ipv4 in [true, false] {
            let lacks = |target: &SendTarget| {
                target.is_source_specific()
                    && target.address.is_ipv4() == is_ipv4
                    && !sources.iter().any(|source| source.is_ipv4() == is_ipv4)
            };
            if let Some(item) = targets.iter().position(lacks) {
                let fault =
                    "receivers of source-specific multicast must know the source (RFC 4607 §1)";
                let cure = "write source, this server's address of the same family";
                let place = Place::from((Setting::Send, item)).beside(&[Setting::Source]);
                self.refuse(place, targets[item], (fault, cure));
            }
        }
        sources
    }

    pub(super) fn interface(
        &mut self,
        name: Option<String>,
        targets: &[SendTarget],
    ) -> Option<String> {
        let place = Place::from(Setting::Interface);
        let Some(name) = name else {
            let item = targets.iter().position(SendTarget::needs_interface)?;
            let fault = "a group of link-local scope is another one on each network";
            let cure = r#"write interface = "eth1" or the like"#;
            let place = Place::from((Setting::Send, item)).beside(&[Setting::Interface]);
            self.refuse(place, targets[item], (fault, cure));
            return None;
        };
        let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':');
        if !(1..=15).contains(&name.len()) || !name.bytes().all(is_name) {
            let cure = "write one that `ip link` lists, such as eth1";
            self.refuse_text(place, &name, ("no name of a network interface", cure));
        } else if !targets.iter().any(SendTarget::is_multicast) {
            let fault = "send has no multicast group, and routes choose for unicast";
            self.refuse_text(place.beside(&[Setting::Send]), &name, (fault, "leave it out"));
        }
        Some(name)
    }

    pub(super) fn announce(&mut self, announce: bool, targets: &[SendTarget]) -> bool {
        if announce && !targets.iter().any(SendTarget::is_multicast) {
            let fault = "SAP announces multicast groups, and send has none (RFC 2974)";
            let cure = "send to a multicast group, or leave it out";
            let place = Place::from(Setting::Announce).beside(&[Setting::Send]);
            self.refuse(place, "true", (fault, cure));
        }
        announce
    }

    pub(super) fn rtsp(&mut self, rtsp: bool, targets: &[SendTarget]) -> bool {
        if !rtsp && targets.is_empty() {
            let cure = "write send = [\"rtp://GROUP:PORT\"], or leave rtsp out";
            let place = Place::from(Setting::Rtsp).beside(&[Setting::Send]);
            self.missing(place, "rtsp = false without send reaches nobody", cure);
        }
        rtsp
    }

    pub(super) fn time_shift(&mut self, seconds: Option<i64>, rtsp: bool) -> Option<u64> {
        let shift = self.number(Setting::TimeShift, seconds, 0..=SHIFT_S_MAX, "")?;
        if !rtsp && shift > 0 {
            let place = Place::from(Setting::TimeShift).beside(&[Setting::Rtsp]);
            self.missing(place, "only viewers over RTSP go back", "leave one of the two out");
        }
        Some(shift)
    }

    pub(super) fn number(
        &mut self,
        setting: Setting,
        value: Option<i64>,
        range: RangeInclusive<i64>,
        rule: &str,
    ) -> Option<u64> {
        let value = value?;
        if range.contains(&value) {
            return Some(value.unsigned_abs());
        }
        let fault = match rule {
            "" if value < *range.start() => "too small",
            "" => "too large",
            rule => rule,
        };
        let cure = format!("write {} to {}", range.start(), range.end());
        self.refuse(setting, value, (fault, &cure));
        None
    }

    /// Returns the meaning of a word; that of the first one where no word is written.
    pub(super) fn word<T: Copy>(
        &mut self,
        setting: Setting,
        word: Option<String>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let Some(word) = word else { return Some(words[0].1) };
        let found = words.iter().find(|(name, _)| *name == word).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            let cure = format!("write {}", names.join(" or "));
            self.refuse_text(setting, &word, ("an unknown word", &cure));
        }
        found
    }

    pub(super) fn role(
        &mut self,
        word: Option<String>,
        targets: &[SendTarget],
    ) -> Option<ChannelRole> {
        let role = self.word(Setting::Role, word, ROLES)?;
        if role == ChannelRole::Standby && !targets.iter().any(SendTarget::is_any_source_group) {
            let fault = "send has no multicast group without a source, where a standby hears the \
                         primary";
            let cure = "add one, such as rtp://239.1.1.1:5004";
            let place = Place::from(Setting::Role).beside(&[Setting::Send]);
            self.refuse(place, "\"standby\"", (fault, cure));
        }
        Some(role)
    }

    pub(super) fn starts_at(&mut self, text: Option<String>) -> Option<Duration> {
        let Some(text) = text else { return Some(Duration::ZERO) };
        let fault =
            match text.parse::<Timestamp>().map(|time| Duration::try_from(time.as_duration())) {
                Ok(Ok(time)) => return Some(time),
                Ok(Err(_)) => "before 1970",
                Err(_) => "no date and time with its offset (RFC 3339 §5.6)",
            };
        let cure = "write 2026-01-01T00:00:00Z or the like";
        self.refuse_text(Setting::StartsAt, &text, (fault, cure));
        None
    }

    pub(super) fn time_zone(&mut self, name: Option<String>) -> Option<TimeZone> {
        let Some(name) = name else { return Some(TimeZone::UTC) };
        let zone = TimeZone::get(&name).ok();
        if zone.is_none() {
            let fault = "no time zone that this machine or this program has";
            self.refuse_text(Setting::TimeZone, &name, (fault, TIME_ZONE_CURE));
        }
        zone
    }

    /// Compares a channel with those before it.
    pub(super) fn others(&mut self, channel: &ChannelConfig, others: &[ChannelConfig]) {
        if others.iter().any(|other| other.name.eq_ignore_ascii_case(&channel.name)) {
            let fault = "another channel has this name; case does not tell them apart";
            self.missing(Setting::Name, fault, "write another name");
        }
        for (item, target) in channel.targets.iter().enumerate() {
            let has = |other: &&ChannelConfig| other.targets.iter().any(|t| t.collides(target));
            if let Some(other) = others.iter().find(has) {
                let fault = format!("channel.{} sends to the same ports", other.name);
                let cure = "write another address or port";
                self.refuse((Setting::Send, item), target, (&fault, cure));
            }
        }
    }
}

/// Reads `HH:MM` or `HH:MM:SS`, two digits each.
fn time_of_day(text: &str) -> Option<Time> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_pair = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(parts.len(), 2 | 3) || !parts.iter().all(is_pair) {
        return None;
    }
    let numbers: Vec<i8> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    let second = numbers.get(2).copied().unwrap_or(0);
    Time::new(*numbers.first()?, *numbers.get(1)?, second, 0).ok()
}

const NAME_BYTES_MAX: usize = 64;
const TITLE_CHARS_MAX: usize = 200;
/// PATH_MAX of Linux, without its final zero.
const PATH_BYTES_MAX: usize = 4095;
/// As many entries as a playlist may have once its folders are listed.
const PATHS_MAX: usize = super::super::ENTRIES_MAX;
const SLOTS_MAX: usize = 256;
const TARGETS_MAX: usize = 64;
const FOUND_CHARS_MAX: usize = 200;
const TIME_ZONE_CURE: &str = "write an IANA name such as Europe/Berlin";
