// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films that are replaced, truncated and removed while they are played: an address has one
//! content, or none any more.
//!
//! Sources: RFC 9110 §15.5.11 (410 Gone); rename(2).
//! Does not replace recordings ([`crate::live_playlists`] does).

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::far_films::with_samples_of;
use crate::harness::answer::{Answer, Line, http};
use crate::harness::{PROGRAM, Place, Server, await_ok, film};
use crate::listed::{addresses, encode, hls, remux, segment};
use crate::site::fetch;

/// Makes two films of the same length and of other content, as files with this extension.
fn two(test: &str, extension: &str) -> Option<[Vec<u8>; 2]> {
    let mut films = Vec::new();
    for gop_s in [2, 3] {
        let mp4 = film::or_skip(test, film::made(&mut encode(14, gop_s, 14), "film.mp4"))?;
        let name = format!("film.{extension}");
        let path: PathBuf = film::or_skip(test, film::made(&mut remux(&mp4, &[]), &name))?;
        films.push(fs::read(path).expect("it was made"));
    }
    films.try_into().ok()
}

/// Returns the answer, as soon as the library has noticed the current file.
#[track_caller]
fn settled(server: &Server, path: &str) -> Answer {
    await_ok(|| {
        let answer = fetch(server, path, None);
        match answer.status {
            503 => Err(format!("{path}: {}", answer.text())),
            _ => Ok(answer),
        }
    })
}

/// Returns bodies of all segments that HLS lists, with the part of the address after the identity.
#[track_caller]
fn bodies(server: &Server, name: &str) -> Vec<(String, Vec<u8>)> {
    let (_, media) = hls(server, name);
    let segments = media.iter().flat_map(|one| &one.segments);
    let one = |one| {
        let item: String = item_of(&one_path(one)).to_owned();
        (item, segment(server, one))
    };
    segments.map(one).collect()
}

fn one_path(one: &crate::listed::ListedSegment) -> String {
    format!("{}?{:?}", one.path, one.range)
}

/// Returns the part of an address after the identity of its file.
fn item_of(path: &str) -> &str {
    let (_, below) = path.split_once("/~").expect("an identity");
    below.split_once('/').expect("an item").1
}

/// All addresses of the old content return 410 as soon as the file has been replaced; addresses in
/// the current playlists have only the new content. It suffices that the inode differs.
#[test]
fn addresses_of_a_film_that_is_replaced_are_gone() {
    let test = "replaced_films::addresses_of_a_film_that_is_replaced_are_gone";
    for extension in ["mp4", "ts"] {
        let Some([mut old, mut new]) = two(test, extension) else { return };
        // Of the same size: trailing bytes are not part of the film.
        if extension == "mp4" {
            let bytes = old.len().max(new.len()) + 16;
            for film in [&mut old, &mut new] {
                let rest = (bytes - film.len()) as u32;
                film.extend([&rest.to_be_bytes()[..], b"free"].concat());
                film.resize(bytes, 0);
            }
        }
        let name = &format!("film.{extension}")[..];
        let place = Place::new();
        let path = place.put(name, &old);
        place.put(&format!("other.{extension}"), &new);
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        let expected = bodies(&server, &format!("other.{extension}"));
        let listed = addresses(&server, name);
        let kept = listed.iter().filter(|one| one.contains("/~"));
        let kept: Vec<&String> = kept.collect();
        assert!(kept.len() >= 8, "{listed:?}");
        let modified = fs::metadata(&path).and_then(|about| about.modified());
        let newer = place.top().join("newer");
        fs::write(&newer, &new).expect("a file");
        let file = File::options().write(true).open(&newer).expect("it is there");
        file.set_modified(modified.expect("a time")).expect("its owner may");
        fs::rename(&newer, &path).expect("one file system");
        for path in &kept {
            let answer = fetch(&server, path, None);
            assert_eq!(answer.status, 410, "{path}: {}", answer.text());
            assert!(answer.text().contains("load master.m3u8"), "{}", answer.text());
        }
        settled(&server, &format!("/{name}/master.m3u8"));
        assert!(bodies(&server, name) == expected, "{name}: segments are those of the new film");
        let now = addresses(&server, name);
        assert!(now.iter().all(|one| !kept.contains(&one)), "{now:?}");
        for path in now {
            assert_eq!(fetch(&server, &path, None).status, 200, "{path}");
        }
        // Replaced back: the first content has addresses of its own again.
        place.put(name, &old);
        for path in &kept {
            assert_eq!(fetch(&server, path, None).status, 410, "{path}");
        }
        server.stop();
    }
}

/// While a film is replaced repeatedly, all segments below one identity are of one film.
#[test]
fn segments_of_one_address_are_never_of_two_films() {
    let test = "replaced_films::segments_of_one_address_are_never_of_two_films";
    for extension in ["mp4", "ts"] {
        let Some(films) = two(test, extension) else { return };
        let name = &format!("film.{extension}")[..];
        let place = Place::new();
        for (number, film) in films.iter().enumerate() {
            place.put(&format!("{number}.{extension}"), film);
        }
        place.put(name, &films[0]);
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        let expected = [0, 1].map(|number| {
            let listed = addresses(&server, &format!("{number}.{extension}")).into_iter();
            let media = listed.filter(|one| one.ends_with(".m4s") || one.ends_with(".ts"));
            let fetched = media.map(|path| {
                let item = item_of(&path).to_owned();
                (item, fetch(&server, &path, None).body)
            });
            fetched.collect::<HashMap<String, Vec<u8>>>()
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=REPLACED {
                    place.put(name, &films[number % 2]);
                    let master = format!("/{name}/master.m3u8");
                    settled(&server, &master);
                }
                is_over.store(true, Ordering::Release);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Acquire) {
                        assert_of_one_film(&server, name, &expected);
                    }
                });
            }
        });
        server.stop();
    }
}

