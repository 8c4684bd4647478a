#!/bin/sh
# Local steps and integers on the wire against dense 16-bit sums, between pretended hosts (scripts/netns.sh; root):
# gradients as large as a net's, AdamW and clipping; computation is replaced by sleep (slept_steps.c).
#   tests/bench/slept_steps.sh [HOSTS] [RATE]      4 1gbit
#   NETS="lstm gpt2"  SECONDS_A_STEP=0.3  ITERATIONS=4  LOCAL=20  TURNS=3      all ways in turn, then medians and ratios
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
program=${SLEPT_STEPS:-$root/build/mpicc/tests/bench/slept_steps}
hosts=${1:-4} rate=${2:-1gbit} local=${LOCAL:-20}
[ -x "$program" ] || { echo "slept_steps.sh: no $program: make bench builds it" >&2 && exit 1; }
"$root/scripts/netns.sh" up "$hosts" "$rate" >/dev/null || exit 1
dir=$(mktemp -d)
trap '"$root/scripts/netns.sh" down; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export OMP_NUM_THREADS=1

# one NET WAY ITERATIONS TEXT
one() {
    "$root/scripts/netns.sh" run "$hosts" "$program" "$1" "${SECONDS_A_STEP:-0.3}" "$3" "comm { tune_iterations: 0 } $4" >"$dir/log" 2>&1 ||
        { tail -n 20 "$dir/log" && exit 1; }
    line=$(grep -E '^[0-9.]+ ms an iteration' "$dir/log") || exit 1
    echo "$1 $2 ${line%% *}" >>"$dir/rows"
    printf '%-8s %-12s %s\n' "$1" "$2" "$line"
}
for turn in $(seq "${TURNS:-3}"); do
    for net in ${NETS:-lstm gpt2}; do
        one "$net" bf16 "${ITERATIONS:-4}" "compression { type: BF16 }"
        one "$net" int8 "${ITERATIONS:-4}" "compression { type: INT8 }"
        one "$net" local "$local" "outer { local_iter: $local }"
        one "$net" local-int8 "$local" "outer { local_iter: $local compression { type: INT8 } }"
    done
done
sort -k 1,2 -k 3,3g "$dir/rows" | awk '
    function put() { if (n) { m[net, way] = (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2; low[net, way] = v[1]; high[net, way] = v[n]; key[++k] = net SUBSEP way } }
    ($1 " " $2) != (net " " way) { put(); n = 0; net = $1; way = $2 }
    { v[++n] = $3 }
    END {
        put()
        for (i = 1; i <= k; i++) {
            split(key[i], p, SUBSEP)
            printf "%-8s %-12s %9.1f ms, %.1f to %.1f; %.2f times as fast as bf16\n", p[1], p[2], m[key[i]], low[key[i]], high[key[i]], m[p[1], "bf16"] / m[key[i]]
        }
    }'
