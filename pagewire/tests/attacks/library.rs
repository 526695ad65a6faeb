// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks through files: long scans requested and abandoned, files that are not streams or that
//! change constantly.
//!
//! A file that takes hours to scan is a clip followed by a hole of a tebibyte: it uses no disk
//! space and must be read to its end. Work is measured by the bytes that the server's system calls
//! have read.
//!
//! Sources: proc_pid_io(5), flock(2), fcntl_locking(2), RFC 2326 §12.31 (Retry-After).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use serde_json::Value;

use crate::harness::clip::Clip;
use crate::harness::rtsp::Control;
use crate::harness::{PROGRAM, Place, Server};
use crate::{beside_canary, canary, serve_place};

/// Puts a file into the folder that is recognised as no stream only at its end; `false` where the
/// file system cannot hold a file of this size.
fn put_endless(place: &Place, name: &str) -> bool {
    let path = place.put(name, &Clip::of_seconds(7, 1).bytes());
    let file = File::options().write(true).open(path).expect("it was put there");
    let resized = file.set_len(ENDLESS_BYTES);
    if let Err(error) = &resized {
        eprintln!("skip: a file of {ENDLESS_BYTES} bytes: {error}");
    }
    resized.is_ok()
}

/// Returns the bytes that the server's system calls have read so far.
fn bytes_read(server: &Server) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", server.pid())).expect("it runs");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

/// Sends a DESCRIBE and leaves the answer unread.
fn describe(control: &mut Control, server: &Server, name: &str) {
    let url = server.rtsp_url(name);
    assert!(control.line.send(format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n")));
}

/// Waits until the server scans files with this prefix, or until it no longer does.
#[track_caller]
fn await_scans(server: &Server, prefix: &str, is_awaited: bool) {
    let what = if is_awaited { "files are scanned" } else { "no file is scanned" };
    let before = bytes_read(server);
    server.await_index(&format!("{prefix}: {what}"), |index| {
        let scans = index["scans"].as_array().into_iter().flatten();
        let mut names = scans.filter_map(|scan| scan["name"].as_str());
        // A file listed as being read counts only while it is read.
        names.any(|name| name.starts_with(prefix)) == is_awaited
            && (!is_awaited || bytes_read(server) - before > MUCH_BYTES)
    });
}

/// Regression: four such scans blocked RTSP for everyone, until the files were read or for ever.
#[test]
fn scans_of_large_files_delay_no_other_describe_and_end_when_nobody_waits() {
    let place = Place::new();
    let endless: Vec<_> = (0..6).map(|number| format!("endless-{number}.bin")).collect();
    if !endless.iter().all(|name| put_endless(&place, name)) {
        return;
    }
    for name in ["planned.ts", "fresh-0.bin", "fresh-1.bin"] {
        place.put(name, &Clip::of_seconds(3, 2).bytes());
    }
    let server = serve_place(&place, &[]);
    server.await_stream("planned.ts");
    beside_canary(&server, || {
        let mut waiting: Vec<Control> = Vec::new();
        for name in &endless {
            let mut control = Control::to(server.rtsp);
            describe(&mut control, &server, name);
            waiting.push(control);
        }
        await_scans(&server, "endless-", true);
        // Neither planned files nor short ones wait for the long ones.
        let mut control = Control::to(server.rtsp);
        for _ in 0..20 {
            assert_eq!(control.ask("DESCRIBE", "planned.ts", &[]).status, 200);
        }
        assert_eq!(control.ask("DESCRIBE", "fresh-0.bin", &[]).status, 200);
        // A client that sends bytes ahead and disconnects is gone as well.
        waiting[0].line.send("OPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n");
        drop(waiting);
        await_scans(&server, "endless-", false);
        assert_eq!(control.ask("DESCRIBE", "fresh-1.bin", &[]).status, 200);
    });
}

/// The number of concurrent scans is bounded, and one address cannot use all of it.
#[test]
fn one_address_leaves_places_for_scans_to_others() {
    let place = Place::new();
    let endless: Vec<_> = (0..9).map(|number| format!("endless-{number}.bin")).collect();
    if !endless.iter().all(|name| put_endless(&place, name)) {
        return;
    }
    place.put("fresh.bin", &Clip::of_seconds(3, 2).bytes());
    let server = serve_place(&place, &[]);
    beside_canary(&server, || {
        let stranger: IpAddr = [127, 0, 0, 2].into();
        let mut waiting: Vec<Control> = Vec::new();
        for name in &endless[..8] {
            let mut control = Control::from_address(stranger, server.rtsp);
            describe(&mut control, &server, name);
            waiting.push(control);
        }
        // Each has a scan, whichever connection was read first.
        server.await_index("eight files are scanned", |index| {
            let scans = index["scans"].as_array().into_iter().flatten();
            let names = scans.filter_map(|scan| scan["name"].as_str());
            names.filter(|name| name.starts_with("endless-")).count() == 8
        });
        let refused =
            Control::from_address(stranger, server.rtsp).ask("DESCRIBE", &endless[8], &[]);
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.header("Retry-After").is_some_and(|s| s.parse::<u64>().is_ok()));
        assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "fresh.bin", &[]).status, 200);
        // A scan slot is free again as soon as one client disconnects.
        waiting.pop();
        let again = Control::from_address(stranger, server.rtsp).ask("DESCRIBE", "fresh.bin", &[]);
        assert_eq!(again.status, 200);
    });
}

