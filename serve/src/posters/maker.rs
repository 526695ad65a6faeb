// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses key frames of a file and makes its poster, or its thumbnails with their list.
//!
//! A poster is one of six key frames between a tenth and half of the title: the first that is not
//! flat; the last key frame is a further candidate. A flat picture (black, a fade) has few bytes as
//! JPEG, so the size decides. Thumbnails are one key frame for every two seconds of the title, or
//! for more seconds if that would be more than about [`THUMBNAILS_MAX`]; a hundred lie on a sheet,
//! and WebVTT maps times to parts of sheets, as players of the web expect it.
//!
//! Sources: WebVTT §4 (cues); Media Fragments URI 1.0 §4.2.2 (`xywh`).
//! Does not decode ([`super::decoder`]).

use std::io;
use std::time::Duration;

use media::TICKS_PER_SECOND;
use media::key_pictures::{KeyPicture, KeyPictures};
use paths::MappedFile;

use super::decoder::{DecodeFault, DecodeTerms, Decoder};
use super::framing::Jpeg;
use super::{PictureKind, PictureSet};
use crate::library::asset::LibraryAsset;

/// Makes the pictures of an asset whose content is in `file`. Blocks for seconds: reads the
/// file and waits for the decoder.
pub(super) fn make(
    kind: PictureKind,
    asset: &LibraryAsset,
    file: &MappedFile,
    decoder: &Decoder<'_>,
) -> Result<PictureSet, DecodeFault> {
    let keys = match asset {
        LibraryAsset::Stream(asset) => KeyPictures::of_stream(&asset.plan),
        LibraryAsset::Tracks(asset) => KeyPictures::of_tracks(&asset.presentation),
    };
    let none = || DecodeFault::Nothing(": the file has no pictures".to_owned());
    let keys = keys.filter(|keys| !keys.list().is_empty()).ok_or_else(none)?;
    match kind {
        PictureKind::Poster => poster(&keys, file, decoder),
        PictureKind::Thumbnails => thumbnails(&keys, file, decoder),
    }
}

