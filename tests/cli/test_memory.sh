#!/bin/sh
# States and weights in files: the bits of memory, under every rule; what cannot be is said.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=display=1 --set=comm.bucket_mb=0.002"
mkdir files
file="--set=memory.state=FILE --set=memory.path=files --set=memory.chunk_mb=0.004"

# same KIND RANKS OPTIONS…: in memory, states in files, all in files, weights in files
same() {
    kind=$1 n=$2
    shift 2
    for way in none state all weights; do
        how=
        case "$way $kind" in 'all shards' | 'weights shards') continue ;; esac # among ranks they are zero 3's
        [ $way = none ] || how=$file
        [ $way = all ] && how="$how --set=memory.weights=FILE --set=memory.checksum=true"
        [ $way = weights ] && how="$how --set=memory.weights=FILE --set=memory.state=DEVICE"
        runs "${kind}_${n}_$way" 0 'Optimization Done' $JOB $n $train "$@" $how --metrics=m.jsonl --set=snapshot_prefix=$way
        sum_of >sum_$way
        losses m.jsonl >losses_$way
        if [ $way = none ]; then
            is "there_${kind}_$n" test "$(wc -l <losses_none)" = 20
            continue
        fi
        is "said_${kind}_${n}_$way" grep -q 'of this rank lie in files in "files"' out
        case $kind in
        adam | apart)
            "$CORTADO" check --solver=solver.prototxt --ranks=$n --global_batch_size=12 --set=comm.bucket_mb=0.002 "$@" $how --json=c.json >out 2>&1
            is "planned_${kind}_$way" python3 "$ROOT/tests/cli/tiers_are.py" c.json m.jsonl
            ;;
        esac
        is "losses_${kind}_${n}_$way" cmp losses_none losses_$way
        is "weights_${kind}_${n}_$way" cmp sum_none sum_$way
    done
    is "nothing_left_${kind}_$n" test -z "$(ls files)"
}

export CORTADO_POISON=1
same sgd 1
same adam 1 --set=type=AdamW --set=base_lr=0.01 --set=average.type=EMA --set=average.decay=0.9
same lamb 1 --set=type=LAMB --set=base_lr=0.01
same clip 1 --set=clip_gradients=0.5 --set=iter_size=2
same shards 2 --set=type=Adam --set=base_lr=0.01 --set=memory.zero=1
same apart 2 --set=type=Adam --set=base_lr=0.01 --set=memory.zero=3 --set=clip_gradients=0.5
same each 2
# weights alone in files: a range of them ends with a chunk, one of states does not
for way in none alone; do
    how=--set=memory.path=files
    [ $way = none ] || how="$how --set=memory.weights=FILE --set=memory.chunk_mb=0.004"
    runs weights_$way 0 'Optimization Done' $JOB 1 $train $how --set=snapshot_prefix=$way
    sum_of >sum_$way
done
is weights_alone_same cmp sum_none sum_alone
unset CORTADO_POISON
# gradients that wait are kept in 16 bits: nothing else is rounded
one_step="--set=momentum=0 --set=weight_decay=0 --set=max_iter=1 --set=snapshot=0"
npz() { "$CORTADO" convert model --from="$1_iter_1.caffemodel.h5" --to="$1.npz" --force >out 2>&1; }
stepped() { # NAME RANKS OPTIONS…
    stepped_as=$1 stepped_on=$2
    shift 2
    runs "stepped_$stepped_as" 0 'Optimization Done' $JOB $stepped_on $train $one_step "$@" --set=snapshot_prefix=$stepped_as
    npz $stepped_as
}
narrow=--set=memory.gradients=BF16
stepped start 1 --set=base_lr=0
stepped wide 1 --set=clip_gradients=100
stepped wide2 1 --set=iter_size=2
for n in 1 2; do
    zero=--set=memory.zero=$((2 * n - 2))
    stepped narrow $n $zero $narrow --set=clip_gradients=100
    is "rounded_$n" python3 "$ROOT/tests/cli/moved.py" start.npz wide.npz narrow.npz
    stepped narrow2 $n $zero $narrow --set=iter_size=2
    is "rounded_twice_$n" python3 "$ROOT/tests/cli/moved.py" start.npz wide2.npz narrow2.npz wide.npz