/// A file without a clock is read once, however many such files there are and however their names
/// are spelled.
#[test]
fn refusals_are_remembered_for_all_files_by_whatever_name() {
    let place = Place::new();
    let clockless =
        Clip { with_clock: false, bits_per_second: 4_000_000, ..Clip::of_seconds(5, 1) };
    let bytes = clockless.bytes();
    let names: Vec<_> = (0..40).map(|number| format!("clockless-{number}.bin")).collect();
    names.iter().for_each(|name| drop(place.put(name, &bytes)));
    symlink(".", place.folder().join("here")).expect("a link");
    let server = serve_place(&place, &[]);
    beside_canary(&server, || {
        let mut control = Control::to(server.rtsp);
        let mut refused = |name: &str| {
            let answer = control.ask("DESCRIBE", name, &[]);
            assert_eq!(answer.status, 415, "{name}: {answer:?}");
        };
        names.iter().for_each(|name| refused(name));
        let before = bytes_read(&server);
        for name in &names {
            refused(name);
            refused(&format!("./{name}"));
            refused(&format!("here/here/{name}"));
        }
        let read = bytes_read(&server) - before;
        let all = (names.len() * bytes.len()) as u64;
        assert!(read < all / 2, "{read} bytes read again, of {all}");
    });
}

/// Regression: each scan of a growing recording ran to the end of the file, only to find that it
/// had grown.
#[test]
fn a_growing_or_vanishing_file_ends_its_scan() {
    let place = Place::new();
    if !["growing.bin", "vanishing.bin"].iter().all(|name| put_endless(&place, name)) {
        return;
    }
    let server = serve_place(&place, &[]);
    beside_canary(&server, || {
        let path = server.folder().join("growing.bin");
        let mut recorder = File::options().append(true).open(path).expect("it was put there");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    recorder.write_all(&[0x47; 188]).expect("room for a packet");
                    // Writes as a recorder does; only the growth is judged.
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let mut control = Control::to(server.rtsp);
            for _ in 0..10 {
                let answer = control.ask("DESCRIBE", "growing.bin", &[]);
                assert_eq!(answer.status, 503, "{answer:?}");
                assert!(answer.header("Retry-After").is_some(), "{answer:?}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut waiting = Control::to(server.rtsp);
        describe(&mut waiting, &server, "vanishing.bin");
        await_scans(&server, "vanishing.bin", true);
        fs::remove_file(server.folder().join("vanishing.bin")).expect("it is there");
        assert_eq!(waiting.line.answer().expect("an answer").status, 503);
        await_scans(&server, "vanishing.bin", false);
    });
}

fn row<'a>(index: &'a Value, name: &str) -> &'a Value {
    let rows = index["files"].as_array().expect("a list of files");
    rows.iter().find(|row| row["name"] == name).unwrap_or(&Value::Null)
}

/// Regression: a reader's lock marked a film as a recording without an end, and 256 such films
/// blocked all others.
#[test]
fn locks_of_readers_make_no_film_a_recording() {
    let place = Place::new();
    let path = place.put("film.ts", &Clip::of_seconds(3, 2).bytes());
    let reader = File::open(&path).expect("it was put there");
    flock(&reader, FlockOperation::NonBlockingLockExclusive).expect("granted to readers");
    fcntl_lock(&reader, FlockOperation::NonBlockingLockShared).expect("granted to readers");
    let server = serve_place(&place, &[]);
    beside_canary(&server, || {
        let known = server.await_stream("film.ts");
        assert_eq!(known["live"], Value::Null, "{known}");
        let described = Control::to(server.rtsp).ask("DESCRIBE", "film.ts", &[]).text();
        assert!(described.contains("a=range:npt=0-2"), "it has an end: {described}");
    });
    drop(reader);
}

