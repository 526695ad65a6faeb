#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Lays the variants of memcpy over a copy of the kernel's source:
#
#   kernel/memcpy/apply.sh PRISTINE SOURCE
#
# Puts the files of this folder into SOURCE/arch/x86/um/memcpy, has arch/x86/um/Makefile build them
# instead of lib/memcpy_64.o (which entry.S includes, as the tree has it), and has string_64.h
# include constant.h. SOURCE is a copy of PRISTINE, perhaps of hard links and perhaps laid over
# before: files are replaced, never written into, and only when they differ, so that what was
# compiled from them stays valid.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

[[ $# -eq 2 && -d $1/arch/x86/um && -d $2/arch/x86/um ]] || {
    echo "usage: kernel/memcpy/apply.sh PRISTINE SOURCE (the kernel's, unpacked, and a copy)" >&2
    exit 2
}
pristine=$1
source=$2
folder=$source/arch/x86/um/memcpy
units=(entry strings sse_published avx2 avx512 sized select sizes selftest)

place() { # FILE, contents on stdin
    cat >"$1.new"
    if cmp -s "$1.new" "$1"; then
        rm "$1.new"
    else
        mv "$1.new" "$1"
    fi
}

# A file of the tree with a line changed; says so if the line is not there.
change() { # FILE PATTERN SCRIPT
    grep -q "$2" "$pristine/$1" || {
        echo "memcpy: $1 has no line '$2'; this kernel is built differently" >&2
        exit 1
    }
    sed "$3" "$pristine/$1" | place "$source/$1"
}

mkdir -p "$folder"
for file in "$here"/*.[chS]; do
    place "$folder/${file##*/}" <"$file"
done
for file in "$folder"/*.[chS]; do
    [[ -e $here/${file##*/} ]] || rm "$file"
done
objects=$(printf ' memcpy/%s.o' "${units[@]}")
change arch/x86/um/Makefile ' \.\./lib/memcpy_64\.o' "s,  *\.\./lib/memcpy_64\.o,$objects,"
change arch/x86/include/asm/string_64.h '^extern void \*__memcpy(' \
    '/^extern void \*__memcpy(/a #include "../../um/memcpy/constant.h"'
