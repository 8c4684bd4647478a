#!/bin/sh
# The readers on made-up bytes, FUZZ_MINUTES (60), through ASan and UBSan: tests/fuzz/campaign.py.
# A second run goes on in RESULTS (build/fuzz/results.jsonl).
. "$ROOT/tests/cli/lib.sh"
command -v clang >/dev/null || {
    echo "skip fuzz: no clang"
    exit 0
}
results=${RESULTS:-$ROOT/build/fuzz/results.jsonl}
cd "$ROOT" || exit 1
is fuzz_programs make --no-print-directory fuzz-programs
python3 tests/fuzz/campaign.py "$results" --minutes="${FUZZ_MINUTES:-60}" >"$work/out" 2>&1
is no_fault_of_ours test $? = 0
cat "$work/out"
finish
