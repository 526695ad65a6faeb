#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# The kernel's own style check over the module and its check: scripts/checkpatch.pl --strict.
#
#   kernel/rtp/lint.sh SOURCE     (a kernel tree; kernel/uml/build.sh prints source=...)
#
# W=1 and sparse are build.sh's, for each kernel. What is not asked for here, and why:
#   LINUX_VERSION_CODE, CONSTANT_COMPARISON   one source for 6.1 and newer; 6.13 changed hrtimers
#   PREFER_KERNEL_TYPES, attribute macros     in check/, which is a program
#   MACRO_ARG_REUSE, COMPLEX_MACRO            BAD() there takes the statements that spoil a request
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

[[ $# -eq 1 && -f $1/scripts/checkpatch.pl ]] || {
	sed -n 's/^#   kernel/kernel/p' "$0" >&2
	exit 2
}
command -v perl >/dev/null || {
	echo 'lint: no perl; apt-get install perl' >&2
	exit 1
}
checkpatch() {
	perl "$source/scripts/checkpatch.pl" --no-tree --no-summary --terse --strict \
		--max-line-length=100 "--ignore=$1" -f "${@:2}"
}
source=$1
checkpatch LINUX_VERSION_CODE,CONSTANT_COMPARISON ./*.[ch] include/uapi/linux/*.h
checkpatch PREFER_KERNEL_TYPES,PREFER_DEFINED_ATTRIBUTE_MACRO,COMPLEX_MACRO,MACRO_ARG_REUSE \
	check/*.[ch]
