#!/bin/sh
# Pretends several hosts on one Linux machine, joined by links of a given speed, to measure what
# communication costs there. Needs root, iproute2, util-linux, Open MPI. Bandwidth is real (token
# buckets at both ends of every link); latency is the machine's own, some tens of microseconds.
#
#   scripts/netns.sh up HOSTS [RATE]       e.g. up 4 1gbit; RATE none: as fast as it goes
#     SWITCHES=2 UPLINK=1gbit scripts/netns.sh up 4 1gbit
#                                          hosts in blocks on switches of their own, each of which has
#                                          one link of the rate UPLINK to the others
#   scripts/netns.sh uplinks               bytes that went up and down each of these links
#   scripts/netns.sh rate HOSTS RATE       another speed
#   scripts/netns.sh run HOSTS COMMAND...  one rank a host (RANKS=n: n a host), as an MPI job
#     ORDER="1 3 2 4" scripts/netns.sh run 4 …   ranks on the hosts in this order
#     PIN=1 scripts/netns.sh run 4 …       each rank kept on one core, the cores dealt out in turn: hosts
#                                          of one speed, where else the system favours now this, now that
#   scripts/netns.sh sh I COMMAND...       a command on host I alone
#   scripts/netns.sh down                  removes everything
#
# Each host has a network namespace, a hostname, a /dev/shm and a TMPDIR of its own, so that MPI
# finds no shared memory between them. Files are common. Of the environment, OMP_NUM_THREADS,
# OPENBLAS_CORETYPE and CORTADO_* reach the ranks. Cores are common too, though each host believes
# that it has them all: threads a rank are the cores divided by the ranks, unless OMP_NUM_THREADS
# says otherwise, and more hosts than cores measure the scheduler as much as the network.
set -eu

prefix=cth
bridge=ctbr0
net=10.83.17
state=${TMPDIR:-/tmp}/cortado-netns

die() {
    echo "netns.sh: $*" >&2
    exit 1
}

# The names of the hosts that exist, one a line.
hosts() { ip -o netns list 2>/dev/null | sed -n "s/^\($prefix[0-9]*\).*/\1/p"; }

# limit RATE COMMAND-PREFIX... -- DEVICE: what leaves the device keeps to the rate
limit() {
    rate=$1
    shift
    "$@" qdisc del dev "$device" root 2>/dev/null || true
    [ "$rate" = none ] && return 0
    # the burst must hold what arrives between two timer ticks at the fastest rate in use
    "$@" qdisc add dev "$device" root tbf rate "$rate" burst 256k latency 20ms ||
        die "cannot limit $device to $rate (kernel without tbf?)"
}

set_rate() { # HOST-NUMBER RATE: both directions
    device=eth0 limit "$2" ip netns exec "$prefix$1" tc
    device="$prefix${1}b" limit "$2" tc
}

# Switch number i, joined to the common bridge by a link of its own.
add_switch() {
    ip link add "$bridge.$1" type bridge
    ip link set "$bridge.$1" up
    ip link add "ctup$1" type veth peer name "ctdn$1"
    ip link set "ctup$1" master "$bridge.$1" up
    ip link set "ctdn$1" master "$bridge" up
    device="ctup$1" limit "$UPLINK" tc # what leaves the switch
    device="ctdn$1" limit "$UPLINK" tc # what enters it
}

uplinks() {
    for link in /sys/class/net/ctup*; do
        [ -e "$link" ] || die "no switches; SWITCHES=n $0 up first"
        echo "${link##*ctup} $(cat "$link/statistics/tx_bytes") $(cat "$link/statistics/rx_bytes")"
    done
}

