#!/bin/sh
# The cost model against measured times, on this machine: fits the figures of the machine, lets
# another run predict with them, and prints the relative errors. Sizes are none of those fitted.
#
#   tests/bench/model.sh [RANKS] [ALGORITHMS] [SIZES]
#   RUN="scripts/netns.sh run 4" tests/bench/model.sh 4 ring,rhd,tree    on hosts that it pretends
set -eu
ranks=${1:-2}
algorithms=${2:-hier,ring,rhd}
sizes=${3:-6K,24K,96K,384K,1536K,6M,24M}
cortado=${CORTADO:-./cortado}
run=${RUN:-${MPIRUN:-mpirun} ${MPIRUN_FLAGS:---oversubscribe --bind-to none} -np $ranks}
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-model.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

$run "$cortado" bench comm --log=error --fit="$work/machine.prototxt"
$run "$cortado" bench comm --log=error --topology="${TOPOLOGY:-auto}@$work/machine.prototxt" \
    --algorithm="$algorithms" --sizes="$sizes" --json="$work/points.json" >/dev/null
echo
sed 's/.*"algorithm":"\([a-z]*\)","bytes":\([0-9]*\),"us":\([0-9.e+-]*\),.*"predicted_us":\([0-9.e+-]*\),.*/\1 \2 \3 \4/' \
    "$work/points.json" | awk '{
    off = $4 / $3 - 1
    printf "%-6s %10d bytes: measured %12.2f us, predicted %12.2f us, %+6.1f %%\n", $1, $2, $3, $4, 100 * off
    e[++n] = (off < 0) ? -off : off
    a[$1, ++m[$1]] = e[n]
}
function median(v, n, i, j, t) {
    for (i = 2; i <= n; ++i)
        for (j = i; (j > 1) && (v[j - 1] > v[j]); --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return (n % 2) ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
END {
    for (k in m) {
        for (i = 1; i <= m[k]; ++i) w[i] = a[k, i]
        printf "median error of %s: %.1f %%\n", k, 100 * median(w, m[k])
    }
    printf "median error: %.1f %%\n", 100 * median(e, n)
}'
