#!/bin/sh
# cortado bench comm: runs, checks its sums, writes JSON, refuses nonsense.
. "$ROOT/tests/cli/lib.sh"

small="--sizes=4K,12 --repeat=3"
runs bench_two_ranks 0 '4 K .*\(' $JOB 2 "$CORTADO" bench comm $small --json=b.json
is bench_all_algorithms sh -c \
    'for a in mpi hier ring rhd impi; do [ $(grep -c "\"algorithm\":\"$a\"" b.json) = 2 ] || exit 1; done'
is bench_sums_are_right sh -c \
    '[ $(grep -Ec "\"repeats\":3,\"median_ms\":[0-9.e-]+,.*\"correct\":true" b.json) = 10 ]'
command -v python3 >/dev/null && is bench_json_is_json python3 -m json.tool b.json /dev/null
runs bench_pretended 0 'synthetic 2x1' $JOB 2 "$CORTADO" bench comm $small --topology=2x1 --algorithms=hier
runs bench_one_rank 0 '12' "$CORTADO" bench comm $small --memory=plain
runs bench_bad_size 2 'expected sizes' "$CORTADO" bench comm --sizes=4K,
runs bench_odd_size 2 'whole floats' "$CORTADO" bench comm --sizes=7
runs bench_huge_size 2 'expected sizes' "$CORTADO" bench comm --sizes=999999G
runs bench_bad_algorithm 2 'unknown allreduce "rinq"' "$CORTADO" bench comm --algorithms=rinq
runs bench_bad_option 2 'size' "$CORTADO" bench comm --size=4K
runs bench_bad_kind 2 'bench comm' "$CORTADO" bench com
runs bench_bad_file 3 'nowhere' "$CORTADO" bench comm --sizes=12 --json=nowhere/b.json
runs bench_help 0 'algorithms' "$CORTADO" bench comm --help
finish
