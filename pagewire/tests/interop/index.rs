// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of a sealed site and of folders of all kinds: titles are rows, their parts are not.
//!
//! Sources: RFC 6381 §3.3 (codecs), RFC 8216 §4.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::harness::answer::{Answer, http};
use crate::harness::clip::Clip;
use crate::harness::film::film;
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::hls::browsed;

fn rows(server: &Server, target: &str) -> Vec<Value> {
    let index: Value = serde_json::from_slice(&http(server.http, "GET", target).body)
        .unwrap_or_else(|error| panic!("{target}: {error}"));
    index["files"].as_array().expect("a list of files").clone()
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["name"].as_str().expect("a name")).collect()
}

#[track_caller]
fn page(server: &Server, target: &str) -> Answer {
    let answer = http(server.http, "GET", target);
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    answer
}

#[test]
fn sealed_site_lists_a_title_for_each_film_and_no_part_of_one() {
    let test = "index::sealed_site_lists_a_title_for_each_film_and_no_part_of_one";
    let Some(film) = film(test) else { return };
    let place = Place::new();
    for name in ["library/one.ts", "library/sub/two.ts"] {
        place.put(name, &film.bytes);
    }
    let mut command = Command::new(PROGRAM);
    command.args(["seal", "hls", "--no-key"]).arg(place.folder().join("library"));
    command.arg(place.folder().join("site"));
    watchdog::run(&mut command, LIMIT).expect("the program is there").succeeded();
    place.put("clips/talk.avi", b"not looked into");
    place.put("clips/notes.txt", b"notes");

    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let codecs = server.await_stream("library/one.ts")["stream"]["codecs"].clone();
    let codecs = codecs.as_str().expect("codecs by name");
    assert!(codecs.starts_with("avc1.") && codecs.ends_with(",mp4a.40.2"), "{codecs}");
    server.await_stream("library/sub/two.ts");
    let index = server.index();
    let parts = index["total"]["parts"].as_u64().expect("a count");
    assert!(parts >= 20, "{} segments and media playlists", parts);
    let titles = rows(&server, "/index.json");
    let expected = [
        "clips/notes.txt",
        "clips/talk.avi",
        "library/one.ts",
        "library/sub/two.ts",
        "site/one/master.m3u8",
        "site/sub/two/master.m3u8",
    ];
    assert_eq!(names(&titles), expected);
    assert_eq!(titles[0]["not_streamed"], Value::Null, "nobody takes it for a film");
    let reason = titles[1]["not_streamed"].as_str().unwrap_or_default();
    assert!(reason.starts_with("AVI: download only; "), "{reason}");
    let total = &index["total"];
    let counted = ["films", "sealed", "streams", "waiting", "others"].map(|kind| &total[kind]);
    assert_eq!(counted, [4, 0, 2, 0, 2], "as people count: {total}");
    let count = |kind: &str| total[kind].as_u64().expect("a count");
    assert_eq!(count("files"), count("films") + count("others") + parts);
    let link = titles[4]["playlist"]["address"].as_str().expect("a link to play");
    // With the host name that this client uses for the server.
    assert_eq!(link, "http://test/site/one/master.m3u8");
    assert!(page(&server, "/site/one/master.m3u8").text().starts_with("#EXTM3U"));

    let all = rows(&server, "/index.json?all=1");
    assert_eq!(all.len() as u64, titles.len() as u64 + parts);
    let bytes = |row: &Value| row["bytes"].as_u64().expect("a size");
    let of_film = all.iter().filter(|row| row["name"].as_str().unwrap().starts_with("site/one/"));
    let film_bytes: u64 = of_film.map(bytes).sum();
    assert_eq!(titles[4]["playlist"]["bytes"], film_bytes, "of all of the film");
    assert_eq!(titles[4]["playlist"]["sealed"], false, "--no-key");
    assert_eq!(bytes(&titles[4]), page(&server, "/site/one/master.m3u8").body.len() as u64);
    assert_eq!(total["bytes"], all.iter().map(bytes).sum::<u64>());
    // In pages, each file exactly once.
    let (mut target, mut seen) = ("/index.json?all=1&limit=7".to_owned(), BTreeSet::new());
    loop {
        let answer: Value = serde_json::from_slice(&page(&server, &target).body).expect("JSON");
        for name in names(answer["files"].as_array().expect("rows")) {
            assert!(seen.insert(name.to_owned()), "{name} twice");
        }
        let Some(next) = answer["next"].as_str() else { break };
        target = next.to_owned();
    }
    assert_eq!(seen.len(), all.len());

    let html = page(&server, "/").text();
    assert!(html.contains("<code>http://") && html.contains("/site/one/master.m3u8</code>"));
    assert!(html.contains("AVI: download only; "), "{html}");
    assert!(html.contains("<p>4 films, 2 other files, "), "{html}");
    let megabytes = format!("{:.1} MB", film_bytes as f64 / 1e6);
    assert!(html.contains(&format!("one/master.m3u8</a><td class=\"number\">{megabytes}")));
    // JSON pages continue after the last name; the page for people lists playable files first.
    let place = |name: &str| html.find(&format!("href=\"/{name}\"")).expect("a row");
    let shown = ["library/one.ts", "library/sub/two.ts", "site/one/master.m3u8"].map(place);
    let behind = ["clips/notes.txt", "clips/talk.avi"].map(place);
    assert!(shown.is_sorted() && behind.is_sorted() && shown[2] < behind[0], "{html}");
    server.stop();
}

