#!/bin/sh
# What crosses the slow links between two pretended switches of two hosts each, counted at the links
# and compared with theory, in units of the buffer (scripts/netns.sh; root).
#   tests/bench/slow_link.sh [SIZE]
# Ring and halving/doubling that know the switches cross them with 1.5 and 1 buffers each way, hier
# with 1; with ranks dealt out in turn and an order that does not know better it is 3 and 2.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado}
size=${1:-16M}
repeat=3
SWITCHES=2 UPLINK=1gbit "$root/scripts/netns.sh" up 4 1gbit || exit 1
dir=$(mktemp -d)
trap '"$root/scripts/netns.sh" down; rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1

# The machine as a file, and as one that knows nothing of the switches.
cat >"$dir/switches.prototxt" <<'END'
name: "two switches"
source: "tests/bench/slow_link.sh"
level { name: "node" latency_us: 1 bandwidth_gbs: 6 }
level { name: "switch" latency_us: 30 bandwidth_gbs: 0.12 }
level { name: "machine" latency_us: 30 bandwidth_gbs: 0.12 uplink_gbs: 0.12 }
switch { name: "sw1" nodes: "cth[1-2]" }
switch { name: "sw2" nodes: "cth[3-4]" }
END
bytes=$(echo "$size" | sed 's/K$/*1024/; s/M$/*1048576/; s/G$/*1073741824/')
bytes=$(($bytes))
printf '%-10s %-10s %-6s %10s %12s %10s\n' ranks topology name ms 'over link' theory
for order in "1 2 3 4" "1 3 2 4"; do
    for topology in 4x1 "$dir/switches.prototxt"; do
        for name in ring rhd hier; do
            "$root/scripts/netns.sh" uplinks >"$dir/before"
            ORDER=$order "$root/scripts/netns.sh" run 4 "$cortado" bench comm --sizes="$size" \
                --algorithm=$name --repeat=$repeat --topology="$topology" --log=error >"$dir/log" 2>&1 ||
                { cat "$dir/log"; exit 1; }
            "$root/scripts/netns.sh" uplinks >"$dir/after"
            known=no
            [ "$topology" = 4x1 ] || known=switches
            case $name-$known-$order in
            ring-*-"1 2 3 4" | hier-no-"1 2 3 4" | ring-switches-*) theory=1.5 ;;
            rhd-*-"1 2 3 4" | rhd-switches-* | hier-switches-*) theory=1 ;;
            ring-no-* | hier-no-*) theory=3 ;;
            *) theory=2 ;;
            esac
            # one untimed repetition comes first
            printf '%-10s %-10s %-6s %10s %12s %10s\n' "$(echo "$order" | tr ' ' ,)" $known $name \
                "$(awk '/ M | K /{print $3}' "$dir/log")" \
                "$(paste -d' ' "$dir/before" "$dir/after" |
                    awk -v b="$bytes" -v n=$((repeat + 1)) '{ s += $5 - $2 } END { printf "%.3f", s / 2 / b / n }')" $theory
        done
    done
done
