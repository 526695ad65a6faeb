// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of subtitles beside a film: `film.srt`, `film.en.srt`, `film.pt-BR.forced.vtt` of
//! `film.mp4`; and of a folder of renditions, in it alone: beside it other rules may hold.
//!
//! They are found among the names that the library has, by one look-up and a step for each name
//! that begins like the film's, and opened as requests open files: no link leads out of the served
//! folder. A side-car's identity is made of its name, size and time of change, so that a replaced
//! one has another address. The words between the film's name and the extension are read as media
//! servers read them, in any order: a language, `forced`, `default`, `sdh` or `cc` or `hi`, a
//! number. A file that looks like subtitles of the film and is not read has a reason in place of a
//! format.
//!
//! Sources: RFC 5646 §2.1 (language tags).
//! Does not look into folders of links, which the library does not list.

use std::collections::HashSet;
use std::io::Read;
use std::time::SystemTime;

use aws_lc_rs::digest;
use media::language_of;
use media::text::{CueList, TEXT_BYTES_MAX, TextFormat, is_language, parse};

use super::subtitles::SubtitleFlags;
use crate::library::served_folder::{Denied, Folder};
use crate::library::{Library, ListedFile, NoAsset};

/// Side-car files of a film: there are films with forty languages.
const SIDE_CARS_MAX: usize = 64;

/// Bytes of all side-car files of a film, which are parsed for its playlist; those behind are left
/// out.
const BYTES_MAX: u64 = 16 << 20;

/// Number of names examined for them.
const NAMES_MAX: usize = 4096;

/// Digits of the number of one of several side-cars: four are a year, or a part of a film's name.
const NUMBER_DIGITS_MAX: usize = 3;

/// Extensions of subtitles that are not read.
const UNREAD: [&str; 6] = ["ass", "ssa", "sub", "sup", "smi", "ttml"];

/// A side-car file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SideCar {
    pub(super) file: ListedFile,
    /// Its form, or the reason why it is left out.
    pub(super) form: Result<SideCarForm, String>,
    /// Identity of its content.
    pub(super) identity: u64,
}

/// Form of a side-car, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SideCarForm {
    format: TextFormat,
    pub(super) language: Option<String>,
    pub(super) flags: SubtitleFlags,
}

/// Returns the side-car files of the film of this name: in each language the plain ones first, and
/// behind all languages those that are left out.
pub(super) fn side_cars(library: &Library, film: &str) -> Vec<SideCar> {
    limited(named(library, stem(film)))
}

/// Returns the side-car files in a folder of renditions likewise, with those of one of them (empty
/// for none): by the folder's name (`film/film.en.srt`) and by their language (`film/en.srt`).
pub(super) fn side_cars_of_title(library: &Library, folder: &str, film: &str) -> Vec<SideCar> {
    if folder.is_empty() {
        return Vec::new();
    }
    let name = folder.rsplit_once('/').map_or(folder, |(_, name)| name);
    let mut found = match film {
        "" => Vec::new(),
        film => named(library, stem(film)),
    };
    found.extend(named(library, &format!("{folder}/{name}")));
    let beginning = format!("{folder}/");
    let mut files = library.beginning_with(&beginning, NAMES_MAX);
    files.retain(|file| !file.name[beginning.len()..].contains('/'));
    found.extend(among(files, beginning.len(), |form, is_of_other| {
        !is_of_other && form.as_ref().is_ok_and(|form| form.language.is_some())
    }));
    limited(found)
}

/// Returns the side-cars whose names are this one, a point and words.
fn named(library: &Library, stem: &str) -> Vec<SideCar> {
    let beginning = format!("{stem}.");
    let files = library.beginning_with(&beginning, NAMES_MAX);
    let last = files.last().filter(|_| files.len() == NAMES_MAX).cloned();
    let mut found = among(files, beginning.len(), is_named);
    found.extend(last.map(|file| {
        let reason = format!("{NAMES_MAX} names begin like the film's, and no more are looked at");
        SideCar { identity: identity(&file), file, form: Err(reason) }
    }));
    found
}

/// True for a side-car of this film, judged by its form and by `is_of_other`: its name may be that
/// of another film with words. `film.2.srt` belongs to `film.2.mp4`, if there is one.
fn is_named(form: &Result<SideCarForm, String>, is_of_other: bool) -> bool {
    !is_of_other || form.as_ref().is_ok_and(|form| form.language.is_some())
}

