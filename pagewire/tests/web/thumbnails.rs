// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posters and thumbnails of films of known colours, in all containers: each is a JPEG file of the
//! right size with the colour of the film at that time.
//!
//! ffmpeg makes the films and decodes the pictures; without it the tests are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::clips::ffmpeg;
use crate::harness::answer::{Answer, Line, get_in_turn, http};
use crate::harness::{PROGRAM, Place, Server, film, in_own_session};

/// Colours of the film, 8 s each.
const COLOURS: [(&str, [u8; 3]); 3] =
    [("red", [254, 0, 0]), ("lime", [0, 255, 0]), ("blue", [0, 0, 254])];
const SECONDS: f64 = 24.0;

/// Makes a film of three colours; returns `None`, with the reason printed, without ffmpeg or its
/// encoder.
fn colours(test: &str, folder: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    let path = folder.join(name);
    let mut command = ffmpeg();
    for (colour, _) in COLOURS {
        let input = format!("color={colour}:size=384x216:rate=25:duration=8");
        command.args(["-f", "lavfi", "-i", &input]);
    }
    command.args(["-filter_complex", "concat=n=3", "-pix_fmt", "yuv420p", "-g", "50"]);
    film::put(test, command.args(options), &path)?;
    Some(path)
}

/// Returns pixels of a JPEG file, with its width.
fn pixels(jpeg: &[u8]) -> (usize, Vec<[u8; 3]>) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("picture.jpg");
    fs::write(&path, jpeg).expect("room for a picture");
    let mut command = ffmpeg();
    command.arg("-i").arg(&path).args(["-pix_fmt", "rgb24", "-f", "rawvideo", "pipe:1"]);
    let output = command.stdin(Stdio::null()).output().expect("it made the film");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pixels: Vec<[u8; 3]> = output.stdout.as_chunks().0.to_vec();
    (width(jpeg), pixels)
}

/// Returns the width in the header of a frame (ITU-T T.81 §B.2.2).
fn width(jpeg: &[u8]) -> usize {
    assert!(jpeg.starts_with(&[0xff, 0xd8]) && jpeg.ends_with(&[0xff, 0xd9]), "no JPEG file");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("baseline JPEG");
    usize::from(u16::from_be_bytes([jpeg[frame + 7], jpeg[frame + 8]]))
}

#[track_caller]
fn assert_colour(found: [u8; 3], expected: [u8; 3], what: &str) {
    let is_near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) < 24);
    assert!(is_near, "{what}: {found:?} and not {expected:?}");
}

/// Waits for a free decoder; decoders have the lowest priority.
#[track_caller]
fn get(server: &Server, target: &str) -> Answer {
    let answer = get_in_turn(server.http, target);
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer
}

/// Start, end, sheet, and position of a cue.
type Cue = (f64, f64, String, [usize; 4]);

fn cues(list: &str) -> Vec<Cue> {
    let seconds = |clock: &str| {
        let parts = clock.split(':').map(|part| part.parse::<f64>().expect("a number"));
        parts.fold(0.0, |sum, part| sum * 60.0 + part)
    };
    assert!(list.starts_with("WEBVTT\n\n"), "{list}");
    let cue = |text: &str| {
        let (times, target) = text.trim().split_once('\n').expect("two lines");
        let (start, end) = times.split_once(" --> ").expect("two times");
        let (sheet, place) = target.split_once("#xywh=").expect("a place");
        let place: Vec<usize> = place.split(',').map(|n| n.parse().expect("a number")).collect();
        let place = place.try_into().expect("four numbers");
        (seconds(start), seconds(end), sheet.to_owned(), place)
    };
    list.split("\n\n").skip(1).map(cue).collect()
}

#[test]
fn pictures_of_all_containers_show_what_the_film_shows() {
    let test = "thumbnails";
    let place = Place::new();
    let open = "-x264-params open-gop=1:bframes=3:scenecut=0";
    let h264 = |more: &'static str| -> Vec<&'static str> {
        ["-c:v", "libx264", "-preset", "veryfast"].into_iter().chain(more.split(' ')).collect()
    };
    let h265 = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none"];
    let forms = [
        ("whole.mp4", h264("-movflags +faststart")),
        ("pieces.mp4", h264("-movflags frag_keyframe+empty_moov")),
        ("open.mkv", h264(open)),
        ("open.ts", h264(open)),
        ("h265.mp4", h265.to_vec()),
        ("mpeg2.ts", vec!["-c:v", "mpeg2video", "-b:v", "2M"]),
    ];
    let mut films = Vec::new();
    for (name, options) in &forms {
        films.extend(colours(test, &place.folder(), name, options).map(|_| *name));
    }
    if films.is_empty() {
        return;
    }
    let server = Server::at(&place, in_own_session(), &[]);
    for name in films {
        server.await_stream(name);
        let poster = get(&server, &format!("/{name}/poster.jpg"));
        assert_eq!(poster.header("Content-Type"), Some("image/jpeg"));
        let (width, shown) = pixels(&poster.body);
        assert_eq!((width, shown.len() / width), (320, 180), "{name}");
        assert_colour(shown[shown.len() / 2 + 160], COLOURS[0].1, name);
        let list = get(&server, &format!("/{name}/thumbnails.vtt"));
        assert!(list.header("Content-Type").is_some_and(|kind| kind.starts_with("text/vtt")));
        let cues = cues(&list.text());
        assert_eq!(cues[0].0, 0.0, "{name}");
        assert!(cues.windows(2).all(|pair| pair[0].1 == pair[1].0), "{name}: {cues:?}");
        let end = cues.last().expect("a cue").1;
        assert!((end - SECONDS).abs() < 0.2 && cues.len() >= 6, "{name}: {cues:?}");
        let sheet = get(&server, &format!("/{name}/thumbnails-0.jpg"));
        let (width, shown) = pixels(&sheet.body);
        for (start, end, file, [x, y, w, h]) in &cues {
            assert_eq!((file.as_str(), *w, *h), ("thumbnails-0.jpg", 160, 90));
            assert!(x + w <= width && (y + h) * width <= shown.len(), "{name}: {x} {y}");
            let middle = shown[(y + h / 2) * width + x + w / 2];
            // A picture is valid from its time on; near a change either may be shown.
            let colour = ((start + 0.2).min(*end) / 8.0) as usize;
            assert_colour(middle, COLOURS[colour.min(2)].1, &format!("{name} at {start}"));
        }
    }
}

