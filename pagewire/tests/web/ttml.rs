// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subtitles of TTML in MP4 (`stpp`): ffmpeg reads each segment and finds the stored documents,
//! byte for byte, and web players show their cues at the times written in them.
//!
//! ffmpeg writes one document per film, so this test adds tracks of several to its film.
//!
//! Sources: ISO/IEC 14496-30 §5 (`stpp`); ISO/IEC 14496-12 §8.2 to §8.7 (moov); RFC 8216 §4.3.4.
//! Does not compare how players render a document.

use std::fs;
use std::path::Path;
use std::process::Command;

use m3u8_rs::{parse_master_playlist_res, parse_media_playlist_res};

use crate::clips::{Clip, H264, LIMIT, clip, ffmpeg};
use crate::enciphered::secret;
use crate::fragments::{boxes, timescales, track_fragments};
use crate::harness::{Server, film, watchdog};
use crate::mpd_schema::faults;
use crate::playing::{Play, Player, Report, Step, played};
use crate::playlist_rules::broken;
use crate::site::{Playlist, fetch, resolved};

/// Documents of a track: milliseconds of its sample, and start, end and text of its cue.
const DOCUMENTS: [(u32, &str, &str, &str); 3] = [
    (4000, "00:00:01.000", "00:00:02.500", "Hello"),
    (4000, "00:00:05.500", "00:00:06.500", "Over a border"),
    (8000, "00:00:13.000", "00:00:15.000", "Last"),
];

/// Cues of the documents, in seconds.
const CUES: [(f64, f64, &str); 3] =
    [(1.0, 2.5, "Hello"), (5.5, 6.5, "Over a border"), (13.0, 15.0, "Last")];

/// Numbers of the documents in each segment of 6, 6 and 4 s, and the times of the segment's parts
/// in milliseconds.
const SEGMENTS: [(&[usize], u64, u64); 3] =
    [(&[0, 1], 0, 6000), (&[1, 2], 6000, 6000), (&[2], 12_000, 4000)];

/// Number of the track that is added to a film.
const TRACK: u32 = 9;

fn documents() -> Vec<Vec<u8>> {
    let document = |(_, start, end, text): &(u32, &str, &str, &str)| {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<tt xml:lang=\"fr\" \
             xmlns=\"http://www.w3.org/ns/ttml\"><head><layout><region xml:id=\"r\"/></layout>\
             </head><body region=\"r\"><div><p begin=\"{start}\" end=\"{end}\"><span>{text}</span>\
             </p></div></body></tt>\n"
        )
    };
    DOCUMENTS.iter().map(|one| document(one).into_bytes()).collect()
}

fn boxed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(8 + body.len() as u32).to_be_bytes(), &kind[..], &body].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a film whose `moov` is its last box, with a track of the documents: their bytes are put
/// in front of it.
#[track_caller]
fn with_track(film: &[u8]) -> Vec<u8> {
    let all = boxes(film);
    let (kind, moov) = all.last().expect("a box");
    assert_eq!(kind, "moov");
    let begin = film.len() - moov.len() - 8;
    let documents = documents();
    let mut at = begin as u32 + 8;
    let (mut offsets, mut sizes, mut durations) = (Vec::new(), Vec::new(), Vec::new());
    for (document, (duration, ..)) in documents.iter().zip(DOCUMENTS) {
        offsets.push(at);
        sizes.push(document.len() as u32);
        durations.extend([1, duration]);
        at += document.len() as u32;
    }
    let count = documents.len() as u32;
    let strings = b"http://www.w3.org/ns/ttml\0http://www.w3.org/ns/ttml/profile/imsc1/text\0\0";
    let entry = boxed(b"stpp", &[&[0, 0, 0, 0, 0, 0, 0, 1], strings]);
    let stbl = boxed(
        b"stbl",
        &[
            &boxed(b"stsd", &[&words(&[0, 1]), &entry]),
            &boxed(b"stts", &[&words(&[0, count]), &words(&durations)]),
            &boxed(b"stsc", &[&words(&[0, 1, 1, 1, 1])]),
            &boxed(b"stsz", &[&words(&[0, 0, count]), &words(&sizes)]),
            &boxed(b"stco", &[&words(&[0, count]), &words(&offsets)]),
        ],
    );
    let dref = boxed(b"dref", &[&words(&[0, 1]), &boxed(b"url ", &[&words(&[1])])]);
    let minf = boxed(b"minf", &[&boxed(b"sthd", &[&[0; 4]]), &boxed(b"dinf", &[&dref]), &stbl]);
    // A thousand ticks a second; French.
    let mdhd = boxed(b"mdhd", &[&words(&[0, 0, 0, 1000, 16_000, 0x1a41 << 16])]);
    let hdlr = boxed(b"hdlr", &[&[0; 8], b"subt", &[0; 13]]);
    let matrix = words(&[1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30]);
    let tkhd = boxed(b"tkhd", &[&words(&[7, 0, 0, TRACK]), &[0; 24], &matrix, &[0; 8]]);
    let trak = boxed(b"trak", &[&tkhd, &boxed(b"mdia", &[&mdhd, &hdlr, &minf])]);
    let mdat = boxed(b"mdat", &[&documents.concat()]);
    [&film[..begin], &mdat, &boxed(b"moov", &[moov, &trak])].concat()
}

