#!/bin/sh
# cortado sweep: the same table whatever runs at once, on two ranks, killed and gone on with; what is drawn; rounds;
# job arrays; messages.
# long: some fifty short trainings
. "$ROOT/tests/cli/lib.sh"
unset SLURM_JOB_ID
export MPIRUN MPIRUN_FLAGS
make_case
sed -i 's/test_interval: 20/test_interval: 5/; s/snapshot: 10/snapshot: 4/; s/random_seed: 7//' solver.prototxt
cat >grid.sweep <<'EOF'
solver: "solver.prototxt" metric: "accuracy" at_once: 1
vary { field: "base_lr" from: 0.001 to: 0.1 log: true steps: 3 }
vary { field: "momentum" value: "0" value: "0.9" }
set: "iter_size=1"
EOF
sweep="$CORTADO sweep"
dones() { grep -c '"event":"done"' "$1"/runs/*/metrics.jsonl | sed 's/.*://' | sort -u | tr '\n' ' '; }

# ---- a grid
runs grid 0 '^ *1  000[0-9] .* finished$' $sweep grid.sweep --to=one/
cat >ranked.py <<'EOP'
# ranked.py FOLDER: the table is by what the runs' own metrics say, CSV and JSON alike, and the runs had the settings.
import csv, json, sys
f = sys.argv[1]
table = list(csv.DictReader(open(f"{f}/table.csv")))
o = json.load(open(f"{f}/table.json"))
assert o["direction"] == "HIGHER" and len(o["runs"]) == len(table)
seen = []
for row, e in zip(table, o["runs"]):
    assert row["run"] == e["run"] and int(row["rank"]) == e["rank"] and row["state"] == e["state"]
    events = [json.loads(l) for l in open(f"{f}/runs/{row['run']}/metrics.jsonl")]
    tests = [x for x in events if x["event"] == "test"]
    best = max(t["outputs"]["accuracy"] for t in tests)
    assert abs(best - e["value"]) < 1e-6 and min(t["iter"] for t in tests if t["outputs"]["accuracy"] == best) == e["best_iter"]
    config = [x for x in events if x["event"] == "run"][0]["config"]
    assert all(abs(float(config[k]) - float(v)) < 1e-6 * float(v) + 1e-12 for k, v in e["set"].items()), (config, e)
    assert config["random_seed"] == 1
    seen.append((-e["value"], e["run"]))
assert seen == sorted(seen), seen
EOP
is ranked python3 ranked.py one
is all_there [ "$(ls one/runs | grep -c '^000[1-6]$')" = 6 ]
runs again 0 '6 of 6 runs are done already' $sweep grid.sweep --to=one
is nothing_twice [ "$(dones one)" = "1 " ]
cp one/table.csv kept.csv
sed 's/at_once: 1/at_once: 3/' grid.sweep >three.sweep
runs at_once 0 'finished' $sweep three.sweep --to=three
is same_table cmp one/table.csv three/table.csv
is same_json cmp one/table.json three/table.json
runs other_at_once 0 '6 of 6 runs are done already' $sweep three.sweep --to=one
sed 's/at_once: 1/ranks: 2/' grid.sweep >ranks.sweep
runs on_ranks 0 'finished' $sweep ranks.sweep --to=two
is ranked_on_ranks python3 ranked.py two
is ran_on_ranks grep -q '"ranks":2' two/runs/0001/metrics.jsonl

# ---- killed as its first run starts, before its third has a snapshot, as it has one, and as its sixth starts; called
# again at once each time: nothing is done twice. Of later moments of the sixth none is sure to come before the end.
for point in 0001.log 0003/metrics.jsonl 0003/snapshots/snapshot_iter_4.solverstate.h5 0006.log; do
    $sweep grid.sweep --to=killed >out 2>&1 &
    job=$!
    n=0
    while [ ! -e killed/runs/$point ] && [ $n -lt 1500 ] && kill -0 $job 2>/dev/null; do sleep 0.01; n=$((n + 1)); done
    is "alive_until_$point" kill -9 $job
    wait $job 2>/dev/null
done
runs goes_on 0 '[45] of 6 runs are done already|6 of 6 runs' $sweep grid.sweep --to=killed
is same_after_kill cmp one/table.csv killed/table.csv
is weights_too [ "$(grep -h -o '"status":"finished".*"checksum":"[0-9a-f]*"' killed/runs/*/metrics.jsonl | sed 's/.*checksum//')" = "$(grep -h -o '"status":"finished".*"checksum":"[0-9a-f]*"' one/runs/*/metrics.jsonl | sed 's/.*checksum//')" ]
is finished_once [ "$(grep -c '"status":"finished"' killed/runs/*/metrics.jsonl | sed 's/.*://' | sort -u)" = 1 ]

