// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers of all transports at once: processes of `pagewire load`, and a thread that downloads.
//!
//! Of a hundred viewers 60 play a transport stream over UDP, TCP and HTTP tunnels (most stay, some
//! seek, pause, leave and return, or vanish without TEARDOWN), 15 the tracks of an MP4 file, 20
//! are viewers of HLS, and 5 at most download parts of a file, each over a connection of its own
//! that is closed behind it. The bytes of downloads are compared with the file.
//!
//! Sources: docs/load.md.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::experiments::hls::films;
use crate::experiments::peers::downloads::connect;
use crate::experiments::peers::peer::Running;
use crate::experiments::peers::process::Processes;
use measure::Error;
use measure::meter::Cores;
use measure::scratch::failed;

/// Fewest viewers: each group of a scenario has one.
pub(super) const LEAST: usize = 50;

/// Describes the viewers for the notes.
pub(super) fn composition() -> String {
    "of 100 viewers 60 play a transport stream (UDP, TCP, HTTP tunnels; staying, seeking, pausing, \
     leaving, vanishing), 15 the tracks of an MP4 file, 20 HLS, 5 download; one is harmed by a \
     packet that is 100 ms late"
        .to_owned()
}

/// The film in two containers.
pub(super) struct Films {
    pub(super) folder: PathBuf,
}

impl Films {
    /// Writes both files, as long as that time at least.
    pub(super) fn write(folder: PathBuf, time: Duration) -> Result<Films, Error> {
        let mp4 = folder.join(MP4);
        films::write_film(&mp4, time)?;
        films::remux_as_ts(&mp4, &folder.join(TS))?;
        for (name, scenario) in [(TS, TS_SCENARIO), (MP4, MP4_SCENARIO)] {
            // Beside the films and hidden, so that it is not served.
            let path = folder.join(format!(".{name}.toml"));
            std::fs::write(&path, scenario).map_err(failed("writing", &path))?;
        }
        Ok(Films { folder })
    }

    /// True when the wire images of both transports have their final names.
    pub(super) fn have_images(&self, server: &Path) -> bool {
        let images = server.join("pagewire-cache/images");
        let entries = std::fs::read_dir(images).into_iter().flatten().flatten();
        let names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let has = |framed| {
            let is = |name: &&String| name.ends_with(".framed.wire") == framed;
            names.iter().filter(|name| name.ends_with(".wire")).any(|name| is(&name))
        };
        has(true) && has(false)
    }
}

/// Result of all viewers.
#[derive(Debug, Default)]
pub(super) struct CrowdFigures {
    /// False where a part of the viewers ended before its time.
    pub(super) is_whole: bool,
    /// Groups that were harmed, each with the reason.
    pub(super) harmed: Vec<String>,
    packets: f64,
    lost: f64,
    starts: f64,
    seeks: f64,
    refused: f64,
    ended: f64,
    late_ms_max: f64,
    stalls: f64,
    hls_bytes: f64,
    downloads: u64,
    downloads_wrong: u64,
}

impl CrowdFigures {
    /// Metric, unit and value.
    pub(super) fn counts(&self) -> [(&'static str, &'static str, f64); 11] {
        [
            ("packets received", "packets", self.packets),
            ("packets lost", "packets", self.lost),
            ("sessions begun", "sessions", self.starts),
            ("seeks", "seeks", self.seeks),
            ("sessions refused", "sessions", self.refused),
            ("sessions ended by the server", "sessions", self.ended),
            ("latest packet", "ms", self.late_ms_max),
            ("stalls of HLS", "stalls", self.stalls),
            ("segments of HLS", "GB", self.hls_bytes / 1e9),
            ("downloads", "downloads", self.downloads as f64),
            ("downloads that failed or differed", "downloads", self.downloads_wrong as f64),
        ]
    }

    /// Adds the result of a process of `load` over RTSP.
    fn add_rtsp(&mut self, name: &str, result: &Value) {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let reasons = |value: &Value| -> f64 {
            let list = value.as_array().into_iter().flatten();
            list.map(|reason| reason["sessions"].as_f64().or(reason["count"].as_f64()))
                .map(|count| count.unwrap_or(1.0))
                .sum()
        };
        for group in result["groups"].as_array().into_iter().flatten() {
            let (counted, verified) = (&group["counted"], &group["verified"]);
            self.packets += number(&counted["packets"]) + number(&verified["packets_in_all"]);
            self.lost += number(&counted["lost"]) + number(&verified["lost"]);
            self.starts += number(&group["starts"]);
            self.seeks += number(&group["seeks"]);
            self.refused += reasons(&group["failed"]);
            self.ended += reasons(&group["ended"]);
            let latest = number(&verified["lateness_ms"]["max"]);
            self.late_ms_max = self.late_ms_max.max(latest);
            if group["is_harmed"] == true {
                let (of, why) = (&group["name"], &result["bottleneck_line"]);
                let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
                self.harmed.push(format!("{name}: {}: {}", text(of), text(why)));
            }
        }
        if !result["groups"].is_array() {
            self.is_whole = false;
            self.harmed.push(format!("{name}: no result: {result}"));
        }
    }