#[test]
fn folders_have_addresses_and_browsers_find_an_icon() {
    let place = Place::new();
    for name in ["a/1.bin", "a/b c/2.bin", "a/b c/3.bin", "a-b/4.bin", "a.bin"] {
        place.put(name, b"x");
    }
    std::fs::create_dir_all(place.folder().join("empty/.hidden")).expect("folders");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_index("all are listed", |index| index["total"]["files"] == 5);
    assert_eq!(
        names(&rows(&server, "/index.json?below=a")),
        ["a/1.bin", "a/b c/2.bin", "a/b c/3.bin"]
    );
    assert_eq!(names(&rows(&server, "/index.json?below=a/b+c/&limit=1")), ["a/b c/2.bin"]);
    assert_eq!(names(&rows(&server, "/index.json?below=nowhere")), [""; 0]);
    for target in ["/a/b%20c", "/a/b%20c/", "/a//b%20c/"] {
        let html = page(&server, target).text();
        assert!(html.contains("href=\"/a/b%20c/2.bin\""), "{target}: {html}");
        assert!(!html.contains("1.bin") && !html.contains("rel=\"next\""), "{target}: {html}");
    }
    // Every spelling of the address refers to the folder.
    for top in ["/", "//", "/./", "/.", "///.//", "//?all=1"] {
        let html = page(&server, top).text();
        assert!(["a.bin", "a/1.bin"].iter().all(|name| html.contains(name)), "{top}: {html}");
    }
    for folder in ["/a", "//a//", "/./a/", "/a/.", "/a/./", "/.//a"] {
        let html = page(&server, folder).text();
        assert!(html.contains("a/1.bin") && !html.contains("a-b"), "{folder}: {html}");
    }
    let first = page(&server, "/a/?limit=2").text();
    let next = first.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
    let next = next.unwrap_or_else(|| panic!("no next: {first}")).replace("&amp;", "&");
    let second = page(&server, &next).text();
    assert!(second.contains("3.bin") && !second.contains("2.bin\""), "{next}: {second}");
    assert!(!second.contains("a-b/4.bin"), "{next}: {second}");
    assert!(!page(&server, "/empty/").text().contains(".bin"));
    for missing in ["/nowhere/", "/empty/.hidden", "/a/..%2f..", "/a.bin/"] {
        let status = http(server.http, "GET", missing).status;
        assert!((400..500).contains(&status), "{missing}: {status}");
    }
    let icon = page(&server, "/favicon.ico");
    assert_eq!(icon.header("Content-Type"), Some("image/svg+xml"));
    assert!(icon.text().starts_with("<svg"), "{icon:?}");
    place.put("favicon.ico", b"mine");
    assert_eq!(page(&server, "/favicon.ico").body, b"mine");
    server.stop();
}

#[test]
fn a_folder_of_renditions_has_a_row_with_its_addresses() {
    let place = Place::new();
    for (name, seconds) in
        [("film/1080", 2), ("film/720", 2), ("film-b", 2), ("other/a", 2), ("other/b", 4)]
    {
        place.put(&format!("{name}.ts"), &Clip::of_seconds(34, seconds).bytes());
    }
    place.put("film/notes.txt", b"no rendition");
    place.put("seg/0.ts", &Clip::of_seconds(34, 2).bytes());
    place.put("seg/1.ts", &Clip::of_seconds(34, 2).bytes());
    place.put("seg/film.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n0.ts\n1.ts\n");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    // Until they are listed, none is waiting.
    server.await_index("all are read", |index| {
        index["total"]["files"] == 9 && index["total"]["waiting"] == 0
    });
    let all = rows(&server, "/index.json?all=1");
    assert!(names(&all).is_sorted(), "{all:?}");
    let titles: Vec<&Value> = all.iter().filter(|row| !row["renditions"].is_null()).collect();
    let [title] = titles[..] else { panic!("one title: {titles:?}") };
    assert_eq!(title["name"], "film/");
    assert_eq!(title["renditions"], serde_json::json!(["film/1080.ts", "film/720.ts"]));
    assert!(title["duration"].as_f64() > Some(1.9) && title["bytes"].as_u64() > Some(1000));
    for (field, item) in [("hls", "master.m3u8"), ("dash", "manifest.mpd")] {
        let address = format!("http://test/film/{item}");
        assert_eq!(title[field], address);
    }
    assert_eq!(title["download"], Value::Null);
    assert_eq!(names(&rows(&server, "/index.json?below=film&limit=1")), ["film/"]);
    let behind = rows(&server, "/index.json?below=film&limit=1&after=film/");
    assert_eq!(names(&behind), ["film/1080.ts"]);
    let html = page(&server, "/").text();
    for link in ["/film/", "/film/player.html", "/film/master.m3u8", "/film/manifest.mpd"] {
        assert!(html.contains(&format!("href=\"{link}\"")), "{link}: {html}");
    }
    server.stop();
}