# on two ranks, by a launcher
sed 's/at_once: 1/at_once: 2 ranks: 2/' grid.sweep >ranks2.sweep
for point in 0001.log 0002/snapshots/snapshot_iter_4.solverstate.h5; do
    $sweep ranks2.sweep --to=killed2 >out 2>&1 &
    job=$!
    n=0
    while [ ! -e killed2/runs/$point ] && [ $n -lt 3000 ] && kill -0 $job 2>/dev/null; do sleep 0.01; n=$((n + 1)); done
    is "alive_on_ranks_until_$point" kill -9 $job
    wait $job 2>/dev/null
done
runs goes_on_on_ranks 0 'finished' $sweep ranks2.sweep --to=killed2
is same_after_kill_on_ranks cmp two/table.csv killed2/table.csv

# ---- of two sweeps that begin in one folder one does all, and the other says so
for turn in 1 2 3; do
    $sweep three.sweep --to=both >left 2>&1 &
    left=$!
    $sweep three.sweep --to=both >right 2>&1
    right=$?
    wait $left
    left=$?
    is "one_of_two_$turn" [ $((left + right)) = 2 ]
    is "other_of_two_$turn" grep -q 'both: another sweep works in this folder' left right
    is "all_of_two_$turn" cmp one/table.csv both/table.csv
    rm -r both
done

# ---- a run that still trains is waited for; a signal ends that; another sweep's run is not begun
mkdir -p busy/runs
(exec 8>busy/runs/0002.lock; flock 8; touch locked; sleep 3) &
while [ ! -e locked ]; do sleep 0.01; done
runs waits 0 'run 0002 still trains, as after a sweep that was killed: waiting up to 300 s' $sweep three.sweep --to=busy
is same_after_waiting cmp one/table.csv busy/table.csv
rm locked out
(exec 8>busy/runs/0002.lock; flock 8; touch locked; exec sleep 60) &
holder=$!
while [ ! -e locked ]; do sleep 0.01; done
$sweep three.sweep --to=busy >out 2>&1 &
job=$!
n=0
while ! grep -qs "still trains" out && [ $n -lt 1500 ]; do sleep 0.01; n=$((n + 1)); done
kill -TERM $job
wait $job
is stops_waiting [ $? = 75 ]
kill $holder
wait $holder 2>/dev/null
sed 's/"iter_size=1"/"max_iter=2000"/' grid.sweep >rival.sweep
$sweep rival.sweep --to=rival >rival.out 2>&1 &
job=$!
n=0
while [ ! -e rival/runs/0001/metrics.jsonl ] && [ $n -lt 1500 ]; do sleep 0.01; n=$((n + 1)); done
(exec 8>rival/runs/0002.lock; flock 8; exec sleep 120) &
holder=$!
wait $job
rc=$?
kill $holder
cp rival.out out
is rival [ $rc = 2 ]
is rival_is_told grep -q 'run 0002 trains: another sweep of this folder has it (rival/runs/0002.lock)' out

# told to stop: its run leaves a snapshot, and it ends as a training does
sed 's/"iter_size=1"/"max_iter=100000"/' grid.sweep >long.sweep
$sweep long.sweep --to=stopped >out 2>&1 &
job=$!
n=0
while [ ! -e stopped/runs/0001/snapshots/snapshot_iter_4.solverstate.h5 ] && [ $n -lt 1500 ]; do sleep 0.01; n=$((n + 1)); done
kill -TERM $job
wait $job
is told_to_stop [ $? = 75 ]
is left_a_snapshot grep -q '"status":"stopped"' stopped/runs/0001/metrics.jsonl

# ---- what is drawn: by seed, field and number alone
cat >random.sweep <<'EOF'
solver: "solver.prototxt" metric: "loss" search: RANDOM runs: 8 seed: 3 at_once: 2
set: "max_iter=5" set: "test_interval=5"
vary { field: "base_lr" from: 1e-4 to: 1 log: true }
vary { field: "average_loss" from: 1 to: 9 whole: true }
vary { field: "lr_policy" value: "fixed" value: "cosine" }
EOF
runs random 0 'finished' $sweep random.sweep --to=random
sed 's/runs: 8/runs: 3/' random.sweep >fewer.sweep
runs fewer 0 'finished' $sweep fewer.sweep --to=fewer
cat >drawn.py <<'EOP'
import json
a, b = ({r["run"]: r["set"] for r in json.load(open(f"{f}/table.json"))["runs"]} for f in ("random", "fewer"))
assert json.load(open("random/table.json"))["direction"] == "LOWER"
assert len(a) == 8 and all(b[r] == a[r] for r in ("0001", "0002", "0003")), (a, b)
rates = [float(s["base_lr"]) for s in a.values()]
assert len(set(rates)) == 8 and all(1e-4 <= r <= 1 for r in rates) and min(rates) < 1e-2 < max(rates), rates
assert all(s["average_loss"] in "123456789" for s in a.values()) and {s["lr_policy"] for s in a.values()} == {"fixed", "cosine"}
value = [r["value"] for r in json.load(open("random/table.json"))["runs"]]
assert value == sorted(value), value
EOP
is drawn python3 drawn.py

