// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media presentation descriptions of MPEG-DASH.
//!
//! Pictures and each sound are adaptation sets of their own; the pictures of several renditions are
//! representations of one set. The sound that is played to viewers who chose none is the main one,
//! as in playlists of HLS; the others are alternatives. Segments are numbered, with their exact
//! times. Times in segments begin at the presentation time offset. Subtitles are sets of one file
//! each, those of TTML of segments.
//!
//! Sources: ISO/IEC 23009-1 §5.3 (MPD), §5.3.9.6 (SegmentTimeline), §5.8.5.5 (roles), §8.4 (live
//! profile); RFC 5646 (languages).
//! Does not describe transport streams that grow ([`super::live_manifest`]).

use std::fmt::Write;

use media::TICKS_PER_SECOND;
use media::cmaf::{Rendition, TARGET_S};
use media::tracks::{Track, TrackMedia as Kind};
use quick_xml::escape::escape;

use super::address::TrackList;
use super::clear_key;
use super::live_playlist::LISTED_MAX;
use super::master::Listed;
use super::mpd_elements::{
    self, DynamicTimes, PROFILES, begin_representation, write_entries, write_role,
};
use super::names::{language, shown_name};
use super::protection::AssetKeys;
use super::sounds::{SoundUse, default_sound};
use super::subtitles::{ListedSubtitle, SubtitleFlags};
use super::ttml_tracks;
use super::web_media::{TrackMedia, WebMedia};

/// Rate of subtitles: a text of 100 characters every two seconds has less.
const TEXT_BITS_PER_SECOND: u32 = 1000;

/// A track of a file, which is a representation.
struct Offered<'a> {
    file: &'a Listed<'a>,
    media: &'a TrackMedia,
    rendition: &'a Rendition,
    /// Index in the presentation.
    index: usize,
}

impl<'a> Offered<'a> {
    /// All tracks of a file that can be played by themselves.
    fn all(file: &'a Listed<'a>) -> Vec<Offered<'a>> {
        let WebMedia::Tracks(media) = &file.asset.media else { return Vec::new() };
        let tracks = 0..media.asset.presentation.tracks().len();
        let offered = tracks.filter_map(|index| {
            media.inits.get(&TrackList(vec![index]))?;
            let rendition = media.plan.rendition(&[index]).filter(|one| media.is_offered(one))?;
            Some(Offered { file, media, rendition, index })
        });
        offered.collect()
    }

    fn track(&self) -> &'a Track {
        &self.media.asset.presentation.tracks()[self.index]
    }

    fn is_video(&self) -> bool {
        self.track().codec.media() == Kind::Video
    }

    /// Start and duration of each listed segment.
    fn timeline(&self) -> Vec<(u64, u64)> {
        let (presentation, plan) = (&self.media.asset.presentation, &self.media.plan);
        if self.media.growing.is_none() {
            return self.rendition.timeline(presentation, plan);
        }
        let listed = self.media.listed(self.rendition);
        let listed = self.rendition.recorded_timeline(presentation, plan, listed);
        listed.into_iter().map(|one| (one.start, one.duration)).collect()
    }

    /// End of its listed segments, and the time that they last, in seconds.
    fn listed_s(&self) -> (f64, f64) {
        let listed = &self.rendition.segments()[self.media.listed(self.rendition)];
        let seconds = |ticks: i64| ticks as f64 / TICKS_PER_SECOND as f64;
        let start = listed.first().map_or(0, |first| first.start);
        let end = listed.last().map_or(0, |last| last.start.saturating_add_unsigned(last.ticks));
        (seconds(end), seconds(end - start))
    }
}

