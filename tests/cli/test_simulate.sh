#!/bin/sh
# cortado simulate: times of known cases against their closed forms, sums, what is refused.
. "$ROOT/tests/cli/lib.sh"
sim="$CORTADO simulate --machine=taihulight"
: "${CORTADO_SIM:=$(dirname "$(readlink -f "$CORTADO")")/../smpicc/cortado-sim}"

runs simulate_help 0 'placement' "$CORTADO" simulate --help
runs simulate_no_work 2 'give --bench' $sim --nodes=2
runs simulate_no_nodes 2 'nodes' $sim --bench=1M
runs simulate_no_machine 2 'machine' "$CORTADO" simulate --nodes=2 --bench=1M
runs simulate_bad_machine 2 'did you mean "taihulight"' "$CORTADO" simulate --machine=taihuligth --nodes=2 --bench=1M
runs simulate_bad_placement 2 'sideways' $sim --nodes=2 --bench=1M --placement=sideways
if [ ! -x "$CORTADO_SIM" ] || ! command -v smpirun >/dev/null; then
    CORTADO_SIM="$work/none" runs simulate_not_there 3 'none' $sim --nodes=2 --bench=1M
    skip simulate "no simulator: make SIMGRID=1, and smpirun"
    finish
fi
export CORTADO_SIM

# us ALGORITHM BYTES: of the simulated allreduce in ./out.json
us() { sed 's/},{/\n/g' out.json | sed -n "s/.*\"algorithm\":\"$1\",\"bytes\":$2,\"us\":\([0-9.e+]*\),.*/\1/p"; }
# near NAME VALUE EXPECTED TOLERANCE
near() {
    if awk "BEGIN { d = ($2) / ($3) - 1; exit !(d < $4 && -d < $4) }"; then ok "$1"
    else not_ok "$1" "$2 us instead of $3"; fi
}

# between NAME VALUE LEAST MOST
between() {
    if awk "BEGIN { exit !(($2) >= ($3) && ($2) <= ($4)) }"; then ok "$1"
    else not_ok "$1" "$2 us, not within $3 and $4"; fi
}

