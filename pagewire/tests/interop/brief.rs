// SPDX-License-Identifier: MIT OR Apache-2.0
//! A short run of real clients for the gate: ffmpeg, ffprobe and curl receive a film of two seconds
//! over every transport. Bytes and frames are judged, and no time.
//!
//! Over UDP a client that does not get the core may lose packets itself. The film fits into a
//! socket's buffer, so the kernel drops none of it. But ffmpeg reads RTCP before RTP
//! (libavformat/rtpproto.c) and ends at BYE, even with packets unread. [`Sockets`] detects both.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::ffmpeg::{Frame, PICTURE, SOUND, check_streams, frames, of_stream};
use crate::harness::Server;
use crate::harness::film::{FRAMES_PER_SECOND, short_film};
use crate::hls::{KEY, SERVED_KEY, Sealed, sealed_film};
use crate::{assert_bytes, client, curl};

const SECONDS: u64 = 2;

/// Returns a server of the film, the film's file and its frames; `None`, with the reason printed,
/// where it cannot be made.
fn serve(test: &str) -> Option<(Server, PathBuf, Vec<Frame>)> {
    let (path, sent) = film(test)?;
    let server = Server::start(&[("film.ts", &path)]);
    server.await_stream("film.ts");
    Some((server, path, sent))
}

fn film(test: &str) -> Option<(PathBuf, Vec<Frame>)> {
    let path = short_film(test, 1, SECONDS)?;
    let sent = frames(test, &["-copyts"], path.as_os_str(), &[])?;
    let pictures = of_stream(&sent, PICTURE).len() as u64;
    assert_eq!(pictures, SECONDS * FRAMES_PER_SECOND);
    assert!(of_stream(&sent, SOUND).len() as u64 > SECONDS * 40);
    Some((path, sent))
}

/// Receives the film over RTSP by ffmpeg's transport of that name.
fn receive(test: &str, transport: &str) {
    let Some((server, _, sent)) = serve(test) else { return };
    let url = server.rtsp_url("film.ts");
    let options = ["-copyts", "-rtsp_transport", transport];
    let (received, sockets) = Sockets::watched(|| frames(test, &options, OsStr::new(&url), &[]));
    let Some(received) = received else { return };
    let checked = check_streams(&received, &sent, &[PICTURE, SOUND]);
    match (&checked, sockets.loss(lacks_the_end(&received, &sent))) {
        (Err(_), Some(loss)) if transport == "udp" => {
            eprintln!("skip: busy machine: {test}: {loss}");
        }
        _ => checked.unwrap_or_else(|difference| panic!("{difference}; {sockets:?}")),
    }
    server.stop();
}

/// True where only the end is missing; the last frame of each stream may be cut.
fn lacks_the_end(received: &[Frame], sent: &[Frame]) -> bool {
    [PICTURE, SOUND].into_iter().all(|stream| {
        let (received, sent) = (of_stream(received, stream), of_stream(sent, stream));
        let whole = received.len().saturating_sub(1);
        sent.starts_with(&received[..whole])
    })
}

#[test]
fn ffmpeg_receives_every_frame_over_udp() {
    receive("brief::ffmpeg_receives_every_frame_over_udp", "udp");
}

#[test]
fn ffmpeg_receives_every_frame_over_tcp() {
    receive("brief::ffmpeg_receives_every_frame_over_tcp", "tcp");
}

#[test]
fn ffmpeg_receives_every_frame_through_a_tunnel() {
    receive("brief::ffmpeg_receives_every_frame_through_a_tunnel", "http");
}

#[test]
fn ffmpeg_and_ffprobe_read_the_film_over_http() {
    let test = "brief::ffmpeg_and_ffprobe_read_the_film_over_http";
    let Some((server, path, sent)) = serve(test) else { return };
    let url = server.http_url("film.ts");
    let Some(received) = frames(test, &["-copyts"], OsStr::new(&url), &[]) else { return };
    assert!(received == sent, "{} frames, not {}", received.len(), sent.len());
    let streams = |input: &OsStr| {
        let mut command = Command::new("ffprobe");
        command.args(["-loglevel", "error", "-of", "json", "-show_streams"]).arg(input);
        Some(client(test, &mut command)?.succeeded())
    };
    let Some(of_file) = streams(path.as_os_str()) else { return };
    let of_server = streams(OsStr::new(&url)).expect("ffprobe was there");
    assert_eq!(String::from_utf8_lossy(&of_server), String::from_utf8_lossy(&of_file));
    server.stop();
}

#[test]
fn ffmpeg_plays_every_frame_of_a_sealed_film() {
    let test = "brief::ffmpeg_plays_every_frame_of_a_sealed_film";
    let Some((path, sent)) = film(test) else { return };
    let Sealed { server, secrets: _kept } = sealed_film(&path, &KEY, &SERVED_KEY);
    let name = path.file_stem().and_then(OsStr::to_str).expect("a name in UTF-8");
    let url = server.http_url(&format!("{name}/master.m3u8"));
    let Some(received) = frames(test, &["-copyts"], OsStr::new(&url), &[]) else { return };
    for stream in [PICTURE, SOUND] {
        let (received, sent) = (of_stream(&received, stream), of_stream(&sent, stream));
        assert!(received == sent, "{} frames, not {}", received.len(), sent.len());
    }
    server.stop();
}