/// Regression: the mark remained until the file was written again.
#[test]
fn mark_of_a_recording_goes_with_its_lock() {
    let place = Place::new();
    let path = place.put("film.ts", &Clip::of_seconds(3, 2).bytes());
    let writer = File::options().append(true).open(path).expect("it was put there");
    fcntl_lock(&writer, FlockOperation::NonBlockingLockExclusive).expect("it is open for writing");
    let server = serve_place(&place, &[]);
    beside_canary(&server, || {
        server.await_index("it is live", |index| row(index, "film.ts")["live"] == true);
        let described = Control::to(server.rtsp).ask("DESCRIBE", "film.ts", &[]);
        assert!(described.text().contains("a=range:npt=0-\r\n"), "{described:?}");
        // Unlocking causes no inotify event: nothing was written, and the file stays open.
        fcntl_lock(&writer, FlockOperation::Unlock).expect("it is held");
        server.await_index("it is complete", |index| {
            let row = row(index, "film.ts");
            row["live"].is_null() && row["stream"]["packets"].is_u64()
        });
    });
    drop(writer);
}

/// Returns the number of watches that the server holds.
fn watches(server: &Server) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fdinfo", server.pid())).expect("it runs");
    let infos = folder.filter_map(|info| fs::read_to_string(info.ok()?.path()).ok());
    infos.map(|info| info.lines().filter(|line| line.starts_with("inotify wd:")).count()).sum()
}

/// Regression: one link to the root of a file system used up all of the user's watches.
#[test]
fn links_out_of_the_folder_are_not_watched() {
    let place = Place::new();
    let outside = place.top().join("outside");
    for number in 0..300 {
        fs::create_dir_all(outside.join(number.to_string())).expect("a folder");
    }
    fs::create_dir(place.folder().join("inside")).expect("a folder");
    symlink(&outside, place.folder().join("planted")).expect("a link");
    symlink("..", place.folder().join("inside/up")).expect("a link");
    let server = serve_place(&place, &[]);
    beside_canary(&server, || {
        symlink(&outside, server.folder().join("inside/planted-later")).expect("a link");
        fs::create_dir(server.folder().join("inside/swapped")).expect("a folder");
        fs::remove_dir(server.folder().join("inside/swapped")).expect("a folder");
        symlink(&outside, server.folder().join("inside/swapped")).expect("a link");
        fs::create_dir(server.folder().join("inside/deep")).expect("a folder");
        // Changes below it are noticed.
        place.put("inside/deep/new.bin", b"new");
        server.await_index("the new file is listed", |index| {
            let rows = index["files"].as_array().expect("a list of files");
            rows.iter().any(|row| row["name"] == "inside/deep/new.bin")
        });
        fs::write(outside.join("7/secret.bin"), "secret").expect("a file");
        assert_eq!(watches(&server), 3, "the folder, inside and inside/deep");
    });
}

/// Starts a server that may watch four folders; returns `None`, with the reason printed, where that
/// cannot be set.
fn serve_with_four_watches(place: &Place) -> Option<Server> {
    let script = "echo 4 > /proc/sys/user/max_inotify_watches && exec \"$0\" \"$@\"";
    let limited = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script, program]);
        command
    };
    if !limited("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skip: no user namespace with watches of its own");
        return None;
    }
    place.put(canary::NAME, &Clip::of_seconds(1, 1).bytes());
    let server = Server::at(place, limited(PROGRAM), &[]);
    server.await_log("max_user_watches");
    assert!(watches(&server) <= 4);
    Some(server)
}

/// Waits until a file is listed in each of these folders.
#[track_caller]
fn await_a_file_in_each(server: &Server, folders: usize, name: &str) {
    server.await_index("all of them are listed", |index| {
        let is_listed = |folder: usize| !row(index, &format!("{folder}/{name}")).is_null();
        (0..folders).all(is_listed)
    });
}

/// A folder with more subfolders than there are watches is served.
#[test]
fn exhausted_watches_are_told_of_once() {
    let place = Place::new();
    for number in 0..9 {
        place.put(&format!("{number}/old.bin"), b"old");
    }
    let Some(server) = serve_with_four_watches(&place) else { return };
    await_a_file_in_each(&server, 9, "old.bin");
    let log = server.stop();
    assert_eq!(log.matches("max_user_watches").count(), 1, "{log}");
}

/// Regression: downloads that waited for the disk used every thread that may block, and each
/// DESCRIBE waited behind all of them. A busy machine delays many of the requests, but not the
/// fastest.
#[test]
fn a_describe_does_not_wait_behind_a_thousand_downloads() {
    let is_quick = |sent: u64| sent < FEW_BYTES;
    let Some(sent) = sent_during_describes(is_quick) else { return };
    assert!(sent.iter().any(|sent| is_quick(*sent)), "{sent:?}");
}