/// Starts a server of `film.mp4`, with pictures, sound and a track; of `plain.mp4`, whose pictures
/// have no delay and whose track is the same; and of `own.mp4`, whose document is ffmpeg's. Returns
/// `None`, with the reason printed, where ffmpeg cannot make them.
fn serve(test: &str, options: &[&str]) -> Option<Server> {
    let clip = clip(test, Clip::Mp4)?;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("film.mp4"), with_track(&fs::read(&clip).expect("it was made"))).expect("room");
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=16"]);
    command.args(H264).args(["-bf", "0", "-b:v", "300k"]);
    let pictures = at("pictures.mp4");
    film::put(test, &mut command, &pictures)?;
    let plain = with_track(&fs::read(&pictures).expect("it was made"));
    fs::write(at("plain.mp4"), plain).expect("room");
    fs::write(at("own.srt"), "1\n00:00:07,000 --> 00:00:08,000\nOwn\n").expect("room");
    let mut command = ffmpeg();
    command.arg("-i").arg(pictures).arg("-i").arg(at("own.srt"));
    command.args(["-map", "0", "-map", "1", "-c:v", "copy", "-c:s", "ttml"]);
    let outcome = watchdog::run(command.arg(at("own.mp4")), LIMIT).ok()?;
    if !outcome.status.success() {
        eprintln!("skip: {test}: ffmpeg has no encoder of TTML: {}", outcome.stderr.trim());
        return None;
    }
    let names = ["film.mp4", "plain.mp4", "own.mp4"];
    let files = names.map(|name| (name, at(name)));
    let files: Vec<(&str, &Path)> = files.iter().map(|(name, path)| (*name, &**path)).collect();
    Some(Server::with_options(&files, &[&["--allow-origin", "*"], options].concat()))
}

/// Returns an existing resource.
#[track_caller]
fn fetched(server: &Server, path: &str) -> Vec<u8> {
    let answer = fetch(server, path, None);
    assert_eq!(answer.status, 200, "{path}: {}", answer.head);
    if path.ends_with(".mp4") || path.ends_with(".m4s") {
        assert_eq!(answer.header("Content-Type"), Some("application/mp4"), "{path}");
    }
    answer.body
}

#[track_caller]
fn text(server: &Server, path: &str) -> String {
    String::from_utf8(fetched(server, path)).expect("UTF-8")
}