# ---- rounds: 9 runs to iteration 5, 3 to 10 (7 and up to the next test), 1 to 20
cat >halving.sweep <<'EOF'
solver: "solver.prototxt" metric: "accuracy" search: HALVING runs: 9 first_iter: 2 reduce: 3
set: "lr_policy=cosine"
vary { field: "base_lr" from: 1e-4 to: 0.3 log: true }
EOF
runs halving 0 'round 3 of 3: 1 runs to iteration 20' $sweep halving.sweep --to=halving
cat >rounds.py <<'EOP'
import json, sys
f = sys.argv[1]
o = json.load(open(f"{f}/table.json"))["runs"]
assert [r["iter"] for r in o] == [20, 10, 10] + 6 * [5], o
assert [r["state"] for r in o] == ["finished"] + 8 * ["dropped"], o
at = {}
for r in o:
    for l in open(f"{f}/runs/{r['run']}/metrics.jsonl"):
        e = json.loads(l)
        if e["event"] == "test": at.setdefault(r["run"], {})[e["iter"]] = e["outputs"]["accuracy"]
best = lambda run, end: max(v for i, v in at[run].items() if i <= end)
first = sorted(at, key=lambda run: (-best(run, 5), run))[:3]
second = sorted(first, key=lambda run: (-best(run, 10), run))[:1]
assert {r["run"] for r in o[:3]} == set(first) and o[0]["run"] == second[0], (first, second, o)
EOP
is rounds python3 rounds.py halving
sed 's/^set:/set: "max_iter=6" set:/; s/runs: 9/runs: 3/' halving.sweep >shorter.sweep
runs halving_shorter 0 'round 2 of 2: 1 runs to iteration 6' $sweep shorter.sweep --to=shorter
sed 's/reduce: 3/reduce: 3 at_once: 3/' halving.sweep >halving3.sweep
$sweep halving3.sweep --to=halving3 >out 2>&1 &
job=$!
n=0
while ! ls halving3/runs/*/snapshots/snapshot_iter_8.solverstate.h5 >/dev/null 2>&1 && [ $n -lt 1500 ] && kill -0 $job 2>/dev/null; do sleep 0.01; n=$((n + 1)); done
kill -9 $job 2>/dev/null
wait $job 2>/dev/null
runs halving_goes_on 0 'finished' $sweep halving3.sweep --to=halving3
is same_rounds cmp halving/table.csv halving3/table.csv
# the schedule of a round is that of the whole run
run=$(sed -n 's/^1,\([0-9]*\),.*/\1/p' halving/table.csv)
rate=$(sed -n 's/^1,[0-9]*,\([^,]*\),.*/\1/p' halving/table.csv)
runs whole 0 '' "$CORTADO" train --solver=solver.prototxt --threads=1 --seed=1 --set=lr_policy=cosine --set=base_lr=$rate --set=snapshot_prefix=whole
is as_in_one_go grep -q "\"status\":\"finished\".*\"checksum\":\"$(sed -n 's/.*after iteration 20: checksum \([0-9a-f]*\)$/\1/p' out)\"" halving/runs/$run/metrics.jsonl

# ---- a run that diverges is the last; any other failure is said
printf 'solver: "solver.prototxt" metric: "accuracy" vary { field: "base_lr" value: "1e30" value: "0.01" } set: "max_iter=5"' >wild.sweep
runs diverges 0 '^ *2  0001 .* diverged$' $sweep wild.sweep --to=wild
runs stays_diverged 0 '2 of 2 runs are done already' $sweep wild.sweep --to=wild
printf 'solver: "solver.prototxt" metric: "accurac" vary { field: "base_lr" value: "0.01" }' >name.sweep
runs no_metric 2 'run 0001 ended with exit code 2; name/runs/0001.log says why' $sweep name.sweep --to=name
is log_says grep -q 'best.metric is "accurac", which test net #0 does not have' name/runs/0001.log

# ---- a job array: a task a run, and a table of how far it is
runs array 0 'a job array of 6 runs' $sweep three.sweep --to=array --job_array=array.sbatch
is array_is_bash bash -n array.sbatch
is array_is_six grep -q -- '--array=1-6%3 ' array.sbatch
runs open 0 ' open$' $sweep three.sweep --to=array --table
is none_began [ "$(grep -c ' open$' out)" = 6 ]
for i in 1 2 3 4 5 6; do
    runs task_$i 0 '' env SLURM_ARRAY_TASK_ID=$i CORTADO="$CORTADO" bash array.sbatch
