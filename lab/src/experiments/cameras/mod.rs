// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab cameras`: N cameras of 4 Mb/s with sound recorded into fragmented MP4, by one
//! process of this program and by a process of `ffmpeg -c copy` for each camera.
//!
//! The cameras are RTSP sessions of one film at the installed server, which has a core; the
//! recorders have another. A measurement begins when the files of all cameras grow. The recorders
//! take turns, round by round. Every byte is kept until the end of its turn: the rate of the files
//! shows that both write the same.
//!
//! Sources: ffmpeg(1) (`-c copy`), ffmpeg-formats(1) (segment, mov); proc(5).
//! Does not verify the files: tests of the program compare pictures and sound. The kernel's work
//! for packets of loopback is charged to the sender.

mod recorder;

use std::path::Path;
use std::time::{Duration, Instant};

use self::recorder::{Counts, RECORDERS, Recorder, Recording};
use crate::experiments::hls::films;
use crate::experiments::peers::pagewire;
use crate::experiments::peers::peer::{Running, Setting};
use measure::Error;
use measure::Options;
use measure::meter::Cores;
use measure::network::Network;
use measure::results::{Results, Row};
use measure::scratch::ScratchDir;
use measure::statistics::Figure;
use measure::warning::Warning;

/// Names of the recorders.
pub(crate) fn member_names() -> Vec<&'static str> {
    RECORDERS.iter().map(|recorder| recorder.name).collect()
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let chosen = chosen(&options.members)?;
    let mut results = Results::new("cameras", options.command.clone());
    let version = films::probe()?;
    let _network = Network::new()?;
    let mut scratch = ScratchDir::new(options.folder.as_deref())?;
    let (served, server_folder) = (scratch.folder("films")?, scratch.folder("server")?);
    let whole = options.seconds.unwrap_or(if options.quick { 4 } else { 60 }).clamp(2, 3600);
    let window = Duration::from_secs(whole);
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    let asked = match (&options.sessions[..], options.quick) {
        ([], true) => QUICK,
        ([], false) => CAMERAS,
        (asked, _) => asked,
    };
    options.progress(0, 1, "the film of the cameras");
    films::write_film_of(CAMERA, &served.join(FILM), START_MAX + window + MARGIN)?;
    results.notes.push(format!(
        "cameras of {MEGABITS} Mb/s, H.264 and A-law, by {version}; turns of {whole} s: {rounds}; \
         files in {}; server on one core, recorders on another",
        scratch.description
    ));
    let (server_cores, others) = Cores::allowed().split(1);
    let (recorder_cores, _) = others.split(1);
    let setting = Setting {
        folder: &server_folder,
        served: &served,
        cores: &server_cores,
        other_cores: &recorder_cores,
        ports: &[],
    };
    let mut server = pagewire::start(&setting, &[])?;
    results.complete = true;
    let all = asked.len() * rounds * chosen.len();
    let mut done = 0;
    for &cameras in asked {
        let mut turns: Vec<Vec<Turn>> = chosen.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..chosen.len()).collect();
            // The first of one round is the last of the next.
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let (recorder, turns) = (chosen[index], &mut turns[index]);
                if options.stopped() {
                    break;
                }
                options.progress(done, all, &format!("{cameras} cameras, {}", recorder.name));
                done += 1;
                let folder = scratch.target();
                let bench = Bench { cameras, window, cores: &recorder_cores, folder: &folder };
                let turn = bench.turn(recorder, &mut server, options);
                ScratchDir::remove(&folder)?;
                match turn {
                    Ok(turn) => turns.extend(turn),
                    Err(error) => {
                        results.complete = false;
                        let member = format!("{}, {cameras} cameras", recorder.name);
                        results.warn(Warning::MemberFailed { member, found: error.to_string() });
                    }
                }
            }
        }
        add(cameras, &chosen, &turns, &mut results);
    }
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// Returns the recorders of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static Recorder>, Error> {
    if names.is_empty() {
        return Ok(RECORDERS.iter().collect());
    }
    let of_name = |name: &String| {
        let found = RECORDERS.iter().find(|recorder| recorder.name == name);
        found.ok_or_else(|| Error::Caller {
            what: format!("member {name}"),
            found: format!("no such recorder; write a name of {}", member_names().join(", ")),
        })
    };
    names.iter().map(of_name).collect()
}

/// Cameras and files of a turn.
struct Bench<'a> {
    cameras: usize,
    window: Duration,
    cores: &'a Cores,
    folder: &'a Path,
}

/// Result of a turn.
struct Turn {
    seconds: f64,
    recorder_s: f64,
    server_s: f64,
    file_bytes: u64,
    memory_bytes: u64,
    counts: Counts,
}

