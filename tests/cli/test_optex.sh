# Type OptEx: what the log counts, a set that takes a killed run back bit for bit, one point that is
# the rule, what is refused.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
plain="$CORTADO train --solver=solver.prototxt --set=test_interval=100000 --set=snapshot=0 --set=display=5"
train="$plain --set=type=OptEx"

runs plain 0 'Optimization Done' $plain --set=type=Nesterov --set=snapshot_prefix=p
rule=$(sum_of)
runs one_point 0 'a round of 1 steps of Nesterov, 20 in all' $train --set=optex.base_type=Nesterov --set=optex.parallel=1 --set=snapshot_prefix=p
is one_point_is_the_rule test "$(sum_of) of 20" = "$rule of 20"

for how in LAST "KERNEL --set=optex.noise=0.01"; do
    with="--set=optex.guard=false --set=optex.parallel=3 --set=optex.predictor=$how"
    runs whole 0 'a round of 3 steps of SGD, 60 in all' $train $with --set=snapshot_prefix=whole
    is counts_both grep -q 'OptEx: 16 rounds, 48 steps, 8 points known' out
    whole=$(sum_of)
    $train $with --set=snapshot_prefix=part --iterations=7 >out 2>&1 </dev/null
    runs goes_on 0 'resuming after 7 iterations' $train $with --set=snapshot_prefix=part --snapshot=part_iter_7.solverstate.h5
    is "resumes $how" test "$(sum_of) of 20" = "$whole of 20"
done

# a guard begins with one step a round; what it knows is in the set
with=--set=optex.parallel=4
runs guard 0 'OptEx: 1 rounds, 1 steps, 1 points known' $train $with --set=snapshot_prefix=guard
is tells_guard grep -q 'OptEx: [124] steps by [124] batches, noise share [01][.][0-9]*, cosines of estimates -*[01][.]' out
whole=$(sum_of)
$train $with --set=snapshot_prefix=guards --iterations=7 >out 2>&1 </dev/null
runs guard_goes_on 0 'resuming after 7 iterations' $train $with --set=snapshot_prefix=guards --snapshot=guards_iter_7.solverstate.h5
is guard_resumes test "$(sum_of) of 20" = "$whole of 20"

# as many ranks as divide the points: the same bits, tests and losses, from set to set, too
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
# near A B [PART]: losses differ by at most that part
near() {
    [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] && [ -s "$1" ] &&
        paste -d' ' "$1" "$2" | awk -v part="${3:-1e-6}" '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > part * $2) bad = 1 } END { exit bad }'
}
ranks="$CORTADO train --solver=solver.prototxt --set=type=OptEx --set=optex.guard=false --set=display=5 --set=test_interval=10 --set=optex.base_type=Adam \
    --set=base_lr=0.003 --set=checksum_interval=1 --set=snapshot=0"
runs one_rank 0 'Optimization Done' $ranks --set=test_iter=8 --set=snapshot_prefix=one --metrics=one.jsonl
whole=$(sum_of)
scores=$(grep -o 'accuracy = .*' out)
losses one.jsonl >l1
for n in 2 4; do
    runs ranks_$n 0 'a round of 4 steps of Adam' $JOB $n $ranks --set=test_iter=$((8 / n)) --set=snapshot_prefix=many$n --metrics=many.jsonl
    is ranks_${n}_are_one test "$(sum_of) of 20" = "$whole of 20"
    is tests_of_$n test "$(grep -o 'accuracy = .*' out)" = "${scores:-none}"
    losses many.jsonl >l
    is losses_of_$n near l1 l
    # of 8806 weights rank 0 sends gradients and weights to all others, and its share of all points but its first
    sent=$(sed -n 's/.*"event":"train","iter":15,.*"bytes_sent":\([0-9]*\).*/\1/p' many.jsonl)
    is bytes_of_$n awk "BEGIN { n = 4 * 8806 * ($n - 1) / $n * (4 / $n + 1 + 4 / $n); exit !($sent > 0.99 * n && $sent < 1.01 * n) }"
done
$JOB 4 $ranks --set=snapshot_prefix=moved --iterations=7 >out 2>&1 </dev/null
runs four_to_two 0 'resuming after 7 iterations, written by 4 ranks' $JOB 2 $ranks --set=snapshot_prefix=moved --snapshot=moved_iter_7.solverstate.h5
is four_to_two_is_one test "$(sum_of) of 20" = "$whole of 20"

# several ranks a point: each has a part of its batch, of labels that count and such that do not. Sums have another
# order then, so losses are those of one rank to rounding, which 20 rounds of Adam let grow
sed 's/bottom: "label" top: "loss"/& loss_param { ignore_label: 3 normalization: VALID }/' net.prototxt >parts.prototxt
sed 's/net.prototxt/parts.prototxt/' solver.prototxt >parts_solver.prototxt
parts="$CORTADO train --solver=parts_solver.prototxt --set=type=OptEx --set=optex.guard=false --set=display=5 --set=test_interval=100000 --set=optex.base_type=Adam \
    --set=base_lr=0.003 --set=checksum_interval=1 --set=snapshot=0 --set=optex.parallel=2 --global_batch_size=14"
