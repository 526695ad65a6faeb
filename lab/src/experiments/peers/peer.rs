// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of one peer: its name, the way it delivers, its probe and its start.

use std::path::{Path, PathBuf};
use std::process::Command;

use paths::Transport;

use super::process::Processes;
use measure::Error;
use measure::meter::Cores;

/// One server or sender of the comparison.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Differences from the other members that a reader needs for a comparison.
    pub(crate) differs: &'static str,
    pub(crate) streams: Streams,
    /// True when a session of RTSP may have its packets on the RTSP connection.
    pub(crate) interleaves: bool,
    /// True when it serves files over HTTP.
    pub(crate) downloads: bool,
    /// Version, or the missing part.
    pub(crate) probe: fn() -> Result<String, String>,
    /// Command or page that installs it.
    pub(crate) install: &'static str,
    pub(crate) start: fn(&Setting<'_>) -> Result<Running, Error>,
    /// True when files that the first session over a transport makes for later ones are complete.
    pub(crate) is_prepared: fn(&Setting<'_>, Transport) -> bool,
}

/// A peer over one transport.
#[derive(Clone, Copy)]
pub(crate) struct Contender {
    pub(crate) peer: &'static Peer,
    pub(crate) transport: Transport,
}

impl Contender {
    /// Returns the name for notes and progress.
    pub(crate) fn label(&self) -> String {
        format!("{}, {}", self.peer.name, self.transport)
    }
}

/// The way a peer delivers a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Streams {
    No,
    /// A session of RTSP for each client, which plays the file from its beginning.
    OnDemand,
    /// A session of RTSP for each client, which joins one running stream.
    Live,
    /// Packets to given ports, without sessions.
    Pushed,
}

/// Files, cores and ports for a peer.
pub(crate) struct Setting<'a> {
    /// Scratch folder of the peer.
    pub(crate) folder: &'a Path,
    /// Folder of the clip and of the files for download.
    pub(crate) served: &'a Path,
    pub(crate) cores: &'a Cores,
    /// Cores of the client, for a helper that does not belong to the server.
    pub(crate) other_cores: &'a Cores,
    /// Destinations on loopback of a peer that pushes.
    pub(crate) ports: &'a [u16],
}

impl Setting<'_> {
    pub(crate) fn clip(&self) -> PathBuf {
        self.served.join(CLIP)
    }
}

/// A peer that is ready.
pub(crate) struct Running {
    pub(crate) processes: Processes,
    /// Programs beside the server, such as the source of a relay; in no figure.
    pub(crate) _helpers: Option<Processes>,
    /// RTSP URL of the clip.
    pub(crate) stream_url: String,
    /// Port of HTTP, 0 for none.
    pub(crate) http_port: u16,
}

impl Running {
    pub(crate) fn new(processes: Processes) -> Running {
        Running { processes, _helpers: None, stream_url: String::new(), http_port: 0 }
    }
}

/// Returns the first line of a program's output with `word`, or otherwise the program's name; an
/// error when the program cannot be started.
pub(crate) fn version(program: &str, arguments: &[&str], word: &str) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| match error.kind() {
        // The experiment's set-up does not include peers: a missing one is not a fault of the
        // machine.
        std::io::ErrorKind::NotFound => format!("there is no {program} in PATH"),
        _ => format!("{program}: {error}"),
    })?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find(|line| line.contains(word));
    Ok(line.unwrap_or(program).trim().to_owned())
}

/// Name of the clip below the served folder.
pub(crate) const CLIP: &str = "clip.ts";
/// Fixed ports are free, as the experiment has loopback to itself.
pub(crate) const RTSP_PORT: u16 = 8554;
pub(crate) const HTTP_PORT: u16 = 8080;
