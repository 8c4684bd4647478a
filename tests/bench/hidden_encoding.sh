#!/bin/sh
# AlexNet with each codec on nodes of 15 000 images/s, 256 images each, on 64, 256 and 1024 nodes: MODELLED.
#
# usage: tests/bench/hidden_encoding.sh [CORTADO]
#   NODES="64 256 1024", IMAGES_PER_S=15000, THREADS=32 of a node, DENSITY=0.001
#   SPEEDUP=8: all cores of a node code so many times as fast as the two whose figures stand below
#   AMONG="REDSYNC BF16 INT8": what AUTO may take
#
# For POLL, THREAD and AUTO a table of Markdown: step, exposed, what coding adds to the step (ms), and AUTO beside the best row.
set -eu
cortado=$(realpath "${1:-./cortado}")
here=$(cd "$(dirname "$0")/../.." && pwd)
: "${NODES:=64 256 1024}" "${IMAGES_PER_S:=15000}" "${THREADS:=32}" "${DENSITY:=0.001}" "${SPEEDUP:=8}" "${AMONG:=REDSYNC BF16 INT8}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed "s/\"threads\": *[0-9]*/\"threads\": $THREADS/" "$here/docs/studies/alexnet_profile.json" >"$work/profile.json"
# 100 Gbit/s; coding as measured on two cores (docs/results/2026-11-21-modelled-codecs.md), INT8 and INT4 as their memory
awk -v f="$SPEEDUP" 'BEGIN {
    print "name: \"eth\" sum_gbs: " 10 * f
    print "level { name: \"node\" size: 1 latency_us: 1 bandwidth_gbs: 10 }"
    print "level { name: \"machine\" latency_us: 20 bandwidth_gbs: 12.5 }"
    printf "coding { memory_gbs: %g update_ns: %g select_ns: %g pack_ns: %g add_ns: %g merge_ns: %g\n", 36 * f, 0.4 / f, 0.1 / f, 0.5 / f, 5 / f, 5.5 / f
    printf "sign_ns: %g unsign_ns: %g factor_ns: %g column_ns: %g one_core: %g }\n", 1.1 / f, 0.16 / f, 0.82 / f, 0.11 / f, f
}' >"$work/eth.prototxt"
among=$(for a in $AMONG; do printf ',among=%s' "$a"; done)

for progress in POLL THREAD AUTO; do
    printf '\n`progress: %s`\n\n| nodes | codec | step, ms | exposed, ms | coding, ms | thread | AUTO / best |\n|---|---|---|---|---|---|---|\n' $progress
    for n in $NODES; do
        "$cortado" check --solver="$here/models/alexnet/solver.prototxt" --nodes="$n" --machine="$work/eth.prototxt" \
            --profile="$work/profile.json" --images_per_s="$IMAGES_PER_S" --set=batch_size=256 --set=comm.progress=$progress \
            --compression="auto:density=$DENSITY$among" --json="$work/v.json" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
        tr '{' '\n' <"$work/v.json" | awk -v n="$n" '
            function field(name,  s) { s = $0; if (!sub(".*\"" name "\": *\"?", "", s)) return ""; sub("[\",}].*", "", s); return s }
            /"type":.*"step_ms":/ {
                t = field("type"); step[t] = field("step_ms"); exposed[t] = field("exposed_ms")
                coding[t] = field("coding_ms"); thread[t] = field("thread")
            }
            END {
                k = split("none bf16 redsync int8 auto", list, " ")
                for (i = 1; i < k; ++i) if (best == "" || step[list[i]] + 0 < best) best = step[list[i]] + 0
                for (i = 1; i <= k; ++i) {
                    t = list[i]
                    printf "| %d | %s | %.2f | %.2f | %.2f | %s | %s |\n", n, (t == "none") ? "dense" : toupper(t), step[t], exposed[t],
                        coding[t], (thread[t] == "true") ? "yes" : "no", (t == "auto") ? sprintf("%.3f", best / step[t]) : ""
                }
            }'
    done
done
