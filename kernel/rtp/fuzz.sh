#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Random calls to the module (check/fuzz.c) under KASAN in User Mode Linux, for some time.
#
#   kernel/rtp/fuzz.sh [SECONDS] [SEED] [LOG]      (600, 1, kernel/rtp/check/fuzz.log)
#
# LOG has what it was run with, the check's lines and every line of the kernel's at the level of a
# warning or above; it is committed. Status 0 when KASAN, lockdep and the kernel's other checks
# found nothing and no call had an impossible result. The first time, when the kernel is built,
# takes 7 minutes more on 2 cores. No root rights needed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

seconds=${1:-600} seed=${2:-1} log=${3:-$here/check/fuzz.log}
# What setting up, unloading and the host's other work may take beyond.
SPARE_SECONDS=300

[[ $# -le 3 && $seconds =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]+$ ]] || {
	sed -n 's/^#   kernel/kernel/p' "$0" >&2
	exit 2
}
value() { sed -n "s/^$1=//p" <<<"$lines"; }
lines=$("$here/../uml/build.sh" kasan)

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
status=0
TIMEOUT_SECONDS=$((seconds + SPARE_SECONDS)) "$here/check.sh" uml kasan -- \
	only=fuzz,unload paced=0 "fuzz_s=$seconds" "seed=$seed" 2>&1 | tee "$scratch" || status=$?
{
	printf '# kernel/rtp/fuzz.sh %s %s: status %s\n' "$seconds" "$seed" "$status"
	printf '# kernel: Linux %s, User Mode Linux, profile kasan\n' \
		"$(make -s -C "$(value source)" ARCH=um "O=$(value build)" kernelversion)"
	printf '# module: %s of %s\n' \
		"$(cd "$here" && cat ./*.[ch] include/uapi/linux/*.h | sha256sum | cut -c 1-12)" \
		"cat kernel/rtp/*.[ch] kernel/rtp/include/uapi/linux/*.h | sha256sum"
	tr -d '\r' <"$scratch" | grep -E '^(ok|not ok|#|[0-9]+\.\.|guest:|boot:|check:)|BUG:|WARNING:' ||
		true
} >"$log"
exit "$status"
