#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# measure.sh: what vector registers cost in a kernel and from which size on a copy by them is worth
# it: by instructions, in Debian's kernel under QEMU (pagewire_fpu), and by time on this processor
# (native). Prints two tables of each, as they stand in README.md.

set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
top=$(realpath "$here/../..")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

value() {
	sed -n "s/^$1=//p" <<<"$2"
}

# table UNIT PLAIN KEPT LIVE: lines of `copy` as a table, and from which size on vector registers
# beat each of PLAIN, where KEPT is what their use costs beyond the copy's own line when a program's
# registers were saved before, and LIVE when they are in use; all in thousandths of a UNIT.
table() {
	awk -v unit="$1" -v plain="$2" -v kept="$3" -v live="$4" '
		/copy by=/ {
			for (i = 1; i <= NF; i++) { split($i, pair, "="); field[pair[1]] = pair[2] }
			ps[field["by"], field["bytes"]] = field["ps"]
			if (!(field["bytes"] in seen)) { seen[field["bytes"]]; sizes[++count] = field["bytes"] }
			if (!(field["by"] in ways)) { ways[field["by"]]; way[++width] = field["by"] }
		}
		# The least size from which on vectors take 3 % less at all larger ones.
		function from(vector, scalar, fixed,    i, best) {
			best = "never"
			for (i = count; i > 0; i--) {
				if (ps[vector, sizes[i]] + fixed > 0.97 * ps[scalar, sizes[i]]) break
				best = sizes[i]
			}
			return best
		}
		END {
			printf "| bytes |"
			for (w = 1; w <= width; w++) printf " %s, %s |", way[w], unit
			printf "\n|---|"
			for (w = 1; w <= width; w++) printf "---|"
			for (i = 1; i <= count; i++) {
				printf "\n| %d |", sizes[i]
				for (w = 1; w <= width; w++) printf " %.1f |", ps[way[w], sizes[i]] / 1000
			}
			printf "\n\n| worth it from, bytes | registers saved before | a program'\''s in use |\n"
			printf "|---|---|---|\n"
			others = split(plain, scalar, ",")
			for (w = 1; w <= width; w++)
				for (s = 1; s <= others; s++)
					if (index("," plain ",", "," way[w] ",") == 0)
						printf "| %s against %s | %s | %s |\n", way[w], scalar[s],
							from(way[w], scalar[s], kept), from(way[w], scalar[s], live)
		}'
}

figure() {
	sed -n "s/^\(guest: fpu \)\?$1 .*ps=\([0-9]*\)$/\2/p" "$2"
}

debian=$("$top/kernel/qemu/fetch.sh")
module=$(value module "$("$here/build.sh")")
"$top/guest/root.sh" --no-shell "$scratch/root" "$module=/lib/modules/pagewire_fpu.ko" >/dev/null
"$top/kernel/qemu/boot.sh" --root "$scratch/root" --icount --log "$scratch/log" -- fpu >/dev/null
facts=$scratch/facts
sed -n 's/^guest: fpu \(usable\|preemptible\|section\|crossing\)/\1/p' "$scratch/log" >"$facts"

printf 'By instructions, %s\n\n' "$(value version "$debian")"
sed 's/^/    /' "$facts"
crossing_ps=$(sed -n 's/^crossing ps=//p' "$facts")
with_section_ps=$(sed -n 's/^crossing_section ps=//p' "$facts")
section_ps=$(sed -n 's/^section of=program ps=//p' "$facts")
# A copy's line has a section in it; the first of a crossing costs the difference more.
more_ps=$((with_section_ps - crossing_ps - section_ps))
printf '\n'
table instructions memcpy 0 "$more_ps" <"$scratch/log"

gcc -O2 -Wall -Wextra -o "$scratch/native" "$here/native.c"
"$scratch/native" >"$scratch/native.log"
if grep '^skip: ' "$scratch/native.log"; then
	exit 0
fi
printf '\nBy time, %s\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
sed -n 's/^pair/    pair/p' "$scratch/native.log"
pair_ps=$(figure 'pair state=avx' "$scratch/native.log")
printf '\n'
table ns movq,movsb 0 "$pair_ps" <"$scratch/native.log"
