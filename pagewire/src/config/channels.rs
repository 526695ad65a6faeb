// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[channel.NAME]` tables as checked channels, and the line of each setting.
//!
//! The server checks values and names settings; this file records the position of each in the text.
//!
//! Does not check values.

use std::ops::Range;

use serve::channel::{
    ChannelConfig, ChannelDraft, ChannelSetting, InvalidChannel, ScheduleDraft, check_channels,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{Expected, Reader};

/// Place of each setting of a channel: the setting, the index in its list, the bytes of its value.
type Places = Vec<(ChannelSetting, Option<usize>, Range<usize>)>;

/// Reads all tables below `[channel]`; channels with faults are left out.
pub(super) fn read(reader: &mut Reader<'_, '_>, tables: &DeTable<'_>) -> Vec<ChannelConfig> {
    let mut channels = Vec::new();
    let mut all_places = Vec::new();
    let mut in_order: Vec<_> = tables.iter().collect();
    in_order.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in in_order {
        let shown: String = name.get_ref().chars().take(NAME_CHARS_SHOWN).collect();
        let setting = format!("channel.{shown}");
        let Some(table) = reader.table(&setting, value, Expected::Channel) else { continue };
        let mut one = OneChannel::new(reader, &setting, name.span());
        let draft = one.draft(table);
        let OneChannel { places, unread, has_unknown, .. } = one;
        match draft.check(name.get_ref()) {
            Ok(channel) if unread.is_empty() => {
                channels.push(channel);
                all_places.push(places);
            }
            Ok(_) => {}
            Err(faults) => {
                let is_own = |fault: &&InvalidChannel| {
                    let is_guess = has_unknown && may_be_misspelt(fault, &places);
                    !is_guess && !follows(fault, &unread)
                };
                faults.iter().filter(is_own).for_each(|fault| report(reader, fault, &places));
            }
        }
    }
    for invalid in check_channels(&channels).err().unwrap_or_default() {
        let at = channels.iter().rposition(|channel| channel.name == invalid.channel);
        report(reader, &invalid, at.map_or(&[], |at| &all_places[at]));
    }
    channels
}

/// True where an unknown key may be a misspelling of the setting that a fault reports as missing.
fn may_be_misspelt(fault: &InvalidChannel, places: &Places) -> bool {
    let is_written = |other: &ChannelSetting| places.iter().any(|(setting, ..)| setting == other);
    fault.found.is_empty() || !fault.others.iter().all(is_written)
}

/// True where a value of another type may be the cause of a fault.
fn follows(fault: &InvalidChannel, unread: &[(ChannelSetting, Option<usize>)]) -> bool {
    unread.iter().any(|(setting, item)| {
        let is_same = *setting == fault.setting && (item.is_none() || *item == fault.item);
        is_same || fault.others.contains(setting)
    })
}

/// Adds a fault at the place of its setting; where it is missing, at the channel's name.
fn report(
    reader: &mut Reader<'_, '_>,
    invalid: &InvalidChannel,
    places: &[(ChannelSetting, Option<usize>, Range<usize>)],
) {
    let key = (invalid.setting, invalid.item);
    let exact = places.iter().find(|(setting, item, _)| (*setting, *item) == key);
    // A missing key of an item is reported where the item begins.
    let of_item = || {
        let is_item = |(setting, item, _): &&(ChannelSetting, Option<usize>, Range<usize>)| {
            *setting == ChannelSetting::At && *item == invalid.item
        };
        places.iter().find(is_item).filter(|_| invalid.item.is_some())
    };
    let of_setting = || places.iter().find(|(setting, ..)| *setting == invalid.setting);
    let place = exact.or_else(of_item).or_else(of_setting).or(places.first());
    reader.faults.add(place.map(|(.., place)| place.clone()), invalid.to_string());
}

/// One table while it is read.
struct OneChannel<'r, 'a, 'f> {
    reader: &'r mut Reader<'a, 'f>,
    /// `channel.NAME`.
    name: &'r str,
    places: Places,
    /// Settings with a value of another type, each with the index of its schedule item, if any.
    unread: Vec<(ChannelSetting, Option<usize>)>,
    /// True once an unknown key was found.
    has_unknown: bool,
}

impl<'r, 'a, 'f> OneChannel<'r, 'a, 'f> {
    fn new(reader: &'r mut Reader<'a, 'f>, name: &'r str, place: Range<usize>) -> Self {
        let places = vec![(ChannelSetting::Name, None, place)];
        OneChannel { reader, name, places, unread: Vec::new(), has_unknown: false }
    }

    /// Reads the settings of a channel with known keys; leaves out those of another type.
    fn draft(&mut self, table: &DeTable<'_>) -> ChannelDraft {
        let mut draft = ChannelDraft::default();
        for (key, value) in table {
            let known = ChannelSetting::OF_CHANNEL;
            let Some(setting) = self.setting(key, known) else { continue };
            self.places.push((setting, None, value.span()));
            if self.set(&mut draft, setting, value).is_none() {
                self.unread.push((setting, None));
            }
        }
        draft
    }