/// Returns bytes of all samples of a file of one track, as ffmpeg reads them.
fn data(test: &str, file: &[u8]) -> Option<Vec<u8>> {
    let path = tempfile::NamedTempFile::new().expect("room for a file");
    fs::write(&path, file).expect("written");
    let mut command = Command::new("ffmpeg");
    command.args(["-loglevel", "error", "-i"]).arg(path.path());
    command.args(["-map", "0", "-c", "copy", "-f", "data", "-"]);
    match watchdog::run(&mut command, LIMIT) {
        Ok(outcome) => Some(outcome.succeeded()),
        Err(reason) => {
            eprintln!("skip: {test}: {reason}");
            None
        }
    }
}

/// Asserts of the segments of a track at these paths: their times, and the documents in them.
#[track_caller]
fn assert_documents(test: &str, init: &[u8], segments: &[Vec<u8>]) -> Option<()> {
    let documents = documents();
    assert_eq!(timescales(init).into_iter().collect::<Vec<_>>(), [(1, 1000)]);
    assert_eq!(segments.len(), SEGMENTS.len());
    for (segment, (numbers, start, duration)) in segments.iter().zip(SEGMENTS) {
        let fragment = track_fragments(segment)[&1];
        assert_eq!((fragment.decode, fragment.duration), (start, duration), "{fragment:?}");
        assert_eq!(fragment.samples as usize, numbers.len());
        let expected: Vec<u8> = numbers.iter().flat_map(|&at| documents[at].clone()).collect();
        assert_eq!(data(test, &[init, segment].concat())?, expected);
    }
    Some(())
}

#[test]
fn ffmpeg_finds_every_document_in_the_segments_of_its_time() {
    let test = "ttml::ffmpeg_finds_every_document_in_the_segments_of_its_time";
    let Some(server) = serve(test, &[]) else { return };
    for film in ["film.mp4", "plain.mp4"] {
        let path = format!("/{film}/manifest.mpd");
        let manifest = text(&server, &path);
        assert_eq!(faults(&manifest), [""; 0], "{manifest}");
        let mpd = dash_mpd_core::parse(&manifest).expect("an MPD");
        assert_eq!(dash_mpd_core::check_conformity(&mpd), [""; 0], "{manifest}");
        let sets = mpd.periods[0].adaptations.iter();
        let sets: Vec<_> = sets.filter(|set| set.contentType.as_deref() == Some("text")).collect();
        let [set] = sets[..] else { panic!("{manifest}") };
        assert_eq!(set.mimeType.as_deref(), Some("application/mp4"));
        assert_eq!((set.lang.as_deref(), set.Label.len()), (Some("fr"), 1));
        assert_eq!(set.Role[0].value.as_deref(), Some("subtitle"));
        let [about] = &set.representations[..] else { panic!("{manifest}") };
        assert_eq!(about.codecs.as_deref(), Some("stpp.ttml.im1t"));
        let template = about.SegmentTemplate.as_ref().expect("a template");
        assert_eq!(template.presentationTimeOffset, Some(0));
        let timeline = template.SegmentTimeline.as_ref().expect("a timeline");
        let entries = timeline.segments.iter().flat_map(|entry| {
            vec![entry.d; 1 + usize::try_from(entry.r.unwrap_or(0)).expect("a count")]
        });
        assert_eq!(entries.collect::<Vec<_>>(), SEGMENTS.map(|(_, _, duration)| duration));
        let init = template.initialization.as_ref().expect("an initialization section");
        let init = fetched(&server, &resolved(&path, init));
        let media = template.media.as_ref().expect("segments");
        let segments: Vec<Vec<u8>> = (0..SEGMENTS.len())
            .map(|at| resolved(&path, &media.replace("$Number$", &at.to_string())))
            .map(|path| fetched(&server, &path))
            .collect();
        if assert_documents(test, &init, &segments).is_none() {
            return;
        }
        let behind = resolved(&path, &media.replace("$Number$", "3"));
        assert_eq!(fetch(&server, &behind, None).status, 404);
        // No cues are made of them.
        let cues = behind.replace("/3.m4s", ".vtt");
        assert_eq!(fetch(&server, &cues, None).status, 404);
    }
    server.stop();
}

