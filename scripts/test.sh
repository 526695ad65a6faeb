#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs every check of this repository and says at the end what failed and what was skipped.
#
#   scripts/test.sh          format, clippy, tests, examples, fuzz smoke, kernel laboratory,
#                            licences and advisories
#   scripts/test.sh lint     only what runs no code of ours: format, clippy, licences
#
# All steps run even when one fails, so one run shows all there is to mend. A skip is a line that
# begins with `skip:` and gives the reason; a test prints it and returns. With CI set a skip for a
# missing program is a failure (scripts/skips.sh). The whole output is kept
# in out/test.log; where the output is no terminal, what passed is left out of it. With CI set the
# lock files must be current, and nothing is kept for a next build.
set -euo pipefail
cd "$(dirname "$0")/.."

level=${1:-all}
if [[ $# -gt 1 || ($level != all && $level != lint) ]]; then
    echo "usage: scripts/test.sh [lint]" >&2
    exit 2
fi

FUZZ_SECONDS=10
# With less room than this a failure may be the disk's; a first build takes about 8 GiB in all.
DISK_FREE_GIB_MIN=2
# The database of advisories comes from the network; where there is none, this is given up soon.
ADVISORY_FETCH_SECONDS_MAX=60

# Where Debian keeps ip, ethtool and the like, which users may run in namespaces of their own.
export PATH=$PATH:/usr/sbin:/sbin

mkdir -p out
log=out/test.log
: >"$log"
locked=()
if [[ -n ${CI:-} ]]; then
    locked=(--locked)
    # What is built once and thrown away has no use for 2 GiB of what a next build could begin with.
    export CARGO_INCREMENTAL=0
fi
failed=()

free_gib() { df --output=avail --block-size=1G . | tail -n 1 | tr -d ' '; }

machine() {
    printf 'machine: %d cores, %d MiB of memory and %d GiB of disk free\n' "$(nproc)" \
        "$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)" "$(free_gib)"
}

# A terminal shows all there is. What keeps output shows what is worth keeping: not what was
# compiled, which tests passed and what those said. The log has that too.
digest() {
    if [[ -t 1 ]]; then
        exec cat
    fi
    exec sed --unbuffered --regexp-extended '
        /^successes:$/, /^(failures:|test result: .*)$/ { /^(failures:|test result: .*)$/p; d }
        /^test .* \.\.\. (ok|ignored.*)$/d
        /^ +(Compiling|Checking|Downloading|Downloaded|Updating|Locking|Adding) /d
        /^$/d'
}

step() { # TITLE COMMAND...
    local title=$1 began=$SECONDS status=0 output writer tries=50
    shift
    printf '\n== %s\n' "$title" | tee -a "$log"
    exec {output}> >(tee -a "$log" | digest)
    writer=$!
    "$@" >&"$output" 2>&1 </dev/null || status=$?
    exec {output}>&-
    # Until the last of it is written; not for ever, should a process that was left behind hold the
    # output open.
    while ((tries-- > 0)) && kill -0 "$writer" 2>/dev/null; do sleep 0.1; done
    if ((status != 0)); then
        failed+=("$title (exit status $status)")
        printf '== %s: FAILED\n' "$title" | tee -a "$log"
    else
        printf '== %s: ok, %d s\n' "$title" $((SECONDS - began)) | tee -a "$log"
    fi
}

licences() {
    if ! command -v cargo-deny >/dev/null; then
        echo "skip: cargo deny: not installed; scripts/setup.sh test installs it"
        return
    fi
    cargo deny "${locked[@]}" check --hide-inclusion-graph bans licenses sources || return
    # Without the network this is no verdict on the code.
    if timeout "$ADVISORY_FETCH_SECONDS_MAX" cargo deny fetch db >/dev/null 2>&1; then
        cargo deny "${locked[@]}" check --hide-inclusion-graph advisories
    else
        echo "skip: cargo deny check advisories: the advisory database could not be fetched"
    fi
}

machine
step "format" cargo fmt --all --check
step "format of fuzz/" cargo fmt --manifest-path fuzz/Cargo.toml --check
step "clippy" cargo clippy "${locked[@]}" --workspace --all-targets -- -D warnings
if [[ $level == all ]]; then
    # The dev profile: with overflow checks and debug assertions. --show-output, because cargo
    # shows nothing a passing test prints, and a skipped test passes.
    step "tests" cargo test "${locked[@]}" --workspace --no-fail-fast -- --show-output
    step "examples" scripts/examples.sh "${locked[@]}"
    step "fuzz smoke, $FUZZ_SECONDS s a target" fuzz/run.sh "$FUZZ_SECONDS"
    step "kernel laboratory" kernel/check.sh
fi
step "licences, sources and advisories of dependencies" licences

skips=$(scripts/skips.sh "$log") || failed+=("skipped for want of a program (CI is set)")
count() { # WORD of cargo's `test result:` lines, summed
    awk -v word="$1" '
        /^test result:/ { for (i = 2; i <= NF; i++) if ($i == word ";") sum += $(i - 1) }
        END { print sum + 0 }' "$log"
}

skip_count=$(grep -c . <<<"$skips" || true)
if ((skip_count > 0)); then
    printf '\nskipped, with the reason:\n%s\n' "$skips"
fi
ignored=$(count ignored)
if ((ignored > 0)); then
    printf '\n%d tests are marked #[ignore], each with who runs it:\n' "$ignored"
    git grep -hoP '(?<=#\[ignore = ").*(?=")' -- '*.rs' | sort | sed 's/^/  /'
fi
if ((${#failed[@]} > 0)); then
    printf '\nfailed:\n'
    printf '  %s\n' "${failed[@]}"
    sed -nE 's/^test (.*) \.\.\. FAILED$/    \1/p' "$log"
    # A full disk shows itself as anything: a linker that was killed, an exit status of 101.
    if (($(free_gib) < DISK_FREE_GIB_MIN)); then
        printf '  the disk is nearly full, %d GiB free: make room, run again\n' "$(free_gib)"
    fi
fi
printf '\nall of the output: %s\n' "$log"
machine
if [[ $level == all ]]; then
    printf '%d passed, %d failed, %d skipped\n' "$(count passed)" "$(count failed)" "$skip_count"
fi
((${#failed[@]} == 0))