    /// Adds the result of viewers of HLS.
    fn add_hls(&mut self, result: &Value) {
        let number = |name: &str| result[name].as_f64().unwrap_or(0.0);
        self.stalls += number("stalls");
        self.hls_bytes += number("bytes");
        if number("without_stall") < number("asked").max(1.0) {
            self.harmed.push(format!("HLS: {} of {}", number("without_stall"), number("asked")));
        }
        if !result["bytes"].is_number() {
            self.is_whole = false;
            self.harmed.push(format!("HLS: no result: {result}"));
        }
    }
}

/// Viewers that play.
pub(super) struct Crowd {
    loads: Vec<(&'static str, LoadProcess)>,
    stop: Arc<AtomicBool>,
    downloads: Vec<JoinHandle<(u64, u64)>>,
}

impl Crowd {
    /// Starts so many viewers over a time, for another.
    pub(super) fn start(
        films: &Films,
        running: &Running,
        viewers: usize,
        (ramp, time): (Duration, Duration),
        cores: &Cores,
    ) -> Result<Crowd, Error> {
        let share = |percent: usize, least: usize| (viewers * percent / 100).max(least);
        let rtsp = running.stream_url.rsplit_once('/').map_or("", |(base, _)| base);
        let http = format!("http://127.0.0.1:{}", running.http_port);
        let seconds = [("--ramp", ramp), ("--seconds", time)];
        let start = |url: String, sessions: usize, more: &[&str]| {
            let program = crate::installed::pagewire()?;
            let mut command = Processes::command(program);
            command.args(["load", &url, "--json", "-", "--sessions", &sessions.to_string()]);
            for (option, time) in seconds {
                command.args([option, &time.as_secs().to_string()]);
            }
            LoadProcess::start(command.args(more), cores)
        };
        let scenario = |name: &str| {
            let path = films.folder.join(format!(".{name}.toml"));
            path.to_string_lossy().into_owned()
        };
        let (ts, mp4) = (scenario(TS), scenario(MP4));
        let loads = vec![
            (
                TS,
                start(
                    format!("{rtsp}/{TS}"),
                    share(60, 10),
                    &[&["--scenario", &ts], JUDGED].concat(),
                )?,
            ),
            (
                MP4,
                start(
                    format!("{rtsp}/{MP4}"),
                    share(15, 3),
                    &[&["--scenario", &mp4], JUDGED].concat(),
                )?,
            ),
            (HLS, start(format!("{http}/{MP4}/master.m3u8"), share(20, 3), &["--ahead", "12"])?),
        ];
        let stop = Arc::<AtomicBool>::default();
        let downloads = (0..share(5, 1).min(DOWNLOADS_MAX)).map(|index| {
            let (stop, file) = (stop.clone(), films.folder.join(TS));
            let port = running.http_port;
            std::thread::spawn(move || download_until(&stop, port, &file, index as u64))
        });
        let downloads = downloads.collect();
        Ok(Crowd { loads, stop, downloads })
    }

