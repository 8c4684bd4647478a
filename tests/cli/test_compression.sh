# Gradient compression from the command line: momentum correction, resume, what is refused and why.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12"
red="--compression=redsync:density=0.05,min_bytes=1024"

# ---- everything sent always is plain SGD; so is a warm-up that does not end
$JOB 2 $train --metrics=dense.jsonl --set=display=1 --set=snapshot_prefix=d >out 2>&1 </dev/null
losses dense.jsonl >dense
near() { # NAME FILE [DENSE]: the same losses up to rounding
    losses "$2" >l
    if [ "$(wc -l <l)" = 20 ] && paste -d' ' ${3:-dense} l | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4 * $2) bad = 1 } END { exit bad }'; then
        ok "$1"
    else
        not_ok "$1" "$(paste -d' ' ${3:-dense} l | tail -3)"
    fi
}
for e in allgather hier gtopk oktopk dense; do
    runs all_sent_by_$e 0 'Optimization Done' $JOB 2 $train --deterministic=false --metrics=$e.jsonl --set=display=1 --set=snapshot_prefix=a \
        --compression=redsync:density=1,min_bytes=1024,mask_momentum=false,wire=pairs,exchange=$e
    near all_sent_by_${e}_is_dense $e.jsonl
done
runs warms_up 0 'Optimization Done' $JOB 2 $train --metrics=warm.jsonl --set=display=1 --set=snapshot_prefix=w $red,warmup_iter=20
near warm_up_is_dense warm.jsonl
# a warm-up in which the density falls: the report tells it apart, and check says what it sends
runs warm_up_falls 0 'warm-up: the density of [12] parameters? falls from 0.5 to 0.05 in 15 iterations' $JOB 2 $train --metrics=fall.jsonl \
    --set=display=1 --set=snapshot_prefix=wf $red,warmup_iter=15,warmup_density=0.5
is warm_up_is_reported grep -Eq 'density [0-9.]+ % in the warm-up, then 5(\.0[0-9]*)? %' out
is density_falls sh -c "sed -n 's/.*\"density\":\([0-9.e-]*\),\"filled\".*/\1/p' fall.jsonl | head -20 | awk '{ if (NR > 1 && NR < 17 && !(\$1 < last)) bad = 1; last = \$1 } NR == 1 && !(\$1 > 0.45) { bad = 1 } NR == 17 && !(\$1 < 0.06) { bad = 1 } END { exit bad || NR < 20 }'"
runs check_knows_warm_up 0 'warm-up +[0-9.]+ MiB a rank in iteration 0; the density falls until iteration 15' "$CORTADO" check --solver=solver.prototxt \
    --ranks=2 $red,warmup_iter=15,warmup_density=0.5
runs alone 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --global_batch_size=12 --metrics=one.jsonl \
    --set=display=1 --set=snapshot_prefix=o --compression=redsync:density=1,min_bytes=1024,mask_momentum=false,wire=pairs
near alone_is_dense one.jsonl
# Nesterov's momentum, which makes other steps
nesterov="--set=type=Nesterov"
$JOB 2 $train $nesterov --metrics=ndense.jsonl --set=display=1 --set=snapshot_prefix=nd >out 2>&1 </dev/null
losses ndense.jsonl >dense_nesterov
is nesterov_is_another sh -c "paste -d' ' dense dense_nesterov | awk '{ d = \$2 - \$4; if (d < 0) d = -d; if (d > 1e-2 * \$2) other = 1 } END { exit !(other && NR == 20) }'"
for e in allgather hier; do
    runs nesterov_all_sent_by_$e 0 'Optimization Done' $JOB 2 $train $nesterov --metrics=n$e.jsonl --set=display=1 --set=snapshot_prefix=na \
        --compression=redsync:density=1,min_bytes=1024,mask_momentum=false,wire=pairs,exchange=$e
    near nesterov_all_sent_by_${e}_is_dense n$e.jsonl dense_nesterov
done
runs nesterov_warms_up 0 'Optimization Done' $JOB 2 $train $nesterov --metrics=nwarm.jsonl --set=display=1 --set=snapshot_prefix=nw \
    $red,warmup_iter=20
near nesterov_warm_up_is_dense nwarm.jsonl dense_nesterov

# ---- a run that was stopped in the middle goes on, also in the momentum, and where the rate changes just then
for e in allgather gtopk nesterov; do
    case $e in nesterov) rule="exchange=hier $nesterov" ;; *) rule="exchange=$e" ;; esac
    with="$red,warmup_iter=3,resync_iter=7,$rule --set=lr_policy=step --set=gamma=0.1 --set=stepsize=10"
    $JOB 2 $train $with --set=snapshot_prefix=whole >out 2>&1 </dev/null
    whole=$(sum_of)
    is sum_is_there_$e test -n "$whole"
    is dense_was_measured_$e grep -Eq 'ms (less|more) than dense took' out # not what the machine's model has for it
    $JOB 2 $train $with --set=snapshot_prefix=part_$e --iterations=10 >out 2>&1 </dev/null
    runs resumes_$e 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $train $with --set=snapshot_prefix=part_$e --snapshot=auto
    is resumes_exactly_$e test "$(sum_of) of 20" = "$whole of 20"
    is nothing_moves_$e sh -c '! grep -q "travel otherwise" out'
