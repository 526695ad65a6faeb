// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multivariant playlists of HLS.
//!
//! One track of pictures and at most one of sound are one variant, sent together. Several sounds
//! are alternatives, a group for each codec ([`super::sounds`]), and the pictures are a variant
//! with each group. The key frames are a playlist of their own.
//!
//! BANDWIDTH is the highest rate of a segment and AVERAGE-BANDWIDTH that of all, boxes included, of
//! the pictures, the largest sound of the group and the largest subtitles of TTML.
//!
//! Where an edit list cuts away the beginning of a film, as of one that was cut out of another
//! without encoding, EXT-X-START makes players start behind it: its pictures are needed to decode
//! the others.
//!
//! Sources: RFC 8216 §4.3.4 (tags), §4.3.4.2 (SUBTITLES), §4.3.5.2 (EXT-X-START); RFC 6381
//! (CODECS).
//! Does not decide which files are one title ([`super::title`]).

use std::fmt::Write;

use media::cmaf::{Rendition, TtmlSegments, bits_per_second, peak_and_mean};
use media::tracks::{ShownPictures, Track, TrackMedia as Kind};
use media::{Presentation, TICKS_PER_SECOND};

use super::address::{TrackList, WebItem};
use super::media_playlist::{TICKS_PER_US, seconds};
use super::sounds::{SoundGroup, Sounds};
use super::stream_media::StreamMedia;
use super::subtitles::ListedSubtitle;
use super::ts_form::TsForm;
use super::ttml_tracks::has_playlist;
use super::web_asset::WebAsset;
use super::web_media::{TrackMedia, WebMedia};

/// Time cut away from the beginning above which the cut is stated: encoders of sound insert frames
/// of up to this time in front.
const CUT_AWAY_MIN: u64 = TICKS_PER_SECOND / 10;

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
    let cut_away = files.iter().map(|file| file.asset.cut_away_ticks()).max().unwrap_or(0);
    if cut_away > CUT_AWAY_MIN {
        let offset = seconds(cut_away / TICKS_PER_US);
        let _ = writeln!(text, "#EXT-X-START:TIME-OFFSET={offset},PRECISE=YES");
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

/// Writes the lines of all subtitles, except TTML whose times are not those of all variants.
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

fn of_tracks(lists: &mut Lists, file: &Listed<'_>, media: &TrackMedia) {
    let presentation = &media.asset.presentation;
    let tracks = presentation.tracks();
    let offered = |list: &[usize]| {
        let has_section = media.inits.contains_key(&TrackList(list.to_vec()));
        media.plan.rendition(list).filter(|one| has_section && media.is_offered(one))
    };
    let is_offered = |&index: &usize| offered(&[index]).is_some();
    let pictures = media.plan.pictures(presentation).filter(is_offered);
    let is_sound = |&index: &usize| tracks[index].codec.media() == Kind::Audio;
    let sounds: Vec<usize> = (0..tracks.len()).filter(is_sound).filter(is_offered).collect();
    let is_independent = |list: &TrackList| {
        media.plan.rendition(&list.0).is_none_or(|one| media.is_independent(one))
    };
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
        let sounds = Sounds::new(presentation, &sounds, &file.suffix);
        for group in &sounds.groups {
            sounds.list(&mut lists.sounds, &file.below, group);
            let leading = pictures.or_else(|| group.tracks().next());
            let rates = group.tracks().filter_map(|track| offered(&[track]));
            let rates = rates.map(Rendition::bits_per_second);
            let (peaks, means): (Vec<u64>, Vec<u64>) = rates.unzip();
            let (mut peak, mut mean) = (most(&peaks), most(&means));
            let Some(leading) = leading.and_then(|track| offered(&[track])) else { continue };
            if pictures.is_none() {
                // It is one of the sounds.
                let own = leading.bits_per_second();
                (peak, mean) = (peak.saturating_sub(own.0), mean.saturating_sub(own.1));
            }
            variant(lists, &file.below, presentation, leading, Some((group, (peak, mean))));
        }
    }
    if let Some(pictures) = pictures {
        key_frames(&mut lists.key_frames, &file.below, media, pictures);
    }
}

fn most(rates: &[u64]) -> u64 {
    rates.iter().copied().max().unwrap_or(0)
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
    if let Some(shown) = ShownPictures::of(&track.codec, track.display) {
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