#[test]
fn curl_downloads_the_whole_and_ranges() {
    let test = "brief::curl_downloads_the_whole_and_ranges";
    let (server, bytes, url) = curl::serve_file(&[]);
    let Some(whole) = curl::ask(test, &url, &[]) else { return };
    assert_eq!((whole.status, whole.header("Accept-Ranges")), (200, Some("bytes")));
    assert_bytes(&whole.body, &bytes);
    let length = bytes.len();
    for (range, expected) in [
        ("0-0", 0..1),
        ("1000-1999999", 1000..2_000_000),
        ("2999999-", 2_999_999..length),
        ("-500", length - 500..length),
    ] {
        let part = curl::ask(test, &url, &["-r", range]).expect("curl was there");
        assert_eq!(part.status, 206, "{range}: {}", part.head);
        let content_range = format!("bytes {}-{}/{length}", expected.start, expected.end - 1);
        assert_eq!(part.header("Content-Range"), Some(&*content_range), "{range}");
        assert_bytes(&part.body, &bytes[expected]);
    }
    let beyond = curl::ask(test, &url, &["-r", &format!("{length}-")]).expect("curl was there");
    assert_eq!((beyond.status, beyond.header("Content-Range")), (416, Some("bytes */3000017")));
    let tag = format!("If-None-Match: {}", whole.header("ETag").expect("an entity tag"));
    let same = curl::ask(test, &url, &["-H", &tag]).expect("curl was there");
    assert_eq!((same.status, same.body.len()), (304, 0), "{}", same.head);
    server.stop();
}

/// UDP sockets of ffmpeg, as a child of this test, while it ran.
#[derive(Debug, Default)]
struct Sockets {
    /// Datagrams that the kernel dropped at them.
    dropped: u64,
    /// Bytes that they held unread at the last observation.
    unread: u64,
    /// The longest pause between two observations.
    blind: Duration,
}

impl Sockets {
    /// Runs a client and observes its sockets meanwhile.
    fn watched<T>(run: impl FnOnce() -> T) -> (T, Sockets) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut sockets = Sockets::default();
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    thread::sleep(LOOK_EVERY);
                    sockets.look();
                    sockets.blind = sockets.blind.max(began.elapsed());
                }
                sockets
            });
            let result = run();
            is_over.store(true, Ordering::Relaxed);
            (result, watch.join().expect("reading /proc does not panic"))
        })
    }

    /// Returns the reason why a client did not get every sent packet: packets dropped by the
    /// kernel, or the end left unread.
    fn loss(&self, lacks_the_end: bool) -> Option<String> {
        let Sockets { dropped, unread, blind } = self;
        let has_ended_early = lacks_the_end && (*unread > 0 || *blind >= BLIND_MIN);
        (*dropped > 0 || has_ended_early).then(|| {
            format!(
                "ffmpeg was late: {dropped} datagrams dropped at its sockets, {unread} bytes \
                 unread at the end, and this test stood still for {} ms",
                blind.as_millis()
            )
        })
    }

    fn look(&mut self) {
        let inodes = inodes_of_ffmpeg();
        let table = |name| fs::read_to_string(Path::new("/proc/net").join(name));
        let tables = ["udp", "udp6"].map(table).into_iter().flatten();
        let (mut is_seen, mut dropped, mut unread) = (false, 0, 0);
        for table in tables {
            for line in table.lines().skip(1) {
                let fields: Vec<_> = line.split_whitespace().collect();
                let [.., inode, _, _, drops] = fields[..] else { continue };
                if inodes.contains(inode) {
                    let queued = fields[4].split_once(':').map_or("0", |(_, received)| received);
                    dropped += drops.parse::<u64>().unwrap_or(0);
                    unread += u64::from_str_radix(queued, 16).unwrap_or(0);
                    is_seen = true;
                }
            }
        }
        if is_seen {
            (self.dropped, self.unread) = (self.dropped.max(dropped), unread);
        }
    }
}

/// Returns inodes of all sockets of child processes that are ffmpeg.
fn inodes_of_ffmpeg() -> BTreeSet<String> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let mut inodes = BTreeSet::new();
    for task in below("/proc/self/task".into()) {
        for child in read(task.path().join("children")).split_whitespace() {
            let process = Path::new("/proc").join(child);
            if read(process.join("comm")).trim() != "ffmpeg" {
                continue;
            }
            for descriptor in below(process.join("fd")) {
                let target = fs::read_link(descriptor.path()).unwrap_or_default();
                let target = target.to_string_lossy();
                let socket = target.strip_prefix("socket:[").and_then(|s| s.strip_suffix(']'));
                inodes.extend(socket.map(str::to_owned));
            }
        }
    }
    inodes
}

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The server sends BYE 300 ms after the last packet: a client that pauses for so long may read it
/// first.
const BLIND_MIN: Duration = Duration::from_millis(250);
