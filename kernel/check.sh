#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# What `make test` runs of the kernel laboratory: about 5 minutes on 2 cores, 12 the first time,
# when it builds one kernel and fetches another.
#
#   kernel/check.sh [PAGEWIRE]      the program whose `lab kernel` is run; cargo builds one if none
#
# The module is compiled for User Mode Linux and for Debian's kernels with every warning an error
# (W=1, sparse where installed) and its style is checked by the kernel's own checkpatch. Then
# `pagewire lab kernel --quick`: memcpy's self-test, the module's check and the bytes of every path,
# in both laboratories, decide; its comparisons are printed and decide nothing, as speed is not for
# tests. What this machine lacks is left out, with a line `skip: ...` that says what to install.
# Whole figures come from `pagewire lab kernel`. No root rights needed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# What User Mode Linux is built with, and what runs Debian's kernel: program and Debian package.
UML_NEEDS=(gcc:gcc make:make flex:flex bison:bison bc:bc xz:xz-utils)
QEMU_NEEDS=(qemu-system-x86_64:qemu-system-x86 cpio:cpio apt-get:apt dpkg-deb:dpkg)
SOURCE=${LINUX_SOURCE:-/usr/src/linux-source-6.12.tar.xz}
LOG_LINES_SHOWN=20
# Random calls under KASAN: half a minute of them.
KASAN_FUZZ_ROUNDS=20000

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=()

missing() { # PROGRAM:PACKAGE... prints the packages of those that are not there
	local need
	for need in "$@"; do
		command -v "${need%%:*}" >/dev/null || echo "${need#*:}"
	done
}

check() { # TITLE COMMAND...: what it says is shown when it fails
	local title=$1 began=$SECONDS
	shift
	if "$@" >"$scratch/log" 2>&1; then
		printf 'kernel: %s: ok, %d s\n' "$title" $((SECONDS - began))
		return
	fi
	tail -n "$LOG_LINES_SHOWN" "$scratch/log"
	printf 'kernel: %s: FAILED\n' "$title"
	failed+=("$title")
}

style() {
	kernel/rtp/lint.sh "$(kernel/uml/build.sh plain | sed -n 's/^source=//p')"
}

if [[ $(uname -m) != x86_64 ]]; then
	echo "skip: kernel laboratory: it is for x86_64, this is $(uname -m)"
	exit 0
fi
lacking=$(missing "${UML_NEEDS[@]}")
[[ -r $SOURCE ]] || lacking+=" linux-source-6.12"
if [[ -n ${lacking// /} ]]; then
	# shellcheck disable=SC2086 # words
	echo "skip: kernel laboratory: apt-get install --no-install-recommends" $lacking
	exit 0
fi
parts=(--part memcpy --part vectorise)
check "User Mode Linux is built" kernel/uml/build.sh plain
check "module for User Mode Linux, no warning" kernel/rtp/build.sh uml
check "style of the module" style

lacking=$(missing "${QEMU_NEEDS[@]}")
if [[ -n $lacking ]]; then
	# shellcheck disable=SC2086 # words
	echo "skip: kernel under QEMU: apt-get install --no-install-recommends" $lacking
	check "module's check in User Mode Linux" kernel/rtp/check.sh uml
elif ! kernel/qemu/fetch.sh >/dev/null 2>"$scratch/log"; then
	echo "skip: kernel under QEMU: $(tail -n 1 "$scratch/log")"
	check "module's check in User Mode Linux" kernel/rtp/check.sh uml
else
	parts=()
	check "module for Debian's 6.12, no warning" kernel/rtp/build.sh debian 6.12
	if kernel/qemu/fetch.sh 6.1 >/dev/null 2>"$scratch/log"; then
		check "module for Debian's 6.1, no warning" kernel/rtp/build.sh debian 6.1
	else
		echo "skip: module for Debian's 6.1: $(tail -n 1 "$scratch/log")"
	fi
fi

# Building that kernel takes longer than all the rest, so it is left to who fuzzes the module.
if kernel/uml/build.sh --found kasan >/dev/null 2>&1; then
	check "module's check under KASAN" kernel/rtp/check.sh uml kasan -- \
		only=released,fields,users,hung,fuzz,unload paced=0 "fuzz=$KASAN_FUZZ_ROUNDS"
else
	echo "skip: module's check under KASAN: its kernel is not built (10 minutes);" \
		"make engine-fuzz ENGINE_FUZZ_SECONDS=60"
fi

pagewire=("${1:-}")
[[ -n ${pagewire[0]} ]] || pagewire=(cargo run --quiet --package pagewire --)
echo "kernel: pagewire lab kernel --quick ${parts[*]}"
"${pagewire[@]}" lab kernel --quick "${parts[@]}" || failed+=("pagewire lab kernel")

if ((${#failed[@]} > 0)); then
	printf 'kernel: failed: %s\n' "${failed[@]}"
	exit 1
fi
