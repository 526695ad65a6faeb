#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs one suite of tests, or all, and says at the end what failed and what was skipped.
#
#   scripts/test.sh [SUITE]       a name of scripts/suites; `test`, the gate, if none is given
#   scripts/test.sh lint          the part of the gate that runs no code of ours
#   scripts/test.sh test-all      every suite, also after one that failed, and a table
#
# STOPS=SEED stops processes of the tests at random while they run (scripts/stops.py); no test of
# the gate may fail for it.
#
# ONLY='FILTER' runs the tests of the suite that a filter of cargo-nextest selects, as in
# ONLY='test(seek)'. All steps of a suite run even when one fails, so one run shows all there is to
# mend. A skip is a line that begins with `skip:` and gives the reason; a test prints it and returns
# (scripts/report.py). The whole output is kept in out/SUITE.log, and the result in one line:
# out/SUITE.verdict, of the gate out/verdict. Where the output is no terminal, what passed is left
# out of it. With CI set the lock files must be current, nothing is kept for a next build, and a
# skip for a missing program is a failure.
#
# The compiler is clippy's (RUSTC_WORKSPACE_WRAPPER): one build of the workspace lints and compiles.
set -euo pipefail
cd "$(dirname "$0")/.."

SUITES=scripts/suites
LABORATORY=(lab stalls guest)
FUZZ_SECONDS=${FUZZ_SECONDS:-10}
CANARY_MS=${CANARY_MS:-25}
CHANNEL_MINUTES=${CHANNEL_MINUTES:-10}
LIVE_MINUTES=${LIVE_MINUTES:-10}
# With less room than this a failure may be the disk's; a first build takes about 4 GiB in all.
DISK_FREE_GIB_MIN=2
# The database of advisories comes from the network; where there is none, this is given up soon.
ADVISORY_FETCH_SECONDS_MAX=60

suite_names() { sed -nE 's/^([a-z-]+) +\|.*/\1/p' "$SUITES"; }

suite=${1:-test}
known=$(suite_names && echo lint && echo test-all)
if [[ $# -gt 1 ]] || ! grep -qxF -e "$suite" <<<"$known"; then
    echo "usage: scripts/test.sh [SUITE]; a suite is ${known//$'\n'/, }" >&2
    exit 2
fi

# Where scripts/setup.sh puts programs, and where Debian keeps ip, ethtool and the like, which users
# may run in namespaces of their own.
export PATH=${XDG_CACHE_HOME:-$HOME/.cache}/pagewire/test-tools/bin:$PATH:/usr/sbin:/sbin

mkdir -p out
log=out/$suite.log
began=$SECONDS
: >"$log"
locked=()
if [[ -n ${CI:-} ]]; then
    locked=(--locked)
    # What is built once and thrown away has no use for 2 GiB of what a next build could begin with.
    export CARGO_INCREMENTAL=0
    # A backtrace has its lines; nobody looks at variables there.
    export CARGO_PROFILE_DEV_DEBUG=line-tables-only
fi
# Property tests draw the same cases in every run, here and on CI; other cases are for `make fuzz`.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-5}
failed=()

free_gib() { df --output=avail --block-size=1G . | tail -n 1 | tr -d ' '; }

machine() {
    printf 'machine: %s, %d cores, load %s, %d MiB of memory and %d GiB of disk free\n' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
        "$(cut -d' ' -f1 /proc/loadavg)" \
        "$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)" "$(free_gib)"
}

# A terminal shows all there is. What keeps output shows what is worth keeping: not what was
# compiled nor which tests passed. The log has that too.
digest() {
    if [[ -t 1 ]]; then
        exec cat
    fi
    exec sed --unbuffered --regexp-extended '
        /^ +PASS \[/d
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
    return 0
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

# Compiles tests, programs and examples, and lints them: a warning fails the step, behind the build.
build() { # OPTION OF CARGO...
    local warnings status=0
    warnings=$(mktemp)
    RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo nextest run --no-run "${locked[@]}" "$@" 2>&1 |
        tee "$warnings" || status=$?
    if grep -q '^warning' "$warnings"; then
        echo "warnings, which this check takes for errors"
        status=1
    fi
    rm -f "$warnings"
    return "$status"
}

# Tests that may be run again, as settings of cargo-nextest.
flaky_settings() {
    python3 - .config/flaky.toml <<'PYTHON'
import json, sys, tomllib
for entry in tomllib.load(open(sys.argv[1], "rb")).get("flaky", []):
    program, test = entry["test"].split(" ")
    filter = f"binary_id(={program}) & test(={test})"
    print(f"[[profile.default.overrides]]\nfilter = {json.dumps(filter)}\nretries = 2\n")
PYTHON
}

junit=
run() { # PROFILE OPTION OF NEXTEST...
    local profile=$1 target=${CARGO_TARGET_DIR:-target} stops='' status=0
    shift
    junit=$target/nextest/$profile/junit.xml
    rm -f "$junit"
    flaky_settings >out/flaky-settings.toml || return
    [[ -z ${ONLY:-} ]] || set -- "$@" --filterset "$ONLY"
    if [[ -n ${STOPS:-} ]]; then
        scripts/stops.py "$STOPS" "$target" &
        stops=$!
    fi
    RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo nextest run --profile "$profile" \
        --tool-config-file "pagewire:$PWD/out/flaky-settings.toml" "${locked[@]}" "$@" || status=$?
    if [[ -n $stops ]]; then
        kill "$stops"
        wait "$stops" || true
    fi
    return "$status"
}

doc_tests() {
    RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --quiet --doc "${locked[@]}" "${product[@]}"
}

product=(--workspace)
for package in "${LABORATORY[@]}"; do product+=(--exclude "$package"); done
laboratory=()
for package in "${LABORATORY[@]}"; do laboratory+=(--package "$package"); done

# It is a workspace of its own, which nothing of the gate builds.
lock_of_fuzz() {
    cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
}

formats() {
    step "format" cargo fmt --all --check
    step "format of fuzz/" cargo fmt --manifest-path fuzz/Cargo.toml --check
    step "lock file of fuzz/" lock_of_fuzz
}

run_suite() {
    case $suite in
    lint)
        formats
        step "clippy" cargo clippy "${locked[@]}" --workspace --all-targets -- -D warnings
        step "licences, sources and advisories of dependencies" licences
        ;;
    test)
        formats
        step "build and lint" build "${product[@]}"
        step "tests" run default "${product[@]}"
        step "examples" scripts/examples.sh
        step "code in documents" doc_tests
        step "licences, sources and advisories of dependencies" licences
        ;;
    test-clients) step "tests" run clients "${product[@]}" ;;
    test-time) step "tests" run time "${product[@]}" ;;
    test-attacks)
        export PAGEWIRE_CANARY_MS=$CANARY_MS
        step "tests" run attacks --release --package pagewire --test attacks
        ;;
    test-lab)
        step "clippy" cargo clippy "${locked[@]}" "${laboratory[@]}" --all-targets -- -D warnings
        export PAGEWIRE_TEST_LAB=1
        step "tests" run lab "${laboratory[@]}" --package pagewire
        ;;
    test-kernel) step "kernel laboratory" kernel/check.sh ;;
    fuzz) step "fuzz, $FUZZ_SECONDS s a target" fuzz/run.sh "$FUZZ_SECONDS" ;;
    soak)
        export CHANNEL_MINUTES LIVE_MINUTES
        step "channels for $CHANNEL_MINUTES minutes, in a browser for $LIVE_MINUTES" \
            run soak --package pagewire --test channels --test web --run-ignored all
        ;;
    esac
}

