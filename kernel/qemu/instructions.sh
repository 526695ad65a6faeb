#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# instructions.sh [options]: instructions per packet of every path, on Debian's kernel under QEMU,
# for a processor with fast strings (max) and one without (max,-erms,-fsrm). The table goes to
# stdout, one member a line, what it was made with in comments above.
#
#   --compare             with the table in baseline.txt: says which member changed, and exits
#                         with status 1 if one did, is gone or new
#   --tolerance PERCENT   of the comparison (1); eight times that for downloads, see below
#   --packets COUNT       measured by each member, after as many to warm up (20480)
#   --members A,B         only those, as in: rtp/krtpsendfile,rtp/mmap_writev
#   --segments COUNT      at most, of paths that hand over runs which the kernel cuts (64)
#   --linux SERIES        Debian's kernel (6.12)
#   --keep DIR            the two consoles: max.log and max,-erms,-fsrm.log
#
# The figure counts all that the processor does from the first packet's call to the last's return:
# the program, the kernel and its clock's interrupts. It does not know of caches, of what one
# instruction costs more than another, nor of the device: `rep movsb` counts about one a byte, and
# the dummy device takes a run of segments whole, as hardware does that cuts it. Two runs give the
# same figures to the last digit, whatever else the host does, so the two are made at once. Another
# build of the same program shifts the ticks of the clock: datagrams differ by 0.3 % then, downloads
# by up to 5 %, whose two ends take turns at other moments.

set -euo pipefail
# The order of join and sort, and the point in figures.
export LC_ALL=C

here=$(dirname "$(readlink -f "$0")")
top=$(realpath "$here/../..")
models=(max "max,-erms,-fsrm")
series=6.12 packets=20480 members='' segments='' tolerance_percent=1 compare=no keep=''
baseline=$here/baseline.txt
limit_s=1200

die() {
	printf 'instructions.sh: %s\n' "$*" >&2
	exit 1
}

while (($# > 0)); do
	case $1 in
	--compare) compare=yes ;;
	--tolerance | --packets | --members | --segments | --linux | --keep)
		(($# > 1)) || die "$1: without a value"
		case $1 in
		--tolerance) tolerance_percent=$2 ;;
		--packets) packets=$2 ;;
		--members) members=$2 ;;
		--segments) segments=$2 ;;
		--linux) series=$2 ;;
		--keep) keep=$2 ;;
		esac
		shift
		;;
	*) die "$1: unknown; the first lines of this script say what there is" ;;
	esac
	shift
done
[[ $packets =~ ^[1-9][0-9]*$ ]] || die "--packets $packets: not a number of packets"
[[ $tolerance_percent =~ ^[0-9]+(\.[0-9]+)?$ ]] ||
	die "--tolerance $tolerance_percent: no percentage"
[[ $compare == no || -f $baseline ]] || die "$baseline: not there; make it with instructions.sh"

scratch=$(mktemp -d)
pids=()
finish() {
	local pid
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

value() {
	sed -n "s/^$1=//p" <<<"$2"
}

debian=$("$here/fetch.sh" "$series")
module=$(value module "$("$top/kernel/rtp/build.sh" debian "$series")")
guest=${GUEST:-$(value guest "$("$top/guest/build.sh")")}
GUEST=$guest "$top/guest/root.sh" --no-shell "$scratch/root" \
	"$(value dummy "$debian")=/lib/modules/dummy.ko" \
	"$module=/lib/modules/pagewire_rtp.ko" >/dev/null

for model in "${models[@]}"; do
	"$here/boot.sh" --root "$scratch/root" --linux "$series" --cpu "$model" --icount \
		--timeout "$limit_s" --log "$scratch/$model.log" -- \
		paths "packets=$packets" ${members:+"members=$members"} \
		${segments:+"segments=$segments"} >"$scratch/$model.out" &
	pids+=($!)
done
failed=no
for model in "${models[@]}"; do
	wait "${pids[0]}" || failed=$model
	pids=("${pids[@]:1}")
done
if [[ -n $keep ]]; then
	mkdir -p "$keep"
	cp "$scratch"/*.log "$keep/"
fi
if [[ $failed != no ]]; then
	tail -n 20 "$scratch/$failed.log" >&2
	die "the guest on $failed failed (above)"
fi

# Member and instructions per packet.
figures() {
	sed -n 's/^guest: end-of \([^ ]*\) .* packets=\([0-9]*\) wall_ns=\([0-9]*\) .*/\1 \2 \3/p' "$1" |
		awk '{ printf "%s %.1f\n", $1, $3 / $2 }'
}

{
	printf '# instructions per packet of 1328 bytes (tcp: per 1328 bytes, both ends)\n'
	printf '# kernel: %s\n' "$(value version "$debian")"
	printf '# module: %s\n' "$(strings -n 8 "$module" | sed -n '/^GCC: /{p;q}')"
	printf '# guest: %s\n' "$(rustc --version)"
	printf '# emulator: %s\n' "$(qemu-system-x86_64 --version | head -n 1)"
	printf '# packets: %s%s\n' "$packets" "${segments:+, $segments at most in a run}"
	printf '# %-24s %12s %18s\n' member "${models[@]}"
	join <(figures "$scratch/${models[0]}.log" | sort) \
		<(figures "$scratch/${models[1]}.log" | sort) |
		awk '{ printf "%-26s %12s %18s\n", $1, $2, $3 }'
	sed -n 's/^guest: skip /# skip: /p' "$scratch/${models[0]}.log"
} >"$scratch/table"
cat "$scratch/table"
[[ $compare == yes ]] || exit 0

# What it was made with may explain a change, and is no change itself.
diff <(grep -E '^# (kernel|module|guest|emulator):' "$baseline") \
	<(grep -E '^# (kernel|module|guest|emulator):' "$scratch/table") |
	sed -n 's/^< #/baseline was made with/p; s/^> #/now it is/p' >&2
awk -v tolerance="$tolerance_percent" -v some="$members" '
	/^#/ { next }
	FNR == NR { was[$1] = $2 " " $3; next }
	{
		now[$1] = 1
		if (!($1 in was)) { print $1 ": new"; changed = 1; next }
		split(was[$1], old, " ")
		for (model = 1; model <= 2; model++) {
			percent = ($(model + 1) / old[model] - 1) * 100
			limit = $1 ~ /^tcp\// ? 8 * tolerance : tolerance
			if (percent > limit || percent < -limit) {
				printf "%s: %s, was %s (%+.1f %%) %s\n", $1, $(model + 1), old[model], \
					percent, model == 1 ? "with fast strings" : "without fast strings"
				changed = 1
			}
		}
	}
	END {
		for (member in was)
			if (!(member in now) && some == "") { print member ": gone"; changed = 1 }
		exit changed
	}' "$baseline" "$scratch/table" >&2 ||
	die "changed by more than is tolerated (above);" \
		"if that is meant, make baseline.txt anew with instructions.sh"
