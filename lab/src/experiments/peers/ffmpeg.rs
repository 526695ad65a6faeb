// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies the clip's stream into a new transport stream for each destination.

use super::peer::{Peer, Running, Setting, Streams, version};
use super::process::Processes;
use measure::Error;

pub(super) static PEER: Peer = Peer {
    name: "ffmpeg",
    differs: "no RTSP: one process demultiplexes the file once, and multiplexes and pushes it as \
              RTP to fixed ports, once for each",
    streams: Streams::Pushed,
    interleaves: false,
    downloads: false,
    probe: || version("ffmpeg", &["-version"], "version"),
    install: "apt install ffmpeg",
    start,
    is_prepared: |_, _| true,
};

fn start(setting: &Setting<'_>) -> Result<Running, Error> {
    let mut processes = Processes::new(PEER.name, setting.folder);
    let mut command = Processes::command("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-re", "-i"]).arg(setting.clip());
    for port in setting.ports {
        command.args(["-map", "0", "-c", "copy", "-f", "rtp_mpegts"]);
        command.arg(format!("rtp://127.0.0.1:{port}?pkt_size=1328"));
    }
    processes.start(&mut command, setting.cores)?;
    Ok(Running::new(processes))
}
