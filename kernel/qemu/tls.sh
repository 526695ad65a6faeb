#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# tls.sh [SERIES...]: HTTPS with kernel TLS, on Debian's kernels under QEMU, 6.12 and 6.1 if none is
# named: the tests pagewire/tests/tls/{kernel_tls,pace}.rs, whole answers with every version and
# cipher, slow readers, changed keys, ends of connections, downloads that are held to a rate. A
# minute each, after the build. Modules `timed` stay out: an emulated processor keeps to no rate.
#
# The tests start the program by the path of its build, which may lie below a folder that the guest
# mounts, as /tmp. So that path is made in the guest after its mounts, as a link.
#
# The guest loads the module as a host does: the server's first use of it has the kernel call
# modprobe, and that of ciphers, too. The lines of /proc/net/tls_stat show what the kernel did:
# connections sent and received by it, and the errors in decryption that the tests provoke.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=programs.sh
source "$here/programs.sh"
top=$(realpath "$here/../..")
limit_s=900
# This host lacks something; the last line says what.
UNFIT_HOST=77

die() {
	printf 'tls.sh: %s\n' "$*" >&2
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

for tool in xz strip depmod; do
	command -v "$tool" >/dev/null || die "$tool: not found; apt-get install xz-utils binutils kmod"
done

command -v cargo >/dev/null || die "cargo: not found; see https://rustup.rs"
# Of the workspace, so that a build of all its tests is this build, too.
messages=$(cd "$top" && cargo test --no-run --workspace --test tls --message-format=json)
executable() {
	local found
	found=$(grep -o "\"executable\":\"[^\"]*/$1\"" <<<"$messages" | tail -n 1)
	found=${found#*:\"}
	found=${found%\"}
	[[ -x $found ]] || die "cargo test: named no program $1"
	printf '%s\n' "$found"
}
tests=$(executable 'tls-[^"/]*')
program=$(executable pagewire)
# Where they make their folders (CARGO_TARGET_TMPDIR).
folder=${program%/*/*}/tmp

(($# > 0)) || set -- 6.12 6.1
for series; do
	printf '# %s\n' "$series"
	root=$scratch/$series
	mkdir -p "$root"/{bin,sbin,proc,sys,dev,tmp,lib/modules}
	put_tools "$root" <<-LIST
		bash bash
		cat coreutils
		ln coreutils
		mkdir coreutils
		mount mount
		modprobe kmod
		ip iproute2
	LIST
	ln -s ../bin/modprobe "$root/sbin/modprobe"
	ln -s bash "$root/bin/sh"
	put "$root" "$tests" tls
	put "$root" "$program"
	strip --strip-debug "$root/bin/tls" "$root/bin/pagewire"
	lines=$("$here/fetch.sh" "$series")
	modules=$(sed -n 's/^modules=//p' <<<"$lines")
	version=$(sed -n 's/^version=//p' <<<"$lines")
	put_modules "$root" "$modules" "$version" net/tls crypto lib/crypto arch/x86/crypto
	cat >"$root/init" <<-INIT
		#!/bin/bash
		export PATH=/bin:/sbin HOME=/tmp TMPDIR=/tmp
		mount -t proc proc /proc
		mount -t sysfs sys /sys
		mount -t devtmpfs dev /dev
		mount -t tmpfs tmp /tmp
		mkdir -p "${program%/*}" "$folder"
		ln -s /bin/pagewire "$program"
		mount -t tmpfs tmp "$folder"
		ip link set lo up
		cd /tmp
		if tls --test-threads=1 --nocapture --skip timed:: kernel_tls:: pace:: 2>&1; then
			echo 'guest: ok HTTPS with kernel TLS'
		else
			echo 'guest: not ok HTTPS with kernel TLS'
		fi
		cat /proc/net/tls_stat || echo 'guest: not ok the module is loaded'
		echo 'guest: end'
		echo o >/proc/sysrq-trigger
		# The end of the first process would be a panic.
		read -r -t 60 <>/dev/console
	INIT
	chmod +x "$root/init"
	"$here/boot.sh" --root "$root" --linux "$series" --memory 2048 --timeout "$limit_s" \
		--log "$scratch/$series.log" >/dev/null &
	pid=$!
	status=0
	wait "$pid" || status=$?
	pid=''
	grep -vE '^\[ *[0-9]+\.[0-9]+\] |^$' "$scratch/$series.log" | uniq || true
	((status != UNFIT_HOST)) || exit $UNFIT_HOST
	((status == 0)) || die "$series: failed (above)"
	grep -q '^TlsTxSw' "$scratch/$series.log" || die "$series: no counters of the module"
	! grep -q '^skip: ' "$scratch/$series.log" || die "$series: skipped (above)"
done
