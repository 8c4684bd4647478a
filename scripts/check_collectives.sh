#!/bin/sh
# Fails when a collective is not everywhere where one has to be: its operations with its cost, its
# line in the table, and the page for users. docs/contributing.md, "A collective", lists these places.
# Usage: scripts/check_collectives.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

bad=0
miss() { # COLLECTIVE WHAT
    echo "collective $1: $2" >&2
    bad=1
}
members() { # COLLECTIVE: of its object of operations
    sed -n "/^const ct_coll_ops ct_coll_$1 = {/,/^};/p" comm/collective/*.c
}
listed=$(sed -n 's/^ *_do(\([a-z0-9_]*\)).*/\1/p' comm/collective/coll_types.h)
defined=$(sed -n 's/^const ct_coll_ops ct_coll_\([a-z0-9_]*\) = {/\1/p' comm/collective/*.c)
own=$(sed -n 's/^extern const ct_coll_ops ct_coll_\([a-z0-9_]*\);.*/\1/p' comm/collective/coll.h)
[ -n "$listed" ] && [ -n "$own" ] || { echo 'no collectives found' >&2; exit 1; }

for c in $listed; do
    members "$c" | grep -q "\.name = \"$c\"" ||
        miss "$c" "no comm/collective/*.c defines ct_coll_$c with this name"
    members "$c" | grep -q '\.cost = ' || miss "$c" "ct_coll_$c has no cost: the model cannot price it"
    grep -q "^| \`$c\` |" docs/collectives.md ||
        miss "$c" "the table of docs/collectives.md has no row for \`$c\`"
done
for c in $defined; do
    echo "$listed $own" | grep -qw "$c" ||
        miss "$c" 'it is defined, CT_COLLECTIVES in comm/collective/coll_types.h has it not'
done
exit $bad
