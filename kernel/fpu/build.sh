#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# build.sh [SERIES]: builds pagewire_fpu for Debian's kernel of that series (6.12), out of the tree,
# and prints module=FILE, stripped of what only debuggers read. A second call takes a second.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
cache=${PAGEWIRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagewire}/kernel
lines=$("$here/../qemu/fetch.sh" "${1:-6.12}")
headers=$(sed -n 's/^headers=//p' <<<"$lines")
version=$(sed -n 's/^version=//p' <<<"$lines")

hash=$(cat "$here"/{pagewire_fpu.c,vector.h,Kbuild,build.sh} | sha256sum | cut -c 1-12)
place=$cache/modules-fpu-$version-$hash
exec {lock}>"$cache/modules-fpu.lock"
flock "$lock"
if [[ ! -f $place/pagewire_fpu.ko ]]; then
	command -v make >/dev/null || {
		printf 'build.sh: make: not found; apt-get install make gcc-12\n' >&2
		exit 1
	}
	rm -rf "$place" "$place.new"
	mkdir -p "$place.new"
	cp "$here"/{pagewire_fpu.c,vector.h,Kbuild} "$place.new"
	make -C "$headers" M="$place.new" W=1 modules >&2
	strip -g "$place.new/pagewire_fpu.ko"
	mv "$place.new" "$place"
fi
printf 'module=%s\n' "$place/pagewire_fpu.ko"
