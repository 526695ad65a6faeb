# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plays an RTSP address with GStreamer at another rate or from another place, by a seek of its own,
and prints each picture: its time in milliseconds as the stream has it, and a hash of what the
decoder shows. With SECONDS the seek is to that time, as exact as GStreamer can.

    python3 seek.py ADDRESS RATE DEPAYLOADER[,ELEMENT...],DECODER [SECONDS]

Exit status: 0 at the end of the stream, 1 for an error of GStreamer's, 3 where its Python
bindings or one of its elements are missing.
"""

import hashlib
import sys

try:
    import gi

    gi.require_version("Gst", "1.0")
    from gi.repository import GLib, Gst
except (ImportError, ValueError) as error:
    print(error, file=sys.stderr)
    sys.exit(3)

address, rate, chain = sys.argv[1], float(sys.argv[2]), sys.argv[3].split(",")
seconds = float(sys.argv[4]) if sys.argv[4:] else None
Gst.init(None)
for element in ("rtspsrc", *chain, "fakesink"):
    if not Gst.ElementFactory.find(element):
        print(f"GStreamer without {element}", file=sys.stderr)
        sys.exit(3)

pipeline = Gst.parse_launch(
    "rtspsrc name=source protocols=tcp "
    + " ! ".join(["source.", "queue", *chain])
    + " ! fakesink name=sink sync=false async=false signal-handoffs=true"
)
source = pipeline.get_by_name("source")
source.set_property("location", address)
# Pictures alone: the sound has no branch.
source.connect(
    "select-stream", lambda _, number, caps: caps.get_structure(0).get_string("media") == "video"
)
loop = GLib.MainLoop()
status, is_behind_seek = 1, False


def picture(_, buffer, pad):
    if not is_behind_seek:
        return
    found, mapped = buffer.map(Gst.MapFlags.READ)
    if found:
        digest = hashlib.md5(mapped.data).hexdigest()
        segment = pad.get_sticky_event(Gst.EventType.SEGMENT, 0).parse_segment()
        time = segment.to_stream_time(Gst.Format.TIME, buffer.pts)
        # Those of a trick play's groups count on in the buffers alone.
        time = buffer.pts if seconds is None else time
        print(round(time / Gst.MSECOND), digest, flush=True)
        buffer.unmap(mapped)


def event(_, info):
    """A seek flushes the pictures that are under way."""
    global is_behind_seek
    is_behind_seek |= info.get_event().type == Gst.EventType.FLUSH_STOP
    return Gst.PadProbeReturn.OK


def seek():
    exact = Gst.SeekFlags.TRICKMODE if seconds is None else Gst.SeekFlags.ACCURATE
    flags = Gst.SeekFlags.FLUSH | exact
    begin = round((seconds or 0) * Gst.SECOND)
    end = -1 if rate > 0 else pipeline.query_duration(Gst.Format.TIME)[1]
    kind = Gst.SeekType
    if not pipeline.seek(rate, Gst.Format.TIME, flags, kind.SET, begin, kind.SET, end):
        print("it cannot seek", file=sys.stderr)
        loop.quit()


def told(_, message):
    global status
    if message.type == Gst.MessageType.EOS:
        status = 0
        loop.quit()
    elif message.type == Gst.MessageType.ERROR:
        print(*message.parse_error(), file=sys.stderr)
        loop.quit()


sink = pipeline.get_by_name("sink")
sink.connect("handoff", picture)
flushes = Gst.PadProbeType.EVENT_DOWNSTREAM | Gst.PadProbeType.EVENT_FLUSH
sink.get_static_pad("sink").add_probe(flushes, event)
bus = pipeline.get_bus()
bus.add_signal_watch()
bus.connect("message", told)
pipeline.set_state(Gst.State.PLAYING)
GLib.timeout_add(1500, seek)
loop.run()
pipeline.set_state(Gst.State.NULL)
sys.exit(status)
