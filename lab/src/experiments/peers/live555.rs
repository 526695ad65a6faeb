// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example server of the library, which serves the files of its working folder.

use super::peer::{CLIP, Peer, RTSP_PORT, Running, Setting, Streams, version};
use super::process::Processes;
use measure::Error;

pub(super) static PEER: Peer = Peer {
    name: "live555",
    differs: "RTSP; each client plays the file from its own position; one thread for all clients",
    streams: Streams::OnDemand,
    interleaves: true,
    downloads: false,
    // The program has no option for its version and would start.
    probe: || version("which", &[PROGRAM], PROGRAM).and_then(found),
    install: "build http://www.live555.com/liveMedia/ and put live555MediaServer on the PATH \
              (Debian has no package of it)",
    start,
    is_prepared: |_, _| true,
};

fn found(path: String) -> Result<String, String> {
    if path.ends_with(PROGRAM) { Ok(path) } else { Err(format!("no {PROGRAM} on the PATH")) }
}

fn start(setting: &Setting<'_>) -> Result<Running, Error> {
    let mut processes = Processes::new(PEER.name, setting.folder);
    let mut command = Processes::command(PROGRAM);
    command.current_dir(setting.served);
    processes.start(&mut command, setting.cores)?;
    // The server uses the first port on which it may listen.
    let port = processes.await_port(&[STANDARD_PORT, RTSP_PORT])?;
    let stream_url = format!("rtsp://127.0.0.1:{port}/{CLIP}");
    Ok(Running { stream_url, ..Running::new(processes) })
}

const PROGRAM: &str = "live555MediaServer";
const STANDARD_PORT: u16 = 554;
