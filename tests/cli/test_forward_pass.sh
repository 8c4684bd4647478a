#!/bin/sh
# check --parallel --phase=TEST: a forward that ranks share, modelled, and simulated with what the real program sends.
. "$ROOT/tests/cli/lib.sh"
json() { python3 -c "import json, sys; n = json.load(open('$1')); sys.exit(not ($2))"; }
: "${CORTADO_SIM:=$(dirname "$(readlink -f "$CORTADO")")/../smpicc/cortado-sim}"
export CORTADO_SIM

cat >hosts.prototxt <<'EOF'
name: "hosts"
source: "0.1 GB/s and 30 us between hosts"
sum_gbs: 10
level { name: "node" latency_us: 0.5 bandwidth_gbs: 8 uplink_gbs: 0.1 bus_gbs: 80 }
level { name: "switch" size: 8 latency_us: 30 bandwidth_gbs: 0.1 }
EOF
# Two blocks of width 64, 32 tokens, by heads and inner numbers on 2 ranks.
block='qkv attn attn_proj fc proj'
make_case_of() { # KIND
    "$ROOT/scripts/nets/kraken.py" --kind="$1" --to="$1" --width=64 --blocks=2 --heads=4 --tokens=100 --seq_len=32 --batch=1 $2 >/dev/null ||
        not_ok "$1" made
}
splits() { # KIND: a parallel file of its deploy net
    echo 'ranks: 2 global_batch: 1 stage { first: "input" last: "head" rank: 0 rank: 1 tensor: 2'
    echo 'layer { name: "input" split: REPLICATE } layer { name: "wte" split: REPLICATE }'
    echo 'layer { name: "wpe" split: REPLICATE } layer { name: "ln_f" split: REPLICATE } layer { name: "head" split: REPLICATE }'
    if [ "$1" = kraken ]; then
        for w in 0 1; do echo "layer { name: \"h0_w${w}_ln1\" split: ONE part: $w }"; done
    else
        for b in 0 1; do
            echo "layer { name: \"h${b}_attn_qkv\" split: OUTPUT } layer { name: \"h${b}_attn\" split: HEADS }"
            echo "layer { name: \"h${b}_attn_proj\" split: INPUT } layer { name: \"h${b}_fc\" split: OUTPUT }"
            echo "layer { name: \"h${b}_proj\" split: INPUT }"
        done
    fi
    echo '}'
}
check="$CORTADO check --phase=TEST --machine=hosts.prototxt --limits=1,10"
for kind in standard kraken; do
    make_case_of $kind "$([ $kind = kraken ] && echo --ways=2)"
    splits $kind >$kind.prototxt
    runs $kind 0 'forward +[0-9.]+ ms, modelled: 2 ranks' $check --model=$kind/deploy.prototxt --parallel=$kind.prototxt --json=$kind.json
done
# A standard block sums twice, and waits: 4 sums of 32 x 64 numbers, 2 x (half of them at 0.1 GB/s and 30 us) each.
is four_sums json standard.json 'sum(s["step"] == "begin" for s in n["steps"]) == 4'
is their_bytes json standard.json 'all(s["bytes"] == 32 * 64 * 4 and s["transfer"] == "sum" for s in n["steps"] if s["step"] == "begin")'
is their_time json standard.json 'abs(n["transfer_s"] - 4 * 2 * (4096 / 0.1e9 + 30e-6)) < 1e-9'
is waits_for_all json standard.json 'abs(n["exposed_s"] - n["transfer_s"]) < 1e-9'
is adds_up json standard.json 'abs(n["forward_s"] - n["compute_s"] - n["exposed_s"]) < 1e-9'
is computes json standard.json 'abs(1e3 * n["compute_s"] - sum(s.get("ms", 0) for s in n["steps"])) < 1e-6'
is shares_work json standard.json 'n["one_rank_s"] / 2 < n["compute_s"] < n["one_rank_s"]'
# Kraken sums once behind each block, beside the next attention; the last sum has none.
is two_sums json kraken.json 'sum(s["step"] == "begin" for s in n["steps"]) == 2'
is half_hidden json kraken.json 'n["transfer_s"] / 2 <= n["exposed_s"] + 1e-9 and n["exposed_s"] < n["transfer_s"]'
is no_overlap json kraken.json 'abs(n["no_overlap_s"] - n["compute_s"] - n["transfer_s"]) < 1e-9'

