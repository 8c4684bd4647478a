# One rank: training, metrics, resume, signals, kills, bad data. Equality is bitwise.
. "$ROOT/tests/cli/lib.sh"
make_case
train() { "$CORTADO" train --solver=solver.prototxt "$@" >out 2>&1 </dev/null; }
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }

runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --metrics=m.jsonl --set=snapshot_prefix=straight
is caffe_lines grep -Eq '^I[0-9]{4} .*\] Iteration 10 \(.* iter/s, .*s/10 iters\), loss = ' out
is run_first sh -c 'head -1 m.jsonl | grep -q "^{\"event\":\"run\".*\"base_lr\":0.05"'
is done_last sh -c 'tail -1 m.jsonl | grep -q "^{\"event\":\"done\",\"iter\":20"'
is a_test_event sh -c 'grep -q "\"event\":\"test\",\"iter\":20,\"net\":0,\"outputs\":{\"accuracy\":" m.jsonl'
straight=$(sum_of)
is weights_are_there test -s straight_iter_20.caffemodel.h5

# 10 + resume + 10 is 20
train --iterations=10 --set=snapshot_prefix=half
runs resumes 0 'resuming after 10 iterations' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=half --snapshot=half_iter_10.solverstate.h5
is sum_is_there test "${straight%% *}" = 20
is resume_is_exact test "$(sum_of)" = "$straight"
runs auto_fresh 0 'no snapshot at fresh yet' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=fresh --snapshot=auto
is auto_is_exact test "$(sum_of)" = "$straight"
runs weights_for_state 3 'caffemodel' "$CORTADO" train --solver=solver.prototxt --snapshot=straight_iter_20.caffemodel.h5
runs scores 0 'accuracy = 0\.|accuracy = 1' "$CORTADO" test --model=net.prototxt --weights=straight_iter_20.caffemodel.h5 --iterations=3 --metrics=t.jsonl
is score_metrics grep -q '"event":"test"' t.jsonl

# a damaged newest set: the one before is taken, with a warning
cp half_iter_20.caffemodel.h5 keep.h5
dd if=/dev/zero of=half_iter_20.caffemodel.h5 bs=1 seek=3000 count=16 conv=notrunc 2>/dev/null
runs damaged_is_skipped 0 'half_iter_20.*' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=half --snapshot=auto
is damage_is_told grep -Eq '^W.*half_iter_20' out
is went_back grep -q 'resuming after 10 iterations' out
is repaired test "$(sum_of)" = "$straight"

# wait_for PATTERN FILE: until a line is there
wait_for() {
    for _ in $(seq 600); do
        grep -q "$1" "$2" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}
