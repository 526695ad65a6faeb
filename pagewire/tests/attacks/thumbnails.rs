// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posters of hostile files, and the possible actions of a decoder that an attacker controls.
//!
//! A Python program that tries forbidden operations replaces the decoder and so tests the sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Enforced, FilePermissions};

use crate::harness::answer::{Answer, Line, get_in_turn};
use crate::harness::{Place, Server, await_true, film, in_own_session};
use crate::{beside_canary, random, serve_place_by};

/// Runs a program in the sandbox, started as the server starts ffmpeg.
fn in_sandbox(program: &str, arguments: &[&str]) -> Option<Output> {
    let path = Path::new("/usr/bin").join(program);
    if !path.exists() {
        eprintln!("skip: sandbox: {}: not installed", path.display());
        return None;
    }
    let mut command = in_own_session();
    command.args(["sandbox", "--parent", &std::process::id().to_string()]);
    command.args(["--cpu-seconds", "2", "--memory-bytes", "1000000000", "--"]);
    // Uses pipes: the program may write to no file.
    command.arg(path).args(arguments).stdin(Stdio::null());
    Some(command.output().expect("it is built"))
}

/// Attempts of a decoder that an attacker controls; each prints its name if it succeeds.
const ATTEMPTS: &str = r#"
import ctypes, fcntl, os, resource, signal, socket
victim = os.getppid()
def attempt(name, action):
    try:
        action()
        print(name, flush=True)
    except (OSError, MemoryError, ValueError, ImportError):
        pass
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError()
def owned_pipe():
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, victim)
attempt("control", lambda: os.getpid())
attempt("socket", lambda: socket.socket())
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
attempt("fork", lambda: os.fork() == 0 and os._exit(0))
attempt("signal", lambda: os.kill(victim, 0))
attempt("write", lambda: open("/tmp/pagewire-sandbox-test", "w"))
attempt("trace", lambda: call(101, 16, victim, 0, 0))
attempt("limits of the server", lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE))
attempt("memory of the server", lambda: call(310, victim, 0, 0, 0, 0, 0))
attempt("signals by descriptors", owned_pipe)
attempt("memory", lambda: bytearray(2_000_000_000))
attempt("higher limit", lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)))
attempt("io_uring", lambda: call(425, 8, ctypes.create_string_buffer(120)))
attempt("name space", lambda: call(272, 0x10000000))
attempt("file: passwd", lambda: open("/etc/passwd").read(1))
attempt("file: memory", lambda: os.open(f"/proc/{victim}/mem", os.O_RDONLY))
attempt("file: environment", lambda: open("/proc/self/environ").read(1))
attempt("program", lambda: os.execv("/bin/sh", ["sh", "-c", "echo file: shell"]))
"#;

#[test]
fn a_decoder_that_is_taken_over_reaches_nothing() {
    // Without the user's own Python files, which must not be read.
    let Some(outcome) = in_sandbox("python3", &["-I", "-S", "-c", ATTEMPTS]) else { return };
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let printed = String::from_utf8(outcome.stdout).expect("it prints ASCII");
    let mut succeeded: Vec<&str> = printed.lines().collect();
    assert_eq!(succeeded.first(), Some(&"control"), "{printed} {stderr}");
    let enforced = thread::spawn(|| FilePermissions::none().restrict()).join().expect("no panic");
    if matches!(enforced, Ok(Enforced::Not)) {
        eprintln!("skip: sandbox: the kernel has no Landlock: files are not tried");
        succeeded.retain(|attempt| !attempt.starts_with("file: "));
    }
    assert_eq!(succeeded, ["control"], "{stderr}");
    assert!(outcome.status.success(), "{}: {stderr}", outcome.status);
}

#[test]
fn a_decoder_that_runs_on_is_ended_by_its_processor_time() {
    let endless = "while True: pass";
    let began = Instant::now();
    let Some(outcome) = in_sandbox("python3", &["-I", "-S", "-c", endless]) else { return };
    assert!(!outcome.status.success(), "{}", outcome.status);
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
}

