# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a file or an RTSP address with PyAV, which brings an FFmpeg of its own, newer than a
distribution's, and prints what is in it, frame by frame:

    picture TIME HASH         of each picture as it is decoded: its time in milliseconds, or
                              -1 where FFmpeg gives it none, as the first ones of a stream
    sound STREAM BYTES HASH   of each frame of sound as it is stored

    python3 frames.py ADDRESS [TRANSPORT]

Exit status: 1 for an error of FFmpeg's, 3 where PyAV is missing.
"""

import hashlib
import sys

try:
    import av
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)


def md5(parts):
    digest = hashlib.md5()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def rows(plane):
    """A plane's rows of bytes, without what pads them in memory. Eight bits a sample."""
    pixels = memoryview(plane)
    for row in range(plane.height):
        yield pixels[row * plane.line_size :][: plane.width]


def print_picture(frame):
    time_ms = -1 if frame.pts is None else round(frame.pts * frame.time_base * 1000)
    print("picture", time_ms, md5(row for plane in frame.planes for row in rows(plane)))


options = {"rtsp_transport": sys.argv[2], "timeout": "10000000"} if sys.argv[2:] else {}
with av.open(sys.argv[1], options=options) as source:
    sounds = list(source.streams.audio)
    for packet in source.demux():
        if packet.stream.type == "video":
            # An empty packet at the end flushes the decoder.
            for frame in packet.decode():
                print_picture(frame)
        elif packet.size > 0:
            print("sound", sounds.index(packet.stream), packet.size, md5([packet]))
