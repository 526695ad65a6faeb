#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Runs the check of the module in a virtual machine; its TAP on stdout.
#
#   kernel/rtp/check.sh uml [PROFILE] [-- WORDS...]       in User Mode Linux
#   kernel/rtp/check.sh debian [SERIES] [-- WORDS...]     under QEMU with Debian's kernel
#
# WORDS are the check's (check/main.c), such as paced=60; TIMEOUT_SECONDS=900 gives it that long.
# Status 0 when every claim holds, the check came to its end and the kernel's log is clean; 77 when
# this host cannot run it, with the reason and the cure as the last line of stderr. The
# check is the machine's first process and loads the module, built with its self-test. No root
# rights needed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

TIMEOUT_SECONDS=${TIMEOUT_SECONDS:-540}
UNFIT_HOST=77

[[ $# -ge 1 && $1 =~ ^(uml|debian)$ ]] || {
	sed -n 's/^#   kernel/kernel/p' "$0" >&2
	exit 2
}
which=$1
shift
kind=()
if [[ $# -gt 0 && $1 != -- ]]; then
	kind=("$1")
	shift
fi
[[ $# -eq 0 ]] || shift

module=$(DEBUG=1 "$here/build.sh" "$which" "${kind[@]}" | sed -n 's/^module=//p')
make -s -C "$here" check

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{proc,sys,dev,tmp,lib/modules}
cp "$here/check/pagewire_rtp_check" "$root/init"
cp "$module" "$root/lib/modules/pagewire_rtp.ko"
boot=(--root "$root" --timeout "$TIMEOUT_SECONDS")
if [[ $which == uml ]]; then
	boot=("$here/../uml/boot.sh" "${boot[@]}" --profile "${kind[0]:-plain}")
else
	dummy=$("$here/../qemu/fetch.sh" "${kind[@]}" | sed -n 's/^dummy=//p')
	cp "$dummy" "$root/lib/modules/dummy.ko"
	boot=("$here/../qemu/boot.sh" "${boot[@]}")
	[[ ${#kind[@]} -eq 0 ]] || boot+=(--linux "${kind[0]}")
fi
log=$root/log
status=0
"${boot[@]}" -- "$@" | sed -u 's/\r//g' | tee "$log" || status=$?
((status != UNFIT_HOST)) || exit $UNFIT_HOST
if grep -q '^not ok' "$log" || ! grep -q '^1\.\.' "$log"; then
	echo "check: claims that do not hold, or no end (above)" >&2
	exit 1
fi
exit "$status"
