# Gradients of two ranks added up by NCCL, a GPU each: within a graph from the loss to the new weights,
# kernel by kernel, and through the host. The sum of two numbers has no order, so all have the same bits.
# Needs two GPUs, or a build whose GPUs and NCCL are stand-ins (make CUDA=emulated).
. "$ROOT/tests/cli/lib.sh"
gpus=$("$CORTADO" info --gpus 2>/dev/null)
emulated=
case $gpus in *"emulated on the host"*) emulated=1 CORTADO_EMULATED_GPUS=2 CORTADO_EMULATED_NCCL=1 ;; esac
if [ -z "$emulated" ] && [ "$(echo "$gpus" | grep -c '^gpu [0-9]')" -lt 2 ]; then
    skip gpu_sums "needs two GPUs"
    finish
fi
[ -z "$emulated" ] || export CORTADO_EMULATED_GPUS CORTADO_EMULATED_NCCL
make_case
cp solver.prototxt nccl.prototxt && echo 'comm { gpu_sum: NCCL }' >>nccl.prototxt
checksum() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "$1.log" | tail -1; }
env_1= # NAME=VALUE of rank 1 alone
two() { # NAME PATTERN SUM ARGUMENTS...: trains on two ranks
    which=$1 text=$2
    sed "s/net.prototxt/$net/" solver.prototxt >two.prototxt && echo "comm { gpu_sum: $3 }" >>two.prototxt
    shift 3
    set -- "$CORTADO" train --solver=two.prototxt --solver_mode=gpu --iterations=${steps:-5} "$@"
    if [ -n "$env_1" ]; then
        runs "$which" 0 "$text" $JOB 1 "$@" : -np 1 env "$env_1" "$@"
    else
        runs "$which" 0 "$text" $JOB 2 "$@"
    fi
    cp out "$which.log"
}
net=net.prototxt
for more in "" "--set=clip_gradients=0.5" "--set=clip_gradients=0.5 --set=iter_size=2 --set=precision=FP16"; do
    tag=$(echo "$more" | sed 's/--set=/_/g; s/=[^ ]*//g; s/ //g')
    two graph$tag 'backward: [0-9]+ of [0-9]+ steps in 1 graph, with the update' NCCL $more
    is recorded$tag test -z "$(grep 'would not record' graph$tag.log)"
    two plain$tag 'added up on the GPUs, by nccl' NCCL $more --set=cuda_graph=false
    two host$tag 'Optimization Done' HOST $more
    others="plain host"
    if [ -n "$emulated" ]; then
        export CORTADO_EMULATED_CAPTURE=one # forward; not backward with its sums
        two refused$tag 'the device would not record the step' NCCL $more
        unset CORTADO_EMULATED_CAPTURE
        # on rank 1 alone: not even forward, or not what has sums. The stand-in ends a job whose
        # ranks give sums of which some are in graphs, or that were not recorded together
        for what in none one; do
            env_1=CORTADO_EMULATED_CAPTURE=$what
            two ${what}_on_1$tag 'another rank.s device would not record the step' NCCL $more
            is one_is_told_of_$what$tag test "$(grep -c 'would not record the step' ${what}_on_1$tag.log)" = 2
        done
        env_1=
        others="$others refused none_on_1 one_on_1"
    fi
    for other in $others; do
        is ${other}_same$tag test -n "$(checksum graph$tag)" -a "$(checksum graph$tag)" = "$(checksum $other$tag)"
    done
done
# statistics of both ranks' batches: each sum in its place among those of gradients, in the same graphs
net=synced.prototxt
sed '/name: "ip"/i layer { name: "y" type: "SyncBN" bottom: "conv" top: "y" }
s/bottom: "conv" top: "ip"/bottom: "y" top: "ip"/' net.prototxt >$net
two graph_synced 'backward: [0-9]+ of [0-9]+ steps in 1 graph, with the update' NCCL
is forward_synced grep -Eq 'forward: [0-9]+ of [0-9]+ steps in 1 graph' graph_synced.log
two plain_synced 'added up on the GPUs, by nccl' NCCL --set=cuda_graph=false
two host_synced 'Optimization Done' HOST
for other in plain host; do
    is ${other}_same_synced test -n "$(checksum graph_synced)" -a "$(checksum graph_synced)" = "$(checksum ${other}_synced)"