/// Returns the side-cars among files whose names have this many bytes in front of the words.
fn among(
    files: Vec<ListedFile>,
    common: usize,
    is_own: impl Fn(&Result<SideCarForm, String>, bool) -> bool,
) -> Vec<SideCar> {
    let is_other = |file: &&ListedFile| form(&file.name[common..]).is_none();
    let stems: HashSet<String> =
        files.iter().filter(is_other).map(|file| stem(&file.name).to_owned()).collect();
    let is_of_other = |name: &str| {
        name[common..].match_indices('.').any(|(dot, _)| stems.contains(&name[..common + dot]))
    };
    let found = files.into_iter().filter_map(|file| {
        let form = form(&file.name[common..])?;
        let identity = identity(&file);
        is_own(&form, is_of_other(&file.name)).then_some(SideCar { file, form, identity })
    });
    found.collect()
}

/// Sorts them, and leaves out those over the limits.
fn limited(mut found: Vec<SideCar>) -> Vec<SideCar> {
    found.sort_by_key(|one| match &one.form {
        Ok(form) => (false, form.flags.is_forced, form.flags.is_sdh),
        Err(_) => (true, false, false),
    });
    let mut bytes = 0;
    let is_read = |side_car: &&SideCar| {
        // A side-car that is too large is refused without a read.
        let own = Some(side_car.file.bytes).filter(|own| *own <= TEXT_BYTES_MAX as u64);
        bytes += own.unwrap_or(0);
        bytes <= BYTES_MAX
    };
    let kept = found.iter().take(SIDE_CARS_MAX).take_while(is_read).count();
    let over = found.len() - kept;
    found.truncate(kept + 1);
    if let Some(first) = found.get_mut(kept) {
        first.form = Err(format!(
            "it and {} more: a film has {SIDE_CARS_MAX} side-car files, of {} MiB in all",
            over - 1,
            BYTES_MAX >> 20
        ));
    }
    found
}

/// The name without its extension.
fn stem(film: &str) -> &str {
    let name = film.rfind('/').map_or(0, |slash| slash + 1);
    match film[name..].rfind('.') {
        Some(dot) if dot > 0 => &film[..name + dot],
        _ => film,
    }
}

/// Returns the form of a side-car by the end of its name, or the reason why it is not read; `None`
/// for another file.
fn form(end: &str) -> Option<Result<SideCarForm, String>> {
    let (words, extension) = end.rsplit_once('.').unwrap_or(("", end));
    let extension = extension.to_ascii_lowercase();
    let format = match &extension[..] {
        "srt" => TextFormat::SubRip,
        "vtt" => TextFormat::WebVtt,
        other if UNREAD.contains(&other) => {
            let reason = "SubRip (.srt) and WebVTT (.vtt) are read beside a film";
            return Some(Err(format!(".{other}: {reason}")));
        }
        _ => return None,
    };
    let mut flags = SubtitleFlags::default();
    let (mut language, mut is_hi) = (None, false);
    for word in words.split('.').filter(|word| !word.is_empty()) {
        match &word.to_ascii_lowercase()[..] {
            "forced" => flags.is_forced = true,
            "default" => flags.is_default = true,
            "sdh" | "cc" => flags.is_sdh = true,
            "hi" => is_hi = true,
            number if is_number(number) => {}
            lower => match language_tag(word, lower) {
                Some(tag) if language.is_none() => language = Some(tag),
                _ => {
                    return Some(Err(format!(
                        "{word:?} is no language, number, forced, default, sdh, cc or hi, or a \
                         second language: the words of its name are one language and those"
                    )));
                }
            },
        }
    }
    // It is the code of Hindi, too.
    match &language {
        Some(_) => flags.is_sdh |= is_hi,
        None if is_hi => language = Some("hi".to_owned()),
        None => {}
    }
    Some(Ok(SideCarForm { format, language, flags }))
}

