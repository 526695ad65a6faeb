# SPDX-License-Identifier: MIT OR Apache-2.0
"""RTSP server of GStreamer for one transport stream: PORT FILE own|shared.

"own" makes a pipeline for each client, which is what the library does unless it is told otherwise;
"shared" sends the packets of one pipeline to all clients.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

port, file, pipeline = sys.argv[1:]
Gst.init(None)
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    f'( filesrc location="{file}" ! tsparse set-timestamps=true ! rtpmp2tpay name=pay0 pt=33 )'
)
factory.set_shared(pipeline == "shared")
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(port)
server.set_backlog(1024)
server.get_mount_points().add_factory("/clip.ts", factory)
server.attach(None)
GLib.MainLoop().run()