done
for e in allgather hier gtopk; do # in the middle of a fall
    with="$red,exchange=$e,warmup_iter=15,warmup_density=0.4"
    $JOB 3 $train $with --set=snapshot_prefix=fall >out 2>&1 </dev/null
    whole=$(sum_of)
    $JOB 3 $train $with --set=snapshot_prefix=fall_$e --iterations=7 >out 2>&1 </dev/null
    runs resumes_fall_$e 0 'resuming after 7 iterations, written by 3 ranks' $JOB 3 $train $with --set=snapshot_prefix=fall_$e --snapshot=auto
    is resumes_fall_exactly_$e test "$(sum_of) of 20" = "$whole of 20"
done
# between nodes of one rank each an allgather, whatever costs least: Ok-Topk's regions are in no snapshot
with="--compression=redsync:density=0.3,min_bytes=1024,exchange=hier --topology=6x1"
$JOB 6 $train $with --set=snapshot_prefix=nodes >out 2>&1 </dev/null
whole=$(sum_of)
is sum_is_there_nodes test -n "$whole"
$JOB 6 $train $with --set=snapshot_prefix=nodes_part --iterations=10 >out 2>&1 </dev/null
runs resumes_nodes 0 'resuming after 10 iterations, written by 6 ranks' $JOB 6 $train $with --set=snapshot_prefix=nodes_part --snapshot=auto
is resumes_nodes_exactly test "$(sum_of) of 20" = "$whole of 20"
# killed in the middle, and resumed by other numbers of ranks: the curve goes on
$JOB 2 $train $red --set=snapshot_prefix=kill --set=snapshot=10 --iterations=100000 --set=test_interval=1000000 >killed 2>&1 </dev/null &
pid=$!
for _ in $(seq 600); do
    [ -f kill_iter_20.solverstate.h5 ] && break
    sleep 0.05
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
# the curve that it goes on with is that of a run that nobody killed: exactly on the same ranks; on others,
# where other elements are selected, to a twentieth in the mean of 40 iterations
$JOB 2 $train $red --set=snapshot_prefix=alive --iterations=60 --set=display=1 --set=average_loss=1 --metrics=alive.jsonl >out 2>&1 </dev/null
losses alive.jsonl | awk '$1 > 20' >alive
for n in 1 2 3; do
    mkdir -p n$n
    cp kill_iter_20.* n$n/ 2>/dev/null
    runs resumes_on_$n 0 'resuming after 20 iterations' $JOB $n $train $red --set=snapshot_prefix=n$n/kill --snapshot=n$n/kill_iter_20.solverstate.h5 \
        --iterations=60 --set=display=1 --set=average_loss=1 --metrics=n$n.jsonl
    losses n$n.jsonl | awk '$1 > 20' >l$n
    is curve_on_$n awk -v n=$n 'NR == FNR { a[$1] = $2; s += $2; next } !($1 in a) || $2 != $2 { bad = 1 } { t += $2; same += ($2 == a[$1]); m += 1 }
        END { d = (t - s) / s; exit bad || m != length(a) || m < 39 || d > 0.05 || d < -0.05 || (n == 2 && same != m) }' alive l$n
done
# a snapshot of a dense run, and back
all="--compression=redsync:density=1,min_bytes=1024,mask_momentum=false,wire=pairs"
as_dense() { # NAME DENSE FILE: the second half of the losses
    losses "$3" >l
    is "$1" sh -c "tail -n 10 $2 | paste -d' ' - l | awk '{ n++; d = \$2 - \$4; if (d < 0) d = -d; if (\$1 != \$3 || d > 1e-4 * \$2) bad = 1 } END { exit bad || n != 10 }'"
}
over_and_back() { # NAME DENSE OPTION...
    rule=$1 as=$2
    shift 2
    $JOB 2 $train "$@" --set=snapshot_prefix=half$rule --iterations=10 >out 2>&1 </dev/null
    runs dense_to_coded$rule 0 'Optimization Done' $JOB 2 $train "$@" --set=snapshot_prefix=half$rule --snapshot=half${rule}_iter_10.solverstate.h5 \
        --metrics=dc$rule.jsonl --set=display=1 $all
    as_dense momentum_goes_over$rule $as dc$rule.jsonl
    $JOB 2 $train "$@" --set=snapshot_prefix=back$rule --iterations=10 $all >out 2>&1 </dev/null
    runs coded_to_dense$rule 0 'Optimization Done' $JOB 2 $train "$@" --set=snapshot_prefix=back$rule --snapshot=back${rule}_iter_10.solverstate.h5 \
        --metrics=cd$rule.jsonl --set=display=1
    as_dense momentum_comes_back$rule $as cd$rule.jsonl
}
over_and_back "" dense
over_and_back _nesterov dense_nesterov $nesterov

