#!/bin/sh
# The first iterations of AlexNet with sparse steps, on one rank: losses by kind of warm-up. Eight images of noise,
# the same in every iteration, at the published rate: training sees in seconds whether steps go too far.
#   tests/bench/warmup_noise.sh [ITERATIONS]       40
#   SEEDS="1 2 3"  WARMUP=20  DENSITY=0.001  FIRST=0.25  FOLDER=where logs and metrics stay
# Prints for each seed and way: the largest loss, the iteration it was in, the mean of the last ten, all losses.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cortado=${CORTADO:-$root/cortado} iterations=${1:-40}
: "${SEEDS:=1 2 3}" "${WARMUP:=20}" "${DENSITY:=0.001}" "${FIRST:=0.25}" "${FOLDER:=$(mktemp -d)}"
mkdir -p "$FOLDER"
cd "$FOLDER"
python3 - <<'END'
import random, struct, zlib

SIDE = 227
rnd = random.Random(1)

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

with open("list.txt", "w") as names:
    for i in range(8):
        rows = b"".join(b"\0" + rnd.randbytes(3 * SIDE) for _ in range(SIDE))
        with open(f"{i}.png", "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
                    + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))
        names.write(f"{i}.png {125 * i}\n")
END
"$cortado" convert images --list=list.txt --root=. --to=noise --force >convert.log 2>&1
sed 's/mirror: true crop_size: 227 //; s#data/imagenet/[a-z]*_lmdb#noise#' "$root/models/alexnet/train_val.prototxt" >net.prototxt
cat >solver.prototxt <<'END'
net: "net.prototxt" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" max_iter: 40 display: 1
test_iter: 1 test_interval: 1000000 test_initialization: false snapshot_after_train: false solver_mode: CPU
END
way() { # SEED NAME OPTION...
    seed=$1 name=$2
    shift 2
    "$cortado" train --solver=solver.prototxt --iterations="$iterations" --set=batch_size=8 --set=random_seed="$seed" --set=average_loss=1 \
        --metrics="$name.$seed.jsonl" --overwrite "$@" >"$name.$seed.log" 2>&1 || { tail -n 5 "$name.$seed.log"; return; }
    sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$name.$seed.jsonl" |
        awk -v seed="$seed" -v name="$name" '{ v[NR] = $2; all = all sprintf(" %.3g", $2); if (!($2 <= most)) { most = $2; at = $1 } }
            END { for (i = NR - 9; i <= NR; ++i) sum += v[i]; printf "%s %-8s most %.3g in %d, last ten %.3g:%s\n", seed, name, most, at, sum / 10, all }'
}
for seed in $SEEDS; do
    way "$seed" none
    way "$seed" sparse --compression=redsync:density="$DENSITY"
    way "$seed" dense --compression=redsync:density="$DENSITY",warmup_iter="$WARMUP"
    way "$seed" falling --compression=redsync:density="$DENSITY",warmup_iter="$WARMUP",warmup_density="$FIRST"
done