done
runs nothing_waits 0 'gradients BF16 changes nothing' $JOB 1 $train $one_step $narrow
runs narrow_whole 2 'take zero: 2 or 3' $JOB 2 $train $narrow --set=memory.zero=1
runs weights_of_shards 2 'take zero: 3, or 0' $JOB 2 $train --set=memory.zero=1 --set=memory.weights=FILE --set=memory.path=files

# codecs beside weights in files: those that change weights where they lie are refused
for codec in redsync powersgd auto; do
    runs weights_and_$codec 2 "momentum_correction of $codec changes weights where they lie" \
        $JOB 1 $train --set=memory.weights=FILE --set=memory.path=files --compression=$codec:min_bytes=64
done
for n in 1 2; do
    for codec in topk redsync auto; do
        case $codec in topk) fields= ;; redsync) fields=,momentum_correction=false ;; auto) fields=,among=BF16 ;; esac
        for way in memory files; do
            how=--set=memory.path=files
            [ $way = memory ] || how="$how --set=memory.weights=FILE --set=memory.chunk_mb=0.004"
            runs coded_${codec}_${n}_$way 0 'Optimization Done' $JOB $n $train $how --compression=$codec:min_bytes=64$fields --set=snapshot_prefix=coded
            sum_of >sum_$way
        done
        is coded_${codec}_${n}_same cmp sum_memory sum_files
    done
done

# snapshots go from memory to files and back
adam="--set=type=Adam --set=base_lr=0.01 --set=average.type=SWA --set=average.interval=2 --set=snapshot=10"
for n in 1 2; do # ranks with a file each, of which rank 0 reads the set
    rm -f *_iter_*
    runs in_memory_$n 0 'Optimization Done' $JOB $n $train $adam --set=snapshot_prefix=m
    sum_of >sum_m
    runs in_files_$n 0 'Optimization Done' $JOB $n $train $adam $file --set=memory.weights=FILE --set=snapshot_prefix=f --set=snapshot_format=BINARYPROTO
    sum_of >sum_f
    is same_end_$n cmp sum_m sum_f
    runs to_files_$n 0 'Optimization Done' $JOB $n $train $adam $file --set=memory.weights=FILE --set=snapshot_prefix=r --snapshot=m_iter_10.solverstate.h5
    sum_of >sum_r
    is resumed_in_files_$n cmp sum_m sum_r
    runs to_memory_$n 0 'Optimization Done' $JOB $n $train $adam --set=snapshot_prefix=r --snapshot=f_iter_10.solverstate.h5
    sum_of >sum_r
    is resumed_in_memory_$n cmp sum_m sum_r
done

# limits: what is AUTO goes to files where memory is short; what cannot be is refused before it runs
{
    echo 'layer { name: "in" type: "DummyData" top: "x0" top: "y" dummy_data_param { shape { dim: 4 dim: 800 } shape { dim: 4 }
      data_filler { type: "gaussian" } data_filler { type: "constant" } } }'
    for k in 1 2 3 4 5 6; do
        echo "layer { name: \"a$k\" type: \"InnerProduct\" bottom: \"x$((k - 1))\" top: \"x$k\" inner_product_param { num_output: 800 weight_filler { type: \"xavier\" } } }"
    done
    echo 'layer { name: "b" type: "InnerProduct" bottom: "x6" top: "b" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "y" top: "loss" }'
} >wide.prototxt
printf 'net: "wide.prototxt" base_lr: 0.001 lr_policy: "fixed" type: "Adam" max_iter: 2 random_seed: 3 deterministic: true snapshot_after_train: false\n' >wide.solver
wide="--solver=wide.solver --set=memory.path=files --set=memory.chunk_mb=0.25 --set=memory.prefetch=1"
planned() { sed -n 's/.*memory: \([0-9]*\)[0-9.]* MiB of a rank are planned.*/\1/p' out; }
runs limit_none 0 'MiB of a rank are planned, .* MiB \((the machine|the control group|SLURM)\)' "$CORTADO" train $wide --set=memory.zero=0
sum_of >sum_none
all=$(planned)
is planned_all test "$all" -gt 46 # 15 MiB of weights, twice as many of states
for limit in $((all - 4)) $((all - 30)); do
    runs auto_$limit 0 "AUTO takes .*weights: FILE, since memory takes [0-9]* MiB of $limit \(limit_mb\)" "$CORTADO" train $wide --set=memory.limit_mb=$limit --metrics=m.jsonl
    sum_of >sum_auto
    is auto_same_$limit cmp sum_none sum_auto
    is auto_less_$limit test "$(planned)" -le $limit
