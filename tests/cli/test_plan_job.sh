# cortado plan for several ranks: plans, their files, what JSON has, what is fixed, and refusals.
. "$ROOT/tests/cli/lib.sh"
json() { python3 -c "import json, sys; n = json.load(open('$1')); sys.exit(not ($2))"; }
fails() { # NAME PATTERN OPTION...: 2, with one line
    name=$1 pattern=$2
    shift 2
    runs "$name" 2 "$pattern" "$CORTADO" plan --limits=100,12 "$@"
    is "${name}_in_one_line" [ "$(grep -c '^E' out)" = 1 ]
}
plan="$CORTADO plan --limits=100,12"

cat >net.prototxt <<'NET'
name: "Net"
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 16 dim: 3 dim: 32 dim: 32 } shape { dim: 16 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 32 kernel_size: 5 pad: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 64 kernel_size: 5 pad: 2 weight_filler { type: "xavier" } } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "fc1" type: "InnerProduct" bottom: "pool2" top: "fc1"
  inner_product_param { num_output: 2000 weight_filler { type: "xavier" } } }
layer { name: "relu3" type: "ReLU" bottom: "fc1" top: "fc1" }
layer { name: "fc2" type: "InnerProduct" bottom: "fc1" top: "fc2"
  inner_product_param { num_output: 2000 weight_filler { type: "xavier" } } }