# Every ready machine with one, two and three ranks a node, or more on one that is a node. A rank sends and receives 2 (p-1)/p n
# bytes in a ring at no more than the fastest link's speed (28 GB/s), and each of its 2 (p-1) rounds
# takes at least the least latency, 0.5 us.
for path in "$ROOT"/topology/machines/*.prototxt; do
    m=$(basename "$path" .prototxt)
    for per_node in 1 2 3; do
        nodes=4 each=$per_node
        [ "$m" = v100_8 ] && nodes=1 each=$((2 * per_node)) # it is one node
        p=$((nodes * each))
        rm -f out.json
        runs "simulate_${m}_$per_node" 0 '' "$CORTADO" simulate --machine="$m" --nodes=$nodes --ranks_per_node=$each --bench=1M --algorithm=ring --json=out.json
        between "simulate_${m}_${per_node}_us" "$(us ring 1048576)" "2*($p-1)*(0.5 + 1048576/$p/28e3)" 1e6
    done
done

runs simulate_no_size 2 'expected up to 16 sizes' $sim --nodes=2 --bench=-4
is simulate_says_so_once test "$(grep -c '^E[0-9]' out)" = 1

# One supernode: 2 us between any two, 12 GB/s each way, sums free. p = 16 ranks, n bytes:
#   halving and doubling  2 log2(p) rounds, 2 (p-1)/p n bytes       (Rabenseifner, ICCS 2004)
#   ring                  2 (p-1) rounds of n / p                   (Patarasuk and Yuan, JPDC 2009)
#   tree                  2 log2(p) rounds of n
# Simulated messages of a rank to another, or of steps in a row, leave in turn, each as soon as the one
# before has left, so that its latency passes beside the next one's bytes. An exchange of 512 KB or
# more, but for the smallest of all, goes in two pieces (schedule.c). 1 MB by halving on 16 ranks:
# 512 KB in 2, then 256, 128 and 64 KB, up and down. The latency of the first piece hides behind the
# second, and the second is there when 256 KB leave: 3 latencies up and 3 down. A moment is rounded
# up to 0.1 us.
n=1048576
runs simulate_bench 0 '' $sim --nodes=16 --bench=1M --algorithm=all --json=out.json
is simulate_says_so grep -q '"kind":"simulated"' out.json
near simulate_rhd "$(us rhd $n)" "6*2 + 2*15/16*$n/12e3" 0.001
near simulate_ring "$(us ring $n)" "2*15*(2 + $n/16/12e3)" 0.0002
# The root receives and sends 4 n, in 16 messages each way: at least a latency each way, at most one
# a round.
between simulate_tree "$(us tree $n)" "2*4*$n/12e3 + 2*2" "2*4*$n/12e3 + 2*4*2"
# Their halves: of a ring 15 rounds, of halving 3 latencies; both halves send as much as the whole.
for kind in reduce_scatter allgather; do
    runs simulate_$kind 0 '' $sim --nodes=16 --bench=1M --algorithm=all --kind=$kind --json=out.json
    is simulate_${kind}_said grep -q "\"collective\":\"$kind\"" out.json
    near simulate_${kind}_rhd "$(us rhd $n)" "6 + 15/16*$n/12e3" 0.001
    near simulate_${kind}_ring "$(us ring $n)" "15*(2 + $n/16/12e3)" 0.0002
done
runs simulate_no_half 2 'allreduce "tree" cannot gather' $sim --nodes=16 --bench=1M --algorithm=tree --kind=allgather
runs simulate_check_half 2 'of whole sums, not of --kind=allgather' $sim --nodes=16 --bench=1M --kind=allgather --check
# A torus of 4 x 4 with four links of 12 GB/s a node. Swing sends a quarter of the buffer along each,
# in 4 rounds up and 4 down, to neighbours alone: 2 * 15/16 n / 4 bytes on every link.
cat >torus.prototxt <<'EOF2'
name: "torus"
source: "a test"
level { name: "node" size: 1 latency_us: 1 bandwidth_gbs: 48 }
level { name: "machine" torus: 4 torus: 4 latency_us: 2 hop_us: 0.5 bandwidth_gbs: 12 }
EOF2
runs simulate_torus 0 '' "$CORTADO" simulate --machine=torus.prototxt --nodes=16 --bench=400000 --algorithm=all --json=out.json
near simulate_swing_us "$(us swing 400000)" "8*2 + 2*15/16*100000/12e3" 0.01
near simulate_rings_us "$(us torus 400000)" "12*2 + 2*15/16*400000/12e3" 0.01
runs simulate_torus_too_large 2 'tori are simulated with up to 512 nodes' "$CORTADO" simulate --machine=torus:32x32 --nodes=1024 --bench=1M

# a round over 4 supernodes of 4 nodes each, 4:1: the pairs 8 apart share a link of 12 GB/s
cat >small.prototxt <<'EOF2'
name: "small"
source: "a test"
level { name: "node" latency_us: 1 bandwidth_gbs: 28 }
level { name: "supernode" size: 4 latency_us: 2 bandwidth_gbs: 12 }
level { name: "machine" size: 4 latency_us: 4 bandwidth_gbs: 12 oversubscription: 4 }
EOF2
# 16 MB in exchanges of 8, 4, 2 and 1 MB, up and down, in pieces: latencies hide behind them, and the
# first message across leaves while the last one inside comes. What is left is below 2 in 1000.
# nearest first: 1/2 and 1/4 inside (1 + 2 ranks away), then 1/8 and 1/16 across, 4 ranks a link
inside="2*16777216/12e3*(1/2 + 1/4 + 4/8 + 4/16)"
runs simulate_across 0 '' "$CORTADO" simulate --machine=small.prototxt --nodes=16 --bench=16M --algorithm=rhd --json=out.json
near simulate_across_time "$(us rhd 16777216)" "$inside" 0.002
# in the order of the numbers, cyclic placement: neighbours are in different supernodes
runs simulate_naive 0 '' "$CORTADO" simulate --machine=small.prototxt --nodes=16 --placement=cyclic --order=rank --bench=16M --algorithm=rhd --json=out.json
near simulate_naive_time "$(us rhd 16777216)" "2*16777216/12e3*(4/2 + 4/4 + 1/8 + 1/16)" 0.002
runs simulate_placed 0 '' "$CORTADO" simulate --machine=small.prototxt --nodes=16 --placement=cyclic --bench=16M --algorithm=rhd --json=out.json
near simulate_placed_time "$(us rhd 16777216)" "$inside" 0.002

# ---- training: two layers of 10 ms forward and 20 ms backward each, 8 + 16 MB, 4 ranks, one link
cat >two.json <<'EOF2'
{"profile":1,"net":"two","net_hash":"0","batch":8,"ranks":1,"threads":1,"images_per_s":133.3333333,
 "step_ms":60,"update_ms":0,"wait_data_ms":0,
 "params":[{"key":"b.w","offset":0,"count":2097152},{"key":"a.w","offset":2097152,"count":4194304}],
 "forward":[{"kind":"wait","param":1},{"kind":"forward","layer":0,"ms":10,"polls":0},
            {"kind":"wait","param":0},{"kind":"forward","layer":1,"ms":10,"polls":0}],
 "backward":[{"kind":"backward","layer":1,"ms":20,"polls":0},{"kind":"ready","param":0},
             {"kind":"backward","layer":0,"ms":20,"polls":0},{"kind":"ready","param":1}],
 "step_ms_samples":[60,60]}
EOF2
ms() { sed 's/.*"mean_step_ms":\([0-9.e+]*\),.*/\1/' out.json; }
train="$CORTADO simulate --machine=slow.prototxt --nodes=4 --profile=two.json --set=comm.allreduce=rhd --set=comm.bucket_mb=1 --json=out.json"
printf 'name: "slow"\nsource: "a test"\nlevel { name: "node" latency_us: 1 bandwidth_gbs: 9 }\nlevel { name: "machine" latency_us: 0.001 bandwidth_gbs: 1 }\n' >slow.prototxt
# each sum of n bytes takes 2 * 3/4 n / 1 GB/s: 12.58 and 25.17 ms
a=25.165824 b=12.582912
runs simulate_overlap_off 0 '' $train --overlap=off
near simulate_overlap_off_ms "$(ms)" "60 + $a + $b" 0.001
# ZeRO: a reduce-scatter and an allgather take as long as a sum, and send as much
sent() { sed 's/.*"bytes_sent":\([0-9.e+]*\),.*/\1/' out.json; }
runs simulate_zero_1 0 '' $train --overlap=off --set=memory.zero=1
near simulate_zero_1_ms "$(ms)" "60 + $a + $b" 0.001
near simulate_zero_1_bytes "$(sent)" "1.5*25165824" 1e-6
# with gradients in 16 bits the first half sends half as much, and takes half as long but for coding
runs simulate_zero_cast 0 '' $train --overlap=off --set=memory.zero=1 --set=compression.type=BF16
near simulate_zero_cast_bytes "$(sent)" "1.125*25165824" 1e-6
between simulate_zero_cast_ms "$(ms)" "60 + 0.75*($a + $b)" "60 + $a + $b"
# weights come before forward reads them: those of b share the link with those of a; both stay for backward
runs simulate_zero_3 0 '' $train --overlap=off --set=memory.zero=3
between simulate_zero_3_ms "$(ms)" "60 + $a + $b/2" "60 + $a + $b + 0.01"
near simulate_zero_3_bytes "$(sent)" "1.5*25165824" 1e-6
# b's sum hides behind the backward of a; a's does not
runs simulate_backward 0 '' $train --overlap=backward
near simulate_backward_ms "$(ms)" "60 + $a" 0.001
# the next forward begins with a
runs simulate_both 0 '' $train --overlap=both
near simulate_both_ms "$(ms)" "60 + $a" 0.001
# with clip_gradients the next forward waits for b, too, before it reads a; without it b has the 10 ms of a
sed -i 's/bandwidth_gbs: 1 /bandwidth_gbs: 0.5 /' slow.prototxt
runs simulate_slow_both 0 '' $train --overlap=both
near simulate_slow_both_ms "$(ms)" "60 + 2*$a" 0.01
is simulate_slow_both_said grep -q '"after_all":false' out.json
runs simulate_clips 0 '' $train --overlap=both --set=clip_gradients=1
near simulate_clips_ms "$(ms)" "60 + 2*$a + 2*$b - 20" 0.001
is simulate_clips_said grep -q '"after_all":true' out.json
# a run that clipped says so itself, and what the norm took: that of b comes behind the last sum, then the update
sed 's/"update_ms":0/"update_ms":9,"norm_ms":3,"after_all":true/' two.json >clipped.json
clipped=$(echo "$train" | sed 's/two.json/clipped.json/')
runs simulate_clipped 0 '' $clipped --overlap=both
near simulate_clipped_ms "$(ms)" "60 + 2*$a + 2*$b - 20 + 1 + 9" 0.001
runs simulate_clipped_not 0 '' $clipped --overlap=both --set=clip_gradients=-1
is simulate_clipped_not_said grep -q '"after_all":false' out.json
sed -i 's/bandwidth_gbs: 0.5 /bandwidth_gbs: 1 /' slow.prototxt
# fast enough that all hides
sed -i 's/bandwidth_gbs: 1 /bandwidth_gbs: 1000 /; s/bandwidth_gbs: 9 /bandwidth_gbs: 9000 /' slow.prototxt
runs simulate_hidden 0 '' $train --overlap=both
near simulate_hidden_ms "$(ms)" 60.025 0.001

