#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Builds the kernel with GCC's vectoriser reporting and writes kernel/vectorise/result.md: which
# loops of the kernel the compiler turns into vector code by itself, beside the 23 of the
# simd-copy paper.
#
# About 8 minutes on 2 cores, so it is run by hand (make vectorise) and the result is committed;
# from the second time on the build is found in the cache and only the table is made.
set -euo pipefail
cd "$(dirname "$0")"

builds=$(../uml/build.sh vectorise)
path_of() { sed -n "s/^$1=//p" <<<"$builds"; }
linux=$(path_of linux)
log=$(path_of log)
source=$(path_of source)
build=$(path_of build)
version=$("$linux" --version)
compiler=$(gcc --version | head -n 1)
flags=$(sed -n "s/^VECTORISE_FLAGS='\(.*\)'/\1/p" ../uml/build.sh)

# Of the paper's files, those that cannot have a loop here, and why: lines "FILE REASON".
absent() {
    local file
    while read -r file _; do
        case $file in
        '' | '#'*) ;;
        *)
            if [[ ! -e $source/$file ]]; then
                echo "$file gone from the kernel"
            elif [[ ! -e $build/${file%.c}.o ]]; then
                echo "$file not compiled in this configuration"
            fi
            ;;
        esac
    done <published.tsv
}

{
    cat <<END
<!-- Made by kernel/vectorise/run.sh (make vectorise); do not edit. -->
# What the compiler vectorises in the kernel by itself

- kernel: Linux $version, User Mode Linux; kernel/uml/base.config and vectorise.config
- compiler: $compiler
- flags: \`$flags\`

A loop is counted once by its place in the source, however often a header that it is in was
compiled, and however many widths it got. Basic blocks (straight-line code, SLP) are counted apart:
the paper's compiler did not report them. Of the paper's files, some are gone from the kernel (ext4
took the place of ext3) or not compiled here: they have no count, and the last column says why. The
others were compiled; their code may be other code under the old name. Only built: this kernel was
not timed, so the table does not say what its vectors are worth.

END
    awk -v absent="$(absent)" -f table.awk published.tsv "$log"
} >result.md.new
mv result.md.new result.md
tail -n 1 result.md