up() {
    count=$1 rate=${2:-1gbit} switches=${SWITCHES:-1} UPLINK=${UPLINK:-${2:-1gbit}}
    [ -z "$(hosts)" ] || die "hosts exist already; $0 down first"
    mkdir -p "$state"
    trap 'down' EXIT # half a network helps nobody
    ip link add "$bridge" type bridge
    ip addr add "$net.254/24" dev "$bridge"
    ip link set "$bridge" up
    : >"$state/hostfile"
    i=1
    while [ "$switches" -gt 1 ] && [ "$i" -le "$switches" ]; do
        add_switch "$i"
        i=$((i + 1))
    done
    i=1
    while [ "$i" -le "$count" ]; do
        ns=$prefix$i
        ip netns add "$ns"
        ip link add "${ns}b" type veth peer name eth0 netns "$ns"
        master=$bridge
        [ "$switches" -gt 1 ] && master=$bridge.$(((i - 1) * switches / count + 1))
        ip link set "${ns}b" master "$master" up
        ip -n "$ns" addr add "$net.$i/24" dev eth0
        ip -n "$ns" link set eth0 up
        ip -n "$ns" link set lo up
        set_rate "$i" "$rate"
        mkdir -p "$state/tmp$i"
        echo "$net.$i slots=64" >>"$state/hostfile"
        i=$((i + 1))
    done
    write_agent
    trap - EXIT
    echo "$count hosts, $rate each way"
}

# What mpirun calls in place of ssh: agent [options] ADDRESS COMMAND...
write_agent() {
    cat >"$state/agent" <<EOF
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
i=\${1##*.}
shift
command="\$*"
export command i
exec ip netns exec "$prefix\$i" unshare --uts --mount sh -c '
    hostname "$prefix\$i"
    mount -t tmpfs -o size=75% none /dev/shm
    TMPDIR="$state/tmp\$i"
    export TMPDIR
    eval "\$command"'
EOF
    chmod +x "$state/agent"
}

# What keeps a rank on its core: pin COMMAND...
write_pin() {
    cat >"$state/pin" <<EOF
#!/bin/sh
exec taskset -c \$((OMPI_COMM_WORLD_RANK % $(nproc))) "\$@"
EOF
    chmod +x "$state/pin"
}

run() {
    count=$1
    shift
    [ "$(hosts | wc -l)" -ge "$count" ] || die "fewer than $count hosts; $0 up $count first"
    for i in ${ORDER:-$(seq "$count")}; do
        echo "$net.$i slots=64"
    done >"$state/hosts.$count"
    threads=$(($(nproc) / (count * ${RANKS:-1})))
    [ "$threads" -ge 1 ] || threads=1
    : "${OMP_NUM_THREADS:=$threads}"
    export OMP_NUM_THREADS
    pass=
    for name in $(env | sed -n 's/^\(CORTADO_[A-Z_]*\|OMP_NUM_THREADS\|OPENBLAS_CORETYPE\)=.*/\1/p'); do
        pass="$pass -x $name=$(printenv "$name")"
    done
    pin=
    [ "${PIN:-0}" = 0 ] || { write_pin && pin=$state/pin; }
    # mpirun runs on the first host: its daemons call back to an address that they can reach
    "$state/agent" "$net.1" "cd '$PWD' && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun -np $((count * ${RANKS:-1})) --map-by ppr:${RANKS:-1}:node --bind-to none \
        --hostfile '$state/hosts.$count' --oversubscribe --wdir '$PWD' \
        --mca plm rsh --mca plm_rsh_agent '$state/agent' --mca oob_tcp_if_include $net.0/24 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include $net.0/24 \
        --mca mpi_yield_when_idle 1 $pass $pin $*"
}

down() {
    for ns in $(hosts); do
        ip netns pids "$ns" 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip link del "${ns}b" 2>/dev/null || true
        ip netns del "$ns" || true
    done
    for link in /sys/class/net/ctup* /sys/class/net/"$bridge".*; do
        [ ! -e "$link" ] || ip link del "${link##*/}" 2>/dev/null || true
    done
    ip link del "$bridge" 2>/dev/null || true
    rm -rf "$state"
}

[ $# -ge 1 ] || die "up, rate, run, sh, uplinks or down; see the top of this file"
verb=$1
shift
case $verb in
down | uplinks) ;;
*) [ $# -ge 1 ] || die "$verb: how many hosts?" ;;
esac
[ "$(id -u)" = 0 ] || die "only root may make network namespaces"
case $verb in
up) up "$@" ;;
rate)
    i=1
    while [ "$i" -le "$1" ]; do
        set_rate "$i" "$2"
        i=$((i + 1))
    done
    ;;
run) run "$@" ;;
sh)
    i=$1
    shift
    "$state/agent" "$net.$i" "$*"
    ;;
uplinks) uplinks ;;
down) down ;;
*) die "unknown: $verb" ;;
esac