    /// Reads one setting into the draft; sets nothing where its type is wrong.
    fn set(
        &mut self,
        draft: &mut ChannelDraft,
        setting: ChannelSetting,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<()> {
        let named = format!("{}: {}", self.name, setting.key());
        match setting {
            ChannelSetting::Title => draft.title = Some(self.reader.text(&named, value)?),
            ChannelSetting::Playlist => draft.playlist = self.texts(setting, value)?,
            ChannelSetting::Order => draft.order = Some(self.reader.text(&named, value)?),
            ChannelSetting::Filler => draft.filler = Some(self.reader.text(&named, value)?),
            ChannelSetting::Program => draft.program = Some(self.reader.number(&named, value)?),
            ChannelSetting::ConstantRate => {
                draft.constant_rate_kbps = Some(self.reader.number(&named, value)?);
            }
            ChannelSetting::Send => draft.send = self.texts(setting, value)?,
            ChannelSetting::Interface => draft.interface = Some(self.reader.text(&named, value)?),
            ChannelSetting::Source => draft.source = self.texts(setting, value)?,
            ChannelSetting::Ttl => draft.ttl = Some(self.reader.number(&named, value)?),
            ChannelSetting::Dscp => draft.dscp = Some(self.reader.number(&named, value)?),
            ChannelSetting::Announce => draft.announce = Some(self.reader.switch(&named, value)?),
            ChannelSetting::Role => draft.role = Some(self.reader.text(&named, value)?),
            ChannelSetting::Rtsp => draft.rtsp = Some(self.reader.switch(&named, value)?),
            ChannelSetting::TimeShift => {
                draft.time_shift_s = Some(self.reader.number(&named, value)?);
            }
            ChannelSetting::StartsAt => draft.starts_at = Some(self.reader.time(&named, value)?),
            ChannelSetting::TimeZone => draft.time_zone = Some(self.reader.text(&named, value)?),
            ChannelSetting::At => draft.at = self.slots(&named, value)?,
            other => unreachable!("{other:?} is no key of a channel"),
        }
        Some(())
    }

    fn slots(&mut self, named: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<ScheduleDraft>> {
        let items = self.reader.array(named, value, Expected::Slots)?;
        let mut slots = Vec::with_capacity(items.len());
        for (item, value) in items.iter().enumerate() {
            self.places.push((ChannelSetting::At, Some(item), value.span()));
            let Some(table) = self.reader.table(named, value, Expected::Slots) else {
                let all = ChannelSetting::OF_SCHEDULE.iter();
                self.unread.extend(all.map(|setting| (*setting, Some(item))));
                slots.push(ScheduleDraft::default());
                continue;
            };
            let mut slot = ScheduleDraft::default();
            for (key, value) in table {
                let known = ChannelSetting::OF_SCHEDULE;
                let Some(setting) = self.setting(key, known) else { continue };
                self.places.push((setting, Some(item), value.span()));
                if self.set_slot(&mut slot, setting, value).is_none() {
                    self.unread.push((setting, Some(item)));
                }
            }
            slots.push(slot);
        }
        Some(slots)
    }

    fn set_slot(
        &mut self,
        slot: &mut ScheduleDraft,
        setting: ChannelSetting,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<()> {
        let named = format!("{}: at: {}", self.name, setting.key());
        let list = |texts: Vec<(String, Range<usize>)>, count: usize| {
            let texts: Vec<String> = texts.into_iter().map(|(text, _)| text).collect();
            (texts.len() == count).then_some(texts)
        };
        let count = value.get_ref().as_array().map_or(1, |items| items.len());
        match setting {
            ChannelSetting::AtTime => slot.time = Some(self.reader.time(&named, value)?),
            ChannelSetting::AtDays => {
                // Without readable days the item has no day, and so shares no time with another
                // item.
                slot.days = Some(Vec::new());
                slot.days = Some(list(self.reader.texts(&named, value), count)?);
            }
            ChannelSetting::AtPlay => slot.play = list(self.reader.texts(&named, value), count)?,
            other => unreachable!("{other:?} is no key of a schedule"),
        }
        Some(())
    }

    /// Reads a list of texts and keeps the place of each; returns none where an item is not a text.
    fn texts(
        &mut self,
        setting: ChannelSetting,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<String>> {
        let named = format!("{}: {}", self.name, setting.key());
        let count = value.get_ref().as_array().map_or(1, |items| items.len());
        let texts = self.reader.texts(&named, value);
        if texts.len() < count {
            return None;
        }
        let mut list = Vec::with_capacity(texts.len());
        for (item, (text, place)) in texts.into_iter().enumerate() {
            self.places.push((setting, Some(item), place));
            list.push(text);
        }
        Some(list)
    }

    /// Returns the setting of a key; an unknown key is a fault.
    fn setting(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        known: &[ChannelSetting],
    ) -> Option<ChannelSetting> {
        let found = known.iter().find(|setting| setting.key() == key.get_ref()).copied();
        if found.is_none() {
            self.has_unknown = true;
            let keys: Vec<&str> = known.iter().map(|setting| setting.key()).collect();
            self.reader.unknown(self.name, key.get_ref(), key.span(), &keys);
        }
        found
    }
}

const NAME_CHARS_SHOWN: usize = 64;