# ---- nodes of two classes: the last of four computes and sends at half the speed
alike() { # NAME SUM_GBS NETWORK_GBS CLASSES: links as above
    printf 'name: "%s"\nsource: "a test"\nsum_gbs: %s\nlevel { name: "node" size: 2 latency_us: 1 bandwidth_gbs: 9 }\nlevel { name: "machine" size: 4 latency_us: 1 bandwidth_gbs: %s }\n%s\n' "$@"
}
alike alike 0 1 '' >alike.prototxt
alike unlike 0 1 'node_class { name: "f" nodes: "0-2" } node_class { name: "s" nodes: "3" speed: 0.5 inject_gbs: 0.5 inside_gbs: 4.5 }' >unlike.prototxt
on="--profile=two.json --set=comm.allreduce=rhd --set=comm.bucket_mb=1 --overlap=off --json=out.json"
runs simulate_unlike 0 '' "$CORTADO" simulate --machine=unlike.prototxt --nodes=4 $on
# both sums reach the slow node's link at once, and wait for each other
between simulate_unlike_ms "$(ms)" "2*60 + 2*$a + 2*$b" "1.02*(2*60 + 2*$a + 2*$b)"
runs simulate_alike 0 '' "$CORTADO" simulate --machine=alike.prototxt --nodes=3 --ranks_per_node=2 $on
mv out.json alike.json
runs simulate_unlike_fast 0 '' "$CORTADO" simulate --machine=unlike.prototxt --nodes=3 --ranks_per_node=2 $on
without() { sed 's/"machine":"[a-z]*"//; s/"wall_s":[0-9.]*//' "$1"; }
is simulate_fast_alone_same [ "$(without alike.json)" = "$(without out.json)" ]
# all of one class is as levels with its figures, additions too
alike all 2 1 'node_class { name: "s" nodes: "0-3" speed: 0.5 inject_gbs: 0.5 }' >all.prototxt
alike same 1 0.5 '' >same.prototxt
runs simulate_all_of_one 0 '' "$CORTADO" simulate --machine=all.prototxt --nodes=4 --bench=1M --algorithm=ring --json=out.json
us ring $n >all.us
runs simulate_as_levels 0 '' "$CORTADO" simulate --machine=same.prototxt --nodes=4 --bench=1M --algorithm=ring --json=out.json
near simulate_class_adds "$(cat all.us)" "$(us ring $n)" 1e-6
# a ring of the two ranks of a slow node
alike inside 0 1 'node_class { name: "s" nodes: "0" inside_gbs: 4.5 } node_class { name: "f" nodes: "1-3" }' >inside.prototxt
runs simulate_inside 0 '' "$CORTADO" simulate --machine=inside.prototxt --nodes=1 --ranks_per_node=2 --bench=1M --algorithm=ring --json=out.json
near simulate_inside_us "$(us ring $n)" "2*$n/2/4.5e3" 0.05

