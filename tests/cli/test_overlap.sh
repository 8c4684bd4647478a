#!/bin/sh
# Gradients that travel during the next forward: bitwise the numbers of steps one after the other.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=display=1 --set=comm.bucket_mb=0.002"

for n in 1 2 3 4; do
    for way in off backward both; do
        case $way in
            off) how=--set=comm.overlap=false ;;
            backward) how=--set=comm.forward_overlap=false ;;
            both) how=--set=comm.overlap=true ;;
        esac
        runs ranks_${n}_$way 0 'Optimization Done' $JOB $n $train $how --metrics=m$way.jsonl --set=snapshot_prefix=$way
        sum_of >sum_$way
        losses m$way.jsonl >losses_$way
        is says_${n}_$way test "$(wc -l <losses_$way)" = 20
        [ $way = off ] && continue
        is losses_${n}_$way cmp losses_off losses_$way
        is weights_${n}_$way cmp sum_off sum_$way
    done
done

# clipped: the first layer that reads a weight waits for all gradients, and the norm does not depend on the
# order in which they land; with reproducible sums, not on how they are cut, either
clip="--set=clip_gradients=0.5"
for n in 1 2 3 4; do
    for way in off backward both; do
        case $way in
            off) how=--set=comm.overlap=false ;;
            backward) how=--set=comm.forward_overlap=false ;;
            both) how=--set=comm.progress=THREAD ;;
        esac
        runs clip_${n}_$way 0 'Gradient clipping' $JOB $n $train $clip $how --metrics=c$way.jsonl --set=snapshot_prefix=c$way
        sum_of >sum_$way
        losses c$way.jsonl >losses_${n}_$way
        [ $way = off ] && continue
        is clip_losses_${n}_$way cmp losses_${n}_off losses_${n}_$way
        is clip_weights_${n}_$way cmp sum_off sum_$way
    done
    is clip_sum_is_there_$n test -s sum_off
    # among ranks as on one: each of 12 samples counts once
    is clip_as_alone_$n awk 'NR == FNR { want[$1] = $2; next } { d = $2 - want[$1]; if (d < 0) d = -d; if (!($1 in want) || d > 2e-4 * (want[$1] + 1)) bad = 1; n++ } END { exit bad || n != 20 }' losses_1_off losses_${n}_both
done
for mb in 0 0.001 0.002 64; do
    runs clip_cut_$mb 0 'Gradient clipping' $JOB 3 $train $clip --reproducible_sum --set=comm.bucket_mb=$mb --set=snapshot_prefix=cut
    sum_of >sum_$mb
    is clip_cut_same_$mb cmp sum_0 sum_$mb
done
is clip_cut_sum_is_there test -s sum_0

# sums of layers over the ranks, begun and waited for among branches, beside gradients on their way
sed '/name: "ip"/i layer { name: "y" type: "SyncBN" bottom: "conv" top: "y" }\
layer { name: "side" type: "Convolution" bottom: "conv" top: "side" convolution_param { num_output: 6 kernel_size: 1 weight_filler { type: "xavier" } } }\
layer { name: "z" type: "SyncBN" bottom: "side" top: "side" }\
layer { name: "both" type: "Eltwise" bottom: "y" bottom: "side" top: "both" }
s/bottom: "conv" top: "ip"/bottom: "both" top: "ip"/' net.prototxt >synced.prototxt
sed "s/net.prototxt/synced.prototxt/" solver.prototxt >solver_synced.prototxt
synced=$(echo "$train" | sed "s/solver.prototxt/solver_synced.prototxt/")
for way in off both; do
    [ $way = off ] && how=--set=comm.overlap=false || how=--set=comm.overlap=true
    for n in 2 3; do
        runs synced_${n}_$way 0 "Optimization Done" $JOB $n $synced $how --set=snapshot_prefix=$way
        sum_of >sum_${n}_$way
    done
done
for n in 2 3; do
    is synced_sum_$n test -s sum_${n}_off
    is synced_weights_$n cmp sum_${n}_off sum_${n}_both
done

# micro-steps, residuals, and a run that goes on from the middle
more="--set=iter_size=2 --compression=topk:density=0.05,min_bytes=1024"
runs more_off 0 'Optimization Done' $JOB 2 $train $more --overlap=false --set=snapshot_prefix=off
sum_of >sum_off
runs more_both 0 'Optimization Done' $JOB 2 $train $more --set=snapshot_prefix=both
sum_of >sum_both
is more_weights cmp sum_off sum_both
rm -f both_iter_20*
runs more_resumed 0 'resuming after 10 iterations' $JOB 2 $train $more --set=snapshot_prefix=both --snapshot=auto
sum_of >sum_both
is more_resumed_weights cmp sum_off sum_both
is more_sum_is_there test -s sum_off
finish