# ---- codecs of sums, of signs and of thin factors
for codec in fp16:min_bytes=1024 onebit:min_bytes=1024 powersgd:min_bytes=1024,rank=4; do
    kind=${codec%%:*}
    runs ${kind}_trains 0 'Optimization Done' $JOB 3 $train --compression=$codec --set=snapshot_prefix=x_$kind --metrics=$kind.jsonl --set=display=1
    losses $kind.jsonl >l_$kind
    # as good as dense over the last ten, within a fifth; the cast is within its rounding all along
    is ${kind}_learns sh -c "paste -d' ' dense l_$kind | awk '{ n++; if (NR > 10) { a += \$2; b += \$4 } if (\$1 != \$3 || \$4 != \$4) bad = 1 } END { exit !(n == 20 && !bad && b < 1.2 * a) }'"
done
is fp16_is_dense sh -c "paste -d' ' dense l_fp16 | awk '{ d = \$2 - \$4; if (d < 0) d = -d; if (d > 1e-2 * \$2) bad = 1 } END { exit bad || NR != 20 }'"
is powersgd_reports grep -q 'compression of ip.0., .* (powersgd, ' out
for codec in onebit powersgd; do
    with="--compression=$codec:min_bytes=1024,warmup_iter=3,resync_iter=7"
    $JOB 2 $train $with --set=snapshot_prefix=whole_$codec >out 2>&1 </dev/null
    whole=$(sum_of)
    is sum_is_there_$codec test -n "$whole"
    $JOB 2 $train $with --set=snapshot_prefix=part_$codec --iterations=10 >out 2>&1 </dev/null
    for n in 1 3; do
        mkdir -p $codec$n
        cp part_${codec}_iter_10.* $codec$n/
    done
    runs resumes_$codec 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $train $with --set=snapshot_prefix=part_$codec --snapshot=auto
    is resumes_exactly_$codec test "$(sum_of) of 20" = "$whole of 20"
    for n in 1 3; do
        runs resumes_${codec}_on_$n 0 'resuming after 10 iterations' $JOB $n $train $with --set=snapshot_prefix=$codec$n/part --set=display=1 \
            --set=average_loss=1 --snapshot=$codec$n/part_${codec}_iter_10.solverstate.h5 --metrics=$codec$n.jsonl
        losses $codec$n.jsonl >l$n
        is curve_of_${codec}_on_$n awk '{ n += 1; s += $2; if ($2 != $2) bad = 1 } END { exit !(n == 10 && !bad && s / n < 2.4) }' l$n
    done
done
# ---- integers between nodes of one rank: as good as dense, also of another rule, with a limit of the norm, in halves of a batch
near_dense() { # NAME FILE DENSE SHARE: each loss within SHARE of the dense one
    losses "$2" >l
    is "$1" sh -c "paste -d' ' $3 l | awk '{ d = \$2 - \$4; if (d < 0) d = -d; if (\$1 != \$3 || \$4 != \$4 || d > $4 * \$2) bad = 1 } END { exit bad || NR != 20 }'"
}
as_dense_int() { # NAME SHARE RANKS OPTION...
    case_of=$1 share=$2 n=$3
    shift 3
    $JOB $n $train "$@" --metrics=di_$case_of.jsonl --set=display=1 --set=snapshot_prefix=di >out 2>&1 </dev/null
    losses di_$case_of.jsonl >dense_$case_of
    for k in int8 int4; do
        case $k in int8) most=$share ;; *) most=0.3 ;; esac
        runs ${k}_${case_of}_trains 0 'Optimization Done' $JOB $n $train "$@" --compression=$k:min_bytes=1024 --metrics=$k.jsonl --set=display=1 \
            --set=snapshot_prefix=i_$k
        near_dense ${k}_${case_of}_is_near_dense $k.jsonl dense_$case_of $most
    done
}
as_dense_int plain 0.05 4 --topology=4x1
is int4_reports_hops grep -q 'compression of ip.0., .* (int4, two hops): ' out
as_dense_int nodes 0.05 4 --topology=2x2
as_dense_int adam 0.05 2 --topology=2x1 --set=type=Adam --set=base_lr=0.001
as_dense_int clips 0.05 2 --topology=2x1 --set=clip_gradients=0.5
as_dense_int halves 0.05 2 --topology=2x1 --set=iter_size=2
# what 8640 elements of ip's weights take, of 4 bytes each: one a byte, and 4 for each 256
runs int8_counts 0 'compression of ip.0., 8640 elements .int8, two hops.: 8.776 of 34.56 KB' $JOB 2 $train --topology=2x1 --set=snapshot_prefix=ib \
    --compression=int8:min_bytes=1024
runs int8_on_one_node 0 'compression of ip.0., .* .int8, one node.: 17.41 of 34.56 KB' $JOB 2 $train --topology=1x2 --set=snapshot_prefix=io \
    --compression=int8:min_bytes=1024
