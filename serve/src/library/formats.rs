// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies files by extension: media that is streamed, media of another format, or neither.
//!
//! The class decides the text shown to people. A stream that cannot be streamed and a film of
//! another format are explained; any other name is an ordinary file.
//!
//! Does not look into files ([`crate::library`] does, whatever their names).

use media::Container;

/// True when the index offers the file as a stream before any request. Every file of such a format
/// plays on request, whatever its name.
pub(crate) fn is_streamed(name: &str) -> bool {
    Container::ALL.iter().any(|&container| has_end(name, extensions(container)))
}

/// Returns the extensions of a streamed format, in lower case and without dots.
pub fn extensions(container: Container) -> &'static [&'static str] {
    match container {
        Container::TransportStream => TRANSPORT_STREAM,
        Container::Mp4 | Container::FragmentedMp4 => MP4,
        Container::Matroska => MATROSKA,
        Container::MpegAudio => MPEG_AUDIO,
        Container::Adts => ADTS,
        Container::Wav => WAV,
        // The enum may grow; a test asserts that all that is in it has extensions.
        _ => &[],
    }
}

/// True when the name is that of a transport stream.
pub(crate) fn is_transport_stream(name: &str) -> bool {
    has_end(name, TRANSPORT_STREAM)
}

/// True when the name is that of a format that is played while it is written.
pub(crate) fn is_recorded_format(name: &str) -> bool {
    is_transport_stream(name) || has_end(name, MP4)
}

/// Returns why a media file of this name is not streamed; `None` for files that are not media, and
/// for those of formats that are streamed.
pub fn download_only(name: &str) -> Option<String> {
    let (_, format, reason) = DOWNLOAD_ONLY.iter().find(|(ends, ..)| has_end(name, ends))?;
    Some(format!("{format}: {reason}"))
}

/// Returns why a file is no stream in two lengths: a phrase that is short enough for an RTSP status
/// line, as many players show only that, and the whole with source and cure. `reason` is what was
/// found in the file.
pub(crate) fn refused_in_words(name: &str, reason: &str) -> (String, String) {
    // A file of a streamed format keeps its own reason, regardless of its extension.
    let is_known = reason.starts_with("transport stream")
        || Container::ALL.iter().any(|container| reason.starts_with(container.name()));
    let by_name = download_only(name).filter(|_| !is_known);
    let whole = by_name.unwrap_or_else(|| reason.to_owned());
    let end = whole.find([';', '(']).unwrap_or(whole.len());
    (whole[..end].trim_end().to_owned(), whole)
}

fn has_end(name: &str, ends: &[&str]) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|found| ends.iter().any(|end| end.eq_ignore_ascii_case(found)))
}

const TRANSPORT_STREAM: &[&str] = &["m2t", "m2ts", "mpegts", "mts", "tp", "trp", "ts"];
const MP4: &[&str] = &["mp4", "m4v", "m4a", "m4b", "mov", "qt", "3gp", "f4v"];
const MPEG_AUDIO: &[&str] = &["mp3", "mp2"];
const ADTS: &[&str] = &["aac"];
const WAV: &[&str] = &["wav"];
const MATROSKA: &[&str] = &["mkv", "mka", "webm"];

/// Media formats that are not streamed: extensions, name, and a reason that fits a status line,
/// with a cure behind it.
pub static DOWNLOAD_ONLY: &[(&[&str], &str, &str)] = &[
    (&["m4s", "cmfv", "cmfa"], "MP4 segment", "no stream without its initialization segment"),
    (&["mpg", "mpeg", "vob"], "MPEG program stream", COPY_TO_TS),
    (&["avi"], "AVI", COPY_TO_TS),
    (&["flv"], "Flash video", COPY_TO_TS),
    (&["mxf"], "MXF", COPY_PICTURES),
    (&["wmv", "wma", "asf"], "Windows Media", ENCODE),
    (&["ac3", "eac3"], "Dolby sound", COPY_TO_MATROSKA),
    (&["ogg", "oga", "ogv", "opus"], "Ogg", COPY_TO_MATROSKA),
    (&["flac"], "FLAC", "download only; ffmpeg -i FILE FILE.wav makes a stream of it"),
];
/// Formats for which there is no packet plan; this command converts their files without loss into
/// one that is streamed. A transport stream carries nearly every codec, and is streamed whole.
const COPY_TO_TS: &str = "download only; ffmpeg -i FILE -c copy FILE.ts makes a stream of it";
/// For MXF: its sound is PCM, which players do not read in a transport stream.
const COPY_PICTURES: &str =
    "download only; ffmpeg -i FILE -c:v copy -c:a aac FILE.ts makes a stream of it";
/// Opus and Dolby's codecs; not Vorbis and Theora, which have to be encoded anew.
const COPY_TO_MATROSKA: &str =
    "download only; ffmpeg -i FILE -c copy FILE.mka makes a stream of it, but not of Vorbis";
/// Codecs without a payload format here.
const ENCODE: &str = "download only; ffmpeg -i FILE FILE.mp4 encodes it anew, and makes a stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_that_is_not_streamed_says_so_in_a_word() {
        assert_eq!(
            download_only("a/b.AVI").as_deref(),
            Some(format!("AVI: {COPY_TO_TS}").as_str())
        );
        assert!(
            ["a.ts", "a.mp4", "a.epub", "mkv", "a.m3u8"].iter().all(|n| download_only(n).is_none())
        );
    }

    #[test]
    fn extensions_are_those_of_one_class() {
        for container in Container::ALL {
            let ends = extensions(container);
            assert!(!ends.is_empty(), "{}", container.name());
            for end in ends {
                assert!(download_only(&format!("a.{end}")).is_none(), "{end}");
            }
        }
        for end in DOWNLOAD_ONLY.iter().flat_map(|(ends, ..)| *ends) {
            assert!(!is_streamed(&format!("a.{end}")), "{end}");
        }
    }

    #[test]
    fn refusals_fit_a_status_line() {
        let refused_in_a_phrase = |name, reason| refused_in_words(name, reason).0;
        let unknown = "unknown format: not MP4 or Matroska (its first bytes); look what it is";
        assert_eq!(refused_in_a_phrase("a/b.avi", unknown), "AVI: download only");
        let short = "unknown format: not MP4 or Matroska";
        assert_eq!(refused_in_a_phrase("a/b.mp4", unknown), short);
        let reason = "transport stream without a clock to pace by: 0 PCR found (ISO); remux it";
        let short = "transport stream without a clock to pace by: 0 PCR found";
        assert_eq!(refused_in_a_phrase("a.TS", reason), short);
        assert_eq!(refused_in_a_phrase("a.avi", reason), short);
        let broken = "MP4 broken at byte 8: a box of 3 bytes; remux it (ffmpeg)";
        let short = "MP4 broken at byte 8: a box of 3 bytes";
        assert_eq!(refused_in_a_phrase("a.avi", broken), short);
        assert_eq!(refused_in_a_phrase("notes.txt", "no stream"), "no stream");
        assert!(is_transport_stream("a.b/c.M2TS") && !is_transport_stream("ts"));
        assert!(is_streamed("a.Mp4") && is_streamed("a.ts") && !is_transport_stream("a.mp4"));
    }
}
