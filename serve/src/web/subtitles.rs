// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subtitles of a film, from its text tracks and side-car files, and their cues.
//!
//! Side-car files are parsed when the film's master playlist or MPD is requested, so that one
//! without cues is left out, with its reason in the log. Text tracks are listed from the file's
//! header; their cues are read when the first segment is requested. Cues are kept until those of
//! all films exceed [`MEMORY_BYTES_MAX`]; the verdict on a side-car is kept as long.
//!
//! Costs, once kept: a look-up among the names of the folder for a playlist, a copy of some texts
//! for a segment.
//!
//! Sources: RFC 8216 §3.5 (segments of WebVTT), §4.3.4.1 (EXT-X-MEDIA).
//! Does not parse ([`media::text`]).

use std::net::IpAddr;
use std::sync::Arc;

use media::text::{CueList, text_cues};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::address::SubtitleId;
use super::fair_turns::{FairTurns, Turn};
use super::names::{Language, distinct, shown_name};
use super::side_cars::{SideCar, side_cars, side_cars_of_title};
use super::web_asset::WebAsset;
use super::weighted_cache::weighted_cache;
use crate::http::open_files::OpenFile;
use crate::library::{Library, NoAsset};

/// Memory of all cues, and the expected number of lists.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
const LISTS_EXPECTED: usize = 1024;

/// Lists of cues and texts that are made at a time.
const MAKERS: usize = 2;

/// Name of subtitles without a language.
const UNNAMED: &str = "subtitles";

/// Subtitles as playlists list them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSubtitle {
    pub(super) id: SubtitleId,
    /// Name for viewers, different from those of the others; without quotes and line ends.
    pub(super) name: String,
    /// RFC 5646; the code of the file where it is not known.
    pub(super) language: Option<String>,
    /// At most one of the listed subtitles is the default.
    pub(super) flags: SubtitleFlags,
}

/// Uses of subtitles beside their language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SubtitleFlags {
    /// True where they are shown to a viewer who chose none, as for signs in a film.
    pub(super) is_forced: bool,
    /// True where they are shown until a viewer chooses others.
    pub(super) is_default: bool,
    /// True where they describe sounds, too, for viewers who do not hear them.
    pub(super) is_sdh: bool,
}

/// Cues, or the reason why there are none.
type Cues = Arc<Result<CueList, String>>;

/// The cues that are in use.
pub(crate) struct Subtitles {
    kept: Cache<String, Cues, ByMemory>,
    turns: FairTurns,
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<String, Cues> for ByMemory {
    fn weight(&self, name: &String, cues: &Cues) -> u64 {
        let cues = cues.as_ref().as_ref().map_or_else(String::len, CueList::memory_bytes);
        (name.len() + cues) as u64
    }
}

impl Subtitles {
    pub(super) fn new() -> Subtitles {
        Subtitles {
            kept: weighted_cache(LISTS_EXPECTED, MEMORY_BYTES_MAX, ByMemory),
            turns: FairTurns::new(MAKERS),
        }
    }

    /// Returns the subtitles of a film: those of its tracks, then the side-cars that have cues.
    pub(super) async fn listed(
        &self,
        asset: &WebAsset,
        side_cars: Vec<SideCar>,
        (library, peer): (&Arc<Library>, IpAddr),
    ) -> Vec<ListedSubtitle> {
        let mut listed = Vec::new();
        for track in &asset.text_tracks {
            let (id, language) = (SubtitleId::Track(track.id), track.language.clone());
            let flags = SubtitleFlags { is_forced: track.is_forced, ..SubtitleFlags::default() };
            add(&mut listed, id, track.name.as_deref(), (language, flags));
        }
        for side_car in side_cars {
            let read = self.of_side_car(&side_car, (library, peer)).await;
            let has_cues = match &read {
                Ok(cues) => cues.is_ok(),
                Err(reason) => {
                    tracing::warn!("subtitles {}: left out: {reason}", side_car.file.name);
                    false
                }
            };
            if let (true, Ok(form)) = (has_cues, side_car.form) {
                let id = SubtitleId::SideCar(side_car.identity);
                add(&mut listed, id, None, (form.language, form.flags));
            }
        }
        listed
    }

    /// Returns the cues of subtitles of a film whose content is in `file`.
    ///
    /// # Errors
    /// There are no such subtitles, or they have no cues.
    pub(super) async fn cues(
        &self,
        (film, id): (&str, SubtitleId),
        (asset, file): (&WebAsset, &Arc<OpenFile>),
        (library, peer): (&Arc<Library>, IpAddr),
    ) -> Result<Cues, NoAsset> {
        match id {
            SubtitleId::Track(number) => {
                let is_listed = asset.text_tracks.iter().any(|track| track.id == number);
                if !is_listed {
                    return Err(NoAsset::Refused("the film has no such subtitles".to_owned()));
                }
                let (name, file) = (format!("{film}/~{}/{id}", asset.identity), file.clone());
                let (bytes, origin) = (file.entity().bytes, asset.file_origin_ticks());
                let of = format!("{film}, track {number}");
                let make = move || {
                    let cues = text_cues(&*file, bytes, number, origin);
                    Ok(with_warning(&of, cues.map_err(|reason| reason.to_string())))
                };
                self.get(name, peer, make).await
            }
            SubtitleId::SideCar(identity) => {
                let folder = film.rsplit_once('/').map_or("", |(folder, _)| folder);
                let is_asked = |found: &SideCar| found.identity == identity;
                let found = side_cars(library, film).into_iter().find(is_asked);
                // A file of a folder of renditions has the side-cars of the title.
                let of_folder =
                    || side_cars_of_title(library, folder, "").into_iter().find(is_asked);
                match found.or_else(of_folder) {
                    Some(found) => self.of_side_car(&found, (library, peer)).await,
                    None => Err(NoAsset::Refused(REPLACED.to_owned())),
                }
            }
        }
    }