/// Returns the description of a file, or of the renditions of one title: their pictures, a set for
/// each coding, and the sounds of the first that has any. `None` where no track can be played by
/// itself. That of a recording has these times, and no end ([`mpd_elements::end`]). Writing to a
/// String cannot fail.
pub(super) fn text(files: &[Listed<'_>], times: Option<&DynamicTimes<'_>>) -> Option<Vec<u8>> {
    let offered: Vec<Vec<Offered<'_>>> = files.iter().map(Offered::all).collect();
    let pictures = offered.iter().flatten().filter(|one| one.is_video());
    let mut sets: Vec<Vec<&Offered<'_>>> = Vec::new();
    for picture in pictures {
        let coding = |one: &Offered<'_>| std::mem::discriminant(&one.track().codec);
        match sets.iter_mut().find(|set| coding(set[0]) == coding(picture)) {
            Some(set) => set.push(picture),
            None => sets.push(vec![picture]),
        }
    }
    let has_sound = |file: &&Vec<Offered<'_>>| !file.iter().all(Offered::is_video);
    let sounds = offered.iter().find(has_sound).into_iter().flatten();
    sets.extend(sounds.filter(|one| !one.is_video()).map(|sound| vec![sound]));
    let all = || sets.iter().flatten();
    // The longest duration in the timelines, rounded up.
    let longest_ms = all().flat_map(|one| {
        let scale = u64::from(one.track().samples.timescale());
        let entries = one.timeline().into_iter();
        entries.map(move |(_, duration)| duration.saturating_mul(1000).div_ceil(scale))
    });
    let texts = files.iter().flat_map(|file| {
        file.subtitles.iter().filter_map(|subtitle| file.asset.ttml.get(subtitle.id))
    });
    let longest_ms = longest_ms.chain(texts.flat_map(|track| {
        let scale = u64::from(track.timescale());
        let entries = track.timeline().into_iter();
        entries.map(move |(_, duration)| duration.saturating_mul(1000).div_ceil(scale))
    }));
    let longest_s = longest_ms.max()? as f64 / 1000.0;
    let mut text = String::with_capacity(4096);
    match times {
        Some(times) => {
            let listed = all().map(|one| one.listed_s());
            let (end_s, lasts_s) =
                listed.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))?;
            let is_whole = all().all(|one| one.media.listed(one.rendition).start == 0);
            // As long as nothing has left the list.
            let most_s = (LISTED_MAX as u64 * times.target_s) as f64;
            let listed_s = if is_whole { most_s } else { lasts_s };
            mpd_elements::write_beginning(&mut text, times, (end_s, listed_s, longest_s));
        }
        None => {
            let end = |one: &&Offered<'_>| one.media.asset.presentation.presented_end_ticks();
            let seconds = all().map(end).max()? as f64 / TICKS_PER_SECOND as f64;
            let is_enciphered = files.iter().any(|file| file.asset.keys.is_some());
            let namespaces =
                if is_enciphered { format!(" {}", clear_key::NAMESPACES) } else { String::new() };
            let _ = write!(
                text,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                 <MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\"{namespaces} profiles=\"{PROFILES}\" \
                 type=\"static\" mediaPresentationDuration=\"PT{seconds:.3}S\" \
                 maxSegmentDuration=\"PT{longest_s:.3}S\" minBufferTime=\"PT{TARGET_S}S\">\n"
            );
        }
    }
    text.push_str("  <Period id=\"0\" start=\"PT0S\">\n");
    let mut next_id = 1;
    let pictures = sets.iter().take_while(|set| set[0].is_video()).count();
    let default = default_sound(sets[pictures..].iter().map(|set| set[0].track()));
    for (at, set) in sets.iter().enumerate() {
        // Without a role players choose by rate.
        let is_main = at < pictures || Some(at - pictures) == default;
        let role = if is_main { "main" } else { "alternate" };
        // Tracks of a recording keep their numbers when others begin.
        let own = set[0].index + 1;
        let id = if times.is_some() { own } else { at + 1 };
        next_id = if times.is_some() { own } else { next_id };
        adaptation_set(&mut text, set, (id, role), &mut next_id);
    }
    for file in files {
        for subtitle in file.subtitles {
            text_set(&mut text, file, subtitle, next_id);
            next_id += 1;
        }
    }
    text.push_str("  </Period>\n");
    // That of a recording ends with the time at which it is sent.
    if times.is_none() {
        text.push_str("</MPD>\n");
    }
    Some(text.into_bytes())
}

/// Writes the adaptation set of subtitles: segments of TTML, or one file of WebVTT. Its times are
/// those of the period.
fn text_set(text: &mut String, file: &Listed<'_>, subtitle: &ListedSubtitle, number: usize) {
    let (below, ttml) = (&file.below, file.asset.ttml.get(subtitle.id));
    let _ = write!(text, "    <AdaptationSet id=\"{number}\" contentType=\"text\" mimeType=");
    text.push_str(match ttml {
        Some(_) => "\"application/mp4\" segmentAlignment=\"true\" startWithSAP=\"1\"",
        None => "\"text/vtt\"",
    });
    if let Some(language) = &subtitle.language {
        let _ = write!(text, " lang=\"{language}\"");
    }
    text.push_str(">\n");
    write_label(text, &subtitle.name);
    roles(subtitle.flags).for_each(|role| write_role(text, role));
    if let Some(track) = ttml {
        ttml_tracks::representation(text, (below, subtitle.id), track, number);
    } else {
        let _ = write!(
            text,
            "      <Representation id=\"{number}\" bandwidth=\"{TEXT_BITS_PER_SECOND}\">\n        \
             <BaseURL>{below}/{}.vtt</BaseURL>\n      </Representation>\n",
            subtitle.id,
        );
    }
    text.push_str("    </AdaptationSet>\n");
}