done
if [ -n "$emulated" ]; then # its sums are in forward's graph, too: what one rank refuses all do
    for what in none one; do
        env_1=CORTADO_EMULATED_CAPTURE=$what
        two ${what}_on_1_synced 'another rank.s device would not record the step' NCCL
        is ${what}_on_1_same_synced test "$(checksum graph_synced)" = "$(checksum ${what}_on_1_synced)"
    done
    env_1=
fi
# a layer on the host between two gradients: what leaves before it is summed outside of graphs
net=middle.prototxt
cat >boxes <<'EOF'
layer { name: "b_data" type: "DummyData" top: "b_0" top: "b_1" top: "b_low" top: "b_high"
  dummy_data_param { shape { dim: 1 dim: 1 dim: 1 dim: 1 } data_filler { value: 0 } data_filler { value: 1 }
    data_filler { value: 0.2 } data_filler { value: 0.7 } } }
layer { name: "b_true" type: "Concat" bottom: "b_0" bottom: "b_1" bottom: "b_0" bottom: "b_low" bottom: "b_low"
  bottom: "b_high" bottom: "b_high" bottom: "b_0" top: "b_true" concat_param { axis: 3 } }
layer { name: "b_prior" type: "PriorBox" bottom: "conv" bottom: "data" top: "b_prior" prior_box_param { min_size: 5 } }
layer { name: "b_loc" type: "InnerProduct" bottom: "conv" top: "b_loc"
  inner_product_param { num_output: 576 weight_filler { type: "xavier" } } }
layer { name: "b_conf" type: "InnerProduct" bottom: "conv" top: "b_conf"
  inner_product_param { num_output: 432 weight_filler { type: "xavier" } } }
layer { name: "b_loss" type: "MultiBoxLoss" bottom: "b_loc" bottom: "b_conf" bottom: "b_prior" bottom: "b_true"
  top: "b_loss" multibox_loss_param { num_classes: 3 } include { phase: TRAIN } }
EOF
sed '/name: "drop"/r boxes' net.prototxt >$net
two graph_middle 'backward: [0-9]+ of [0-9]+ steps in [0-9]+ graphs?$' NCCL
two plain_middle 'added up on the GPUs, by nccl' NCCL --set=cuda_graph=false
two host_middle 'Optimization Done' HOST
for other in plain host; do
    is ${other}_same_middle test -n "$(checksum graph_middle)" -a "$(checksum graph_middle)" = "$(checksum ${other}_middle)"
done
net=net.prototxt
# AUTO that compresses nothing: the graph has the sums, and the weights are those of dense runs
export CORTADO_SET=deterministic=false
two free 'backward: [0-9]+ of [0-9]+ steps in 1 graph, with the update' NCCL
for sum in AUTO NCCL; do
    two auto_$sum 'backward: [0-9]+ of [0-9]+ steps in 1 graph, with the update' $sum \
        --set=comm.tune_iterations=0 --compression=auto:density=0.01,min_bytes=1000
    is auto_${sum}_says_why grep -q 'compression auto: off: .*tune_iterations is 0.*device.s own sums' out
    is auto_${sum}_on_gpus grep -q 'from iteration 0 on nothing is compressed: .*by nccl' out
    is auto_${sum}_same test -n "$(checksum free)" -a "$(checksum free)" = "$(checksum auto_$sum)"