# error feedback is resumed exactly, on other numbers of ranks nothing is lost
with="--compression=int4:min_bytes=1024,error_feedback=true,warmup_iter=3,resync_iter=7"
$JOB 2 $train $with --topology=2x1 --set=snapshot_prefix=whole_int >out 2>&1 </dev/null
whole=$(sum_of)
is sum_is_there_int4 test -n "$whole"
$JOB 2 $train $with --topology=2x1 --set=snapshot_prefix=part_int --iterations=10 >out 2>&1 </dev/null
mkdir -p int3
cp part_int_iter_10.* int3/
runs resumes_int4 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $train $with --topology=2x1 --set=snapshot_prefix=part_int --snapshot=auto
is resumes_exactly_int4 test "$(sum_of) of 20" = "$whole of 20"
runs resumes_int4_on_3 0 'resuming after 10 iterations' $JOB 3 $train $with --topology=3x1 --set=snapshot_prefix=int3/part \
    --snapshot=int3/part_int_iter_10.solverstate.h5
# ---- beside rules that have no momentum to correct, and with a limit of the norm: everything sent always is dense
sent_whole() { # NAME OPTION...
    case_of=$1
    shift
    $JOB 2 $train "$@" --metrics=d_$case_of.jsonl --set=display=1 --set=snapshot_prefix=dw >out 2>&1 </dev/null
    losses d_$case_of.jsonl >dense_$case_of
    for e in topk redsync:momentum_correction=false; do
        kind=${e%%:*} more=$(echo "$e" | sed -n 's/.*:/,/p')
        runs ${kind}_${case_of}_trains 0 'Optimization Done' $JOB 2 $train "$@" --metrics=w_$kind.jsonl --set=display=1 --set=snapshot_prefix=ws \
            --compression=$kind:density=1,min_bytes=1024,wire=pairs$more
        near ${kind}_all_sent_is_dense_with_$case_of w_$kind.jsonl dense_$case_of
    done
}
sent_whole adam --set=type=Adam --set=base_lr=0.001
sent_whole adamw --set=type=AdamW --set=base_lr=0.001 --set=clip_gradients=0.5
sent_whole clip --set=clip_gradients=0.5
for codec in redsync:density=0.05 powersgd:rank=4 onebit:warmup_iter=5,freeze_variance=false; do
    runs ${codec%%:*}_beside_adam 0 'Optimization Done' $JOB 2 $train --compression=$codec,min_bytes=1024 --set=type=AdamW --set=base_lr=0.001 \
        --set=clip_gradients=0.5 --metrics=beside.jsonl --set=display=1 --set=snapshot_prefix=ba
    losses beside.jsonl >l
    is ${codec%%:*}_beside_adam_learns awk 'NR <= 5 { first += $2 } NR > 15 { last += $2 } $2 != $2 { bad = 1 } END { exit !(NR == 20 && !bad && last < first) }' l
done
runs feedback_clips 0 'Gradient clipping: scaling down' $JOB 2 $train --topology=2x1 --compression=int4:min_bytes=1024,error_feedback=true \
    --set=clip_gradients=0.01 --set=snapshot_prefix=fb
runs residual_clips 0 'Gradient clipping: scaling down' $JOB 2 $train --compression=topk:density=0.05,min_bytes=1024 --set=clip_gradients=0.01 \
    --set=snapshot_prefix=rc
with="--compression=topk:density=0.05,min_bytes=1024,resync_iter=7 --set=type=AdamW --set=base_lr=0.001 --set=clip_gradients=0.5"
$JOB 2 $train $with --set=snapshot_prefix=whole_adam >out 2>&1 </dev/null
whole=$(sum_of)
is sum_is_there_adam test -n "$whole"
$JOB 2 $train $with --set=snapshot_prefix=part_adam --iterations=10 >out 2>&1 </dev/null
runs resumes_adam 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $train $with --set=snapshot_prefix=part_adam --snapshot=auto
is resumes_exactly_adam test "$(sum_of) of 20" = "$whole of 20"
# AUTO takes them where it is told to
runs auto_takes_int8 0 'Optimization Done' $JOB 2 $train --topology=2x1 --compression=auto:min_bytes=1024,among=INT8,among=INT4 --set=snapshot_prefix=ia
# whose regions are not kept, and what AUTO takes by the model of a slow network, on other numbers of ranks
cat >slow.prototxt <<'EOF'
name: "slow" sum_gbs: 10
level { name: "node" size: 4 latency_us: 20 bandwidth_gbs: 0.0001 }
level { name: "machine" latency_us: 20 bandwidth_gbs: 0.0001 }
EOF
other_ranks() { # NAME OPTION...
    resumed=$1
    shift
    $JOB 2 $train "$@" --set=snapshot_prefix=some_$resumed --iterations=10 >out 2>&1 </dev/null
    for n in 1 2 3; do
        mkdir -p $resumed$n
        cp some_${resumed}_iter_10.* $resumed$n/
        runs resumes_${resumed}_on_$n 0 'resuming after 10 iterations' $JOB $n $train "$@" --set=snapshot_prefix=$resumed$n/some --set=display=1 \
            --set=average_loss=1 --snapshot=$resumed$n/some_${resumed}_iter_10.solverstate.h5 --metrics=$resumed$n.jsonl
        losses $resumed$n.jsonl >l$n
        is curve_of_${resumed}_on_$n awk '{ n += 1; s += $2; if ($2 != $2) bad = 1 } END { exit !(n == 10 && !bad && s / n < 2.4) }' l$n
    done
}
other_ranks oktopk --deterministic=false $red,exchange=oktopk
other_ranks gtopk $red,exchange=gtopk
other_ranks hier $red,exchange=hier
# U and V add up to the same on any number of ranks: where everything is sent from there on, all make the same steps
for e in gtopk hier; do
    for n in 2 1 3; do
        mkdir -p all_$e$n
        cp some_${e}_iter_10.* all_$e$n/
        $JOB $n $train $all,exchange=$e --set=snapshot_prefix=all_$e$n/some --set=display=1 --set=average_loss=1 \
            --snapshot=all_$e$n/some_${e}_iter_10.solverstate.h5 --metrics=all_$e$n.jsonl >out 2>&1 </dev/null
        losses all_$e$n.jsonl >all_$e$n.losses
        [ $n = 2 ] || as_dense nothing_lost_of_${e}_on_$n all_${e}2.losses all_$e$n.jsonl
    done