/// Regression: the parts of a removed or changed playlist stayed hidden until the server was
/// restarted.
#[test]
fn parts_of_a_playlist_that_is_gone_are_films_again() {
    let place = Place::new();
    for (seed, name) in [(31, "0.ts"), (32, "1.ts")] {
        place.put(name, &Clip::of_seconds(seed, 2).bytes());
    }
    place.put("film.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n0.ts\n1.ts\n");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let await_rows = |expected: &[&str]| {
        server.await_index(&format!("{expected:?} are the rows"), |index| {
            let rows = index["files"].as_array().expect("a list of files");
            let is_played = |row: &Value| !row["stream"].is_null() || !row["playlist"].is_null();
            names(rows) == expected && rows.iter().all(is_played)
        })
    };
    await_rows(&["film.m3u8"]);
    place.put("film.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n1.ts\n#EXT-X-ENDLIST\n");
    await_rows(&["0.ts", "film.m3u8"]);
    std::fs::remove_file(place.folder().join("film.m3u8")).expect("it was put there");
    let total = await_rows(&["0.ts", "1.ts"])["total"].clone();
    assert_eq!((&total["parts"], &total["films"]), (&0.into(), &2.into()), "{total}");
    server.stop();
}

/// Collects the fields of objects, and of nested objects.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            // Its fields are the names of limits.
            if name != "refusals" {
                fields(value, found);
            }
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_index_is_documented() {
    let place = Place::new();
    place.put("film.ts", &Clip::of_seconds(33, 2).bytes());
    place.put("film/1.ts", &Clip::of_seconds(33, 2).bytes());
    place.put("film/2.ts", &Clip::of_seconds(33, 2).bytes());
    place.put("list.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n0.bin\n");
    place.put("talk.avi", b"not looked into");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_index("all are read", |index| index["total"]["streams"] == 3);
    let index: Value = serde_json::from_slice(&page(&server, "/index.json?limit=5").body).unwrap();
    let mut named: BTreeSet<String> =
        ["live", "bytes_read", "not_streamed", "reason", "codecs", "tracks", "language"]
            .map(str::to_owned)
            .into();
    fields(&index, &mut named);
    assert!(named.len() > 40 && named.contains("next") && named.contains("sealed"), "{named:?}");
    assert!(named.contains("renditions"), "{named:?}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/index-json.md");
    let document = std::fs::read_to_string(path).expect("it lies beside the others");
    let missing: Vec<_> =
        named.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/index-json.md names no {missing:?}");
    server.stop();
}

/// Regression: at 400 px a long name or address made the page scroll sideways.
#[test]
fn page_of_the_index_fits_a_phone() {
    let test = "index::page_of_the_index_fits_a_phone";
    let place = Place::new();
    let long = "A_Film_Whose_Name_Has_No_Space_To_Break_A_Line_At.2026.2160p.Atmos.x265-GROUP";
    for (seed, name) in [(34, "short.ts"), (35, &format!("{long}.ts"))] {
        place.put(name, &Clip::of_seconds(seed, 2).bytes());
    }
    place.put(&format!("{long}/master.m3u8"), b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nm.m3u8\n");
    place.put(&format!("{long}.avi"), b"not looked into");
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_stream(&format!("{long}.ts"));
    server.await_stream("short.ts");
    for width in [320, 400, 1200] {
        let width_text = browsed(test, &server, |report| {
            format!(
                "<!doctype html><iframe id=f src=/ style='width:{width}px;height:800px;border:0'>\
                 </iframe><script>f.onload = () => fetch('http://{report}/' +\
                 f.contentDocument.documentElement.scrollWidth, {{mode: 'no-cors'}});</script>"
            )
        });
        let Some(width_text) = width_text else { return };
        let page_width: u32 =
            width_text.trim().parse().unwrap_or_else(|_| panic!("{width_text:?}"));
        assert!((width / 2..=width).contains(&page_width), "{page_width} px wide at {width}");
    }
    server.stop();
}

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
