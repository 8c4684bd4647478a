#!/bin/sh
# The pages of the documentation are as scripts/check_docs.sh wants them, and it notices where they
# are not: dead links, long lines, a glossary that has grown.
. "$ROOT/tests/cli/lib.sh"
if ! command -v python3 >/dev/null; then
    skip links "no python3"
    finish
fi
runs links 0 '^[0-9]+ links$' python3 "$ROOT/scripts/check_links.py" "$ROOT"
runs pages 0 '' "$ROOT/scripts/check_docs.sh"
mkdir docs
printf '# A page\n\n[there](docs/b.md#two-words), [nowhere](docs/c.md)\n' >README.md
printf '## Two words\n\n[back](../README.md#a-page), [no heading](../README.md#page)\n' >docs/b.md
# sources that pages and comments name
mkdir named
printf '/* see there.c, named/there.c and mpi.h; X.c and X_sim.cu stand for any */\nint x; /* "a.h"\n gone.h */\n' >named/there.c
printf 'char *s = "lost.c"; // by old/there.c\nint y = s.c;\n' >named/other.cu
printf '#!/bin/sh\ncat none.c # as away.sh does\n' >named/run.sh
printf '`there.c` and `missing.cuh`\n\n    named/other.cu and wrong/other.cu, and ${other.c} and *.c\n' >docs/n.md
runs named_sources 1 '^6 of 13 sources that are named are not there$' python3 "$ROOT/scripts/check_sources.py" .
for where in named/there.c:2:a.h named/there.c:3:gone.h named/other.cu:1:old/there.c named/run.sh:2:away.sh docs/n.md:1:missing.cuh docs/n.md:3:wrong/other.cu; do
    is "named_${where##*/}" grep -q "^${where%:*}: there is no ${where##*:}$" out
done
rm -r named docs/n.md
runs dead_file 1 'README.md: docs/c.md: there is no docs/c.md' python3 "$ROOT/scripts/check_links.py" .
is dead_heading grep -q 'docs/b.md: ../README.md#page: README.md has no such heading' out
is the_others_count grep -qx '2 of 4 links lead nowhere' out

rm -r docs README.md
mkdir -p docs/results
long=$(printf '%0101d' 0)
printf '# Terms\n\n* **Word**: one.\n' >docs/glossary.md
printf '# A page\n\n| %s |\n\n    %s\n\n```\n%s\n```\n\n[here](results/%s.md)\n' $long $long $long $long >docs/a.md
touch docs/results/$long.md
runs exceptions 0 '^1 links$' "$ROOT/scripts/check_docs.sh" .
umlauts=$(printf '%0100d' 0 | sed 's/0/ü/g')
echo "$umlauts" >docs/results/b.md
runs characters 0 '' "$ROOT/scripts/check_docs.sh" .
echo "$long" >docs/results/b.md
runs long_line 1 '^docs/results/b.md:1: 101 characters, at most 100$' "$ROOT/scripts/check_docs.sh" .
rm docs/results/b.md
for i in $(seq 60); do echo "* **Word $i**: one."; done >>docs/glossary.md
runs many_terms 1 '^docs/glossary.md: 61 terms, at least 1 and at most 60$' "$ROOT/scripts/check_docs.sh" .
rm docs/glossary.md
runs no_glossary 1 '^docs/glossary.md: missing$' "$ROOT/scripts/check_docs.sh" .
finish
