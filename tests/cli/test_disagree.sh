# Ranks that would not run the same job, and topologies that do not fit it: found at the start, named,
# and nobody left waiting.
# long: jobs that end by themselves
. "$ROOT/tests/cli/lib.sh"
make_case
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --allreduce=ring"

# another data set on rank 1: images of 24 x 24, so that its inner product is smaller
idx() {
    { printf '\0\0\010\003\0\0\0\144\0\0\0\030\0\0\0\030'; head -c 57600 /dev/zero; } >"idx/$1-images-idx3-ubyte"
    { printf '\0\0\010\001\0\0\0\144'; head -c 100 /dev/zero; } >"idx/$1-labels-idx1-ubyte"
}
mkdir idx other
idx train
idx t10k
"$CORTADO" convert mnist --from=idx --to=other/data >out 2>&1 || not_ok other_data convert
each="--set=node_reader=false" # or the node's first rank would read for both
for bucket_mb in 0 0.001; do
    runs "other_net_$bucket_mb" 2 'cut the gradients into different buckets: bucket 0 .*ip.*on rank' \
        $MPIRUN $MPIRUN_FLAGS -np 1 $train $each --set=comm.bucket_mb=$bucket_mb : -np 1 -wdir "$work/other" $train $each --set=comm.bucket_mb=$bucket_mb
    is "other_net_${bucket_mb}_names_it" grep -Eq 'ip\[0\].*ip\[[01]\]' out
done

# topologies that do not fit
for t in 3x2 2x 0x4 map:00 map:00000 map:0x/00 x 2x2x; do
    runs "topology_$t" 2 '' $JOB 4 $train --topology=$t
    is "topology_${t}_said_once" test "$(grep -c '^E' out)" = 1
done
for a in rings '' impii; do
    runs "allreduce_$a" 2 'allreduce' $JOB 2 $train --allreduce="$a"
done
# one rank alone is as strict
runs allreduce_one_rank 2 'unknown allreduce "rign"; did you mean "ring"' "$CORTADO" train --solver=solver.prototxt --allreduce=rign
# an MPI that gives less than asked for
low() { # NAME LEVEL EXIT-CODE PATTERN OPTION...
    name=$1 level=$2 want=$3 pattern=$4
    shift 4
    if make_low_mpi "$level"; then
        runs "$name" "$want" "$pattern" $JOB 2 env LD_PRELOAD="$work/$level.so" $train "$@"
    else
        skip "$name" "mpicc makes no shared library here"
    fi
}
if ! can_preload; then
    skip thread_levels "the sanitizer wants to be loaded first"
else
    low no_threads MPI_THREAD_SINGLE 1 'thread level .*MPI_THREAD_FUNNELED is needed'
    low funneled MPI_THREAD_FUNNELED 0 'Optimization Done' --set=snapshot=0
    low funneled_no_thread MPI_THREAD_FUNNELED 2 'progress: THREAD' --set=comm.progress=THREAD
fi
runs bucket_mb 2 'bucket_mb' $JOB 2 $train --set=comm.bucket_mb=-1
runs no_samples 2 '' $JOB 4 $train --global_batch_size=3
finish
