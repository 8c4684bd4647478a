#!/bin/sh
# The cost model against the simulator (SimGrid SMPI, `make SIMGRID=1`), which runs the same
# schedules message by message: relative errors, and their medians. All times are simulated.
#
#   tests/bench/model_smpi.sh [NODES] [MACHINES] [ALGORITHMS] [SIZES]
set -eu
nodes=${1:-64}
machines=${2:-taihulight,taihulight_fitted,daint,fat_tree_edr,ethernet_100g}
algorithms=${3:-rhd,hier,torus,ring}
sizes=${4:-64K,256K,1M,4M,16M,100000000}
cortado=${CORTADO:-./cortado}

for m in $(echo "$machines" | tr , ' '); do
    for a in $(echo "$algorithms" | tr , ' '); do
        "$cortado" simulate --machine="$m" --nodes="$nodes" --bench="$sizes" --algorithm="$a" 2>/dev/null |
            tr '}' '\n' |
            sed -n "s/.*\"algorithm\":\"\([a-z]*\)\",\"bytes\":\([0-9]*\),\"us\":\([0-9.e+]*\),\"predicted_us\":\([0-9.e+]*\),.*/$m \1 \2 \3 \4/p"
    done
done | awk -v nodes="$nodes" '{
    off = $5 / $4 - 1
    printf "%-18s %4d nodes %-6s %10d bytes: simulated %12.2f us, model %12.2f us, %+6.1f %%\n", $1, nodes, $2, $3, $4, $5, 100 * off
    e[++n] = (off < 0) ? -off : off
    by[$1] = by[$1] " " e[n]
    by[$2] = by[$2] " " e[n]
}
function median(list, v, n, i, j, t) {
    n = split(list, v, " ")
    for (i = 2; i <= n; ++i)
        for (j = i; (j > 1) && (v[j - 1] + 0 > v[j] + 0); --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return (n % 2) ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
END {
    for (i = 1; i <= n; ++i) all = all " " e[i]
    for (k in by) printf "median error of %s: %.1f %%\n", k, 100 * median(by[k])
    printf "median error of all %d: %.1f %%\n", n, 100 * median(all)
}'