done
# a run that keeps nothing, by itself or because AUTO finds dense faster, takes what was not sent
for way in none auto:density=0.05,min_bytes=1024; do
    kind=${way%%:*}
    for n in 1 2 3; do
        mkdir -p to_$kind$n
        cp some_oktopk_iter_10.* to_$kind$n/
        runs ${kind}_takes_residuals_on_$n 0 'what was not sent goes to the weights' $JOB $n $train --compression=$way --set=snapshot_prefix=to_$kind$n/some \
            --set=comm.tune_iterations=0 --set=display=1 --set=average_loss=1 --snapshot=to_$kind$n/some_oktopk_iter_10.solverstate.h5 --metrics=to_$kind$n.jsonl
        losses to_$kind$n.jsonl >l$n
        is curve_of_${kind}_on_$n awk '{ n += 1; s += $2; if ($2 != $2) bad = 1 } END { exit !(n == 10 && !bad && s / n < 2.4) }' l$n
    done
done
# what is still on its way to the weights when a dense run is stopped goes on from there
for n in 1 2 3; do
    mkdir -p way$n
    cp some_oktopk_iter_10.* way$n/
    $JOB $n $train --set=snapshot_prefix=way$n/some --snapshot=way$n/some_oktopk_iter_10.solverstate.h5 >out 2>&1 </dev/null
    whole=$(sum_of)
    $JOB $n $train --set=snapshot_prefix=way$n/part --iterations=11 --snapshot=way$n/some_oktopk_iter_10.solverstate.h5 >out 2>&1 </dev/null
    is waits_in_snapshot_of_$n test -f way$n/part_iter_11.rank0.h5
    runs goes_on_$n 0 'what the run before had left behind is in the weights' $JOB $n $train --set=snapshot_prefix=way$n/part \
        --snapshot=way$n/part_iter_11.solverstate.h5
    is goes_on_exactly_$n test "$(sum_of) of 20" = "$whole of 20"
done
# AUTO has a warm-up by its first plan, which nothing measured decides on where it is deterministic
runs auto_warms_up 0 'compression auto: 1 of 1 parameters compressed' $JOB 2 $train --deterministic --topology=slow.prototxt \
    --set=snapshot_prefix=aw --metrics=aw.jsonl --set=display=1 --compression=auto:density=0.05,min_bytes=1024,among=REDSYNC,warmup_iter=12,warmup_density=0.5
is auto_says_warm_up grep -q 'warm-up: the density of 1 parameter falls from 0.5 to 0.05 in 12 iterations' out
is auto_density_falls sh -c "sed -n 's/.*\"density\":\([0-9.e-]*\),\"filled\".*/\1/p' aw.jsonl | head -20 | awk '{ if (NR > 1 && NR < 14 && !(\$1 < last)) bad = 1; last = \$1 } NR == 1 && !(\$1 > 0.45) { bad = 1 } NR == 14 && !(\$1 < 0.06) { bad = 1 } END { exit bad || NR < 20 }'"
# and tries when that is over
runs auto_tries_after 0 'Optimization Done' $JOB 2 $train --deterministic=false --iterations=70 --topology=slow.prototxt --set=snapshot_prefix=at \
    --set=comm.tune_iterations=1 --compression=auto:density=0.05,min_bytes=1024,among=REDSYNC,warmup_iter=12,warmup_density=0.5
takes_the_faster() { # what it takes is what the times that it tells say
    awk '
        /compression auto: 0 of 1 parameters compressed, off is faster here/ { n++ }
        /compression auto: off is faster here: / { n++; sub(/.*off is faster here: /, ""); dense = $1; sub(/.*compressed /, ""); least = $1 + 0
            for (i = 2; i <= NF; i++) if ($i + 0 < least) least = $i + 0
            if (least < 0.95 * dense - 0.002) bad = 1 } # by more than what is told is rounded by
        /as measured: / { n++; sub(/.*as measured: /, ""); if ($1 > $6) bad = 1 }
        END { exit bad || n == 0 }' out
}
is auto_takes_the_faster takes_the_faster
# rules that share no momentum: steps decide there, too
runs auto_tries_with_adam 0 'Optimization Done' $JOB 2 $train --deterministic=false --iterations=70 \
    --topology=slow.prototxt --set=snapshot_prefix=adam --set=type=Adam --set=base_lr=0.001 --set=comm.tune_iterations=1 \
    --compression=auto:density=0.05,min_bytes=1024,among=REDSYNC,momentum_correction=false
