// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks of RTSP servers that ask for a password: challenges without end, challenges beyond all
//! size, and servers that send a client elsewhere for its password.
//!
//! Sources: RFC 7616 §5 (threats), RFC 2326 §11.3 (redirections).

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::harness::recorder::Recorder;
use crate::harness::watchdog::{self, Outcome};
use crate::harness::{PROGRAM, Place, await_true};

const PASSWORD: &str = "s3cr3t";
const DIGEST: &str = "WWW-Authenticate: Digest realm=\"camera\", nonce=\"";
/// Last field of a camera that closes the connection at an answer.
const CLOSES: &str = "X-Closes: 1";
/// A challenge, a reply to it, and two for nonces that were called stale.
const REQUESTS_MAX: usize = 4;

/// A camera that refuses every request with the same status line and fields; `N` in them is the
/// number of the request. Behind [`CLOSES`] it closes the connection at an answer to its challenge.
struct Camera {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Camera {
    fn start(refusal: impl Into<String>) -> Camera {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (requests, refusal) = (Arc::<Mutex<Vec<String>>>::default(), refusal.into());
        let seen = requests.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (refusal, seen) = (refusal.clone(), seen.clone());
                thread::spawn(move || refuse_all(&stream.expect("a connection"), &refusal, &seen));
            }
        });
        Camera { address, requests }
    }

    fn url(&self) -> String {
        format!("rtsp://anna:{PASSWORD}@{}/live", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }

    /// Number of requests that had an answer to a challenge.
    fn answers(&self) -> usize {
        self.requests().iter().filter(|request| request.contains("\nAuthorization: ")).count()
    }
}

/// Answers requests until the client leaves.
fn refuse_all(stream: &TcpStream, refusal: &str, seen: &Mutex<Vec<String>>) {
    let (mut lines, mut writing) = (BufReader::new(stream), stream);
    let mut request = String::new();
    while lines.read_line(&mut request).is_ok_and(|bytes| bytes > 0) {
        if !request.ends_with("\r\n\r\n") {
            continue;
        }
        let cseq = request.lines().find(|line| line.starts_with("CSeq: ")).expect("a number");
        let has_answer = request.contains("\nAuthorization: ");
        let mut seen = seen.lock().expect("no panic");
        let refusal = refusal.replace('N', &seen.len().to_string());
        let answer = format!("RTSP/1.0 {refusal}\r\n{cseq}\r\n\r\n");
        seen.push(std::mem::take(&mut request));
        drop(seen);
        if refusal.ends_with(CLOSES) && has_answer {
            return;
        }
        if writing.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Runs a verb on a URL; asserts that it fails for a reason that it tells, and repeats no password.
#[track_caller]
fn run(verb: &str, url: &str) -> Outcome {
    let mut command = Command::new(PROGRAM);
    command.args([verb, "--transport=tcp", url]);
    let outcome = watchdog::run(&mut command, Duration::from_secs(60)).expect("it is built");
    let shown = format!("{} {}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
    assert_eq!(outcome.status.code(), Some(1), "{verb}: {shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    outcome
}

#[test]
fn challenges_without_end_are_answered_a_few_times_each_connection() {
    for (stale, reason, answers) in [
        (", stale=true", "it calls each answer to its challenges stale", REQUESTS_MAX - 1),
        ("", "wrong user or password", 1),
    ] {
        for verb in ["play", "receive"] {
            let camera = Camera::start(format!("401 Unauthorized\r\n{DIGEST}N\"{stale}"));
            let outcome = run(verb, &camera.url());
            assert!(outcome.stderr.contains(reason), "{verb}: {}", outcome.stderr);
            assert_eq!(camera.answers(), answers, "{verb}: {:?}", camera.requests());
        }
    }
}

/// A recorder of hundreds of rooms has one account, which a typing error must not lock.
#[test]
fn a_wrong_password_is_sent_once_for_all_streams_of_a_camera() {
    let camera = Camera::start(format!("401 Unauthorized\r\n{DIGEST}N\""));
    let urls = (0..8).map(|number| format!("{}{number}", camera.url()));
    let mut command = Command::new(PROGRAM);
    let place = Place::new();
    let pattern = place.folder().join("{stream}-{index}.ts");
    command.args(["receive", "--transport=tcp", "--output"]).arg(pattern).args(urls);
    let outcome = watchdog::run(&mut command, Duration::from_secs(60)).expect("it is built");
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
    assert_eq!(camera.answers(), 1, "{:?}", camera.requests());
    assert_eq!(camera.requests().len(), 9, "{:?}", camera.requests());
    assert!(!outcome.stderr.contains(PASSWORD), "{}", outcome.stderr);

    // Another camera closes the connection instead: it may have done so behind its challenge, so
    // that the answer is sent once more.
    let camera = Camera::start(format!("401 Unauthorized\r\n{DIGEST}N\"\r\n{CLOSES}"));
    let urls: Vec<String> = (0..8).map(|number| format!("{}{number}", camera.url())).collect();
    let place = Place::new();
    let recorder = Recorder::start(&place, &urls, &["--transport=tcp"]);
    await_true("all streams are refused", || {
        recorder.log().matches("asking again in 600 s").count() == urls.len()
    });
    assert!(camera.answers() <= 2, "{:?}", camera.requests());
    recorder.stop();
}

#[test]
fn a_password_goes_to_no_other_server_and_to_none_in_clear_text() {
    let other = Camera::start(format!("401 Unauthorized\r\n{DIGEST}N\""));
    let location = format!("302 Found\r\nLocation: rtsp://anna:{PASSWORD}@{}/x", other.address);
    let basic = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"camera\"";
    for verb in ["play", "receive"] {
        let first = Camera::start(location.as_str());
        let outcome = run(verb, &first.url());
        assert!(outcome.stderr.contains("which redirected here"), "{}", outcome.stderr);
        assert_eq!(other.answers(), 0, "{:?}", other.requests());
        let clear = Camera::start(basic);
        let outcome = run(verb, &clear.url());
        assert!(outcome.stderr.contains("clear text (Basic)"), "{}", outcome.stderr);
        assert_eq!(clear.answers(), 0, "{:?}", clear.requests());
    }
    assert_eq!(other.requests().len(), 2, "one of each verb");
}

#[test]
fn challenges_beyond_all_size_are_refused() {
    let nonce = "n".repeat(1 << 20);
    let many = format!("{DIGEST}n\"\r\n").repeat(10_000);
    let long = format!("{DIGEST}{}\"", &nonce[..12 << 10]);
    for (fields, reason) in [
        (format!("{DIGEST}{nonce}\""), "head of more than 16384 bytes"),
        (many, "more than 64 header lines"),
        (long, "bytes, and 8192 are the most"),
    ] {
        let camera = Camera::start(format!("401 Unauthorized\r\n{}", fields.trim_end()));
        let outcome = run("play", &camera.url());
        assert_eq!(camera.answers(), 0, "{}", outcome.stderr);
        assert_eq!(camera.requests().len(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
        assert!(outcome.stderr.len() < 2000, "{}", outcome.stderr);
    }
}
