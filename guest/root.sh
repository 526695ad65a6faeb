#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes a root folder for a guest: the static init, folders to mount on, a shell, and files of the
# caller's.
#
#   guest/root.sh [--no-shell] OUT [FROM=TO...]
#
# OUT is made, or must be empty. FROM is a file or a folder of the host, TO its path in the guest:
# `pagewire_rtp.ko=/lib/modules/pagewire_rtp.ko`; modules there are loaded at boot. A program needs
# its libraries with it, so link programs for the guest statically.
# The shell is for the workload `shell_scripts`: the host's static busybox, otherwise its /bin/sh
# and the programs that the script runs, with their libraries. Without either there is no shell,
# and a line on stderr reports that. --no-shell leaves it out: a smaller archive for QEMU.
# GUEST=PATH in the environment is an existing build of the guest; otherwise guest/build.sh runs.
# Prints `root=PATH`. Needs no rights: no device nodes, the guest mounts its own.
set -euo pipefail

# The programs that the script of guest/src/workloads/shell_scripts.rs runs.
PROGRAMS=(sh cat grep od rm sort tee wc)

fail() {
    echo "guest/root.sh: $1" >&2
    exit 1
}

shell=yes
if [[ ${1:-} == --no-shell ]]; then
    shell=no
    shift
fi
if (($# < 1)) || [[ $1 == -* ]]; then
    echo "usage: guest/root.sh [--no-shell] OUT [FROM=TO...]" >&2
    exit 2
fi
out=$1
shift

# Copies a program with the libraries that the loader would use, to the loader's search paths.
copy_with_libraries() { # PROGRAM TO
    local library
    install -D -m 755 "$1" "$2"
    while read -r library; do
        [[ -e $out$library ]] || install -D -m 755 "$library" "$out$library"
    done < <(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true)
}

add_shell() {
    local program path busybox
    busybox=$(command -v busybox || true)
    if [[ -n $busybox ]] && ! ldd "$busybox" >/dev/null 2>&1; then
        install -D -m 755 "$busybox" "$out/bin/busybox"
        for program in "${PROGRAMS[@]}"; do
            ln -s busybox "$out/bin/$program"
        done
        return
    fi
    # All of them or none: an incomplete shell would fail later, with a less exact error.
    for program in "${PROGRAMS[@]}"; do
        if ! command -v "$program" >/dev/null; then
            echo "guest/root.sh: no $program on this host, so no shell in $out, which" \
                "shell_scripts needs; apt-get install busybox-static" >&2
            return
        fi
    done
    for program in "${PROGRAMS[@]}"; do
        path=$(realpath "$(command -v "$program")")
        copy_with_libraries "$path" "$out/bin/$program"
    done
}

if [[ -e $out ]] && { [[ ! -d $out ]] || [[ -n $(ls -A "$out") ]]; }; then
    fail "$out: there already, and not an empty folder; remove it or name another"
fi
# Checked before any file is made: an incomplete root would boot as well.
for pair in "$@"; do
    if [[ $pair != ?*=/* ]]; then
        fail "$pair: write FROM=TO, TO being the path in the guest, from /"
    fi
    [[ -e ${pair%%=*} ]] || fail "${pair%%=*}: no such file; build it first"
done
if [[ -z ${GUEST:-} ]]; then
    built=$("$(dirname "$0")/build.sh")
    GUEST=${built#guest=}
fi
[[ -x $GUEST ]] || fail "GUEST=$GUEST: no such program; make it with guest/build.sh"

mkdir -p "$out"/{bin,dev,lib/modules,proc,sbin,sys,tmp}
install -m 755 "$GUEST" "$out/sbin/init"
# Path of the init in an initramfs.
ln -s sbin/init "$out/init"
[[ $shell == no ]] || add_shell

for pair in "$@"; do
    from=${pair%%=*} to=${pair#*=}
    mkdir -p "$(dirname "$out$to")"
    [[ ! -e $out$to ]] || fail "$pair: $to is there already; choose another place"
    cp -rL --preserve=mode "$from" "$out$to"
done

echo "root=$(realpath "$out")"
