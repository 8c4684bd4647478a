#!/bin/sh
# Fails when an update rule is not everywhere where one has to be: what it does to an element, its
# row with its facts, its reference in the unit test, and the page for users.
# docs/contributing.md, "An update rule", lists these places.
# Usage: scripts/check_update_rules.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

math=framework/math/update_math.h
reference=tests/unit/framework/math/test_update.c
bad=0
miss() { # RULE WHAT
    echo "update rule $1: $2" >&2
    bad=1
}
row() { # NAME: its row in the list
    awk -v name="$1" '/^#define CT_UPDATE_LIST/ { list = 1; next } !list { next }
        /^ *X\(/ { mine = index($0, "X(" name ",") > 0 } mine { print } !/\\$/ { exit }' $math
}
listed=$(sed -n 's/^    X(\([a-z0-9_]*\),.*/\1/p' $math)
defined=$(sed -n 's/^CT_UPDATE_FN void ct_update_\([a-z0-9_]*\)_at(const ct_update \*u, int64_t i)$/\1/p' $math)
[ -n "$listed" ] && [ -n "$defined" ] || { echo 'no update rules found' >&2; exit 1; }

for r in $listed; do
    type=$(row "$r" | sed -n 's/.*\.type = "\([A-Za-z0-9]*\)".*/\1/p')
    echo "$defined" | grep -qx "$r" || miss "$r" "$math does not define ct_update_${r}_at()"
    [ -n "$type" ] || { miss "$r" "its row in $math has no .type"; continue; }
    for fact in n_state state_name formula source; do
        row "$r" | grep -q "\.$fact = " || miss "$r" "its row in $math has no .$fact"
    done
    grep -q "{ \"$type\", " $reference || miss "$r" "references[] of $reference has no row for \"$type\""
    sed -n '/^## Update rules/,$p' docs/config-reference.md | grep -q "^| \`$type\` |" ||
        miss "$r" "docs/config-reference.md has no row for \`$type\`: make docs"
done
for r in $defined; do
    echo "$listed" | grep -qx "$r" || miss "$r" "it is defined, CT_UPDATE_LIST in $math has it not"
done
exit $bad