#[test]
fn poster_is_not_the_black_before_the_film() {
    let test = "poster_is_not_the_black_before_the_film";
    let place = Place::new();
    let path = place.folder().join("film.mp4");
    let mut command = ffmpeg();
    for input in ["color=black:size=320x240:duration=6", "testsrc2=size=320x240:duration=18"] {
        command.args(["-f", "lavfi", "-i", input]);
    }
    command.args(["-filter_complex", "concat=n=2", "-g", "25", "-pix_fmt", "yuv420p"]);
    if film::put(test, &mut command, &path).is_none() {
        return;
    }
    let server = Server::at(&place, in_own_session(), &[]);
    let poster = get(&server, "/film.mp4/poster.jpg");
    let (_, shown) = pixels(&poster.body);
    let bright = shown.iter().filter(|pixel| pixel.iter().any(|&value| value > 100)).count();
    assert!(bright > shown.len() / 4, "{bright} bright pixels of {}", shown.len());
}

#[test]
fn pictures_are_kept_revalidated_and_made_again_when_damaged() {
    let test = "pictures_are_kept_revalidated_and_made_again_when_damaged";
    let place = Place::new();
    let x264 = ["-c:v", "libx264", "-preset", "veryfast"];
    if colours(test, &place.folder(), "film.mp4", &x264).is_none() {
        return;
    }
    fs::write(place.folder().join("song.mp3"), [0; 64]).expect("room for a file");
    let server = Server::at(&place, in_own_session(), &[]);
    let first = get(&server, "/film.mp4/poster.jpg");
    let tag = first.header("ETag").expect("a tag").to_owned();
    assert_eq!(first.header("Cache-Control"), Some("no-cache"));
    let mut line = Line::to(server.http);
    line.send(format!(
        "GET /film.mp4/poster.jpg HTTP/1.1\r\nHost: test\r\nIf-None-Match: {tag}\r\n\r\n"
    ));
    assert_eq!(line.answer().expect("an answer").status, 304);
    let identity = tag.trim_matches('"').split('/').next().expect("a part");
    let pinned = get(&server, &format!("/film.mp4/poster.jpg?v={identity}"));
    let forever = pinned.header("Cache-Control").expect("it is named");
    assert!(forever.contains("immutable"), "{forever}");
    for missing in ["film.mp4/thumbnails-9.jpg", "song.mp3/poster.jpg", "none.mp4/poster.jpg"] {
        let answer = get_in_turn(server.http, &format!("/{missing}"));
        assert_eq!(answer.status, 404, "{missing}: {}", answer.text());
    }
    server.stop();

    // Kept, damaged, and replaced by a planted link.
    let posters = place.cache().join("posters");
    let kept = || {
        let entries = fs::read_dir(&posters).expect("it was made").flatten();
        let paths = entries.map(|entry| entry.path());
        let mut posters = paths.filter(|path| path.extension().is_some_and(|e| e == "poster"));
        posters.next().expect("a poster is kept")
    };
    let whole = fs::read(kept()).expect("it is a file");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    let victim = place.top().join("victim");
    fs::write(&victim, &whole).expect("room for a file");
    let plants: [&dyn Fn(&Path); 3] = [
        &|path| fs::write(path, &damaged).expect("room for a file"),
        &|path| {
            fs::remove_file(path).expect("it is there");
            std::os::unix::fs::symlink(&victim, path).expect("its place is free");
        },
        &|path| fs::write(path, []).expect("room for a file"),
    ];
    for plant in plants {
        plant(&kept());
        let server = Server::at(&place, in_own_session(), &[]);
        let again = get(&server, "/film.mp4/poster.jpg");
        assert!(again.body == first.body, "the same picture");
        server.stop();
        assert!(kept().symlink_metadata().expect("it is there").is_file());
        assert!(fs::read(kept()).expect("it is a file") == whole, "it was made again");
        assert!(fs::read(&victim).expect("it is a file") == whole);
    }
}

#[test]
fn reason_is_given_where_there_are_no_pictures() {
    let place = Place::new();
    let clip = crate::harness::clip::Clip::of_seconds(1, 4);
    place.put("film.ts", &clip.bytes());
    let mut without = Command::new(PROGRAM);
    without.env("PATH", place.top());
    for (command, options, reason) in [
        (without, &[][..], "ffmpeg was not in PATH"),
        (Command::new(PROGRAM), &["--thumbnails", "off"], "--thumbnails off"),
    ] {
        let server = Server::at(&place, command, options);
        for item in ["poster.jpg", "thumbnails.vtt", "thumbnails-0.jpg"] {
            let answer = http(server.http, "GET", &format!("/film.ts/{item}"));
            assert_eq!(answer.status, 404);
            assert!(answer.text().contains(reason), "{}", answer.text());
        }
        server.stop();
    }
}