done
runs auto_weights 0 'AUTO takes state: FILE weights: FILE' "$CORTADO" train $wide --set=memory.limit_mb=$limit
# … the fastest, and it says what it knows of the others; with the assumed speeds of deterministic
priced() { sed -n 's/.*MiB and \([0-9.e+]*\) ms a step are modelled, without a limit \([0-9.e+]*\) ms; of what fits, state: FILE \([0-9.e+]*\) ms, state: FILE weights: FILE \([0-9.e+]*\) ms; 1 of 4 ways do not fit.*/\1 \2 \3 \4/p' out; }
runs auto_said 0 'the model has 1000 GFLOP/s of a rank, and 2 GB/s read from its files and 1 written, all assumed' "$CORTADO" train $wide --set=memory.limit_mb=$((all - 4))
is auto_priced python3 -c 'import sys; a = [float(x) for x in sys.argv[1].split()]; exit(not (len(a) == 4 and a[1] < a[0] < a[2] < a[3]))' "$(priced)"
runs auto_measured 0 'GB/s read from its files and [0-9.]+ written, measured' "$CORTADO" train $wide --set=memory.limit_mb=$limit --set=deterministic=false
runs too_little 2 'limit_mb: 20: the least is [0-9]+ MiB; no recomputation, no stage of ZeRO and no file' "$CORTADO" train $wide --set=memory.limit_mb=20
runs group_too_little 2 'memory: SLURM leaves a rank 20 MiB: the least is [0-9]+ MiB; no recomputation, no stage of ZeRO and no file' \
    env SLURM_MEM_PER_NODE=20 "$CORTADO" train $wide
is group_said_once test "$(grep -c '^E' out)" = 1
runs group_enough 0 "of $all.0 MiB .SLURM" env SLURM_MEM_PER_NODE=$all "$CORTADO" train $wide --set=memory.zero=0
# without `memory` nothing is chosen, but what is enforced is compared
bare="$CORTADO train --solver=wide.solver"
runs bare_too_little 2 'SLURM leaves a rank 20 MiB of memory, and the least is [0-9]+ MiB, [0-9]+ of them taken at the start' env SLURM_MEM_PER_NODE=20 $bare
runs bare_too_little_2 2 'SLURM leaves a rank 20 MiB of memory' env SLURM_MEM_PER_NODE=40 $JOB 2 $bare
is bare_said_once test "$(grep -c '^E' out)" = 1
runs bare_enough 0 'Optimization Done' env SLURM_MEM_PER_NODE=$((all + 40)) $bare
runs host_too_little 2 "limit_mb: $((all - 4)): the least is [0-9]+ MiB; state: FILE would fit" "$CORTADO" train $wide --set=memory.limit_mb=$((all - 4)) --set=memory.state=HOST --set=memory.weights=HOST
# all ranks choose alike
runs limit_none_2 0 '' $JOB 2 "$CORTADO" train $wide --set=memory.zero=0
sum_of >sum_none
all_2=$(planned)
limit=$((all_2 - 4))
runs auto_2 0 "memory: AUTO takes weights: FILE, since memory takes [0-9]* MiB of $limit" $JOB 2 "$CORTADO" train $wide --set=memory.zero=0 --set=memory.limit_mb=$limit
sum_of >sum_auto
is auto_same_2 cmp sum_none sum_auto
# a stage of ZeRO, where none is given: what travels costs less than files; not with codecs that send all
for stage in 1 2; do
    limit=$((all_2 - 10 * stage + 1))
    runs auto_zero_$stage 0 "memory: AUTO takes zero: $stage, since memory takes [0-9]* MiB of $limit" $JOB 2 "$CORTADO" train $wide --set=memory.limit_mb=$limit
    sum_of >sum_auto
    is auto_zero_same_$stage cmp sum_none sum_auto
    is auto_zero_less_$stage test "$(planned)" -le $limit
