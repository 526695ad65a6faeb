#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Builds the module pagewire_rtp for a kernel of the laboratory, or finds it built.
#
#   kernel/rtp/build.sh uml [PROFILE]         for User Mode Linux (kernel/uml/build.sh PROFILE)
#   kernel/rtp/build.sh debian [SERIES]       for Debian's kernel (kernel/qemu/fetch.sh SERIES)
#
# Prints module=PATH, stripped of what only debuggers read. DEBUG=1 builds it with the self-test at
# load. Warnings are errors here: W=1 always, and sparse (C=2) where it is installed. What was
# built lies in ${PAGEWIRE_CACHE:-~/.cache/pagewire}/kernel under a hash of the kernel and of the
# sources; a second call takes less than a second. No root rights needed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

say() { echo "rtp: $*" >&2; }
die() { say "$*"; exit 1; }
# This host lacks something: no failure, and the line says what to do.
unfit() { say "$*"; exit 77; }

[[ $# -ge 1 && $# -le 2 && $1 =~ ^(uml|debian)$ ]] || {
	sed -n 's/^#   kernel/kernel/p' "$0" >&2
	exit 2
}
for program in make gcc flock sha256sum strip; do
	command -v "$program" >/dev/null ||
		unfit "$program: not installed; apt-get install make gcc binutils"
done
cache=${PAGEWIRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagewire}/kernel
mkdir -p "$cache"

# Arguments of make, and a name for the kernel.
value() { sed -n "s/^$1=//p" <<<"$lines"; }
if [[ $1 == uml ]]; then
	lines=$(../uml/build.sh "${2:-plain}")
	kernel=$(value build)
	arguments=(-C "$(value source)" ARCH=um "O=$kernel")
else
	lines=$(../qemu/fetch.sh "${2:-6.12}")
	kernel=$(value headers)
	# Types for BPF would need pahole and are nothing the module needs.
	arguments=(-C "$kernel" CONFIG_DEBUG_INFO_BTF_MODULES=)
fi
[[ -z ${DEBUG:-} ]] || arguments+=(DEBUG=1)
if command -v sparse >/dev/null; then
	arguments+=(C=2)
else
	say "no sparse, its checks are left out; apt-get install sparse"
fi

sources=(Kbuild ./*.[ch] include/uapi/linux/pagewire_rtp.h)
hash=$({ cat "${sources[@]}" build.sh; echo "$kernel ${DEBUG:-} ${arguments[*]}"; } |
	sha256sum | cut -c 1-12)
place=$cache/modules-rtp-$1-$hash
exec {lock}>"$cache/modules-rtp.lock"
flock "$lock"
if [[ ! -f $place/pagewire_rtp.ko ]]; then
	rm -rf "$place.new"
	mkdir -p "$place.new"
	cp --parents "${sources[@]}" "$place.new"
	log=$place.new/log
	make "${arguments[@]}" M="$place.new" W=1 modules >"$log" 2>&1 || {
		cat "$log" >&2
		die "make: the module was not built (above)"
	}
	if grep -E '(warning|error):' "$log" >&2; then
		die "warnings (above); the module is kept clean of them"
	fi
	strip -g "$place.new/pagewire_rtp.ko"
	rm -rf "$place"
	mv "$place.new" "$place"
fi
echo "module=$place/pagewire_rtp.ko"
