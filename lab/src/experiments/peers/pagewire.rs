// SPDX-License-Identifier: MIT OR Apache-2.0
//! This program, started again as `serve`.

use super::peer::{HTTP_PORT, Peer, RTSP_PORT, Running, Setting, Streams};
use super::process::Processes;
use measure::Error;
use paths::Transport;

pub(crate) static PEER: Peer = Peer {
    name: "pagewire",
    differs: "RTSP and HTTP; each client plays the file from its own position; wire images \
              are made once, before the measured time; one thread sends for all clients of a core",
    streams: Streams::OnDemand,
    interleaves: true,
    downloads: true,
    probe: || Ok(format!("pagewire {}", env!("CARGO_PKG_VERSION"))),
    install: "this program",
    start: |setting| start(setting, &[]),
    is_prepared: has_image,
};

/// Starts the server with more options.
pub(crate) fn start(setting: &Setting<'_>, more: &[String]) -> Result<Running, Error> {
    let program = crate::installed::pagewire()?;
    let mut processes = Processes::new(PEER.name, setting.folder);
    let mut command = Processes::command(program);
    command.args(["serve", "--path", "wire_sendfile", "--pacers", "1", "--admit-load", "off"]);
    command.args(["--rtsp", &format!("127.0.0.1:{RTSP_PORT}")]);
    command.args(["--http", &format!("127.0.0.1:{HTTP_PORT}")]);
    command.args(more);
    // All sessions have one client address.
    command.args(["--exempt-from-limits", "0.0.0.0/0"]);
    command.arg("--cache").arg(setting.folder.join("pagewire-cache")).arg(setting.served);
    processes.start(&mut command, setting.cores)?;
    processes.await_port(&[RTSP_PORT])?;
    let http_port = processes.await_port(&[HTTP_PORT])?;
    let stream_url = format!("rtsp://127.0.0.1:{RTSP_PORT}/{}", super::peer::CLIP);
    Ok(Running { stream_url, http_port, ..Running::new(processes) })
}

/// True when the wire image for that transport has its final name.
fn has_image(setting: &Setting<'_>, transport: Transport) -> bool {
    let images = setting.folder.join("pagewire-cache/images");
    let entries = std::fs::read_dir(images).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_framed = transport == Transport::Tcp;
    names.any(|name| name.ends_with(".wire") && name.ends_with(".framed.wire") == is_framed)
}
