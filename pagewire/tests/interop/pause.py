# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plays an RTSP address with GStreamer, pauses on the way, and writes what it received.

    python3 pause.py ADDRESS PLAY_SECONDS PAUSE_SECONDS >received.ts

Exit status: 0 at the end of the stream, 1 for an error of GStreamer's, 3 where its Python
bindings or one of its elements are missing.
"""

import sys

try:
    import gi

    gi.require_version("Gst", "1.0")
    from gi.repository import GLib, Gst
except (ImportError, ValueError) as error:
    print(error, file=sys.stderr)
    sys.exit(3)

address, play_seconds, pause_seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
Gst.init(None)
for element in ("rtspsrc", "rtpmp2tdepay", "fdsink"):
    if not Gst.ElementFactory.find(element):
        print(f"GStreamer without {element}", file=sys.stderr)
        sys.exit(3)

pipeline = Gst.parse_launch(
    # async: a sink that waits for a first buffer while paused would hold up playing on.
    "rtspsrc name=source protocols=udp ! rtpmp2tdepay ! fdsink fd=1 sync=false async=false"
)
pipeline.get_by_name("source").set_property("location", address)
loop = GLib.MainLoop()
status = 1


def change(state):
    print(state.value_nick, file=sys.stderr)
    pipeline.set_state(state)


def pause():
    change(Gst.State.PAUSED)
    GLib.timeout_add(int(pause_seconds * 1000), lambda: change(Gst.State.PLAYING))


def told(_, message):
    global status
    if message.type == Gst.MessageType.EOS:
        status = 0
        loop.quit()
    elif message.type == Gst.MessageType.ERROR:
        print(*message.parse_error(), file=sys.stderr)
        loop.quit()


bus = pipeline.get_bus()
bus.add_signal_watch()
bus.connect("message", told)
pipeline.set_state(Gst.State.PLAYING)
GLib.timeout_add(int(play_seconds * 1000), pause)
loop.run()
pipeline.set_state(Gst.State.NULL)
sys.exit(status)
