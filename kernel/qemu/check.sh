#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# check.sh [SERIES...]: the module pagewire_rtp on Debian's kernels under QEMU, 6.12 and 6.1 if none
# is named. Exits with status 0 when all of it passed, which takes 2 processors about 3 minutes; two
# guests run at a time. What is done:
#
#   on each kernel    the module's check (kernel/rtp/check) on an emulated clock that counts
#                     instructions: a paced session of 60 s takes a few seconds of ours, and its
#                     lateness is the kernel's own and not that of a host with other things to do
#   on the first      the check again with two processors at once, where the races are; without the
#                     paced session, whose time would be the host's
#   on the first      4,000 packets by every path of the list, those of the module among them,
#                     compared byte by byte (guest/src/verify.rs)
#
# A kernel's missing features are skipped with the reason, as a line `skip: ...`.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
top=$(realpath "$here/../..")
limit_s=600
# Of the paced session, and the share of its packets within 2 ms of their time.
paced_s=60 within_percent=99

die() {
	printf 'check.sh: %s\n' "$*" >&2
	exit 1
}

value() {
	sed -n "s/^$1=//p" <<<"$2"
}

scratch=$(mktemp -d)
declare -A pids=()
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

# start NAME ROOT OPTIONS...: a guest whose console is kept as NAME.log.
start() {
	local name=$1 root=$2
	shift 2
	"$here/boot.sh" --root "$root" --timeout "$limit_s" --log "$scratch/$name.log" "$@" \
		>"$scratch/$name.out" &
	pids[$name]=$!
}

# ended NAME: waits for it and shows its console without the kernel's own lines.
ended() {
	local name=$1 status=0
	wait "${pids[$name]}" || status=$?
	unset "pids[$name]"
	printf '# %s\n' "$name"
	grep -vE '^\[ *[0-9]+\.[0-9]+\] ' "$scratch/$name.log" || true
	((status == 0)) || die "$name: failed (above)"
}

# tap NAME: that the results in a log are complete and none is bad.
tap() {
	local log=$scratch/$1.log planned results
	if grep -m 1 '^not ok' "$log"; then
		die "$1: a check failed (above)"
	fi
	planned=$(sed -n 's/^1\.\.\([0-9]*\)$/\1/p' "$log")
	results=$(grep -c '^ok ' "$log" || true)
	[[ -n $planned && $planned == "$results" && $results != 0 ]] ||
		die "$1: $results results of ${planned:-an unknown number}"
}

# paced NAME: that the session kept its time.
paced() {
	local share
	share=$(sed -n 's/^# paced: p50 .*; \([0-9.]*\) % within 2 ms$/\1/p' "$scratch/$1.log")
	[[ -n $share ]] || die "$1: no line says how late the packets of the paced session were"
	awk -v share="$share" -v least="$within_percent" 'BEGIN { exit !(share >= least) }' ||
		die "$1: $share % of the packets within 2 ms of their time; $within_percent % wanted"
}

# The guest of the check that has run longest: its results and its time.
checked() {
	local name=check-${series[done_count++]}
	ended "$name"
	tap "$name"
	paced "$name"
}

series=("$@")
done_count=0
((${#series[@]} > 0)) || series=(6.12 6.1)
make -s -C "$top/kernel/rtp" check >&2

for one in "${series[@]}"; do
	debian=$("$here/fetch.sh" "$one")
	module=$(value module "$(DEBUG=1 "$top/kernel/rtp/build.sh" debian "$one")")
	root=$scratch/root-$one
	mkdir -p "$root"/{dev,lib/modules,proc,sys,tmp}
	cp "$top/kernel/rtp/check/pagewire_rtp_check" "$root/init"
	cp "$module" "$root/lib/modules/pagewire_rtp.ko"
	cp "$(value dummy "$debian")" "$root/lib/modules/dummy.ko"
	start "check-$one" "$root" --linux "$one" --icount -- "paced=$paced_s"
	((${#pids[@]} < 2)) || checked
done
while ((${#pids[@]} > 0)); do
	checked
done

first=${series[0]}
two=check-$first-two-processors
# A host with other things to do makes clocks differ, which the kernel would warn of.
start "$two" "$scratch/root-$first" --linux "$first" --processors 2 \
	--kernel-args tsc=reliable -- paced=0
"$top/guest/root.sh" --no-shell "$scratch/root-verify" \
	"$scratch/root-$first/lib/modules/pagewire_rtp.ko=/lib/modules/pagewire_rtp.ko" >/dev/null
start "verify-$first" "$scratch/root-verify" --linux "$first" -- verify
ended "verify-$first"
bad=0
for mode in rtp/{mmap_rtpmsend,mmap_send_msend,rtpsendfile,krtpsendfile,krtpmsend} \
	udp/{msend,kmsend,ksendfile}; do
	grep -q "^guest: ok verify $mode: " "$scratch/verify-$first.log" || {
		printf 'check.sh: %s: not verified\n' "$mode" >&2
		bad=1
	}
done
((bad == 0)) || die "not every mode of the module was verified (above)"
ended "$two"
tap "$two"
printf '# all passed\n'