done
runs auto_zero_files 0 'memory: AUTO takes zero: [23] .*FILE, since' $JOB 2 "$CORTADO" train $wide --set=memory.limit_mb=$((all_2 - 32))
sum_of >sum_auto
is auto_zero_files_same cmp sum_none sum_auto
# what looks at memory as it is has neither files nor, in local steps, shares
runs auto_outer 2 'the least is [0-9]+ MiB; no recomputation, no stage of ZeRO and no file' $JOB 2 "$CORTADO" train $wide \
    --set=outer.local_iter=2 --set=outer.groups=2 --set=memory.limit_mb=$((all_2 - 18))
runs auto_verified_2 0 'memory: AUTO takes zero: 1, since' $JOB 2 "$CORTADO" train $wide --set=verify_memory=true --set=memory.limit_mb=$((all_2 - 9))
sum_of >sum_auto
is auto_verified_same cmp sum_none sum_auto
runs auto_verified 2 'the least is [0-9]+ MiB; no recomputation' "$CORTADO" train $wide --set=verify_memory=true --set=memory.limit_mb=$((all - 4))
codec="--set=type=SGD --set=compression.type=POWERSGD --set=memory.limit_mb=$((all_2 - 18))"
runs auto_no_zero 0 'memory: AUTO takes .*FILE, since' $JOB 2 "$CORTADO" train $wide $codec
# codecs that change weights where they lie find them in memory
codec="$codec --set=memory.state=DEVICE"
runs auto_weights_2 0 'memory: AUTO takes weights: FILE, since' $JOB 2 "$CORTADO" train $wide $codec --set=compression.momentum_correction=false
runs auto_no_weights_2 2 'the least is [0-9]+ MiB; state: FILE would fit' $JOB 2 "$CORTADO" train $wide $codec
runs coded_1 0 '' "$CORTADO" train $wide $codec --set=memory.limit_mb=0
codec="$codec --set=memory.limit_mb=$(($(planned) - 4))"
runs auto_weights_1 0 'memory: AUTO takes weights: FILE, since' "$CORTADO" train $wide $codec --set=compression.momentum_correction=false
runs auto_no_weights_1 2 'the least is [0-9]+ MiB' "$CORTADO" train $wide $codec
runs auto_narrow 0 'memory: AUTO takes zero: 2, since' $JOB 2 "$CORTADO" train $wide --set=clip_gradients=1 --set=memory.gradients=BF16 --set=memory.limit_mb=$((all_2 - 6))
# the copy that snapshots are written of: each rank has its part, where the limit leaves room for it
async="--set=snapshot_async=true --set=snapshot_prefix=async"
copy() { python3 -c "import json; t = json.load(open('c.json'))['memory']['tiers'][0]; exit(not abs(t['snapshot'] * $1 - 3 * t['weights'] * $2) < 4096)"; }
runs copy 0 'snapshot' "$CORTADO" check $wide $async --set=memory.zero=0 --json=c.json
is copy_is_whole copy 1 1
runs copy_part 0 'snapshot' "$CORTADO" check $wide $async --set=memory.zero=0 --ranks=3 --global_batch_size=12 --json=c.json
is copy_is_part copy 3 1
runs copy_shard 0 'snapshot' "$CORTADO" check $wide $async --set=memory.zero=3 --ranks=3 --global_batch_size=12 --json=c.json
is copy_is_shard python3 -c 'import json; t = json.load(open("c.json"))["memory"]["tiers"][0]; exit(not 0 < t["snapshot"] < 1.6 * t["states"])'
for n in 1 2; do
    runs copy_no_room_$n 0 'snapshot_async: a copy takes [0-9]+ MiB, for which limit_mb has no room: training waits' $JOB $n "$CORTADO" train $wide $async --set=memory.limit_mb=$((all + 4)) --set=snapshot=1 --overwrite
    is copy_none_$n sh -c '! grep -q "MB for a copy\|is being written" out'