fn is_number(word: &str) -> bool {
    word.len() <= NUMBER_DIGITS_MAX && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Language tag of a word and itself in small letters: a tag, a code of three letters, or the
/// English name.
fn language_tag(word: &str, lower: &str) -> Option<String> {
    match language_of(lower) {
        Some((tag, _)) => Some(tag.to_owned()),
        None => Some(word.to_owned()).filter(|word| is_language(word)),
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
        let format = match &self.form {
            Ok(form) => form.format,
            Err(reason) => return Ok(Err(reason.clone())),
        };
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
        Ok(parse(&content, format).map_err(|fault| fault.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, bytes: u64) -> ListedFile {
        ListedFile { name: name.to_owned(), bytes, modified: SystemTime::UNIX_EPOCH }
    }

    fn among_named(files: Vec<ListedFile>, common: usize) -> Vec<SideCar> {
        limited(among(files, common, is_named))
    }

    #[test]
    fn names_tell_format_language_and_use() {
        let described = |end: &str| {
            form(end).map(|form| match form {
                Ok(SideCarForm { language, flags, .. }) => {
                    let uses = [
                        (flags.is_forced, " forced"),
                        (flags.is_default, " default"),
                        (flags.is_sdh, " sdh"),
                    ];
                    let uses = uses.into_iter().filter(|(is_used, _)| *is_used);
                    language.unwrap_or_default() + &uses.map(|(_, text)| text).collect::<String>()
                }
                Err(reason) => format!("left out: {reason}"),
            })
        };
        for (end, expected) in [
            ("srt", Some("")),
            ("SRT", Some("")),
            ("vtt", Some("")),
            (".srt", Some("")),
            ("en.srt", Some("en")),
            ("pt-BR.Vtt", Some("pt-BR")),
            ("eng.srt", Some("en")),
            ("gsw.srt", Some("gsw")),
            ("English.srt", Some("en")),
            ("en.forced.srt", Some("en forced")),
            ("Forced.EN.srt", Some("en forced")),
            ("en.default.srt", Some("en default")),
            ("en.sdh.srt", Some("en sdh")),
            ("en.cc.vtt", Some("en sdh")),
            ("en.hi.srt", Some("en sdh")),
            ("hi.en.srt", Some("en sdh")),
            ("hi.srt", Some("hi")),
            ("hi.forced.srt", Some("hi forced")),
            ("en.forced.default.sdh.2.srt", Some("en forced default sdh")),
            ("forced.srt", Some(" forced")),
            ("2.srt", Some("")),
            ("en.2.srt", Some("en")),
            ("mp4", None),
            ("en.mp4", None),
            ("srt.bak", None),
        ] {
            assert_eq!(described(end).as_deref(), expected, "{end}");
        }
        for (end, reason) in [
            ("final.srt", "left out: \"final\" is no language, number, forced, default, sdh"),
            ("2021.srt", "left out: \"2021\" is no language"),
            ("en.de.srt", "left out: \"de\" is no language"),
            ("en\"x.srt", "left out: \"en\\\"x\" is no language"),
            ("en.ass", "left out: .ass: SubRip (.srt) and WebVTT (.vtt) are read"),
            ("SSA", "left out: .ssa"),
            ("en.sub", "left out: .sub"),
        ] {
            let described = described(end).expect("a reason");
            assert!(described.starts_with(reason), "{end}: {described}");
        }
    }

    #[test]
    fn names_of_another_film_are_its_own() {
        let files = ["film.2.mp4", "film.2.srt", "film.3.srt", "film.en.mp4", "film.en.srt"];
        let files = files.into_iter().chain(["film.final.cut.mp4", "film.final.cut.en.srt"]);
        let found = among_named(files.map(|name| listed(name, 1)).collect(), "film.".len());
        let names: Vec<&str> = found.iter().map(|one| &one.file.name[..]).collect();
        assert_eq!(names, ["film.3.srt", "film.en.srt"]);
    }

    #[test]
    fn plain_side_cars_come_first_and_those_over_the_limits_are_named() {
        let mut files: Vec<ListedFile> =
            (100..200).map(|number| listed(&format!("f.en.{number}.srt"), 1)).collect();
        files.push(listed("f.de.forced.srt", 1));
        files.push(listed("f.other.srt", 1));
        let found = among_named(files, 2);
        assert_eq!(found.iter().filter(|one| one.form.is_ok()).count(), SIDE_CARS_MAX);
        let [.., last] = &found[..] else { panic!("there are some") };
        assert_eq!(last.file.name, "f.en.164.srt");
        let reason = last.form.as_ref().unwrap_err();
        assert!(reason.starts_with("it and 37 more: a film has 64 side-car files"), "{reason}");

        let large = ["f.en.1.srt", "f.en.2.srt", "f.en.3.srt", "f.en.4.srt", "f.en.5.srt"];
        let mut files: Vec<ListedFile> = large.map(|name| listed(name, 4 << 20)).to_vec();
        files.insert(0, listed("f.en.0.srt", 5 << 20));
        let found = among_named(files, 2);
        let left_out: Vec<&SideCar> = found.iter().filter(|one| one.form.is_err()).collect();
        assert_eq!((found.len(), left_out.len()), (6, 1));
        assert_eq!(left_out[0].file.name, "f.en.5.srt");
        let few = ["f.en.forced.srt", "f.en.sdh.srt", "f.en.srt", "f.final.srt"];
        let found = among_named(few.map(|name| listed(name, 1)).to_vec(), 2);
        let names: Vec<&str> = found.iter().map(|one| &one.file.name[..]).collect();
        assert_eq!(names, ["f.en.srt", "f.en.sdh.srt", "f.en.forced.srt", "f.final.srt"]);
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
