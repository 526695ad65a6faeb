// SPDX-License-Identifier: MIT OR Apache-2.0
//! Players that request everything at once, in reverse and ten times over, with conditions and for
//! ranges: the answers are the same each time, and the memory and files kept for them are bounded.
//!
//! Sources: RFC 9110 §13 (conditions), §14 (ranges), §9.3.2 (HEAD); RFC 9112 §9.3.2 (pipelining);
//! proc_pid_fd(5).
//! Does not judge speed.

use std::fs;
use std::path::Path;
use std::thread;

use crate::clips::{Clip, clip};
use crate::enciphered;
use crate::harness::Server;
use crate::harness::answer::{Answer, Line, http};
use crate::listed::addresses;

/// A film of each kind, with subtitles beside it.
const FILMS: [(&str, Clip); 3] =
    [("film.mp4", Clip::Mp4), ("two.mp4", Clip::TwoSounds), ("film.ts", Clip::Ts)];

/// Starts servers of all films and of the films with enciphered segments; returns them with the
/// addresses they list.
fn serve(test: &str) -> Option<Vec<(Server, Vec<String>)>> {
    let folder = tempfile::tempdir().expect("a folder");
    let cues = folder.path().join("film.en.srt");
    fs::write(&cues, "1\n00:00:01,000 --> 00:00:09,000\nA line\n").expect("a file");
    let mut files = vec![("film.en.srt", cues)];
    for (name, kind) in FILMS {
        files.push((name, clip(test, kind)?));
    }
    let files: Vec<(&str, &Path)> = files.iter().map(|(name, path)| (*name, &**path)).collect();
    let (_folder, key) = enciphered::secret();
    let key = key.to_str().expect("a path in UTF-8");
    let mut servers = Vec::new();
    for cipher in ["", "aes-128", "cbcs"] {
        let options = ["--http-pace", "off", "--hls-cipher", cipher, "--hls-key-file", key];
        let options = if cipher.is_empty() { &options[..2] } else { &options[..] };
        let server = Server::with_options(&files, options);
        let all: Vec<String> =
            FILMS.iter().flat_map(|(name, _)| addresses(&server, name)).collect();
        assert!(all.iter().any(|path| path.ends_with(".vtt")), "{all:?}");
        servers.push((server, all));
    }
    Some(servers)
}

/// Returns requests for all of these, in one string.
fn requests(paths: &[String]) -> String {
    paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")).collect()
}

#[track_caller]
fn assert_same(path: &str, answer: &Answer, first: &Answer) {
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.header("ETag"), first.header("ETag"), "{path}");
    assert!(answer.body == first.body, "{path}: other bytes");
}

#[test]
fn all_segments_at_once_in_reverse_and_ten_times_are_the_same() {
    let test = "many_requests::all_segments_at_once_in_reverse_and_ten_times_are_the_same";
    let Some(servers) = serve(test) else { return };
    for (server, paths) in servers {
        let firsts: Vec<Answer> = paths.iter().map(|path| http(server.http, "GET", path)).collect();
        let (made, descriptors) = (copies(&server), descriptors(&server).len());
        assert!(made <= paths.len(), "{made} copies of {}", paths.len());
        let mut tags: Vec<_> = firsts.iter().map(|answer| answer.header("ETag")).collect();
        tags.sort_unstable();
        tags.dedup();
        assert!(tags.len() == paths.len() && tags[0].is_some(), "each has a tag: {paths:?}");
        // All at once, each ten times over in one write.
        let lines: Vec<Line> = paths.iter().take(100).map(|_| Line::to(server.http)).collect();
        thread::scope(|scope| {
            for ((mut line, path), first) in lines.into_iter().zip(&paths).zip(&firsts) {
                scope.spawn(move || {
                    line.send(requests(std::slice::from_ref(path)).repeat(TIMES));
                    for _ in 0..TIMES {
                        assert_same(path, &line.answer().expect("an answer"), first);
                    }
                });
            }
        });
        // On one connection, in reverse.
        let mut line = Line::to(server.http);
        let reverse: Vec<String> = paths.iter().rev().cloned().collect();
        for _ in 0..TIMES {
            line.send(requests(&reverse));
            for (path, first) in reverse.iter().zip(firsts.iter().rev()) {
                assert_same(path, &line.answer().expect("an answer"), first);
            }
        }
        drop(line);
        server.await_index("nobody is left", |index| index["server"]["connections"] == 1);
        assert_eq!(copies(&server), made, "each copy was made once");
        let now = self::descriptors(&server).len();
        assert!(now <= descriptors + KEPT_MAX, "{now} descriptors, {descriptors} before");
        server.stop();
    }
}

/// Returns files that a server has open, as the kernel names them.
fn descriptors(server: &Server) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let names = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Returns the number of kept segments that were generated: files without a name.
fn copies(server: &Server) -> usize {
    let cache = server.cache().to_string_lossy().into_owned();
    let names = descriptors(server).into_iter();
    let made = names.filter(|name| {
        name.ends_with(" (deleted)") && (name.starts_with(&cache) || name.contains("segment"))
    });
    made.count()
}

/// Requests one resource in all ways; `fields` are those of the request.
struct Asked<'a> {
    server: &'a Server,
    path: &'a str,
    whole: &'a Answer,
}