done
# what is made again or files, by their speed; and smaller chunks before a refusal
gpt="$CORTADO check --solver=$ROOT/models/gpt_char/solver.prototxt --set=batch_size=8 --set=recompute=AUTO --set=deterministic=true --json=c.json"
in_files() { python3 -c 'import json; print(len(json.load(open("c.json"))["memory"]["tiers"]) - 1)'; }
runs made_again 0 'recompute +BLOCKS' $gpt --set=memory.limit_mb=420
is made_again_first test "$(in_files)" = 0
runs small_chunks 0 'AUTO takes state: FILE chunk_mb: 0.5 and recompute: BLOCKS' $gpt --set=memory.limit_mb=270
is small_chunks_files test "$(in_files)" = 1
machine() { # GB/S of the disk
    printf 'name: "m" source: "made up" level { name: "node" size: 1 latency_us: 1 bandwidth_gbs: 10 }
        level { name: "machine" size: 1 latency_us: 1 bandwidth_gbs: 10 }
        node_class { name: "n" memory_gib: 4 file_read_gbs: %s file_write_gbs: %s }' $1 $1 >disk.machine
}
machine 0.01
runs slow_disk 0 'AUTO takes recompute: BLOCKS' $gpt --set=memory.limit_mb=480 --nodes=1 --machine=disk.machine
is slow_disk_none test "$(in_files)" = 0
machine 100
runs fast_disk 0 '100 GB/s read from its files and 100 written, the files as described' $gpt --set=memory.limit_mb=480 --nodes=1 --machine=disk.machine
is fast_disk_taken grep -q 'AUTO takes state: FILE chunk_mb: 0.5, since' out
is fast_disk_files test "$(in_files)" = 1
runs links 0 'files +[0-9.]+ MB a rank and step are read, [0-9.]+ written in [0-9.]+ ms' "$CORTADO" check $wide --set=memory.state=FILE --set=memory.weights=FILE --nodes=1 --machine=v100_8 --json=c.json
is links_move python3 -c 'import json; d = json.load(open("c.json")); t, l = d["memory"]["tiers"][1], d["verdict"]["links"][1]; exit(not (t["tier"] == l["link"] == "file" and l["written"] == t["sum"] > 0 and l["read"] > l["written"] + 1.5 * t["weights"]))'
runs links_unknown 0 'files .* not known: the nodes. class needs file_read_gbs' "$CORTADO" check $wide --set=memory.state=FILE --nodes=1
runs timed_too_little 2 'limit_mb: 20: the least is [0-9]+ MiB;' "$CORTADO" time $wide --iterations=1 --limits=false --set=memory.limit_mb=20
runs tested_too_little 2 'limit_mb: 5: the least is [0-9]+ MiB, [0-9]+ of them taken at the start' "$CORTADO" test --model=wide.prototxt --weights=absent --set=memory.limit_mb=5
runs tested_enough 3 'absent' "$CORTADO" test --model=wide.prototxt --weights=absent --set=memory.limit_mb=$all
runs checked_too_little 2 'limit_mb: 20: the least is [0-9]+ MiB;' "$CORTADO" check $wide --set=memory.limit_mb=20