# Every suite by a process of its own, so that none ends another.
run_all() {
    local name began status table='' red=0
    while read -r name; do
        began=$SECONDS status=passed
        printf '\n==== %s\n' "$name"
        scripts/test.sh "$name" || { status=FAILED red=1; }
        table+=$(printf '%-14s %-7s %6d s  %s' "$name" "$status" $((SECONDS - began)) \
            "$(tail -n 1 "out/$name.log")")$'\n'
    done < <(suite_names)
    printf '\n%s' "$table" | tee out/test-all.log
    return "$red"
}

if [[ $suite == test-all ]]; then
    run_all
    exit
fi

machine
run_suite
report=$(scripts/report.py "$junit" "$log" .config/flaky.toml) ||
    failed+=("faults of the run, above")
count() { sed -nE "s/^$1 ([0-9]+)\$/\1/p" <<<"$report"; }
{
    sed -E '/^(passed|failed|flaky|skipped) [0-9]+$/d' <<<"$report"
    if ((${#failed[@]} > 0)); then
        printf '\nfailed:\n'
        printf '  %s\n' "${failed[@]}"
        # A full disk shows itself as anything: a linker that was killed, an exit status of 101.
        if (($(free_gib) < DISK_FREE_GIB_MIN)); then
            printf '  the disk is nearly full, %d GiB free: make room, run again\n' "$(free_gib)"
        fi
    fi
    printf '\nall of the output: %s\n' "$log"
    machine
} | tee -a "$log"

verdict=out/$suite.verdict
[[ $suite != test ]] || verdict=out/verdict
printf '%s %s %s %d passed %d failed %d flaky %d skipped %d\n' \
    "$(git rev-parse --short=7 HEAD 2>/dev/null || echo none)" \
    "$([[ -z $(git status --porcelain 2>/dev/null | head -n 1) ]] && echo clean || echo dirty)" \
    "$( ((${#failed[@]} == 0)) && echo passed || echo failed)" \
    "$(count passed)" "$(count failed)" "$(count flaky)" "$(count skipped)" $((SECONDS - began)) |
    tee "$verdict"
printf '%d passed, %d failed, %d skipped\n' "$(count passed)" "$(count failed)" "$(count skipped)" |
    tee -a "$log"
((${#failed[@]} == 0))
