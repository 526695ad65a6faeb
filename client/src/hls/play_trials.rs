// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays against a scripted server: valid, faulty and hostile presentations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::fmp4_check::tests as fmp4;
use super::scripted_origin::{Answer, ScriptedOrigin, live, ts_segment, vod};
use super::{
    HlsEnd, HlsPlay, HlsVerdict, SegmentContainer, VariantChoice, ViewerSettings, play_hls,
};
use crate::error::Error;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A play without waiting. Its time-outs guard against a hang: a test of a time-out sets it to
/// [`SHORT`].
fn fast(url: String) -> HlsPlay {
    let mut play = HlsPlay::new(url);
    play.is_fast = true;
    (play.timeouts.read, play.timeouts.playlist) = (LIMIT, LIMIT);
    (play.timeouts.segment, play.timeouts.segment_durations) = (LIMIT, 0);
    play.timeouts.quiet = ms(100);
    play
}

const LIMIT: Duration = Duration::from_secs(60);
/// Time-out that expires in tests; timely answers arrive within it even on a busy machine.
const SHORT: Duration = Duration::from_secs(2);
/// Longer than any time-out.
const NEVER: Duration = Duration::from_secs(3600);

async fn played(play: HlsPlay) -> HlsVerdict {
    play_hls(play, |_| {}).await.unwrap()
}

