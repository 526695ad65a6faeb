#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# boot.sh --root DIR [options] -- WORDS...: boots Debian's kernel under QEMU's emulator (TCG, no
# /dev/kvm needed) with DIR as its only file system, runs /init WORDS... in it and waits for its
# end.
#
#   --linux SERIES        Debian's kernel of that series (6.12); fetch.sh gets it
#   --cpu MODEL           as QEMU names them (max); max,-erms,-fsrm is one without fast strings
#   --icount              the guest's clock counts instructions, one a nanosecond; no hurry
#   --processors COUNT    of the guest, 1 with --icount (1)
#   --memory MEBIBYTES    of the guest (1024)
#   --kernel-args WORDS   more for the kernel's command line
#   --timeout SECONDS     after that the guest is ended (300)
#   --log FILE            the console as well
#
# The console goes to stdout. The exit status is 0 when the guest said `guest: end`, none of its
# lines began with `guest: not ok` and the kernel complained of nothing; 124 when time was up; 77
# when this host lacks something, with what to install; else 1 with the reason on stderr.
#
# With --icount a run is the same each time: one processor, clocks that follow from instructions, a
# fixed seed for what the machine offers as chance. Mitigations are off then:
# they depend on the processor's flaws, which an emulated one does not have. So are the self-tests
# of ciphers, which share the processor with the first second of the guest.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=../complaints.sh
source "$here/../complaints.sh"
series=6.12 cpu=max icount=no processors=1 memory_mib=1024 kernel_args='' limit_s=300 root='' log=''

UNFIT_HOST=77

die() {
	printf 'boot.sh: %s\n' "$*" >&2
	exit 1
}

while (($# > 0)); do
	case $1 in
	--icount) icount=yes ;;
	--)
		shift
		break
		;;
	--root | --linux | --cpu | --processors | --memory | --kernel-args | --timeout | --log)
		(($# > 1)) || die "$1: without a value"
		case $1 in
		--root) root=$2 ;;
		--linux) series=$2 ;;
		--cpu) cpu=$2 ;;
		--processors) processors=$2 ;;
		--memory) memory_mib=${2%M} ;;
		--kernel-args) kernel_args=$2 ;;
		--timeout) limit_s=$2 ;;
		--log) log=$2 ;;
		esac
		shift
		;;
	*) die "$1: unknown; the guest's own words come after --" ;;
	esac
	shift
done
[[ -n $root ]] || die "--root: missing; guest/root.sh makes such a folder"
[[ $processors =~ ^[1-9][0-9]*$ ]] || die "--processors $processors: not a number of them"
((processors == 1)) || [[ $icount == no ]] || die "--icount counts for 1 processor only"
[[ $memory_mib =~ ^[0-9]+$ ]] || die "--memory $memory_mib: not a number of mebibytes"
[[ $limit_s =~ ^[0-9]+$ ]] || die "--timeout $limit_s: not a number of seconds"
command -v qemu-system-x86_64 >/dev/null || {
	printf 'boot.sh: %s not installed; %s\n' "qemu-system-x86_64:" >&2 \
		"apt-get install --no-install-recommends qemu-system-x86"
	exit $UNFIT_HOST
}

lines=$("$here/fetch.sh" "$series")
kernel=$(sed -n 's/^kernel=//p' <<<"$lines")

scratch=$(mktemp -d)
qemu_pid=''
finish() {
	# QEMU is ours alone, and a caller that ends this script wants it ended too.
	[[ -z $qemu_pid ]] || kill "$qemu_pid" 2>/dev/null || true
	rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
"$here/initramfs.sh" "$root" "$scratch/initramfs"

# Warnings are printed at level 4, which `quiet` would keep back.
command_line="console=ttyS0 loglevel=5 panic=-1 random.trust_cpu=on"
machine=(-accel "tcg,tb-size=256")
if [[ $icount == yes ]]; then
	machine=(-accel tcg -icount "shift=0,sleep=off" -rtc "base=2026-01-01,clock=vm" -seed 1)
	command_line+=" mitigations=off norandmaps randomize_kstack_offset=off"
	command_line+=" cryptomgr.notests=1"
fi

mkfifo "$scratch/console"
sed -u 's/\r//g' <"$scratch/console" | tee "$scratch/log" ${log:+"$log"} &
reader_pid=$!
timeout --kill-after=5 "$limit_s" qemu-system-x86_64 "${machine[@]}" -cpu "$cpu" \
	-smp "$processors" -m "$memory_mib" -nodefaults -no-user-config -no-reboot \
	-display none -monitor none -serial stdio -kernel "$kernel" -initrd "$scratch/initramfs" \
	-append "$command_line $kernel_args -- $*" </dev/null >"$scratch/console" &
qemu_pid=$!
status=0
wait "$qemu_pid" || status=$?
qemu_pid=''
wait "$reader_pid"

if ((status == 124 || status == 137)); then
	printf 'boot.sh: the guest ran on after %s s; give more by --timeout\n' "$limit_s" >&2
	exit 124
fi
((status == 0)) || die "qemu-system-x86_64 ended with status $status"
complained=$(complaint "$scratch/log") && die "the guest's kernel complained: $complained"
refusal=$(grep -m 1 '^guest: not ok' "$scratch/log") && die "$refusal"
grep -q '^guest: end$' "$scratch/log" || die "the guest ended without the line 'guest: end'"