/// Plays as a player does whose film is replaced meanwhile.
#[track_caller]
fn assert_of_one_film(server: &Server, name: &str, expected: &[HashMap<String, Vec<u8>>; 2]) {
    let mut line = Line::to(server.http);
    let mut get = |path: &str| {
        line.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        line.answer().unwrap_or_else(|| panic!("{path}: closed without an answer"))
    };
    let manifest = get(&format!("/{name}/manifest.mpd"));
    if manifest.status == 503 {
        return;
    }
    assert_eq!(manifest.status, 200, "{}", manifest.text());
    let text = manifest.text();
    let (_, identity) = text.split_once("~").expect("an identity");
    let identity = identity.split_once('/').expect("it has an end").0;
    let mut of = [true; 2];
    for item in expected[0].keys().filter(|item| expected[1].contains_key(*item)) {
        let path = format!("/{name}/~{identity}/{item}");
        let answer = get(&path);
        match answer.status {
            200 => {
                for (of, expected) in of.iter_mut().zip(expected) {
                    *of &= expected[item] == answer.body;
                }
                assert_ne!(of, [false; 2], "{path} is of another film");
            }
            410 | 503 => {}
            status => panic!("{path}: {status}: {}", answer.text()),
        }
    }
}

/// An answer that is being sent while the film is replaced has the old film to its end; the answer
/// for a truncated film ends short of the announced length. Neither has bytes of another file.
#[test]
fn a_segment_in_progress_is_of_the_old_film_or_ends() {
    let test = "replaced_films::a_segment_in_progress_is_of_the_old_film_or_ends";
    for is_cut in [false, true] {
        let Some((place, from)) = with_samples_of(test, 200_000, 0) else { return };
        let server = Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]);
        let (_, media) = hls(&server, "film.mp4");
        let path = media[0].segments[1].path.clone();
        let whole = fetch(&server, &path, None);
        assert_eq!(whole.status, 200, "{}", whole.head);
        let mut line = Line::to(server.http);
        line.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
        let head = line.head().expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let film = place.folder().join("film.mp4");
        if is_cut {
            let file = File::options().write(true).open(&film).expect("it is there");
            file.set_len(from + 151 * 200_000).expect("its owner may");
        } else {
            fs::write(place.top().join("newer"), vec![0xff; 1 << 20]).expect("a file");
            fs::rename(place.top().join("newer"), &film).expect("one file system");
        }
        assert_eq!(fetch(&server, &path, None).status, 410, "asked for anew");
        let (rest, _) = line.rest(LIMIT);
        if is_cut {
            assert!(rest.len() < whole.body.len(), "all of it came");
            // Pages in transit belong to the file: their truncated part is zero.
            let received = rest.iter().zip(&whole.body);
            let is_kept =
                |at: usize, (byte, was): (&u8, &u8)| byte == was || *byte == 0 && at > 200_000;
            assert!(received.enumerate().all(|(at, one)| is_kept(at, one)), "{}", rest.len());
        } else {
            assert!(rest == whole.body, "{} of {}", rest.len(), whole.body.len());
        }
        server.stop();
    }
}

/// A truncated film has other playlists or none, with the reason, and its old addresses return 410;
/// those of a removed film are not found.
#[test]
fn a_film_that_is_cut_short_or_removed_is_gone() {
    let test = "replaced_films::a_film_that_is_cut_short_or_removed_is_gone";
    for extension in ["mp4", "ts"] {
        let Some([film, _]) = two(test, extension) else { return };
        let name = &format!("film.{extension}")[..];
        let place = Place::new();
        let path = place.put(name, &film);
        let server = Server::at(&place, Command::new(PROGRAM), &[]);
        let kept = addresses(&server, name);
        let file = File::options().write(true).open(&path).expect("it is there");
        let half = film.len() / 376 * 188;
        file.set_len(half as u64).expect("its owner may");
        for path in kept.iter().filter(|one| one.contains("/~")) {
            assert_eq!(fetch(&server, path, None).status, 410, "{path}");
        }
        for item in ["master.m3u8", "manifest.mpd"] {
            let answer = settled(&server, &format!("/{name}/{item}"));
            let expected = if extension == "ts" { 200 } else { 404 };
            assert_eq!(answer.status, expected, "{item}: {}", answer.text());
        }
        if extension == "ts" {
            let sent: Vec<u8> = bodies(&server, name).into_iter().flat_map(|one| one.1).collect();
            assert!(sent == film[..half], "segments are the file as it is");
        }
        fs::remove_file(&path).expect("it is there");
        for path in &kept {
            assert_eq!(http(server.http, "GET", path).status, 404, "{path}");
        }
        server.stop();
    }
}

const REPLACED: usize = 20;
/// Guards against hanging.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