/// A document of ffmpeg's own muxer is served unchanged, followed by a document without text.
#[test]
fn a_document_of_ffmpeg_comes_back() {
    let test = "ttml::a_document_of_ffmpeg_comes_back";
    let Some(server) = serve(test, &[]) else { return };
    let manifest = text(&server, "/own.mp4/manifest.mpd");
    assert!(manifest.contains(" codecs=\"stpp\">"), "{manifest}");
    let (_, init) = manifest.rsplit_once("initialization=\"").expect("a template");
    let init = format!("/own.mp4/{}", init.split('"').next().expect("its end"));
    let segment = |number: usize| {
        let path = init.replace("init.mp4", &format!("{number}.m4s"));
        data(test, &[fetched(&server, &init), fetched(&server, &path)].concat())
    };
    let (Some(first), Some(second), Some(third)) = (segment(0), segment(1), segment(2)) else {
        return;
    };
    assert!(first == second && first.ends_with(b"</tt>\n"));
    assert!(String::from_utf8_lossy(&first).contains("begin=\"00:00:07.000\""));
    assert!(third.ends_with(b"<tt xmlns=\"http://www.w3.org/ns/ttml\" xml:lang=\"\"/>\n"));
    server.stop();
}

/// Returns the lines of a playlist that are addresses.
fn uris(playlist: &Playlist) -> Vec<String> {
    let lines = playlist.text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| resolved(&playlist.path, line)).collect()
}

/// Returns the group of subtitles in a master playlist.
fn subtitles(server: &Server, film: &str) -> (Playlist, Option<Playlist>) {
    let path = format!("/{film}/master.m3u8");
    let master = Playlist { text: text(server, &path), path };
    let line = master.text.lines().find(|line| line.contains("TYPE=SUBTITLES"));
    let media = line.map(|line| {
        let (_, uri) = line.split_once("URI=\"").expect("an address");
        let path = resolved(&master.path, uri.trim_end_matches('"'));
        Playlist { text: text(server, &path), path }
    });
    (master, media)
}

#[test]
fn hls_has_documents_where_times_agree() {
    let test = "ttml::hls_has_documents_where_times_agree";
    let (_folder, secret) = secret();
    let secret = secret.to_str().expect("a path in UTF-8");
    let cipher = ["--hls-cipher", "aes-128", "--hls-key-file", secret];
    for options in [&[][..], &cipher] {
        let Some(server) = serve(test, options) else { return };
        let (master, media) = subtitles(&server, "plain.mp4");
        let media = media.expect("a group");
        for playlist in [&master, &media] {
            assert_eq!(broken(playlist), [""; 0], "{playlist:?}");
        }
        let read = parse_master_playlist_res(master.text.as_bytes()).expect("a playlist");
        let codecs = read.variants[0].codecs.as_deref().expect("codecs");
        assert!(codecs.ends_with(",stpp.ttml.im1t"), "{}", master.text);
        assert_eq!(read.variants[0].subtitles.as_deref(), Some("subs"));
        let parsed = parse_media_playlist_res(media.text.as_bytes()).expect("a playlist");
        let map = parsed.segments[0].map.as_ref().expect("a map");
        let init = fetched(&server, &resolved(&media.path, &map.uri));
        // They are not enciphered, like WebVTT.
        let segments: Vec<Vec<u8>> =
            uris(&media).iter().map(|path| fetched(&server, path)).collect();
        if assert_documents(test, &init, &segments).is_none() {
            return;
        }
        // Lines of the film have the same times where they are clear.
        let film = master.text.lines().find(|line| line.starts_with('~')).expect("a variant");
        let path = resolved(&master.path, film);
        let film = Playlist { text: text(&server, &path), path };
        assert_eq!(uris(&film).len(), SEGMENTS.len());
        if options.is_empty() {
            for (path, (_, start, _)) in uris(&film).iter().zip(SEGMENTS) {
                let fragment = track_fragments(&fetch(&server, path, None).body)[&1];
                assert_eq!(fragment.start * 1000 / 12_800, start, "{path}");
            }
        }
        let (own, media) = subtitles(&server, "own.mp4");
        assert!(media.is_none() && !own.text.contains("stpp"), "{}", own.text);
        // Times of its fragments are a second later than the presentation times.
        let (other, media) = subtitles(&server, "film.mp4");
        assert!(media.is_none() && !other.text.contains("stpp"), "{}", other.text);
        let path = other.text.lines().find(|line| line.starts_with('~')).expect("a variant");
        let (below, _) = path.split_once('/').expect("an identity");
        let path = format!("/film.mp4/{below}/s{TRACK}.m3u8");
        assert_eq!(fetch(&server, &path, None).status, 404, "{path}");
        server.stop();
    }
}

