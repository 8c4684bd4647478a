# Local steps: equal to plain training where they meet in every iteration, sets taken back bit for
# bit, tests on the last exchanged weights, bytes between groups, what is refused.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=display=1"
near() { # A B: the losses of two runs agree to 1e-4
    [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] && [ -s "$1" ] &&
        paste -d' ' "$1" "$2" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4 * $2) bad = 1 } END { exit bad }'
}
outer="--set=outer.local_iter=4"

# the mean of groups that meet in each iteration is that of all ranks, for linear rules
for rule in SGD Nesterov; do
    runs plain_$rule 0 'Optimization Done' $JOB 4 $train --set=type=$rule --metrics=m0.jsonl --set=snapshot_prefix=p
    losses m0.jsonl >l0
    for groups in 2 4; do
        runs each_step_${rule}_$groups 0 "$groups groups of" $JOB 4 $train --set=type=$rule --metrics=m.jsonl \
            --set=outer.local_iter=1 --set=outer.optimizer=SGD --set=outer.lr=1 --set=outer.groups=$groups --set=snapshot_prefix=p
        losses m.jsonl >l
        is losses_${rule}_$groups near l0 l
    done
done

# a set between two exchanges, or at one, takes a run back bit for bit; so does a signal's
for groups in 2 4; do
    with="$outer --set=outer.groups=$groups"
    runs whole_$groups 0 'Optimization Done' $JOB 4 $train $with --set=snapshot_prefix=whole --metrics=whole.jsonl
    whole=$(sum_of)
    losses whole.jsonl >lw
    for at in 6 8; do
        $JOB 4 $train $with --set=snapshot_prefix=part --iterations=$at >out 2>&1 </dev/null
        $JOB 4 $train $with --set=snapshot_prefix=part --snapshot=part_iter_$at.solverstate.h5 --metrics=part_$groups$at.jsonl >out 2>&1 </dev/null
        is resumes_${groups}_$at test "$(sum_of) of 20" = "$whole of 20"
        losses part_$groups$at.jsonl >lp
        tail -n "$(wc -l <lp)" lw | cmp -s - lp && ok losses_resumed_${groups}_$at || not_ok losses_resumed_${groups}_$at "$(paste lw lp)"
    done
done
is sum_is_there test -n "$whole"
topk="--set=outer.compression.type=TOPK --set=outer.compression.min_bytes=1024"
for how in "--set=outer.delay=1" "$topk --set=outer.compression.density=0.05" "$topk --set=outer.delay=1"; do
    with="$outer --set=outer.groups=2 $how"
    $JOB 4 $train $with --set=snapshot_prefix=whole >out 2>&1 </dev/null
    whole=$(sum_of)
    for at in 6 8; do
        $JOB 4 $train $with --set=snapshot_prefix=part --iterations=$at >out 2>&1 </dev/null
        runs goes_on_$at 0 "resuming after $at iterations" $JOB 4 $train $with --set=snapshot_prefix=part --snapshot=part_iter_$at.solverstate.h5
        is "resumes $how $at" test "$(sum_of) of 20" = "$whole of 20"
    done
done
# all of a difference by a codec is the difference
$JOB 4 $train $outer --set=outer.groups=4 --set=snapshot_prefix=part --metrics=dense.jsonl >out 2>&1 </dev/null
runs all_by_codec 0 'Optimization Done' $JOB 4 $train $outer --set=outer.groups=4 --set=snapshot_prefix=part --metrics=all.jsonl \
    $topk --set=outer.compression.density=1
losses dense.jsonl >l0
losses all.jsonl >l
is losses_by_codec near l0 l
with="$outer --set=outer.groups=4"
rm -f stop_iter* && $JOB 4 $train $with --set=max_iter=3001 --set=display=50 --set=test_interval=100000 --set=snapshot=0 \
    --set=snapshot_prefix=stop >stopped 2>&1 </dev/null &
job=$!
for _ in $(seq 600); do
    grep -q 'Iteration 50 ' stopped && break
    sleep 0.05
done
kill -TERM $job
wait $job
is signal_makes_a_set ls stop_iter_*.solverstate.h5
at=$(ls stop_iter_*.solverstate.h5 | sed 's/[^0-9]*\([0-9]*\).*/\1/')
end=$((at + 7))
rest="--set=max_iter=$end --set=display=50 --set=test_interval=100000 --set=snapshot=0"
$JOB 4 $train $with $rest --set=snapshot_prefix=direct >out 2>&1 </dev/null
whole=$(sum_of)
$JOB 4 $train $with $rest --set=snapshot_prefix=stop --snapshot=auto >out 2>&1 </dev/null
is resumes_after_signal test "$(sum_of) of $end" = "$whole of $end"