/// Writes the name of a set for viewers.
fn write_label(text: &mut String, name: &str) {
    let _ = writeln!(text, "      <Label>{}</Label>", escape(name));
}

/// Roles of subtitles: those of their uses, or `subtitle`.
fn roles(flags: SubtitleFlags) -> impl Iterator<Item = &'static str> {
    let is_plain = !flags.is_forced && !flags.is_sdh;
    let roles = [
        (is_plain, "subtitle"),
        (flags.is_sdh, "caption"),
        (flags.is_forced, "forced-subtitle"),
        (flags.is_default, "main"),
    ];
    roles.into_iter().filter_map(|(is_so, role)| is_so.then_some(role))
}

/// `next_id` is the next number of a representation.
fn adaptation_set(
    text: &mut String,
    set: &[&Offered<'_>],
    (id, role): (usize, &str),
    next_id: &mut usize,
) {
    let track = set[0].track();
    let kind = if set[0].is_video() { "video" } else { "audio" };
    let _ = write!(
        text,
        "    <AdaptationSet id=\"{id}\" contentType=\"{kind}\" mimeType=\"{kind}/mp4\" \
         segmentAlignment=\"true\""
    );
    if set.iter().all(|one| one.media.is_independent(one.rendition)) {
        text.push_str(" startWithSAP=\"1\"");
    }
    if let Some(language) = language(track) {
        let _ = write!(text, " lang=\"{}\"", language.tag);
    }
    text.push_str(">\n");
    let keys: Vec<&AssetKeys> = set.iter().filter_map(|one| one.file.asset.keys.as_ref()).collect();
    // The renditions of a title have a key each: players ask for that of the set, and the licence
    // has all.
    if let [first, ..] = keys[..] {
        text.push_str(&clear_key::elements(first, keys.len() > 1));
    }
    let sound = Some(track).filter(|_| !set[0].is_video());
    if let Some(name) = sound.and_then(|track| shown_name(track.label.name.as_deref()?)) {
        write_label(text, &name);
    }
    write_role(text, role);
    if let Some(role) = sound.and_then(|track| SoundUse::of(track).role()) {
        write_role(text, role);
    }
    for one in set {
        let own_key = one.file.asset.keys.as_ref().filter(|_| keys.len() > 1);
        representation(text, one, *next_id, own_key);
        *next_id += 1;
    }
    text.push_str("    </AdaptationSet>\n");
}

fn representation(text: &mut String, one: &Offered<'_>, id: usize, own_key: Option<&AssetKeys>) {
    let (peak, _) = one.rendition.bits_per_second();
    let track = one.track();
    begin_representation(text, id, peak, (&track.codec, track.display));
    text.extend(own_key.map(|key| clear_key::elements(key, true)));
    timeline(text, one);
    text.push_str("      </Representation>\n");
}

fn timeline(text: &mut String, one: &Offered<'_>) {
    let timescale = one.track().samples.timescale();
    let offset = one.media.plan.origin_s() * u64::from(timescale);
    // It is escaped: no markup, and no dollar sign, which begins a part to be filled in.
    let below = &one.file.below;
    let id = one.index + 1;
    let _ = write!(
        text,
        "        <SegmentTemplate timescale=\"{timescale}\" presentationTimeOffset=\"{offset}\" "
    );
    // Segments of a recording are named by their times: a track may be silent for some.
    let _ = match one.media.growing.is_some() {
        true => write!(
            text,
            "initialization=\"{below}/{id}-0.mp4\" media=\"{below}/{id}-0-$Time$.m4s\""
        ),
        false => write!(
            text,
            "startNumber=\"0\" initialization=\"{below}/{id}/init.mp4\" \
             media=\"{below}/{id}/$Number$.m4s\""
        ),
    };
    text.push_str(">\n          <SegmentTimeline>\n");
    write_entries(text, &one.timeline());
    text.push_str("          </SegmentTimeline>\n        </SegmentTemplate>\n");
}
