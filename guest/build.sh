#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the guest as one static program, for a root folder that has no libraries, and prints
# where it is:
#
#   guest/build.sh           guest=PATH on stdout; cargo's progress on stderr
#
# It has flags of its own and therefore a target folder of its own: otherwise each build would
# invalidate the other's. A second call lasts as long as cargo's check that nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# > 0)); then
    echo "usage: guest/build.sh" >&2
    exit 2
fi

# The target of the laboratories' machines, independent of the host's default target.
TARGET=x86_64-unknown-linux-gnu

if ! command -v cargo >/dev/null; then
    echo "guest/build.sh: no cargo in PATH; run scripts/setup.sh test" >&2
    exit 1
fi
if [[ $(uname -m) != x86_64 ]]; then
    echo "guest/build.sh: this is $(uname -m); the kernel laboratories are for x86_64" >&2
    exit 1
fi
library=$(cc -print-file-name=libc.a 2>/dev/null) || {
    echo "guest/build.sh: no C compiler to link with; apt-get install gcc libc6-dev" >&2
    exit 1
}
if [[ ! -e $library ]]; then
    echo "guest/build.sh: no static libc (libc.a); apt-get install libc6-dev" >&2
    exit 1
fi

folder=${CARGO_TARGET_DIR:-$PWD/target}/guest
# Set in the environment, so that a user's own RUSTFLAGS do not make it dynamic again.
RUSTFLAGS=-Ctarget-feature=+crt-static CARGO_PROFILE_RELEASE_STRIP=symbols \
    cargo build --release --package guest --target "$TARGET" --target-dir "$folder" >&2

echo "guest=$(realpath "$folder/$TARGET/release/guest")"
