// SPDX-License-Identifier: MIT OR Apache-2.0
//! Titles of a film: its programmes, each with its pictures and sounds, as offered by multivariant
//! playlists.
//!
//! A stream of one programme is one title. Its segments hold the whole stream with its first sound;
//! each further sound is a rendition with segments of its own. A variant names pictures and the
//! sounds of one codec: a player leaves out variants that it cannot play, but refuses a single list
//! of all codecs. Each of several programmes is a title with segments of its own (RFC 8216 §3.2:
//! one programme a segment): two channels of a transponder are not variants of each other.
//! `master.m3u8` is the first title. Programmes of the same PIDs, such as regional ones while they
//! show the same, share their segments.
//!
//! Sources: RFC 8216 §4.3.4.1 (EXT-X-MEDIA), §4.3.4.2 (EXT-X-STREAM-INF), RFC 5646 §2.2.1
//! (languages: of two and three letters the shorter).
//! Does not offer pictures of several sizes; a stream has one.

use std::fmt::Write;
use std::sync::Arc;

use media::{Coding, Programme, Track, codecs, language_of};

use super::film_part::FilmPart;
use super::playlist::{MASTER, playlist_name};
use super::scan::SURVEY_BYTES_MAX;
use super::size_limits::PARTS_MAX;

/// A programme as a title.
#[derive(Debug)]
pub(super) struct Title {
    /// Names of its multivariant playlists.
    pub(super) masters: Vec<String>,
    /// The part that has its segments; empty for the whole stream.
    media: String,
    video: Option<Track>,
    sounds: Vec<Sound>,
    /// All codecs, or the reason why CODECS is left out.
    codecs: Result<String, String>,
    /// Remarks on the tracks of the map that no playlist offers, since they have no packets.
    absent: Vec<Remark>,
}

#[derive(Debug)]
struct Sound {
    track: Track,
    /// The part of the sound; `None` when the title's segments hold it.
    part: Option<String>,
}

/// Remark on a film for its owner; not a failure.
pub(super) type Remark = String;

/// Returns the titles of `programmes`, and the parts to be made for them. Stops early when there
/// are more than [`PARTS_MAX`] parts.
pub(super) fn titles(programmes: &[Programme]) -> (Vec<Title>, Vec<FilmPart>) {
    let (mut titles, mut parts) = (Vec::new(), Vec::new());
    let is_one = programmes.len() <= 1;
    for (index, programme) in programmes.iter().enumerate() {
        if parts.len() > PARTS_MAX {
            break;
        }
        let shared = Arc::new(programme.clone());
        let prefix = if is_one { String::new() } else { format!("program-{}-", programme.number) };
        let mut part = |id: String, only| {
            let part = FilmPart { id, programme: shared.clone(), only };
            let known = parts.iter().find(|known: &&FilmPart| known.is_alike(&part));
            let id = known.unwrap_or(&part).id.clone();
            if known.is_none() {
                parts.push(part);
            }
            id
        };
        let media = match is_one {
            true => String::new(),
            false => part(format!("{prefix}media"), None),
        };
        let there = || programme.tracks.iter().filter(|track| track.has_packets);
        let heard = there().filter(|track| track.coding.is_audio() && track.format.is_some());
        let sounds = heard.enumerate().map(|(index, track)| {
            let id = || part(format!("{prefix}audio-{}", track.pid), Some(track.pid));
            Sound { track: track.clone(), part: (index > 0).then(id) }
        });
        let sounds = sounds.collect();
        let mut masters = vec![MASTER.to_owned()];
        if !is_one {
            let own = format!("program-{}.m3u8", programme.number);
            masters = if index == 0 { vec![own, MASTER.to_owned()] } else { vec![own] };
        }
        let video = there().find(|track| track.coding.is_video()).cloned();
        let codecs = codecs(&programme.tracks).map_err(|fault| fault.to_string());
        let absent = programme.tracks.iter().filter_map(absent).collect();
        titles.push(Title { masters, media, video, sounds, codecs, absent });
    }
    if titles.is_empty() {
        titles.push(Title {
            masters: vec![MASTER.to_owned()],
            media: String::new(),
            video: None,
            sounds: Vec::new(),
            codecs: Err("no picture and no sound was found".to_owned()),
            absent: Vec::new(),
        });
    }
    (titles, parts)
}

