#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# The kernel laboratory's part of the tests (`make test-kernel`): about 6 minutes on 2 cores, 13 the
# first time, when it builds one kernel and fetches another.
#
#   kernel/check.sh [PAGEWIRE-LAB]  the program whose `kernel` is run; cargo builds one if none
#
# The module is compiled for User Mode Linux and for Debian's kernels with every warning an error
# (W=1, sparse where installed) and its style is checked by the kernel's own checkpatch. HTTPS is
# tested with the kernel TLS of Debian's kernels. Then
# `pagewire lab kernel --quick`: memcpy's self-test, the module's check and the bytes of every path,
# in both laboratories, decide; its comparisons are printed and decide nothing, as speed is not for
# tests. What this machine lacks is left out, with a line `skip: ...` that says what to install.
# Whole figures come from `pagewire lab kernel`. No root rights needed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

LOG_LINES_SHOWN=20
# Random calls under KASAN: half a minute of them.
KASAN_FUZZ_ROUNDS=20000
# Exit status of a script for which this host lacks something; its last line has the cure.
UNFIT_HOST=77

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=()

# Shows what it says when it fails; a host that lacks something is a skip.
check() { # TITLE COMMAND...
	local title=$1 began=$SECONDS status=0
	shift
	"$@" >"$scratch/log" 2>&1 || status=$?
	if ((status == UNFIT_HOST)); then
		echo "skip: kernel: $title: $(tail -n 1 "$scratch/log")"
		return
	fi
	if ((status == 0)); then
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

check "User Mode Linux is built" kernel/uml/build.sh plain
check "User Mode Linux on a host with AMX, and on one that cannot run it" kernel/uml/host_state.sh
check "module for User Mode Linux, no warning" kernel/rtp/build.sh uml
check "style of the module" style
check "module for Debian's 6.12, no warning" kernel/rtp/build.sh debian 6.12
check "module for Debian's 6.1, no warning" kernel/rtp/build.sh debian 6.1

check "HTTPS with kernel TLS on Debian's 6.12 and 6.1" kernel/qemu/tls.sh

# Building that kernel takes longer than all the rest, so it is left to who fuzzes the module.
if kernel/uml/build.sh --found kasan >/dev/null 2>&1; then
	check "module's check under KASAN" kernel/rtp/check.sh uml kasan -- \
		only=released,fields,users,hung,fuzz,unload paced=0 "fuzz=$KASAN_FUZZ_ROUNDS"
else
	echo "skip: module's check under KASAN: its kernel is not built (10 minutes);" \
		"make engine-fuzz ENGINE_FUZZ_SECONDS=60"
fi

lab=("${1:-}")
[[ -n ${lab[0]} ]] || lab=(cargo run --quiet --package lab --bin pagewire-lab --)
echo "kernel: pagewire lab kernel --quick"
"${lab[@]}" kernel --quick >"$scratch/lab" 2>"$scratch/log" ||
	failed+=("pagewire lab kernel")
cat "$scratch/lab" "$scratch/log"
# Parts that this host lacks something for are notes of it.
sed -n 's/^[^[:alnum:]]*skip: /skip: kernel: /p' "$scratch/lab" "$scratch/log"

if ((${#failed[@]} > 0)); then
	printf 'kernel: failed: %s\n' "${failed[@]}"
	exit 1
fi
