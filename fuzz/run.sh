#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes with coverage feedback on the stable compiler.
#
#   fuzz/run.sh [SECONDS [TARGET...]]   10 seconds for each target, all targets
#   fuzz/run.sh --list                  the names of the targets
#   fuzz/run.sh --replay TARGET FILE    one input again, with its backtrace
#
# The list of targets is in targets/src/lib.rs; as many run at a time as there are cores. A run
# starts from the committed seeds/TARGET and from the corpus that earlier runs left in
# corpus/TARGET. An input that was found wanting is left in artifacts/TARGET, and the exit status is
# then 1. Without a C++ compiler (libFuzzer is C++) it says so in a line that begins with `skip:`.
#
# `cargo test -p fuzz-targets` replays the seeds and fixed mutations of them without this program.
set -euo pipefail
INPUT_SECONDS_MAX=10 # an input that takes longer is a finding
MEMORY_MIB_MAX=1024  # and so is one that makes the program larger than that
SECONDS_DEFAULT=10

usage() {
    sed -n 's/^#   /  /p' "$0" >&2
    exit 2
}

verb=fuzz arguments_max=99
case ${1:-$SECONDS_DEFAULT} in
--list) verb=list arguments_max=1 ;;
--replay) verb=replay arguments_max=3 ;;
*[!0-9]*) usage ;;
esac
if (($# > arguments_max)) || [[ $verb == replay && ! -f ${3:-} ]]; then usage; fi

[[ $verb != replay ]] || file=$(realpath -- "$3")
cd "$(dirname "$0")"

# The compiler that libfuzzer-sys will call.
if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "skip: fuzzing: C++ compiler ${CXX:-c++}: not installed; scripts/setup.sh test installs it"
    exit 0
fi

# What nightly's -Zsanitizer and cargo-fuzz set, less the address sanitizer. With --target the
# flags stay away from build scripts and procedural macros.
coverage=(
    --cfg fuzzing
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
)
locked=()
[[ -z ${CI:-} ]] || locked=(--locked)
host=$(rustc -vV | sed -n 's/^host: //p')
echo "fuzz: building with coverage instrumentation" >&2
RUSTFLAGS="${coverage[*]}" cargo build --quiet --release --target "$host" "${locked[@]}"
program=$(realpath "${CARGO_TARGET_DIR:-target}")/$host/release/fuzz

case $verb in
list) exec "$program" 2>/dev/null ;;
replay) FUZZ_TARGET=$2 RUST_BACKTRACE=1 exec "$program" "$file" ;;
esac

seconds=${1:-$SECONDS_DEFAULT}
shift || true
targets=("$@")
if ((${#targets[@]} == 0)); then
    mapfile -t targets < <("$program" 2>/dev/null)
fi

for target in "${targets[@]}"; do
    if [[ ! -d seeds/$target ]]; then
        echo "fuzz $target: no folder seeds/$target; targets: $("$program" 2>/dev/null | xargs)" >&2
        exit 2
    fi
done

# Fuzzes one target and says how that went; fails after a finding.
fuzz() { # TARGET
    local target=$1 status=0 runs last found
    local corpus=corpus/$target artifacts=artifacts/$target
    local log=$artifacts/log
    local options=(
        -max_total_time="$seconds"
        -timeout="$INPUT_SECONDS_MAX"
        -rss_limit_mb="$MEMORY_MIB_MAX"
        -artifact_prefix="$artifacts/"
        -print_final_stats=1
    )
    mkdir -p "$corpus" "$artifacts"
    [[ ! -f seeds/$target.dict ]] || options+=(-dict="seeds/$target.dict")
    FUZZ_TARGET=$target RUST_BACKTRACE=1 \
        "$program" "${options[@]}" "$corpus" "seeds/$target" >"$log" 2>&1 </dev/null || status=$?

    # Without counters libFuzzer only guesses, finds nothing and looks well.
    if ! grep -q 'inline 8-bit counters' "$log"; then
        tail -n 20 "$log"
        echo "fuzz $target: no coverage counters in the program; are the flags those of rustc?"
        return 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    last=$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -n 1)
    if ((status == 0)); then
        echo "fuzz $target: $seconds s, ${runs:-0} runs, $last: no finding"
        return
    fi
    echo "fuzz $target: FINDING (exit status $status); end of fuzz/$log:"
    grep -vE '^#[0-9]+|^\s*NEW_FUNC|^stat::|^WARNING: Failed to find|^INFO: ' "$log" | tail -n 60
    found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    if [[ -n $found ]]; then
        echo "fuzz $target: the input, fuzz/$found, $(stat -c %s "$found") bytes, begins:"
        od -A d -t x1z "$found" | head -n 16
        echo "fuzz $target: again with: fuzz/run.sh --replay $target fuzz/$found"
    fi
    return 1
}

# Says it in one piece, for others are at work beside it.
fuzz_apart() { # TARGET
    local said status=0
    said=$(fuzz "$1") || status=$?
    printf '%s\n' "$said"
    return "$status"
}

failed=0 at_work=()
await() { # the oldest; all take as long
    wait "${at_work[0]}" || failed=$((failed + 1))
    at_work=("${at_work[@]:1}")
}

cores=$(nproc)
for target in "${targets[@]}"; do
    ((${#at_work[@]} < cores)) || await
    fuzz_apart "$target" &
    at_work+=($!)
done
while ((${#at_work[@]} > 0)); do await; done

if ((failed > 0)); then
    echo "fuzz: $failed of ${#targets[@]} targets have findings, see above"
    exit 1
fi
