# GPUs as a user meets them: a build without CUDA, one with it but without a GPU, and one whose kernels
# run as loops on the host (make CUDA=emulated), which trains on one and two ranks.
. "$ROOT/tests/cli/lib.sh"
make_case
gpu="$CORTADO train --solver=solver.prototxt --set=max_iter=6 --set=display=1 --solver_mode=gpu"
if has no-cuda; then
    runs not_built 2 'built without device "cuda": build with make CUDA=1' "$CORTADO" info --gpus
    runs train_not_built 2 'build with make CUDA=1' $gpu
    runs info_says_so 0 'gpus +none that works: this cortado was built without CUDA=1' "$CORTADO" info --limits=false
    finish
fi
if ! "$CORTADO" info --gpus >gpus.log 2>&1; then
    runs no_gpu 1 'no GPU works here .*solver_mode: CPU computes' "$CORTADO" info --gpus
    runs train_no_gpu 1 'no GPU works here' $gpu
    mkdir -p b && ln -s "$CORTADO" b/cortado
    runs tests_say_so 77 'no GPU: nothing run' sh "$ROOT/scripts/gpu/test.sh" "$PWD/b"
    runs benches_say_so 77 'no GPU: nothing run' sh "$ROOT/scripts/gpu/bench.sh" "$PWD/b"
    finish
fi
runs has_gpu 0 'gpu limits +copy [0-9]+ GB/s' "$CORTADO" info --gpus
runs mpi_tells 0 'gpu memory +in messages of this MPI: (yes|no|it does not say)' "$CORTADO" info --gpus
runs wrong_id 2 'device_id 77, but this process sees' $gpu --gpu=77
"$CORTADO" train --solver=solver.prototxt --set=max_iter=6 --set=display=1 --solver_mode=cpu >cpu.log 2>&1 || not_ok cpu "training on the CPU failed"
$gpu >gpu.log 2>&1 || not_ok gpu "training on the GPU failed"
losses() { sed -n 's/.*Iteration \([0-9]*\).*loss = \([0-9.e+-]*\).*/\1 \2/p' "$1"; }
# a thousand roundings in six steps
same() {
    losses "$1" >a.txt && losses "$2" >b.txt
    paste -d' ' a.txt b.txt | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 2e-4 * $2) bad = 1 } END { exit bad || NR < 3 }'
}
if same cpu.log gpu.log; then ok gpu_as_cpu; else not_ok gpu_as_cpu "$(paste a.txt b.txt)"; fi
# two ranks: gradients through the host; on one GPU only where that is meant
runs one_gpu_each 2 'would use the same GPU' $JOB 2 $gpu
$JOB 2 $gpu --share_gpu --global_batch_size=20 >two.log 2>&1 || not_ok two "two ranks failed: $(tail -3 two.log)"
$gpu --global_batch_size=20 >one.log 2>&1 || not_ok one "one rank failed"
if same one.log two.log; then ok two_ranks_as_one; else not_ok two_ranks_as_one "$(paste a.txt b.txt)"; fi
# a Filter: each batch, and each rank, has another number of samples; in tests, too
sed '/name: "relu"/i layer { name: "large" type: "Threshold" bottom: "label" top: "large" threshold_param { threshold: 4.5 } }
/name: "drop"/i layer { name: "keep" type: "Filter" bottom: "conv" bottom: "label" bottom: "large" top: "kept" top: "digit" }
s/bottom: "conv" top: "conv" dropout/bottom: "kept" top: "kept" dropout/
s/bottom: "conv" top: "ip"/bottom: "kept" top: "ip"/
s/bottom: "ip" bottom: "label"/bottom: "ip" bottom: "digit"/' net.prototxt >some.prototxt
sed 's/net.prototxt/some.prototxt/' solver.prototxt >some_solver.prototxt
some="$CORTADO train --solver=some_solver.prototxt --set=max_iter=6 --set=display=1 --set=test_interval=3"
$some --solver_mode=cpu >cpu.log 2>&1 || not_ok cpu_some "a Filter on the CPU failed"
$some --solver_mode=gpu >gpu.log 2>&1 || not_ok gpu_some "a Filter on the GPU failed: $(tail -3 gpu.log)"
if same cpu.log gpu.log && grep -q 'accuracy = ' gpu.log; then ok filter_as_cpu; else not_ok filter_as_cpu "$(paste a.txt b.txt)"; fi
is filter_without_graphs test "$(grep -c 'the number of samples changes from step to step' gpu.log)" -ge 1
$some --solver_mode=gpu --global_batch_size=20 >one.log 2>&1 || not_ok one_some "a Filter on one rank failed"
$JOB 2 $some --solver_mode=gpu --share_gpu --global_batch_size=20 >two.log 2>&1 || not_ok two_some "a Filter on two ranks failed: $(tail -3 two.log)"
if same one.log two.log; then ok filter_two_ranks; else not_ok filter_two_ranks "$(paste a.txt b.txt)"; fi
cp solver.prototxt nccl.prototxt && echo 'comm { gpu_sum: NCCL }' >>nccl.prototxt
runs no_nccl 2 'gpu_sum: NCCL .* (built without it|libnccl.so.2, is not there|ranks share a GPU)' \
    $JOB 2 "$CORTADO" train --solver=nccl.prototxt --set=max_iter=2 --solver_mode=gpu --share_gpu
