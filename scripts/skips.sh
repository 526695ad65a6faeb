#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Lists what a run of the checks skipped, each with its reason and the test that said so.
#
#   scripts/skips.sh LOG      of scripts/test.sh: lines that begin with `skip: `
#
# Status 0 as a rule. Status 1 with CI set when one was skipped for want of a program, a package or
# a part of one: scripts/setup.sh installs them, so on CI that is a fault of the set-up. What the
# host's kernel or processor lacks is no fault. The line of a missing program says `not installed`,
# or has the shell's or execve(2)'s own words for it.
set -euo pipefail

MISSING_PROGRAM='not installed|: not found|No such file or directory'

if [[ $# -ne 1 || ! -r $1 ]]; then
    echo "usage: scripts/skips.sh LOG" >&2
    exit 2
fi

# The test's name comes from cargo, which heads its output with `---- NAME stdout ----`.
skips=$(awk '
    /^---- .* stdout ----$/ { test = $2; next }
    /^== / || /^(successes|failures):$/ { test = "" }
    /^skip:/ {
        line = test == "" ? $0 : $0 " (" test ")"
        if (!seen[line]++) print line
    }' "$1")
[[ -z $skips ]] || printf '%s\n' "$skips"
if [[ -n ${CI:-} ]] && grep -q -E "$MISSING_PROGRAM" <<<"$skips"; then
    echo "skipped for want of a program, which scripts/setup.sh has to install:" >&2
    grep -E "$MISSING_PROGRAM" <<<"$skips" >&2
    exit 1
fi
