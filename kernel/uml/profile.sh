#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Profile of the kernel's time, before and after: tables 2 to 4 of simd-copy, by its own tool.
#
#   kernel/uml/profile.sh [gprof|perf] [--root FOLDER] [--linux PATH] [--rounds 3] [VARIANT...]
#                         [-- WORDS...]
#
# Boots the guest once a round with each variant of memcpy (stock and sized, if none is named),
# interleaved, with WORDS as its workloads, and prints a table for each: function, seconds, share;
# then memcpy's time of each beside stock's. gprof needs the kernel of profile gprof (built here if
# it is missing, 5 minutes) and counts the kernel's process only; perf samples the processor's
# clock (cpu-clock, no hardware counters needed) on the stock build. Seconds are sums of all
# rounds. FOLDER is the guest's root, made by guest/root.sh if none is given; --linux is a kernel
# that was built already.
#
# The cost of gprof's instrumentation (mcount) is left out of the shares, as it is no part
# of the kernel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

ROWS=15
SAMPLES_PER_SECOND=999

say() { echo "profile: $*" >&2; }
die() { say "$*"; exit 1; }
usage() {
    echo 'usage: kernel/uml/profile.sh [gprof|perf] [--root FOLDER] [--linux PATH] [--rounds N]' \
        '[VARIANT...] [-- WORDS...]' >&2
    exit 2
}

tool=gprof root='' linux='' rounds=3 variants=()
case ${1:-} in
gprof | perf) tool=$1 && shift ;;
esac
while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
    --root) root=${2:-} && shift ;;
    --linux) linux=${2:-} && shift ;;
    --rounds) rounds=${2:-} && shift ;;
    -*) usage ;;
    *) variants+=("$1") ;;
    esac
    shift
done
[[ $# -eq 0 ]] || shift
[[ $rounds =~ ^[1-9][0-9]*$ ]] || usage
[[ ${#variants[@]} -gt 0 ]] || variants=(stock sized)
command -v "$tool" >/dev/null || case $tool in
    gprof) die 'no gprof; apt-get install --no-install-recommends binutils' ;;
    perf) die 'no perf; apt-get install --no-install-recommends linux-perf' ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
profile=plain
[[ $tool == perf ]] || profile=gprof
[[ -n $linux ]] || linux=$("$here/build.sh" "$profile" | sed -n 's/^linux=//p')
linux=$(realpath "$linux")
if [[ -z $root ]]; then
    root=$work/root
    "$here/../../guest/root.sh" "$root" >&2
fi
root=$(realpath "$root")
[[ $# -gt 0 ]] || set -- large_buffers

# Samples of each function, in seconds, from one run: lines "SECONDS FUNCTION".
seconds_of_gprof() { # FOLDER
    # Columns of the flat profile: share, cumulative, self, then calls only where known, name.
    gprof -b -p --no-demangle "$linux" "$1/gmon.out" |
        awk '$1 ~ /^[0-9.]+$/ && $3 > 0 { print $3, $NF }' |
        grep -vwE '_*mcount(_private|_internal)?|__fentry__' || true
}
seconds_of_perf() { # FOLDER
    # Lines: samples, [.] or [k] (the host's kernel, one row), name.
    local name=${linux##*/} # of which the host keeps 15 characters
    perf report --input "$1/perf.data" --stdio --comms "${name:0:15}" --sort symbol \
        --fields sample,symbol 2>/dev/null |
        awk -v hz=$SAMPLES_PER_SECOND '
            $1 ~ /^[0-9]+$/ { print $1 / hz, ($2 == "[k]" ? "(host)" : $3) }'
}

for ((round = 1; round <= rounds; round++)); do
    for variant in "${variants[@]}"; do
        folder=$work/$variant-$round
        mkdir "$folder"
        say "round $round of $rounds: $variant"
        boot=("$here/boot.sh" --linux "$linux" --root "$root"
            --kernel-args "pagewire_memcpy=$variant" -- "$@")
        if [[ $tool == perf ]]; then
            boot=(perf record --quiet --event cpu-clock --freq "$SAMPLES_PER_SECOND"
                --output "$folder/perf.data" -- "${boot[@]}")
        fi
        (cd "$folder" && "${boot[@]}" >"$folder/console") ||
            die "$variant: the run failed: $(tail -n 3 "$folder/console")"
        grep -q "pagewire_memcpy: using $variant" "$folder/console" ||
            die "$variant: not in use: $(grep pagewire_memcpy: "$folder/console" || true)"
        "seconds_of_$tool" "$folder" >>"$work/$variant.seconds"
    done
done

for variant in "${variants[@]}"; do
    echo "## $variant"
    echo
    echo '| function | seconds | share |'
    echo '|---|---|---|'
    awk '{ spent[$2] += $1; all += $1 }
        END {
            for (name in spent)
                printf "%.2f %s %.2f\n", spent[name], name, 100 * spent[name] / all
        }' "$work/$variant.seconds" |
        sort -rn |
        awk -v rows=$ROWS 'NR <= rows { printf "| `%s` | %s | %s %% |\n", $2, $1, $3 }'
    echo
done
echo '| variant | all, seconds | memcpy, seconds | memcpy, share | memcpy against the first |'
echo '|---|---|---|---|---|'
for variant in "${variants[@]}"; do
    awk -v variant="$variant" '
        { all += $1 }
        $2 ~ /^(memcpy|__memcpy|memcpy_orig|pagewire_memcpy_.*|pagewire_fixed_.*)$/ { own += $1 }
        END { print variant, all, own }' "$work/$variant.seconds"
done | awk '
    NR == 1 { first = $3 }
    { printf "| %s | %.2f | %.2f | %.2f %% | %+.1f %% |\n",
        $1, $2, $3, 100 * $3 / $2, first ? 100 * ($3 / first - 1) : 0 }'