const STEPS: &[Step] = &[
    Step::Play { seconds: 0.5 },
    Step::Text {},
    Step::Seek { seconds: 5.7 },
    Step::Play { seconds: 1.0 },
    Step::Seek { seconds: 13.1 },
    Step::Play { seconds: 1.0 },
];

/// Asserts that a player has these cues and no others: a cue that is shown over a segment border
/// may be two.
#[track_caller]
fn assert_cues(report: &Report, cues: &[(f64, f64, &str)]) {
    let texts = |text: &str| cues.iter().any(|(_, _, known)| *known == text);
    assert!(report.cues.iter().all(|(_, _, text)| texts(text.trim())), "{:?}", report.cues);
    for &(start, end, text) in cues {
        let own = report.cues.iter().filter(|(_, _, found)| found.trim() == text);
        let first = own.clone().map(|(start, ..)| *start).fold(f64::MAX, f64::min);
        let last = own.map(|(_, end, _)| *end).fold(0.0, f64::max);
        let is_near = |a: f64, b: f64| (a - b).abs() < 0.01;
        assert!(is_near(first, start) && is_near(last, end), "{text}: {:?}", report.cues);
    }
}

#[track_caller]
fn shows(test: &str, player: Player, film: &str) {
    let Some(server) = serve(test, &[]) else { return };
    let below = if player == Player::HlsJs { "master.m3u8" } else { "manifest.mpd" };
    let own: (_, &[_]) = ("own.mp4", &[(7.0, 8.0, "Own")]);
    // The document of ffmpeg names no profile, and is not in HLS.
    let of_ffmpeg = (player != Player::HlsJs).then_some(own);
    for (film, cues) in [(film, &CUES[..])].into_iter().chain(of_ffmpeg) {
        let url = server.http_url(&format!("{film}/{below}"));
        let play = Play { url: &url, steps: STEPS, ..Play::default() };
        if let Some(report) = played(test, player, &play) {
            assert_cues(&report, cues);
        }
    }
    server.stop();
}

mod clients {
    use super::*;

    #[test]
    fn shaka_player_shows_documents_of_dash() {
        shows("ttml::clients::shaka_player_shows_documents_of_dash", Player::Shaka, "film.mp4");
    }

    #[test]
    fn dash_js_shows_documents_of_dash() {
        shows("ttml::clients::dash_js_shows_documents_of_dash", Player::DashJs, "film.mp4");
    }

    #[test]
    fn hls_js_shows_documents_of_hls() {
        shows("ttml::clients::hls_js_shows_documents_of_hls", Player::HlsJs, "plain.mp4");
    }

    /// Chromium's own player shows no subtitles of TTML. It plays the film whose variant names
    /// them.
    #[test]
    fn chromium_plays_a_film_with_documents() {
        let test = "ttml::clients::chromium_plays_a_film_with_documents";
        let Some(server) = serve(test, &[]) else { return };
        let url = server.http_url("plain.mp4/master.m3u8");
        let steps = &[Step::Play { seconds: 1.5 }, Step::Seek { seconds: 13.1 }];
        let play = Play { url: &url, steps, ..Play::default() };
        if let Some(report) = played(test, Player::Native, &play) {
            assert!(report.steps[0].after.frames > 10, "{report:?}");
        }
        server.stop();
    }
}