async fn refused(play: HlsPlay) -> String {
    match play_hls(play, |_| {}).await {
        Err(error @ Error::Peer { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn faults(verdict: &HlsVerdict) -> Vec<String> {
    verdict.faults.iter().map(ToString::to_string).collect()
}

/// Four segments of a transport stream and their playlist.
fn film(seconds: f64) -> Vec<(&'static str, Answer)> {
    let mut answers = vec![("/a/m.m3u8", Answer::text(vod(4, seconds)))];
    for (index, path) in SEGMENTS.into_iter().enumerate().take(4) {
        answers.push((path, Answer::Body(ts_segment(index))));
    }
    answers
}

/// The film with another answer for one path.
fn film_but(path: &'static str, answer: Answer) -> Vec<(&'static str, Answer)> {
    let others = film(2.0).into_iter().filter(|(known, _)| *known != path);
    others.chain([(path, answer)]).collect()
}

const SEGMENTS: [&str; 10] = [
    "/a/s0.ts", "/a/s1.ts", "/a/s2.ts", "/a/s3.ts", "/a/s4.ts", "/a/s5.ts", "/a/s6.ts", "/a/s7.ts",
    "/a/s8.ts", "/a/s9.ts",
];

#[tokio::test]
async fn a_film_is_whole_and_comes_over_one_connection() {
    let origin = ScriptedOrigin::start(film(2.0)).await;
    let folder = tempfile::tempdir().unwrap();
    let mut play = fast(origin.url("/a/m.m3u8"));
    play.output = Some(folder.path().join("copy.ts"));
    let seen = played(play).await;
    assert!(seen.is_whole(), "{seen}");
    assert_eq!((seen.end.clone(), seen.stalls, seen.is_live), (HlsEnd::Complete, 0, false));
    let [main] = &seen.renditions[..] else { panic!("{seen}") };
    assert_eq!((main.segments, main.media_s), (4, 8.0));
    assert_eq!(main.container, Some(SegmentContainer::TransportStream));
    let bytes: Vec<u8> = (0..4).flat_map(ts_segment).collect();
    assert_eq!((seen.bytes, seen.requests, seen.connections), (bytes.len() as u64, 5, 1));
    assert_eq!(std::fs::read(folder.path().join("copy.ts")).unwrap(), bytes);
    let rate = bytes.len() as f64;
    assert!((main.bit_rate - rate).abs() < 1.0 && (main.bit_rate_peak - rate).abs() < 1.0);
    assert!(seen.to_string().contains("main        TS, 4 segments, 75200 bytes"), "{seen}");
    serde_json::to_string(&seen).unwrap();
}

#[tokio::test]
async fn parts_are_played_as_asked() {
    let origin = ScriptedOrigin::start(film(2.0)).await;
    let mut play = fast(origin.url("/a/m.m3u8"));
    (play.start, play.length) = (Some(ms(2500)), Some(ms(3000)));
    let seen = played(play).await;
    assert!(seen.is_whole(), "{seen}");
    assert_eq!(seen.end, HlsEnd::Length);
    let paths: Vec<_> = origin.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/a/m.m3u8", "/a/s1.ts", "/a/s2.ts"]);
}

fn fmp4_file() -> (Vec<u8>, String) {
    let mut file = fmp4::init();
    let init = file.len();
    let mut text = format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MAP:URI=\"f.mp4\",BYTERANGE=\"{init}@0\"\n"
    );
    for index in 0..3 {
        let segment = fmp4::segment(index + 1, index * 1000);
        // The first byte range has an offset, the others follow it.
        let at = if index == 0 { format!("@{init}") } else { String::new() };
        text.push_str(&format!("#EXTINF:1,\n#EXT-X-BYTERANGE:{}{at}\nf.mp4\n", segment.len()));
        file.extend(segment);
    }
    (file, format!("{text}#EXT-X-ENDLIST\n"))
}

const MASTER: &str = "#EXTM3U\n\
    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"de\",URI=\"other.m3u8\"\n\
    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"en\",DEFAULT=YES,URI=\"audio/m.m3u8\"\n\
    #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",NAME=\"Fr\",LANGUAGE=\"fr\",URI=\"fr.m3u8\"\n\
    #EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS,GROUP-ID=\"c\",NAME=\"cc\",INSTREAM-ID=\"CC1\"\n\
    #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"a\"\nvideo/m.m3u8\n";

#[tokio::test]
async fn ranges_of_one_file_and_audio_beside_it_are_fetched() {
    let (file, text) = fmp4_file();
    let origin = ScriptedOrigin::start([
        ("/master.m3u8", Answer::text(MASTER)),
        ("/video/m.m3u8", Answer::text(text.clone())),
        ("/audio/m.m3u8", Answer::text(text)),
        ("/video/f.mp4", Answer::Body(file.clone())),
        ("/audio/f.mp4", Answer::Body(file.clone())),
    ])
    .await;
    let seen = played(fast(origin.url("/master.m3u8"))).await;
    assert!(seen.is_whole(), "{seen}");
    assert_eq!(seen.connections, 2);
    let subtitles = "subtitles Fr (fr): only a variant and its audio are fetched";
    assert_eq!(seen.left_out, ["audio de: another audio rendition is played", subtitles]);
    assert!(seen.to_string().contains(&format!("  not played  {subtitles}\n")), "{seen}");
    for rendition in &seen.renditions {
        assert_eq!((rendition.segments, rendition.init_sections), (3, 1), "{seen}");
        assert_eq!((rendition.bytes, rendition.media_s), (file.len() as u64, 3.0));
        assert_eq!(rendition.container, Some(SegmentContainer::Fmp4));
    }
    let ranges: Vec<_> =
        origin.of("/audio/f.mp4").into_iter().map(|request| request.range.unwrap()).collect();
    let init = fmp4::init().len();
    assert_eq!(ranges.len(), 4);
    assert_eq!(ranges[0], format!("0-{}", init - 1));
    assert!(ranges[3].ends_with(&format!("-{}", file.len() - 1)), "{ranges:?}");
    let mut to_file = fast(origin.url("/master.m3u8"));
    to_file.output = Some("never-made.mp4".into());
    assert!(play_hls(to_file, |_| {}).await.unwrap_err().is_caller());
    assert!(!std::path::Path::new("never-made.mp4").exists());
}

#[tokio::test]
async fn chunked_bodies_redirections_and_closed_connections_are_no_faults() {
    let mut answers = film_but("/a/s1.ts", Answer::Chunked(ts_segment(1)));
    answers.retain(|(path, _)| !matches!(*path, "/a/s2.ts" | "/a/s3.ts"));
    answers.push(("/a/s2.ts", Answer::ThenClosed(ts_segment(2))));
    answers.push(("/a/s3.ts", Answer::Redirect("/b/x.ts".to_owned())));
    answers.push(("/b/x.ts", Answer::Body(ts_segment(3))));
    // References are resolved against the address after the redirection.
    answers.push(("/m.m3u8", Answer::Redirect("a/m.m3u8".to_owned())));
    let origin = ScriptedOrigin::start(answers).await;
    let seen = played(fast(origin.url("/m.m3u8"))).await;
    assert!(seen.is_whole(), "{seen}");
    assert_eq!(seen.renditions[0].segments, 4);
}

#[tokio::test]
async fn wrong_bytes_are_told_with_address_and_offset() {
    let mut no_sync = ts_segment(1);
    no_sync[188 * 7] = 0x48;
    let mut lost = ts_segment(1);
    lost.drain(188 * 10..188 * 12);
    for (answer, found) in [
        (Answer::Body(no_sync), "/a/s1.ts byte 1316: sync byte 0x48, not 0x47"),
        (Answer::Body(lost), "/a/s1.ts byte 1880: PID 256: continuity counter 14 after 11"),
        (Answer::Body(ts_segment(2)), "/a/s1.ts byte 0: PID 0: continuity counter 2 after 0"),
        (Answer::Body(ts_segment(1)[..1000].to_vec()), "/a/s1.ts byte 940: 60 bytes at the end"),
        (Answer::Body(Vec::new()), "/a/s1.ts byte 0: an empty segment"),
        (Answer::text("<html>no</html>"), "/a/s1.ts byte 0: neither TS nor fMP4"),
    ] {
        let origin = ScriptedOrigin::start(film_but("/a/s1.ts", answer)).await;
        let seen = played(fast(origin.url("/a/m.m3u8"))).await;
        assert!(!seen.is_whole() && seen.end == HlsEnd::Complete, "{seen}");
        let first = faults(&seen).into_iter().find(|fault| fault.contains("/a/s1.ts")).unwrap();
        let expected = origin.url(found);
        assert!(first.starts_with(&expected), "{first}, not {expected}");
    }
}

#[tokio::test]
async fn requests_that_fail_are_told_repeated_and_stepped_over() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 18800\r\n\r\n\x47\0\0".to_vec();
    let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
    let gzip = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec();
    for (answer, found) in [
        (Answer::status("404 Not Found"), "s1.ts: 404 Not Found"),
        (Answer::status("206 Partial Content"), "s1.ts: 206 Partial Content"),
        (Answer::status("204 No Content"), "s1.ts: 204 No Content"),
        (Answer::Raw(cut), "s1.ts byte 3: the connection ended at byte 3 of 18800"),
        (Answer::Raw(Vec::new()), "s1.ts: the server closed the connection instead of answering"),
        (Answer::Raw(b"SSH-2.0-x\r\n\r\n".to_vec()), "s1.ts: no HTTP/1 status line"),
        (Answer::Raw(vec![b'x'; 40_000]), "s1.ts: head of more than 16384 bytes"),
        (Answer::Raw(huge), "s1.ts: 99999999999 bytes, more than the 1073741824"),
        (Answer::Raw(gzip), "s1.ts: a compressed body"),
        (Answer::Redirect("/a/s1.ts".to_owned()), "s1.ts: more than 5 redirections"),
        (Answer::Redirect("https://h/s1.ts".to_owned()), "302 to https://h/s1.ts, no http://"),
    ] {
        assert_second_is_missed(answer, found, |_| {}).await;
    }
}

#[tokio::test]
async fn segments_that_do_not_come_in_time_are_stepped_over() {
    let late = Answer::Late(NEVER, Box::new(Answer::text("x")));
    assert_second_is_missed(late, "s1.ts: no byte came in 2 s", |play| {
        play.timeouts.read = SHORT;
    })
    .await;
    // 18,800 bytes in 38 seconds.
    let slow = Answer::Slow { body: ts_segment(1), piece: 50, every: ms(100) };
    assert_second_is_missed(slow, "not whole in the time allowed", |play| {
        play.timeouts.segment = SHORT;
    })
    .await;
}

/// Plays the film with this answer for its second segment, which is requested twice and skipped.
async fn assert_second_is_missed(answer: Answer, found: &str, options: impl Fn(&mut HlsPlay)) {
    let origin = ScriptedOrigin::start(film_but("/a/s1.ts", answer)).await;
    let mut play = fast(origin.url("/a/m.m3u8"));
    options(&mut play);
    let seen = played(play).await;
    assert!(!seen.is_whole() && seen.end == HlsEnd::Complete, "{found}: {seen}");
    assert_eq!((seen.renditions[0].segments, seen.renditions[0].missed), (3, 1), "{seen}");
    assert_eq!(seen.fault_count, 2, "asked for twice: {seen}");
    assert!(faults(&seen)[0].contains(found), "{found}: {seen}");
}

#[tokio::test]
async fn a_second_try_that_works_is_a_fault_and_no_loss() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 18800\r\n\r\n\x47\0\0".to_vec();
    let answers = vec![Answer::Raw(cut), Answer::Body(ts_segment(1))];
    let origin = ScriptedOrigin::start(film_but("/a/s1.ts", Answer::InTurn(answers))).await;
    let folder = tempfile::tempdir().unwrap();
    let mut play = fast(origin.url("/a/m.m3u8"));
    play.output = Some(folder.path().join("copy.ts"));
    let seen = played(play).await;
    let bytes: Vec<u8> = (0..4).flat_map(ts_segment).collect();
    assert!(std::fs::read(folder.path().join("copy.ts")).unwrap() == bytes, "no part twice");
    assert_eq!((seen.renditions[0].segments, seen.renditions[0].missed), (4, 0), "{seen}");
    assert_eq!((seen.fault_count, seen.is_whole()), (1, false));
}

#[tokio::test]
async fn a_server_without_segments_is_given_up() {
    let origin = ScriptedOrigin::start([("/a/m.m3u8", Answer::text(vod(50, 2.0)))]).await;
    let seen = played(fast(origin.url("/a/m.m3u8"))).await;
    assert!(matches!(&seen.end, HlsEnd::Failed { found } if found.contains("404")), "{seen}");
    assert_eq!(origin.requests().len(), 7, "three segments, each twice");
    assert!(!seen.is_whole() && seen.start_s.is_none(), "{seen}");
}

#[tokio::test]
async fn ranges_that_are_not_kept_to_are_told() {
    let (file, text) = fmp4_file();
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
    let whole = [whole.as_bytes(), &file].concat();
    let other = b"HTTP/1.1 206 x\r\nContent-Range: bytes 5-9/77\r\nContent-Length: 5\r\n\r\nabcde";
    let none = b"HTTP/1.1 206 x\r\nContent-Length: 5\r\n\r\nabcde";
    for (answer, found) in [
        (whole, "200 to a Range request"),
        (other.to_vec(), "bytes 5-9 came, and 0-"),
        (none.to_vec(), "206 without Content-Range"),
    ] {
        let answers = [("/m.m3u8", Answer::text(text.clone())), ("/f.mp4", Answer::Raw(answer))];
        let origin = ScriptedOrigin::start(answers).await;
        let seen = played(fast(origin.url("/m.m3u8"))).await;
        assert!(matches!(seen.end, HlsEnd::Failed { .. }), "{seen}");
        assert!(faults(&seen)[0].contains(found), "{seen}");
    }
}

#[tokio::test]
async fn wrong_fragments_are_told() {
    let init = fmp4::init();
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MAP:URI=\"i.mp4\"\n#EXTINF:1,\ns0.m4s\n\
        #EXTINF:1,\ns1.m4s\n#EXT-X-ENDLIST\n";
    let no_map = text.replace("#EXT-X-MAP:URI=\"i.mp4\"\n", "");
    let jump = text.replace("#EXTINF:1,\ns1", "#EXT-X-DISCONTINUITY\n#EXTINF:1,\ns1");
    for (text, second, found) in [
        (text, fmp4::segment(2, 1000), None),
        (text, fmp4::segment(2, 1500), Some("s1.m4s byte 12: track 1: tfdt 1500, expected 1000")),
        (text, fmp4::segment(1, 1000), Some("moof sequence number 1 after 1")),
        (&no_map, fmp4::segment(2, 1000), Some("s0.m4s byte 0: fMP4 without EXT-X-MAP")),
        (&jump, fmp4::segment(1, 77_000), None),
    ] {
        let origin = ScriptedOrigin::start([
            ("/m.m3u8", Answer::text(text)),
            ("/i.mp4", Answer::Body(init.clone())),
            ("/s0.m4s", Answer::Body(fmp4::segment(1, 0))),
            ("/s1.m4s", Answer::Body(second)),
        ])
        .await;
        let seen = played(fast(origin.url("/m.m3u8"))).await;
        match found {
            None => assert!(seen.is_whole(), "{seen}"),
            Some(found) => assert!(faults(&seen)[0].contains(found), "{found}: {seen}"),
        }
    }
}

#[tokio::test]
async fn gaps_and_discontinuities_are_counted_and_no_faults() {
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\ns0.ts\n#EXT-X-GAP\n#EXTINF:2,\n\
        gone.ts\n#EXTINF:2,\ns2.ts\n#EXT-X-DISCONTINUITY\n#EXTINF:2,\ns1.ts\n#EXT-X-ENDLIST\n";
    let origin = ScriptedOrigin::start(film_but("/a/m.m3u8", Answer::text(text))).await;
    let seen = played(fast(origin.url("/a/m.m3u8"))).await;
    assert!(seen.is_whole(), "{seen}");
    let main = &seen.renditions[0];
    assert_eq!((main.segments, main.gaps, main.discontinuities, main.media_s), (3, 1, 1, 6.0));
    assert!(origin.of("/a/gone.ts").is_empty());
}

#[tokio::test]
async fn segments_longer_than_the_target_duration_are_told() {
    let text = vod(4, 2.0).replacen("#EXTINF:2.000", "#EXTINF:2.600", 1);
    let origin = ScriptedOrigin::start(film_but("/a/m.m3u8", Answer::text(text))).await;
    let seen = played(fast(origin.url("/a/m.m3u8"))).await;
    assert_eq!(seen.fault_count, 1, "{seen}");
    assert!(
        faults(&seen)[0]
            .ends_with("a segment of 2.600 s, the target duration is 2 s (RFC 8216 §4.3.3.1)")
    );
}

#[tokio::test]
async fn playlists_that_cannot_be_played_are_refused() {
    let nested = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nmaster.m3u8\n";
    let chunks = "5\r\nhello\r\n".repeat(10);
    let origin = ScriptedOrigin::start([
        ("/master.m3u8", Answer::text(nested)),
        ("/html.m3u8", Answer::text("<html>")),
        ("/empty.m3u8", Answer::text("")),
        ("/loop.m3u8", Answer::Redirect("/loop.m3u8".to_owned())),
        ("/long.m3u8", Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n".to_vec())),
        ("/flood.m3u8", Answer::Chunked(vec![b'#'; 9 << 20])),
        (
            "/cut.m3u8",
            Answer::Raw(
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
                    .into_bytes(),
            ),
        ),
        ("/slow.m3u8", Answer::Slow { body: vec![b'#'; 100_000], piece: 9, every: ms(200) }),
        ("/silent.m3u8", Answer::Late(NEVER, Box::new(Answer::text("")))),
    ])
    .await;
    for (path, found) in [
        ("/master.m3u8", "GET /master.m3u8: a master playlist in a master playlist"),
        ("/html.m3u8", "not #EXTM3U"),
        ("/empty.m3u8", "an empty playlist"),
        ("/loop.m3u8", "more than 5 redirections"),
        ("/long.m3u8", "8388609 bytes, more than the 8388608"),
        ("/flood.m3u8", "more than 8388608 bytes"),
        ("/cut.m3u8", "the connection ended between chunks"),
        ("/slow.m3u8", "not whole in the time allowed"),
        ("/silent.m3u8", "no byte came in 2 s"),
        ("/none.m3u8", "GET /none.m3u8: 404 Not Found"),
    ] {
        let mut play = fast(origin.url(path));
        match path {
            "/slow.m3u8" => play.timeouts.playlist = SHORT,
            "/silent.m3u8" => play.timeouts.read = SHORT,
            _ => {}
        }
        let seen = refused(play).await;
        assert!(seen.contains(found), "{path}: {seen}");
    }
    let https = play_hls(HlsPlay::new("https://h/m.m3u8"), |_| {}).await.unwrap_err();
    assert!(https.is_caller());
}

/// Two variants with these bandwidths; the first one begins with this answer.
fn of_variants(throttled: Answer, [low, high]: [u32; 2]) -> Vec<(&'static str, Answer)> {
    let master = format!(
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH={low}\nlow/m.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH={high},RESOLUTION=1280x720\na/m.m3u8\n"
    );
    let mut answers = film(2.0);
    answers.push(("/master.m3u8", Answer::text(master)));
    answers.push(("/low/m.m3u8", Answer::text(vod(4, 2.0))));
    answers.push(("/low/s0.ts", throttled));
    for (index, path) in ["/low/s1.ts", "/low/s2.ts", "/low/s3.ts"].into_iter().enumerate() {
        answers.push((path, Answer::Body(ts_segment(index + 1))));
    }
    answers
}

/// Bandwidths that 18,800 bytes from loopback exceed even on a busy machine.
const LEAST: [u32; 2] = [1000, 4000];

#[tokio::test]
async fn variants_are_chosen_and_switched_by_throughput() {
    let first = || Answer::Body(ts_segment(0));
    let origin = ScriptedOrigin::start(of_variants(first(), LEAST)).await;
    let seen = played(fast(origin.url("/master.m3u8"))).await;
    assert!(seen.is_whole(), "{seen}");
    assert_eq!((seen.switches, seen.variants), (1, 2), "{seen}");
    assert_eq!(seen.variant.unwrap().resolution, Some((1280, 720)));
    assert_eq!((origin.of("/low/s0.ts").len(), origin.of("/a/s1.ts").len()), (1, 1));
    assert!(origin.of("/a/s0.ts").is_empty(), "the switch goes on in time");

    // 18,800 bytes in half a second are 0.3 Mb/s.
    let slow = Answer::Slow { body: ts_segment(0), piece: 1900, every: ms(50) };
    let origin = ScriptedOrigin::start(of_variants(slow, [100_000, 400_000])).await;
    let mut play = fast(origin.url("/master.m3u8"));
    play.length = Some(ms(2000));
    let seen = played(play).await;
    assert!(seen.is_whole() && seen.switches == 0, "{seen}");

    for (choice, path) in [
        (VariantChoice::Highest, "/a/s0.ts"),
        (VariantChoice::Lowest, "/low/s0.ts"),
        (VariantChoice::UpTo(400_000), "/a/s0.ts"),
        (VariantChoice::UpTo(399_999), "/low/s0.ts"),
    ] {
        let origin = ScriptedOrigin::start(of_variants(first(), [100_000, 400_000])).await;
        let mut play = fast(origin.url("/master.m3u8"));
        play.settings.variant = choice;
        let seen = played(play).await;
        assert!(seen.is_whole() && seen.switches == 0, "{choice:?}: {seen}");
        assert_eq!(origin.of(path).len(), 1, "{choice:?}");
    }
}

#[tokio::test]
async fn a_variant_that_is_missing_is_told_once_and_left() {
    let mut answers = of_variants(Answer::Body(ts_segment(0)), LEAST);
    answers.retain(|(path, _)| *path != "/a/m.m3u8");
    let origin = ScriptedOrigin::start(answers).await;
    let seen = played(fast(origin.url("/master.m3u8"))).await;
    assert_eq!((seen.fault_count, seen.switches), (1, 0), "{seen}");
    assert_eq!((seen.renditions[0].segments, origin.of("/a/m.m3u8").len()), (4, 1));
}

/// Plays four segments of half a second; 0.6 s are fetched ahead of the clock.
async fn played_by_the_clock() -> (HlsVerdict, ScriptedOrigin) {
    let origin = ScriptedOrigin::start(film(0.5)).await;
    let mut play = fast(origin.url("/a/m.m3u8"));
    (play.is_fast, play.settings.ahead) = (false, ms(600));
    (played(play).await, origin)
}

#[tokio::test]
async fn play_follows_the_clock_and_keeps_to_what_is_fetched_ahead() {
    let (seen, origin) = played_by_the_clock().await;
    assert_eq!((seen.renditions[0].segments, seen.fault_count), (4, 0), "{seen}");
    assert!(seen.end == HlsEnd::Complete && seen.wall_s >= 2.0, "{seen}");
    let at: Vec<_> = origin.requests().into_iter().map(|request| request.at).collect();
    // 1000 ms are buffered after two segments; the third waits until 600 ms are left.
    assert!(at[3] - at[1] >= ms(390), "{:?}", at[3] - at[1]);
    assert!(at[4] - at[1] >= ms(890), "{:?}", at[4] - at[1]);
}

/// Plays segments of half a second; the second one arrives 1.5 s after its request.
async fn played_with_a_late_segment() -> HlsVerdict {
    let late = Answer::Late(ms(1500), Box::new(Answer::Body(ts_segment(1))));
    let mut answers = film(0.5);
    answers.retain(|(path, _)| *path != "/a/s1.ts");
    answers.push(("/a/s1.ts", late));
    let origin = ScriptedOrigin::start(answers).await;
    let mut play = HlsPlay::new(origin.url("/a/m.m3u8"));
    play.settings = ViewerSettings { prebuffer: Some(ms(500)), ..ViewerSettings::default() };
    played(play).await
}

#[tokio::test]
async fn a_late_segment_is_a_stall_of_its_length() {
    let seen = played_with_a_late_segment().await;
    assert_eq!((seen.fault_count, seen.is_whole()), (0, false), "{seen}");
    assert!(seen.stalls >= 1 && seen.stalled_s >= 0.9, "{seen}");
    assert!((seen.first_stalls[0].at_s - 0.5).abs() < 1e-6, "{seen}");
}

#[tokio::test]
async fn a_stop_ends_a_play_with_its_verdict() {
    let origin = ScriptedOrigin::start(film(2.0)).await;
    let mut play = HlsPlay::new(origin.url("/a/m.m3u8"));
    // The prebuffer is the whole film: no segment can be late.
    play.settings.prebuffer = Some(ms(8000));
    let has_played = Arc::new(Notify::new());
    let stop = has_played.clone();
    play.stop = Some(Box::pin(async move { stop.notified().await }));
    let mut positions = Vec::new();
    let seen = play_hls(play, |now| {
        positions.push(now.position);
        if positions.len() >= 2 && now.position > ms(100) {
            has_played.notify_one();
        }
    });
    let seen = tokio::time::timeout(LIMIT, seen).await.expect("it plays").unwrap();
    assert!(seen.is_whole() && seen.end == HlsEnd::Stopped, "{seen}");
    assert!(positions.is_sorted(), "{positions:?}");
}

/// A live film whose playlist is answered with these texts, one for each request.
async fn live_film(playlists: &[String]) -> ScriptedOrigin {
    let texts = playlists.iter().map(|text| Answer::text(text.as_str())).collect();
    let mut answers = vec![("/a/m.m3u8", Answer::InTurn(texts))];
    for (index, path) in SEGMENTS.into_iter().enumerate() {
        answers.push((path, Answer::Body(ts_segment(index))));
    }
    ScriptedOrigin::start(answers).await
}

/// Plays a live film of four playlists: the second has a new segment, the third has none, and the
/// fourth has an end. Returns the times of their requests since the start of the play.
async fn played_live() -> (HlsVerdict, ScriptedOrigin, Vec<Duration>) {
    let ended = format!("{}#EXT-X-ENDLIST\n", live(4, 5, 1.0));
    let lists = [live(0, 6, 1.0), live(2, 5, 1.0), live(2, 5, 1.0), ended];
    let origin = live_film(&lists).await;
    let began = Instant::now();
    let seen = played(fast(origin.url("/a/m.m3u8"))).await;
    let requests = origin.of("/a/m.m3u8").into_iter();
    let at = requests.map(|request| request.at - began).collect();
    (seen, origin, at)
}

#[tokio::test]
async fn live_play_begins_near_the_end_and_reloads_no_sooner_than_allowed() {
    let (seen, origin, at) = played_live().await;
    assert!(seen.is_whole() && seen.is_live, "{seen}");
    assert_eq!((seen.end.clone(), seen.renditions[0].segments), (HlsEnd::Complete, 6), "{seen}");
    assert!(origin.of("/a/s2.ts").is_empty() && origin.of("/a/s3.ts").len() == 1);
    assert_eq!(at.len(), 4);
    // A reload waits for a target duration after a change, otherwise for half of it.
    assert!(at[1] >= ms(1000) && at[2] >= ms(2000) && at[3] >= ms(2500), "{at:?}");
}

#[tokio::test]
async fn changes_that_a_live_playlist_must_not_have_are_told() {
    let renamed = live(0, 4, 1.0).replace("s1.ts", "s9.ts");
    for (second, found) in [
        (renamed, "segment 1 has another address than before"),
        (live(0, 3, 1.0), "segments were taken from the end: 4 before, now 3"),
        (live(0, 4, 1.0).replace("DURATION:1", "DURATION:2"), "EXT-X-TARGETDURATION 2 after 1"),
        (live(6, 3, 1.0), "2 segments left the playlist before they were fetched"),
    ] {
        let first = live(0, 4, 1.0);
        let origin = live_film(&[first, format!("{second}#EXT-X-ENDLIST\n")]).await;
        let seen = played(fast(origin.url("/a/m.m3u8"))).await;
        assert!(faults(&seen).iter().any(|fault| fault.contains(found)), "{found}: {seen}");
        assert!(!seen.is_whole());
    }
    let back = live_film(&[live(3, 4, 1.0), format!("{}#EXT-X-ENDLIST\n", live(1, 7, 1.0))]).await;
    let seen = played(fast(back.url("/a/m.m3u8"))).await;
    assert!(faults(&seen)[0].contains("EXT-X-MEDIA-SEQUENCE 1 after 3"), "{seen}");
}

#[tokio::test]
async fn a_live_playlist_that_stands_still_is_given_up() {
    let origin = live_film(&[live(0, 3, 1.0)]).await;
    let seen = played(fast(origin.url("/a/m.m3u8"))).await;
    assert!(matches!(seen.end, HlsEnd::Quiet { seconds: 6.. }) && !seen.is_whole(), "{seen}");
    assert_eq!(seen.renditions[0].segments, 3);
}

/// Measure real time: `make test-time`.
mod timed {
    use super::*;

    #[tokio::test]
    async fn play_by_the_clock_takes_no_longer() {
        let (seen, _) = played_by_the_clock().await;
        assert!(seen.is_whole() && seen.wall_s < 4.0, "{seen}");
    }

    #[tokio::test]
    async fn one_late_segment_is_one_stall() {
        let seen = played_with_a_late_segment().await;
        assert!(seen.stalls == 1 && seen.stalled_s < 2.5, "{seen}");
    }

    #[tokio::test]
    async fn unchanged_playlist_is_reloaded_after_half_a_target_duration() {
        let (_, _, at) = played_live().await;
        assert!(at[3] - at[2] < ms(990), "{at:?}");
    }
}