is auto_takes_the_faster_with_adam takes_the_faster
# ... and where they may not, the log says so
runs auto_is_not_verified 0 'compression auto: not verified: .*deterministic' $JOB 2 $train --topology=slow.prototxt --set=snapshot_prefix=nv \
    --compression=auto:density=0.05,min_bytes=1024,among=REDSYNC
for codec in REDSYNC ONEBIT POWERSGD; do
    case $codec in REDSYNC) own=,density=0.05 ;; POWERSGD) own=,rank=3 ;; *) own= ;; esac
    other_ranks auto_$codec --topology=slow.prototxt --set=comm.tune_iterations=0 --compression=auto:min_bytes=1024,among=$codec$own
    is auto_takes_$codec grep -qi "compression of ip.0., .* ($codec, " out
done
runs powersgd_other_rank 3 'powersgd_q' $JOB 2 $train --compression=powersgd:min_bytes=1024,rank=3 --set=snapshot_prefix=part_powersgd \
    --snapshot=part_powersgd_iter_10.solverstate.h5
runs powersgd_from_dense 0 'Optimization Done' $JOB 2 $train --compression=powersgd:min_bytes=1024 --set=snapshot_prefix=half \
    --snapshot=half_iter_10.solverstate.h5

# ---- the report: what was to be sent and what was, in the log at the end and in every event
runs reports 0 'compression of (conv|ip)\[0\], .* \(redsync, allgather\): .*density 5.*residual norm .*than the machine.s model has for dense' \
    $JOB 2 $train $red,exchange=allgather,wire=pairs --metrics=rep.jsonl --set=display=5 --set=snapshot_prefix=rep
is reports_in_all grep -q 'compression, a step in all: .*has for dense$' out
is event_has_it grep -q '"compression":{"parameters":[12],"bytes_dense":[0-9]*,"bytes_coded":[0-9]*,"density":0.05.*"residual_norm":' rep.jsonl
runs reports_of_two 0 'compression, a step in all: .*, added up over buckets, which overlap$' $JOB 2 $train --set=snapshot_prefix=two \
    --compression=redsync:density=0.05,min_bytes=256,exchange=allgather
if command -v python3 >/dev/null; then
    $JOB 2 $train $red,exchange=allgather,wire=pairs --metrics=tot.jsonl --trace=tot.json --trace_iterations=5-6 --set=snapshot_prefix=tot >out 2>&1 </dev/null
    # log, metrics and trace have the same figures, for each bucket and in all; half of what is dense and the rest add up
    is report_is_whole python3 -c '
import json, re
event = [e for e in map(json.loads, open("tot.jsonl")) if e["event"] == "compression"]
trace = json.load(open("tot.json"))["otherData"]["compression"]
log = open("out").read()
assert len(event) == 1, event
event = event[0]
assert event["buckets"] == trace["buckets"] and event["total"] == trace["total"]
fields = "steps bytes_dense bytes_coded density filled select_ms pack_ms exchange_ms unpack_ms saved_ms residual_norm".split()
for b in event["buckets"]:
    assert b["codec"] == "redsync" and b["exchange"] == "allgather" and b["steps"] == 20, b
    elements = int(re.search(r", (\d+) elements", b["bucket"]).group(1))
    assert b["bytes_dense"] == 4 * elements and b["bytes_coded"] == 32 + 8 * round(0.05 * elements), b
    assert abs(b["density"] - 0.05) < 1 / elements and b["density"] <= b["filled"] <= 2.0001 * b["density"], b
    assert min(b[f] for f in fields if f != "saved_ms") > 0, b
    assert b["dense_modelled"] and "than the machine" in log and "dense took" not in log, log
    line = re.search("compression of " + re.escape(b["bucket"]) + r" .*: (\S+) of (\S+) KB, density (\S+) %.*residual norm (\S+)", log)
    assert line and abs(float(line.group(1)) / (1e-3 * b["bytes_coded"]) - 1) < 1e-3, log
    assert abs(float(line.group(4).rstrip(";")) / b["residual_norm"] - 1) < 1e-2, line.groups()
for f in ("bytes_dense", "bytes_coded", "select_ms", "pack_ms", "exchange_ms", "unpack_ms", "saved_ms"):
    assert abs(sum(b[f] for b in event["buckets"]) - event["total"][f]) <= 1e-6 * abs(event["total"][f]) + 1e-6, f
assert abs(sum(b["residual_norm"] ** 2 for b in event["buckets"]) - event["total"]["residual_norm"] ** 2) < 1e-6 * event["total"]["residual_norm"] ** 2
'
fi
is dense_event_has_not sh -c '! grep -q compression..: dense.jsonl'

