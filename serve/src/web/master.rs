// SPDX-License-Identifier: MIT OR Apache-2.0
//! master: multivariant playlists of HLS.
//!
//! One track of pictures and at most one of sound are one variant, sent together. Several sounds
//! are alternatives, a group for each codec, and the pictures are a variant with each group: a
//! player chooses a group that it can decode. The key frames are a playlist of their own.
//!
//! Groups have the same members, by language: what a codec lacks is in its group as AAC, which
//! every player decodes. Where the sounds in AAC are not of all languages groups differ, against
//! §4.3.4.1.1: players that lack a codec would have none to play.
//!
//! BANDWIDTH is the highest rate of a segment and AVERAGE-BANDWIDTH that of all, boxes included, of
//! the pictures, the largest sound of the group and the largest subtitles of TTML.
//!
//! Sources: RFC 8216 §4.3.4 (tags), §4.3.4.1.1 (groups), §4.3.4.2 (SUBTITLES); RFC 6381 (CODECS).
//! Does not decide which files are one title ([`super::title`]).

use std::fmt::Write;

use media::cmaf::{Rendition, TtmlSegments, bits_per_second, peak_and_mean, shown_pictures};
use media::tracks::{Codec, Track, TrackMedia as Kind};
use media::{Presentation, language_of};

use super::address::{TrackList, WebItem};
use super::stream_media::StreamMedia;
use super::subtitles::ListedSubtitle;
use super::ts_form::TsForm;
use super::ttml_tracks::has_playlist;
use super::web_asset::{TrackMedia, WebAsset, WebMedia};

/// A file in a playlist or MPD.
pub(super) struct Listed<'a> {
    pub(super) asset: &'a WebAsset,
    /// Beginning of its addresses.
    pub(super) below: String,
    /// Distinguishes its groups from those of other files.
    pub(super) suffix: String,
    pub(super) subtitles: &'a [ListedSubtitle],
}

/// A playlist under construction. Writing to a String cannot fail.
#[derive(Default)]
struct Lists {
    /// Lines of sounds and of subtitles.
    sounds: String,
    subtitles: String,
    /// Each with its peak bit rate.
    variants: Vec<(u64, String)>,
    key_frames: String,
    is_dependent: bool,
    /// Peak and mean bit rate of the largest subtitles of TTML, and the codecs of all, each behind
    /// a comma.
    text_rates: (u64, u64),
    text_codecs: String,
}

