// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of one folder that are renditions of one title.
//!
//! `film/master.m3u8` and `film/manifest.mpd` of a folder `film` are the title whose renditions are
//! the media files directly in it: two to [`FILES_MAX`]. They are renditions of one title when all
//! have pictures, and their segments begin at the same times, within [`APART_MAX`]: encoders put
//! key frames at the same pictures where they are configured to. Otherwise the answer names the
//! file that differs, and the place. Subtitles are those of one of the files, with the side-cars of
//! the folder: `film/film.en.srt` or `film/en.srt`. Nothing is kept: the plans of the files are
//! ([`super::web_assets`]).
//!
//! Costs a comparison of all segments' starts and the writing of the text, for each request.
//!
//! Sources: RFC 8216 §6.2.4 (variants have matching timelines); ISO/IEC 23009-1 §5.3.3.2
//! (segmentAlignment).
//! Does not join files of other folders, or sounds of their own.

use std::net::IpAddr;
use std::sync::Arc;

use media::TICKS_PER_SECOND;
use wire::http::escape_path;

use super::address::WebItem;
use super::item_response::NO_CIPHER_OF_DASH;
use super::master::Listed;
use super::protection::SegmentCipher;
use super::side_cars::side_cars_of_title;
use super::subtitles::ListedSubtitle;
use super::ts_form::TsForm;
use super::web_asset::WebAsset;
use super::web_assets::WebAssets;
use super::{manifest, master};
use crate::library::Library;

/// Files of a title.
pub(crate) const FILES_MAX: usize = 16;

/// Ticks by which the starts of one segment may differ: less than a picture of 30 a second, and
/// more than the rounding of any time scale.
const APART_MAX: u64 = TICKS_PER_SECOND / 50;

/// The files of a title, by name.
pub(crate) struct Title {
    /// Name of each in the folder, with its plan.
    files: Vec<(String, Arc<WebAsset>)>,
    /// Subtitles of one of the files, with its index.
    subtitles: (usize, Vec<ListedSubtitle>),
}

impl Title {
    pub(crate) fn new() -> Title {
        Title { files: Vec::new(), subtitles: (0, Vec::new()) }
    }

    /// Adds a file of this name in the folder.
    pub(crate) fn push(&mut self, name: &str, asset: Arc<WebAsset>) {
        self.files.push((name.to_owned(), asset));
    }

    /// Lists the subtitles of the title, whose files are in `folder`: those of the first file that
    /// has tracks of text, or of the first, and the side-cars of the folder. They are sent as that
    /// file's, with its segments.
    pub(crate) async fn list_subtitles(
        &mut self,
        folder: &str,
        web: &WebAssets,
        (library, peer): (&Arc<Library>, IpAddr),
    ) {
        let has_text = |(_, asset): &(String, Arc<WebAsset>)| !asset.text_tracks.is_empty();
        let index = self.files.iter().position(has_text).unwrap_or(0);
        let Some((name, asset)) = self.files.get(index) else { return };
        let found = side_cars_of_title(library, folder, &format!("{folder}/{name}"));
        self.subtitles = (index, web.subtitles.listed(asset, found, (library, peer)).await);
    }

    /// True where segments of its files are enciphered with this cipher.
    pub(super) fn has_cipher(&self, cipher: SegmentCipher) -> bool {
        self.files.iter().any(|(_, asset)| asset.has_cipher(cipher))
    }

    /// Returns the playlist, with transport streams in this form, or the description.
    ///
    /// # Errors
    /// The reason why its files are no renditions of one title.
    pub(super) fn text(&self, item: &WebItem, form: TsForm) -> Result<Vec<u8>, String> {
        let cuts = self.files.iter().map(|(name, asset)| {
            let cuts = asset.cuts().ok_or_else(|| format!("{name} has no pictures"))?;
            Ok((&name[..], cuts))
        });
        let cuts: Vec<(&str, Vec<u64>)> = cuts.collect::<Result<_, String>>().map_err(no_title)?;
        check(&cuts).map_err(no_title)?;
        let listed: Vec<Listed<'_>> = self
            .files
            .iter()
            .enumerate()
            .map(|(index, (name, asset))| {
                let subtitles = match index == self.subtitles.0 {
                    true => &self.subtitles.1[..],
                    false => &[],
                };
                let suffix = format!("-{}", index + 1);
                asset.listed(format!("{}/", escape_path(name)), &suffix, subtitles)
            })
            .collect();
        match item {
            WebItem::Manifest if self.has_cipher(SegmentCipher::Aes128) => {
                Err(NO_CIPHER_OF_DASH.to_owned())
            }
            WebItem::Manifest => manifest::text(&listed, None)
                .ok_or_else(|| no_title("no track can be played by itself".to_owned())),
            _ => Ok(master::text(&listed, form)),
        }
    }
}

fn no_title(reason: String) -> String {
    format!("the files of this folder are no renditions of one title: {reason}")
}

/// Compares the times at which the segments of all files begin.
fn check(files: &[(&str, Vec<u64>)]) -> Result<(), String> {
    let Some(((first, expected), others)) = files.split_first() else { return Ok(()) };
    for (name, cuts) in others {
        let differs = |(one, other): (&u64, &u64)| one.abs_diff(*other) > APART_MAX;
        let at = expected.iter().zip(cuts).position(differs);
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND as f64;
        if let Some(at) = at {
            return Err(format!(
                "segment {at} of {name} begins at {:.2} s, that of {first} at {:.2} s; encode them \
                 with key frames at the same pictures",
                seconds(cuts[at]),
                seconds(expected[at])
            ));
        }
        if cuts.len() != expected.len() {
            return Err(format!(
                "{first} has {} segments, {name} has {}; encode them with key frames at the same \
                 pictures",
                expected.len(),
                cuts.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = TICKS_PER_SECOND;

    #[test]
    fn files_with_segments_at_the_same_times_are_renditions() {
        let cuts = vec![0, 6 * SECOND, 12 * SECOND];
        let nearly = vec![0, 6 * SECOND + SECOND / 100, 12 * SECOND - SECOND / 90];
        assert_eq!(check(&[("a", cuts.clone()), ("b", nearly), ("c", cuts)]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn the_first_difference_is_named() {
        let cuts = |at: u64| vec![0, 6 * SECOND, at];
        let reason = check(&[("a.mp4", cuts(12 * SECOND)), ("b.mp4", cuts(11 * SECOND))]);
        let reason = reason.unwrap_err();
        let expected = "segment 2 of b.mp4 begins at 11.00 s, that of a.mp4 at 12.00 s";
        assert!(reason.starts_with(expected), "{reason}");
        let reason = check(&[("a.mp4", vec![0, 6 * SECOND]), ("b.mp4", vec![0])]).unwrap_err();
        assert!(reason.starts_with("a.mp4 has 2 segments, b.mp4 has 1;"), "{reason}");
    }
}
