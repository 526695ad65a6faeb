#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the examples of the crates that others can use, each once and without arguments.
#
#   scripts/examples.sh [OPTION...]      options for cargo, such as --locked
#
# An example that fails is shown with its output; status 1 when one failed.
set -euo pipefail
cd "$(dirname "$0")/.."

output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0
for file in */examples/*.rs; do
    crate=${file%%/*} name=$(basename "$file" .rs)
    if cargo run "$@" --quiet --package "pagewire-$crate" --example "$name" >"$output" 2>&1; then
        echo "examples: $file: ok, $(wc -l <"$output") lines"
    else
        echo "examples: $file: failed:"
        cat "$output"
        failed=1
    fi
done
exit "$failed"