is parts_ignores grep -q ignore_label parts.prototxt
runs point_of_one 0 'a round of 2 steps' $parts --set=snapshot_prefix=parts1 --metrics=parts1.jsonl
losses parts1.jsonl >l1
runs points_of_two 0 'a round of 2 steps' $JOB 4 $parts --set=snapshot_prefix=parts4 --metrics=parts4.jsonl
losses parts4.jsonl >l
is points_of_two_are_near near l1 l 1e-3
first() { head -n 1 "$1" >"$1.first"; }
first l1 && first l
is points_of_two_begin_alike near l1.first l.first 1e-5
$JOB 4 $parts --set=snapshot_prefix=parts4 --iterations=7 >out 2>&1 </dev/null
runs points_of_two_go_on 0 'resuming after 7 iterations, written by 4 ranks' $JOB 4 $parts --set=snapshot_prefix=parts4 --snapshot=parts4_iter_7.solverstate.h5 --metrics=again.jsonl
losses again.jsonl | tail -n 2 >l1
losses parts4.jsonl | tail -n 2 >l
is points_of_two_resume near l1 l 1e-12
# one point on two ranks is the rule on two ranks
runs plain_of_two 0 'Optimization Done' $JOB 2 $plain --set=snapshot_prefix=p
rule=$(sum_of)
runs one_point_of_two 0 'a round of 1 steps' $JOB 2 $train --set=optex.parallel=1 --set=snapshot_prefix=p
is one_point_of_two_is_the_rule test "$(sum_of) of 20" = "$rule of 20"

# a signal makes a set in the middle of many rounds
rm -f stop_iter*
$train --set=max_iter=100000 --set=snapshot_prefix=stop >stopped 2>&1 </dev/null &
job=$!
for _ in $(seq 600); do
    grep -q 'Iteration 20 ' stopped && break
    sleep 0.05
done
kill -TERM $job
wait $job
is signal_stops test $? = 75
at=$(ls stop_iter_*.solverstate.h5 | sed 's/[^0-9]*\([0-9]*\).*/\1/')
end=$((at + 6))
$train --set=max_iter=$end --set=snapshot_prefix=direct >out 2>&1 </dev/null
whole=$(sum_of)
runs after_signal 0 "resuming after $at iterations" $train --set=max_iter=$end --set=snapshot_prefix=stop --snapshot=auto
is resumes_after_signal test "$(sum_of) of $end" = "$whole of $end"

# each rank writes down what its points are fed
(cat net.prototxt && echo 'layer { name: "fed" type: "HDF5Output" bottom: "data" bottom: "label" include { phase: TRAIN }
  hdf5_output_param { file_name: "fed.h5" } }') >fed.prototxt
sed 's/net.prototxt/fed.prototxt/' solver.prototxt >fed_solver.prototxt
runs writes_down 0 'Optimization Done' $JOB 2 "$CORTADO" train --solver=fed_solver.prototxt --set=type=OptEx --set=optex.parallel=2 \
    --set=optex.guard=false --set=snapshot_prefix=fed --iterations=3
is file_of_each_rank test -s fed.h5.0 -a -s fed.h5.1 -a ! -e fed.h5

# passes over the data count its points
runs epochs 0 'samples, 36 a step, so max_iter is ' $train --set=max_epoch=1 --set=optex.parallel=3 --set=snapshot_prefix=e \
    --global_batch_size=12 --iterations=2

(cat solver.prototxt && echo 'type: "Optex"') >near.prototxt
runs refuses_place 2 'near.prototxt:6:1: type "Optex" is unknown; did you mean "OptEx"' "$CORTADO" train --solver=near.prototxt
(cat solver.prototxt && printf 'type: "OptEx"\noptex {\n  parallel: 99\n}\n') >many.prototxt
runs refuses_field 2 'many.prototxt:8:3: optex.parallel is 99, needs 1 to 64' "$CORTADO" train --solver=many.prototxt
runs refuses_ranks 2 '3 ranks do not share out 4 points evenly: .* or a multiple of it' $JOB 3 $train
echo 'parallel {}' >plan.prototxt
runs refuses_parallel 2 'type "OptEx" and --parallel do not go together' $train --parallel=plan.prototxt
runs refuses_zero 2 'type "OptEx" and memory \{ \} do not go together' $train --set=memory.zero=1
runs refuses_outer 2 'type "OptEx" and outer do not go together' $train --set=outer.local_iter=4
runs refuses_codecs 2 'type "OptEx" and compression do not go together' $train --compression=bf16
sed 's/name: "conv" type/param { compress { type: BF16 } } &/' net.prototxt >own.prototxt
sed 's/net.prototxt/own.prototxt/' solver.prototxt >own_solver.prototxt
runs refuses_compress 2 'OptEx and compress of conv' "$CORTADO" train --solver=own_solver.prototxt --set=type=OptEx
finish
