# Folders of runs: what is in them, that none is written over unasked, how a run goes on, and verbs that use one.
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
cat >net.prototxt <<'NET'
layer { name: "in" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 6 dim: 5 } shape { dim: 6 } data_filler { type: "gaussian" std: 1 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
echo 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 6 display: 2 snapshot: 4 random_seed: 5 solver_mode: CPU' >solver.prototxt
train="$CORTADO train --solver=solver.prototxt"

for p in 1 2; do
    runs trains_$p 0 "this run is kept in runs/r$p" $JOB $p $train --run=runs/r$p/ --set=momentum=0.5
    r=runs/r$p
    is link_$p [ "$(readlink runs/latest)" = r$p ]
    is log_$p grep -q 'Iteration 6' $r/log.txt
    is origins_in_log_$p grep -Eq 'momentum.*0.5' $r/log.txt
    is metrics_$p grep -q '"event":"done"' $r/metrics.jsonl
    is snapshots_$p test -s $r/snapshots/snapshot_iter_4.caffemodel.h5 -a -s $r/snapshots/snapshot_iter_6.solverstate.h5
    is provenance_$p python3 -c "
import json
run = json.load(open('$r/run.json'))
assert run['config']['momentum'] == 0.5 and run['origin']['momentum'] == 'command line', run['origin']
assert run['origin']['base_lr'] == 'file' and run['ranks'] == $p
assert run['config']['snapshot_prefix'].endswith('r$p//snapshots/snapshot'), run['config']
"
    is deploy_kept_$p grep -q 'type: "Softmax"' $r/deploy.prototxt
    is net_kept_$p cmp -s $r/net.prototxt runs/r1/net.prototxt
    runs tests_$p 0 'snapshot_iter_6.caffemodel.h5' $JOB $p "$CORTADO" test --run=$r --iterations=3
    grep -E '^(Loss|loss)' out >kept_$p
    runs tests_by_file_$p 0 '' $JOB $p "$CORTADO" test --model=net.prototxt --weights=$r/snapshots/snapshot_iter_6.caffemodel.h5 --iterations=3
    grep -E '^(Loss|loss)' out >by_file_$p
    is same_score_$p cmp kept_$p by_file_$p
    runs other_weights_$p 0 '' $JOB $p "$CORTADO" test --run=$r --weights=$r/snapshots/snapshot_iter_4.caffemodel.h5 --iterations=3
    is others_count_$p sh -c "grep -E '^(Loss|loss)' out | cmp -s - kept_$p; [ \$? = 1 ]"
done

# the kept solver trains the same again
runs again 0 '' "$CORTADO" train --solver=runs/r1/solver.prototxt --run=runs/r3
sum() { sed -n 's/.*"event":"done".*"checksum":"\([0-9a-f]*\)".*/\1/p' $1/metrics.jsonl; }
is same_weights [ "$(sum runs/r1)" = "$(sum runs/r3)" ]

# nothing is written over unasked
cp -r runs/r1 before
runs exists 2 'run=runs/r1 is there already: give another folder' $train --run=runs/r1
is untouched diff -r before runs/r1
runs goes_on 0 'resuming after 6 iterations' $train --run=runs/r1 --snapshot=auto --iterations=8
is log_goes_on [ "$(grep -c 'this run is kept in' runs/r1/log.txt)" = 2 ]
is config_stays cmp before/run.json runs/r1/run.json
is metrics_go_on [ "$(grep -c '"event":"done"' runs/r1/metrics.jsonl)" = 2 ]
runs auto_begins 0 'this run is kept in runs/r4' $train --run=runs/r4 --snapshot=auto
runs overwrites 0 'this run is kept in runs/r4' $train --run=runs/r4 --overwrite
is log_begins [ "$(grep -c 'this run is kept in' runs/r4/log.txt)" = 1 ]

# a run that does not reach its first step leaves no folder, and the link where it led
runs bad_solver 2 'unknown field "moment"' $train --run=runs/bad --set=moment=1
is no_folder test ! -e runs/bad
runs bad_weights 3 '' $train --run=runs/bad --weights=nowhere.caffemodel
is no_folder_later test ! -e runs/bad
is link_stays [ "$(readlink runs/latest)" = r4 ]
runs two_prefixes 2 'run=runs/bad keeps the snapshots, but snapshot_prefix=x is set, too' $train --run=runs/bad --set=snapshot_prefix=x
runs named_latest 2 '"latest" is the link to the run that began last' $train --run=runs/latest
: >file
runs no_folder_but_file 2 'run=file is there already' $train --run=file
runs below_a_file 3 '' $train --run=file/r
mkdir taken taken/latest
runs latest_taken 0 'taken/latest is no link' $train --run=taken/r

# verbs that use one
runs by_link 0 '' "$CORTADO" test --run=runs/latest --iterations=1
runs no_run 3 'run=nowhere: nowhere/net.prototxt: No such file.*; expected the folder of a training' "$CORTADO" test --run=nowhere
runs no_snapshots 0 '' $train --run=none --set=snapshot_after_train=false --iterations=2
runs none_there 3 'run=none: no complete snapshot in none/snapshots' "$CORTADO" test --run=none
finish
