// SPDX-License-Identifier: MIT OR Apache-2.0
//! GStreamer's RTSP server library, by a script of ours: a pipeline for each client, or one for
//! all.

use std::process::Command;

use super::peer::{CLIP, Peer, RTSP_PORT, Running, Setting, Streams};
use super::process::Processes;
use measure::Error;

pub(super) static OWN: Peer = Peer {
    name: "gstreamer_own",
    differs: "RTSP; reads, parses and packetises the file in a pipeline for each client",
    streams: Streams::OnDemand,
    interleaves: true,
    downloads: false,
    probe,
    install: INSTALL,
    start: |setting| start(OWN.name, "own", setting),
    is_prepared: |_, _| true,
};

pub(super) static SHARED: Peer = Peer {
    name: "gstreamer_shared",
    differs: "RTSP; one pipeline reads and packetises for all clients, which join it where it is: \
              a live relay, no stream on demand",
    streams: Streams::Live,
    interleaves: true,
    downloads: false,
    probe,
    install: INSTALL,
    start: |setting| start(SHARED.name, "shared", setting),
    is_prepared: |_, _| true,
};

fn probe() -> Result<String, String> {
    let output = Command::new(PYTHON).args(["-c", CHECK]).output();
    let output = output.map_err(|error| format!("{PYTHON}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(text.lines().last().unwrap_or("no GStreamer for Python").to_owned())
}

fn start(name: &'static str, pipeline: &str, setting: &Setting<'_>) -> Result<Running, Error> {
    let script = setting.folder.join("gstreamer.py");
    std::fs::write(&script, SCRIPT).map_err(Error::host("writing the script"))?;
    let mut processes = Processes::new(name, setting.folder);
    let mut command = Processes::command(PYTHON);
    command.arg(script).arg(RTSP_PORT.to_string()).arg(setting.clip()).arg(pipeline);
    processes.start(&mut command, setting.cores)?;
    processes.await_port(&[RTSP_PORT])?;
    let stream_url = format!("rtsp://127.0.0.1:{RTSP_PORT}/{CLIP}");
    Ok(Running { stream_url, ..Running::new(processes) })
}

const SCRIPT: &str = include_str!("gstreamer.py");
/// The system's Python; distributions package the bindings for it.
const PYTHON: &str = "/usr/bin/python3";
const CHECK: &str = "import gi\n\
    gi.require_version('GstRtspServer', '1.0')\n\
    from gi.repository import Gst, GstRtspServer\n\
    Gst.init(None)\n\
    missing = [name for name in ('tsparse', 'rtpmp2tpay') if not Gst.ElementFactory.find(name)]\n\
    assert not missing, 'no element ' + ', '.join(missing)\n\
    print(Gst.version_string())";
const INSTALL: &str = "apt install python3-gi gir1.2-gst-rtsp-server-1.0 \
                       gstreamer1.0-plugins-good gstreamer1.0-plugins-bad";
