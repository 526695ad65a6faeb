#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# fetch.sh [SERIES]: Debian's own kernel for 64-bit PCs, and what modules for it are built with.
# SERIES is 6.12, if none is given, or another that the archive has, such as 6.1. The newest of it
# is taken that is neither for clouds nor real-time, or LINUX_VERSION=6.12.117+deb12.
#
# Nothing is installed and no rights are needed: the packages are unpacked in the cache. To stdout:
#   version=6.12.117+deb12-amd64    as uname -r has it there
#   kernel=FILE                     the image, which boots
#   modules=DIR                     the kernel's own modules, compressed as Debian ships them
#   dummy=FILE                      its dummy network device, unpacked
#   headers=DIR                     make -C DIR M=... modules
#
# Status 77 when this host lacks something or cannot reach the archive, with the cure in the last
# line of stderr.
#
# Costs 130 MB of download and 200 MB of disk once (6.1: 90 and 500); afterwards nothing is asked of
# the archive, so that a cache stays with the kernel it has: remove the link debian-SERIES to look
# for a newer one.

set -euo pipefail

series=${1:-6.12}
cache=${PAGEWIRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagewire}/kernel
link=$cache/debian-$series

UNFIT_HOST=77

die() {
	printf 'fetch.sh: %s\n' "$*" >&2
	exit 1
}

# This host lacks something: no failure, and the line says what to do.
unfit() {
	printf 'fetch.sh: %s\n' "$*" >&2
	exit $UNFIT_HOST
}

[[ $series =~ ^[0-9]+\.[0-9]+$ ]] || die "series $series: not two numbers; write 6.12 or 6.1"

show() {
	sed "s|^\([a-z]*=\)@|\1$1|" "$1/lines"
	exit 0
}

# The name of the image's package, the newest last.
newest() {
	apt-cache search --names-only "^linux-image-${series/./\\.}\.[0-9][0-9a-z.+]*(-[0-9.]+)?-amd64\$" |
		cut -d ' ' -f 1 | sort -V | tail -n 1
}

# Packages that the headers' package needs, of those that hold files for a build.
needed() {
	dpkg-deb -f "$1" Depends | tr ',' '\n' | sed 's/^ *\([^ ]*\).*/\1/' |
		grep -E '^linux-(headers-.*-common|kbuild-)'
}

# Debian's Makefile names the folder it would be installed to; this one finds it where it lies. The
# vmlinux beside it has types alone, for which a module's build would need pahole.
relocate() {
	local common=$1/usr/src/linux-headers-${version%-amd64}-common
	[[ -f $common/Makefile ]] || die "$common: no Makefile; the headers are packed otherwise today"
	# shellcheck disable=SC2016 # make expands it
	printf 'include $(dir $(realpath $(lastword $(MAKEFILE_LIST))))../%s/Makefile\n' \
		"${common##*/}" >"$1/usr/src/linux-headers-$version/Makefile"
	rm -f "$1/usr/src/linux-headers-$version/vmlinux"
}

unpack_dummy() {
	local modules=$1 packed
	packed=$(find "$modules/kernel/drivers/net" -maxdepth 1 -name 'dummy.ko*')
	case $packed in
	*.xz) xz -dc "$packed" ;;
	*.zst) zstd -qdc "$packed" ;;
	*.ko) cat "$packed" ;;
	*) die "$modules: no module of the dummy network device" ;;
	esac
}

download() {
	(cd "$1" && shift && apt-get -q -o APT::Sandbox::User=root download "$@") >&2 ||
		unfit "download of ${*:2}: refused (above); run apt-get update as root and try again"
}

for tool in apt-get apt-cache dpkg-deb flock xz; do
	command -v "$tool" >/dev/null ||
		unfit "$tool: not installed; needs Debian 12 or newer with apt, dpkg, util-linux and xz-utils"
done

if [[ -z ${LINUX_VERSION:-} && -f $link/lines ]]; then
	show "$(readlink -f "$link")"
fi

mkdir -p "$cache"
exec {lock}>"$cache/debian-$series.lock"
flock "$lock"
if [[ -z ${LINUX_VERSION:-} && -f $link/lines ]]; then
	show "$(readlink -f "$link")"
fi

image=linux-image-${LINUX_VERSION:+${LINUX_VERSION%-amd64}-amd64}
[[ -n ${LINUX_VERSION:-} ]] || image=$(newest)
[[ -n $image ]] ||
	unfit "linux-image-$series: not in the archive's lists; run apt-get update as root"
version=${image#linux-image-}
place=$cache/debian-$version
if [[ ! -f $place/lines ]]; then
	printf 'fetch.sh: %s and headers, 130 MB\n' "$image" >&2
	rm -rf "$place.new"
	mkdir -p "$place.new/packages"
	download "$place.new/packages" "$image" "linux-headers-$version"
	mapfile -t more < <(needed "$place.new/packages/linux-headers-$version"_*.deb)
	((${#more[@]} == 2)) || die "linux-headers-$version needs ${more[*]}: common and kbuild expected"
	download "$place.new/packages" "${more[@]}"
	for package in "$place.new"/packages/*.deb; do
		dpkg-deb -x "$package" "$place.new"
	done
	rm -r "$place.new/packages"
	relocate "$place.new"
	modules=lib/modules/$version
	[[ -d $place.new/$modules ]] || modules=usr/$modules
	unpack_dummy "$place.new/$modules" >"$place.new/dummy.ko"
	[[ -f $place.new/boot/vmlinuz-$version ]] || die "$image: no boot/vmlinuz-$version in it"
	cat >"$place.new/lines" <<-LINES
		version=$version
		kernel=@/boot/vmlinuz-$version
		modules=@/$modules
		dummy=@/dummy.ko
		headers=@/usr/src/linux-headers-$version
	LINES
	rm -rf "$place"
	mv "$place.new" "$place"
fi
[[ -n ${LINUX_VERSION:-} ]] || ln -sfn "debian-$version" "$link"
show "$place"
