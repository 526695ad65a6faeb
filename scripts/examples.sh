#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the examples of the crates that others can use, each once and without arguments, as the build
# of the tests left them (scripts/test.sh).
#
# An example that fails is shown with its output; status 1 when one failed.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=${CARGO_TARGET_DIR:-target}/debug/examples
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for file in */examples/*.rs; do
    if "$programs/$(basename "$file" .rs)" >"$output" 2>&1; then
        echo "examples: $file: ok, $(wc -l <"$output") lines"
    else
        echo "examples: $file: failed:"
        cat "$output"
        failed=1
    fi
done
exit "$failed"
