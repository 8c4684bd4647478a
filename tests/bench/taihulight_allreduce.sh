#!/bin/sh
# SIMULATED: an allreduce of 100 MB on 1024 nodes of Sunway TaihuLight, one rank a node: the order
# of the ranks, their placement, the algorithm. Needs the simulator (make SIMGRID=1); some minutes.
#
#   tests/bench/taihulight_allreduce.sh [NODES] [BYTES] [ALGORITHMS]
#
# The bandwidth bound: every rank must send and receive 2 (p-1)/p n bytes over its link of 12 GB/s
# (Patarasuk and Yuan, JPDC 2009). A supernode's uplink has less to do: 2 (s-1)/s n of s supernodes.
# "naive": halving and doubling in the order of the ranks' numbers, whose neighbours are in
# different supernodes (placement cyclic), so that the two largest exchanges share the uplinks:
# 4 (1/2 + 1/4) + 1/4 = 3.25 times the time.
set -eu
nodes=${1:-1024}
bytes=${2:-100000000}
algorithms=${3:-rhd,torus}
cortado=${CORTADO:-./cortado}
bound=$(awk "BEGIN { printf \"%.1f\", 2 * ($nodes - 1) / $nodes * $bytes / 12e3 }")

one() { # TITLE OPTIONS...
    title=$1
    shift
    "$cortado" simulate --machine=taihulight --nodes="$nodes" --bench="$bytes" "$@" 2>/dev/null |
        sed -n 's/.*"us":\([0-9.e+]*\),"predicted_us":\([0-9.e+]*\),.*/\1 \2/p' |
        while read -r us predicted; do
            awk "BEGIN { printf \"| %-30s | %10.1f | %9.3f | %10.1f |\n\", \"$title\", $us, $us / $bound, $predicted }"
        done
}

echo "simulated (SimGrid SMPI), taihulight, $nodes nodes, $bytes bytes; bound by bandwidth $bound us"
echo
echo "| algorithm, placement           |         us | of bound  | model's us |"
echo "|--------------------------------|-----------:|----------:|-----------:|"
for a in $(echo "$algorithms" | tr , ' '); do
    for placement in block cyclic random:1; do
        one "$a, $placement" --algorithm="$a" --placement="$placement"
    done
done
one "naive rhd: numbers, cyclic" --algorithm=rhd --placement=cyclic --order=rank