impl Bench<'_> {
    /// Records for the measured time; `None` where a signal has ended it.
    fn turn(
        &self,
        recorder: &Recorder,
        server: &mut Running,
        options: &Options,
    ) -> Result<Option<Turn>, Error> {
        std::fs::create_dir(self.folder).map_err(Error::host("a folder for the files"))?;
        let mut recording = recorder.start(self.cameras, self.folder, self.cores)?;
        if !self.await_files(&mut recording, options)? {
            return Ok(None);
        }
        let begun = Instant::now();
        let before = self.meters(&recording, server);
        while begun.elapsed() < self.window {
            if options.stopped() {
                return Ok(None);
            }
            std::thread::sleep(LOOK.min(self.window.saturating_sub(begun.elapsed())));
        }
        let (seconds, after) = (begun.elapsed().as_secs_f64(), self.meters(&recording, server));
        let memory_bytes = recording.processes.memory_bytes();
        for processes in [&mut server.processes, &mut recording.processes] {
            if !processes.are_running() {
                return Err(processes.failed("it has ended in the measured time".to_owned()));
            }
        }
        Ok(Some(Turn {
            seconds,
            recorder_s: (after.0 - before.0).as_secs_f64(),
            server_s: (after.1 - before.1).as_secs_f64(),
            file_bytes: after.2.saturating_sub(before.2),
            memory_bytes,
            counts: recording.finish()?,
        }))
    }

    /// Processor time of the recorder and of the server, and bytes of all files.
    fn meters(&self, recording: &Recording, server: &Running) -> (Duration, Duration, u64) {
        let files = file_bytes(self.folder).iter().sum();
        (recording.processes.processor_time(), server.processes.processor_time(), files)
    }

    /// Waits until each camera has a file with bytes; false where a signal has ended the wait.
    fn await_files(&self, recording: &mut Recording, options: &Options) -> Result<bool, Error> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let grown = file_bytes(self.folder).iter().filter(|bytes| **bytes > 0).count();
            if grown >= self.cameras {
                return Ok(true);
            }
            if options.stopped() {
                return Ok(false);
            }
            if Instant::now() >= deadline || !recording.processes.are_running() {
                let found = format!("{grown} of {} cameras have a file", self.cameras);
                return Err(recording.processes.failed(found));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns the sizes of the recorders' files: in the folder, or in one of each camera.
fn file_bytes(folder: &Path) -> Vec<u64> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => sizes.extend(file_bytes(&entry.path())),
            Ok(metadata) if recorder::is_file(&entry.path()) => sizes.push(metadata.len()),
            _ => {}
        }
    }
    sizes
}

fn add(cameras: usize, chosen: &[&Recorder], turns: &[Vec<Turn>], results: &mut Results) {
    let figure =
        |turns: &[Turn], of: &dyn Fn(&Turn) -> f64| Figure::of(turns.iter().map(of).collect());
    let cores = |turn: &Turn| turn.recorder_s / turn.seconds;
    let row = |name: &str, metric: &str, unit: &str, figure: Figure| {
        Row::new("cameras", name, metric, unit, figure).with("cameras", cameras)
    };
    for (recorder, turns) in chosen.iter().zip(turns).filter(|(_, turns)| !turns.is_empty()) {
        let mut push = |metric: &str, unit: &str, of: &dyn Fn(&Turn) -> f64| {
            results.rows.push(row(recorder.name, metric, unit, figure(turns, of)));
        };
        push("recorder's cores", "of 1", &cores);
        push("CPU cost of the recorder", "s/GB", &|turn| {
            turn.recorder_s / (turn.file_bytes as f64 / 1e9)
        });
        push("memory a camera", "MB", &|turn| turn.memory_bytes as f64 / 1e6 / cameras as f64);
        push("lost", "packets", &|turn| turn.counts.lost_packets as f64);
        push("dropped", "access units", &|turn| turn.counts.dropped_units as f64);
        push("rate of the files", "Mb/s", &|turn| turn.file_bytes as f64 * 8e-6 / turn.seconds);
        push("server's cores", "of 1", &|turn| turn.server_s / turn.seconds);
    }
    let of_name = |name: &str| {
        let index = chosen.iter().position(|recorder| recorder.name == name)?;
        let turns = turns[index].as_slice();
        (!turns.is_empty()).then(|| figure(turns, &cores))
    };
    let pair = of_name(recorder::PAGEWIRE).zip(of_name(recorder::FFMPEG));
    if let Some(ratio) = pair.and_then(|(own, peer)| own.relative_to(&peer)) {
        results.rows.push(row(recorder::PAGEWIRE, "recorder's cores, of ffmpeg", "times", ratio));
    }
}

/// Name of the film below the served folder.
const FILM: &str = "camera.mov";
const MEGABITS: u64 = 4;
/// A piece of the film, of [`films::PIECE_SECONDS`]: a key frame every two seconds, no B-frames.
/// Noise needs the whole rate, so that there is no filler, which not every recorder writes.
const CAMERA: &str = "-f lavfi -i testsrc2=size=640x360:rate=25,noise=alls=30:allf=t \
    -f lavfi -i sine=frequency=330:sample_rate=8000 -t 12 -c:v libx264 -preset veryfast \
    -pix_fmt yuv420p -bf 0 -g 50 -keyint_min 50 -sc_threshold 0 -b:v 3936k -maxrate 3936k \
    -bufsize 1968k -c:a pcm_alaw -ac 1";
const CAMERAS: &[usize] = &[64];
const QUICK: &[usize] = &[4];
const ROUNDS: usize = 3;
const START_MAX: Duration = Duration::from_secs(60);
/// Time for the recorders' end.
const MARGIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);
