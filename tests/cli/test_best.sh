#!/bin/sh
# Runs that stop by themselves and keep their best: on one rank and on two, in folders, killed and gone on with.
. "$ROOT/tests/cli/lib.sh"
make_case
train="$CORTADO train --solver=solver.prototxt --global_batch_size=16 --set=test_interval=5 --set=snapshot=5 --set=snapshot_keep=1"
best='--set=best.metric=accuracy --set=best.keep=2'
sum_of() { sed -n 's/.*weights after iteration [0-9]*: checksum \([0-9a-f]*\).*/\1/p' out; }
cat >ranks.py <<'EOP'
# ranks.py FOLDER KEEP: PREFIX.best holds the best of the tests in the metrics, earlier ones first, and just
# those sets and the newest are there.
import json, os, sys
folder, keep = sys.argv[1], int(sys.argv[2])
tests = {}
for line in open(f"{folder}/metrics.jsonl"):
    e = json.loads(line)
    if e["event"] == "test":
        tests.setdefault(e["iter"], e["outputs"]["accuracy"])
want = sorted(tests, key=lambda i: (-tests[i], i))[:keep]
lines = open(f"{folder}/snapshots/snapshot.best").read().split("\n")
assert lines[0] == "accuracy HIGHER", lines
have = [int(l.split()[0]) for l in lines[1:] if l]
assert have == want, (have, want, tests)
assert all(abs(float(l.split()[1]) - tests[int(l.split()[0])]) < 1e-6 for l in lines[1:] if l)
sets = {int(f.split("_")[2].split(".")[0]) for f in os.listdir(f"{folder}/snapshots") if f.endswith(".solverstate.h5")}
assert sets == set(want) | {max(sets)}, (sets, want)
print(have[0])
EOP
for p in 1 2; do
    runs trains_$p 0 'the best accuracy is' $JOB $p $train $best --iterations=40 --run=r$p
    sum=$(sum_of)
    is ranked_$p python3 ranks.py r$p 2
    is said_$p grep -q '"event":"best","iter":[0-9]*,"metric":"accuracy","value":[0-9.e-]*,"rank":1}' r$p/metrics.jsonl
    is done_$p grep -q '"event":"done".*"ended_by":"max_iter","best":{"metric":"accuracy","direction":"HIGHER","iter":' r$p/metrics.jsonl
    first=$(python3 ranks.py r$p 2)
    runs tests_best_$p 0 "snapshot_iter_$first.caffemodel.h5" $JOB $p "$CORTADO" test --run=r$p --iterations=2

    # killed somewhere behind its second snapshot, twice, and gone on with
    for kill in 1 2; do
        $JOB $p $train $best --iterations=40 --run=k$p --snapshot=auto --set=snapshot_async=$([ $kill = 1 ] && echo false || echo true) >out 2>&1 &
        job=$!
        n=0
        while [ ! -e k$p/snapshots/snapshot_iter_$((kill * 10)).solverstate.h5 ] && [ $n -lt 600 ] && kill -0 $job 2>/dev/null; do sleep 0.02; n=$((n + 1)); done
        kill -9 $job 2>/dev/null
        wait $job 2>/dev/null
        # ranks that their launcher leaves behind give the prefix back when they end
        n=0
        while pgrep -f "run=k$p " >/dev/null 2>&1 && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
    done
    runs goes_on_$p 0 'the best accuracy is' $JOB $p $train $best --iterations=40 --run=k$p --snapshot=auto
    is same_weights_$p [ "$(sum_of)" = "$sum" ]
    is same_best_$p cmp r$p/snapshots/snapshot.best k$p/snapshots/snapshot.best
    is ranked_again_$p python3 ranks.py k$p 2
    runs tests_best_again_$p 0 "snapshot_iter_$first.caffemodel.h5" $JOB $p "$CORTADO" test --run=k$p --iterations=2

    # an accuracy is made to fall: as if less of it were better, the first test stays the best
    runs worse_$p 0 'patience is over: 3 tests without a better accuracy' $JOB $p $train $best --set=best.direction=LOWER --set=patience=3 --set=base_lr=0.2 --iterations=1000 --run=w$p
    is ended_by_$p grep -q '"event":"done","iter":[0-9]*,"status":"finished".*"ended_by":"patience"' w$p/metrics.jsonl
    at=$(sed -n 's/.*"event":"done","iter":\([0-9]*\),.*/\1/p' w$p/metrics.jsonl)
    is early_$p [ "$at" -lt 1000 ]
    runs stays_ended_$p 0 'patience is over' $JOB $p $train $best --set=best.direction=LOWER --set=patience=3 --set=base_lr=0.2 --iterations=1000 --run=w$p --snapshot=auto
    is not_a_step_more_$p [ "$(sed -n 's/.*"event":"done","iter":\([0-9]*\),.*/\1/p' w$p/metrics.jsonl | tail -n 1)" = "$at" ]

    # passes over the data, as steps of 16 samples
    samples=$(sed -n 's/.* \([0-9]*\) samples in the data set.*/\1/p' out | head -n 1)
    steps=$(((samples * 3 / 2 + 15) / 16))
    runs epochs_$p 0 "max_epoch 1.5: $samples samples, 16 a step, so max_iter is $steps" $JOB $p $train --iterations=1000 --set=max_epoch=1.5 --run=e$p
    is ends_then_$p grep -q "\"event\":\"done\",\"iter\":$steps," e$p/metrics.jsonl
done
runs shorter 0 'so max_iter is 7$' $train --iterations=7 --set=max_epoch=100 --run=e3

runs too_long 2 'max_epoch is 1e.12, which is .* iterations of 16 samples; at most 2147483647' $train --set=max_epoch=1e12 --run=e9

# of a net that two ranks run together
echo 'ranks: 2 global_batch: 16 stage { first: "conv" last: "drop" rank: 1 } stage { first: "ip" last: "loss" rank: 0 }' >stages.plan
runs divided 0 'the best accuracy is' $JOB 2 $train $best --iterations=40 --run=d1 --parallel=stages.plan
is ranked_divided python3 ranks.py d1 2

# max_epoch in place of max_iter, also of a policy that runs to the end; check needs no data for it
sed 's/max_iter: 20/max_epoch: 0.5/; s/"fixed"/"cosine"/' solver.prototxt >epochs.prototxt
runs alone 0 'so max_iter is' "$CORTADO" train --solver=epochs.prototxt --run=e4
is last_rate python3 -c "
import json
e = [json.loads(l) for l in open('e4/metrics.jsonl')]
end = [x for x in e if x['event'] == 'done'][0]['iter']
import math
for x in e:
    if x['event'] == 'train':
        assert abs(x['lr'] - 0.05 * (1 + math.cos(math.pi * x['iter'] / end)) / 2) < 1e-7, (x, end)
"
runs checks 0 '' "$CORTADO" check --solver=epochs.prototxt
is no_warning sh -c "! grep -q 'max_iter is not set' out"

# a list that is no list, sets that are gone
echo 'what' >>r1/snapshots/snapshot.best
rm r1/snapshots/snapshot_iter_*.solverstate.h5
runs bad_list 3 'snapshot.best:4: expected an iteration and a value' "$CORTADO" test --run=r1 --iterations=1
rm k1/snapshots/snapshot_iter_$(python3 ranks.py k1 2).solverstate.h5
runs next_best 0 'snapshot skipped: ' "$CORTADO" test --run=k1 --iterations=1
finish