impl Title {
    /// Removes the part `id`, which could not be made, from the title; returns true when the title
    /// is empty without it.
    pub(super) fn leave_out(&mut self, id: &str) -> bool {
        self.sounds.retain(|sound| sound.part.as_deref() != Some(id));
        self.media == id
    }

    /// Returns the multivariant playlist; `rates` returns peak and average bits a second of a part.
    pub(super) fn master(&self, rates: impl Fn(&str) -> (u64, u64)) -> String {
        let mut text = "#EXTM3U\n#EXT-X-VERSION:3\n".to_owned();
        let groups = self.groups();
        if let Err(reason) = &self.codecs {
            line(
                &mut text,
                &format!("# CODECS is left out: {}", reason.replace(['\r', '\n'], " ")),
            );
        }
        if groups.len() + self.sounds.len() <= 2 {
            let codecs = self.codecs.as_deref().ok();
            self.variant(&mut text, codecs, None, &self.media, rates(&self.media));
            return text;
        }
        for group in &groups {
            self.renditions(&mut text, group);
        }
        for group in &groups {
            let members = || self.sounds.iter().filter(|sound| sound.codec() == *group);
            let codecs = match &self.video {
                Some(video) => video.format.as_ref().map(|f| format!("{},{group}", f.codec)),
                None => Some((*group).to_owned()),
            };
            let first = members().next().and_then(|sound| sound.part.as_deref());
            let uri = if self.video.is_some() { None } else { first }.unwrap_or(&self.media);
            let (mut peak, mut average) = rates(uri);
            if self.video.is_some() {
                let more = members().filter_map(|sound| Some(rates(sound.part.as_deref()?)));
                let more: Vec<_> = more.collect();
                peak += more.iter().map(|rates| rates.0).max().unwrap_or(0);
                average += more.iter().map(|rates| rates.1).max().unwrap_or(0);
            }
            self.variant(&mut text, codecs.as_deref(), Some(group), uri, (peak, average));
        }
        text
    }

    /// Returns the codecs of the sounds, each once.
    fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for sound in &self.sounds {
            if !groups.contains(&sound.codec()) {
                groups.push(sound.codec());
            }
        }
        groups
    }

    /// Writes the sounds of a group, each with a name that is unique in it.
    fn renditions(&self, text: &mut String, group: &str) {
        let mut names: Vec<String> = Vec::new();
        for sound in self.sounds.iter().filter(|sound| sound.codec() == group) {
            let language = sound.track.language();
            let known = language.as_deref().and_then(language_of);
            let wanted = known.map(|(_, name)| name.to_owned());
            let wanted = wanted.or_else(|| language.clone()).unwrap_or_else(|| "Sound".to_owned());
            let same = names.iter().filter(|name| name.trim_end_matches(is_count) == wanted);
            let name = match same.count() {
                0 => wanted,
                others => format!("{wanted} {}", others + 1),
            };
            let default = if names.is_empty() { "YES" } else { "NO" };
            let _ = write!(text, "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{group}\",NAME=\"{name}\"");
            if let Some(language) = &language {
                let tag = known.map_or(language.as_str(), |(tag, _)| tag);
                let _ = write!(text, ",LANGUAGE=\"{tag}\"");
            }
            let _ = write!(text, ",DEFAULT={default},AUTOSELECT=YES");
            if let Some(channels) = sound.track.format.as_ref().and_then(|format| format.channels) {
                let _ = write!(text, ",CHANNELS=\"{channels}\"");
            }
            if let Some(part) = &sound.part {
                let _ = write!(text, ",URI=\"{}\"", playlist_name(part));
            }
            text.push('\n');
            names.push(name);
        }
    }

    fn variant(
        &self,
        text: &mut String,
        codecs: Option<&str>,
        group: Option<&str>,
        media: &str,
        (peak, average): (u64, u64),
    ) {
        let _ = write!(text, "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average}");
        if let Some(codecs) = codecs {
            let _ = write!(text, ",CODECS=\"{codecs}\"");
        }
        let format = self.video.as_ref().and_then(|video| video.format.as_ref());
        if let Some((width, height)) = format.and_then(|format| format.resolution()) {
            let _ = write!(text, ",RESOLUTION={width}x{height}");
        }
        if let Some(rate) = format.and_then(|format| format.rate_millihertz) {
            let _ = write!(text, ",FRAME-RATE={}.{:03}", rate / 1000, rate % 1000);
        }
        if let Some(group) = group {
            let _ = write!(text, ",AUDIO=\"{group}\"");
        }
        let _ = write!(text, "\n{}\n", playlist_name(media));
    }

    /// Returns remarks on tracks that browsers cannot play, and on missing tracks.
    pub(super) fn remarks(&self) -> Vec<Remark> {
        let sounds = self.sounds.iter().map(|sound| &sound.track);
        let mut remarks: Vec<_> = self.video.iter().chain(sounds).filter_map(unplayable).collect();
        remarks.extend(self.absent.iter().cloned());
        if let Err(reason) = &self.codecs {
            remarks.push(format!("CODECS is left out of {}: {reason}", self.masters[0]));
        }
        remarks
    }
}

