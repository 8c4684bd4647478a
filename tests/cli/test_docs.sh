#!/bin/sh
# Links between the project's pages lead somewhere, and who checks them notices where one does not.
. "$ROOT/tests/cli/lib.sh"
if ! command -v python3 >/dev/null; then
    skip links "no python3"
    finish
fi
runs links 0 '^[0-9]+ links$' python3 "$ROOT/scripts/check_links.py" "$ROOT"
mkdir docs
printf '# A page\n\n[there](docs/b.md#two-words), [nowhere](docs/c.md)\n' >README.md
printf '## Two words\n\n[back](../README.md#a-page), [no heading](../README.md#page)\n' >docs/b.md
runs dead_file 1 'README.md: docs/c.md: there is no docs/c.md' python3 "$ROOT/scripts/check_links.py" .
is dead_heading grep -q 'docs/b.md: ../README.md#page: README.md has no such heading' out
is the_others_count grep -qx '2 of 4 links lead nowhere' out
finish
