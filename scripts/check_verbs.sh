#!/bin/sh
# Fails when a verb is not everywhere where one has to be: its source, its row in the table, a test
# that runs it and a page that shows it. docs/contributing.md, "A verb", lists these places.
# Usage: scripts/check_verbs.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

bad=0
miss() { # VERB WHAT
    echo "verb $1: $2" >&2
    bad=1
}
listed=$(sed -n '/ct_verb_table\[\] = {/,/^};/s/^    { "\([a-z_]*\)",.*/\1/p' cli/verb.c)
defined=$(find cli -name 'verb_*.c' | sed 's#.*/verb_\([a-z_]*\)\.c#\1#' | sort)
[ -n "$listed" ] && [ -n "$defined" ] || { echo 'no verbs found' >&2; exit 1; }

for v in $listed; do
    cat cli/*/verb_"$v".c 2>/dev/null | grep -q "^ct_status ct_verb_$v(ct_call \*" ||
        miss "$v" "no cli/*/verb_$v.c defines ct_verb_$v()"
    grep -qE "(\\\$CORTADO\"?|cortado) $v( |\$)" tests/cli/test_*.sh ||
        miss "$v" "no tests/cli/test_*.sh runs it"
    grep -q "cortado $v " docs/*.md || miss "$v" "no page of docs shows \`cortado $v\`"
done
for v in $defined; do
    echo "$listed" | grep -qxF "$v" || miss "$v" 'it has a source, ct_verb_table in cli/verb.c has no row'
done
exit $bad