cp solver.prototxt mpi.prototxt && echo 'comm { gpu_sum: MPI }' >>mpi.prototxt
runs no_mpi 2 'gpu_sum: MPI .*does not say that it takes' $JOB 2 "$CORTADO" train --solver=mpi.prototxt --set=max_iter=2 --solver_mode=gpu --share_gpu
runs bf16 0 'precision BF16: operands of products are rounded' $gpu --set=precision=BF16
runs fp16 0 'precision FP16: .* the loss is scaled' $gpu --set=precision=FP16
runs fp16_on_cpu 2 'precision FP16 is for GPUs' "$CORTADO" train --solver=solver.prototxt --set=max_iter=2 --solver_mode=cpu --set=precision=FP16
runs graphs 0 'backward: [0-9]+ of [0-9]+ steps in [0-9]+ graph' $gpu
runs trace 0 "" $gpu --trace=trace.json --trace_iterations=2-4
if grep -q '"name":"device"' trace.json; then ok trace_device; else not_ok trace_device "no row of the device in the trace"; fi
# losses come down; a batch goes up as bytes: 16 places of 32, 16 labels, 16 x 28 x 28 pixels
if grep -q '"copies down"' trace.json && grep -q '"copies up"' trace.json && grep -q '"name":"to the device".*"bytes":13120}' trace.json
then ok trace_copies; else not_ok trace_copies "no copies in the trace"; fi
# states and weights in host memory, in files, and where the plan says: the same weights
sum_of() { sed -n 's/.*weights after iteration [0-9]*: checksum \([0-9a-f]*\).*/\1/p' out; }
mem="$gpu --set=type=Adam --set=momentum=0.9 --set=deterministic=true --set=memory.chunk_mb=0.002"
runs memory_device 0 'Optimization Done' $mem --set=memory.state=DEVICE
sum_of >there
away() { # NAME PATTERN OPTIONS…
    runs "memory_$1" 0 "$2" $mem "$3" "$4" "$5"
    sum_of >sum
    is "memory_$1_same" cmp there sum
}
away state 'the host updates weights: modelled .* assumed' --set=memory.state=HOST --set=test_interval=3 --set=cuda_graph=true
away weights 'weights lie there' --set=memory.weights=HOST --set=test_interval=3 --set=memory.prefetch=1
away files 'lie in files in "files"' --set=memory.weights=FILE --set=memory.state=FILE --set=memory.path="$(mkdir -p files && echo files)"
runs memory_timed 0 'weights lie there' "$CORTADO" time --solver=solver.prototxt --solver_mode=gpu --iterations=2 --set=memory.weights=HOST
runs memory_traced 0 'weights lie there' $mem --set=memory.weights=HOST --trace=away.json --trace_iterations=2-4
runs memory_auto 0 'Optimization Done' $mem --set=memory.gpu_limit_mb=100
is memory_auto_there test -z "$(grep 'AUTO takes' out)"
runs memory_auto_state 0 'AUTO takes (weights and )?state: HOST, since [0-9.]+ MiB' $mem --set=memory.gpu_limit_mb=0.53 --set=memory.prefetch=1
runs memory_least 2 'gpu_limit_mb: 0.3: the least is [0-9]+ MiB' $mem --set=memory.gpu_limit_mb=0.3
runs memory_divided 2 'for one rank yet' $JOB 2 $mem --share_gpu --set=memory.weights=HOST
runs memory_two_there 0 'Optimization Done' $JOB 2 $mem --share_gpu --set=memory.state=DEVICE
sum_of >there
runs memory_two_host 0 'the host updates weights' $JOB 2 $mem --share_gpu --set=memory.state=HOST
sum_of >sum
is memory_two_same cmp there sum
runs memory_ring 0 'states went to the device' $gpu --set=deterministic=true --set=memory.state=HOST
is memory_ring_said grep -q 'the device updates weights: modelled' out
runs memory_one_there 2 'state: DEVICE }: the host updates weights that lie with it' $mem --set=memory.state=DEVICE --set=memory.weights=HOST
# codecs: gradients and residuals stay on the GPU; one rank and two give the CPU's losses
cpu="$CORTADO train --solver=solver.prototxt --set=max_iter=6 --set=display=1 --solver_mode=cpu"
coded() {
    name=$1
    shift
    for n in 1 2; do
        $JOB $n $cpu "$@" >cpu.log 2>&1 || not_ok cpu_${name}_$n "training on the CPU failed: $(tail -2 cpu.log)"
        $JOB $n $gpu --share_gpu "$@" >gpu.log 2>&1 || not_ok gpu_${name}_$n "training on the GPU failed: $(tail -2 gpu.log)"
        if same cpu.log gpu.log; then ok ${name}_$n; else not_ok ${name}_$n "$(paste a.txt b.txt)"; fi
    done
}
coded redsync --compression=redsync:density=0.1,min_bytes=1000
coded redsync_dense --compression=redsync:density=0.1,min_bytes=500,warmup_iter=2,resync_iter=4,local_clip=1
coded topk --compression=topk:density=0.1,min_bytes=1000
coded gtopk --compression=topk:density=0.1,min_bytes=1000,exchange=gtopk
coded oktopk --compression=redsync:density=0.1,min_bytes=1000,exchange=oktopk --set=deterministic=false
coded hier --compression=redsync:density=0.1,min_bytes=1000,exchange=hier,warmup_iter=1
coded onebit --compression=onebit:min_bytes=1000,warmup_iter=1
coded powersgd --compression=powersgd:min_bytes=1000,rank=2
coded bf16_clipped --compression=bf16:min_bytes=1000,local_clip=1
coded bf16 --compression=bf16:min_bytes=1000
coded fp16 --compression=fp16:min_bytes=1000
# snapshots have U and V, and Q, as on the CPU, and a run goes on from them exactly
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' out | tail -1; }
goes_on() {
    which=$1
    long="$CORTADO train --solver=solver.prototxt --solver_mode=gpu --share_gpu --compression=$2"
    runs ${which}_whole 0 'Optimization Done' $JOB 2 $long --set=snapshot_prefix=${which}_whole
    whole=$(sum_of)
    runs ${which}_part 0 'snapshot of iteration 10' $JOB 2 $long --set=snapshot_prefix=$which --iterations=10
    runs ${which}_resumes 0 'resuming after 10 iterations, written by 2 ranks' $JOB 2 $long --set=snapshot_prefix=$which --snapshot=auto
    is ${which}_resumes_exactly test -n "$whole" -a "$(sum_of)" = "$whole"
}
goes_on powersgd powersgd:min_bytes=500
goes_on hier redsync:density=0.1,min_bytes=500,exchange=hier
goes_on part redsync:density=0.1,min_bytes=500
runs goes_on_dense 0 'Optimization Done' $JOB 2 $CORTADO train --solver=solver.prototxt --solver_mode=cpu --snapshot=part_iter_10.solverstate.h5 --set=snapshot_prefix=dense
free="$gpu --share_gpu --set=deterministic=false --compression=auto:density=0.01,min_bytes=1000"
runs auto 0 'codecs on device cuda: .* to the host' $JOB 2 $free
runs auto_decides 0 'compression auto: .* predicted' $JOB 2 $free
# one rank has nothing to send: AUTO is a run without compression, graph and all
runs auto_alone 0 'backward: [0-9]+ of [0-9]+ steps in 1 graph, with the update' $free
runs no_auto 2 'name a codec' $JOB 2 $gpu --share_gpu --compression=auto:density=0.01,min_bytes=1000
runs no_scaled 2 'precision FP16 and compression do not go together' $gpu --compression=topk:min_bytes=1000 --set=precision=FP16
finish
