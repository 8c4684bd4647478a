# AUTO: the verdict of `cortado check --nodes`, and training where the program chooses.
. "$ROOT/tests/cli/lib.sh"
make_case
check="$CORTADO check --solver=solver.prototxt"
auto=--compression=auto:density=0.01,min_bytes=1024

cat >slow.prototxt <<'EOF'
name: "slow" sum_gbs: 10
level { name: "node" size: 1 latency_us: 1 bandwidth_gbs: 10 }
level { name: "machine" size: 64 latency_us: 1 bandwidth_gbs: 0.001 }
coding { memory_gbs: 20 update_ns: 0.5 select_ns: 0.2 pack_ns: 2 add_ns: 2 merge_ns: 5 }
EOF
cat >fast.prototxt <<'EOF'
name: "fast" sum_gbs: 100
level { name: "node" size: 1 latency_us: 0.1 bandwidth_gbs: 500 }
level { name: "machine" size: 64 latency_us: 0.1 bandwidth_gbs: 500 }
coding { memory_gbs: 1 update_ns: 5 select_ns: 5 pack_ns: 20 add_ns: 20 merge_ns: 50 }
EOF

# ---- the verdict
# shards: casts alone go by halves
runs casts_with_zero 0 'verdict +AUTO is off: with memory . zero: 1 . only casts compress' $check --nodes=4 --machine=slow.prototxt --set=memory.zero=1
is rows_with_zero test "$(awk '/^type/ { on = 1 } /^crossover/ { on = 0 } on && NF { printf "%s ", $1 }' out)" = "type none bf16 fp16 "
runs pays_on_a_slow_network 0 'verdict +may pay: .* times as fast as off' $check --nodes=4 --machine=slow.prototxt $auto
is says_by_what grep -Eq '^redsync \(.*\): .*\[0\]' out
is says_crossover grep -q '2 / (2 x 0.01) = 100 ranks' out
is says_measured grep -q "as the machine's file has it, measured" out
is knows_no_profile grep -q 'not known' out
for type in none bf16 topk redsync auto; do
    is lists_$type grep -Eq "^$type +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9]+ of +[0-9]+ +[0-9.]+" out
done
is sends_less awk 'NF >= 9 && $1 == "none" { n = $2 } NF >= 9 && $1 == "redsync" { r = $2 } END { exit !(r > 0 && r < n / 4) }' out
runs off_on_a_fast_one 0 'verdict +off is faster here, even with nothing' $check --nodes=4 --machine=fast.prototxt $auto
is auto_is_dense awk '$1 == "none" { n = $3 } $1 == "auto" { a = $3 } END { exit !(n > 0 && a == n) }' out
runs one_rank 0 'off: one rank sends nothing' $check --nodes=1 --machine=slow.prototxt
runs guesses 0 'not named: its figures are guesses' $check --nodes=4 --ranks_per_node=2 $auto
is counts_ranks grep -q 'on 8 ranks' out

# the network adds: dense sums take n / 1 MB/s in place of 2 (p-1)/p n / 1 MB/s, and some microseconds;
# coded ones (bf16) are the ranks' as before, and so are all that must be the same in every run
sed 's/deterministic: true//' solver.prototxt >any_order.prototxt
any="$CORTADO check --solver=any_order.prototxt --nodes=64 $auto"
{ cat slow.prototxt; echo 'in_network { bandwidth_gbs: 0.001 latency_us: 3 }'; } >adding.prototxt
exposed() { awk -v t="$1" 'NF >= 9 && $1 == t { print $4 }' "$2"; }
$any --machine=slow.prototxt >slow.out 2>&1
runs network_adds 0 'verdict' $any --machine=adding.prototxt
is network_halves_dense awk "BEGIN { r = $(exposed none slow.out) / $(exposed none out); exit !(r > 1.9 && r < 2.1) }"
is network_leaves_coded awk "BEGIN { r = $(exposed bf16 out) / $(exposed bf16 slow.out); exit !(r > 0.95 && r <= 1) }" # small ones are dense
runs network_in_order 0 'verdict' $check --nodes=64 --machine=adding.prototxt $auto
is network_in_order_dense [ "$(exposed none out)" = "$(exposed none slow.out)" ]

