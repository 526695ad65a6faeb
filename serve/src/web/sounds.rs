// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sounds of a film as viewers choose them, and their groups in playlists of HLS.
//!
//! Sounds of one language and use, in several codecs, are one choice. Each codec is a group of
//! alternatives, and a player chooses a group that it can decode. Groups have the same members, by
//! choice: a choice that a codec lacks is in its group as AAC, which every player decodes. Where
//! the sounds in AAC do not cover all choices, groups differ, against RFC 8216 §4.3.4.1.1:
//! otherwise players that lack a codec would have none to play.
//!
//! A choice has the name that the film gives its sounds if they share one, otherwise that of its
//! language. Viewers who choose none hear the first sound that the film marks as a default and that
//! is no commentary, or the first.
//!
//! Sources: RFC 8216 §4.3.4.1 (EXT-X-MEDIA); ISO/IEC 23009-1 §5.8.5.5 (roles).
//! Does not write descriptions of DASH ([`super::manifest`]).

use std::fmt::Write;

use media::Presentation;
use media::tracks::{Codec, Track};

use super::names::{distinct, language, shown_name};

/// A sound as viewers choose it.
struct SoundChoice {
    /// Language, use, and number of earlier sounds of the same and of one codec: no two have the
    /// same.
    key: (Option<String>, SoundUse, usize),
    /// Indices of its tracks, one of a codec.
    tracks: Vec<usize>,
    /// Name for viewers, different from those of the others.
    name: String,
}

/// Use of a sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SoundUse {
    /// The film's own sound.
    Plain,
    /// Somebody speaks about the film.
    Commentary,
    /// A voice describes the pictures.
    Description,
}

impl SoundUse {
    pub(super) fn of(track: &Track) -> SoundUse {
        match &track.label {
            label if label.is_commentary => SoundUse::Commentary,
            label if label.is_description => SoundUse::Description,
            _ => SoundUse::Plain,
        }
    }

    /// Returns the words about it that follow the name of its language.
    fn words(self) -> &'static str {
        match self {
            SoundUse::Plain => "",
            SoundUse::Commentary => " (commentary)",
            SoundUse::Description => " (description)",
        }
    }

    /// Its role in DASH, where it is not that of a plain sound.
    pub(super) fn role(self) -> Option<&'static str> {
        match self {
            SoundUse::Plain => None,
            SoundUse::Commentary => Some("commentary"),
            SoundUse::Description => Some("description"),
        }
    }
}

/// Returns the place among these sounds of the one that is played to viewers who chose none.
pub(super) fn default_sound<'a>(sounds: impl Iterator<Item = &'a Track>) -> Option<usize> {
    // The smallest comes first, and of equal ones the first.
    let order = |track: &Track| (SoundUse::of(track) != SoundUse::Plain, !track.label.is_default);
    let sounds = sounds.enumerate();
    sounds.min_by_key(|(_, track)| order(track)).map(|(at, _)| at)
}

/// Sounds that are alternatives: those of one codec, and others for the choices that it lacks.
pub(super) struct SoundGroup {
    pub(super) name: String,
    /// Codecs of its members, each once.
    pub(super) codecs: Vec<String>,
    /// Their choices, in the order of these, and tracks.
    members: Vec<(usize, usize)>,
}

impl SoundGroup {
    /// The tracks of its members.
    pub(super) fn tracks(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|&(_, track)| track)
    }
}

/// The sounds of a film.
pub(super) struct Sounds<'a> {
    presentation: &'a Presentation,
    choices: Vec<SoundChoice>,
    default: usize,
    pub(super) groups: Vec<SoundGroup>,
}

