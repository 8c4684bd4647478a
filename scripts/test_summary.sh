#!/bin/sh
# Adds up what run_test.sh noted and ends with "N passed, N failed". Exits 1 where a test failed.
set -eu
results=$1
ls "$results"/*.count >/dev/null 2>&1 || { echo "no test ran"; echo "0 passed, 0 failed"; exit 0; }
cat "$results"/*.count 2>/dev/null | {
    pass=0 fail=0 skip=0
    while read -r p f s; do
        pass=$((pass + p)) fail=$((fail + f)) skip=$((skip + s))
    done
    [ "$skip" = 0 ] || echo "$skip skipped"
    echo "$pass passed, $fail failed"
    [ "$fail" = 0 ]
}