"$CORTADO" time --solver=solver.prototxt --iterations=3 --limits=false --json=p.json >out 2>&1 </dev/null
runs with_profile 0 'a rank computes [0-9.]+ ms a step' $check --nodes=4 --machine=slow.prototxt --profile=p.json $auto --json=v.json
is has_json grep -Eq '"verdict":\{"nodes":4,"ranks":4,"machine":"slow".*"crossover_pairs":100.*"compresses":true.*"type":"auto"' v.json
# computation that takes minutes hides everything
runs all_hidden 0 'verdict +off is faster here$' $check --nodes=4 --machine=slow.prototxt --profile=p.json --images_per_s=0.01 $auto
is network_hidden grep -Eq 'network +[0-9.]+ MB a rank and step in [0-9.]+ ms, of which 100 % are hidden' out
# encoding and decoding are exposed where the main thread does them, and hide on another thread
sed 's/"threads":[0-9]*/"threads":4/' p.json >four.json
long="$check --nodes=4 --machine=fast.prototxt --profile=four.json --images_per_s=0.01 $auto"
runs coding_exposed 0 'verdict' $long --set=comm.progress=POLL
coding=$(exposed redsync out)
runs coding_hides 0 'verdict' $long --set=comm.progress=THREAD
is coding_hidden awk "BEGIN { exit !($coding > 0.02 && $(exposed redsync out) < 0.5 * $coding) }"

hidden=$(exposed redsync out)
runs coding_auto 0 'verdict' $long --json=v.json
is coding_auto_hides [ "$(exposed redsync out)" = "$hidden" ]
is coding_auto_says grep -Eq '^redsync .* thread$' out
is coding_auto_says_json grep -Eq '"type":"redsync"[^}]*"thread":true' v.json
# what coding adds to a step that hides all else is the rank's own work; beside the layers it takes one core of four
coding() { sed "s/.*\"type\":\"$1\"[^}]*\"coding_ms\":\([0-9.e+-]*\).*/\1/" "$2"; }
is coding_is_of_none [ "$(coding none v.json)" = 0 ]
runs coding_of_rank 0 'verdict' $long --set=comm.progress=POLL --json=poll.json
is coding_adds_all_of_it awk "BEGIN { d = $(coding redsync poll.json) - $coding; exit !(d < 1e-3 && d > -1e-3) }"
sed 's/"threads":[0-9]*/"threads":1/' p.json >one.json
runs coding_no_core 0 'verdict' $check --nodes=4 --machine=fast.prototxt --profile=one.json --images_per_s=0.01 $auto
is coding_no_core_polls [ "$(grep -c ' thread$' out) $(exposed redsync out)" = "0 $coding" ]

# local steps: 4 nodes of 2 ranks, a group each, whose ranks add in shared memory; 1 MB/s between nodes
sed 's/name: "node" size: 1/name: "node" size: 2/; s/name: "slow"/name: "pairs"/' slow.prototxt >pairs.prototxt
local="$CORTADO check --solver=solver.prototxt --nodes=4 --ranks_per_node=2 --machine=pairs.prototxt --json=l.json"
runs local_steps 0 'local steps 4 groups of 2 ranks' $local --set=outer.local_iter=10
# number NAME; near A B SHARE: numbers that differ by at most that share
number() { sed 's/.*"local_steps"//' l.json | sed "s/.*\"$1\":\([0-9.e+-]*\).*/\1/"; }
near() { awk "BEGIN { a = $1; b = $2; exit !(b > 0 && a > b * (1 - $3) && a < b * (1 + $3)) }"; }
elements=$(sed -n 's/.*"parameters": *\([0-9]*\).*/\1/p' l.json | head -n 1)
is local_steps_ring near "$(number messages_ms)" "2 * 3 / 4 * 4 * $elements * 1e-3" 0.02
is local_steps_bytes near "$(number meeting_bytes)" "2 * 3 / 4 * 4 * $elements" 1e-6
is local_steps_mean near "$(number mean_ms)" "$(number step_ms) + $(number meeting_ms) / 10" 1e-6
at_once=$(number meeting_ms)
runs local_steps_later 0 'delay 1' $local --set=outer.local_iter=10 --set=outer.delay=1 --profile=p.json --images_per_s=100
is local_steps_hide near "$(number waited_ms) + $(number messages_ms)" "$(number meeting_ms)" 1e-6 # 10 steps of 160 ms
# integers: a byte an element and 4 for 256 of them, of the parameter that is large enough
runs local_steps_integers 0 'a meeting .int8.' $local --set=outer.compression.type=INT8 --set=outer.compression.min_bytes=1
is local_steps_integers_shorter awk "BEGIN { exit !($(number meeting_ms) < 0.3 * $at_once) }"
runs local_steps_groups 0 'local steps 2 groups of 4 ranks' $local --set=outer.groups=2
runs local_steps_unequal 2 'outer.groups is 3, but 8 ranks make no such groups' $local --set=outer.groups=3
runs local_steps_none 0 'verdict' $local
is local_steps_not_without sh -c '! grep -q local_steps l.json'

