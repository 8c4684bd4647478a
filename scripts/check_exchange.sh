#!/bin/sh
# Keeps the exchange with other ranks small. docs/architecture.md lists its files, in the section
# "The exchange's files". Fails when one of them is missing, when its folders have a source that is
# not listed, when they have more than 1 330 lines together, or when a struct in one of the headers
# has more than 12 callbacks.
# Usage: scripts/check_exchange.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"
most_lines=1330
most_calls=12
page=docs/architecture.md
bad=0

complain() {
    echo "$1"
    bad=1
}

files=$(awk '/^##/ { on = ($0 ~ /^### The exchange.s files$/) } on' $page |
    grep -oE '`(framework|runtime)/(exchange/)?[a-z_]+\.[chu]+`' | tr -d '`' | sort -u)
[ -n "$files" ] || complain "$page lists no files of the exchange"
lines=0
for f in $files; do
    if [ -f "$f" ]; then
        lines=$((lines + $(wc -l <"$f")))
    else
        complain "$page lists $f, which is not there"
    fi
done
[ $lines -le $most_lines ] || complain "the exchange has $lines lines, $most_lines are allowed"

for f in $(find framework/exchange runtime/exchange -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort); do
    echo "$files" | grep -qxF "$f" || complain "$f is not among the exchange's files in $page"
done

for f in $files; do
    case $f in *.h) [ ! -f "$f" ] || awk -v most=$most_calls '
        /^(typedef )?struct [a-z_]+ \{/ { name = $0; sub(/^(typedef )?struct /, "", name); sub(/ .*/, "", name); n = 0 }
        name != "" { n += gsub(/\(\*[a-z_]+\)\(/, "") }
        /^\}/ { if (n > most) { print FILENAME ": " name " has " n " callbacks, " most " are allowed"; bad = 1 } name = "" }
        END { exit bad }' "$f" || bad=1 ;;
    esac
done
[ $bad -eq 0 ] || exit 1
echo "check: the exchange has $lines lines of $most_lines"
