#!/bin/sh
# Sizes of the sources outside tests. Fails where a function has more than 60 lines between its
# braces, where more than one file in 13 has fewer than 40 lines (a concept in pieces), or where more than
# 2 headers lie directly in comm/.
# Usage: scripts/check_sizes.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"
most_in_function=60
small=40
small_of=13
most_headers=2
bad=0

complain() {
    echo "$1"
    bad=1
}
sources() {
    find framework layers comm topology planner serve runtime library include cli \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort
}

# a definition opens and closes its braces in the first column: .clang-format has it so
sources | xargs awk -v most=$most_in_function '
    FNR == 1 { opened = 0 }
    /^\{$/ { opened = FNR }
    /^\}$/ && opened {
        if (FNR - opened - 1 > most) {
            print FILENAME ":" opened ": a function of " FNR - opened - 1 " lines, " most " are allowed"
            bad = 1
        }
        opened = 0
    }
    END { exit bad }' || bad=1

n_small=$(sources | xargs awk -v small=$small '
    function ended() { if (lines && lines < small) n++ }
    FNR == 1 { ended() }
    { lines = FNR }
    END { ended(); print n + 0 }')
most_small=$(($(sources | wc -l) / small_of))
[ "$n_small" -le $most_small ] ||
    complain "$n_small sources have fewer than $small lines, $most_small may: join those of one concept"
n_headers=$(find comm -maxdepth 1 -name '*.h' | wc -l)
[ "$n_headers" -le $most_headers ] || complain "comm has $n_headers headers directly in it, $most_headers may be"
[ $bad -eq 0 ] || exit 1
echo "check: $(sources | wc -l) sources, $n_small with fewer than $small lines"
