#!/bin/sh
# cortado bench comm: runs, checks its sums, writes JSON, refuses nonsense.
. "$ROOT/tests/cli/lib.sh"

small="--sizes=4K,12 --repeat=3"
runs bench_two_ranks 0 '4 K .*\(' $JOB 2 "$CORTADO" bench comm $small --json=b.json
is bench_all_algorithms sh -c \
    'for a in mpi hier ring rhd impi; do [ $(grep -c "\"algorithm\":\"$a\"" b.json) = 2 ] || exit 1; done'
point='^."algorithm":"[a-z]+","bytes":[0-9]+,"us":[0-9.e-]+,"algbw_gbs":[0-9.e-]+,"busbw_gbs":[0-9.e-]+,.*"repeats":3,"correct":true,'
n_point=$(($(grep -c '"bytes":12,' b.json) * 2))
is bench_a_line_each sh -c "[ $n_point -ge 10 ] && [ \$(grep -Ec '$point' b.json) = $n_point ] && [ \$(wc -l <b.json) = $n_point ]"
if command -v python3 >/dev/null; then
    is bench_lines_are_json python3 -c 'import json, sys; [json.loads(line) for line in open("b.json")]'
    # at 2 ranks the bus bandwidth is the algorithm bandwidth, and both are bytes over time
    is bench_bandwidth python3 -c '
import json
for line in open("b.json"):
    p = json.loads(line)
    assert abs(p["algbw_gbs"] * p["us"] * 1e3 / p["bytes"] - 1) < 1e-6, p
    assert abs(p["busbw_gbs"] / p["algbw_gbs"] - 1) < 1e-6, p'
fi
runs bench_json_to_stdout 0 '^."algorithm":"hier","bytes":12,' $JOB 2 "$CORTADO" bench comm --sizes=12 --repeat=3 \
    --algorithm=mpi,hier --log=error --json
is bench_nothing_but_json sh -c '[ $(grep -vc "^{" out) = 0 ] && [ $(wc -l <out) = 2 ]'
runs bench_all 0 ' hier .* impi' $JOB 2 "$CORTADO" bench comm --sizes=12 --repeat=3 --algorithm=all
# the sums of layers that ranks share, by the transfers of a net: checked where they are timed
runs bench_transfer 0 '^."algorithm":"transfer","bytes":12,.*"correct":true,"ranks":3' $JOB 3 "$CORTADO" bench comm \
    --sizes=12,3K,1M --repeat=3 --algorithm=transfer --log=error --json
is bench_transfers sh -c '[ $(grep -c transfer out) = 3 ]'
runs bench_transfer_half 2 'transfer has no allgather' "$CORTADO" bench comm --kind=allgather --algorithm=transfer
runs bench_pretended 0 'synthetic 2x1' $JOB 2 "$CORTADO" bench comm $small --topology=2x1 --algorithms=hier
runs bench_one_rank 0 '12' "$CORTADO" bench comm $small --memory=plain

# the halves of sums: one with a half alone, parts that differ (12 bytes on two ranks), MPI's own
for kind in reduce_scatter allgather; do
    runs bench_$kind 0 "^$kind of floats, 2 ranks" $JOB 2 "$CORTADO" bench comm $small --kind=$kind
    is bench_${kind}_all grep -Eq ' mpi .*rhd .*hier ' out
done
runs bench_half_json 0 '"predicted_us":[0-9.e-]+,"kind":"allgather"' $JOB 2 "$CORTADO" bench comm \
    --sizes=4K --repeat=3 --kind=allgather --algorithm=rhd --json
if command -v python3 >/dev/null; then
    # each rank sends and gets half of the buffer
    is bench_half_bandwidth python3 -c '
import json
p = [json.loads(line) for line in open("out") if line[0] == "{"][0]
assert abs(2 * p["busbw_gbs"] / p["algbw_gbs"] - 1) < 1e-6, p'
fi
runs bench_no_half 2 'tree has no allgather' "$CORTADO" bench comm --kind=allgather --algorithm=tree
runs bench_unknown_half 2 'kind' "$CORTADO" bench comm --kind=alltoall
runs bench_bad_size 2 'expected sizes' "$CORTADO" bench comm --sizes=4K,
runs bench_odd_size 2 'whole floats' "$CORTADO" bench comm --sizes=7
runs bench_huge_size 2 'expected sizes' "$CORTADO" bench comm --sizes=999999G
runs bench_bad_algorithm 2 'unknown allreduce "rinq"; did you mean "ring"' "$CORTADO" bench comm --algorithm=rinq
runs bench_bad_option 2 'size' "$CORTADO" bench comm --size=4K
runs bench_bad_kind 2 'unknown kind "com"; did you mean "comm"' "$CORTADO" bench com
runs bench_bad_file 3 'nowhere' "$CORTADO" bench comm --sizes=12 --json=nowhere/b.json
# said before anything is timed
is bench_bad_file_early sh -c '! grep -q "allreduce of floats" out'

# the figures of the machine: a file that other runs read
runs bench_fit 0 '^node +0 +1 +[0-9.]+ +[0-9.]+' $JOB 2 "$CORTADO" bench comm --fit=m.prototxt
is bench_fit_file grep -q 'source: "cortado bench comm --fit' m.prototxt
runs bench_fit_reads_back 0 'm.prototxt' $JOB 2 "$CORTADO" bench comm --sizes=4K --repeat=3 --topology=m.prototxt \
    --algorithm=hier --json=p.json
is bench_prediction grep -Eq '"predicted_us":[0-9.e-]+,' p.json
is bench_fit_speed grep -q '^  speed: 1$' m.prototxt
runs bench_fit_info 0 '^node class (all|speed1):.* speed 1$' "$CORTADO" info --topology=m.prototxt
runs bench_fit_pretended 0 '^machine +0 +1 +[0-9.]+ +[0-9.]+' $JOB 2 "$CORTADO" bench comm --topology=2x1 --fit
is bench_fit_to_stdout grep -q '^  latency_us' out
runs bench_fit_alone 2 'start 2 or more' "$CORTADO" bench comm --fit
runs bench_fit_bad_file 3 'nowhere' $JOB 2 "$CORTADO" bench comm --fit=nowhere/m.prototxt
runs bench_help 0 'algorithm=NAME' "$CORTADO" bench comm --help
finish