# clipping: forward waits for every gradient before it reads a weight. The profile's figures are set here:
# conv (156 elements) and ip (1450), 40 ms each in forward and in backward, 1 ms for the update; 1 MB/s
cat >figures.py <<'EOF'
import json
p = json.load(open("p.json"))
for s in p["forward"] + p["backward"]:
    if "ms" in s and "layer" in s: s["ms"] = 40.0 if p["layers"][s["layer"]]["name"] in ("conv", "ip") else 0.0
p["update_ms"] = 1.0
json.dump(p, open("set.json", "w"))
p["norm_ms"], p["after_all"] = 0.25, True
json.dump(p, open("clipped.json", "w"))
EOF
if command -v python3 >/dev/null && python3 figures.py; then
    priced() { sed 's/.*"compute_ms":\([0-9.e+-]*\),.*"type":"none","bytes_sent":[0-9]*,"step_ms":\([0-9.e+-]*\),"exposed_ms":\([0-9.e+-]*\),.*/\1 \2 \3/' v.json; }
    at="--nodes=4 --machine=slow.prototxt --set=comm.bucket_mb=0.002 --json=v.json"
    runs priced 0 'verdict' $check $at --profile=set.json
    plain=$(priced)
    runs clipping_priced 0 'verdict' $check $at --profile=set.json --set=clip_gradients=1
    clips=$(priced)
    runs clipped_priced 0 'verdict' "$CORTADO" check --model=net.prototxt $at --profile=clipped.json
    was=$(priced)
    # a fifth of the update where it was not measured; computing and exposed make up the step
    is clipping_computes awk "BEGIN { split(\"$plain $clips $was\", v); exit !(v[1] == 161 && v[4] > 161.199 && v[4] < 161.201 && v[7] > 161.249 && v[7] < 161.251) }"
    is clipping_exposes awk "BEGIN { split(\"$plain $clips\", v); d = v[5] - v[4] - v[6]; exit !(v[6] > 0 && v[6] > v[3] && d < 1e-6 && d > -1e-6) }"
fi

# what a parameter says of itself holds in every row, also where the solver says nothing
sed '0,/layer { name: "conv"/s//layer { param { compress { type: BF16 min_bytes: 1 } } name: "conv"/' net.prototxt >one.prototxt
sed 's/net.prototxt/one.prototxt/' solver.prototxt >one_solver.prototxt
runs one_of_its_own 0 'in each row, off too, the 1 parameter with a `compress` of its own as it says' "$CORTADO" check --solver=one_solver.prototxt --nodes=4 --machine=slow.prototxt $auto --json=one.json
is off_has_it grep -Eq '^none +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +1 of' out
is auto_leaves_it grep -Eq '^bf16 \(sum\): conv\[0\]' out
is json_says_so grep -q '"own":1,' one.json
runs off_with_one 0 'verdict +off is faster here, even with nothing' "$CORTADO" check --solver=one_solver.prototxt --nodes=4 --machine=fast.prototxt $auto --json=one.json
is json_off grep -q '"own":1,"compresses":false' one.json