/// Returns files that are not films, or that harm their decoder.
fn hostile(film: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut noise = random::Random::seeded(19);
    let mut bytes = |count: usize| (0..count).map(|_| noise.next() as u8).collect::<Vec<u8>>();
    let garbage = [b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", &bytes(50_000)[..]].concat();
    let mut damaged = film.to_vec();
    // After 40 intact packets, the last 100 bytes of each packet are noise; its header stays valid.
    for packet in damaged.chunks_mut(188).skip(40) {
        let body = bytes(100);
        if let Some(end) = packet.get_mut(88..188) {
            end.copy_from_slice(&body);
        }
    }
    vec![
        ("cut.ts", film[..film.len() / 3 + 77].to_vec()),
        ("start.ts", film[..4000].to_vec()),
        ("damaged.ts", damaged),
        ("garbage.mp4", garbage),
        ("nothing.mkv", Vec::new()),
        ("loop.ts", b"#EXTM3U\n#EXTINF:1,\nloop.ts\n#EXTINF:1,\n/etc/passwd\n".to_vec()),
        ("script.mp4", b"ffconcat version 1.0\nfile /etc/passwd\n".to_vec()),
        ("huge.ts", huge(film)),
    ]
}

/// Returns a film whose parameter sets declare pictures of 100,000 x 100,000 pixels.
fn huge(film: &[u8]) -> Vec<u8> {
    // Baseline profile; SPS ID 0; picture order count type 2; width and height of 6250
    // macroblocks, stored as 6249.
    const SET: [u8; 12] = [0x67, 0x42, 0x00, 0x33, 0xdc, 0x00, 0x18, 0x6a, 0x00, 0x0c, 0x35, 0x44];
    let mut film = film.to_vec();
    let starts: Vec<usize> = (0..film.len() - 64)
        .filter(|&at| film[at..at + 4] == [0, 0, 1, 0x67])
        .map(|at| at + 3)
        .collect();
    assert!(!starts.is_empty(), "the film has parameter sets");
    for at in starts {
        film[at..at + SET.len()].copy_from_slice(&SET);
    }
    film
}

fn poster(server: &Server, name: &str) -> Answer {
    get_in_turn(server.http, &format!("/{name}/poster.jpg"))
}

/// Returns the processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").expect("it is mounted").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |number: &u32| {
        let status = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let fields = status.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    numbers.filter(is_child).collect()
}

#[test]
fn posters_of_hostile_files_are_refused_and_leave_nothing() {
    let Some(film) = film::film("posters_of_hostile_files") else { return };
    let files = hostile(&film.bytes[..film.bytes.len() / 10]);
    let place = Place::new();
    for (name, bytes) in &files {
        place.put(name, bytes);
    }
    let server = serve_place_by(in_own_session(), &place, &[]);
    beside_canary(&server, || {
        for (name, _) in &files {
            let answer = poster(&server, name);
            let is_picture = answer.status == 200 && answer.body.starts_with(&[0xff, 0xd8]);
            assert!(is_picture || answer.status == 404, "{name}: {}", answer.text());
            assert!(!answer.text().contains("root:"), "{name}");
        }
        // These files yield no picture: a second request is refused as well.
        for name in ["loop.ts", "script.mp4", "garbage.mp4", "nothing.mkv", "huge.ts"] {
            assert_eq!(poster(&server, name).status, 404, "{name}");
        }
    });
    assert_eq!(children(server.pid()), [0; 0], "decoders that are left");
}

/// Waits for a decoder of a server, and stops it with SIGSTOP.
fn stopped_decoder(server: &Server) -> Option<u32> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        for child in children(server.pid()) {
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if name.trim() == "ffmpeg" {
                let child_pid = Pid::from_raw(child as i32).expect("a number");
                if kill_process(child_pid, Signal::STOP).is_ok() {
                    return Some(child);
                }
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

#[test]
fn a_killed_server_leaves_no_decoder() {
    let Some(film) = film::film("a_killed_server_leaves_no_decoder") else { return };
    let place = Place::new();
    place.put("film.ts", &film.bytes);
    let server = serve_place_by(in_own_session(), &place, &[]);
    server.await_stream("film.ts");
    let mut line = Line::to(server.http);
    line.send("GET /film.ts/thumbnails.vtt HTTP/1.1\r\nHost: test\r\n\r\n");
    let decoder = stopped_decoder(&server).expect("a decoder runs");
    let killed = Pid::from_raw(server.pid() as i32).expect("a number");
    kill_process(killed, Signal::KILL).expect("it runs");
    let program = PathBuf::from(format!("/proc/{decoder}/exe"));
    await_true("the decoder ends with its server", || fs::read_link(&program).is_err());
}

#[test]
fn a_burst_of_posters_makes_no_stream_late_and_takes_its_share_alone() {
    let test = "a_burst_of_posters";
    let Some(film) = film::film(test) else { return };
    let short = &film.bytes[..film.bytes.len() / 10 / 188 * 188];
    let place = Place::new();
    for number in 0..50 {
        place.put(&format!("films/{number}.ts"), short);
    }
    let server = serve_place_by(in_own_session(), &place, &[]);
    server.await_stream("films/49.ts");
    beside_canary(&server, || {
        let mut lines: Vec<Line> = (0..50).map(|_| Line::to(server.http)).collect();
        for (number, line) in lines.iter_mut().enumerate() {
            let target = format!("/films/{number}.ts/poster.jpg");
            line.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        }
        let answers: Vec<Answer> =
            lines.iter_mut().map(|line| line.answer().expect("an answer")).collect();
        let made = answers.iter().filter(|answer| answer.status == 200).count();
        let later = answers.iter().filter(|answer| answer.status == 503);
        let later = later.inspect(|answer| assert!(answer.header("Retry-After").is_some()));
        let later = later.count();
        println!("posters of a burst: {made} made, {later} later");
        assert_eq!(made + later, 50, "{:?}", answers[0].head);
        // One client has at most half of the 64 slots.
        assert!(made <= 32 || later == 0, "{made} made");
        let other = get_in_turn(server.http, "/films/0.ts/poster.jpg");
        assert_eq!(other.status, 200, "{}", other.text());
    });
}

/// Guards against hanging; a decoder starts and is ended much sooner, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