# ---- the same steps, in the same order: modelled, measured, and in the trace
steps_of() { python3 "$ROOT/tests/cli/steps_of.py" "$@"; }
alike() { # NAME FILE [profile]: its steps are those of NAME
    steps_of "$2" ${3:-} >found.txt && diff -u "$1.txt" found.txt
}
for kind in standard kraken; do
    steps_of $kind.json >$kind.txt
    runs timed_$kind 0 'SumParts' $JOB 2 "$CORTADO" time --phase=TEST --model=$kind/deploy.prototxt --parallel=$kind.prototxt \
        --iterations=3 --limits=false --threads=1 --json=t_$kind.json --trace=trace_$kind.json --trace_iterations=0-1
    is timed_steps_$kind alike $kind t_$kind.json
    is timed_profile_$kind alike $kind t_$kind.json profile
    is traced_steps_$kind alike $kind trace_$kind.json
    # sums are told with what beginning and awaiting them took, and what travels: each rank sends half of a sum twice
    is timed_pairs_$kind json t_$kind.json 'all(s["ms"] >= 0 for s in n["forward"]) and n["backward"] == []'
    is timed_bytes_$kind json t_$kind.json 'n["bytes_sent"] == sum(s["bytes"] for s in n["pass"]["steps"] if s["step"] == "begin")'
    # sequences side by side: of the last block the sum comes before rows are left out
    runs packed_$kind 0 '' $JOB 2 "$CORTADO" bench serve --model=$kind/deploy.prototxt --parallel=$kind.prototxt --shapes=2x7,1x32 \
        --repeat=3 --threads=1 --pass=p_$kind.json --trace=packed_$kind.json --trace_iterations=0-0
    steps_of p_$kind.json >packed_$kind.txt
    is packed_trace_$kind alike packed_$kind packed_$kind.json
    is packed_has_all_$kind sh -c "sort $kind.txt >a.txt; sort packed_$kind.txt | diff - a.txt"
done
is same_packed diff standard.txt packed_standard.txt
runs forward_on_one 0 'backward 0.000' "$CORTADO" time --phase=TEST --model=standard/deploy.prototxt --iterations=3 --limits=false
runs pass_of_one 2 'steps of ranks that --parallel tells of' "$CORTADO" bench serve --model=standard/deploy.prototxt --shapes=1x2 --pass=p.json

# ---- what is refused
sed 's/tensor: 2/tensor: 1/' standard.prototxt | sed 's/layer {[^}]*}//g' >replicas.prototxt
sed -i 's/global_batch: 1/global_batch: 2/' replicas.prototxt
runs replicas 2 'one stage with one replica, not of 1 with 2' $check --model=standard/deploy.prototxt --parallel=replicas.prototxt
one="$check --model=standard/deploy.prototxt --parallel=standard.prototxt"
runs unlike_ranks 4 'ranks is 2, but --ranks has 8' $one --ranks=8
runs nodes_too 2 '[-]-nodes is for jobs without it' $one --nodes=4
runs profile_too 2 'is told of operations and bytes alone' $one --profile=p.json
runs two_works 2 'give one of them' "$CORTADO" simulate --machine=hosts.prototxt --nodes=2 --pass=standard.json --bench=1M
printf '{}\n' >none.json
runs no_work 2 'or --pass=FILE' "$CORTADO" simulate --machine=hosts.prototxt --nodes=2

if [ ! -x "$CORTADO_SIM" ] || ! command -v smpirun >/dev/null; then
    skip simulated "no simulator: make SIMGRID=1, and smpirun"
    finish
fi
sim="$CORTADO simulate --machine=hosts.prototxt"
for kind in standard kraken; do
    runs simulated_$kind 0 '' $sim --nodes=2 --pass=$kind.json --json=s_$kind.json
    # additions at 10 GB/s, and messages to and fro, are not in the model
    is as_modelled_$kind json s_$kind.json "abs(n['mean_forward_ms'] / (1e3 * json.load(open('$kind.json'))['forward_s']) - 1) < 0.03"
    is simulated_waits_$kind json s_$kind.json 'abs(n["mean_forward_ms"] - n["compute_ms"] - n["exposed_ms"]) < 0.01 * n["mean_forward_ms"]'
done
# What was measured goes into the simulator as well, which plays the same steps.
for kind in standard kraken; do
    is simulated_steps_$kind alike $kind s_$kind.json
    runs simulated_timed_$kind 0 '' $sim --nodes=2 --pass=t_$kind.json --json=st_$kind.json
    is simulated_timed_steps_$kind alike $kind st_$kind.json
    is simulated_timed_compute_$kind json st_$kind.json \
        "abs(n['compute_ms'] - sum(s.get('ms', 0) for s in json.load(open('t_$kind.json'))['pass']['steps'])) < 1e-6"
    runs simulated_packed_$kind 0 '' $sim --nodes=2 --pass=p_$kind.json --json=sp_$kind.json
    is simulated_packed_steps_$kind alike packed_$kind sp_$kind.json
done
is steady json s_kraken.json 'abs(n["forward_ms"][0] - n["forward_ms"][1]) < 1e-6'
runs other_ranks 2 'is of 2 ranks, but 3 run' $sim --nodes=3 --pass=standard.json
runs no_pass 3 'lacks "forward_pass": 1' $sim --nodes=2 --pass=none.json
finish
