# Jobs of several ranks: the same numbers, resume, signals, failures of one rank, the watchdog.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
wait_for() {
    for _ in $(seq 600); do
        grep -q "$1" "$2" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}
# ranks_of WORD: process ids of the ranks whose command line holds WORD
ranks_of() {
    for d in /proc/[0-9]*; do
        [ "$(cat "$d/comm" 2>/dev/null)" = cortado ] || continue
        tr '\0' ' ' <"$d/cmdline" 2>/dev/null | grep -q -- "$1" && echo "${d#/proc/}"
    done
}
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12"

# equal global batch: equal losses, up to rounding
for n in 1 2 3 4; do
    runs ranks_$n 0 'Optimization Done' $JOB $n $train --metrics=m$n.jsonl --set=display=1 --set=snapshot_prefix=p$n
    losses m$n.jsonl >l$n
    if [ "$(wc -l <l$n)" = 20 ] && paste -d' ' l1 l$n | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4 * $2) bad = 1 } END { exit bad }'; then
        ok losses_of_$n
    else
        not_ok losses_of_$n "$(paste -d' ' l1 l$n | tail -3)"
    fi
done

# images_per_s counts the waiting for other ranks: it is the log's iter/s times the batch
$JOB 2 $train --iterations=1001 --set=display=1000 --set=test_interval=100000 --set=snapshot=0 \
    --set=checksum_interval=0 --set=snapshot_after_train=false --metrics=rate.jsonl >out 2>&1 </dev/null
of_log=$(sed -n 's/.*Iteration 1000 (\([0-9.e+]*\) iter.s.*/\1/p' out)
of_event=$(sed -n 's/.*"iter":1000,.*"images_per_s":\([0-9.e+]*\),.*/\1/p' rate.jsonl)
is rates_agree awk -v l="$of_log" -v e="$of_event" 'BEGIN { exit !(l > 0 && e > 0.7 * 12 * l && e < 1.3 * 12 * l) }'

# residuals are part of the state
topk="--compression=topk:density=0.05,min_bytes=1024"
$JOB 2 $train $topk --set=snapshot_prefix=whole >out 2>&1 </dev/null
whole=$(sum_of)
$JOB 2 $train $topk --set=snapshot_prefix=part --iterations=10 >out 2>&1 </dev/null
runs resumes_compressed 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $train $topk --set=snapshot_prefix=part --snapshot=auto
is compressed_is_exact test "$(sum_of) of 20" = "$whole of 20"
is compressed_sum_is_there test -n "$whole"
$JOB 2 $train $topk --set=snapshot_prefix=other --iterations=10 >out 2>&1 </dev/null
runs other_ranks 0 'residuals of 2 ranks' $JOB 3 $train $topk --set=snapshot_prefix=other --snapshot=auto

for a in impi ring rhd hier; do
    runs allreduce_$a 0 'Optimization Done' $JOB 3 $train --allreduce=$a --deterministic=false --set=snapshot_after_train=false --set=snapshot=0
done
runs pretended_nodes 0 '2 nodes' $JOB 4 $train --topology=2x2 --allreduce=hier --set=snapshot_after_train=false --set=snapshot=0
runs wrong_topology 2 '3x2' $JOB 4 $train --topology=3x2
is topology_said_once test "$(grep -c '^E' out)" = 1
runs scores_together 0 'accuracy = ' $JOB 2 "$CORTADO" test --model=net.prototxt --weights=p1_iter_20.caffemodel.h5 --iterations=2
runs times_together 0 'images/s' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=3 --limits=false --json=t.json
is json_of_time grep -Eq '"layers":\[\{"name":"in","type":"Data",("[a-z]+":[^,]+,)*"forward_ms":[0-9]' t.json

# start NAME OPTION...: a long run in the background, in ./NAME.log
start() {
    name=$1
    shift
    $JOB 2 $train --iterations=10000000 --set=display=100 --set=snapshot=0 --set=test_interval=100000000 --set=snapshot_prefix="$name" "$@" >"$name.log" 2>&1 </dev/null &
    pid=$!
    wait_for 'Iteration 100 ' "$name.log"
}
ends() { # NAME CODE...: one of these
    name=$1
    shift
    (sleep 60; kill -9 $pid 2>/dev/null) &
    guard=$!
    wait $pid
    rc=$?
    kill $guard 2>/dev/null
    cp "$name.log" out
    for want in "$@"; do
        [ $rc = "$want" ] && ok "$name" && return
    done
    not_ok "$name" "exit code $rc instead of $*"
}
start one_signal
kill -USR1 "$(ranks_of snapshot_prefix=one_signal | head -1)"
ends one_signal 75
is signal_left_a_set test -n "$(ls one_signal_iter_*.solverstate.h5 2>/dev/null)"

start killed_rank
kill -9 "$(ranks_of snapshot_prefix=killed_rank | tail -1)"
ends killed_rank 137 9
is nobody_is_left test -z "$(ranks_of snapshot_prefix=killed_rank)"

start watchdog --set=watchdog_seconds=2
stopped=$(ranks_of snapshot_prefix=watchdog | tail -1)
kill -STOP "$stopped"
ends watchdog 6
kill -CONT "$stopped" 2>/dev/null
is watchdog_warns grep -Eq '^W.*rank [01] on .*no progress for 1 s in ' out
is watchdog_names grep -Eq '^E.*rank [01] on .*no progress for 2 s in .*(bucket|waits)' out

# a rank that fails alone is the one that speaks; where each reads for itself
mkdir elsewhere
runs one_rank_fails 3 'rank 1 (on|says).*train_lmdb' $MPIRUN $MPIRUN_FLAGS -np 1 $train --set=node_reader=false : \
    -np 1 -wdir "$work/elsewhere" $train --set=node_reader=false
# rank 0 may repeat what it says; nobody says anything else
is it_alone_speaks test "$(grep -c '^E' out)" = "$(grep -Ec '^E.*rank 1 (on|says).*train_lmdb' out)"
finish