# ---- a study takes AUTO, too, and the model chooses
runs study 0 '' "$CORTADO" scale --machine=slow.prototxt --model=net.prototxt --profile=p.json --nodes=1,4 --kind=modelled --no_bench --compression=auto:density=0.01,min_bytes=1024 --out=st
is study_compresses grep -rq '"algorithm": *"\(allgather\|gtopk\|oktopk\)"' st

# ---- nodes of two classes: what is used counts, and of that the slowest and the smallest
machine() { # FILE CLASSES: slow.prototxt, named with them, of as many nodes
    { cat slow.prototxt; echo "$2"; } >"$1"
}
fast_class='node_class { name: "new" nodes: "0-31" memory_gib: 64 }'
machine two.prototxt "$fast_class node_class { name: \"old\" nodes: \"32-63\" speed: 0.5 memory_gib: 0.5 inject_gbs: 0.0005 }"
machine tight.prototxt "$fast_class node_class { name: \"old\" nodes: \"32-63\" memory_gib: 0.0001 }"
with="$check --profile=p.json $auto"
$with --nodes=4 --machine=slow.prototxt >four.out 2>&1
runs class_fast_alone 0 'the slowest nodes are of class "new", speed 1$' $with --nodes=4 --machine=two.prototxt
is class_fast_as_before [ "$(grep -E '[0-9] of +[0-9]' out)" = "$(grep -E '[0-9] of +[0-9]' four.out)" ]
$with --nodes=64 --machine=slow.prototxt >all.out 2>&1
runs class_slowest 0 'the slowest nodes are of class "old", speed 0.5$' $with --nodes=64 --machine=two.prototxt --json=two.json
is class_smallest grep -Eq 'a node need 0.0[0-9]+ GiB at least; the smallest nodes, of class "old", have 0.5 GiB' out
is class_json grep -Eq '"slowest_class":"old","speed":0.5,"smallest_class":"old","node_need_gib":0.0[0-9]+,"node_memory_gib":0.5' two.json
computes() { sed -n 's/^a rank computes \([0-9.]*\) ms a step.*/\1/p' "$1"; }
is class_computes awk "BEGIN { r = $(computes out) / $(computes all.out); exit !(r > 1.99 && r < 2.01) }"
is class_links awk "BEGIN { r = $(exposed none out) / $(exposed none all.out); exit !(r > 1.5 && r < 2.1) }"
runs class_fits_without 0 'verdict' $with --nodes=32 --machine=tight.prototxt
runs class_too_small 2 'machine "slow": the ranks of a node need 0.0[0-9]+ GiB of memory at least, but nodes of class "old" have 0.0001 GiB' $with --nodes=33 --machine=tight.prototxt
runs class_study 0 '' "$CORTADO" scale --machine=two.prototxt --model=net.prototxt --profile=p.json --nodes=1,32,64 --kind=modelled --no_bench --out=classes
is class_study_report grep -q 'nodes 32-63 (old): speed 0.5, 0.5 GiB, into the network 0.0005 GB/s' classes/report.md
runs class_study_same 0 '' "$CORTADO" scale --machine=slow.prototxt --model=net.prototxt --profile=p.json --nodes=1,32,64 --kind=modelled --no_bench --out=alike
cat >classes.awk <<'EOF'
# of points.csv, without classes and then with: nodes, step and computing
FNR == 1 { file++; for (i = 1; i <= NF; i++) at[$i] = i; next }
{ step[file, $at["nodes"]] = $at["step_ms"]; compute[file, $at["nodes"]] = $at["compute_ms"] }
END {
    for (n = 1; n <= 32; n += 31) if (step[1, n] == "" || step[1, n] != step[2, n]) exit 1
    c = compute[2, 64] / compute[1, 64]
    exit !(c > 1.999 && c < 2.001 && step[2, 64] > 1.5 * step[1, 64])
}
EOF
is class_study_times awk -F, -f classes.awk alike/points.csv classes/points.csv