impl<'a> Sounds<'a> {
    /// Groups these tracks, in the order of the file; `suffix` ends the names of groups.
    pub(super) fn new(
        presentation: &'a Presentation,
        tracks: &[usize],
        suffix: &str,
    ) -> Sounds<'a> {
        let track = |index: usize| &presentation.tracks()[index];
        let mut groups: Vec<SoundGroup> = Vec::new();
        let mut choices: Vec<SoundChoice> = Vec::new();
        for &index in tracks {
            let codec = track(index).codec.name();
            let at =
                groups.iter().position(|group| group.codecs[0] == codec).unwrap_or_else(|| {
                    let name = format!("{codec}{suffix}");
                    groups.push(SoundGroup { name, codecs: vec![codec], members: Vec::new() });
                    groups.len() - 1
                });
            let (language, sound_use) = (language(track(index)), SoundUse::of(track(index)));
            let language = language.map(|own| own.name);
            let is_like = |&(choice, _): &(usize, usize)| {
                let (of_language, of_use, _) = &choices[choice].key;
                (of_language, *of_use) == (&language, sound_use)
            };
            let earlier = groups[at].members.iter().filter(|member| is_like(member)).count();
            let key = (language, sound_use, earlier);
            let choice = choices.iter().position(|choice| choice.key == key).unwrap_or_else(|| {
                choices.push(SoundChoice { key, tracks: Vec::new(), name: String::new() });
                choices.len() - 1
            });
            choices[choice].tracks.push(index);
            groups[at].members.push((choice, index));
        }
        fill_up(&mut groups, choices.len(), |index| track(index).codec.name());
        name_all(&mut choices, track);
        let default = default_sound(tracks.iter().map(|&index| track(index)));
        let default = default.map_or(0, |at| {
            let has_it = |choice: &SoundChoice| choice.tracks.contains(&tracks[at]);
            choices.iter().position(has_it).expect("each is in one")
        });
        Sounds { presentation, choices, default, groups }
    }

    /// Writes a line for each sound of a group. Writing to a String cannot fail.
    pub(super) fn list(&self, text: &mut String, below: &str, group: &SoundGroup) {
        // Groups that lack the default differ from others all the same.
        let has_default = group.members.iter().any(|&(choice, _)| choice == self.default);
        for (at, &(choice, index)) in group.members.iter().enumerate() {
            let track = &self.presentation.tracks()[index];
            let SoundChoice { key: (_, sound_use, _), name, .. } = &self.choices[choice];
            let is_default = if has_default { choice == self.default } else { at == 0 };
            let _ = write!(text, "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{}\"", group.name);
            let _ = write!(text, ",NAME=\"{name}\"");
            if let Some(language) = language(track) {
                let _ = write!(text, ",LANGUAGE=\"{}\"", language.tag);
            }
            // A commentary must be chosen by the viewer.
            let is_chosen = is_default || *sound_use == SoundUse::Plain;
            let yes = |is_so: bool| if is_so { "YES" } else { "NO" };
            let _ = write!(text, ",DEFAULT={},AUTOSELECT={}", yes(is_default), yes(is_chosen));
            if *sound_use == SoundUse::Description {
                let _ = write!(text, ",CHARACTERISTICS=\"{DESCRIBES_VIDEO}\"");
            }
            if let Some(channels) = channels(&track.codec) {
                let _ = write!(text, ",CHANNELS=\"{channels}\"");
            }
            let _ = writeln!(text, ",URI=\"{below}/{}.m3u8\"", index + 1);
        }
    }
}

/// Number of channels of a sound.
pub(super) fn channels(codec: &Codec) -> Option<u8> {
    match codec {
        Codec::Aac(config) => Some(config.channels).filter(|&channels| channels > 0),
        Codec::Opus { channels } | Codec::Ac3 { channels, .. } | Codec::Eac3 { channels, .. } => {
            Some(*channels)
        }
        _ => None,
    }
}

/// Characteristic of a sound for viewers who do not see the pictures (RFC 8216 §4.3.4.1).
const DESCRIBES_VIDEO: &str = "public.accessibility.describes-video";

/// Adds to each group the choices that it lacks, from the group of AAC if that has all of them.
fn fill_up(groups: &mut [SoundGroup], choices: usize, codec: impl Fn(usize) -> String) {
    let has_all = |group: &&SoundGroup| {
        group.members.len() == choices && group.codecs[0].starts_with("mp4a.40.")
    };
    let whole = groups.iter().find(has_all).map(|group| group.members.clone());
    for group in groups {
        for &(choice, track) in whole.iter().flatten() {
            if group.members.iter().all(|&(own, _)| own != choice) {
                let codec = codec(track);
                if !group.codecs.contains(&codec) {
                    group.codecs.push(codec);
                }
                group.members.push((choice, track));
            }
        }
        group.members.sort_unstable();
    }
}

/// Names choices: by the name of their sounds, where all that have a name have the same, otherwise
/// by language and use.
fn name_all<'a>(choices: &mut [SoundChoice], track: impl Fn(usize) -> &'a Track) {
    let mut names = Vec::new();
    for choice in choices {
        let own = choice.tracks.iter().map(|&index| track(index).label.name.as_deref());
        let mut own = own.flatten().filter_map(shown_name);
        let first = own.next().filter(|first| own.all(|other| other == *first));
        let (language, sound_use, _) = &choice.key;
        let (name, is_numbered) = match (first, language) {
            (Some(name), _) => (name, false),
            (None, Some(language)) => (language.clone() + sound_use.words(), false),
            (None, None) => ("audio".to_owned() + sound_use.words(), true),
        };
        choice.name = distinct(&names, &name, is_numbered);
        names.push(choice.name.clone());
    }
}

