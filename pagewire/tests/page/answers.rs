// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers: the page as sent: its policy, the choice between page and table, its files and their
//! size, and the parts of the index that it requests.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::answer::{Answer, Line, http};
use crate::harness::{PROGRAM, Place, Server};

/// Compressed size of the page's own files and of the bundled ones: a documented limit.
const WEIGHT_MAX: usize = 250_000;
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

#[track_caller]
fn fetch(server: &Server, target: &str, fields: &str) -> Answer {
    let mut line = Line::to(server.http);
    line.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n"));
    line.answer().unwrap_or_else(|| panic!("{target}: closed without an answer"))
}

/// True of a build with hls.js.
pub(crate) fn is_bundled(server: &Server) -> bool {
    fetch(server, "/", BROWSER).text().contains("name=\"pagewire\" content=\"hls")
}

fn served(names: &[&str]) -> Server {
    let place = Place::new();
    for name in names {
        place.put(name, b"x");
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    server.await_index("all are listed", |index| index["total"]["files"] == names.len());
    server
}

#[test]
fn browsers_get_the_page_and_others_the_table() {
    let server = served(&["a/b/1.bin", "2.bin"]);
    for target in ["/", "/a/", "/a/b", "/?q=x", "/2.bin/player.html"] {
        let page = fetch(&server, target, BROWSER);
        assert_eq!(page.status, 200, "{target}");
        let text = page.text();
        assert!(text.contains("<script type=\"module\"") && !text.contains(".bin\""), "{target}");
        let policy = page.header("Content-Security-Policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
        assert!(!policy.contains("unsafe"), "{policy}");
        // Relative to the page, its files are at the top.
        let depth = target.split('?').next().expect("a path").matches('/').count() - 1;
        let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
        assert!(text.contains(&format!("src=\"{root}.pagewire/")), "{target}: {text}");
    }
    for (target, fields) in
        [("/", ""), ("/", "Accept: */*\r\n"), ("/?plain=1", BROWSER), ("/?all=1", BROWSER)]
    {
        let table = fetch(&server, target, fields);
        assert!(table.text().contains("<a href=\"/2.bin\">"), "{target}: {}", table.text());
        assert!(table.header("Content-Security-Policy").is_some(), "{target}");
    }
    for target in ["/", "/a/"] {
        for fields in ["", BROWSER] {
            let answer = fetch(&server, target, fields);
            assert!(answer.header("Vary").is_some_and(|vary| vary.contains("Accept")));
        }
    }
    // A page that has not changed is not sent again.
    let page = fetch(&server, "/", BROWSER);
    let tag = page.header("ETag").expect("a tag").to_owned();
    assert_eq!(fetch(&server, "/", &format!("{BROWSER}If-None-Match: {tag}\r\n")).status, 304);
    server.stop();
}

/// Returns the files that a text names, relative to its folder.
fn named(text: &str) -> Vec<String> {
    let starts = ["from \"./", "import(\"./", "import \"./"];
    let found = starts.iter().flat_map(|start| text.split(start).skip(1));
    found.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

#[test]
fn files_of_the_page_are_compressed_kept_and_weigh_little() {
    let server = served(&[]);
    let page = fetch(&server, "/", BROWSER).text();
    let folder = page.split(".pagewire/").nth(1).and_then(|rest| rest.split('/').next());
    let folder = format!("/.pagewire/{}", folder.expect("a version"));
    let mut wanted: Vec<String> = page
        .split(&format!(".{folder}/"))
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    let mut weights = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if weights.contains_key(&name) {
            continue;
        }
        let target = format!("{folder}/{name}");
        let packed = fetch(&server, &target, "Accept-Encoding: gzip\r\n");
        if packed.status == 404 && ["hls.js", "qr.js", "LICENSES.txt"].contains(&&name[..]) {
            assert!(!is_bundled(&server), "{name}");
            eprintln!("skip: answers: {name}: not in this build; make web");
            continue;
        }
        assert_eq!(packed.status, 200, "{target}");
        assert_eq!(packed.header("Content-Encoding"), Some("gzip"), "{name}");
        assert_eq!(packed.header("Cache-Control"), Some("max-age=31536000, immutable"), "{name}");
        assert_eq!(packed.header("X-Content-Type-Options"), Some("nosniff"), "{name}");
        let plain = fetch(&server, &target, "");
        assert!(plain.body.len() > packed.body.len(), "{name}");
        wanted.extend(named(&plain.text()));
        weights.insert(name, packed.body.len());
    }
    assert!(weights.len() > 15, "{weights:?}");
    let weight: usize = weights.values().sum::<usize>() + page.len();
    println!("the page weighs {weight} bytes: {weights:?}");
    assert!(weight < WEIGHT_MAX, "{weight} bytes: {weights:?}");
    // An older page finds the files of this version, and revalidates them each time.
    let old = fetch(&server, "/.pagewire/0123456789abcdef/app.js", "");
    assert_eq!((old.status, old.header("Cache-Control")), (200, Some("no-cache")));
    for missing in ["/.pagewire/", "/.pagewire/x", "/.pagewire/x/..%2fapp.js", "/.pagewire/x/y.js"]
    {
        assert_eq!(fetch(&server, missing, "").status, 404, "{missing}");
    }
    server.stop();
}

#[test]
fn index_answers_folders_words_and_orders() {
    let server = served(&["a/1.bin", "a/b/2.bin", "a/b/Sea.txt", "c 2.bin", "c 10.bin"]);
    let asked = |query: &str| -> Value {
        let answer = http(server.http, "GET", &format!("/index.json?{query}"));
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        serde_json::from_slice(&answer.body).expect("JSON")
    };
    let names = |index: &Value| -> Vec<String> {
        let files = index["files"].as_array().expect("rows");
        files.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    let top = asked("folder=");
    assert_eq!(names(&top), ["c 2.bin", "c 10.bin"]);
    let folder = &top["found"]["folders"][0];
    assert_eq!((&folder["name"], &folder["files"]), (&json!("a/"), &json!(3)));
    let below = asked("folder=a%2Fb%2F");
    assert_eq!((names(&below).len(), &below["found"]["folders_total"]), (2, &json!(0)));
    assert_eq!(names(&asked("q=SEA")), ["a/b/Sea.txt"]);
    assert_eq!(names(&asked("name=a/1.bin")), ["a/1.bin"]);
    assert_eq!(names(&asked("live=1")), [""; 0]);
    // Parts, one after the other.
    let (mut target, mut seen) = ("/index.json?sort=-name&limit=2".to_owned(), Vec::new());
    loop {
        let part: Value = serde_json::from_slice(&http(server.http, "GET", &target).body).unwrap();
        seen.extend(names(&part));
        match part["next"].as_str() {
            Some(next) => target = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert_eq!(asked("folder=")["found"]["files"], 2);
    for wrong in ["sort=best", "folder=&offset=x"] {
        let refused = http(server.http, "GET", &format!("/index.json?{wrong}"));
        assert_eq!(refused.status, 400, "{wrong}");
    }
    server.stop();
}