    /// Resolves when a text may be made for a client; a text of some megabytes takes a while.
    pub(super) async fn turn(&self, peer: IpAddr) -> Turn {
        self.turns.claim_own(peer).turn().await
    }

    async fn of_side_car(
        &self,
        side_car: &SideCar,
        (library, peer): (&Arc<Library>, IpAddr),
    ) -> Result<Cues, NoAsset> {
        // The identity covers the name as well. A side-car over a limit may be read once others are
        // removed.
        let reason = side_car.form.as_ref().err().map_or("", String::as_str);
        let name = format!("{:016x}{reason}", side_car.identity);
        let (side_car, folder) = (side_car.clone(), library.folder.clone());
        self.get(name, peer, move || Ok(with_warning(&side_car.file.name, side_car.read(&folder)?)))
            .await
    }

    /// Returns the cues of this name for a client; `make` makes them, and may read and wait.
    async fn get(
        &self,
        name: String,
        peer: IpAddr,
        make: impl FnOnce() -> Result<Result<CueList, String>, NoAsset> + Send + 'static,
    ) -> Result<Cues, NoAsset> {
        if let Some(kept) = self.kept.get(&name) {
            return Ok(kept);
        }
        let claim = self.turns.claim(peer, &name);
        let made = self.kept.get_or_insert_async(&name, async {
            let turn = claim.turn().await;
            let made = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                make().map(Arc::new)
            });
            made.await.map_err(|panic| NoAsset::Unreadable(panic.to_string()))?
        });
        made.await
    }
}

/// Adds subtitles under a name that no other has.
fn add(
    listed: &mut Vec<ListedSubtitle>,
    id: SubtitleId,
    name: Option<&str>,
    (language, mut flags): (Option<String>, SubtitleFlags),
) {
    let name = name.and_then(shown_name);
    let language = language.map(Language::of);
    let name = name.unwrap_or_else(|| {
        let uses = [(flags.is_sdh, " (SDH)"), (flags.is_forced, " (forced)")];
        let uses = uses.into_iter().filter_map(|(is_used, text)| is_used.then_some(text));
        let of_language = language.as_ref().map_or(UNNAMED, |language| &language.name);
        of_language.to_owned() + &uses.collect::<String>()
    });
    let others: Vec<String> = listed.iter().map(|other| other.name.clone()).collect();
    let name = distinct(&others, &name, false);
    flags.is_default &= listed.iter().all(|other| !other.flags.is_default);
    let language = language.map(|language| language.tag);
    listed.push(ListedSubtitle { id, name, language, flags });
}

/// Reason for a side-car that is gone.
pub(super) const REPLACED: &str =
    "the subtitles were replaced or removed; load master.m3u8 or manifest.mpd again";

/// Logs a warning about the faults of the subtitles of this name.
fn with_warning(name: &str, read: Result<CueList, String>) -> Result<CueList, String> {
    if let Some(finding) = finding(&read) {
        tracing::warn!("subtitles {name}: {finding}");
    }
    read
}

/// Returns the faults of subtitles, in words for people.
fn finding(read: &Result<CueList, String>) -> Option<String> {
    match read {
        Ok(cues) if cues.left_out() > 0 => Some(format!(
            "cues left out: {}, since their times cannot be read, or end before they begin, or \
             their text is too long",
            cues.left_out()
        )),
        Ok(cues) if cues.cues().is_empty() => Some("they have no cue".to_owned()),
        Ok(_) => None,
        Err(reason) => Some(format!("left out: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use media::text::{TextFormat, parse};

    use super::*;

    #[test]
    fn subtitles_without_a_cue_are_named() {
        let parsed = |text: &str| parse(text.as_bytes(), TextFormat::WebVtt).ok();
        let cues = parsed("WEBVTT\n\n00:01.000 --> 00:02.000\nhello\n").unwrap();
        assert_eq!(finding(&Ok(cues)), None);
        assert_eq!(finding(&Ok(CueList::default())).unwrap(), "they have no cue");
        assert_eq!(finding(&Err("no samples".to_owned())).unwrap(), "left out: no samples");
    }

    #[test]
    fn names_differ_and_have_no_quotes() {
        let mut listed = Vec::new();
        let plain = SubtitleFlags::default();
        let sdh = SubtitleFlags { is_sdh: true, is_default: true, ..plain };
        let forced = SubtitleFlags { is_forced: true, is_default: true, ..plain };
        for (name, language, flags) in [
            (None, Some("en"), plain),
            (Some("English"), None, plain),
            (None, None, plain),
            (None, None, plain),
            (Some("a\"\n"), None, forced),
            (None, Some("eng"), sdh),
            (None, Some("en"), forced),
            (None, Some("en"), forced),
        ] {
            let language: Option<&str> = language;
            add(&mut listed, SubtitleId::Track(1), name, (language.map(str::to_owned), flags));
        }
        let names: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
        let of_flags = ["English (SDH)", "English (forced)", "English (forced) 2"];
        assert_eq!(names[..5], ["English", "English 2", "subtitles", "subtitles 2", "a'"]);
        assert_eq!(names[5..], of_flags);
        let tags: Vec<_> = listed.iter().filter_map(|one| one.language.as_deref()).collect();
        assert_eq!(tags, ["en"; 4], "RFC 5646");
        let defaults = listed.iter().filter(|one| one.flags.is_default);
        assert_eq!(defaults.count(), 1, "a group has one (RFC 8216 §4.3.4.1.1)");
    }
}