# ---- each parameter
sed 's/^layer { name: "conv" /layer { param { compress { type: NONE } } name: "conv" /' net.prototxt >own.prototxt
sed 's/net.prototxt/own.prototxt/' solver.prototxt >own_solver.prototxt
is own_codec_is_set grep -q 'compress { type: NONE }' own.prototxt
runs own_codec 0 'compression of ip.0., .* \(redsync, ' $JOB 2 "$CORTADO" train --solver=own_solver.prototxt --global_batch_size=12 \
    --compression=redsync:density=0.05,min_bytes=16 --set=snapshot_prefix=own
is own_codec_holds sh -c '! grep -q "compression of conv.0.," out'
sed 's/type: NONE/type: REDSYNC density: 2/' own.prototxt >own2.prototxt
sed 's/net.prototxt/own2.prototxt/' solver.prototxt >own2_solver.prototxt
runs own_codec_is_checked 2 '[]] own2.*prototxt:[0-9]+:[0-9]+: layer "conv", param 0, compress.*density 2' "$CORTADO" train --solver=own2_solver.prototxt

# ---- what makes no sense is refused before anything is loaded, with the reason, once
# two ranks say the first few once; one process, which starts sooner, says the others
n_refused=0
refused() { # NAME PATTERN OPTION...
    name=$1 pattern=$2 job=
    shift 2
    n_refused=$((n_refused + 1))
    [ $n_refused -gt 12 ] || job="$JOB 2"
    runs refuses_$name 2 "$pattern" $job $train "$@"
    is says_${name}_once test "$(grep -c '^E' out)" = 1
}
refused clip 'clip_gradients: 5 is a limit of the summed gradient.*local_clip: 5' $red --set=clip_gradients=5
# a gradient of norm C / sqrt(2) at most, times the rate, adds at most rate C / (sqrt(2) (1 - momentum)) to what is not
# sent, in each of 20 iterations; the report has three digits. Without a limit it is a hundred times as much
clipped() { # PARAMETER: by C = 1e-4
    sed -n "s/.*compression of $1.0., .*residual norm \([0-9.e-]*\);.*/\1/p" out | awk '{ n += 1; v = $1 }
        END { exit !(n == 1 && v > 0 && v < 1.01 * 20 * 0.05 * 1e-4 / sqrt(2) / (1 - 0.9)) }'
}
clip="--set=clip_gradients=1e-4 --set=weight_decay=0"
runs local_clip 0 'Optimization Done' $JOB 2 $train $red,local_clip=1e-4 $clip --set=snapshot_prefix=lc
is local_clip_holds clipped ip
# a parameter's own codec has the solver's limit, unless it names one
sed 's/type: NONE/type: REDSYNC density: 0.05 min_bytes: 16/' own.prototxt >own3.prototxt
sed 's/net.prototxt/own3.prototxt/' solver.prototxt >own3_solver.prototxt
own="$CORTADO train --solver=own3_solver.prototxt --global_batch_size=12 --compression=redsync:density=0.05,min_bytes=1024,local_clip=1e-4"
runs own_codec_clips 0 'Optimization Done' $JOB 2 $own $clip --set=snapshot_prefix=oc
is own_codec_clips_by_the_solvers clipped conv
sed -i 's/min_bytes: 16/min_bytes: 16 local_clip: 0/' own3.prototxt
runs own_codec_without_limit 0 'Optimization Done' $JOB 2 $own $clip --set=snapshot_prefix=ow
is own_codec_says_no_limit eval '! clipped conv'
runs casts_clip 0 'Optimization Done' $JOB 2 $train --compression=bf16 --set=clip_gradients=5 --set=snapshot_prefix=bc
refused oktopk_deterministic 'OKTOPK come from the steps before' $red,exchange=oktopk --deterministic
refused sampled_deterministic 'selection sampled reuses thresholds' $red,selection=sampled --deterministic
refused reproducible 'reproducible_sum: true, but compression redsync' $red --reproducible_sum
refused exchange_of_cast 'exchange means nothing to bf16; it is for TOPK and REDSYNC' --compression=bf16:exchange=gtopk
refused density_of_cast 'density means nothing to bf16' --compression=bf16:density=0.1
refused rank_0 'rank 0, but 1 to 256' --compression=powersgd:rank=0
refused rank_of_onebit 'rank means nothing to onebit' --compression=onebit:rank=2
refused mask_of_onebit 'mask_momentum means nothing to onebit' --compression=onebit:mask_momentum=true
refused exchange_of_int8 'exchange means nothing to int8' --compression=int8:exchange=gtopk
refused momentum_of_int8 'momentum_correction means nothing to int8' --compression=int8:momentum_correction=true
refused resync_of_int8 'resync_iter means nothing to int8; it is for codecs that leave something behind' --compression=int8:resync_iter=5
refused feedback_of_topk 'error_feedback means nothing to topk; it is for INT8 and INT4' --compression=topk:error_feedback=true
refused zero_of_int8 'sums parts of gradients, and compression int8 sends them whole' --compression=int8 --set=memory.zero=1
refused reproducible_int8 'reproducible_sum: true, but compression int8' --compression=int8 --reproducible_sum
refused exchange_of_onebit 'exchange means nothing to onebit' --compression=onebit:exchange=allgather
refused clip_of_powersgd 'local_clip: 5' --compression=powersgd --set=clip_gradients=5
refused impi_of_fp16 'allreduce: "impi" } out' --compression=fp16 --allreduce=impi
# AUTO: by what it may take
for field in density=0.5 warmup_density=0.5 rank=7 exchange=gtopk quantize=true selection=search wire=half resync_iter=5 \
    mask_momentum=true momentum_correction=true; do
    refused auto_${field%%=*}_of_casts "${field%%=*} means nothing to what AUTO may take here" --compression=auto:among=BF16,among=FP16,warmup_iter=5,$field