/// Decodes pictures; returns each readable one together with its JPEG file.
fn decoded(
    keys: &KeyPictures<'_>,
    chosen: &[KeyPicture],
    file: &MappedFile,
    (decoder, terms): (&Decoder<'_>, DecodeTerms),
) -> Result<Vec<(KeyPicture, Vec<u8>)>, DecodeFault> {
    let mut read = Vec::with_capacity(chosen.len());
    let mut left = chosen.iter();
    let next = || -> io::Result<Option<Vec<u8>>> {
        for picture in left.by_ref() {
            // A scrambled or damaged picture is skipped.
            if let Some(bytes) = keys.read(picture, file.file())? {
                read.push(*picture);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    };
    let files = decoder.decode(keys.coding(), next, terms)?;
    Ok(read.into_iter().zip(files).collect())
}

fn poster(
    keys: &KeyPictures<'_>,
    file: &MappedFile,
    decoder: &Decoder<'_>,
) -> Result<PictureSet, DecodeFault> {
    let at_or_behind = |percent: u64| {
        let ticks = u128::from(keys.duration_ticks()) * u128::from(percent) / 100;
        keys.list().iter().find(|picture| u128::from(picture.presented_ticks) >= ticks)
    };
    let places = CANDIDATES_PERCENT.into_iter().filter_map(at_or_behind);
    let mut chosen: Vec<KeyPicture> = Vec::new();
    // In a short film all key frames may precede these places.
    for picture in places.chain(keys.list().last()) {
        if !chosen.contains(picture) {
            chosen.push(*picture);
        }
    }
    let found = decoded(keys, &chosen, file, (decoder, POSTER))?;
    let most = found.iter().map(|(_, jpeg)| jpeg.len()).max();
    let nothing = || DecodeFault::Nothing(String::new());
    let least = most.ok_or_else(nothing)? * FLAT_PERCENT / 100;
    let poster = found.into_iter().map(|(_, jpeg)| jpeg).find(|jpeg| jpeg.len() >= least);
    Ok(PictureSet { list: String::new(), pictures: poster.into_iter().collect() })
}

fn thumbnails(
    keys: &KeyPictures<'_>,
    file: &MappedFile,
    decoder: &Decoder<'_>,
) -> Result<PictureSet, DecodeFault> {
    let apart = (keys.duration_ticks() / THUMBNAILS_MAX).max(THUMBNAIL_TICKS);
    let mut chosen = keys.spread(apart);
    // A file may have presentation times after the end of its duration.
    chosen.truncate(THUMBNAILS_MAX as usize + 1);
    let tiles = decoded(keys, &chosen, file, (decoder, THUMBNAIL))?;
    let first = tiles.first().and_then(|(_, jpeg)| Jpeg::read(jpeg));
    let size = first.ok_or_else(|| DecodeFault::Nothing(String::new()))?;
    let starts: Vec<u64> = tiles.iter().map(|(picture, _)| picture.presented_ticks).collect();
    let mut pictures = Vec::new();
    for sheet in tiles.chunks(COLUMNS * COLUMNS) {
        let files: Vec<Vec<u8>> = sheet.iter().map(|(_, jpeg)| jpeg.clone()).collect();
        pictures.push(decoder.join(&files, files.len().min(COLUMNS), SHEET)?);
    }
    Ok(PictureSet { list: list(&starts, keys.duration_ticks(), size), pictures })
}

/// Returns the WebVTT list of tiles that are shown from `starts` on, the last until `end`.
fn list(starts: &[u64], end: u64, size: Jpeg) -> String {
    let (width, height) = (usize::from(size.width), usize::from(size.height));
    let mut text = "WEBVTT\n".to_owned();
    for (number, &start) in starts.iter().enumerate() {
        // The first thumbnail also covers the time before it.
        let start = if number == 0 { 0 } else { start };
        let until = starts.get(number + 1).copied().unwrap_or(end);
        if until <= start {
            continue;
        }
        let (sheet, tile) = (number / (COLUMNS * COLUMNS), number % (COLUMNS * COLUMNS));
        let (x, y) = (tile % COLUMNS * width, tile / COLUMNS * height);
        text += &format!(
            "\n{} --> {}\nthumbnails-{sheet}.jpg#xywh={x},{y},{width},{height}\n",
            clock(start),
            clock(until)
        );
    }
    text
}

/// Formats a time as WebVTT writes it: hh:mm:ss.ttt.
fn clock(ticks: u64) -> String {
    let milliseconds = u128::from(ticks) * 1000 / u128::from(TICKS_PER_SECOND);
    let (seconds, milliseconds) = (milliseconds / 1000, milliseconds % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!("{:02}:{:02}:{seconds:02}.{milliseconds:03}", minutes / 60, minutes % 60)
}

/// Places in the title from which key frames for a poster are searched for.
const CANDIDATES_PERCENT: [u64; 6] = [10, 15, 20, 30, 40, 50];
/// Percentage of the largest candidate's JPEG bytes below which a picture is flat; a black picture
/// has about 5 %.
const FLAT_PERCENT: usize = 40;

/// Most thumbnails of a title, except for one more at its end.
const THUMBNAILS_MAX: u64 = 400;
/// Shortest time for which one thumbnail is chosen.
const THUMBNAIL_TICKS: u64 = 2 * TICKS_PER_SECOND;
/// Tiles of a row, and rows of a sheet.
const COLUMNS: usize = 10;

const POSTER: DecodeTerms = DecodeTerms {
    width: 320,
    height_max: 640,
    quality: 4,
    cpu_s: 20,
    wall: Duration::from_secs(60),
};
const THUMBNAIL: DecodeTerms = DecodeTerms {
    width: 160,
    height_max: 320,
    quality: 3,
    cpu_s: 120,
    wall: Duration::from_secs(300),
};
const SHEET: DecodeTerms = DecodeTerms { quality: 5, cpu_s: 20, ..POSTER };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_names_the_tile_of_each_time() {
        let starts: Vec<u64> = (0..102).map(|tile| (tile * 3 + 1) * TICKS_PER_SECOND).collect();
        let size = Jpeg { bytes: 0, width: 160, height: 90 };
        let text = list(&starts, 4000 * TICKS_PER_SECOND, size);
        let cues: Vec<&str> = text.split("\n\n").skip(1).collect();
        assert_eq!(cues.len(), 102);
        assert_eq!(cues[0], "00:00:00.000 --> 00:00:04.000\nthumbnails-0.jpg#xywh=0,0,160,90");
        assert_eq!(cues[13], "00:00:40.000 --> 00:00:43.000\nthumbnails-0.jpg#xywh=480,90,160,90");
        assert_eq!(
            cues[101],
            "00:05:04.000 --> 01:06:40.000\nthumbnails-1.jpg#xywh=160,0,160,90\n"
        );
    }

    #[test]
    fn cues_have_a_duration() {
        let size = Jpeg { bytes: 0, width: 2, height: 2 };
        let text = list(&[0, 0, TICKS_PER_SECOND], TICKS_PER_SECOND, size);
        assert_eq!(
            text,
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n\
            thumbnails-0.jpg#xywh=2,0,2,2\n"
        );
    }
}