# ---- bad input: exit code 2 or 3, and why
runs no_nodes 2 '--nodes=0: expected a whole number, 1 to 2147483647$' $check --nodes=0
runs not_a_number 2 'nodes' $check --nodes=many
runs ranks_differ 2 '--ranks=3, but --nodes=2 with 2 ranks each are 4' $check --nodes=2 --ranks_per_node=2 --ranks=3
runs machine_alone 2 '--machine: for --nodes=N' $check --machine=slow.prototxt
runs profile_alone 2 '--profile: for --nodes=N' $check --profile=p.json
runs too_small 2 '' $check --nodes=65 --machine=slow.prototxt
runs unknown_machine 2 'nowhere' $check --nodes=2 --machine=nowhere
runs no_such_profile 3 'none.json' $check --nodes=2 --profile=none.json
runs not_a_profile 3 '' $check --nodes=2 --profile=solver.prototxt
runs speed_alone 2 '--images_per_s scales a --profile' $check --nodes=2 --images_per_s=5
runs bad_speed 2 'expected a number above 0' $check --nodes=2 --profile=p.json --images_per_s=-1
sed 's/"net_hash":"[0-9a-f]*"/"net_hash":"0123456789abcdef"/' p.json >other.json
runs other_net 2 'other.json' $check --nodes=2 --profile=other.json

# ---- training
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12"
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' out; }
runs trains 0 'Optimization Done' $JOB 2 $train --set=deterministic=false --set=snapshot_prefix=a $auto
is says_its_choice grep -q 'compression auto: .* parameters compressed' out
# dense sums where the network adds: MPI's own, but not where runs must be alike
dense="$train --set=comm.topology=4x1@adding.prototxt --set=comm.tune_iterations=0"
runs network_trains 0 'Optimization Done' $JOB 4 $dense --set=deterministic=false --set=snapshot_prefix=n
is network_takes_impi grep -q '(impi x [0-9]*)' out
runs network_trains_in_order 0 'Optimization Done' $JOB 4 $dense --set=snapshot_prefix=o
is network_keeps_order sh -c 'grep -q "gradients: .* buckets" out && ! grep -q "impi" out'
runs model_decides 0 'Optimization Done' $JOB 2 $train --set=snapshot_prefix=b $auto
first=$(sum_of)
is sum_is_there test -n "$first"
runs again 0 'Optimization Done' $JOB 2 $train --set=snapshot_prefix=c $auto
is deterministic_is test "$(sum_of)" = "$first"
runs alone 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --global_batch_size=12 --set=snapshot_prefix=d $auto
runs stops_early 0 'Optimization Done' $JOB 2 $train --set=deterministic=false --set=snapshot_prefix=e $auto --iterations=10
runs goes_on 0 'resuming after 10 iterations' $JOB 2 $train --set=deterministic=false --set=snapshot_prefix=e $auto --snapshot=auto

# ---- among, more than once: all of them count
$check --nodes=4 --machine=slow.prototxt --compression=auto:min_bytes=1024,among=BF16 >bf16.out 2>&1
$check --nodes=4 --machine=slow.prototxt --compression=auto:min_bytes=1024,among=REDSYNC,among=BF16 >both.out 2>&1
is one_of_them grep -q '^bf16 (sum):' bf16.out
is all_of_them grep -q '^redsync (.*):' both.out

# ---- what is refused
runs among_none 2 'among: none' $check --compression=auto:among=NONE
runs among_without_auto 2 'among means nothing to redsync' $check --compression=redsync:among=BF16
runs bad_density 2 '0 < density <= 1' $check --compression=auto:density=2
runs clipping 2 'clip_gradients' $check --set=clip_gradients=1 $auto
runs unknown 2 'did you mean "auto"' $check --compression=aut
sed 's/layer { name: "conv"/layer { param { compress { type: AUTO } } name: "conv"/' net.prototxt >own.prototxt
sed 's/net.prototxt/own.prototxt/' solver.prototxt >own_solver.prototxt
runs not_per_parameter 2 'type AUTO chooses for all parameters together' "$CORTADO" check --solver=own_solver.prototxt
finish
