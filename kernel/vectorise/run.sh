#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Builds the kernel with GCC's vectoriser reporting and writes kernel/vectorise/result.md: which
# loops of the kernel the compiler turns into vector code by itself, beside the study's 23.
#
# About 8 minutes on 2 cores, so it is run by hand (make vectorise) and the result is committed;
# from the second time on the build is found in the cache and only the table is made.
set -euo pipefail
cd "$(dirname "$0")"

builds=$(../uml/build.sh vectorise)
path_of() { sed -n "s/^$1=//p" <<<"$builds"; }
linux=$(path_of linux)
log=$(path_of log)
version=$("$linux" --version)
compiler=$(gcc --version | head -n 1)
flags=$(sed -n "s/^VECTORISE_FLAGS='\(.*\)'/\1/p" ../uml/build.sh)

{
    cat <<END
<!-- Made by kernel/vectorise/run.sh (make vectorise); do not edit. -->
# What the compiler vectorises in the kernel by itself

- kernel: Linux $version, User Mode Linux; kernel/uml/base.config and vectorise.config
- compiler: $compiler
- flags: \`$flags\`

A loop is counted once by its place in the source, however often a header that it is in was
compiled, and however many widths it got. Basic blocks (straight-line code, SLP) are counted apart:
the study's compiler did not report them. Of the study's files, ext3 is no longer in the kernel
(ext4 took its place), and others have other code under the old name.

END
    awk -f table.awk published.tsv "$log"
} >result.md.new
mv result.md.new result.md
tail -n 1 result.md
