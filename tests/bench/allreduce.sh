#!/bin/sh
# Sums on one node against MPI's own, every algorithm of Open MPI's in turn, each in a run of its own beside `hier`.
#   tests/bench/allreduce.sh RANKS [SIZES [SETTING...]]
# Per size: hier and MPI's least median over the settings, from the same run, the setting, and the least ratio of all runs.
# SETTING: default, 1 to 6 (coll_tuned's: linear, nonoverlapping, recursive doubling, ring, segmented ring, Rabenseifner), han;
# with an m before it: malloc keeps large blocks, so that MPI's temporary ones are not faulted in anew each time.
# With MPICH (CORTADO=build/mpicc.mpich/cortado MPIRUN=mpirun.mpich): default and mdefault only.
# LINES_FILE=FILE keeps the JSON lines and takes in those that are there.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
mpirun=${MPIRUN:-mpirun}
ranks=${1:-2}
sizes=${2:-4K,16K,64K,256K,1M,4M,16M,64M,256M}
[ $# -gt 1 ] && shift 2 || shift $#
case $("$mpirun" --version 2>&1) in
*"Open MPI"*)
    if [ "$ranks" -gt "$(nproc)" ]; then place="--oversubscribe --bind-to none"; else place="--bind-to core"; fi
    [ $# -gt 0 ] || set -- default 1 2 3 4 5 6 han m4 m5 m6
    ;;
*)
    if [ "$ranks" -gt "$(nproc)" ]; then place=""; else place="-bind-to core"; fi
    [ $# -gt 0 ] || set -- default mdefault
    ;;
esac
lines=${LINES_FILE:-$(mktemp)}
json=$(mktemp)
for setting in "$@"; do
    number=${setting#m}
    case $number in
    default) mca= ;;
    han) mca="--mca coll_han_priority 100" ;;
    *) mca="--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm $number" ;;
    esac
    : >"$json"
    case $setting in
    m*) MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=34359738368 MALLOC_TOP_PAD_=268435456 \
        "$mpirun" -np "$ranks" $place $mca "$cortado" bench comm --algorithm=mpi,hier --sizes="$sizes" --json="$json" --log=error ;;
    *) "$mpirun" -np "$ranks" $place $mca "$cortado" bench comm --algorithm=mpi,hier --sizes="$sizes" --json="$json" --log=error ;;
    esac >/dev/null || exit 1
    sed "s/^/$setting /" "$json" >>"$lines"
done
awk '
function number(name,    at) {
    at = match($0, "\"" name "\":[0-9.e+-]+")
    return at ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
}
/"bytes"/ {
    b = number("bytes"); us = number("us")
    if (!(b in seen)) { seen[b] = 1; order[++n] = b }
    if ($0 ~ /"algorithm":"mpi"/) { mpi[b, $1] = us; next }
    ours = us; theirs = mpi[b, $1]
    all[b] = all[b] " " ours
    if (!(b in best) || theirs < best[b]) { best[b] = theirs; beside[b] = ours; name[b] = $1 }
    if (!(b in least) || theirs / ours < least[b]) { least[b] = theirs / ours; where[b] = $1 }
}
END {
    printf "%10s %10s %10s %8s  %s\n", "bytes", "hier us", "mpi us", "times", "setting; least ratio of any run"
    for (i = 1; i <= n; ++i) {
        b = order[i]
        printf "%10d %10.1f %10.1f %8.1f  %s; %.1f (%s)\n", b, beside[b], best[b], best[b] / beside[b], name[b], least[b], where[b]
    }
}' "$lines"
rm -f "$json"
[ -n "${LINES_FILE:-}" ] || rm -f "$lines"
