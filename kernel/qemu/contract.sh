#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# contract.sh [SERIES...]: the contract of the paths (paths/tests/contract) for the members that
# take the module pagewire_rtp, on Debian's kernels under QEMU, 6.12 and 6.1 if none is named: every
# shape, files that are cut, full sockets, peers that go, and calls and copies as claimed, counted
# by strace where that is installed. Then the departure times of all members, which need a kernel
# with the queueing disciplines fq and etf. Two minutes each, after the build.
#
# The guest has no disk: its file system holds the test's program, the shell and the tools it
# calls, with their libraries, as this host has them. What is skipped is said by the test itself, as
# lines `skip: ...`.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=programs.sh
source "$here/programs.sh"
top=$(realpath "$here/../..")
limit_s=600
members=msend,kmsend,ksendfile,mmap_rtpmsend,mmap_send_msend
members+=,rtpsendfile,krtpsendfile,krtpsendfile_gso,krtpmsend
# Not those of devices, downloads and other paths; and of shapes the shorter ones.
tests='claims:: counted::a_tracer faults:: many:: together:: shapes::headers shapes::payloads'
tests+=' shapes::a_pa shapes::paths'

die() {
	printf 'contract.sh: %s\n' "$*" >&2
	exit 1
}

scratch=$(mktemp -d)
pid=''
finish() {
	[[ -z $pid ]] || kill "$pid" 2>/dev/null || true
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

for tool in xz strip; do
	command -v "$tool" >/dev/null || die "$tool: not found; apt-get install xz-utils binutils"
done

command -v cargo >/dev/null || die "cargo: not found; see https://rustup.rs"
messages=$(cd "$top" && cargo test --no-run -p pagewire-paths --test contract --message-format=json)
program=$(grep -o '"executable":"[^"]*/contract-[^"]*"' <<<"$messages" | tail -n 1)
program=${program#*:\"}
program=${program%\"}
[[ -x $program ]] || die "cargo test: named no program"

(($# > 0)) || set -- 6.12 6.1
for series; do
	printf '# %s\n' "$series"
	root=$scratch/$series
	mkdir -p "$root"/{bin,proc,sys,dev,tmp,modules}
	put_tools "$root" <<-LIST
		bash bash
		mount mount
		insmod kmod
		ip iproute2
		tc iproute2
		unshare util-linux
		sysctl procps
	LIST
	if path=$(type -P strace); then
		put "$root" "$path"
	fi
	put "$root" "$program" contract
	strip --strip-debug "$root/bin/contract"
	ln -s bash "$root/bin/sh"
	lines=$("$here/fetch.sh" "$series")
	modules=$(sed -n 's/^modules=//p' <<<"$lines")
	for module in veth sch_fq sch_etf; do
		put_module "$root" "$modules" "$module"
	done
	lines=$("$here/../rtp/build.sh" debian "$series")
	cp "$(sed -n 's/^module=//p' <<<"$lines")" "$root/modules/pagewire_rtp.ko"
	cat >"$root/init" <<-INIT
		#!/bin/bash
		export PATH=/bin HOME=/ TMPDIR=/tmp ONLY=$members
		mount -t proc proc /proc
		mount -t sysfs sys /sys
		mount -t devtmpfs dev /dev
		mount -t tmpfs tmp /tmp
		ip link set lo up
		sysctl -qw net.core.rmem_max=16777216
		for module in /modules/*; do insmod "\$module"; done
		[[ -c /dev/pagewire_rtp ]] || echo 'guest: not ok the device is there'
		if contract --test-threads=1 --nocapture $tests 2>&1; then
			echo 'guest: ok the contract of the paths'
		else
			echo 'guest: not ok the contract of the paths'
		fi
		unset ONLY
		if contract --test-threads=1 --nocapture departures:: 2>&1; then
			echo 'guest: ok departure times'
		else
			echo 'guest: not ok departure times'
		fi
		echo 'guest: end'
		echo o >/proc/sysrq-trigger
		# The end of the first process would be a panic.
		read -r -t 60 <>/dev/console
	INIT
	chmod +x "$root/init"
	"$here/boot.sh" --root "$root" --linux "$series" --memory 1536 --timeout "$limit_s" \
		--log "$scratch/$series.log" >/dev/null &
	pid=$!
	status=0
	wait "$pid" || status=$?
	pid=''
	grep -vE '^\[ *[0-9]+\.[0-9]+\] |^skip: .*/uring|^$' "$scratch/$series.log" | uniq || true
	((status == 0)) || die "$series: failed (above)"
done
