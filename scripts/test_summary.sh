#!/bin/sh
# Adds up what run_test.sh noted, names what skipped, and ends with "N passed, N failed". Exits 1 where
# a test failed.
set -eu
results=$1
ls "$results"/*.count >/dev/null 2>&1 || { echo "no test ran"; echo "0 passed, 0 failed"; exit 0; }
cat "$results"/*.count 2>/dev/null | {
    pass=0 fail=0 skip=0
    while read -r p f s; do
        pass=$((pass + p)) fail=$((fail + f)) skip=$((skip + s))
    done
    [ "$skip" = 0 ] || echo "$skip skipped:"
    cat "$results"/*.skip 2>/dev/null | awk -F '\t' '
        { key = $1 FS $3; if (!(key in names)) order[++n] = key; names[key] = names[key] " " $2 }
        END { for (i = 1; i <= n; i++) { split(order[i], k, FS); print "    " k[1] ":" names[order[i]] (k[2] == "" ? "" : " (" k[2] ")") } }'
    echo "$pass passed, $fail failed"
    [ "$fail" = 0 ]
}
