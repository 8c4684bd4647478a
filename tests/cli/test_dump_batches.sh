#!/bin/sh
# cortado time --data --dump_batches: the samples of all ranks in the order of the global batch.
. "$ROOT/tests/cli/lib.sh"
make_case
export OMPI_MCA_rmaps_base_oversubscribe=1
sed -i 's/transform_param { scale: 0.00390625 }/transform_param { scale: 0.00390625 crop_size: 26 mirror: true }/' net.prototxt
printf 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 random_seed: 5 global_batch_size: 10\n' >five.prototxt

# dump RANKS FILE OPTION...
dump() {
    n=$1 file=$2
    shift 2
    runs "ranks_$n" 0 "^3 batches of 10 samples written to $file" $JOB "$n" "$CORTADO" time --solver=five.prototxt \
        --data --iterations=3 --dump_batches="$file" "$@"
}
for n in 1 2 3 4; do dump $n d$n.npz; done
for n in 2 3 4; do is same_bits_$n cmp d1.npz d$n.npz; done
if command -v python3 >/dev/null; then
    cat >look.py <<'EOP'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
from npz import tensors
t = tensors("d1.npz")
assert sorted(t) == sorted(f"{top}/{i}.npy" for top in ("data", "label") for i in range(3)), sorted(t)
assert all(len(t[f"data/{i}.npy"]) == 10 * 26 * 26 and len(t[f"label/{i}.npy"]) == 10 for i in range(3))
samples = [tuple(t[f"data/{i}.npy"][676 * k:676 * k + 676]) for i in range(3) for k in range(10)]
assert len(set(samples)) == 30  # of 600 digits: none twice in an epoch
assert all(0 <= v <= 255 / 256 for s in samples for v in s) and max(map(max, samples)) > 0.5
EOP
    is arrays python3 look.py "$ROOT"
else
    skip arrays "python3 is not there"
fi
runs test_phase 0 '^2 batches of 20 samples' "$CORTADO" time --model=net.prototxt --phase=TEST --data --iterations=2 \
    --dump_batches=t.npz
# time comes first in texts: the ranks' columns stand side by side
mkdir book
seq 1 400 | tr '\n' ' ' >book/train.txt
runs text 0 '' "$CORTADO" convert text --from=book/train.txt --to=train.h5
printf 'layer { name: "in" type: "TextData" top: "word" top: "cont" top: "next"
  text_data_param { source: "train.h5" batch_size: 5 steps: 7 } }\n' >text.prototxt
printf 'net: "text.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 random_seed: 5 global_batch_size: 10\n' >columns.prototxt
for n in 1 2 3; do
    runs columns_$n 0 '^2 batches of 10 samples' $JOB $n "$CORTADO" time --solver=columns.prototxt --data --iterations=2 \
        --dump_batches=c$n.npz
done
for n in 2 3; do is same_columns_$n cmp c1.npz c$n.npz; done

runs needs_data 2 '--dump_batches goes with --data' "$CORTADO" time --model=net.prototxt --dump_batches=no.npz
runs no_times 2 'times nothing that --json could write' "$CORTADO" time --model=net.prototxt --data --json=no.json \
    --dump_batches=no.npz
runs too_many 2 'more than an .npz file holds' "$CORTADO" time --model=net.prototxt --data --iterations=900000 \
    --dump_batches=no.npz
runs no_folder 3 'nowhere' $JOB 2 "$CORTADO" time --model=net.prototxt --data --iterations=2 --dump_batches=nowhere/no.npz
is nothing_left sh -c '! ls no.npz* no.json 2>/dev/null'
finish
