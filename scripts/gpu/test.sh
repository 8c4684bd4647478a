#!/bin/sh
# Tests on a GPU: what make test-gpu runs, also from a folder that make gpu-bundle made elsewhere.
#   scripts/gpu/test.sh FOLDER       FOLDER/cortado and FOLDER/tests/unit/test_*; FOLDER/lib if there
# Exits 0 where all is well, 1 where a test failed, 77 where no GPU works: then nothing was run.
# SANITIZE=0 leaves compute-sanitizer out; CORTADO_TEST_LAYERS="..." names other tests of layers. After
# LIMIT seconds (default 420) no more runs of compute-sanitizer begin, and those under way end.
set -u
cd "$(dirname "$0")/../.." || exit 1
b=${1:?folder of a build with CUDA=1}
. scripts/gpu/env.sh
results=$b/results-gpu
run="scripts/run_test.sh $results"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
end=$(($(date +%s) + ${LIMIT:-420}))

if ! gpus=$("$b/cortado" info --gpus 2>&1); then
    echo "$gpus"
    echo "no GPU: nothing run"
    exit 77
fi
echo "$gpus"
rm -rf "$results"

# layers, with gradients, golden values and the CPU beside each: the tests of the CPU, on the GPU
layers=${CORTADO_TEST_LAYERS:-layer_cases layer_golden layer_accuracy layer_attention layer_batch_norm layer_dropout layer_eltwise layer_embed layer_empty layer_losses layer_neuron layer_norms layer_planes layer_ranks layer_recurrent layer_scale layer_shape layer_sigmoid layer_softmax layer_structure net_vary}
$run gpu/cuda timeout 120 "$b/tests/unit/test_cuda"
$run gpu/cuda_attention timeout 60 "$b/tests/unit/test_cuda_attention"
$run gpu/cuda_cell timeout 60 "$b/tests/unit/test_cuda_cell"
# which compares bits of steps that cuDNN may give to several streams
CUBLAS_WORKSPACE_CONFIG=:4096:2 $run gpu/cuda_cell_net timeout 60 "$b/tests/unit/test_cuda_cell_net"
$run gpu/cuda_data timeout 60 "$b/tests/unit/test_cuda_data"
# products with epilogues: what the library has no algorithm for is told in the log of the test
$run gpu/cuda_fused timeout 60 "$b/tests/unit/test_cuda_fused"
$run gpu/cuda_dense timeout 60 "$b/tests/unit/test_cuda_dense"
$run gpu/cuda_last timeout 60 "$b/tests/unit/test_cuda_last"
$run gpu/cuda_narrow timeout 60 "$b/tests/unit/test_cuda_narrow"
$run gpu/cuda_norm timeout 60 "$b/tests/unit/test_cuda_norm"
$run gpu/cuda_plan timeout 60 "$b/tests/unit/test_cuda_plan"
$run gpu/cuda_recurrent timeout 60 "$b/tests/unit/test_cuda_recurrent"
$run gpu/cuda_staged timeout 60 "$b/tests/unit/test_cuda_staged"
$run gpu/cuda_step timeout 60 "$b/tests/unit/test_cuda_step"
$run gpu/cuda_sum timeout 60 "$b/tests/unit/test_cuda_sum"
$run gpu/cuda_update timeout 60 "$b/tests/unit/test_cuda_update"
# whole steps as graphs beside steps given kernel by kernel, bit by bit
$run gpu/cuda_graph timeout 120 "$b/tests/unit/test_cuda_graph"
$run gpu/pass timeout 60 "$b/tests/unit/test_pass"
$run gpu/device_codec timeout 60 "$b/tests/unit/test_device_codec"
$run gpu/device_signs timeout 60 "$b/tests/unit/test_device_signs"
for t in $layers; do
    [ -x "$b/tests/unit/test_$t" ] || continue
    CORTADO_TEST_DEVICE=cuda $run "gpu/$t" timeout 60 "$b/tests/unit/test_$t"
done

# two GPUs and NCCL: sums over ranks within the graphs, kernel by kernel, and through the host
n_gpu=$(echo "$gpus" | grep -c '^gpu [0-9]')
if [ "$n_gpu" -ge 2 ] && command -v mpirun >/dev/null && [ ! -d "$b/lib" ]; then
    CORTADO=$(cd "$b" && pwd)/cortado ROOT=$PWD MPIRUN_FLAGS=${MPIRUN_FLAGS:-} $run gpu/sums timeout 240 sh tests/cli/test_gpu_sums.sh
    CORTADO=$(cd "$b" && pwd)/cortado ROOT=$PWD MPIRUN_FLAGS=${MPIRUN_FLAGS:-} $run gpu/divided timeout 240 sh tests/cli/test_gpu_divided.sh
else
    echo "skip gpu/sums: needs two GPUs and mpirun, this sees $n_gpu"
fi

# memory errors and races, on a few: the tools slow a program down some ten to hundred times. One that does
# not end in its time failed at nothing: the program alone has run above. What calls of CUDA return, the tests
# look at themselves: a runtime that is newer than the driver asks for what that has not.
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
sanitized() { # NAME SECONDS TOOL PROGRAM
    left=$((end - $(date +%s)))
    [ "$left" -ge 10 ] || { echo "skip gpu/$1: out of time"; return; }
    flags="--error-exitcode 9"
    [ "$3" != memcheck ] || flags="$flags --leak-check no --report-api-errors no"
    # shellcheck disable=SC2016,SC2086 # $0 and "$@" are the inner shell's; flags are words
    $run "gpu/$1" sh -c 'timeout "$0" "$@"; rc=$?
        [ $rc = 124 ] || exit $rc
        echo "skip '"$1"': no end within $0 s"' $((left < $2 ? left : $2)) "$tool" --tool "$3" $flags "$b/tests/unit/$4"
}
if [ "${SANITIZE:-1}" != 1 ] || [ -z "$tool" ]; then
    echo "skip gpu/memcheck: no compute-sanitizer, or SANITIZE=0"
elif ! why=$(timeout 60 "$tool" --tool memcheck --report-api-errors no "$b/cortado" info --gpus 2>&1); then
    echo "skip gpu/memcheck: compute-sanitizer does not work here: $(echo "$why" | grep '^=====' | sed -n '2p')"
else
    sanitized memcheck_device_codec 60 memcheck test_device_codec
    sanitized memcheck_device_signs 60 memcheck test_device_signs
    sanitized racecheck_device_codec 60 racecheck test_device_codec
    sanitized racecheck_device_signs 60 racecheck test_device_signs
    sanitized memcheck_attention 60 memcheck test_cuda_attention
    sanitized racecheck_attention 60 racecheck test_cuda_attention
    export CORTADO_TEST_DEVICE=cuda
    sanitized memcheck_losses 90 memcheck test_layer_softmax
    unset CORTADO_TEST_DEVICE
    sanitized memcheck 120 memcheck test_cuda
    sanitized memcheck_fused 90 memcheck test_cuda_fused
    sanitized racecheck 90 racecheck test_cuda
fi
grep -h 'the library has no product\|ReLUs in products' "$results"/gpu_cuda_fused.log "$results"/gpu_cuda_dense.log 2>/dev/null
scripts/test_summary.sh "$results"
