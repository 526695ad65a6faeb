// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorders: their commands, and their reports of losses.
//!
//! Sources: docs/receiving.md; ffmpeg(1); libavformat's message of lost RTP packets.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::FILM;
use crate::experiments::peers::peer::RTSP_PORT;
use crate::experiments::peers::process::Processes;
use crate::installed;
use measure::Error;
use measure::meter::Cores;

/// A recorder of cameras.
pub(super) struct Recorder {
    pub(super) name: &'static str,
    start: fn(&mut Processes, &Files<'_>, &Cores) -> Result<(), Error>,
    /// Reads the losses in its log.
    counts: fn(&str) -> Result<Counts, String>,
}

/// Number of cameras, and the folder of their files.
struct Files<'a> {
    cameras: usize,
    folder: &'a Path,
}

/// Recorder that runs.
pub(super) struct Recording {
    pub(super) processes: Processes,
    counts: fn(&str) -> Result<Counts, String>,
}

/// Losses that a recorder reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Packets that are missing, also for want of room in a socket.
    pub(super) lost_packets: u64,
    /// Units that it could not write in time.
    pub(super) dropped_units: u64,
}

pub(super) static RECORDERS: &[Recorder] = &[
    Recorder { name: PAGEWIRE, start: start_pagewire, counts: counts_of_summary },
    Recorder { name: FFMPEG, start: start_ffmpeg, counts: counts_of_messages },
];

impl Recorder {
    /// Starts recording into this folder.
    pub(super) fn start(
        &self,
        cameras: usize,
        folder: &Path,
        cores: &Cores,
    ) -> Result<Recording, Error> {
        let mut processes = Processes::new(self.name, folder);
        (self.start)(&mut processes, &Files { cameras, folder }, cores)?;
        Ok(Recording { processes, counts: self.counts })
    }
}

impl Recording {
    /// Ends the recorder; its files are complete then.
    pub(super) fn finish(mut self) -> Result<Counts, Error> {
        self.processes.interrupt()?;
        (self.counts)(&self.processes.log_text()).map_err(|found| self.processes.failed(found))
    }
}

fn start_pagewire(
    processes: &mut Processes,
    files: &Files<'_>,
    cores: &Cores,
) -> Result<(), Error> {
    let configuration = files.folder.join("cameras.toml");
    let mut text = format!("folder = \".\"\nrotate_seconds = {FILE_SECONDS}\n");
    for camera in 0..files.cameras {
        write!(text, "[camera.c{camera}]\nurl = \"{}\"\n", url()).expect("memory");
    }
    fs::write(&configuration, text).map_err(Error::host("the cameras of the recorder"))?;
    let mut command = Processes::command(installed::pagewire()?);
    command.args(["receive", "--json", "--config"]).arg(configuration);
    command.current_dir(files.folder);
    processes.start(&mut command, cores)
}

fn start_ffmpeg(processes: &mut Processes, files: &Files<'_>, cores: &Cores) -> Result<(), Error> {
    for camera in 0..files.cameras {
        let mut command = Processes::command("ffmpeg");
        command.args(["-nostdin", "-v", "warning", "-rtsp_transport", "udp", "-i", &url()]);
        command.args(["-c", "copy", "-f", "segment", "-segment_format", FORM]);
        command.args(["-segment_time", &FILE_SECONDS.to_string()]);
        command.args(["-segment_format_options", "movflags=frag_keyframe+empty_moov"]);
        command.arg(files.folder.join(format!("c{camera}-%d.{FORM}")));
        processes.start(&mut command, cores)?;
    }
    Ok(())
}

/// True for a file that a recorder writes media into.
pub(super) fn is_file(path: &Path) -> bool {
    path.extension().is_some_and(|form| form == "mp4" || form == FORM)
}

fn url() -> String {
    format!("rtsp://127.0.0.1:{RTSP_PORT}/{FILM}")
}

/// Sums the cameras' losses in the summary at the end of the log.
fn counts_of_summary(log: &str) -> Result<Counts, String> {
    let begins = log.find("\n{").map_or(0, |before| before + 1);
    let summary: Value = serde_json::Deserializer::from_str(&log[begins..])
        .into_iter()
        .next()
        .and_then(Result::ok)
        .ok_or("its log has no summary")?;
    let streams = summary["streams"].as_array().ok_or("its summary has no streams")?;
    let sum = |name: &str| -> Result<u64, String> {
        let figure = |stream: &Value| {
            stream[name].as_u64().ok_or_else(|| format!("its summary has no {name}"))
        };
        streams.iter().map(figure).sum()
    };
    Ok(Counts { lost_packets: sum("lost")?, dropped_units: sum("dropped_units")? })
}

/// Sums the lost packets of messages such as `RTP: missed 3 packets`.
fn counts_of_messages(log: &str) -> Result<Counts, String> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(MISSED)?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    Ok(Counts { lost_packets: log.lines().filter_map(of_line).sum(), dropped_units: 0 })
}

pub(super) const PAGEWIRE: &str = "pagewire";
pub(super) const FFMPEG: &str = "ffmpeg";
const MISSED: &str = "RTP: missed ";
/// A film with A-law has no place in files named `.mp4` for ffmpeg.
const FORM: &str = "mov";
const FILE_SECONDS: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_all_cameras_are_added() {
        let log = "a warning\n{\"streams\": [{\"lost\": 1, \"dropped_units\": 3}, \
                   {\"lost\": 4, \"dropped_units\": 6}]}\n";
        let expected = Counts { lost_packets: 5, dropped_units: 9 };
        assert_eq!(counts_of_summary(log), Ok(expected));
        assert!(counts_of_summary("a warning\n").is_err());
        assert!(counts_of_summary("{\"streams\": [{}]}").is_err());
    }

    #[test]
    fn messages_of_lost_packets_are_added() {
        let log = "[rtsp @ 0x5] RTP: missed 3 packets\n[rtsp @ 0x6] max delay reached\n\
                   [rtsp @ 0x6] RTP: missed 40 packets\n";
        let expected = Counts { lost_packets: 43, dropped_units: 0 };
        assert_eq!(counts_of_messages(log), Ok(expected));
    }
}