# USR1: a snapshot at the end of the step, exit 75, and the rest is as if nothing had been
long="--iterations=4000 --set=display=100 --set=snapshot=0 --set=test_interval=10000"
rm -f log # waited for is what this run says
"$CORTADO" train --solver=solver.prototxt $long --set=snapshot_prefix=usr >log 2>&1 </dev/null &
pid=$!
wait_for 'Iteration 100 ' log
kill -USR1 $pid
wait $pid
rc=$?
is usr1_exits_75 test $rc = 75
set -- usr_iter_*.solverstate.h5
at=${1#usr_iter_}
at=${at%.solverstate.h5}
is usr1_left_one_set test $# = 1
if [ -n "$at" ] && [ "$at" -gt 0 ] 2>/dev/null; then
    more=$((at + 50))
    train $long --iterations=$more --set=snapshot_prefix=usr --snapshot=auto
    resumed=$(sum_of)
    train $long --iterations=$more --set=snapshot_prefix=whole
    is usr1_is_exact test "$(sum_of)" = "$resumed"
fi
rm -f log # waited for is what this run says
"$CORTADO" train --solver=solver.prototxt $long --iterations=400000 --set=snapshot_prefix=int --sigint_effect=snapshot >log 2>&1 </dev/null &
pid=$!
wait_for 'Iteration 100 ' log
kill -INT $pid
wait_for 'snapshot of iteration' log
kill -USR2 $pid
is usr2_tells wait_for 'state: in ' log
kill -TERM $pid
wait $pid
rc=$?
is term_exits_75 test $rc = 75
is int_took_a_snapshot test "$(ls int_iter_*.solverstate.h5 | wc -l)" = 2

# kill -9 while a snapshot is written every step: what is left is good
every="--iterations=100000 --set=display=20 --set=snapshot=1 --set=snapshot_keep=3 --set=test_interval=100000 --set=snapshot_prefix=kill"
for round in 1 2 3; do
    rm -f log
    "$CORTADO" train --solver=solver.prototxt $every --snapshot=auto >log 2>&1 </dev/null &
    pid=$!
    wait_for 'snapshot of iteration' log
    sleep 0.$((round * 2))
    kill -9 $pid
    wait $pid 2>/dev/null
done
last=$(ls kill_iter_*.solverstate.h5 | sed 's/.*_iter_//; s/\..*//' | sort -n | tail -1)
more=$((last + 5))
train $every --set=snapshot=0 --iterations=$more --snapshot=auto
is killed_resumes test $? = 0
resumed=$(sum_of)
train $every --set=snapshot=0 --iterations=$more --set=snapshot_prefix=unkilled
is killed_is_exact test "$(sum_of)" = "$resumed"
is no_rubbish_left test "$(ls -A | grep -c 'kill_iter.*tmp')" = 0

# the numbers, the data
runs diverges 5 '' "$CORTADO" train --solver=solver.prototxt --set=base_lr=1e30
runs diverges_last 5 'the loss after the last update, of iteration 1, is not finite .*; stop_on_nan: false goes on' \
    "$CORTADO" train --solver=solver.prototxt --set=base_lr=1e30 --set=max_iter=1 --set=display=1 --set=snapshot=0 --set=snapshot_after_train=false --overwrite
runs diverges_on 0 'Iteration 1, loss = (-?nan|inf)' \
    "$CORTADO" train --solver=solver.prototxt --set=base_lr=1e30 --set=max_iter=1 --set=display=1 --set=snapshot=0 --set=snapshot_after_train=false --set=stop_on_nan=false --overwrite
runs wrong_labels 3 'label' "$CORTADO" train --solver=solver.prototxt '--set=layer[ip].inner_product_param.num_output=5'
sed 's/scale: 0.00390625/mean_file: "nothere.binaryproto"/' net.prototxt >mean.prototxt
sed 's/net.prototxt/mean.prototxt/' solver.prototxt >mean_solver.prototxt
runs missing_mean 3 'nothere.binaryproto' "$CORTADO" train --solver=mean_solver.prototxt
cp -r data good
size=$(stat -c %s data/train_lmdb/data.mdb)
truncate -s $((size / 2)) data/train_lmdb/data.mdb
runs truncated_lmdb 3 'train_lmdb' "$CORTADO" train --solver=solver.prototxt
truncate -s 100 data/train_lmdb/data.mdb
runs tiny_lmdb 3 'train_lmdb' "$CORTADO" train --solver=solver.prototxt
rm -r data
runs no_lmdb 3 'train_lmdb' "$CORTADO" train --solver=solver.prototxt
mv good data

# the same of HDF5
"$CORTADO" convert digits --to=h5 --count=600 --seed=3 --backend=hdf5 >out 2>&1 || not_ok convert_hdf5 "digits"
sed 's#type: "Data"#type: "HDF5Data"#; s#data_param { source: "data/\(train\|test\)_lmdb" backend: LMDB batch_size: \([0-9]*\) }#hdf5_data_param { source: "h5/\1.h5" batch_size: \2 }#' \
    net.prototxt >h5net.prototxt
sed 's/net.prototxt/h5net.prototxt/' solver.prototxt >h5_solver.prototxt
runs trains_on_hdf5 0 'Optimization Done' "$CORTADO" train --solver=h5_solver.prototxt --set=snapshot_prefix=h5s
size=$(stat -c %s h5/train.h5)
truncate -s $((size / 2)) h5/train.h5
runs truncated_hdf5 3 'train.h5' "$CORTADO" train --solver=h5_solver.prototxt --set=snapshot_prefix=h5s
rm -r h5
runs no_hdf5 3 'train.h5' "$CORTADO" train --solver=h5_solver.prototxt --set=snapshot_prefix=h5s

# a disk that is full
if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=64k none small 2>/dev/null; then
    trap 'umount "$work/small" 2>/dev/null; rm -rf "$work"' EXIT
    runs full_disk 3 'space|small' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=small/s
    umount small
else
    skip full_disk "needs root and a mount"
fi
runs unwritable_prefix 3 '/proc' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=/proc/nothere/s
finish