# others begin from the last exchanged weights: those of iteration 4 in a set of iteration 6
four="$CORTADO train --solver=solver.prototxt --set=test_interval=100000 --set=snapshot_prefix=four"
$JOB 4 $train $with --set=snapshot_prefix=four --iterations=4 >out 2>&1 </dev/null
exchanged=$(sum_of | cut -d' ' -f2)
$JOB 4 $train $with --set=snapshot_prefix=four --iterations=6 >out 2>&1 </dev/null
is set_has_the_exchanged test "$(sum_of)" = "6 $exchanged"
runs other_groups 0 'not of 2 groups of 2 ranks' $JOB 4 $train $outer --set=outer.groups=2 --set=snapshot_prefix=four \
    --snapshot=four_iter_6.solverstate.h5 --iterations=6
is other_groups_have_the_exchanged test "$(sum_of)" = "6 $exchanged"
runs other_ranks 0 'not of 3 groups of 1 ranks?' $JOB 3 $train $outer --set=outer.groups=3 --set=snapshot_prefix=four \
    --snapshot=four_iter_6.solverstate.h5 --iterations=6
is other_ranks_have_the_exchanged test "$(sum_of)" = "6 $exchanged"
runs without_outer 0 'resuming after 6 iterations, written by 4 ranks' $four --snapshot=four_iter_6.solverstate.h5 --iterations=6
is without_outer_has_the_exchanged test "$(sum_of)" = "6 $exchanged"
runs goes_on_without 0 'Optimization Done' $four --snapshot=four_iter_6.solverstate.h5
runs begins_from_plain 0 'Optimization Done' $JOB 4 $train $with --set=snapshot_prefix=four --snapshot=four_iter_20.solverstate.h5 --set=max_iter=24

# ranks of other groups, or with another delay, take nothing of their own: weights and momentum stay
# equal in each group from the first step on
moves() { # NAME FROM SETTING...: from a set of other groups
    name=$1 from=$2
    shift 2
    runs "$name" 0 'Optimization Done' $JOB 4 $train $outer --set=snapshot_prefix=moved --set=checksum_interval=1 \
        --snapshot=${from}_iter_6.solverstate.h5 "$@"
    is "${name}_is_said" grep -q 'the set is not of . groups' out
}
power="--set=outer.compression.type=POWERSGD --set=outer.compression.min_bytes=1024"
for groups in 4 2 1; do
    $JOB 4 $train $outer --set=outer.groups=$groups --set=snapshot_prefix=g$groups --iterations=6 $power >out 2>&1 </dev/null
done
moves four_to_two g4 --set=outer.groups=2 $power
moves two_to_four g2 --set=outer.groups=4 $power
moves four_to_one g4 --set=outer.groups=1 $power
moves two_to_one g2 --set=outer.groups=1
for delay in 0 1; do
    with="$outer --set=outer.groups=2 --set=checksum_interval=1 --set=test_interval=100000 --set=snapshot=0"
    $JOB 4 $train $with --set=outer.delay=$delay --set=snapshot_prefix=d$delay --iterations=6 >out 2>&1 </dev/null
    set_sum=$(sum_of)
    runs "from_delay_$delay" 0 "not of 2 groups of 2 ranks with delay $((1 - delay))" $JOB 4 $train $with --set=outer.delay=$((1 - delay)) \
        --set=snapshot_prefix=d --snapshot=d${delay}_iter_6.solverstate.h5 --iterations=6
    is "exchanged_of_delay_$delay" test "$(sum_of)" = "${set_sum:-none}"
    # a plain set of the same weights and states begins the same way
    runs "goes_on_from_delay_$delay" 0 'Optimization Done' $JOB 4 $train $with --set=outer.delay=$((1 - delay)) \
        --set=snapshot_prefix=d --snapshot=d${delay}_iter_6.solverstate.h5
    own=$(sum_of)
    $JOB 4 $train $with --set=outer.groups=4 --set=outer.delay=$delay --set=snapshot_prefix=d --iterations=6 \
        --snapshot=d${delay}_iter_6.solverstate.h5 >out 2>&1 </dev/null
    runs "by_others_$delay" 0 'with delay' $JOB 4 $train $with --set=outer.delay=$((1 - delay)) --set=snapshot_prefix=d \
        --snapshot=d_iter_6.solverstate.h5
    is "nothing_of_its_own_$delay" test "$(sum_of) of 20" = "$own of 20"
done
with="$outer --set=outer.groups=4"

