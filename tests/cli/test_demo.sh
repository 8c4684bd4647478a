# `make demo` in small: what it shows and what it keeps.
. "$ROOT/tests/cli/lib.sh"
export ITERATIONS=120 FOLDER=kept MPIRUN MPIRUN_FLAGS
runs demo 0 'top-k, density 0.01' "$ROOT/scripts/demo.sh"
# untrained, one digit in ten is right
is demo_learns awk '/^dense|^top-k/ { for (i = 1; i <= NF; i++) if ($i == "%" && $(i - 1) > 50) n++ } END { exit n != 2 }' out
is demo_compresses awk '/^dense/ { d = $(NF - 1) } /^top-k/ { c = $(NF - 1) } END { exit !(c > 0 && c < d / 10) }' out
# the step's time, the wait and the coding are there, and the words below agree with them
is demo_times awk '/^dense/ { for (i = 1; i <= NF; i++) if ($i == "ms") d[++n] = $(i - 1) }
    /^top-k/ { for (i = 1; i <= NF; i++) if ($i == "ms") c[++m] = $(i - 1) }
    END { exit !(n == 3 && m == 3 && d[1] > 0 && c[1] > 0 && d[3] == 0 && c[3] > 0) }' out
is demo_says_why awk '/^top-k/ { for (i = 1; i <= NF; i++) if ($i == "ms") { c = $(i - 1); break } }
    /^dense/ { for (i = 1; i <= NF; i++) if ($i == "ms") { d = $(i - 1); break } }
    /On one machine compression costs time/ { costs = 1 } /here compression did not cost time/ { not_here = 1 }
    END { exit !((c > d + 0.01) ? costs : (c < d - 0.01) ? not_here : costs || not_here) }' out
is demo_keeps test -s kept/dense.log -a -s kept/compressed.log -a -s kept/dense.jsonl -a -s kept/compressed.jsonl
is demo_keeps_its_table grep -q '^top-k, density 0.01' kept/table.txt
is demo_says_where grep -q "^Kept in $PWD/kept: curves.html" out
# a page with both runs
if python3 -c '' 2>/dev/null; then
    is curves_are_drawn env PYTHONPATH="$ROOT/tests/cli" python3 -c "
from page_of import Page
p = Page('kept/curves.html')
p.alone()
assert p.charts[0] == 'loss' and 'accuracy' in p.charts, p.charts
assert p.table('runs')[''] == ['dense.jsonl', 'compressed.jsonl'], p.table('runs')
"
else
    skip curves_are_drawn "no Python"
fi
# over what is there, which must go: shorter
runs demo_again 0 'top-k, density 0.01' env ITERATIONS=8 "$ROOT/scripts/demo.sh"
is demo_again_is_new sh -c 'test "$(grep -c \"event\":\"run\" kept/dense.jsonl)" = 1'

finish