impl Asked<'_> {
    #[track_caller]
    fn by(&self, method: &str, fields: &str, status: u16) -> Answer {
        let Asked { server, path, .. } = self;
        let mut line = Line::to(server.http);
        line.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"
        ));
        let answer = match method {
            "HEAD" => {
                let head = line.head().expect("an answer");
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                let body = line.rest(crate::clips::LIMIT).0;
                Answer { status: status.expect("a status"), head, body }
            }
            _ => line.answer().expect("an answer"),
        };
        assert_eq!(answer.status, status, "{method} {path} {fields:?}: {}", answer.head);
        answer
    }

    /// Asserts the whole content, or none of it where it is not sent.
    #[track_caller]
    fn whole(&self, method: &str, fields: &str) {
        let answer = self.by(method, fields, 200);
        let details = format!("{method} {} {fields:?}: {}", self.path, answer.head);
        for name in ["ETag", "Content-Type", "Content-Length", "Cache-Control", "Accept-Ranges"] {
            assert_eq!(answer.header(name), self.whole.header(name), "{details}");
        }
        let expected = if method == "HEAD" { &[][..] } else { &self.whole.body };
        assert!(answer.body == expected, "{details}");
    }

    /// Asserts a range, or the whole content where no range is sent.
    #[track_caller]
    fn range(&self, fields: &str, range: std::ops::Range<usize>, is_whole: bool) {
        if is_whole {
            return self.whole("GET", fields);
        }
        let answer = self.by("GET", fields, 206);
        let (path, bytes) = (self.path, self.whole.body.len());
        let expected = format!("bytes {}-{}/{bytes}", range.start, range.end - 1);
        assert_eq!(answer.header("Content-Range"), Some(&*expected), "{path}");
        assert_eq!(answer.header("ETag"), self.whole.header("ETag"), "{path}");
        assert!(answer.body == self.whole.body[range], "{path}: {fields:?}");
    }
}

/// Conditions and ranges of every listed resource. Resources that may change are sent whole.
#[test]
fn conditions_and_ranges_hold_of_every_kind() {
    let test = "many_requests::conditions_and_ranges_hold_of_every_kind";
    let Some(servers) = serve(test) else { return };
    for (server, paths) in servers {
        let mut kinds = std::collections::BTreeSet::new();
        for path in &paths {
            // One of each kind: numbers of segments are ignored.
            let film = path.split('/').nth(1).unwrap_or_default();
            let kind = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
            if kinds.insert((film, kind.to_owned(), extension.to_owned())) {
                let whole = &http(server.http, "GET", path);
                assert_conditions(&Asked { server: &server, path, whole });
            }
        }
        assert!(kinds.len() > 15, "{kinds:?}");
        server.stop();
    }
}

#[track_caller]
fn assert_conditions(asked: &Asked<'_>) {
    let Asked { path, whole, .. } = asked;
    let is_fixed = path.contains("/~");
    let cached = whole.header("Cache-Control").unwrap_or_default();
    assert_eq!(cached.contains("immutable"), is_fixed, "{path}: {}", whole.head);
    let tag = whole.header("ETag").expect("it has a tag").to_owned();
    asked.whole("HEAD", "");
    for fields in [format!("If-None-Match: {tag}\r\n"), "If-None-Match: *\r\n".to_owned()] {
        for method in ["GET", "HEAD"] {
            let answer = asked.by(method, &fields, 304);
            assert_eq!(answer.header("ETag"), Some(&*tag), "{path}");
            assert!(answer.body.is_empty(), "{path}");
        }
    }
    asked.whole("GET", "If-None-Match: \"other\"\r\n");
    asked.whole("GET", &format!("If-Match: {tag}\r\n"));
    asked.by("GET", "If-Match: \"other\"\r\n", 412);
    let bytes = whole.body.len();
    asked.range("Range: bytes=1-3\r\n", 1..4, !is_fixed);
    asked.range("Range: bytes=-5\r\n", bytes - 5..bytes, !is_fixed);
    asked.range("Range: bytes=0-\r\n", 0..bytes, !is_fixed);
    asked.range(&format!("Range: bytes=2-{bytes}0\r\n"), 2..bytes, !is_fixed);
    asked.range(&format!("Range: bytes=1-3\r\nIf-Range: {tag}\r\n"), 1..4, !is_fixed);
    asked.whole("GET", "Range: bytes=1-3\r\nIf-Range: \"other\"\r\n");
    // Ranges apply to GET alone (RFC 9110 §14.2).
    asked.whole("HEAD", "Range: bytes=1-3\r\n");
    if !is_fixed {
        return asked.whole("GET", &format!("Range: bytes={bytes}-\r\n"));
    }
    let answer = asked.by("GET", &format!("Range: bytes={bytes}-\r\n"), 416);
    assert_eq!(answer.header("Content-Range"), Some(&*format!("bytes */{bytes}")), "{path}");
    let answer = asked.by("GET", "Range: bytes=0-1,-2\r\n", 206);
    let kind = answer.header("Content-Type").unwrap_or_default();
    assert!(kind.starts_with("multipart/byteranges"), "{path}: {kind}");
    let parts = [&whole.body[..2], &whole.body[bytes - 2..]];
    for part in parts {
        let part = [b"\r\n\r\n", part, b"\r\n--"].concat();
        assert!(answer.body.windows(part.len()).any(|found| found == part), "{path}");
    }
}

const TIMES: usize = 10;
/// Files that event loops keep, and files kept for sending.
const KEPT_MAX: usize = 64 + 16;
