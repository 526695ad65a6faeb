#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# pacing.sh [options] [-- LAB-OPTIONS...]: `pagewire lab pacing` inside Debian's kernel under QEMU,
# for hosts whose own kernel has no fq: both pacers, on a veth pair with fq.
#
#   --linux SERIES     Debian's kernel of that series (6.12)
#   --programs FOLDER  with pagewire and pagewire-lab (built here for release)
#   --json FILE        the measurement file; the table goes to stdout in any case
#   --timeout SECONDS  after that the guest is ended (1500)
#
# LAB-OPTIONS are those of `pagewire lab pacing`; --sessions 4 --seconds 5 --rounds 5 if none are
# given, which is some 15 minutes. Four sessions are all watched, so no ifb is needed.
#
# The processor is emulated: a system call costs many times what it costs on a host, and timers are
# late by a millisecond when the host is busy. Compare ratios of one run; its figures are not those
# of a machine. The exit status is that of boot.sh.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=programs.sh
source "$here/programs.sh"
top=$(realpath "$here/../..")
series=6.12 programs='' json='' limit_s=1500

die() {
	printf 'pacing.sh: %s\n' "$*" >&2
	exit 1
}

while (($# > 0)); do
	case $1 in
	--)
		shift
		break
		;;
	--linux | --programs | --json | --timeout)
		(($# > 1)) || die "$1: without a value"
		case $1 in
		--linux) series=$2 ;;
		--programs) programs=$2 ;;
		--json) json=$2 ;;
		--timeout) limit_s=$2 ;;
		esac
		shift
		;;
	*) die "$1: unknown; options of the laboratory come after --" ;;
	esac
	shift
done
(($# > 0)) || set -- --sessions 4 --seconds 5 --rounds 5
for word; do
	[[ $word =~ ^[A-Za-z0-9_.=-]+$ ]] || die "$word: not a word for a shell; write it without"
done

for tool in xz strip; do
	command -v "$tool" >/dev/null || die "$tool: not found; apt-get install xz-utils binutils"
done
if [[ -z $programs ]]; then
	command -v cargo >/dev/null || die "cargo: not found; see https://rustup.rs"
	(cd "$top" && cargo build --release --package pagewire --package lab)
	programs=${CARGO_TARGET_DIR:-$top/target}/release
fi

scratch=$(mktemp -d)
pid=''
finish() {
	[[ -z $pid ]] || kill "$pid" 2>/dev/null || true
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

root=$scratch/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,modules}
put_tools "$root" <<-LIST
	bash bash
	cat coreutils
	true coreutils
	mount mount
	insmod kmod
	ip iproute2
	tc iproute2
	unshare util-linux
	nsenter util-linux
LIST
for program in pagewire pagewire-lab; do
	[[ -x $programs/$program ]] || die "$programs/$program: no such program"
	put "$root" "$programs/$program"
	strip --strip-debug "$root/bin/$program"
done
ln -s bash "$root/bin/sh"
lines=$("$here/fetch.sh" "$series")
modules=$(sed -n 's/^modules=//p' <<<"$lines")
for module in veth sch_fq; do
	put_module "$root" "$modules" "$module"
done
cat >"$root/init" <<-INIT
	#!/bin/bash
	export PATH=/bin HOME=/tmp TMPDIR=/tmp
	mount -t proc proc /proc
	mount -t sysfs sys /sys
	mount -t devtmpfs dev /dev
	# A wire image is made where a gibibyte stays free.
	mount -t tmpfs -o size=1900m tmp /tmp
	ip link set lo up
	for module in /modules/*; do insmod "\$module"; done
	if pagewire-lab pacing $* --json /tmp/pacing.json </dev/null 2>&1; then
		while IFS= read -r line; do
			printf 'json: %s\n' "\$line"
		done </tmp/pacing.json
		pagewire-lab report /tmp/pacing.json </dev/null 2>&1
		echo 'guest: ok pacing'
	else
		echo 'guest: not ok pacing'
	fi
	echo 'guest: end'
	echo o >/proc/sysrq-trigger
	# The end of the first process would be a panic.
	read -r -t 60 <>/dev/console
INIT
chmod +x "$root/init"

# With two emulated processors the kernel of 6.12 has stopped with an int3 twice: it patches its own
# code when fq begins, and the emulator may show the other processor half of it.
"$here/boot.sh" --root "$root" --linux "$series" --processors 1 --memory 2048 \
	--timeout "$limit_s" --log "$scratch/log" >/dev/null &
pid=$!
status=0
wait "$pid" || status=$?
pid=''
grep -vE '^\[ *[0-9]+\.[0-9]+\] |^json: |^$' "$scratch/log" || true
if ((status == 0)) && [[ -n $json ]]; then
	sed -n 's/^json: //p' "$scratch/log" >"$json"
fi
exit "$status"
