#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Runs a guest in User Mode Linux to its end; its console on stdout.
#
#   kernel/uml/boot.sh --root FOLDER [--memory 1024M] [--kernel-args "..."] [--timeout SECONDS]
#                      [--core NUMBER] [--profile plain|gprof|check | --linux PATH] -- WORDS...
#
# FOLDER is the guest's root (hostfs: the guest works on these very files, and as root it really
# writes them; give each run its own). FOLDER/init is started with WORDS as its arguments. Without
# --linux, build.sh finds or builds the kernel. The guest's kernel and its programs take turns; with
# --core they do so on one core, which halves what a crossing costs and takes the chance out of it.
#
# Exit status 0 when the guest said `guest: end` and the kernel's log has no warning, bug or panic;
# 1 when not; 124 when time ran out; 77 when this host cannot run it, with the reason and the cure
# as the last line of stderr: a skip, not a failure (unfit_host lists them). UML's processes are
# children of this one. The guest's memory is a file in TMPDIR, /dev/shm or /tmp, the first that is
# large enough and lets programs run.
# gmon.out (profile gprof) is left in the folder this was started in. No root rights needed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../complaints.sh
source "$here/../complaints.sh"

TIMEOUT_SECONDS=300
KILL_AFTER_SECONDS=5

UNFIT_HOST=77

say() { echo "boot: $*" >&2; }
usage() {
    say "$1"
    sed -n 's/^#   \( *kernel\)/\1/p' "$0" >&2
    exit 2
}

root='' memory=1024M kernel_args='' seconds=$TIMEOUT_SECONDS core='' profile=plain linux=''
while [[ $# -gt 0 && $1 != -- ]]; do
    [[ $# -gt 1 ]] || usage "$1: without a value"
    case $1 in
    --root) root=$2 ;;
    --memory) memory=$2 ;;
    --kernel-args) kernel_args=$2 ;;
    --timeout) seconds=$2 ;;
    --core) core=$2 ;;
    --profile) profile=$2 ;;
    --linux) linux=$2 ;;
    *) usage "$1: no such option" ;;
    esac
    shift 2
done
[[ $# -eq 0 ]] || shift
[[ -n $root ]] || usage '--root: missing'
[[ -x $root/init ]] || usage "--root $root: no program named init in it"
[[ $memory =~ ^([1-9][0-9]*)[Mm]?$ ]] || usage "--memory $memory: write megabytes, as 1024M"
memory_mb=${BASH_REMATCH[1]}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || usage "--timeout $seconds: write seconds"
on_core=()
if [[ -n $core ]]; then
    on_core=(taskset --cpu-list "$core")
    "${on_core[@]}" true 2>/dev/null || usage "--core $core: not one this process may use (taskset)"
fi
root=$(cd "$root" && pwd)
if [[ -z $linux ]]; then
    linux=$("$here/build.sh" "$profile" | sed -n 's/^linux=//p')
fi
[[ -f $linux && -x $linux ]] || usage "--linux $linux: no program"
linux=$(realpath "$linux")

# Succeeds when guest memory can be a file there: room for all of it, writable, programs may run.
is_fit() {
    local free probe status=0
    free=$(df --output=avail --block-size=1M "$1" 2>/dev/null | tail -n 1) || return 1
    ((free > memory_mb)) || return 1
    probe=$(mktemp "$1/pagewire-XXXXXX" 2>/dev/null) || return 1
    printf '#!/bin/sh\n' >"$probe"
    chmod +x "$probe"
    "$probe" 2>/dev/null || status=1
    rm -f "$probe"
    return "$status"
}
memory_folder=''
for folder in "${TMPDIR:-}" /dev/shm /tmp; do
    if [[ -n $folder ]] && is_fit "$folder"; then
        memory_folder=$folder
        break
    fi
done
[[ -n $memory_folder ]] || {
    say "the guest's memory: no $memory_mb MB free in \$TMPDIR, /dev/shm, /tmp (noexec does not" \
        "do); set TMPDIR, or --memory"
    exit $UNFIT_HOST
}

# unfit_host LOG: prints what this host refused to User Mode Linux, and the cure; fails when the log
# shows no such refusal.
unfit_host() {
    shows() { grep -q -E "$1" "$log"; }
    local log=$1
    if shows 'ptrace set fp regs failed, errno = 14'; then
        echo "the register state of this processor is larger than the room that this kernel has" \
            "for it; raise HOST_FP_BYTES in kernel/uml/build.sh"
    elif shows '[Pp][Tt][Rr][Aa][Cc][Ee].*: Operation not permitted'; then
        echo "ptrace(2) is not permitted here; in a container add the capability SYS_PTRACE," \
            "elsewhere: sysctl kernel.yama.ptrace_scope=1"
    elif shows 'fork failed: Resource|clone failed, errno = 11'; then
        echo "no more processes are allowed here; raise ulimit -u"
    else
        return 1
    fi
}

scratch=$(mktemp -d "$memory_folder/pagewire-XXXXXX")
pid=''
finish() {
    # TERM to timeout ends all of the kernel's processes, which are its group.
    [[ -z $pid ]] || kill "$pid" 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export TMPDIR=$memory_folder
log=$scratch/log
status=0
mkfifo "$scratch/console"
tee "$log" <"$scratch/console" &
reader=$!
# shellcheck disable=SC2086 # kernel_args are words
"${on_core[@]}" timeout --kill-after=$KILL_AFTER_SECONDS "$seconds" "$linux" \
    mem="${memory_mb}M" uml_dir="$scratch/" umid=guest \
    root=/dev/root rootfstype=hostfs rootflags="$root" rw init=/init \
    con=null con0=fd:0,fd:1 $kernel_args -- "$@" </dev/null >"$scratch/console" 2>&1 &
pid=$!
wait "$pid" || status=$?
pid=''
wait "$reader"
if [[ $status -eq 124 || $status -eq 137 ]]; then
    say "no end after $seconds s; --timeout gives more"
    exit 124
fi
if refused=$(unfit_host "$log"); then
    say "$refused"
    exit $UNFIT_HOST
fi
if complained=$(complaint "$log"); then
    say "the kernel complained: $complained"
    exit 1
fi
# The console ends lines with a carriage return too.
if ! tr -d '\r' <"$log" | grep -qx 'guest: end'; then
    say "the guest ended without 'guest: end'; exit status of the kernel: $status"
    exit 1
fi
