#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the Debian packages into out/deb: pagewire, and pagewire-dkms with the in-kernel engine.
#
#   packaging/build.sh [--profile PROFILE]      release, unless another is named
#
# cargo-deb is installed with cargo where it is missing, and the page is bundled by npm (`make
# web`): a package without hls.js plays no film in most browsers, so none is made. The program
# itself writes man pages and completions, so they say what it does. Status 1 when something is
# missing that cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=release
if [[ ${1:-} == --profile && $# -eq 2 ]]; then
    profile=$2
elif (($# > 0)); then
    echo "usage: packaging/build.sh [--profile PROFILE]" >&2
    exit 2
fi
install_s_max=1800

for program in dpkg-deb dpkg-shlibdeps fakeroot; do
    if ! command -v "$program" >/dev/null; then
        echo "build: $program: not found; apt-get install dpkg-dev fakeroot" >&2
        exit 1
    fi
done
make --no-print-directory web
if [[ ! -s web/dist/LICENSES.txt ]]; then
    echo "build: web/dist has no hls.js (above: why); install npm and nodejs, then run make web" >&2
    exit 1
fi
if ! command -v cargo-deb >/dev/null; then
    echo "build: installing cargo-deb; some minutes, $install_s_max s at most"
    timeout "$install_s_max" cargo install --quiet --locked cargo-deb
fi

cargo build --locked --profile "$profile" --package pagewire
folder=$profile
[[ $profile == dev ]] && folder=debug
program=${CARGO_TARGET_DIR:-target}/$folder/pagewire

made=out/deb
rm -rf "$made"
mkdir -p "$made/texts"
"$program" shipped-texts "$made/texts"
# What the program contains of others, with the licence that each names.
cargo tree --locked --package pagewire --edges normal --prefix none --format '{p} {l}' |
    sed 's| (/[^)]*)||; s| (\*)$||' | sort -u >"$made/texts/third-party-licences"

cargo deb --quiet --no-build --strip --profile "$profile" --package pagewire --output "$made/"
packaging/dkms/build.sh "$made"
ls -l "$made"/*.deb
