#!/bin/sh
# What exchanges send, in three ways:
#   tests/bench/exchange_volume.sh count            2, 4 and 8 ranks, counted by each rank
#   tests/bench/exchange_volume.sh wire [HOSTS...]  2 4 8 pretended hosts (scripts/netns.sh; root),
#                                                   counted at their links, all that MPI adds included
#   tests/bench/exchange_volume.sh simulated [RANKS...]   64 256 1024 ranks under SMPI (SimGrid): the
#                                                   same code and bytes, no network; above 256 ranks
#                                                   (EVEN_FROM=257) one step of even entries alone
# NAMES="allgather gtopk oktopk none bf16 fp16 powersgd onebit"
# Columns as bench_exchange.c says; `most` is the largest sender over the mean, to be 1.3 at most.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=${BUILD:-build/mpicc}
how=${1:-count}
[ $# -ge 1 ] && shift
export OMP_NUM_THREADS=1
bench=$build/tests/bench/bench_exchange
all="allgather gtopk oktopk none bf16 fp16 powersgd onebit"
: "${MPIRUN:=mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1}"

counted() {
    [ $# -ge 1 ] || set -- 2 4 8
    for p; do
        for wire in pairs half; do $MPIRUN -np "$p" "$bench" "${p}x1" 256 1000 12 all $wire; done
    done
    for p; do $MPIRUN -np "$p" "$bench" "${p}x1" 256 1000 12 dense; done
    $MPIRUN -np 4 "$bench" 2x2 256 1000 12 hier
    $MPIRUN -np 8 "$bench" 4x2 256 1000 12 hier
}

# Bytes that left the hosts: name 1, name 2 … of every link
sent() { for i in $(seq "$1"); do ip netns exec "cth$i" cat /sys/class/net/eth0/statistics/tx_bytes; done; }

# A run of few and one of many steps: their difference has no start and no end of a job.
wire() {
    [ $# -ge 1 ] || set -- 2 4 8
    k=20000
    dir=$(mktemp -d)
    trap '"$root/scripts/netns.sh" down; rm -rf "$dir"' EXIT
    trap 'exit 1' INT TERM
    printf '%-10s %5s %9s %12s %12s %8s %8s\n' exchange hosts k counted 'on the wire' ratio most
    for p; do
        "$root/scripts/netns.sh" up "$p" 1gbit >/dev/null
        for name in ${NAMES:-$all}; do
            for steps in 2 12; do
                sent "$p" >"$dir/before"
                "$root/scripts/netns.sh" run "$p" "$root/$bench" "${p}x1" $k 100 $steps $name >"$dir/out.$steps" 2>&1 ||
                    { cat "$dir/out.$steps"; exit 1; }
                sent "$p" | paste - "$dir/before" | awk '{ print $1 - $2 }' >"$dir/sent.$steps"
            done
            few=$(awk -v n=$name '$1 == n { print 2 * $8 }' "$dir/out.2")
            many=$(awk -v n=$name '$1 == n { print 12 * $8 }' "$dir/out.12")
            paste "$dir/sent.12" "$dir/sent.2" | awk -v c="$few $many" -v n=$name -v p="$p" -v k=$k '
                { v = ($1 - $2) / 10; sum += v; if (v > most) most = v }
                END { split(c, s); mean = sum / NR; counted = (s[2] - s[1]) / 10
                      printf "%-10s %5d %9d %12.0f %12.0f %8.4f %8.3f\n", n, p, k, counted, mean, mean / counted, most / mean }'
        done
        "$root/scripts/netns.sh" down
    done
}

simulated() {
    [ $# -ge 1 ] || set -- 64 256 1024
    make -s SIMGRID=1 SIM_REAL=1 build/smpicc-real/tests/bench/bench_exchange
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    for p; do
        # one switch, enough of it: only bytes are looked at
        cat >"$dir/platform.xml" <<END
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="n" suffix="" radical="0-$((p - 1))" speed="1Gf" bw="10GBps" lat="1us"/>
</platform>
END
        seq -f 'n%g' 0 $((p - 1)) >"$dir/hosts"
        stride=1000
        [ "$p" -le 1000 ] || stride=2000
        steps=${STEPS:-4}
        [ "$p" -lt "${EVEN_FROM:-257}" ] || steps=0
        for name in ${NAMES:-$all}; do
            smpirun -no-privatize -np "$p" -platform "$dir/platform.xml" -hostfile "$dir/hosts" \
                --cfg=smpi/simulate-computation:no --cfg=smpi/send-is-detached-thresh:0 --log=root.thres:error \
                build/smpicc-real/tests/bench/bench_exchange "${p}x1" "${K:-256}" $stride "$steps" "$name" 2>&1 |
                grep -v '^I'
        done
    done
}

case $how in
count) counted "$@" ;;
wire) wire "$@" ;;
simulated) simulated "$@" ;;
*) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