    /// Waits until all have played; `look` is called now and then, and ends them by returning true.
    pub(super) fn finish(mut self, mut look: impl FnMut() -> bool) -> Result<CrowdFigures, Error> {
        let mut figures = CrowdFigures { is_whole: true, ..CrowdFigures::default() };
        while self.loads.iter_mut().any(|(_, load)| load.is_running()) {
            if look() {
                figures.is_whole = false;
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for (name, load) in &mut self.loads {
            let result = load.result();
            match *name {
                HLS => figures.add_hls(&result),
                name => figures.add_rtsp(name, &result),
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.downloads.drain(..) {
            let (whole, wrong) = thread.join().expect("it does not panic");
            figures.downloads += whole;
            figures.downloads_wrong += wrong;
        }
        if figures.downloads_wrong > 0 {
            figures.harmed.push(format!("{} downloads", figures.downloads_wrong));
        }
        Ok(figures)
    }
}

/// A process of `pagewire load`, ended when this is dropped.
struct LoadProcess {
    child: Child,
    lines: JoinHandle<Value>,
}

impl LoadProcess {
    fn start(command: &mut Command, cores: &Cores) -> Result<LoadProcess, Error> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cores.start(command).map_err(Error::host("starting pagewire load"))?;
        let output = child.stdout.take().expect("it is piped");
        let errors = child.stderr.take().expect("it is piped");
        let errors = std::thread::spawn(move || {
            BufReader::new(errors).lines().map_while(Result::ok).last().unwrap_or_default()
        });
        let lines = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let events = lines.map(|line| serde_json::from_str(&line).unwrap_or(Value::Null));
            let result = events.filter(|event: &Value| event["event"] == "result").last();
            result.unwrap_or_else(|| Value::String(errors.join().unwrap_or_default()))
        });
        Ok(LoadProcess { child, lines })
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it where it still plays, and returns its result.
    fn result(&mut self) -> Value {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let ended = std::thread::spawn(Value::default);
        std::mem::replace(&mut self.lines, ended).join().unwrap_or_default()
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Downloads parts of a file one after the other; returns how many were whole, and how many failed
/// or differed from the file.
fn download_until(stop: &AtomicBool, port: u16, path: &Path, seed: u64) -> (u64, u64) {
    let (mut whole, mut wrong) = (0, 0);
    let Ok(file) = File::open(path) else { return (0, 1) };
    let places = file.metadata().map_or(1, |facts| facts.len() / PART_BYTES).max(1);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut place = seed.wrapping_mul(7919) % places;
    while !stop.load(Ordering::Relaxed) {
        match connect(port).is_ok_and(|stream| part_is_whole(stream, &name, &file, place, stop)) {
            true => whole += 1,
            false if stop.load(Ordering::Relaxed) => break,
            false => wrong += 1,
        }
        place = (place + 7919) % places;
        std::thread::sleep(Duration::from_millis(300));
    }
    (whole, wrong)
}

/// Downloads a part over a connection of its own; true when it is that of the file.
fn part_is_whole(
    mut stream: TcpStream,
    name: &str,
    file: &File,
    place: u64,
    stop: &AtomicBool,
) -> bool {
    let first = place * PART_BYTES;
    let request = format!(
        "GET /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Range: bytes={first}-{}\r\n\r\n",
        first + PART_BYTES - 1
    );
    if stream.write_all(request.as_bytes()).is_err() {
        return false;
    }
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    let mut line = String::new();
    let mut is_partial = false;
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) => is_partial |= line.starts_with("HTTP/1.1 206"),
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    let (mut buffer, mut own) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut at = first;
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(_) => return false,
        };
        let is_same = file.read_exact_at(&mut own[..read], at).is_ok();
        if stop.load(Ordering::Relaxed) || !is_same || own[..read] != buffer[..read] {
            return false;
        }
        at += read as u64;
    }
    is_partial && at == first + PART_BYTES
}

const TS: &str = "film.ts";
const MP4: &str = "film.mp4";
const HLS: &str = "hls";
/// A viewer is harmed by a packet that is later than that, in ms: a player buffers more than that
/// ahead, and the scheduler of a busy virtual machine delays by less.
const JUDGED: &[&str] = &["--within", "100"];
/// Bytes of a download: some seconds of the film, which leave at full speed.
const PART_BYTES: u64 = 4 << 20;
/// Each has a thread.
const DOWNLOADS_MAX: usize = 32;

const TS_SCENARIO: &str = r#"
seed = 11
[[group]]
name = "udp"
share = 24
[[group]]
name = "udp-seek"
share = 8
behaviour = "seek"
every_s = [3, 20]
[[group]]
name = "udp-leave"
share = 8
behaviour = "leave"
stay_s = [3, 30]
away_s = [0.5, 3]
[[group]]
name = "udp-vanish"
share = 3
behaviour = "vanish"
stay_s = [5, 30]
away_s = [0.5, 3]
[[group]]
name = "udp-pause"
share = 3
behaviour = "pause"
every_s = [3, 20]
pause_s = [1, 5]
[[group]]
name = "tcp"
transport = "tcp"
share = 5
[[group]]
name = "tcp-seek"
transport = "tcp"
share = 3
behaviour = "seek"
every_s = [3, 20]
[[group]]
name = "tcp-vanish"
transport = "tcp"
share = 2
behaviour = "vanish"
stay_s = [5, 30]
away_s = [0.5, 3]
[[group]]
name = "tunnel"
transport = "http"
share = 2
[[group]]
name = "tunnel-leave"
transport = "http"
share = 2
behaviour = "leave"
stay_s = [3, 30]
away_s = [0.5, 3]
"#;

const MP4_SCENARIO: &str = r#"
seed = 12
[[group]]
name = "udp"
share = 8
[[group]]
name = "udp-seek"
share = 4
behaviour = "seek"
every_s = [3, 20]
[[group]]
name = "tcp-leave"
transport = "tcp"
share = 3
behaviour = "leave"
stay_s = [3, 30]
away_s = [0.5, 3]
"#;