# What a step took is what a rank computed and what it waited for, and what it sent is one exchange,
# 2 (p-1)/p n bytes, whatever is still under way when backward ends: 3 and 4 ranks of 24 MB, ranks
# that do not take equally long, additions that take time.
number() { sed "s/.*\"$1\":\([0-9.e+-]*\)[,}].*/\1/" out.json; }
sed 's/"step_ms_samples":.*/"step_ms_samples":[60,60,66,90]}/' two.json >uneven.json
printf 'name: "adds"\nsource: "a test"\nsum_gbs: 3\nlevel { name: "node" latency_us: 1 bandwidth_gbs: 9 }\nlevel { name: "machine" latency_us: 1 bandwidth_gbs: 1 }\n' >adds.prototxt
for overlap in off backward both; do
    for how in thread poll; do
        for p in 3 4; do
            name=simulate_account_${overlap}_${how}_$p
            runs $name 0 '' "$CORTADO" simulate --machine=adds.prototxt --nodes=$p --profile=uneven.json --jitter_seed=5 --iterations=3 \
                --warmup=0 --set=comm.allreduce=ring --set=comm.bucket_mb=1 --overlap=$overlap --progress=$how --json=out.json
            near ${name}_step "$(number compute_ms) + $(number exposed_ms)" "$(number mean_step_ms)" 1e-6
            near ${name}_bytes "$(number bytes_sent)" "2*($p-1)/$p*25165824" 1e-6
            near ${name}_rate "$(number images_per_s)" "$p*8e3/$(number mean_step_ms)" 1e-6
        done
    done
done

