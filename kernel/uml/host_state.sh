#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Shows on any host how User Mode Linux runs on one with a larger register state, such as AMX's.
#
#   kernel/uml/host_state.sh
#
# Boots three times with host_state.c before the kernel: with the 11008 bytes of a processor that
# has AMX, where the guest has to come to its end; with more than the kernel has room for, and with
# ptrace(2) forbidden, where boot.sh has to say so with status 77, the cure in its last line. Status
# 1 when one of them ends otherwise. Builds the kernel if it is not there. No root rights needed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

AMX_BYTES=11008
# Beyond HOST_FP_BYTES of build.sh.
TOO_MANY_BYTES=16384
UNFIT_HOST=77
# Programs that start, end and take turns: each return to one sets its registers.
WORKLOADS='pipe_4k process_creation context_switch'

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
gcc -O2 -Wall -Wextra -shared -fPIC -o "$scratch/host_state.so" "$here/host_state.c" -ldl
linux=$("$here/build.sh" plain | sed -n 's/^linux=//p')
cat >"$scratch/wrapped" <<EOF
#!/bin/sh
LD_PRELOAD=$scratch/host_state.so exec "$linux" "\$@"
EOF
chmod +x "$scratch/wrapped"
"$here/../../guest/root.sh" --no-shell "$scratch/root" >/dev/null

failed=0
boots() { # BYTES STATUS LAST_LINE: an extended regular expression, of stderr
    local status=0 last
    # shellcheck disable=SC2086 # words
    HOST_STATE_BYTES=$1 "$here/boot.sh" --root "$scratch/root" --linux "$scratch/wrapped" \
        --memory 256M --timeout 120 -- bytes=1M calls=200 $WORKLOADS \
        >"$scratch/console" 2>"$scratch/errors" || status=$?
    last=$(tail -n 1 "$scratch/errors")
    if [[ $status -eq $2 && $last =~ $3 ]]; then
        echo "host_state: $1 bytes: status $status${last:+; $last}"
        return
    fi
    tail -n 20 "$scratch/console" "$scratch/errors"
    echo "host_state: $1 bytes: status $status, not $2, or another last line than $3"
    failed=1
}
boots "$AMX_BYTES" 0 '^$'
boots "$TOO_MANY_BYTES" "$UNFIT_HOST" 'larger than the room .* raise HOST_FP_BYTES'
boots 0 "$UNFIT_HOST" 'ptrace\(2\) is not permitted here; .*ptrace_scope'
exit "$failed"
