// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that request files that no rule opens to them: other spellings of a path, replayed and
//! altered credentials, guessed passwords and sessions, names of files in the index.
//!
//! Sources: RFC 7616 §5 (attacks on Digest), RFC 2326 §16, RFC 9110 §17.
//! Tokens are attacked in `tokens`; real clients log in in `tests/interop`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::harness::answer::{Answer, Line};
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, PortPair};
use crate::harness::{PROGRAM, Place, Server};

const RULES: &str = r#"
[groups]
family = ["anna"]

[[access]]
path = ""
verbs = ["list", "play", "download"]
allow = ["anyone"]

[[access]]
path = "private"
verbs = ["list", "play", "download", "key"]
allow = ["group:family", "signed"]
"#;
const SECRET: &str = "one 0123456789abcdef0123456789abcdef\n";

/// Runs a command of the program with this input; returns its output.
fn run(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program under test starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

/// A server with users anna and ben, whose passwords are their names backwards, and a key of signed
/// addresses.
pub(crate) struct Guarded {
    pub(crate) place: Place,
    pub(crate) server: Server,
}

impl Guarded {
    fn new(rules: &str, further: &[&str]) -> Guarded {
        let place = Place::new();
        place.put("open/a.ts", &Clip::of_seconds(3, 3).bytes());
        place.put("private/film.ts", &Clip::of_seconds(4, 3).bytes());
        place.put("private/secret.bin", b"secret");
        let (users, digest) = (top(&place, "users"), top(&place, "digest"));
        for (user, password) in [("anna", "anna1"), ("ben", "ben1")] {
            run(&["passwd", &users, user], password);
            run(&["passwd", "--digest", &digest, user], password);
        }
        let (keys, config) = (top(&place, "keys"), top(&place, "pagewire.toml"));
        std::fs::write(&keys, SECRET).expect("room");
        std::fs::write(&config, rules).expect("room");
        let mut options = vec!["--config", &config, "--users", &users, "--url-key-file", &keys];
        options.extend(["--digest-users", &digest]);
        options.extend(further);
        let server = Server::at(&place, Command::new(PROGRAM), &options);
        Guarded { place, server }
    }

    fn signed(&self, url: &str, options: &[&str]) -> String {
        let keys = top(&self.place, "keys");
        let mut arguments = vec!["sign", url, "--key-file", &keys];
        arguments.extend(options);
        run(&arguments, "")
    }

    /// Returns path and query of a signed address of this server.
    fn signed_target(&self, path: &str, options: &[&str]) -> String {
        let url = self.signed(&self.server.http_url(path), options);
        url[format!("http://{}", self.server.http).len()..].to_owned()
    }
}

fn top(place: &Place, name: &str) -> String {
    let path: PathBuf = place.top().join(name);
    path.to_str().expect("UTF-8").to_owned()
}

/// Sends one request with these header lines, on a connection of its own.
pub(crate) fn get(server: SocketAddr, target: &str, headers: &[&str]) -> Answer {
    get_from("127.0.0.1", server, target, headers)
}

fn get_from(local: &str, server: SocketAddr, target: &str, headers: &[&str]) -> Answer {
    let mut line = Line::from_address(local.parse().expect("an address"), server);
    let mut request = format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    headers.iter().for_each(|header| request.push_str(&format!("{header}\r\n")));
    line.send(request + "\r\n");
    line.answer().unwrap_or_else(|| panic!("{target}: closed without an answer"))
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn no_spelling_of_a_path_passes_its_rule() {
    let guarded = Guarded::new(RULES, &[]);
    let http = guarded.server.http;
    for path in [
        "/private/secret.bin",
        "//private/secret.bin",
        "/private//secret.bin",
        "/./private/./secret.bin",
        "/open/../private/secret.bin",
        "/open/%2e%2e/private/secret.bin",
        "/%70rivate/secret.bin",
        "/private%2fsecret.bin",
        "/private/secret.bin/",
        "/private/secret.bin/.",
        "/PRIVATE/secret.bin",
        "/private/film.ts/master.m3u8",
        "/private//film.ts//master.m3u8",
        "/private/film.ts/player.html",
        "http://test/private/secret.bin",
        "/private/",
        "/private",
    ] {
        let answer = get(http, path, &[]);
        let is_refused = [400, 401, 403, 404].contains(&answer.status);
        assert!(is_refused, "{path}: {answer:?}");
        assert_ne!(answer.text(), "secret", "{path}");
        let is_open = get(http, path, &[&basic("ben", "ben1")]).status < 400;
        assert!(!is_open, "{path}: ben is not of the family");
    }
    assert_eq!(get(http, "/open/a.ts", &[]).status, 200);
    assert_eq!(get(http, "/private/secret.bin", &[&basic("ben", "ben1")]).status, 403);
    let anna = get(http, "/private/secret.bin", &[&basic("anna", "anna1")]);
    assert_eq!((anna.status, anna.text().as_str()), (200, "secret"));
    let mut control = Control::to(guarded.server.rtsp);
    for name in [
        "private/film.ts",
        "/private/film.ts",
        "./private//film.ts",
        "open/../private/film.ts",
        "%70rivate/film.ts/stream",
        "PRIVATE/film.ts",
        "private/film.ts?es",
    ] {
        let answer = control.ask("DESCRIBE", name, &[]);
        assert!([401, 403, 404].contains(&answer.status), "{name}: {answer:?}");
        let ports = PortPair::on(IpAddr::from([127, 0, 0, 1]));
        let answer = control.ask("SETUP", name, &[&ports.transport()]);
        assert!([401, 403, 404].contains(&answer.status), "{name}: {answer:?}");
    }
    let anna = basic("anna", "anna1");
    assert_eq!(control.ask("DESCRIBE", "private/film.ts", &[&anna]).status, 200);
    guarded.server.stop();
}

#[test]
fn the_index_names_no_file_that_may_not_be_listed() {
    let guarded = Guarded::new(RULES, &[]);
    let http = guarded.server.http;
    guarded.server.await_stream("open/a.ts");
    for target in [
        "/index.json",
        "/",
        "/index.json?all=1",
        "/index.json?below=private",
        "/index.json?after=open",
        "//",
        "/channels.json",
    ] {
        let answer = get(http, target, &[]);
        let text = answer.text();
        assert!(!text.contains("film.ts") && !text.contains("secret"), "{target}: {text}");
    }
    let names = |headers: &[&str]| -> Vec<String> {
        let answer = get(http, "/index.json", headers);
        let index: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let total = index["total"]["files"].as_u64();
        let rows = index["files"].as_array().expect("rows");
        assert_eq!(total, Some(rows.len() as u64), "totals count what is shown");
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&[]), ["open/a.ts"]);
    assert_eq!(names(&[&basic("ben", "ben1")]), ["open/a.ts"]);
    let all = ["open/a.ts", "private/film.ts", "private/secret.bin"];
    assert_eq!(names(&[&basic("anna", "anna1")]), all);
    assert_eq!(names(&[]), ["open/a.ts"], "of another class than the last");
    let folder = get(http, "/private/", &[&basic("anna", "anna1")]);
    assert!(folder.status == 200 && folder.text().contains("secret.bin"), "{folder:?}");
    guarded.server.stop();
}

#[test]
fn signed_addresses_open_their_path_to_their_client_until_their_time() {
    let guarded = Guarded::new(RULES, &[]);
    let http = guarded.server.http;
    let target = guarded.signed_target("private/secret.bin", &["--expires", "1h"]);
    assert_eq!(get(http, &target, &[]).status, 200);
    let (path, query) = target.split_once('?').expect("a query");
    let elsewhere = format!("/private/film.ts?{query}");
    let altered = [
        path.to_owned(),
        elsewhere,
        target.replace("expires=", "expires=9"),
        format!("{target}0"),
        target.replace("key=one", "key=two"),
        format!("{path}?prefix=/&{query}"),
        format!("{path}?{query}&{query}"),
        format!("{path}?expires=99999999999&key=one&signature="),
    ];
    for target in altered {
        let answer = get(http, &target, &[]);
        assert!([401, 403].contains(&answer.status), "{target}: {answer:?}");
    }
    let short = guarded.signed_target("private/secret.bin", &["--expires", "1s"]);
    let deadline = Instant::now() + LIMIT;
    let answer = loop {
        let answer = get(http, &short, &[]);
        if answer.status != 200 {
            break answer;
        }
        assert!(Instant::now() < deadline, "it does not expire: {answer:?}");
    };
    assert!(answer.status == 403 && answer.text().contains("expired"), "{answer:?}");
    let own = guarded.signed_target("private/secret.bin", &["--address", "127.0.0.1"]);
    assert_eq!(get(http, &own, &[]).status, 200);
    let other = get_from("127.0.0.2", http, &own, &[]);
    assert!(other.status == 403 && other.text().contains("another client"), "{other:?}");
    guarded.server.stop();
}

/// The test follows every address of a playlist down to the segments, as a player does.
#[test]
fn playlists_carry_a_signature_down_to_segments_and_no_further() {
    let guarded = Guarded::new(RULES, &[]);
    let http = guarded.server.http;
    let target = guarded.signed_target("private/film.ts/master.m3u8", &[]);
    let mut segments = 0;
    let mut left = vec![target];
    while let Some(target) = left.pop() {
        let answer = get(http, &target, &[]);
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        let (path, _) = target.split_once('?').expect("the query is carried");
        let bare = get(http, path, &[]);
        assert_eq!(bare.status, 401, "{path} without the signature");
        if !path.ends_with(".m3u8") {
            segments += 1;
            continue;
        }
        let (folder, _) = path.rsplit_once('/').expect("a path");
        let text = answer.text();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        left.extend(lines.map(|line| format!("{folder}/{line}")));
    }
    assert!(segments > 0, "the film has segments");
    // The addresses in a playlist that is a file are signed, too.
    guarded.place.put("private/hls/own.m3u8", b"#EXTM3U\n#EXTINF:1,\none.ts\n");
    guarded.place.put("private/hls/one.ts", b"x");
    let target = guarded.signed_target("private/hls", &["--prefix"]);
    let (_, query) = target.split_once('?').expect("a query");
    let answer = get(http, &format!("/private/hls/own.m3u8?{query}"), &[]);
    assert!(answer.text().ends_with(&format!("\none.ts?{query}\n")), "{answer:?}");
    assert_eq!(get(http, &format!("/private/hls/one.ts?{query}"), &[]).status, 200);
    assert_eq!(get(http, &format!("/private/secret.bin?{query}"), &[]).status, 403);
    guarded.server.stop();
}

/// Returns a field of a digest challenge.
fn field(challenge: &str, name: &str) -> String {
    let begin = challenge.find(&format!("{name}=\"")).expect("the field") + name.len() + 2;
    challenge[begin..].split('"').next().unwrap_or_default().to_owned()
}

fn sha256(text: &str) -> String {
    let made = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    made.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(user: &str, password: &str, target: &str, nonce: &str, count: u32) -> String {
    let first = sha256(&format!("{user}:pagewire:{password}"));
    let second = sha256(&format!("GET:{target}"));
    let response = sha256(&format!("{first}:{nonce}:{count:08x}:c:auth:{second}"));
    format!(
        "Authorization: Digest username=\"{user}\", realm=\"pagewire\", nonce=\"{nonce}\", \
         uri=\"{target}\", algorithm=SHA-256, qop=auth, nc={count:08x}, cnonce=\"c\", \
         response=\"{response}\""
    )
}

#[test]
fn a_digest_response_is_used_once_by_its_client_for_its_path() {
    let guarded = Guarded::new(RULES, &[]);
    let http = guarded.server.http;
    let path = "/private/secret.bin";
    let challenged = get(http, path, &[]);
    assert_eq!(challenged.status, 401);
    let challenge = challenged.header("WWW-Authenticate").expect("a challenge").to_owned();
    assert!(challenge.contains("algorithm=SHA-256") && challenge.contains("qop=\"auth\""));
    let nonce = field(&challenge, "nonce");
    let first = digest("anna", "anna1", path, &nonce, 1);
    assert_eq!(get(http, path, &[&first]).status, 200);
    let replayed = get(http, path, &[&first]);
    let again = replayed.header("WWW-Authenticate").unwrap_or_default();
    assert!(replayed.status == 401 && again.contains("stale=true"), "{replayed:?}");
    assert_eq!(get(http, path, &[&digest("anna", "anna1", path, &nonce, 3)]).status, 200);
    assert_eq!(get(http, path, &[&digest("anna", "anna1", path, &nonce, 2)]).status, 200);
    assert_eq!(get(http, path, &[&digest("anna", "anna1", path, &nonce, 2)]).status, 401);
    let next = digest("anna", "anna1", path, &nonce, 4);
    assert_eq!(get(http, "/private/film.ts", &[&next]).status, 401, "another path");
    assert_eq!(get_from("127.0.0.2", http, path, &[&next]).status, 401, "another client");
    assert_eq!(get(http, path, &[&next]).status, 200);
    let forged = digest("anna", "anna1", path, &"A".repeat(nonce.len()), 1);
    assert_eq!(get(http, path, &[&forged]).status, 401, "a nonce of nobody's");
    assert_eq!(get(http, path, &[&digest("anna", "wrong", path, &nonce, 5)]).status, 401);
    assert_eq!(get(http, path, &[&digest("ben", "ben1", path, &nonce, 6)]).status, 403);
    guarded.server.stop();
}

#[test]
fn wrong_passwords_are_slowed_and_other_clients_are_not() {
    let guarded = Guarded::new(RULES, &[]);
    let http = guarded.server.http;
    let path = "/private/secret.bin";
    assert_eq!(get(http, path, &[&basic("anna", "anna1")]).status, 200);
    let began = Instant::now();
    let attempts = |user: &str| {
        let tries = 0..20;
        let wrong = tries.map(|number| get(http, path, &[&basic(user, &format!("{number}"))]));
        wrong.collect::<Vec<Answer>>()
    };
    let answers = attempts("anna");
    let slowed = answers.iter().find(|answer| answer.status == 429).expect("it is slowed");
    let wait: u32 = slowed.header("Retry-After").expect("a time").parse().expect("seconds");
    assert!((1..=10).contains(&wait), "{wait}");
    let checked = answers.iter().filter(|answer| answer.status == 401).count();
    // Five attempts at once, and one every ten seconds.
    let most = 6 + began.elapsed().as_secs() / 10;
    assert!(checked as u64 <= most, "{checked} passwords were looked at");
    // A known client of the user, an unknown one, and the same user from another address.
    assert_eq!(get(http, path, &[&basic("anna", "anna1")]).status, 200);
    assert_eq!(get(http, path, &[&basic("ben", "ben1")]).status, 403);
    assert_eq!(get_from("127.0.0.3", http, path, &[&basic("anna", "anna1")]).status, 200);
    // The same over RTSP; one more attempt may be allowed by now.
    let mut control = Control::to(guarded.server.rtsp);
    let mut guess = |number: u32| {
        let password = basic("anna", &format!("guess {number}"));
        control.ask("DESCRIBE", "private/film.ts", &[&password])
    };
    let answer = (0..60).map(&mut guess).find(|answer| answer.status != 401);
    let answer = answer.expect("it is slowed");
    assert!(answer.status == 503 && answer.header("Retry-After").is_some(), "{answer:?}");
    guarded.server.stop();
}

#[test]
fn a_session_is_commanded_by_its_own_client_alone() {
    let guarded = Guarded::new(RULES, &[]);
    let rtsp = guarded.server.rtsp;
    let anna = basic("anna", "anna1");
    let mut control = Control::to(rtsp);
    let refused = control.ask("DESCRIBE", "private/film.ts", &[]);
    assert_eq!(refused.status, 401);
    let challenges = refused.head.matches("WWW-Authenticate: ").count();
    assert_eq!(challenges, 2, "Digest and Basic: {}", refused.head);
    let ports = PortPair::on(IpAddr::from([127, 0, 0, 1]));
    let transport = ports.transport();
    let setup = control.ask("SETUP", "private/film.ts/stream", &[&transport, &anna]);
    assert_eq!(setup.status, 200, "{setup:?}");
    let session = setup.header("Session").expect("a session").split(';').next().map(str::to_owned);
    let session = format!("Session: {}", session.expect("an identifier"));
    let mut stranger = Control::from_address(IpAddr::from([127, 0, 0, 9]), rtsp);
    for method in ["PLAY", "PAUSE", "GET_PARAMETER", "TEARDOWN"] {
        let answer = stranger.ask(method, "private/film.ts", &[&session, &anna]);
        assert_eq!(answer.status, 454, "{method}: {answer:?}");
    }
    // Media to an address that is not the client's is refused to every user.
    let third = format!("{transport};destination=127.0.0.7");
    let refused = control.ask("SETUP", "private/film.ts/stream", &[&third, &anna]);
    assert_eq!(refused.status, 461, "{refused:?}");
    // After one admission the connection needs no credentials for the same film, but does for
    // another.
    assert_eq!(control.ask("PLAY", "private/film.ts", &[&session]).status, 200);
    assert_eq!(control.ask("DESCRIBE", "private/film.ts", &[]).status, 200);
    assert_eq!(control.ask("DESCRIBE", "private/other.ts", &[]).status, 401);
    guarded.server.stop();
}

/// Sends SETUPs of interleaved sessions until one is refused, at most `most`; returns the number
/// accepted.
fn sessions_until_refused(
    server: SocketAddr,
    (name, user): (&str, &str),
    most: u32,
) -> (u32, Option<Answer>) {
    let mut control = Control::to(server);
    let user = basic(user, &format!("{user}1"));
    for set_up in 0..most {
        let channels = format!("{}-{}", set_up % 100 * 2, set_up % 100 * 2 + 1);
        let transport = format!("Transport: RTP/AVP/TCP;unicast;interleaved={channels}");
        let answer = control.ask("SETUP", &format!("{name}/stream"), &[&transport, &user]);
        if answer.status != 200 {
            return (set_up, Some(answer));
        }
    }
    (most, None)
}

#[test]
fn sessions_beyond_their_limits_are_refused() {
    let rules = RULES.replace("[\"anyone\"]", "[\"users\"]");
    // Half a megabit a second, the rate of the clips.
    for (options, sessions, reason) in [
        (&["--sessions-per-user", "2"][..], 2, "your user"),
        (&["--rate-per-user", "1100K"], 2, "your user"),
        (&["--sessions-per-asset", "3"], 3, "as many clients play this"),
        (&["--rate", "2100K"], 4, "as much as it may"),
    ] {
        let guarded = Guarded::new(&rules, options);
        let rtsp = guarded.server.rtsp;
        let (found, refused) = sessions_until_refused(rtsp, ("open/a.ts", "ben"), 10);
        let refused = refused.unwrap_or_else(|| panic!("{options:?}: nothing is refused"));
        assert_eq!((found, refused.status), (sessions, 453), "{options:?}");
        assert!(refused.text().contains(reason), "{refused:?}");
        assert!(refused.header("Retry-After").is_some(), "{refused:?}");
        // Sessions end with their connection, and another user has separate limits.
        let deadline = Instant::now() + Duration::from_secs(60);
        while let (0, refused) = sessions_until_refused(rtsp, ("open/a.ts", "anna"), 1) {
            assert!(Instant::now() < deadline, "{options:?}: {refused:?}");
        }
        guarded.server.stop();
    }
    let options = ["--admit-load", "0.05", "--sessions-per-connection", "300"];
    let guarded = Guarded::new(&rules, &options);
    let fast = Clip { bits_per_second: 100_000_000, ..Clip::of_seconds(5, 1) };
    guarded.place.put("open/fast.ts", &fast.bytes());
    let (found, refused) =
        sessions_until_refused(guarded.server.rtsp, ("open/fast.ts", "ben"), 120);
    let refused = refused.unwrap_or_else(|| panic!("{found} sessions of 100 Mb/s were admitted"));
    assert_eq!(refused.status, 453, "{refused:?}");
    assert!(found >= 1 && refused.text().contains("late"), "{found}: {refused:?}");
    guarded.server.stop();
}

#[test]
fn a_hook_that_is_down_refuses() {
    let rules = "[[access]]\npath = \"\"\nverbs = [\"play\", \"download\"]\nallow = [\"hook\"]\n\
        [[access]]\npath = \"open\"\nverbs = [\"list\"]\nallow = [\"anyone\"]\n";
    // A port that is in use but does not accept connections.
    let occupied = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    occupied.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let address = occupied.local_addr().expect("it is bound").as_socket().expect("one of IP");
    let url = format!("http://{address}/");
    let guarded = Guarded::new(rules, &["--auth-url", &url]);
    let answer = get(guarded.server.http, "/open/a.ts", &[&basic("anna", "anna1")]);
    assert_eq!(answer.status, 401, "{answer:?}");
    guarded.server.stop();
}

/// A library that is partly open asks for a password only when the client wants to log in; scripts
/// in it do not act for logged-in users.
#[test]
fn who_wants_to_log_in_is_asked_and_pictures_ask_nobody() {
    let guarded = Guarded::new(RULES, &[]);
    guarded.place.put("open/page.html", b"<script>1</script>");
    let server = guarded.server.http;
    let facts = |headers: &[&str]| -> Value {
        let answer = get(server, "/index.json?folder=", headers);
        serde_json::from_slice(&answer.body).expect("JSON")
    };
    let anna = basic("anna", "anna1");
    assert_eq!((&facts(&[])["login"], &facts(&[])["channels"]), (&true.into(), &false.into()));
    assert_eq!(facts(&[&anna])["login"], false);
    let asked = get(server, "/.pagewire/login", &[]);
    assert_eq!(asked.status, 401, "{asked:?}");
    assert!(asked.header("WWW-Authenticate").is_some(), "{asked:?}");
    assert_eq!(get(server, "/.pagewire/login", &[&basic("anna", "ben1")]).status, 401);
    let entered = get(server, "/.pagewire/login", &[&anna]);
    assert_eq!((entered.status, entered.header("Location")), (303, Some("../")), "{entered:?}");
    let picture = "Accept: image/avif,image/webp,*/*;q=0.8";
    let refused = get(server, "/private/film.ts/poster.jpg", &[picture]);
    assert_eq!((refused.status, refused.header("WWW-Authenticate")), (403, None), "{refused:?}");
    assert_eq!(get(server, "/private/film.ts/poster.jpg", &[]).status, 401);
    let page = get(server, "/open/page.html", &[]);
    assert_eq!(page.header("Content-Security-Policy"), Some("sandbox"), "{page:?}");
    assert_eq!(get(server, "/open/a.ts", &[]).header("Content-Security-Policy"), None);
    guarded.server.stop();
}

/// Guards against hanging.
const LIMIT: Duration = Duration::from_secs(60);
