// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multivariant playlists and MPDs of a running server, with side-car files.
//!
//! Sources: RFC 8216 §4.3.4.1 (FORCED, DEFAULT, CHARACTERISTICS, unique NAMEs), §4.3.4.2
//! (RESOLUTION, FRAME-RATE); ISO/IEC 23009-1 §5.8.5.5 (roles).

use std::time::Duration;

use crate::library::byte_name_trials::{CLIP, config, get, place, text};
use crate::server::Server;

const CUES: &[u8] = b"0:01 --> 0:02\nA\n";

/// The text at this address as soon as it has this many of these.
async fn with(server: &Server, target: &str, (pattern, count): (&str, usize)) -> String {
    let found = async {
        loop {
            if let (200, text) = get(server, target).await
                && let Ok(text) = String::from_utf8(text)
                && text.matches(pattern).count() == count
            {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("all are listed")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variant_of_a_transport_stream_has_the_size_and_rate_of_its_pictures() {
    let place = place(&[(b"film.ts", CLIP)]);
    let server = Server::start(config(&place)).await.unwrap();
    let master = with(&server, "/film.ts/master.m3u8", ("/ts.m3u8", 1)).await;
    let line = master.lines().find(|line| line.starts_with("#EXT-X-STREAM-INF:")).unwrap();
    let line = line.split_once("CODECS=").unwrap().1;
    assert_eq!(line, "\"avc1.64001e,mp4a.40.2\",RESOLUTION=640x360,FRAME-RATE=25.000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_side_cars_are_attributes_and_roles() {
    let names = ["en", "en.forced", "en.sdh", "English.2", "de.default", "hi", "other"];
    let names = names.map(|words| format!("film.{words}.srt"));
    let mut files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), CUES)).collect();
    files.extend([(&b"film.ts"[..], CLIP), (b"film.en.ass", CUES)]);
    let place = place(&files);
    let server = Server::start(config(&place)).await.unwrap();
    let master = with(&server, "/film.ts/master.m3u8", ("TYPE=SUBTITLES", 6)).await;
    let lines = master.lines().filter_map(|line| line.split_once("GROUP-ID=\"subs\",")?.1.into());
    let lines: Vec<&str> = lines.map(|line: &str| line.split_once(",URI").unwrap().0).collect();
    let sdh = "CHARACTERISTICS=\"public.accessibility.transcribes-spoken-dialog,\
               public.accessibility.describes-music-and-sound\"";
    let named = |name: &str, language: &str, is_default: &str, forced: &str| {
        format!(
            "NAME=\"{name}\",LANGUAGE=\"{language}\",DEFAULT={is_default},AUTOSELECT=YES,\
             FORCED={forced}"
        )
    };
    let expected = [
        named("English", "en", "NO", "NO"),
        named("German", "de", "YES", "NO"),
        named("English 2", "en", "NO", "NO"),
        named("Hindi", "hi", "NO", "NO"),
        format!("{},{sdh}", named("English (SDH)", "en", "NO", "NO")),
        named("English (forced)", "en", "NO", "YES"),
    ];
    let (mut sorted, mut lines) = (expected.to_vec(), lines);
    sorted.sort();
    lines.sort();
    assert_eq!(lines, sorted);
    let manifest = text(&server, "/film.ts/manifest.mpd").await;
    for (label, roles) in [
        ("English", &["subtitle"][..]),
        ("German", &["subtitle", "main"]),
        ("English (SDH)", &["caption"]),
        ("English (forced)", &["forced-subtitle"]),
    ] {
        let set = manifest.split_once(&format!("<Label>{label}</Label>")).expect("a set").1;
        let set = set.split_once("<Representation").expect("one file").0;
        let found = set.split("value=\"").skip(1).map(|text| text.split('"').next().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), roles, "{label}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_renditions_has_the_side_cars_in_it_and_none_beside_it() {
    let files: [(&[u8], &[u8]); 9] = [
        (b"a/film.2020/1080.ts", CLIP),
        (b"a/film.2020/720.ts", CLIP),
        (b"a/film.2020.en.srt", CUES),
        (b"a/film.2020/film.2020.de.forced.srt", CUES),
        (b"a/film.2020/fr.srt", CUES),
        (b"a/film.2020/1080.it.srt", CUES),
        (b"a/film.2020/notes.srt", CUES),
        (b"a/film.2020/extras/es.srt", CUES),
        (b"a/film.2021.sv.srt", CUES),
    ];
    let place = place(&files);
    let server = Server::start(config(&place)).await.unwrap();
    let top = "/a/film.2020";
    let master = with(&server, &format!("{top}/master.m3u8"), ("TYPE=SUBTITLES", 3)).await;
    assert!(!master.contains("\"en\""), "another folder's rules: {master}");
    let lines: Vec<&str> = master.lines().filter(|line| line.contains("TYPE=SUBTITLES")).collect();
    let expected = [("Italian", "NO"), ("French", "NO"), ("German (forced)", "YES")];
    for (name, is_forced) in expected {
        let line = lines.iter().find(|line| line.contains(&format!("NAME=\"{name}\"")));
        let line = line.unwrap_or_else(|| panic!("{name}: {master}"));
        assert!(line.contains(&format!("FORCED={is_forced}")), "{line}");
        let uri = line.split_once("URI=\"").unwrap().1.trim_end_matches('"');
        let playlist = text(&server, &format!("{top}/{uri}")).await;
        let segment = playlist.lines().find(|line| line.ends_with(".vtt")).unwrap();
        let folder = uri.rsplit_once('/').unwrap().0;
        let cues = text(&server, &format!("{top}/{folder}/{segment}")).await;
        assert!(cues.ends_with("\nA\n\n"), "{name}: {cues}");
    }
    let variants = master.lines().filter(|line| line.starts_with("#EXT-X-STREAM-INF:"));
    assert!(
        variants.clone().count() == 2 && variants.clone().all(|one| one.contains("SUBTITLES="))
    );
    let manifest = text(&server, &format!("{top}/manifest.mpd")).await;
    assert_eq!(manifest.matches("mimeType=\"text/vtt\"").count(), 3, "{manifest}");
    server.stop().await;
}