done
two auto_HOST 'added up through the host|compression auto' HOST --set=comm.tune_iterations=0 --compression=auto:density=0.01,min_bytes=1000
is auto_HOST_stays_there test -z "$(grep 'by nccl' out)"
# trials: over a slow bus casts are faster than sums on the host, as the model says; sums on the GPUs
# cross no bus, which it does not know. A run goes on from a snapshot as one that is told the way
steps=40
tried() { # NAME SUM WAY: 40 iterations, and the last 15 again
    run=$1 sum=$2 way=$3
    try="--set=comm.tune_iterations=1 --set=test_interval=1000 --set=snapshot=25"
    two $run 'Optimization Done' $sum $try --set=snapshot_prefix=$run --compression=auto:among=BF16,min_bytes=1000
    two ${run}_told 'resuming after 25 iterations' $sum $try --set=snapshot_prefix=${run}_told --compression=$way \
        --snapshot=${run}_iter_25.solverstate.h5
    is ${run}_goes_on_as_told test -n "$(checksum $run)" -a "$(checksum $run)" = "$(checksum ${run}_told)"
}
if [ -n "$emulated" ]; then
    export CORTADO_EMULATED_BUS=4
    net=wide.prototxt # 0.35 MB of gradients
    sed 's/num_output: 10 /num_output: 100 /' net.prototxt >$net
    tried slow_host HOST bf16:min_bytes=1000
    is codecs_are_taken grep -Eq '1 of [12] parameters compressed, as measured: [0-9.]+ ms a step so, [0-9.]+ dense' slow_host.log
    tried slow_nccl AUTO none
    is dense_is_taken grep -q 'compression auto: off is faster here: ' slow_nccl.log
    is dense_was_in_graphs test "$(grep -c 'in 1 graph, with the update' slow_nccl.log)" = 2 # when tried, and then
    is ways_change test "$(grep -c 'from iteration [0-9]* on' slow_nccl.log)" = 3
    unset CORTADO_EMULATED_BUS
    net=net.prototxt
fi
unset steps
unset CORTADO_SET
# codecs by name, and limits of norms, are the host's
for with in redsync:density=0.01 auto:density=0.01,local_clip=1; do
    runs "no_nccl_of_${with%%:*}" 2 'gpu_sum: NCCL .*gradients are compressed' $JOB 2 "$CORTADO" train --solver=nccl.prototxt \
        --solver_mode=gpu --set=max_iter=2 --set=deterministic=false --compression=$with
done
# each step counts its bytes, whether they are in a graph or not
two counts '' NCCL --set=display=1 --metrics=counts.json
is counts_bytes test "$(sed -n 's/.*"bytes_sent":\([0-9]*\).*/\1/p' counts.json | sed -n '2,$p' | sort -u | grep -c '[1-9]')" = 1
# a sum that never ends. Where the library tells of it, on one rank or on all, the job ends at once,
# however the sums are given; else by the watchdog. CUDA's own waits would not return
if [ -n "$emulated" ]; then
    sed 's/deterministic: true//' solver.prototxt >two.prototxt
    echo 'comm { gpu_sum: NCCL } watchdog_seconds: 20' >>two.prototxt
    set -- "$CORTADO" train --solver=two.prototxt --solver_mode=gpu --iterations=9
    broken='sum over ranks: NCCL: remote process exited'
    LIMIT=15
    for graph in true false; do
        env="env CORTADO_EMULATED_NCCL_FAIL=5"
        runs failed_on_1_$graph 1 "rank 1.*$broken" $JOB 1 "$@" --set=cuda_graph=$graph : -np 1 $env "$@" --set=cuda_graph=$graph
        runs failed_on_all_$graph 1 "rank 0.*$broken" $JOB 2 $env "$@" --set=cuda_graph=$graph
    done
    runs failed_timing 1 "rank [01].*$broken" $JOB 2 env CORTADO_EMULATED_NCCL_FAIL=5 "$CORTADO" time --solver=two.prototxt --solver_mode=gpu --iterations=3
    LIMIT=25
    runs nobody_tells 6 'no progress for .* by nccl: one of 2 ranks that is gone keeps all waiting' \
        $JOB 2 env "CORTADO_EMULATED_NCCL_FAIL=5 silent" "$@" --set=watchdog_seconds=3
    unset LIMIT
fi
# no graph is left when the group of ranks ends
runs time 0 'with the update' $JOB 2 "$CORTADO" time --solver=two.prototxt --solver_mode=gpu --iterations=3
finish