/// Returns the bytes sent during each of 21 DESCRIBEs beside a thousand downloads; stops early at
/// one that is `enough`. This measure does not depend on the machine's speed. Returns `None`, with
/// the reason printed, where there are too few descriptors.
fn sent_during_describes(enough: impl Fn(u64) -> bool) -> Option<Vec<u64>> {
    let place = Place::new();
    let file = File::create(place.folder().join("cold.bin")).expect("a file");
    file.set_len(DOWNLOADS * DOWNLOAD_BYTES).expect("a hole takes no room");
    place.put("planned.ts", &Clip::of_seconds(3, 2).bytes());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 2 * DOWNLOADS) {
        eprintln!("skip: {DOWNLOADS} connections need more descriptors than {limit:?}");
        return None;
    }
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("allowed");
    let server = serve_place(&place, &["--path", "sendfile"]);
    server.await_stream("planned.ts");
    let mut sent = Vec::new();
    beside_canary(&server, || {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut downloads: Vec<_> = (0..DOWNLOADS).map(|n| download(&server, n)).collect();
            let is_over = &is_over;
            scope.spawn(move || {
                let mut piece = vec![0; 256 << 10];
                while !is_over.load(Ordering::Relaxed) {
                    // A download that has ended or is idle is skipped in this round.
                    downloads.iter_mut().for_each(|download| drop(download.read(&mut piece)));
                }
            });
            let began = bytes_read(&server);
            let deadline = Instant::now() + LIMIT;
            while bytes_read(&server) - began <= FEW_BYTES {
                assert!(Instant::now() < deadline, "the downloads are not under way");
                thread::sleep(Duration::from_millis(5));
            }
            let mut control = Control::to(server.rtsp);
            for _ in 0..21 {
                let before = bytes_read(&server);
                assert_eq!(control.ask("DESCRIBE", "planned.ts", &[]).status, 200);
                sent.push(bytes_read(&server) - before);
                if sent.last().is_some_and(|sent| enough(*sent)) {
                    break;
                }
                // Spread over the downloads.
                thread::sleep(Duration::from_millis(20));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    println!("bytes sent during a DESCRIBE: {sent:?}");
    Some(sent)
}

/// Requests a part of the uncached file that no other download requests.
fn download(server: &Server, number: u64) -> TcpStream {
    let mut stream = TcpStream::connect(server.http).expect("HTTP listens");
    let (from, end) = (number * DOWNLOAD_BYTES, (number + 1) * DOWNLOAD_BYTES - 1);
    write!(stream, "GET /cold.bin HTTP/1.1\r\nHost: h\r\nRange: bytes={from}-{end}\r\n\r\n")
        .expect("the request goes out");
    stream.set_nonblocking(true).expect("a socket has the option");
    stream
}

/// Guards against hanging.
const LIMIT: Duration = Duration::from_secs(60);
const ENDLESS_BYTES: u64 = 1 << 40;
/// More than a canary sends, far less than a scan reads in the same time.
const MUCH_BYTES: u64 = 4 << 20;
const DOWNLOADS: u64 = 1000;
const DOWNLOAD_BYTES: u64 = 16 << 20;
/// Bytes that the server reads from a disk in one step.
const STEP_BYTES: u64 = 1 << 20;
/// One sixteenth of the step of each download.
const FEW_BYTES: u64 = DOWNLOADS * STEP_BYTES / 16;

mod timed {
    use super::*;

    /// A folder with more subfolders than there are watches is still followed, by walks every ten
    /// seconds.
    #[test]
    fn exhausted_watches_are_told_of_once_and_replaced_by_walks() {
        let place = Place::new();
        for number in 0..9 {
            fs::create_dir(place.folder().join(number.to_string())).expect("a folder");
        }
        let Some(server) = serve_with_four_watches(&place) else { return };
        for number in 0..9 {
            place.put(&format!("{number}/new.bin"), b"new");
        }
        await_a_file_in_each(&server, 9, "new.bin");
        let log = server.stop();
        assert_eq!(log.matches("max_user_watches").count(), 1, "{log}");
    }

    #[test]
    fn most_describes_do_not_wait_behind_a_thousand_downloads() {
        let Some(mut sent) = sent_during_describes(|_| false) else { return };
        sent.sort_unstable();
        assert!(sent[sent.len() / 2] < FEW_BYTES, "{sent:?}");
    }
}