# tests between exchanges are of the last exchanged weights, and move nothing
scores() { grep -A1 'Testing net' out | sed -n 's/.*accuracy = //p'; }
$JOB 4 $train $with --set=snapshot_prefix=t --set=test_interval=4 --iterations=4 >out 2>&1 </dev/null
at_four=$(grep -o 'accuracy = .*' out | tail -1)
$JOB 4 $train $with --set=snapshot_prefix=t --set=test_interval=6 --iterations=6 >out 2>&1 </dev/null
is tests_the_exchanged test "$(grep -o 'accuracy = .*' out | tail -1)" = "${at_four:-none}"
$JOB 4 $train $with --set=snapshot_prefix=t --set=test_interval=3 --set=checksum_interval=1 --set=snapshot=5 >out 2>&1 </dev/null
much=$(sum_of)
$JOB 4 $train $with --set=snapshot_prefix=t --set=test_interval=100000 --set=snapshot=0 >out 2>&1 </dev/null
is looking_moves_nothing test "$(sum_of) of 20" = "$much of 20"

# one exchange of four iterations sends what gradients send in each; with forward_overlap a display
# counts what has left by then, which is no whole number of steps
bytes() { sed -n 's/.*"event":"train","iter":8,.*"bytes_sent":\([0-9]*\),.*/\1/p' "$1"; }
few="--set=comm.forward_overlap=false --set=display=4 --iterations=9 --set=test_interval=100000 --set=snapshot=0 --set=snapshot_prefix=b --allreduce=rhd"
$JOB 2 $train $few --metrics=plain.jsonl >out 2>&1 </dev/null
$JOB 2 $train $few --set=outer.local_iter=4 --set=outer.groups=2 --metrics=local.jsonl >out 2>&1 </dev/null
is bytes_are_a_fourth test "$(($(bytes local.jsonl) * 4))" = "$(bytes plain.jsonl)"
$JOB 2 $train $few --set=outer.local_iter=4 --set=outer.groups=2 --metrics=topk.jsonl $topk \
    --set=outer.compression.density=0.05 >out 2>&1 </dev/null
is codec_sends_less test "$(($(bytes topk.jsonl) * 4))" -lt "$(bytes local.jsonl)"
$JOB 2 $train $few --set=outer.local_iter=4 --set=outer.groups=2 --set=outer.delay=1 --metrics=delay.jsonl >out 2>&1 </dev/null
is delay_sends_as_much test "$(bytes delay.jsonl)" = "$(bytes local.jsonl)"
runs rest_is_said 0 'max_iter 20 is no multiple of outer.local_iter 6: the last 2 iterations' $JOB 2 $train \
    --set=outer.local_iter=6 --set=outer.groups=2 --set=snapshot_prefix=b

refused() { # NAME PATTERN SETTING...
    name=$1 pattern=$2
    shift 2
    runs "refuses_$name" 2 "$pattern" $train "$@"
}
refused local_iter 'outer.local_iter is 0, needs at least 1' --set=outer.local_iter=0
refused groups 'outer.groups is -1, needs at least 0' --set=outer.groups=-1
refused uneven 'outer.groups is 3, but 1 ranks make no such groups' --set=outer.groups=3
refused lr 'outer.lr is 0, needs more than 0' --set=outer.lr=0
refused momentum 'outer.momentum is 1, needs 0 to below 1' --set=outer.momentum=1
refused delay 'outer.delay is 2, needs 0 or 1' --set=outer.delay=2
refused auto 'outer.compression: type AUTO tries codecs in steps' --set=outer.compression.type=AUTO
refused correction 'outer.compression: momentum_correction is for gradients' --set=outer.compression.type=REDSYNC \
    --set=outer.compression.momentum_correction=true
refused unused 'outer.compression: density means nothing to bf16' --set=outer.compression.type=BF16 --set=outer.compression.density=0.1
refused sgd_momentum 'optimizer SGD has none: take NESTEROV' --set=outer.optimizer=SGD --set=outer.momentum=0.5
with="--set=outer.local_iter=4"
refused zero 'outer and memory \{ zero \} do not go together' $with --set=memory.zero=1
refused average 'outer and average do not go together' $with --set=average.type=EMA
refused compression 'outer and compression do not go together' $with --compression=bf16
refused async 'outer and snapshot_async do not go together' $with --set=snapshot_async=true
refused states 'outer and memory \{ state: FILE \} do not go together' $with --set=memory.state=FILE
refused weights 'outer and memory \{ weights: FILE \} do not go together' $with --set=memory.weights=FILE
echo 'parallel {}' >plan.prototxt
refused parallel 'outer and --parallel do not go together' $with --parallel=plan.prototxt
sed 's/name: "conv" type/param { compress { type: BF16 } } &/' net.prototxt >own.prototxt
sed 's/net.prototxt/own.prototxt/' solver.prototxt >own_solver.prototxt
runs refuses_compress 2 'outer and compress of conv' "$CORTADO" train --solver=own_solver.prototxt $with
runs unlike_nodes 2 'nodes have 1 to 2 ranks' $JOB 3 $train $with --topology=map:001
runs one_a_node 0 '2 groups of 2 ranks meet every 4' $JOB 4 $train $with --topology=2x2 --set=snapshot_prefix=b
runs one_rank 0 '1 group of 1 rank ' $train $with --set=snapshot_prefix=b
finish