done
runs table 0 'finished' $sweep three.sweep --to=array --table
is same_by_array cmp one/table.csv array/table.csv
# tasks that begin at once in a folder that is not there: one says what it is of, and the others find it
for i in 1 2 3 4; do
    $sweep three.sweep --to=raced --only=$i >raced.$i 2>&1 </dev/null &
    pids="${pids:-} $!"
done
n=0
for pid in $pids; do wait $pid && n=$((n + 1)); done
is raced [ $n = 4 ]
is raced_folder [ "$(ls raced | tr '\n' ' ')" = 'runs sweep.lock sweep.prototxt ' ]
is raced_description cmp raced/sweep.prototxt array/sweep.prototxt
runs only_0 2 'only=0: the sweep has runs 1 to 6' $sweep three.sweep --to=array --only=0
runs array_halving 2 'HALVING decides who goes on' $sweep halving.sweep --to=untaken --job_array=a.sbatch
runs only_too_large 2 'only=7: the sweep has runs 1 to 6' $sweep three.sweep --to=untaken --only=7
runs array_nowhere 3 'No such file' $sweep three.sweep --to=untaken --job_array=nowhere/a.sbatch
is refused_leaves_nothing test ! -e untaken
runs only_halving 2 'HALVING decides who goes on' $sweep halving.sweep --to=halving --only=1

# ---- messages
runs other_sweep 2 'to=one is of another sweep: one/sweep.prototxt is not what random.sweep says now' $sweep random.sweep --to=one
is untouched cmp kept.csv one/table.csv
runs no_file 2 'give the one file' $sweep --to=x
runs no_to 2 'cortado sweep needs --to=DIR' $sweep grid.sweep
bad() { # NAME PATTERN TEXT
    echo "$3" >bad.sweep
    runs "bad_$1" 2 "$2" $sweep bad.sweep --to=bad
}
S='solver: "solver.prototxt" metric: "accuracy"'
V='vary { field: "base_lr" value: "0.1" }'
runs a_solver 2 'this is a field of a solver: is the file a solver, not a sweep' $sweep solver.prototxt --to=bad
bad solver 'bad.sweep:1:1: solver is not set' "metric: 'x' $V"
bad solver_empty 'bad.sweep:1:1: solver is not set' "solver: '' metric: 'x' $V"
bad metric 'metric is not set; give an output' "solver: 'solver.prototxt' $V"
bad vary 'nothing varies' "$S"
bad field 'vary has no .field.' "$S vary { value: '1' }"
bad twice '"base_lr" varies twice' "$S $V $V"
bad neither 'needs either .value., or .from. and .to.' "$S vary { field: 'base_lr' }"
bad both 'needs either .value., or .from. and .to.' "$S vary { field: 'base_lr' value: '1' from: 0 to: 1 }"
bad range 'needs .from. below .to.' "$S vary { field: 'base_lr' from: 1 to: 1 steps: 2 }"
bad log 'goes from 0 by .log., which needs more than 0' "$S vary { field: 'base_lr' from: 0 to: 1 log: true steps: 2 }"
bad steps 'steps is 1, needs 2 to' "$S vary { field: 'base_lr' from: 0 to: 1 steps: 1 }"
bad grid 'a grid over "base_lr" needs .steps.' "$S vary { field: 'base_lr' from: 0 to: 1 }"
bad many 'bad.sweep:1:1: more than 9999 runs' "$S vary { field: 'base_lr' from: 0 to: 1 steps: 200 } vary { field: 'momentum' from: 0 to: 1 steps: 200 }"
bad random 'RANDOM needs .runs.' "$S $V search: RANDOM"
bad runs 'runs is for RANDOM and HALVING' "$S $V runs: 3"
bad test_net 'bad.sweep:1:[0-9]+: test_net is -1, needs at least 0' "$S $V test_net: -1"
bad set 'bad.sweep:1:[0-9]+: .*unknown field "nothing"' "$S $V set: 'nothing=1'"
bad set_form 'bad.sweep:1:[0-9]+: set "max_iter": expected FIELD=VALUE' "$S $V set: 'max_iter'"
echo "solver: 'absent' metric: 'x' $V" >absent.sweep
runs solver_absent 3 'absent.sweep:1:1: solver "absent": No such file' $sweep absent.sweep --to=bad
bad at_once 'at_once is 0, needs at least 1' "$S $V at_once: 0"
bad reduce 'reduce is 1, needs at least 2' "$S $V reduce: 1"
bad first 'first_iter is 20, needs 1 to below' "$S $V search: HALVING first_iter: 20"
bad unknown 'unknown field "base_rl"; did you mean "base_lr"' "$S vary { field: 'base_rl' value: '1' }"
bad value 'base_lr' "$S vary { field: 'base_lr' value: 'much' }"
is nothing_made test ! -e bad
finish
