# SPDX-License-Identifier: GPL-2.0
# The table of what the compiler vectorised, from the log of a build (kernel/vectorise/run.sh).
#
# Reads the lines of -fopt-info-vec-optimized:
#
#   ../mm/vmstat.c:120:17: optimized: loop vectorized using 16 byte vectors
#   ../mm/slub.c:812:9: optimized: basic block part vectorized using 16 byte vectors
#
# A place (file, line, column) counts once, however often a header of it was compiled and however
# many widths one loop got; loops and basic blocks apart. First argument: published.tsv, the
# study's table, shown beside. The variable `absent` has a line for each of its files that was not
# compiled: the file, and why; it gets no count. Order: published files, then the rest by name.

BEGIN {
    lines = split(absent, line, "\n")
    for (i = 1; i <= lines; i++) {
        space = index(line[i], " ")
        if (space) why[substr(line[i], 1, space - 1)] = substr(line[i], space + 1)
    }
}

FILENAME == ARGV[1] {
    if ($0 !~ /^#/ && NF == 2) {
        published[$1] = $2
        published_loops += $2
        order[++files] = $1
    }
    next
}

/: optimized: (loop|basic block part) vectorized/ {
    split($1, place, ":")
    file = place[1]
    sub(/^(\.\.\/|\.\/)+/, "", file)
    # Objects that are built through another folder: arch/x86/um/../lib/csum-partial_64.c
    while (sub(/[^\/.]+\/\.\.\//, "", file)) { }
    where = file ":" place[2] ":" place[3]
    kind = /optimized: loop/ ? "loop" : "block"
    if (seen[kind, where]++) next
    if (kind == "loop") {
        loops[file]++
        loops_all++
    } else {
        blocks[file]++
        blocks_all++
    }
    if (!(file in known)) {
        known[file] = 1
        found[++found_files] = file
    }
}

END {
    print "| file | loops published (2.6.39, GCC 4.6) | loops | basic blocks | not counted |"
    print "|---|---|---|---|---|"
    for (i = 1; i <= files; i++) {
        file = order[i]
        row(file)
        listed[file] = 1
    }
    sort_found()
    for (i = 1; i <= found_files; i++)
        if (!(found[i] in listed) && loops[found[i]]) {
            row(found[i])
            listed[found[i]] = 1
        }
    for (i = 1; i <= found_files; i++)
        if (!(found[i] in listed)) {
            rest_files++
            rest_blocks += blocks[found[i]]
        }
    printf "| %d other files, basic blocks only | | | %d | |\n", rest_files, rest_blocks
    loop_files = 0
    for (file in loops) loop_files += loops[file] > 0
    printf "| all | %d in %d files | %d in %d files | %d | |\n",
        published_loops, files, loops_all, loop_files, blocks_all
}

function row(file) {
    if (file in why)
        printf "| `%s` | %s | | | %s |\n", file, published[file], why[file]
    else
        printf "| `%s` | %s | %s | %s | |\n", file, published[file], loops[file] + 0, \
            blocks[file] + 0
}

# Insertion sort: mawk has no asort.
function sort_found(   i, j, name) {
    for (i = 2; i <= found_files; i++) {
        name = found[i]
        for (j = i - 1; j >= 1 && found[j] > name; j--) found[j + 1] = found[j]
        found[j + 1] = name
    }
}
