// SPDX-License-Identifier: MIT OR Apache-2.0
//! checks: one check per setting of a channel, each with its rule and its cure.
//!
//! Sources: those of `settings`; RFC 3339 §5.6 (times).
//! Does not compare channels with each other.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::*;

/// Checks of the settings of one channel.
pub(super) struct Checks<'a> {
    /// Name of the channel, as written.
    pub(super) channel: &'a str,
}

impl Checks<'_> {
    pub(super) fn refuse(
        &self,
        setting: Setting,
        item: Option<usize>,
        found: impl Display,
        fault: &str,
        cure: &str,
    ) -> InvalidChannel {
        let found: String = found.to_string().chars().take(FOUND_CHARS_MAX).collect();
        let (channel, fault, cure) = (self.channel.to_owned(), fault.to_owned(), cure.to_owned());
        InvalidChannel { channel, setting, item, found, fault, cure }
    }

    /// Refuses text, shown in quotes.
    fn refuse_text(
        &self,
        setting: Setting,
        item: Option<usize>,
        text: &str,
        (fault, cure): (&str, &str),
    ) -> InvalidChannel {
        let shown: String = text.chars().take(FOUND_CHARS_MAX).collect();
        self.refuse(setting, item, format!("{shown:?}"), fault, cure)
    }

    pub(super) fn missing(&self, setting: Setting, fault: &str, cure: &str) -> InvalidChannel {
        self.refuse(setting, None, "", fault, cure)
    }

    pub(super) fn name(&self) -> Result<(), InvalidChannel> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if (1..=NAME_BYTES_MAX).contains(&self.channel.len()) && self.channel.bytes().all(is_letter)
        {
            return Ok(());
        }
        let fault = "no name that a URL can have";
        let cure = format!("write 1 to {NAME_BYTES_MAX} of the letters a to z, digits, - and _");
        Err(self.refuse_text(Setting::Name, None, self.channel, (fault, &cure)))
    }

    pub(super) fn title(&self, title: String) -> Result<String, InvalidChannel> {
        let fault = if title.trim().is_empty() {
            "no letter"
        } else if title.chars().any(is_hidden_control) {
            "a control character, or one that turns the direction of writing"
        } else if title.chars().count() > TITLE_CHARS_MAX {
            "too long"
        } else {
            return Ok(title);
        };
        let cure = format!("write one line of 1 to {TITLE_CHARS_MAX} printable characters");
        Err(self.refuse_text(Setting::Title, None, &title, (fault, &cure)))
    }

    pub(super) fn paths(
        &self,
        setting: Setting,
        item: Option<usize>,
        paths: Vec<String>,
    ) -> Result<Vec<String>, InvalidChannel> {
        if paths.len() > PATHS_MAX {
            let fault = format!("{} entries", paths.len());
            let cure = format!("write {PATHS_MAX} at most, or a folder");
            return Err(self.refuse(setting, item, "", &fault, &cure));
        }
        let indexed = paths.iter().enumerate();
        indexed.map(|(index, path)| self.path(setting, item.or(Some(index)), path)).collect()
    }

    /// Returns the path without empty parts and `.`.
    pub(super) fn path(
        &self,
        setting: Setting,
        item: Option<usize>,
        path: &str,
    ) -> Result<String, InvalidChannel> {
        let below = "write a path below the served folder, such as films/intro.ts";
        let (fault, cure) = if path.starts_with('/') {
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
            let parts: Vec<&str> =
                path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
            // "." and "./" name the served folder itself.
            if parts.is_empty() && path.is_empty() {
                return Err(self.refuse_text(setting, item, path, ("no path", below)));
            }
            return Ok(parts.join("/"));
        };
        Err(self.refuse_text(setting, item, path, (fault, cure)))
    }

    pub(super) fn schedule(
        &self,
        drafts: Vec<ScheduleDraft>,
    ) -> Result<Vec<ScheduleSlot>, InvalidChannel> {
        if drafts.len() > SLOTS_MAX {
            let fault = format!("{} items", drafts.len());
            let cure = format!("write {SLOTS_MAX} at most");
            return Err(self.missing(Setting::At, &fault, &cure));
        }
        let mut slots: Vec<ScheduleSlot> = Vec::with_capacity(drafts.len());
        for (item, draft) in drafts.into_iter().enumerate() {
            let time = self.time(item, draft.time.as_deref())?;
            let days = self.days(item, draft.days.as_deref())?;
            let play = self.paths(Setting::AtPlay, Some(item), draft.play)?;
            if play.is_empty() {
                let cure = r#"write play = ["FILE"]"#;
                return Err(self.refuse(Setting::AtPlay, Some(item), "", "nothing to play", cure));
            }
            let shares = |slot: &&ScheduleSlot| slot.days.iter().zip(days).any(|(a, b)| *a && b);
            if slots.iter().filter(|slot| slot.time == time).any(|slot| shares(&slot)) {
                let fault = "another item of the schedule starts at this time of one day";
                let cure = "write another time, or other days";
                return Err(self.refuse(Setting::AtTime, Some(item), time, fault, cure));
            }
            slots.push(ScheduleSlot { time, days, play });
        }
        Ok(slots)
    }

    fn time(&self, item: usize, text: Option<&str>) -> Result<Time, InvalidChannel> {
        let cure = "write a local time such as 20:00 or 06:30:15";
        let Some(text) = text else {
            return Err(self.refuse(Setting::AtTime, Some(item), "", "no time", cure));
        };
        time_of_day(text).ok_or_else(|| {
            self.refuse_text(Setting::AtTime, Some(item), text, ("no time of a day", cure))
        })
    }

    fn days(&self, item: usize, days: Option<&[String]>) -> Result<[bool; 7], InvalidChannel> {
        let Some(days) = days else { return Ok([true; 7]) };
        let cure = "write mon, tue, wed, thu, fri, sat or sun, or leave days out for all of them";
        if days.is_empty() {
            return Err(self.refuse(Setting::AtDays, Some(item), "[]", "no day", cure));
        }
        let mut chosen = [false; 7];
        for day in days {
            let Some(index) = DAYS.iter().position(|name| name.eq_ignore_ascii_case(day)) else {
                let fault = ("no day of the week", cure);
                return Err(self.refuse_text(Setting::AtDays, Some(item), day, fault));
            };
            chosen[index] = true;
        }
        Ok(chosen)
    }

    pub(super) fn targets(&self, texts: &[String]) -> Result<Vec<SendTarget>, InvalidChannel> {
        if texts.len() > TARGETS_MAX {
            let fault = format!("{} addresses", texts.len());
            let cure = format!("write {TARGETS_MAX} at most, or a multicast group");
            return Err(self.missing(Setting::Send, &fault, &cure));
        }
        let mut targets: Vec<SendTarget> = Vec::with_capacity(texts.len());
        for (item, text) in texts.iter().enumerate() {
            let target = SendTarget::parse(text).map_err(|(fault, cure)| {
                self.refuse_text(Setting::Send, Some(item), text, (&fault, &cure))
            })?;
            if let Some(other) = targets.iter().find(|other| other.collides(&target)) {
                let fault = format!("the ports of {other} (RTP takes the next port too, for RTCP)");
                let cure = "write another address or port, or leave it out";
                return Err(self.refuse_text(Setting::Send, Some(item), text, (&fault, cure)));
            }
            targets.push(target);
        }
        Ok(targets)
    }

    pub(super) fn sources(
        &self,
        texts: &[String],
        targets: &[SendTarget],
    ) -> Result<Vec<IpAddr>, InvalidChannel> {
        let mut sources: Vec<IpAddr> = Vec::new();
        for (item, text) in texts.iter().enumerate() {
            let refuse =
                |fault, cure| self.refuse_text(Setting::Source, Some(item), text, (fault, cure));
            let source: IpAddr = text.parse().map_err(|_| {
                refuse("no numeric address", "write this server's address, such as 10.0.0.1")
            })?;
            if source.is_unspecified() || source.is_multicast() {
                let cure = "write this server's address on the network of the channel";
                return Err(refuse("no address that packets come from", cure));
            }
            if sources.iter().any(|other| other.is_ipv4() == source.is_ipv4()) {
                let cure = "write one IPv4 and one IPv6 address at most";
                return Err(refuse("a second source of one address family", cure));
            }
            let same = |target: &&SendTarget| target.address.is_ipv4() == source.is_ipv4();
            if !targets.iter().filter(same).any(SendTarget::is_source_specific) {
                let fault = "send has no group of source-specific multicast for it (RFC 4607)";
                let cure = match source {
                    IpAddr::V4(_) => "send to a group of 232.0.0.0/8, or leave it out",
                    IpAddr::V6(_) => "send to a group such as ff35::8000:1, or leave it out",
                };
                return Err(refuse(fault, cure));
            }
            sources.push(source);
        }
        let has = |target: &SendTarget| {
            sources.iter().any(|source| source.is_ipv4() == target.address.is_ipv4())
        };
        let sourceless = |target: &SendTarget| target.is_source_specific() && !has(target);
        if let Some(item) = targets.iter().position(sourceless) {
            let fault = "receivers of source-specific multicast must know the source (RFC 4607 §1)";
            let cure = "write source, this server's address of the same family";
            return Err(self.refuse(Setting::Send, Some(item), targets[item], fault, cure));
        }
        Ok(sources)
    }

    pub(super) fn interface(
        &self,
        name: Option<String>,
        targets: &[SendTarget],
    ) -> Result<Option<String>, InvalidChannel> {
        let Some(name) = name else {
            if let Some(item) = targets.iter().position(SendTarget::needs_interface) {
                let fault = "a group of link-local scope is another one on each network";
                let cure = r#"write interface = "eth1" or the like"#;
                return Err(self.refuse(Setting::Send, Some(item), targets[item], fault, cure));
            }
            return Ok(None);
        };
        let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':');
        let (fault, cure) = if !(1..=15).contains(&name.len()) || !name.bytes().all(is_name) {
            ("no name of a network interface", "write one that `ip link` lists, such as eth1")
        } else if !targets.iter().any(SendTarget::is_multicast) {
            ("send has no multicast group, and routes choose for unicast", "leave it out")
        } else {
            return Ok(Some(name));
        };
        Err(self.refuse_text(Setting::Interface, None, &name, (fault, cure)))
    }

    pub(super) fn announce(
        &self,
        announce: bool,
        targets: &[SendTarget],
    ) -> Result<bool, InvalidChannel> {
        if announce && !targets.iter().any(SendTarget::is_multicast) {
            let fault = "SAP announces multicast groups, and send has none (RFC 2974)";
            let cure = "send to a multicast group, or leave it out";
            return Err(self.refuse(Setting::Announce, None, "true", fault, cure));
        }
        Ok(announce)
    }

    pub(super) fn number(
        &self,
        setting: Setting,
        value: Option<i64>,
        range: RangeInclusive<i64>,
        rule: &str,
    ) -> Result<Option<u64>, InvalidChannel> {
        let Some(value) = value else { return Ok(None) };
        if range.contains(&value) {
            return Ok(Some(value.unsigned_abs()));
        }
        let fault = match rule {
            "" if value < *range.start() => "too small",
            "" => "too large",
            rule => rule,
        };
        let cure = format!("write {} to {}", range.start(), range.end());
        Err(self.refuse(setting, None, value, fault, &cure))
    }

    /// Returns the meaning of a word; that of the first one where no word is written.
    pub(super) fn word<T: Copy>(
        &self,
        setting: Setting,
        word: Option<String>,
        words: &[(&str, T)],
    ) -> Result<T, InvalidChannel> {
        let Some(word) = word else { return Ok(words[0].1) };
        if let Some((_, meaning)) = words.iter().find(|(name, _)| *name == word) {
            return Ok(*meaning);
        }
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let cure = format!("write {}", names.join(" or "));
        Err(self.refuse_text(setting, None, &word, ("an unknown word", &cure)))
    }

    pub(super) fn starts_at(&self, text: Option<String>) -> Result<Duration, InvalidChannel> {
        let Some(text) = text else { return Ok(Duration::ZERO) };
        let fault =
            match text.parse::<Timestamp>().map(|time| Duration::try_from(time.as_duration())) {
                Ok(Ok(time)) => return Ok(time),
                Ok(Err(_)) => "before 1970",
                Err(_) => "no date and time with its offset (RFC 3339 §5.6)",
            };
        let cure = "write 2026-01-01T00:00:00Z or the like";
        Err(self.refuse_text(Setting::StartsAt, None, &text, (fault, cure)))
    }

    pub(super) fn time_zone(&self, name: Option<String>) -> Result<TimeZone, InvalidChannel> {
        let Some(name) = name else { return Ok(TimeZone::UTC) };
        TimeZone::get(&name).map_err(|_| {
            let fault = ("no time zone that this machine or this program has", TIME_ZONE_CURE);
            self.refuse_text(Setting::TimeZone, None, &name, fault)
        })
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