layer { name: "relu4" type: "ReLU" bottom: "fc2" top: "fc2" }
layer { name: "fc3" type: "InnerProduct" bottom: "fc2" top: "fc3"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "fc3" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc3" bottom: "label" top: "loss" }
NET
cat >solver.prototxt <<'NET'
net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 3 display: 1
NET
cat >slow.prototxt <<'M'
name: "slow"
level { name: "node" latency_us: 1 bandwidth_gbs: 10 }
level { name: "machine" size: 4 latency_us: 50 bandwidth_gbs: 0.125 }
M
cat >mixed.prototxt <<'M'
name: "mixed"
level { name: "node" latency_us: 1 bandwidth_gbs: 10 }
level { name: "machine" size: 4 latency_us: 5 bandwidth_gbs: 10 }
node_class { name: "fast" nodes: "0,2" memory_gib: 4 }
node_class { name: "half" nodes: "1,3" speed: 0.5 memory_gib: 2 inject_gbs: 5 }
M

runtime=$($plan --model=net.prototxt --ranks=2 --json 2>/dev/null | sed -n 's/.*"runtime":\([0-9]*\).*/\1/p')
gib() { awk -v g="$1" -v r="${runtime:-0}" 'BEGIN { printf "%.6f", g + r / 2^30 }'; } # … that nets may take

# ---- on slow links fully connected layers are split, and convolutions have their samples
runs splits 0 '^ +split fc1 - fc3' $plan --model=net.prototxt --machine=slow.prototxt --ranks=2 --global_batch_size=64 --out=p.prototxt --top=3
is samples grep -q '^ *samples conv1 - pool2' out
is machine grep -q '^machine     slow: 2 nodes of 1 rank; a node has 100 GFLOP/s, 12 GB/s, as --limits says$' out
is searched grep -Eq '^searched [0-9]+ configurations in ' out
is beside grep -Eq '^data alone  [0-9.]+ ms, [0-9.]+ x the plan' out
is written grep -q '^written: p.prototxt, for cortado train --parallel=p.prototxt$' out
is file_splits grep -Eq 'layer \{ name: "fc1" split: (OUTPUT|INPUT) \}' p.prototxt
runs file_is_read 0 'split fc1 (OUTPUT|INPUT)' "$CORTADO" check --model=net.prototxt --parallel=p.prototxt --ranks=2
runs twice 0 '' $plan --model=net.prototxt --machine=slow.prototxt --ranks=2 --global_batch_size=64 --out=q.prototxt
is same_again cmp p.prototxt q.prototxt

# ---- what is fixed is kept, and every file is read
n=0
for fix in data tensor=2 tensor=4 stages=2 stages=4 micro_batches=4 "stages=2 --fix=tensor=2 --fix=micro_batches=8"; do
    n=$((n + 1))
    runs "fix_$n" 0 '^step ' $plan --solver=solver.prototxt --ranks=4 --global_batch_size=64 --fix=$fix --out=f.prototxt
    runs "fix_${n}_is_read" 0 'parallel    f.prototxt: 4 ranks' "$CORTADO" check --solver=solver.prototxt --parallel=f.prototxt --ranks=4
done
is fixed_file [ "$(grep -c '^stage {' f.prototxt) $(grep -c 'tensor: 2' f.prototxt) $(grep -c 'micro_batches: 8' f.prototxt)" = "2 2 1" ]

# ---- labels of a layer of their own, first in the file, are the last stage's
{
    echo 'layer { name: "labels" type: "DummyData" top: "label" dummy_data_param { shape { dim: 16 } } }'
    sed 's/ top: "label"$//; s/ shape { dim: 16 } } }$/ } }/' net.prototxt
} >apart.prototxt
runs sources_of_their_readers 0 '^step ' $plan --model=apart.prototxt --machine=slow.prototxt --ranks=4 --global_batch_size=64 --fix=stages=2 --fix=tensor=2 --out=a.prototxt
runs sources_are_read 0 'parallel    a.prototxt: 4 ranks, 2 stages' "$CORTADO" check --model=apart.prototxt --parallel=a.prototxt
is labels_behind [ "$(sed -n '/name: "labels"/=' a.prototxt | head -1)" -gt "$(sed -n '/^stage/=' a.prototxt | tail -1)" ]

# ---- unlike nodes have unlike shares
runs shares 0 '^ +share ' $plan --model=net.prototxt --machine=mixed.prototxt --ranks=4 --global_batch_size=66 --fix=data --out=s.prototxt
is shares_add_up [ "$(grep -o 'share: [0-9]*' s.prototxt | awk '{ n += $2 } END { print n }')" = 66 ]
is classes grep -q '2 fast (speed 1), 2 half (speed 0.5); a node has' out
runs shares_are_read 0 '^ +0  [0-3]' "$CORTADO" check --model=net.prototxt --parallel=s.prototxt

# ---- JSON
if command -v python3 >/dev/null; then
    $plan --solver=solver.prototxt --machine=mixed.prototxt --ranks=4 --global_batch_size=64 --json --out=j.prototxt >j.json 2>/dev/null
    is json_members json j.json 'all(k in n for k in ("step_s", "data_parallel_step_s", "configurations", "search_s", "ranks", "stages", "parallel"))'
    is json_ranks json j.json '[r["rank"] for r in n["ranks"]] == [0, 1, 2, 3] and all(r["memory_bytes"] == r["weight_bytes"] + r["kept_bytes"] + r["transient_bytes"] and r["compute_s"] > 0 for r in n["ranks"])'
    is json_stages json j.json 'sorted(r for s in n["stages"] for r in s["ranks"]) == [0, 1, 2, 3] and n["stages"][0]["first"] == "conv1" and n["stages"][-1]["last"] == "loss"'
    is json_file json j.json 'n["parallel"] == open("j.prototxt").read()'
    is json_best json j.json '0 < n["step_s"] <= n["data_parallel_step_s"] and n["step_s"] <= n["uniform_step_s"]'
    $plan --model=net.prototxt --ranks=4 --global_batch_size=256 --memory_gib="$(gib 0.04)" --json >m.json 2>/dev/null
    is json_fits json m.json 'n["data_parallel_step_s"] is None and all(r["memory_bytes"] <= 0.04 * 2**30 for r in n["ranks"])'
    # bytes are those that check finds in the ranks' nets
    for n in "--solver=solver.prototxt --ranks=4 --fix=stages=2 --fix=tensor=2" \
        "--model=net.prototxt --ranks=2 --memory_gib=$(gib 0.1)" "--model=net.prototxt --machine=mixed.prototxt --ranks=4 --fix=data"; do
        $plan $n --global_batch_size=66 --json --out=b.prototxt >b.json 2>/dev/null
        "$CORTADO" check ${n%% *} --parallel=b.prototxt --phase=TRAIN --json >c.json 2>/dev/null
        is "bytes_of_${n##*-}" json b.json '(lambda c: [r["memory_bytes"] for r in n["ranks"]] == [r["memory_bytes"] for r in c["ranks"]])(json.load(open("c.json")))'
    done
fi
runs limited 0 '^data alone  does not fit: [0-9.]+ of 41\.0 MiB on rank [0-3]$' $plan --model=net.prototxt --ranks=4 --global_batch_size=256 --memory_gib="$(gib 0.04)"

# ---- measured times instead: one profile, two of unlike batches, one of a class
OMP_NUM_THREADS=1 "$CORTADO" time --model=net.prototxt --iterations=2 --limits=false --json=t16.json >/dev/null 2>&1
sed 's/dim: 16 /dim: 8 /g' net.prototxt >net8.prototxt
OMP_NUM_THREADS=1 "$CORTADO" time --model=net8.prototxt --iterations=2 --limits=false --json=t8.json >/dev/null 2>&1
runs profile 0 '; times of profiles; a node has' $plan --model=net.prototxt --ranks=2 --global_batch_size=64 --profile=t16.json
runs two_profiles 0 '; times of profiles' $plan --model=net.prototxt --ranks=2 --global_batch_size=64 --profile=t16.json,t8.json
sed '/name: "half"/s/speed: 0.5/profile: "t8.json"/' mixed.prototxt >measured.prototxt
runs class_profile 0 '; times of profiles' $plan --model=net.prototxt --ranks=4 --global_batch_size=64 --machine=measured.prototxt
if command -v python3 >/dev/null; then # made-up times: all layers alike, half the samples take half
    python3 -c 'import json
n = json.load(open("t16.json"))
for l in n["layers"]: l["forward_ms"], l["backward_ms"] = 10, 20
json.dump(n, open("made.json", "w"))'
    $plan --model=net.prototxt --ranks=2 --global_batch_size=16 --profile=made.json --fix=data --fix=micro_batches=1 --json >d.json 2>/dev/null
    is profile_counts json d.json 'abs(n["ranks"][0]["compute_s"] - len(json.load(open("made.json"))["layers"]) * 0.03 / 2) < 1e-6'
fi
fails one_batch 'both profiles are of batch 16' --model=net.prototxt --ranks=2 --profile=t16.json,t16.json
fails no_profile 'p.prototxt: no profile of cortado time --json: ' --model=net.prototxt --ranks=2 --profile=p.prototxt
sed 's/num_output: 10 *$/num_output: 11/; s/num_output: 10 /num_output: 11 /' net.prototxt >other.prototxt
fails other_net 't16.json: the profile is of a net of hash [0-9a-f]*, but "Net" has hash' --model=other.prototxt --ranks=2 --profile=t16.json
runs no_file 3 'none.json' $plan --model=net.prototxt --ranks=2 --profile=none.json

# ---- the step of a file: that which the plan said, and what files written by hand come to
step() { # OPTION...: step_s of check
    "$CORTADO" check --model=net.prototxt --phase=TRAIN --limits=100,12 --json "$@" 2>/dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["step_s"])'
}
less() { awk "BEGIN { exit !($1 > 0 && $1 < $2) }"; }
runs step 0 '^step +[0-9.]+ ms, simulated' "$CORTADO" check --model=net.prototxt --parallel=p.prototxt --machine=slow.prototxt --limits=100,12
is step_machine grep -q '^machine     slow: 2 nodes of 1 rank; a node has 100 GFLOP/s' out
is step_stages grep -Eq '^ +0 +[0-9.]+ +0\.00 +[0-9.]+$' out
runs step_profile 0 '; times of profiles; ' "$CORTADO" check --model=net.prototxt --parallel=p.prototxt --profile=t16.json,t8.json --limits=100,12
fails_check() { # NAME PATTERN OPTION...
    name=$1 pattern=$2
    shift 2
    runs "$name" 2 "$pattern" "$CORTADO" check --model=net.prototxt "$@"
}
fails_check step_nodes 'need 4 nodes, but the machine has 2' --parallel=s.prototxt --machine=2x1 --limits=100,12
fails_check step_limits '\-\-limits: for the step of --parallel=FILE' --parallel=p.prototxt --limits=100,12
fails_check step_places '\-\-ranks_per_node: for the step of --parallel=FILE' --parallel=p.prototxt --ranks_per_node=2
if command -v python3 >/dev/null; then
    n=0
    for o in "net 2 64 --machine=slow.prototxt" "net 4 66 --machine=mixed.prototxt --fix=data" \
        "net 4 64 --machine=mixed.prototxt --fix=stages=2 --fix=tensor=2" "net 4 64 --machine=slow.prototxt --fix=stages=4" \
        "net 2 64 --machine=slow.prototxt --profile=t16.json,t8.json" "net 2 64 --ranks_per_node=2 --machine=slow.prototxt" \
        "lenet 2 64 --machine=slow.prototxt" "gpt_char 4 16 --machine=mixed.prototxt --fix=stages=2 --fix=tensor=2" \
        "gpt_char 4 16 --machine=slow.prototxt --fix=stages=4" "alexnet 4 64 --machine=slow.prototxt --data_shape=3,256,256" \
        "alexnet 4 64 --machine=slow.prototxt --memory_gib=0.5 --fix=stages=2 --data_shape=3,256,256"; do
        set -- $o
        model=net.prototxt n=$((n + 1))
        [ "$1" = net ] || model="$ROOT/models/$1/train_val.prototxt"
        ranks=$2 batch=$3
        shift 3
        $plan --model="$model" --ranks=$ranks --global_batch_size=$batch "$@" --json --out=e.prototxt >e.json 2>/dev/null
        same=
        for a; do case $a in --fix*|--memory*) ;; *) same="$same $a" ;; esac; done
        "$CORTADO" check --model="$model" --phase=TRAIN --parallel=e.prototxt --limits=100,12 $same --json >c.json 2>/dev/null
        is "step_of_plan_$n" json e.json 'abs(json.load(open("c.json"))["step_s"] / n["step_s"] - 1) < 1e-9'
    done

    two() { # RANKS OF EACH STAGE, what else the second says: convolutions, and what is behind
        echo "ranks: 2 global_batch: 64 micro_batches: ${4:-8}
        stage { first: \"conv1\" last: \"pool2\" rank: $1 ${3:-} } stage { first: \"fc1\" last: \"loss\" rank: $2 }" >h.prototxt
        step --parallel=h.prototxt --machine=mixed.prototxt
    }
    # 41 MB of weights are read for each micro-batch: what is behind takes longer
    fast=$(two 1 0) slower=$(two 0 1)
    is step_slow_node less "$fast" "$slower"
    is step_again less "$fast" "$(two 1 0 'again { first: "conv1" last: "relu1" }')"
    is step_more_again less "$(two 1 0 'again { first: "conv1" last: "relu1" }')" "$(two 1 0 'again { first: "conv1" last: "pool2" }')"
    sed 's/speed: 0.5//' mixed.prototxt >alike.prototxt
    is step_fast_nodes less "$(step --parallel=h.prototxt --machine=alike.prototxt)" "$(two 1 0 '' 1)"
    one() { # LINE OF THE STAGE, machine
        echo "ranks: 2 global_batch: 66 stage { first: \"conv1\" last: \"loss\" rank: 0 rank: 1 $1 }" >h.prototxt
        step --parallel=h.prototxt --machine="$2"
    }
    even=$(one '' mixed.prototxt)
    is step_shares less "$(one 'share: 44 share: 22' mixed.prototxt)" "$even"
    is step_bad_shares less "$even" "$(one 'share: 22 share: 44' mixed.prototxt)"
    split=$(one 'tensor: 2 layer { name: "fc1" split: OUTPUT } layer { name: "fc2" split: INPUT }' slow.prototxt)
    is step_split less "$split" "$(one 'tensor: 2' slow.prototxt)"
    is step_each_all less "$split" "$(one 'tensor: 2 layer { name: "fc1" split: REPLICATE } layer { name: "fc2" split: REPLICATE }' slow.prototxt)"
    # unlike stages: three replicas, then a group of one
    echo 'ranks: 4 global_batch: 66 micro_batches: 2
        stage { first: "conv1" last: "relu3" rank: 2 rank: 0 rank: 3 share: 12 share: 13 share: 8 }
        stage { first: "fc2" last: "loss" rank: 1 }' >h.prototxt
    first=$(step --parallel=h.prototxt --machine=mixed.prototxt)
    sed -i 's/share: 12 share: 13 share: 8/share: 8 share: 8 share: 17/' h.prototxt
    is step_unlike less "$first" "$(step --parallel=h.prototxt --machine=mixed.prototxt)"
fi

# ---- what replicas share out (ZeRO): of the stages that fit the fastest, against each of them alone
cat >gpt.solver <<GPT
net: "$ROOT/models/gpt_char/train_val.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 2 test_iter: 1 test_interval: 100
GPT
if command -v python3 >/dev/null; then
    shared="--solver=gpt.solver --machine=mixed.prototxt --ranks=4 --global_batch_size=32 --limits=100,12"
    for g in 0.4 0.25 0.12; do
        for z in 0 1 2 3; do
            "$CORTADO" plan $shared --set=memory.zero=$z --memory_gib="$(gib $g)" --json >z$z.json 2>/dev/null || echo '{"step_s": 1e9, "zero": -1}' >z$z.json
        done
        runs zero_$g 0 '^step ' "$CORTADO" plan $shared --set=memory.chunk_mb=4 --memory_gib="$(gib $g)" --json=z.json --out=z.prototxt
        is zero_is_best_$g json z.json '(lambda s: s.index(min(s)) == n["zero"] or min(s) > 0.999 * s[n["zero"]] == 0.999 * n["step_s"])([json.load(open("z%d.json" % z))["step_s"] for z in range(4)])'
        is zero_fits_$g json z.json 'all(r["memory_bytes"] <= '"$g"' * 2**30 for r in n["ranks"])'
        zero=$(python3 -c 'import json; print(json.load(open("z.json"))["zero"])')
        "$CORTADO" check $shared --set=memory.zero=$zero --parallel=z.prototxt --phase=TRAIN --json >c.json 2>/dev/null
        is zero_checked_$g json z.json '(lambda c: [r["memory_bytes"] for r in n["ranks"]] == [r["memory_bytes"] for r in c["ranks"]] and abs(c["step_s"] / n["step_s"] - 1) < 1e-9)(json.load(open("c.json")))'
    done
    is zero_said sh -c "[ $zero = 0 ] || grep -q -- 'train --parallel=z.prototxt --set=memory.zero=$zero\$' out && grep -q ', zero $zero\$' out"
    is zero_taken test "$zero" -gt 0
fi
# given, it is that of all plans; without a limit, or where codecs send all, nothing is shared out
runs zero_given 0 '^plan .*, zero 2$' $plan --solver=solver.prototxt --set=memory.zero=2 --machine=slow.prototxt --ranks=4 --global_batch_size=64 --fix=data
runs zero_open 0 '^plan .* micro-batch of 64$' $plan --solver=solver.prototxt --set=memory.chunk_mb=4 --machine=slow.prototxt --ranks=4 --global_batch_size=64 --fix=data
tight="--solver=solver.prototxt --set=memory.chunk_mb=4 --machine=slow.prototxt --ranks=4 --global_batch_size=64 --fix=data --memory_gib=$(gib 0.13)"
runs zero_takes 0 '^plan .*, zero 1$' $plan $tight
fails zero_coded 'nothing fits 133\.1 MiB a rank' $tight --set=compression.type=REDSYNC

# ---- what it refuses
fails nothing_fits 'nothing fits 1\.0 MiB a rank: the plan that takes least needs [0-9.]+ MiB \(--memory_gib=[0-9.]+\)' --model=net.prototxt --ranks=4 --global_batch_size=64 --memory_gib="$(gib 0.001)"
least=$(sed -n 's/.*(--memory_gib=\([0-9.]*\)).*/\1/p' out)
runs least_fits 0 '^step ' $plan --model=net.prototxt --ranks=4 --global_batch_size=64 --memory_gib="$least"
fails bad_fix '\-\-fix=stage=2: expected data, tensor=K, stages=K or micro_batches=K' --model=net.prototxt --ranks=4 --fix=stage=2
fails zero_fix '\-\-fix=tensor=0: expected' --model=net.prototxt --ranks=4 --fix=tensor=0
fails no_plan 'no plan is as asked: 4 ranks' --model=net.prototxt --ranks=4 --global_batch_size=64 --fix=tensor=3
fails too_few_samples 'no plan is as asked' --model=net.prototxt --ranks=4 --global_batch_size=2 --fix=data
fails uneven_nodes '\-\-ranks_per_node=3: 4 ranks cannot be as many on each node' --model=net.prototxt --ranks=4 --machine=slow.prototxt --ranks_per_node=3
fails one_node '\-\-ranks_per_node=2: without --machine all ranks are on this node' --model=net.prototxt --ranks=4 --ranks_per_node=2
fails many_nodes 'need 8 nodes, but the machine has 4' --model=net.prototxt --ranks=8 --machine=slow.prototxt
fails no_machine 'did you mean "daint"' --model=net.prototxt --ranks=4 --machine=dain
fails no_ranks '\-\-ranks=0: expected a whole number, 1 to ' --model=net.prototxt --ranks=0
finish
