// SPDX-License-Identifier: MIT OR Apache-2.0
//! side_cars: files of subtitles beside a film: `film.srt`, `film.en.srt`, `film.pt-BR.vtt` of
//! `film.mp4`.
//!
//! They are found among the names that the library has, by one look-up and a step for each name
//! that begins like the film's, and opened as requests open files: no link leads out of the served
//! folder. A side-car's identity is made of its name, size and time of change, so that one that was
//! replaced has another address.
//!
//! Sources: RFC 5646 §2.1 (language tags).
//! Does not look into folders of links, which the library does not list. Does not read words other
//! than a language between the film's name and the extension.

use std::io::Read;
use std::time::SystemTime;

use aws_lc_rs::digest;
use media::text::{CueList, TEXT_BYTES_MAX, TextFormat, is_language, parse};

use crate::library::served_folder::{Denied, Folder};
use crate::library::{Library, ListedFile, NoAsset};

/// Side-car files of a film: there are films with forty languages.
const SIDE_CARS_MAX: usize = 64;

/// Bytes of all side-car files of a film, which are parsed for its playlist; those behind are left
/// out.
const BYTES_MAX: u64 = 16 << 20;

/// Names that are looked at for them.
const NAMES_MAX: usize = 4096;

/// A side-car file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SideCar {
    pub(super) file: ListedFile,
    pub(super) format: TextFormat,
    pub(super) language: Option<String>,
    /// Identity of its content.
    pub(super) identity: u64,
}

/// Returns the side-car files of the film of this name.
pub(super) fn side_cars(library: &Library, film: &str) -> Vec<SideCar> {
    let stem = stem(film);
    let beginning = format!("{stem}.");
    let files = library.beginning_with(&beginning, NAMES_MAX).into_iter();
    let found = files.filter_map(|file| {
        let (format, language) = kind(file.name.strip_prefix(&beginning)?)?;
        let identity = identity(&file);
        Some(SideCar { file, format, language, identity })
    });
    let mut bytes = 0;
    let is_read = |side_car: &SideCar| {
        // One that is too large is refused without a read.
        let own = Some(side_car.file.bytes).filter(|own| *own <= TEXT_BYTES_MAX as u64);
        bytes += own.unwrap_or(0);
        bytes <= BYTES_MAX
    };
    found.take(SIDE_CARS_MAX).take_while(is_read).collect()
}

/// The name without its extension.
fn stem(film: &str) -> &str {
    let name = film.rfind('/').map_or(0, |slash| slash + 1);
    match film[name..].rfind('.') {
        Some(dot) if dot > 0 => &film[..name + dot],
        _ => film,
    }
}

/// Format and language by the end of a side-car's name.
fn kind(end: &str) -> Option<(TextFormat, Option<String>)> {
    let (language, extension) = match end.rsplit_once('.') {
        Some((language, extension)) => (Some(language), extension),
        None => (None, end),
    };
    let format = match extension {
        _ if extension.eq_ignore_ascii_case("srt") => TextFormat::SubRip,
        _ if extension.eq_ignore_ascii_case("vtt") => TextFormat::WebVtt,
        _ => return None,
    };
    match language {
        Some(language) if !is_language(language) => None,
        language => Some((format, language.map(str::to_owned))),
    }
}

fn identity(file: &ListedFile) -> u64 {
    let since = |from: SystemTime, to: SystemTime| to.duration_since(from).ok();
    let epoch = SystemTime::UNIX_EPOCH;
    let after = since(epoch, file.modified).map(|time| time.as_nanos());
    let before = since(file.modified, epoch).map(|time| time.as_nanos());
    let text = format!("{}\n{}\n{after:?}\n{before:?}", file.name, file.bytes);
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    u64::from_be_bytes(hash.as_ref()[..8].try_into().expect("a hash has 32 bytes"))
}

impl SideCar {
    /// Reads the cues. May read and wait.
    ///
    /// # Errors
    /// The file changes or cannot be read; the inner error is the reason why it has no cues.
    pub(super) fn read(&self, folder: &Folder) -> Result<Result<CueList, String>, NoAsset> {
        let ListedFile { name, bytes, modified } = &self.file;
        if *bytes > TEXT_BYTES_MAX as u64 {
            return Ok(Err(format!("{bytes} bytes, over {TEXT_BYTES_MAX}")));
        }
        let (file, metadata) = match folder.file(name) {
            Ok(opened) => opened,
            // It was removed or replaced since it was listed.
            Err(Denied::Missing | Denied::NotAFile) => return Err(NoAsset::CHANGING),
            Err(denied) => return Err(NoAsset::Denied(denied.into())),
        };
        let is_listed = |length: u64, time: Option<SystemTime>| {
            length == *bytes && time.unwrap_or(SystemTime::UNIX_EPOCH) == *modified
        };
        if !is_listed(metadata.len(), metadata.modified().ok()) {
            return Err(NoAsset::CHANGING);
        }
        let mut content = Vec::with_capacity(*bytes as usize);
        let read = (&file).take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut content);
        let after = read.and_then(|_| file.metadata());
        let after = after.map_err(|error| NoAsset::Unreadable(format!("{name}: {error}")))?;
        if !is_listed(content.len() as u64, after.modified().ok()) {
            return Err(NoAsset::CHANGING);
        }
        Ok(parse(&content, self.format).map_err(|fault| fault.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_format_and_language() {
        let language = |end: &str| kind(end).map(|(_, language)| language.unwrap_or_default());
        for (end, expected) in [
            ("srt", Some("")),
            ("SRT", Some("")),
            ("vtt", Some("")),
            ("en.srt", Some("en")),
            ("pt-BR.Vtt", Some("pt-BR")),
            ("mp4", None),
            ("en.mp4", None),
            ("2.srt", None),
            ("final.srt", None),
            ("en.sdh.srt", None),
            (".srt", None),
            ("en\"x.srt", None),
            ("srt.bak", None),
        ] {
            assert_eq!(language(end).as_deref(), expected, "{end}");
        }
    }

    #[test]
    fn the_stem_is_the_name_without_its_extension() {
        for (film, expected) in [
            ("a.mp4", "a"),
            ("films/a.b.mp4", "films/a.b"),
            ("films.d/a", "films.d/a"),
            ("films.d/.a", "films.d/.a"),
        ] {
            assert_eq!(stem(film), expected);
        }
    }

    #[test]
    fn a_file_that_was_replaced_has_another_identity() {
        let of = |name: &str, bytes, ms| {
            let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(ms);
            identity(&ListedFile { name: name.to_owned(), bytes, modified })
        };
        let first = of("a.srt", 1, 1);
        assert_eq!(of("a.srt", 1, 1), first);
        assert!(
            [of("b.srt", 1, 1), of("a.srt", 2, 1), of("a.srt", 1, 2)].iter().all(|&i| i != first)
        );
    }
}