# Additions go on beside layers, as in a thread, however short these are: 1 ms each, where a message of
# 1 MB is added in 0.35 ms. All hides: forward reads the weights last. At most one addition is left over.
cat >short.py <<'EOF2'
import json
p = json.load(open("two.json"))
layers = lambda kind, n: [{"kind": kind, "layer": 0, "ms": 1, "polls": 0}] * n
ready = lambda i: [{"kind": "ready", "param": i}]
p["backward"] = layers("backward", 20) + ready(0) + layers("backward", 20) + ready(1)
p["forward"] = layers("forward", 20) + [{"kind": "wait", "param": 1}, {"kind": "wait", "param": 0}]
json.dump(p, open("short.json", "w"))
EOF2
python3 short.py
sed 's/bandwidth_gbs: [19] /bandwidth_gbs: 9 /g' adds.prototxt >beside.prototxt
runs simulate_adds_beside 0 '' "$CORTADO" simulate --machine=beside.prototxt --nodes=4 --profile=short.json --iterations=3 \
    --set=comm.allreduce=rhd --set=comm.bucket_mb=1 --json=out.json
between simulate_adds_beside_ms "$(ms)" 59.88 60.12

# ---- a layer's sum of 1 048 576 doubles over two ranks at 1 GB/s: 8.39 ms to rank 0, as long back
sed 's/1000 }/1 }/; s/9000 }/9 }/' slow.prototxt >summing.prototxt
# summed NAME FORWARD: a profile whose gradients are small, with this list of forward
summed() {
    cat >"$1.json" <<EOF2
{"profile":1,"net":"sums","net_hash":"0","batch":8,"ranks":2,"threads":1,"images_per_s":133.3333333,
 "step_ms":60,"update_ms":0,"wait_data_ms":0,"params":[{"key":"a.w","offset":0,"count":16}],
 "forward":[$2],
 "backward":[{"kind":"backward","layer":1,"ms":40,"polls":0},{"kind":"ready","param":0,"ms":3}],
 "step_ms_samples":[60,60]}
EOF2
}
layer='{"kind":"forward","layer":1,"ms":10,"polls":0}'
begin='{"kind":"sum_begin","layer":0,"pair":7,"count":1048576,"ms":5}'
wait='{"kind":"sum_wait","layer":0,"pair":7,"count":1048576,"ms":5}'
sums() { runs "$1" 0 '' "$CORTADO" simulate --machine=summing.prototxt --nodes=2 --profile="$2.json" --progress="$3" --json=out.json; }
summed shown "$layer,$begin,$wait,$layer"
sums sum_shown shown poll
near sum_shown_ms "$(ms)" "60 + 2*8.388608" 0.001
near sum_shown_exposed "$(number exposed_ms)" "2*8.388608" 0.002
# beside a layer of 10 ms: rank 0 hears of the first half when it looks, or as it comes
summed beside "$layer,$begin,$layer,$wait"
sums sum_polled beside poll
near sum_polled_ms "$(ms)" "60 + 8.388608" 0.001
sums sum_threaded beside thread
near sum_threaded_ms "$(ms)" "60 + 2*8.388608 - 10" 0.001
near sum_account "$(number compute_ms) + $(number exposed_ms)" "$(number mean_step_ms)" 1e-6
summed unfinished "$layer,$begin,$layer"
runs sum_unfinished 3 'unfinished.json: forward.1.: nothing waits for sum 7' "$CORTADO" simulate --machine=summing.prototxt --nodes=2 --profile=unfinished.json
summed twice "$layer,$begin,$begin,$layer"
runs sum_twice 3 'twice.json: forward.2.: sum 7 does not begin and end once each' "$CORTADO" simulate --machine=summing.prototxt --nodes=2 --profile=twice.json

# the simulator does not pretend to know sums in the network
{ cat adds.prototxt; echo 'in_network { bandwidth_gbs: 1 latency_us: 3 }'; } >network.prototxt
network="$CORTADO simulate --machine=network.prototxt --nodes=4"
runs simulate_in_network 2 'has in_network, and the simulator knows no sums in the network' $network --profile=two.json
runs simulate_in_network_auto 2 'has in_network' $network --bench=1M --algorithm=auto
runs simulate_in_network_named 0 '' $network --profile=two.json --set=comm.allreduce=ring
runs simulate_in_network_bench 0 '' $network --bench=1M --algorithm=all

runs simulate_unknown_algorithm 2 'unknown allreduce "nix"' $sim --nodes=4 --bench=1M --algorithm=nix
runs simulate_no_profile 3 'nowhere' $sim --nodes=4 --profile=nowhere.json
runs simulate_bad_bench 2 'expected up to' $sim --nodes=4 --bench=1Q
finish