#[cfg(test)]
mod tests {
    use media::Container;
    use media::plan::RtpIdentity;
    use media::tracks::{AacConfig, MediaSample, SampleTableBuilder, TrackLabel};

    use super::*;

    const AAC: Codec = Codec::Aac(AacConfig {
        specific: Vec::new(),
        object_type: 2,
        rate_hz: 48_000,
        channels: 2,
    });
    const AC3: Codec = Codec::Ac3 { rate_hz: 48_000, channels: 6 };

    fn sound(codec: Codec, language: &[u8; 3], name: &str, label: TrackLabel) -> Track {
        let mut samples = SampleTableBuilder::new(48_000, 1000);
        let start = MediaSample {
            file_offset: 0,
            bytes: 10,
            decode: 0,
            offset: 0,
            duration: 48_000,
            is_start: true,
        };
        samples.push(start).expect("it lies in the file");
        let name = Some(name.to_owned()).filter(|name| !name.is_empty());
        let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
        let track = Track::new(1, codec, samples.finish().expect("a sample"), identity);
        Track { language: Some(*language), label: TrackLabel { name, ..label }, ..track }
    }

    /// Name, DEFAULT, AUTOSELECT and address of each member, by group.
    fn listed(tracks: Vec<Track>) -> Vec<Vec<String>> {
        let indices: Vec<usize> = (0..tracks.len()).collect();
        let film = Presentation::assemble(Container::Matroska, 1000, tracks, Vec::new());
        let film = film.expect("tracks");
        let sounds = Sounds::new(&film, &indices, "");
        let of_group = |group| {
            let mut text = String::new();
            sounds.list(&mut text, "~I", group);
            let part = |line: &str, before: &str, end: char| {
                let (_, rest) = line.split_once(before).expect("an attribute");
                rest.split(end).next().unwrap_or_default().to_owned()
            };
            let lines = text.lines().map(|line| {
                let (name, address) = (part(line, "NAME=\"", '"'), part(line, "URI=\"~I/", '.'));
                let chosen = [part(line, "DEFAULT=", ','), part(line, "AUTOSELECT=", ',')];
                format!("{name} {} {} {address}", chosen[0], chosen[1])
            });
            lines.collect()
        };
        sounds.groups.iter().map(of_group).collect()
    }

    #[test]
    fn codecs_of_one_sound_are_a_choice_and_a_commentary_is_another() {
        let default = || TrackLabel { is_default: true, ..TrackLabel::default() };
        let commentary = || TrackLabel { is_commentary: true, ..default() };
        let plain = TrackLabel::default;
        let tracks = vec![
            sound(AC3, b"deu", "", commentary()),
            sound(AAC, b"deu", "Stereo", plain()),
            sound(AC3, b"deu", "5.1", plain()),
            sound(AAC, b"fra", "VF", default()),
            sound(AAC, b"deu", "Critics", commentary()),
            sound(AAC, b"und", "", plain()),
        ];
        let expected = [
            ["Critics NO NO 1", "German NO YES 3", "VF YES YES 4", "audio 1 NO YES 6"],
            ["Critics NO NO 5", "German NO YES 2", "VF YES YES 4", "audio 1 NO YES 6"],
        ];
        assert_eq!(listed(tracks), expected);
    }

    #[test]
    fn names_differ_and_the_first_is_played_where_none_is_a_default() {
        let plain = TrackLabel::default;
        let tracks = ["A", "A", "", ""].map(|name| sound(AAC, b"eng", name, plain()));
        let expected = [["A YES YES 1", "A 2 NO YES 2", "English NO YES 3", "English 2 NO YES 4"]];
        assert_eq!(listed(tracks.into()), expected);
        let described = TrackLabel { is_description: true, ..plain() };
        let tracks =
            vec![sound(AAC, b"eng", "", described.clone()), sound(AAC, b"eng", "", plain())];
        assert_eq!(listed(tracks), [["English (description) NO NO 1", "English YES YES 2"]]);
        let alone =
            vec![sound(AAC, b"eng", "", described.clone()), sound(AAC, b"fra", "", described)];
        let expected = [["English (description) YES YES 1", "French (description) NO NO 2"]];
        assert_eq!(listed(alone), expected);
    }
}
