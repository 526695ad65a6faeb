// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server under test: this program, started again as `serve`, and what its index says of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{asset, clients::Seen};
use crate::error::Error;

pub(super) struct Server {
    child: Child,
    /// Kept open: a server whose ready line nobody reads must not get SIGPIPE.
    _stdout: BufReader<ChildStdout>,
    rtsp: String,
    http: String,
}

/// Figures of the index at one moment.
pub(super) struct Facts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
    pub(super) processor_seconds: f64,
    pub(super) memory_bytes: u64,
    pub(super) late_p50_us: u64,
    pub(super) late_p99_us: u64,
    pub(super) late_p999_us: u64,
    pub(super) late_max_us: u64,
}

impl Facts {
    /// Packets that were sent when these facts were taken and never arrived.
    pub(super) fn sent_before_end(&self, seen: &Seen) -> f64 {
        self.packets.saturating_sub(seen.received_in_all) as f64
    }
}

impl Server {
    pub(super) fn start(folder: &Path) -> Result<Server, Error> {
        let program = std::env::current_exe().map_err(Error::host("the path of this program"))?;
        let served = folder.join("served");
        std::fs::create_dir(&served).map_err(Error::host("the served folder"))?;
        std::fs::rename(folder.join(asset::NAME), served.join(asset::NAME))
            .map_err(Error::host("the asset"))?;
        let mut child = Command::new(program)
            .args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cache"])
            .arg(folder.join("cache"))
            .arg(&served)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::host("starting the server"))?;
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(Error::host("the server's ready line"))?;
        let address = |scheme: &str| {
            let word = line.split_whitespace().find(|word| word.starts_with(scheme));
            word.map(|word| word[scheme.len()..].to_owned()).ok_or_else(|| Error::Host {
                what: "the server's ready line".to_owned(),
                found: format!("{line:?}"),
            })
        };
        Ok(Server { rtsp: address("rtsp://")?, http: address("http://")?, child, _stdout: stdout })
    }

    pub(super) fn stream_url(&self) -> String {
        format!("rtsp://{}/{}", self.rtsp, asset::NAME)
    }

    pub(super) fn wait_for_plan(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PLAN_WAIT;
        while Instant::now() < deadline {
            if self.index()?["files"][0]["stream"].is_object() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::Host { what: "the asset".to_owned(), found: "not planned".to_owned() })
    }

    pub(super) fn facts(&self) -> Result<Facts, Error> {
        let index = self.index()?;
        let server = &index["server"];
        let count = |name: &str| server[name].as_u64().unwrap_or(0);
        let late = |name: &str| server["late_us"][name].as_u64().unwrap_or(0);
        Ok(Facts {
            packets: count("packets"),
            bytes: count("bytes"),
            refused: count("refused"),
            processor_seconds: server["processor_seconds"].as_f64().unwrap_or(0.0),
            memory_bytes: count("memory_bytes"),
            late_p50_us: late("p50"),
            late_p99_us: late("p99"),
            late_p999_us: late("p999"),
            late_max_us: late("max"),
        })
    }

    fn index(&self) -> Result<Value, Error> {
        let failed = || Error::host(format!("http://{}/index.json", self.http));
        let mut stream = TcpStream::connect(&self.http).map_err(failed())?;
        let request =
            format!("GET /index.json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http);
        stream.write_all(request.as_bytes()).map_err(failed())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed())?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).map_err(|error| Error::Host {
            what: format!("http://{}/index.json", self.http),
            found: error.to_string(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM by its id; KILL only if it does not listen.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + STOP_WAIT;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PLAN_WAIT: Duration = Duration::from_secs(30);
const STOP_WAIT: Duration = Duration::from_secs(5);