# with --parallel each rank against its own plan; what is chosen has the bits of memory
printf 'ranks: 2 global_batch: 8 stage { first: "a1" last: "loss" rank: 0 rank: 1 }\n' >two.parallel
printf 'ranks: 2 global_batch: 8 stage { first: "a1" last: "a4" rank: 0 } stage { first: "a5" last: "loss" rank: 1 }\n' >stages.parallel
printf 'ranks: 2 global_batch: 8 stage { first: "a1" last: "a2" rank: 0 } stage { first: "a3" last: "loss" rank: 1 }\n' >late.parallel
# what rank 0 has beside what was there at the start is what was planned, but for messages
allocated() { python3 - "$(sed -n 's/.*memory: \([0-9.]*\) MiB of a rank are planned, \([0-9.]*\) MiB.*/\1 \2/p' out)" <<'PY'
import json, sys
planned, start = map(float, sys.argv[1].split())
row = [json.loads(l)["ranks"][0] for l in open("m.jsonl") if '"ranks":[' in l][0]
exit(not -0.1 < planned - start - row["allocated_bytes"] / 2**20 < 1)
PY
}
for plan in two stages; do
    divided="$JOB 2 $CORTADO train $wide --parallel=$plan.parallel --metrics=m.jsonl --overwrite"
    runs divided_$plan 0 'MiB of a rank are planned' $divided --set=memory.zero=0
    sum_of >sum_none
    is divided_planned_$plan allocated
    all_d=$(planned)
    for less in 4 14 17; do
        runs divided_${plan}_$less 0 'memory: AUTO takes .*, since memory takes' $divided --set=memory.limit_mb=$((all_d - less))
        sum_of >sum_auto
        is divided_same_${plan}_$less cmp sum_none sum_auto
        is divided_less_${plan}_$less test "$(planned)" -le $((all_d - less))
        is divided_allocated_${plan}_$less allocated
    done
    runs divided_host_$plan 2 "limit_mb: $((all_d - 4)): the least is [0-9]+ MiB on rank 0; .* would fit" $divided --set=memory.limit_mb=$((all_d - 4)) --set=memory.state=HOST --set=memory.weights=HOST --set=memory.zero=0
done
runs divided_first 2 'limit_mb: 30: the least is [0-9]+ MiB on rank 0; no recomputation' $JOB 2 "$CORTADO" train $wide --parallel=stages.parallel --set=memory.limit_mb=30
runs divided_late 2 'limit_mb: 30: the least is [0-9]+ MiB on rank 1; no recomputation' $JOB 2 "$CORTADO" train $wide --parallel=late.parallel --set=memory.limit_mb=30
runs divided_timed 2 'limit_mb: 30: the least is [0-9]+ MiB on rank 0;' $JOB 2 "$CORTADO" time $wide --parallel=stages.parallel --iterations=1 --limits=false --set=memory.limit_mb=30
runs divided_tested 2 'limit_mb: 5: the least is [0-9]+ MiB, [0-9]+ of them taken at the start' $JOB 2 "$CORTADO" test --model=wide.prototxt --weights=absent --parallel=stages.parallel --set=memory.limit_mb=5
runs divided_checked 2 'limit_mb: 30: rank 0 needs [0-9]+ MiB, [0-9]+ of them taken at the start' "$CORTADO" check $wide --parallel=stages.parallel --set=memory.limit_mb=30 --set=memory.zero=0 --set=memory.state=DEVICE
runs divided_checked_auto 0 'limit_mb: 30: rank 0 needs [0-9]+ MiB with states in memory and zero: 0; AUTO chooses' "$CORTADO" check $wide --parallel=stages.parallel --set=memory.limit_mb=30
runs no_folder 2 'memory { path }: "nowhere" is no folder' $train --set=memory.state=FILE --set=memory.path=nowhere
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
    runs in_tmpfs 0 'lies in memory \(tmpfs\)' $train --set=memory.state=FILE --set=memory.path=/dev/shm --set=max_iter=2 --set=snapshot_prefix=t
else
    skip in_tmpfs "no /dev/shm"
fi
TMPDIR=$PWD/files
export TMPDIR
runs by_tmpdir 0 "lie in files in \"$PWD/files\"" $train --set=memory.state=FILE --set=max_iter=2 --set=snapshot_prefix=t
mkdir stage
runs by_stage 0 'lie in files in "stage"' $train --set=memory.state=FILE --stage=stage --set=max_iter=2 --set=snapshot_prefix=t
runs timed 0 'lie in files in' "$CORTADO" time --solver=solver.prototxt --iterations=2 --limits=false $file --set=memory.weights=FILE
finish
