#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# initramfs.sh ROOT OUT: packs the folder ROOT, with /init in it, as the first file system of a
# kernel. Same files, same archive: names are sorted, times and owners left out. Not compressed,
# since unpacking it is more work for an emulated processor than reading it.

set -euo pipefail

die() {
	printf 'initramfs.sh: %s\n' "$*" >&2
	exit 1
}

(($# == 2)) || die "wants a folder and the file to make: initramfs.sh ROOT OUT"
root=$1 out=$(realpath -m "$2")
[[ -x $root/init ]] || die "$root/init: not there, or no program; guest/root.sh makes such a folder"
command -v cpio >/dev/null || die "cpio: not found; apt-get install cpio"

# The times in an archive are those of the files, and the caller's files are not ours to change.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -a "$root/." "$copy"
cd "$copy"
find . -exec touch -h -d @0 {} +
find . -print0 | LC_ALL=C sort -z |
	cpio --quiet --null --create --format newc --reproducible --owner 0:0 >"$out"