impl Sound {
    fn codec(&self) -> &str {
        self.track.format.as_ref().map_or("", |format| &format.codec)
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn is_count(letter: char) -> bool {
    letter == ' ' || letter.is_ascii_digit()
}

/// Returns a remark on pictures or sound without packets in the survey; `None` for other tracks.
fn absent(track: &Track) -> Option<Remark> {
    let (pid, stream_type) = (track.pid, track.stream_type);
    let what = match track.coding {
        coding if coding.is_video() => "video",
        coding if coding.is_audio() => "sound",
        _ => return None,
    };
    (!track.has_packets).then(|| {
        format!(
            "{what} (PID {pid}, stream type 0x{stream_type:02x}) is left out: the map lists it, \
             and the first {} MiB have no packet of it",
            SURVEY_BYTES_MAX >> 20
        )
    })
}

/// Returns the reason why browsers cannot play a track; `None` if they can.
fn unplayable(track: &Track) -> Option<Remark> {
    let codec = track.format.as_ref().map_or("?", |format| &format.codec);
    let (what, why) = match track.coding {
        Coding::MpegAudio if codec == "mp4a.40.34" => return None,
        Coding::MpegAudio => ("MP2 sound", NO_DECODER),
        Coding::AacLatm => {
            ("AAC sound with LATM headers", "players of HLS read ADTS headers alone")
        }
        Coding::Ac3 => ("AC-3 sound", DOLBY),
        Coding::Eac3 => ("E-AC-3 sound", DOLBY),
        Coding::OtherAudio => ("sound", NO_DECODER),
        Coding::Mpeg2Video => ("MPEG-1/2 video", NO_DECODER),
        Coding::Mpeg4Video => ("MPEG-4 part 2 video", NO_DECODER),
        Coding::H265 => {
            ("HEVC video", "browsers play it only where the device has a decoder for it")
        }
        Coding::OtherVideo => ("video", NO_DECODER),
        _ => return None,
    };
    let cure = if track.coding.is_video() { "-c:v libx264" } else { "-c:a aac" };
    let (pid, stream_type) = (track.pid, track.stream_type);
    Some(format!(
        "{what} ({codec}, PID {pid}, stream type 0x{stream_type:02x}): {why}; VLC and ffmpeg play \
         it; for browsers convert it first (ffmpeg {cure})"
    ))
}

const NO_DECODER: &str = "browsers have no decoder for it";
const DOLBY: &str = "Safari and Edge alone have a decoder for it";
