#!/bin/sh
# What `cortado check --nodes` predicts of local steps, beside jobs on pretended hosts (scripts/netns.sh; root), one core each.
#   tests/bench/local_steps_predicted.sh [HOSTS] [RATE]      2 1gbit
#   ITERATIONS=241  TURNS=3  LOCALS="1 5 20"
# The net is three fully connected layers behind data made once, so that a step is short beside its 8 MB of gradients. All hosts are
# profiled at the same time, since cores share a memory; links are those that `bench comm --fit` measures. Compared is what an
# iteration waits for messages and meetings (comm_exposed_ms), and the whole.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
hosts=${1:-2} rate=${2:-1gbit} iterations=${ITERATIONS:-241}
"$root/scripts/netns.sh" up "$hosts" "$rate" >/dev/null || exit 1
dir=$(mktemp -d)
trap '"$root/scripts/netns.sh" down; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
cd "$dir" || exit 1
export OMP_NUM_THREADS=1 PIN=1
ranks() { "$root/scripts/netns.sh" run "$hosts" "$@" >log 2>&1 || { tail -n 20 log && exit 1; }; }

{
    echo 'name: "wide" layer { name: "in" type: "DummyData" top: "x0" top: "y" dummy_data_param { shape { dim: 256 dim: 784 } shape { dim: 256 }
      data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }'
    for k in 1 2; do
        echo "layer { name: \"fc$k\" type: \"InnerProduct\" bottom: \"x$((k - 1))\" top: \"x$k\" inner_product_param { num_output: 1024 weight_filler { type: \"xavier\" } } }
      layer { name: \"relu$k\" type: \"ReLU\" bottom: \"x$k\" top: \"x$k\" }"
    done
    echo 'layer { name: "fc3" type: "InnerProduct" bottom: "x2" top: "x3" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x3" bottom: "y" top: "loss" }'
} >net.prototxt
printf 'net: "net.prototxt" base_lr: 0.000001 lr_policy: "fixed" momentum: 0.9 max_iter: %d display: 40 random_seed: 1 snapshot_after_train: false
comm { tune_iterations: 0 }\n' "$iterations" >solver.prototxt

# Each host alone, at once; the first one's profile counts.
for i in $(seq "$hosts"); do
    taskset -c $(((i - 1) % $(nproc))) "$cortado" time --solver=solver.prototxt --iterations=100 --json="profile$i.json" >/dev/null 2>&1 &
done
wait
ranks "$cortado" bench comm --fit=machine.prototxt --sizes=64K,1M,8M
for turn in $(seq "${TURNS:-3}"); do
    for local in ${LOCALS:-1 5 20}; do
        for codec in "" "compression { type: INT8 }"; do
            printf '%s outer { local_iter: %d %s }\n' "$(cat solver.prototxt)" "$local" "$codec" >outer.prototxt
            ranks "$cortado" train --solver=outer.prototxt --metrics=m.jsonl --overwrite
            "$cortado" check --solver=outer.prototxt --nodes="$hosts" --machine=machine.prototxt --profile=profile1.json --json >check.json 2>log ||
                { cat log && exit 1; }
            LOCAL=$local CODEC=${codec:-f32} python3 - <<'END' || exit 1
import json, os
rows = [m for m in map(json.loads, open("m.jsonl")) if m["event"] == "train" and m["iter"] > 0]
compute, exposed = (sum(m[k] for m in rows) / len(rows) for k in ("compute_ms", "comm_exposed_ms"))
said = json.load(open("check.json"))["verdict"]["local_steps"]
waits = said["waited_ms"] / said["local_iter"]
print("%8s %-5s measured %6.2f computing, %6.2f waiting, %6.2f ms in all; predicted %6.2f, %6.2f, %6.2f; in all %.3f of measured" % (
    os.environ["LOCAL"], said["type"], compute, exposed, compute + exposed, said["step_ms"], waits, said["mean_ms"],
    said["mean_ms"] / (compute + exposed)))
END
        done
    done
done
