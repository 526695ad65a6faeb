// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server under test: this program, started again as `serve`, and the figures of its index.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::installed;
use measure::Error;
use measure::meter::Cores;
use measure::network::Network;

pub(crate) struct Server {
    child: Child,
    /// Kept open: a server must not get SIGPIPE when no process reads its ready line.
    stdout: BufReader<ChildStdout>,
    rtsp: String,
    http: String,
    images: PathBuf,
    asset: &'static str,
}

/// A folder with one file, and the path by which it is streamed.
pub(crate) struct Served {
    /// Name of the folder below that of the experiment.
    pub(crate) folder: &'static str,
    /// Name of the file in it.
    pub(crate) asset: &'static str,
    /// As `--path` of `serve` has it.
    pub(crate) path: &'static str,
}

impl Served {
    /// Returns the path of the file.
    pub(crate) fn file(&self, folder: &Path) -> PathBuf {
        folder.join(self.folder).join(self.asset)
    }
}

/// Figures of the index at one moment.
pub(crate) struct Facts {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) refused: u64,
    /// System calls made to send.
    pub(crate) calls: u64,
    /// Sessions whose packets the kernel holds until they are due.
    pub(crate) sessions_txtime: u64,
    pub(crate) processor_seconds: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) late_p99_us: u64,
    pub(crate) late_p999_us: u64,
}

impl Server {
    /// Serves a folder below `folder` on these cores, one pacer on each, with `more` options.
    pub(crate) fn start(
        folder: &Path,
        served: &Served,
        cores: &Cores,
        (rtp_port, more): (u16, &[&str]),
    ) -> Result<Server, Error> {
        let program = installed::pagewire()?;
        let cache = folder.join("cache");
        let any = format!("{}:0", Network::NEAR);
        let mut command = Command::new(program);
        command.args([
            "serve",
            "--rtsp",
            &any,
            "--http",
            &any,
            "--path",
            served.path,
            "--admit-load",
            "off",
        ]);
        command.args(["--rtp-port", &rtp_port.to_string()]);
        command.args(["--pacers", &cores.count().to_string()]);
        command.args(more);
        // All sessions have one of two client addresses.
        command.args(["--exempt-from-limits", "0.0.0.0/0"]);
        command.arg("--cache").arg(&cache).arg(folder.join(served.folder));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = cores.start(&mut command).map_err(Error::host("starting the server"))?;
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (rtsp, http) = (String::new(), String::new());
        // From here on Drop stops the server, also after an error.
        let mut server =
            Server { child, stdout, rtsp, http, images: cache.join("images"), asset: served.asset };
        let mut line = String::new();
        server.stdout.read_line(&mut line).map_err(Error::host("the server's ready line"))?;
        let address = |scheme: &str| {
            let word = line.split_whitespace().find(|word| word.starts_with(scheme));
            word.map(|word| word[scheme.len()..].to_owned()).ok_or_else(|| Error::Host {
                what: "the server's ready line".to_owned(),
                found: format!("{line:?}"),
            })
        };
        (server.rtsp, server.http) = (address("rtsp://")?, address("http://")?);
        Ok(server)
    }

    pub(crate) fn stream_url(&self) -> String {
        format!("rtsp://{}/{}", self.rtsp, self.asset)
    }

    pub(crate) fn await_plan(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PLAN_WAIT;
        while Instant::now() < deadline {
            if self.index()?["files"][0]["stream"].is_object() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::Host { what: "the asset".to_owned(), found: "not planned".to_owned() })
    }

    /// Waits until the wire image that the first session requested has its name.
    pub(crate) fn await_image(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PLAN_WAIT;
        while Instant::now() < deadline {
            let entries = std::fs::read_dir(&self.images).into_iter().flatten().flatten();
            let mut names = entries.map(|entry| entry.file_name());
            if names.any(|name| !name.to_string_lossy().ends_with(".tmp")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::Host { what: "the wire image".to_owned(), found: "not made".to_owned() })
    }

    pub(crate) fn facts(&self) -> Result<Facts, Error> {
        let index = self.index()?;
        let server = &index["server"];
        let count = |name: &str| server[name].as_u64().unwrap_or(0);
        let late = |name: &str| server["late_us"][name].as_u64().unwrap_or(0);
        Ok(Facts {
            packets: count("packets"),
            bytes: count("bytes"),
            refused: count("refused"),
            calls: count("calls"),
            sessions_txtime: count("sessions_txtime"),
            processor_seconds: server["processor_seconds"].as_f64().unwrap_or(0.0),
            memory_bytes: count("memory_bytes"),
            late_p99_us: late("p99"),
            late_p999_us: late("p999"),
        })
    }

    fn index(&self) -> Result<Value, Error> {
        self.answer("/index.json")
    }

    /// Returns a page of the index.
    pub(crate) fn answer(&self, target: &str) -> Result<Value, Error> {
        let failed = || Error::host(format!("http://{}{target}", self.http));
        let mut stream = TcpStream::connect(&self.http).map_err(failed())?;
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http);
        stream.write_all(request.as_bytes()).map_err(failed())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed())?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).map_err(|error| Error::Host {
            what: format!("http://{}{target}", self.http),
            found: error.to_string(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Sends SIGTERM by its id, and KILL only when the server does not end.
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

/// A transport stream by wire image.
pub(crate) const STREAM: Served =
    Served { folder: "served", asset: "asset.ts", path: "wire_sendfile" };
const PLAN_WAIT: Duration = Duration::from_secs(30);
const STOP_WAIT: Duration = Duration::from_secs(5);
