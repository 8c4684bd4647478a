#!/bin/sh
# What exchanges send, in three ways:
#   tests/bench/exchange_volume.sh count            2, 4 and 8 ranks, counted by each rank
#   tests/bench/exchange_volume.sh wire [HOSTS...]  2 4 8 pretended hosts (scripts/netns.sh; root),
#                                                   counted at their links, all that MPI adds included
#   tests/bench/exchange_volume.sh simulated [RANKS...]   64 256 1024 ranks under SMPI (SimGrid): the
#                                                   same code and bytes, no network
# NAMES="allgather gtopk oktopk none bf16 fp16 powersgd onebit", for simulated ranks hier, too: 4 a node.
# simulated: KEEP=FOLDER keeps each line, and goes on where it stopped. K entries a rank (256), STEPS
# uneven ones (4) after four that do not count (4+1: one after four); from EVEN_FROM (257) ranks on
# what sends ranks^2 messages does one step of even entries alone, and UNEVEN_TOO="oktopk" all the same.
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

# One name on p simulated ranks. All sends meet their receives; collectives of MPI that are not counted
# take few messages: SMPI's own choices take one between every two ranks, several times over.
simulate() {
    p=$1 name=$2 machine=${1}x1 k=${K:-256} stride=1000 steps=${STEPS:-4}
    [ "$p" -le 1000 ] || stride=1024
    [ "$name" != hier ] || machine=$((p / 4))x4
    case $name in
    allgather | oktopk)
        [ "$p" -lt "${EVEN_FROM:-257}" ] || case " ${UNEVEN_TOO:-} " in *" $name "*) ;; *) steps=0 ;; esac ;;
    onebit) [ "$p" -lt "${EVEN_FROM:-257}" ] || steps=1 ;;
    esac
    kept=${KEEP:-$dir}/$name-$p-$k-$stride-$steps
    if [ ! -s "$kept" ]; then
        began=$(date +%s)
        smpirun -no-privatize -np "$p" -platform "$dir/platform.xml" -hostfile "$dir/hosts" \
            --cfg=smpi/simulate-computation:no --cfg=smpi/send-is-detached-thresh:0 \
            --cfg=smpi/coll-selector:ompi --cfg=smpi/bcast:binomial_tree --cfg=smpi/allreduce:rdb \
            --cfg=smpi/allgather:bruck --log=root.thres:error \
            build/smpicc-real/tests/bench/bench_exchange "$machine" "$k" $stride "$steps" "$name" \
            >"$dir/out" 2>"$dir/err" || { cat "$dir/out" "$dir/err"; exit 1; }
        grep "^$name " "$dir/out" | sed "s/\$/  $(($(date +%s) - began)) s/" >"$dir/line"
        mv "$dir/line" "$kept"
    fi
    cat "$kept"
}

simulated() {
    [ $# -ge 1 ] || set -- 64 256 1024
    make -s SIMGRID=1 SIM_REAL=1 build/smpicc-real/tests/bench/bench_exchange
    [ -z "${KEEP:-}" ] || mkdir -p "$KEEP"
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 1' INT TERM
    printf '%-10s %-6s %5s %9s %12s %12s %8s %12s %8s %8s  %s\n' exchange wire ranks k theory even /theory \
        uneven /theory most took
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
        for name in ${NAMES:-$all}; do simulate "$p" "$name"; done
    done
}

case $how in
count) counted "$@" ;;
wire) wire "$@" ;;
simulated) simulated "$@" ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