/// Returns the playlist of a file, or of the renditions of one title, with transport streams in
/// this form; the variant of the lowest rate comes first.
pub(super) fn text(files: &[Listed<'_>], form: TsForm) -> Vec<u8> {
    let mut lists = Lists::default();
    list_subtitles(&mut lists, files);
    for file in files {
        match &file.asset.media {
            WebMedia::Tracks(media) => of_tracks(&mut lists, file, media),
            WebMedia::Stream(media) => of_stream(&mut lists, &file.below, (media, form)),
        }
    }
    lists.variants.sort_by_key(|&(peak, _)| peak);
    let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:6\n");
    if !lists.is_dependent {
        text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
    }
    text.push_str(&lists.sounds);
    text.push_str(&lists.subtitles);
    let variants: String = lists.variants.into_iter().map(|(_, variant)| variant).collect();
    match lists.subtitles.is_empty() {
        true => text.push_str(&variants),
        false => with_group(&mut text, &variants),
    }
    text.push_str(&lists.key_frames);
    text.into_bytes()
}

/// Characteristics of subtitles for the deaf and hard of hearing (RFC 8216 §4.3.4.1).
const SDH: &str = "public.accessibility.transcribes-spoken-dialog,\
                   public.accessibility.describes-music-and-sound";

/// Group of all subtitles.
const SUBTITLES: &str = "subs";

/// Writes the lines of all subtitles, but of TTML where its times are not those of all variants.
fn list_subtitles(lists: &mut Lists, files: &[Listed<'_>]) {
    let is_listed = |track: &TtmlSegments| {
        files.iter().all(|file| match &file.asset.media {
            WebMedia::Tracks(media) => has_playlist(track, media),
            WebMedia::Stream(_) => false,
        })
    };
    for file in files {
        for subtitle in file.subtitles {
            if let Some(track) = file.asset.ttml.get(subtitle.id) {
                if !is_listed(track) {
                    continue;
                }
                let ((peak, mean), rates) = (track.bits_per_second(), &mut lists.text_rates);
                *rates = (rates.0.max(peak), rates.1.max(mean));
                if !lists.text_codecs.split(',').any(|one| one == track.codecs()) {
                    lists.text_codecs.push(',');
                    lists.text_codecs.push_str(track.codecs());
                }
            }
            list_subtitle(&mut lists.subtitles, &file.below, subtitle);
        }
    }
}

/// Writes the line of a subtitle.
fn list_subtitle(text: &mut String, below: &str, subtitle: &ListedSubtitle) {
    let _ = write!(text, "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"{SUBTITLES}\"");
    let _ = write!(text, ",NAME=\"{}\"", subtitle.name);
    if let Some(language) = &subtitle.language {
        let _ = write!(text, ",LANGUAGE=\"{language}\"");
    }
    let yes = |is_so: bool| if is_so { "YES" } else { "NO" };
    let (is_default, is_forced) = (yes(subtitle.flags.is_default), yes(subtitle.flags.is_forced));
    let _ = write!(text, ",DEFAULT={is_default},AUTOSELECT=YES,FORCED={is_forced}");
    if subtitle.flags.is_sdh {
        let _ = write!(text, ",CHARACTERISTICS=\"{SDH}\"");
    }
    let _ = writeln!(text, ",URI=\"{below}/{}.m3u8\"", subtitle.id);
}

/// Writes lines, with the group of subtitles in those of variants.
fn with_group(text: &mut String, lines: &str) {
    for line in lines.lines() {
        text.push_str(line);
        if line.starts_with("#EXT-X-STREAM-INF:") {
            let _ = write!(text, ",SUBTITLES=\"{SUBTITLES}\"");
        }
        text.push('\n');
    }
}

fn of_stream(lists: &mut Lists, below: &str, (media, form): (&StreamMedia, TsForm)) {
    let (peak, mean) = stream_rates(media);
    let attributes = media.shown.attributes(media.asset.plan.codecs());
    let text = format!(
        "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={mean}{attributes}\n\
         {below}/{}\n",
        WebItem::TsPlaylist(form)
    );
    lists.variants.push((peak, text));
    if let Ok(frames) = media.key_frames() {
        let sent = frames.list().iter().map(|frame| {
            let bytes = frame.file.end - frame.file.start;
            (bytes + frames.tables(frame).len() as u64, frame.ticks)
        });
        let (peak, _) = peak_and_mean(sent);
        let _ = writeln!(
            lists.key_frames,
            "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH={}{},URI=\"{below}/{}\"",
            peak.max(1),
            media.shown.key_frame_attributes(media.asset.plan.codecs()),
            WebItem::TsKeyPlaylist(form)
        );
    }
}

/// Peak and mean bit rate of a transport stream's segments.
fn stream_rates(media: &StreamMedia) -> (u64, u64) {
    let segments = media.segments().into_iter().flat_map(|plan| {
        plan.list().iter().map(move |segment| {
            let media = segment.file.end - segment.file.start;
            (media + plan.tables(segment).len() as u64, segment.ticks)
        })
    });
    let (peak, mean) = peak_and_mean(segments);
    (peak.max(1), mean.max(1))
}

/// Sounds that are alternatives: those of one codec, and others for what it lacks.
struct SoundGroup {
    name: String,
    /// Codecs of its members, each once.
    codecs: Vec<String>,
    members: Vec<Member>,
}

/// A sound as viewers choose it.
#[derive(Clone)]
struct Member {
    /// Index of the track.
    track: usize,
    /// Its language, and the number of earlier sounds of this language and codec: members of
    /// groups that agree are one sound.
    choice: (Option<String>, usize),
}

impl Member {
    /// Name for viewers.
    fn name(&self) -> String {
        match &self.choice {
            (Some(language), 0) => language.clone(),
            (Some(language), earlier) => format!("{language} {}", earlier + 1),
            (None, earlier) => format!("audio {}", earlier + 1),
        }
    }
}

fn of_tracks(lists: &mut Lists, file: &Listed<'_>, media: &TrackMedia) {
    let presentation = &media.asset.presentation;
    let tracks = presentation.tracks();
    let offered = |list: &[usize]| {
        let has_section = media.inits.contains_key(&TrackList(list.to_vec()));
        media.plan.rendition(list).filter(|_| has_section)
    };
    let is_offered = |&index: &usize| offered(&[index]).is_some();
    let pictures = media.plan.pictures(presentation).filter(is_offered);
    let is_sound = |&index: &usize| tracks[index].codec.media() == Kind::Audio;
    let sounds: Vec<usize> = (0..tracks.len()).filter(is_sound).filter(is_offered).collect();
    let is_independent =
        |list: &TrackList| media.plan.rendition(&list.0).is_none_or(Rendition::is_independent);
    lists.is_dependent |= !media.inits.keys().all(is_independent);
    let together = match (pictures, &sounds[..]) {
        (Some(pictures), &[sound]) => offered(&[pictures, sound]),
        (Some(pictures), []) => offered(&[pictures]),
        (None, &[sound]) => offered(&[sound]),
        _ => None,
    };
    if let Some(rendition) = together {
        variant(lists, &file.below, presentation, rendition, None);
    } else {
        for group in groups(presentation, &sounds, &file.suffix) {
            list_sounds(&mut lists.sounds, &file.below, presentation, &group);
            let leading = pictures.unwrap_or(group.members[0].track);
            let rates = group.members.iter().filter_map(|member| offered(&[member.track]));
            let rates = rates.map(Rendition::bits_per_second);
            let (peaks, means): (Vec<u64>, Vec<u64>) = rates.unzip();
            let (mut peak, mut mean) = (most(&peaks), most(&means));
            let Some(leading) = offered(&[leading]) else { continue };
            if pictures.is_none() {
                // It is one of the sounds.
                let own = leading.bits_per_second();
                (peak, mean) = (peak.saturating_sub(own.0), mean.saturating_sub(own.1));
            }
            variant(lists, &file.below, presentation, leading, Some((&group, (peak, mean))));
        }
    }
    if let Some(pictures) = pictures {
        key_frames(&mut lists.key_frames, &file.below, media, pictures);
    }
}

fn most(rates: &[u64]) -> u64 {
    rates.iter().copied().max().unwrap_or(0)
}

/// The sounds by codec, in the order of the file.
fn groups(presentation: &Presentation, sounds: &[usize], suffix: &str) -> Vec<SoundGroup> {
    let mut groups: Vec<SoundGroup> = Vec::new();
    let mut choices = Vec::new();
    for &sound in sounds {
        let track = &presentation.tracks()[sound];
        let codec = track.codec.name();
        let at = groups.iter().position(|group| group.codecs[0] == codec).unwrap_or_else(|| {
            let name = format!("{codec}{suffix}");
            groups.push(SoundGroup { name, codecs: vec![codec], members: Vec::new() });
            groups.len() - 1
        });
        let members = &mut groups[at].members;
        let language = language(track).map(|own| own.name);
        let earlier = members.iter().filter(|member| member.choice.0 == language).count();
        let choice = (language, earlier);
        if !choices.contains(&choice) {
            choices.push(choice.clone());
        }
        members.push(Member { track: sound, choice });
    }
    let has_all = |group: &&SoundGroup| {
        group.members.len() == choices.len() && group.codecs[0].starts_with("mp4a.40.")
    };
    let whole = groups.iter().find(has_all).map(|group| group.members.clone());
    for group in &mut groups {
        let lacks = |member: &&Member| group.members.iter().all(|one| one.choice != member.choice);
        let lacking: Vec<Member> = whole.iter().flatten().filter(lacks).cloned().collect();
        for member in lacking {
            let codec = presentation.tracks()[member.track].codec.name();
            if !group.codecs.contains(&codec) {
                group.codecs.push(codec);
            }
            group.members.push(member);
        }
        let place = |member: &Member| choices.iter().position(|one| *one == member.choice);
        group.members.sort_by_key(place);
    }
    groups
}

/// Writes a line for each sound of a group.
fn list_sounds(text: &mut String, below: &str, presentation: &Presentation, group: &SoundGroup) {
    for (at, member) in group.members.iter().enumerate() {
        let track = &presentation.tracks()[member.track];
        let _ = write!(text, "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{}\"", group.name);
        let is_default = if at == 0 { "YES" } else { "NO" };
        let _ = write!(text, ",NAME=\"{}\"", member.name());
        if let Some(language) = language(track) {
            let _ = write!(text, ",LANGUAGE=\"{}\"", language.tag);
        }
        let _ = write!(text, ",DEFAULT={is_default},AUTOSELECT=YES");
        if let Some(channels) = channels(&track.codec) {
            let _ = write!(text, ",CHANNELS=\"{channels}\"");
        }
        let _ = writeln!(text, ",URI=\"{below}/{}.m3u8\"", member.track + 1);
    }
}

/// A language in playlists and MPDs.
pub(super) struct Language {
    /// RFC 5646.
    pub(super) tag: String,
    /// In English; the code of the file where it is not known.
    pub(super) name: String,
}

/// Language of a track.
pub(super) fn language(track: &Track) -> Option<Language> {
    track.language_name().map(Language::of)
}

impl Language {
    /// That of a code (ISO 639-2) or tag (RFC 5646), which stands for itself where it is not known.
    pub(super) fn of(code: String) -> Language {
        match language_of(&code) {
            Some((tag, name)) => Language { tag: tag.to_owned(), name: name.to_owned() },
            None => Language { tag: code.clone(), name: code },
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

/// Writes a variant: a rendition, with the sounds of a group and their rates.
fn variant(
    lists: &mut Lists,
    below: &str,
    presentation: &Presentation,
    rendition: &Rendition,
    group: Option<(&SoundGroup, (u64, u64))>,
) {
    let list = TrackList(rendition.tracks().to_vec());
    let (peak, mean) = rendition.bits_per_second();
    let (more_peak, more_mean) = group.map_or((0, 0), |(_, added)| added);
    let (more_peak, more_mean) = (more_peak + lists.text_rates.0, more_mean + lists.text_rates.1);
    let mut codecs: Vec<String> =
        list.0.iter().map(|&index| presentation.tracks()[index].codec.name()).collect();
    let of_group = group.iter().flat_map(|(group, _)| &group.codecs);
    let others = of_group.filter(|codec| !codecs.contains(codec)).cloned().collect::<Vec<_>>();
    codecs.extend(others);
    codecs.dedup();
    let mut text = String::new();
    let _ = write!(
        text,
        "#EXT-X-STREAM-INF:BANDWIDTH={},AVERAGE-BANDWIDTH={},CODECS=\"{}{}\"",
        peak + more_peak,
        mean + more_mean,
        codecs.join(","),
        lists.text_codecs
    );
    let pictures = list.0.iter().map(|&index| &presentation.tracks()[index]);
    if let Some(track) = pictures.into_iter().find(|track| track.codec.media() == Kind::Video) {
        resolution(&mut text, track);
        let samples = &track.samples;
        let lasts = samples.end().saturating_sub(samples.sample(0).decode).max(1);
        let rate = samples.len() as f64 * f64::from(samples.timescale()) / lasts as f64;
        let _ = write!(text, ",FRAME-RATE={rate:.3}");
    }
    if let Some((group, _)) = group {
        let _ = write!(text, ",AUDIO=\"{}\"", group.name);
    }
    let _ = write!(text, "\n{below}/{list}.m3u8\n");
    lists.variants.push((peak + more_peak, text));
}

/// Writes the size in which pictures are to be shown (RFC 8216 §4.3.4.2).
fn resolution(text: &mut String, track: &Track) {
    if let Some(shown) = shown_pictures(&track.codec, track.display) {
        let (width, height) = shown.resolution();
        let _ = write!(text, ",RESOLUTION={width}x{height}");
    }
}

/// Writes the line of the playlist of key frames.
fn key_frames(text: &mut String, below: &str, media: &TrackMedia, pictures: usize) {
    let frames = media.plan.key_frames();
    let rates = frames.iter().map(|frame| bits_per_second(frame.bytes, frame.ticks).max(1));
    let peak = rates.max().unwrap_or(0);
    if peak == 0 {
        return;
    }
    let track = &media.asset.presentation.tracks()[pictures];
    let codec = track.codec.name();
    let _ = write!(text, "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH={peak},CODECS=\"{codec}\"");
    resolution(text, track);
    let _ = writeln!(text, ",URI=\"{below}/key.m3u8\"");
}
