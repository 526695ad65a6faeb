#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes pagewire/assets/clip.ts, the clip that `pagewire demo` carries inside the program.
#
# Everything in it is generated, so it is the project's own: a slow colour gradient, a clock with
# milliseconds and frame number, a bar that shows how far play has come, a tone with a beep each
# second. H.264 with a closed group of pictures a second and no B-frames, AAC, PAT and PMT before
# every video frame, so play can start at each second. The file changes only when this script does:
# same ffmpeg and x264, same bytes (the committed one: ffmpeg 5.1.9, x264 0.164). It is no part of
# the build.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-pagewire/assets/clip.ts}
seconds=14
frames_per_second=25
bytes_max=1500000

for program in ffmpeg ffprobe; do
    if ! command -v "$program" >/dev/null; then
        echo "make-clip: $program: not found; run scripts/setup.sh test" >&2
        exit 1
    fi
done

# testsrc2 writes the clock with a font of its own, so no font file is needed. Its colours change
# underneath: made grey and cut at a threshold, only the digits are left.
graph="
gradients=size=640x360:rate=$frames_per_second:seed=7:n=4:speed=0.008:x0=40:y0=0:x1=600:y1=360:
c0=0x0b1d3a:c1=0x17639a:c2=0x2aa198:c3=0xe8b04a,format=yuv420p[sky];
testsrc2=size=640x360:rate=$frames_per_second,crop=100:36:2:2,format=gray,
lutyuv=y='if(gt(val,90),235,24)',scale=iw*4:ih*4:flags=neighbor,format=yuv420p[clock];
color=c=0xf4f1e8:size=640x12:rate=$frames_per_second,format=yuv420p[bar];
[sky][clock]overlay=(W-w)/2:(H-h)/2-20[face];
[face][bar]overlay=x=-W+W*t/$seconds:y=H-48,trim=duration=${seconds}[video];
sine=frequency=220:beep_factor=4:sample_rate=48000,atrim=duration=$seconds,volume=0.5,
aformat=channel_layouts=stereo[audio]"

draft=$(mktemp --suffix=.ts)
trap 'rm -f "$draft"' EXIT

echo "make-clip: encoding $seconds s to $target"
# One encoder thread: x264's output depends on the number of threads.
ffmpeg -hide_banner -loglevel error -nostdin -y \
    -filter_complex "${graph//$'\n'/}" -map '[video]' -map '[audio]' -map_metadata -1 \
    -c:v libx264 -preset slow -threads 1 -pix_fmt yuv420p -flags:v +cgop+bitexact \
    -g "$frames_per_second" -keyint_min "$frames_per_second" -sc_threshold 0 -bf 0 \
    -x264-params open-gop=0 -b:v 500k -maxrate 700k -bufsize 700k \
    -c:a aac -b:a 64k -flags:a +bitexact -t "$seconds" -fflags +bitexact \
    -f mpegts -mpegts_flags +pat_pmt_at_frames -pcr_period 20 \
    -metadata service_name=pagewire -metadata service_provider=pagewire "$draft"

bytes=$(stat -c %s "$draft")
if ((bytes % 188 != 0 || bytes > bytes_max)); then
    echo "make-clip: $bytes bytes: not whole TS packets of 188, or over $bytes_max" >&2
    exit 1
fi
key_frames=$(ffprobe -v error -select_streams v -show_entries packet=flags -of csv=p=0 "$draft" |
    grep -c K)
if ((key_frames != seconds)); then
    echo "make-clip: $key_frames key frames in $seconds s: one a second was asked for" >&2
    exit 1
fi
# Decodes every frame and sample; any complaint of the decoder is a failure.
complaints=$(ffmpeg -hide_banner -loglevel warning -nostdin -i "$draft" -f null - 2>&1)
if [[ -n $complaints ]]; then
    echo "make-clip: the decoder complains: $complaints" >&2
    exit 1
fi

mkdir -p "$(dirname "$target")"
chmod 644 "$draft"
cp "$draft" "$target"
echo "make-clip: $target: $bytes bytes, $((bytes / 188)) TS packets, $key_frames key frames"
