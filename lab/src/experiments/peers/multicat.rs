// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the clip as RTP to one destination, a process each.

use std::process::Command;

use super::clip::PCR_PID;
use super::peer::{Peer, Running, Setting, Streams, version};
use super::process::Processes;
use measure::Error;

pub(super) static PEER: Peer = Peer {
    name: "multicat",
    differs: "no RTSP: pushes the file as RTP to fixed ports, a process for each destination",
    streams: Streams::Pushed,
    interleaves: false,
    downloads: false,
    probe: || {
        version("ingests", &[], "")?;
        version("multicat", &["-h"], "Usage").map(|_| "multicat".to_owned())
    },
    install: "apt install multicat",
    start,
    is_prepared: |_, _| true,
};

fn start(setting: &Setting<'_>) -> Result<Running, Error> {
    let clip = setting.clip();
    if !clip.with_extension("aux").exists() {
        // multicat reads the times of packets from a file beside the clip.
        let mut command = Command::new("ingests");
        let output = command.args(["-p", &PCR_PID.to_string()]).arg(&clip).output();
        output.map_err(Error::host("ingests"))?;
    }
    let mut processes = Processes::new(PEER.name, setting.folder);
    for port in setting.ports {
        let mut command = Processes::command("multicat");
        command.arg(&clip).arg(format!("127.0.0.1:{port}"));
        processes.start(&mut command, setting.cores)?;
    }
    Ok(Running::new(processes))
}
