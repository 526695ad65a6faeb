// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thousand sessions that play while the configuration is read again and while the program is
//! replaced: no packet is lost, no session ends.
//!
//! Does not judge lateness: server and viewers share a test machine's cores.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::process::Process;
use super::upgrade::{SERVES, new_process};
use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Place, Server, watchdog};

/// One in ten is verified packet by packet; the others are counted.
const SESSIONS: u32 = 1000;

/// Sessions of `pagewire load`, until it ends by itself.
struct Load {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Load {
    /// Returns when all sessions play.
    fn start(url: &str) -> Load {
        let sessions = SESSIONS.to_string();
        let mut child = Command::new(PROGRAM)
            .args(["load", url, "--sessions", &sessions, "--sample", "10", "--seconds", "12"])
            .args(["--within", "60000", "--json", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program under test starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut load = Load { child, lines };
        load.until("playing");
        load
    }

    /// Returns the next event of this kind.
    fn until(&mut self, kind: &str) -> Value {
        for line in self.lines.by_ref() {
            let line = line.expect("its output can be read");
            let event: Value = serde_json::from_str(&line).expect("JSON");
            if event["event"] == kind {
                return event;
            }
        }
        panic!("it ended before {kind:?}");
    }

    /// Asserts that it was not harmed.
    fn end(mut self) {
        let result = self.until("result");
        watchdog::wait(&mut self.child, Duration::from_secs(20)).expect("it ends");
        assert_eq!(result["played"], SESSIONS, "{result:#}");
        for part in ["verified", "counted"] {
            assert_eq!(result[part]["lost"], 0, "{part} of {result:#}");
        }
        let counted = SESSIONS - SESSIONS / 10;
        assert_eq!(result["counted"]["accounted"], counted, "{result:#}");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server with a file of settings, and one film of 100 kb/s.
fn serve() -> Server {
    let place = Place::new();
    let film = Clip { bits_per_second: 100_000, ..Clip::of_seconds(29, 120) };
    place.put("film.ts", &film.bytes());
    let settings = place.top().join("pagewire.toml");
    fs::write(&settings, "burst = 20\n").expect("room for a file");
    let options = ["--config", settings.to_str().expect("UTF-8")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    server.await_stream("film.ts");
    server
}

mod timed {
    use super::*;

    #[test]
    fn a_thousand_sessions_play_on_through_reloads_and_an_upgrade() {
        let server = serve();
        let load = Load::start(&server.rtsp_url("film.ts"));
        let old = Process(server.pid());
        for number in 1..=3 {
            let settings = format!("burst = 20\nsessions_per_address = {}\n", 5000 + number);
            fs::write(server.place.top().join("pagewire.toml"), settings).expect("room for a file");
            old.send(Signal::HUP);
            let deadline = Instant::now() + Duration::from_secs(30);
            while server.log().matches("reload: done").count() < number {
                assert!(Instant::now() < deadline, "reload {number}: {}", server.log());
                sleep(Duration::from_millis(50));
            }
        }
        old.send(Signal::USR2);
        let new = new_process(&server);
        load.end();
        assert_eq!(server.log().matches(SERVES).count(), 1);
        old.await_end();
        new.send(Signal::TERM);
        new.await_end();
    }
}
