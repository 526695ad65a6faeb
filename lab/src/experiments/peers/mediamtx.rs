// SPDX-License-Identifier: MIT OR Apache-2.0
//! MediaMTX: a relay, to which GStreamer publishes the clip from the client's core.

use super::peer::{CLIP, Peer, RTSP_PORT, Running, Setting, Streams, version};
use super::process::Processes;
use measure::Error;

pub(super) static PEER: Peer = Peer {
    name: "mediamtx",
    differs: "RTSP; relays the packets of one publisher, which is in no figure, to all clients: \
              live, no stream on demand",
    streams: Streams::Live,
    interleaves: true,
    downloads: false,
    probe: || {
        version("mediamtx", &["--version"], "v")?;
        version(PUBLISHER, &["--version"], "version")
            .map(|publisher| format!("mediamtx, published to by {publisher}"))
    },
    // `go install` cannot make it: its build embeds files that `go generate` fetches.
    install: "put mediamtx of an archive of https://github.com/bluenviron/mediamtx/releases on the \
              PATH; apt install gstreamer1.0-tools gstreamer1.0-rtsp gstreamer1.0-plugins-bad",
    start,
    is_prepared: |_, _| true,
};

fn start(setting: &Setting<'_>) -> Result<Running, Error> {
    let configuration = setting.folder.join("mediamtx.yml");
    let text = format!(
        "rtspAddress: 127.0.0.1:{RTSP_PORT}\nrtmp: no\nhls: no\nwebrtc: no\nsrt: no\n\
         paths:\n  all_others:\n"
    );
    std::fs::write(&configuration, text).map_err(Error::host("writing mediamtx.yml"))?;
    let mut processes = Processes::new(PEER.name, setting.folder);
    processes.start(Processes::command("mediamtx").arg(&configuration), setting.cores)?;
    processes.await_port(&[RTSP_PORT])?;
    let stream_url = format!("rtsp://127.0.0.1:{RTSP_PORT}/{CLIP}");
    let mut publisher = Processes::new("publisher", setting.folder);
    let mut command = Processes::command(PUBLISHER);
    command.arg("filesrc").arg(format!("location={}", setting.clip().display()));
    command.args(["!", "tsparse", "set-timestamps=true", "!", "rtspclientsink"]);
    command.args([&format!("location={stream_url}"), "protocols=udp"]);
    publisher.start(&mut command, setting.other_cores)?;
    std::thread::sleep(PUBLISHING);
    let helpers = Some(publisher);
    Ok(Running { stream_url, _helpers: helpers, ..Running::new(processes) })
}

const PUBLISHER: &str = "gst-launch-1.0";
/// Time in which the publisher sets up its session; clients are refused before.
const PUBLISHING: std::time::Duration = std::time::Duration::from_secs(2);
