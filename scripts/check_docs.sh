#!/bin/sh
# Checks the pages of the documentation: no line is longer than 100 characters, the glossary has at
# most 60 terms, links between pages resolve, and sources that pages and comments name are there.
#   scripts/check_docs.sh [ROOT]
# Tables, blocks of code and the targets of links may be longer. So may a line that is one link, and
# the reports of docs/studies, which `cortado scale` writes.
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$scripts/..}"
LC_ALL=C
export LC_ALL
bad=0

pages=$(find README.md CHANGELOG.md docs models -name '*.md' ! -path 'docs/studies/*/*' 2>/dev/null | sort)
for page in $pages; do
    awk -v page="$page" '
        /^ *```/ { fenced = !fenced; next }
        fenced || /^    / || /^ *\|/ { next }
        {
            line = $0
            gsub(/\]\([^)]*\)/, "]", line)  # the target of a link
            gsub(/[\200-\277]/, "", line)   # bytes that continue a character of UTF-8
            if (length(line) > 100 && line !~ /^ *(\* )?!?\[[^]]*\][.,]?$/) {
                printf "%s:%d: %d characters, at most 100\n", page, NR, length(line)
                n++
            }
        }
        END { exit n > 0 }' "$page" || bad=1
done

glossary=docs/glossary.md
if [ -f $glossary ]; then
    terms=$(grep -c '^\* \*\*' $glossary || true)
    if [ "$terms" -eq 0 ] || [ "$terms" -gt 60 ]; then
        echo "$glossary: $terms terms, at least 1 and at most 60"
        bad=1
    fi
else
    echo "$glossary: missing"
    bad=1
fi

if command -v python3 >/dev/null; then
    python3 "$scripts/check_links.py" . || bad=1
    python3 "$scripts/check_sources.py" . || bad=1
    if [ -d packaging/site ]; then python3 packaging/site/pages.py build/site/pages || bad=1; fi
else
    echo "skip links and sources: no python3"
fi
exit $bad
