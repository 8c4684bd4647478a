#!/bin/sh
# The cost model against measured times, on this machine: fits the figures of the machine, lets
# other runs predict with them, and prints the relative errors. Sizes are not those fitted. Each
# algorithm runs by itself, as it was fitted, so that its caches are its own. ROUNDS: all of it so
# many times; a point is then the median of its predicted and of its measured times, beside which
# stands how far apart the least and the largest measured one are. REPEAT: sums a point in a run.
#
#   ROUNDS=5 tests/bench/model.sh [RANKS] [ALGORITHMS] [SIZES]
#   REPEAT=11 RUN="scripts/netns.sh run 4" tests/bench/model.sh 4 ring,rhd,tree    on hosts that it pretends
set -eu
ranks=${1:-2}
algorithms=${2:-hier,ring,rhd}
sizes=${3:-6K,24K,96K,384K,1536K,6M,24M}
cortado=${CORTADO:-./cortado}
run=${RUN:-${MPIRUN:-mpirun} ${MPIRUN_FLAGS:---oversubscribe --bind-to none} -np $ranks}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-model.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

round=1
while [ "$round" -le "${ROUNDS:-1}" ]; do
    $run "$cortado" bench comm --log=error --fit="$work/machine.prototxt"
    for a in $(echo "$algorithms" | tr , ' '); do
        $run "$cortado" bench comm --log=error --topology="${TOPOLOGY:-auto}@$work/machine.prototxt" \
            --algorithm="$a" --sizes="$sizes" ${REPEAT:+--repeat=$REPEAT} --json="$work/$a.$round.json" >/dev/null
    done
    round=$((round + 1))
done
echo
sed 's/.*"algorithm":"\([a-z]*\)","bytes":\([0-9]*\),"us":\([0-9.e+-]*\),.*"predicted_us":\([0-9.e+-]*\),.*/\1 \2 \3 \4/' \
    "$work"/*.json | sort -k1,1 -k2,2n | awk '
function median(list, v, n, i, j, t) {
    n = split(list, v, " ")
    for (i = 2; i <= n; ++i)
        for (j = i; (j > 1) && (v[j - 1] + 0 > v[j] + 0); --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    spread = v[n] / v[1]
    return (n % 2) ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
{
    key = sprintf("%-6s %10d bytes", $1, $2)
    if (!(key in measured)) order[++n] = key
    measured[key] = measured[key] " " $3
    predicted[key] = predicted[key] " " $4
    algorithm[key] = $1
}
END {
    for (i = 1; i <= n; ++i) {
        p = median(predicted[order[i]])
        m = median(measured[order[i]])
        off = p / m - 1
        printf "%s: measured %12.2f us (x %.2f), predicted %12.2f us, %+6.1f %%\n", order[i], m, spread, p, 100 * off
        off = (off < 0) ? -off : off
        all = all " " off
        of[algorithm[order[i]]] = of[algorithm[order[i]]] " " off
        apart = apart " " spread
    }
    for (a in of) printf "median error of %s: %.1f %%\n", a, 100 * median(of[a])
    printf "median error: %.1f %%; largest measured time of a point over its least: %.2f\n", 100 * median(all), median(apart)
}'
