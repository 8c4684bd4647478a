#!/bin/bash
# The job file under a real Slurm of 4 pretended nodes: USR1 -> 75 -> requeue -> resume -> finished,
# and a launch that MPI does not know of -> 4. Needs root and Slurm; says that it skips without.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${CORTADO:=$root/cortado}"

for tool in slurmctld slurmd munged sbatch srun; do
    command -v $tool >/dev/null || PATH=$PATH:/usr/sbin command -v $tool >/dev/null || {
        echo "skip slurm: no $tool (Debian: slurmctld slurmd slurm-client munge)"
        exit 0
    }
done
[ "$(id -u)" = 0 ] || { echo "skip slurm: starting a cluster needs root"; exit 0; }
export PATH=$PATH:/usr/sbin

dir=$(mktemp -d)
finish() {
    [ -n "${job:-}" ] && scancel "$job" 2>/dev/null
    "$here/cluster.sh" down "$dir"
    sleep 1
    rm -rf "$dir"
}
trap finish EXIT
fail() {
    echo "not ok slurm: $*"
    tail -n 25 "$dir"/slurm-*.out "$dir"/launch.log "$dir/slurmctld.log" 2>/dev/null
    exit 1
}

"$here/cluster.sh" up "$dir" 4 || fail "the cluster does not come up"
. "$dir/env.sh"
cd "$dir" || exit 1
"$CORTADO" convert digits --to="$dir/digits" --count=2000 --seed=1 >convert.log 2>&1 || fail "convert"
sed "s#data/mnist/\(train\|test\)_lmdb#$dir/digits/\1_lmdb#" "$root/models/lenet/train_val.prototxt" >net.prototxt
grep -q "$dir/digits/train_lmdb" net.prototxt || fail "the net's data source was not found"
cat >solver.prototxt <<EOF
net: "net.prototxt"
base_lr: 0.01
lr_policy: "fixed"
momentum: 0.9
max_iter: ${MAX_ITER:-600}
display: 10
test_iter: 1
test_interval: 100000
test_initialization: false
snapshot_prefix: "$dir/lenet"
global_batch_size: 64
random_seed: 1
deterministic: true
EOF
export CORTADO OMP_NUM_THREADS=1

# 2 tasks, and an MPI that does not hear of them
srun -N2 -n2 --mpi=none "$CORTADO" train --solver=solver.prototxt >launch.log 2>&1
rc=$?
[ $rc = 4 ] || fail "launch mismatch ended with $rc, not 4"
grep -q -- --mpi launch.log || fail "the message does not name --mpi"
echo "ok launch mismatch ends with 4"

# sites choose the plugin with this variable; the job file stays as it is
export SLURM_MPI_TYPE=pmix
job=$(sbatch --parsable --chdir="$dir" --nodes=4 --ntasks-per-node=1 --cpus-per-task=1 --time=10 \
    --output="$dir/slurm-%j.out" "$root/scripts/slurm/train.sbatch") || fail "sbatch"
log=$dir/slurm-$job.out
wait_for() { # SECONDS COMMAND...
    local left=$1
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 1
    done
}
wait_for 60 grep -q 'Iteration 30 ' "$log" || fail "the job does not train"
grep -q '4 ranks' "$log" || fail "not a job of 4 ranks"
echo "USR1 to the ranks"
scancel --signal=USR1 "$job"
restarted() { [ "$(scontrol show job "$job" -o | sed 's/.*Restarts=\([0-9]*\).*/\1/')" = 1 ]; }
wait_for 60 restarted || fail "not requeued"
ls "$dir"/lenet_iter_*.solverstate.h5 >/dev/null || fail "no snapshot"
at=$(ls "$dir"/lenet_iter_*.solverstate.h5 | sed 's/.*_iter_\([0-9]*\).*/\1/')
echo "snapshot at iteration $at, job requeued"
finished() { grep -q 'Optimization Done' "$log"; }
wait_for 240 finished || fail "the requeued job did not finish"
state() { scontrol show job "$job" -o | grep -q "JobState=COMPLETED.*ExitCode=0:0"; }
wait_for 30 state || fail "the job's state: $(scontrol show job "$job" -o)"

# every tenth iteration once, in order, over both parts of the run
sed -n 's/.*"event":"train","iter":\([0-9]*\).*/\1/p' metrics.jsonl >iters
seq 0 10 "$((${MAX_ITER:-600} - 10))" | diff - iters >diff.log || fail "iterations reported: $(cat diff.log)"
echo "ok USR1, requeue, resume from $at, finished"