done
refused auto_rank 'rank means nothing to what AUTO may take here; it is for POWERSGD' --compression=auto:density=0.05,rank=7
refused auto_impi 'fp16 begins a sum .* or take another in "among"' --compression=auto:density=0.05 --allreduce=impi
runs auto_impi_among 0 'Optimization Done' $JOB 2 $train --deterministic=false --compression=auto:density=0.05,among=REDSYNC --allreduce=impi --set=snapshot_prefix=ai
refused auto_other_momentum 'momentum of SGD or Nesterov .* type "Adam" has another rule' --compression=auto:momentum_correction=true --set=type=Adam
runs auto_casts_of_adam 0 'Optimization Done' $JOB 2 $train --compression=auto:among=BF16 --set=type=Adam --set=base_lr=0.001 --set=snapshot_prefix=aa
runs auto_casts_clip 0 'Gradient clipping: scaling down' $JOB 2 $train --compression=auto:among=BF16 --set=clip_gradients=0.01 --set=snapshot_prefix=ac
# an exchange of some: ONEBIT, which has its own, may be chosen beside
runs auto_exchange_of_some 0 'compression of ip.0., .* \(onebit, (split|allgather)\)' $JOB 2 $train --topology=slow.prototxt \
    --set=comm.tune_iterations=0 --set=snapshot_prefix=ax --compression=auto:min_bytes=1024,density=1,among=REDSYNC,among=ONEBIT,exchange=GTOPK
runs fp16_clips 0 'Optimization Done' $JOB 2 $train --compression=fp16:min_bytes=16 --set=clip_gradients=5 --set=snapshot_prefix=fc
refused rank_of_topk 'rank means nothing to topk; it is for POWERSGD' --compression=topk:rank=4
refused correction_of_topk 'momentum_correction means nothing to topk' --compression=topk:momentum_correction=true
refused density_0 'density 0, but 0 < density <= 1' --compression=redsync:density=0
refused warm_density_of_cast 'warmup_density means nothing to bf16; it is for TOPK and REDSYNC' --compression=bf16:warmup_iter=5,warmup_density=0.2
refused warm_density_alone 'warmup_density 0.2 is that of the first iteration of a warm-up, and warmup_iter is 0' $red,warmup_density=0.2
refused warm_density_rises 'warmup_density 0.02 has to fall to density 0.05' $red,warmup_iter=5,warmup_density=0.02
refused warm_density_2 'warmup_density 2, but 0 < warmup_density <= 1' $red,warmup_iter=5,warmup_density=2
refused warm_density_of_auto 'warmup_density 0.02 has to fall' --compression=auto:density=0.05,warmup_iter=5,warmup_density=0.02
refused density_2 'density 2, but 0 < density <= 1' --compression=redsync:density=2
refused min_bytes 'none may be negative' $red,resync_iter=-1
refused resync_always 'resync_iter: 1 sends every iteration dense' $red,resync_iter=1
refused mask_of_nothing 'masks the momentum of momentum_correction, which is' $red,momentum_correction=false,mask_momentum=true
refused oktopk_auto_deterministic 'OKTOPK come from the steps before' --compression=auto:exchange=oktopk --deterministic
refused clip_of_auto 'local_clip: 5' --compression=auto --set=clip_gradients=5
refused reproducible_auto 'reproducible_sum: true, but compression auto' --compression=auto --reproducible_sum
refused quantize_wire 'one mean for all values' $red,quantize=true,wire=half
refused other_momentum 'momentum of SGD or Nesterov .* type "Adam" has another rule' $red,momentum_correction=true --set=type=Adam
refused mask_of_adam 'which is false here since the solver.s type has another rule' $red,mask_momentum=true --set=type=Adam
refused clip_of_updates 'take momentum_correction: false .the limit is then that of what is summed' $red --set=clip_gradients=5
refused l1 'regularization_type L2 only' $red --set=regularization_type=L1
refused misspelt_type 'did you mean "redsync"' --compression=redsinc
refused misspelt_exchange 'did you mean OKTOPK|did you mean "OKTOPK"' --compression=redsync:exchange=oktok
refused misspelt_field 'resync_iter' --compression=redsync:resync_itr=3
runs deterministic 0 'Optimization Done' $JOB 2 $train $red --deterministic --set=snapshot_prefix=det
runs quantized 0 'Optimization Done' $JOB 2 $train $red,quantize=true --set=snapshot_prefix=q
finish
