#!/bin/sh
# --memory_data: what MemoryData layers read, transformed, on any number of ranks; files at fault.
. "$ROOT/tests/cli/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1

runs digits 0 '' "$CORTADO" convert digits --to=digits --backend=hdf5 --count=60

# net FILE DATA-LAYER
net() {
    printf 'layer { name: "in" %s top: "data" top: "label" }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }\n' "$2" >"$1.prototxt"
    printf 'net: "%s.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 8 random_seed: 5 global_batch_size: 6
snapshot_after_train: false\n' "$1" >"$1_solver.prototxt"
}
transform='transform_param { crop_size: 24 mirror: true mean_value: 10 scale: 0.0625 }'
net memory "type: \"MemoryData\" $transform memory_data_param { batch_size: 6 channels: 1 height: 24 width: 24 }"
net hdf5 "type: \"HDF5Data\" $transform hdf5_data_param { batch_size: 6 shuffle: false source: \"digits/train.h5\" }"
net raw 'type: "HDF5Data" hdf5_data_param { batch_size: 6 shuffle: false source: "digits/train.h5" }'
net by_dim "type: \"MemoryData\" $transform memory_data_param { dim: 6 dim: 1 dim: 24 dim: 24 }"
head -n 1 raw.prototxt >rows.prototxt
file=--memory_data=digits/train.h5

# rows FILE BATCH BLOBS: floats of the first rows
rows() {
    runs "rows_$1" 0 '' "$CORTADO" extract --model=rows.prototxt --set=batch_size="$2" --blobs="$3" --to="$1" --iterations=1
}

# ---- the transform
runs raw 0 '' "$CORTADO" time --solver=raw_solver.prototxt --data --iterations=3 --dump_batches=raw.npz
runs hdf5 0 '' "$CORTADO" time --solver=hdf5_solver.prototxt --data --iterations=3 --dump_batches=hdf5.npz
for n in 1 2 3; do
    runs ranks_$n 0 '^3 batches of 6 samples' $JOB $n "$CORTADO" time --solver=memory_solver.prototxt $file --data \
        --iterations=3 --dump_batches=$n.npz
    is as_hdf5_data_$n cmp hdf5.npz $n.npz
done
runs by_dim 0 '^3 batches of 6 samples' "$CORTADO" time --solver=by_dim_solver.prototxt $file --data --iterations=3 \
    --dump_batches=by_dim.npz
is by_dim_as_sizes cmp hdf5.npz by_dim.npz
runs test_phase 0 '' "$CORTADO" time --model=memory.prototxt $file --phase=TEST --data --iterations=3 --dump_batches=test.npz
rows floats.h5 60 data,label
runs of_floats 0 '' "$CORTADO" time --solver=memory_solver.prototxt --memory_data=floats.h5 --data --iterations=3 \
    --dump_batches=floats.npz
is as_bytes cmp hdf5.npz floats.npz
if command -v python3 >/dev/null; then
    cat >look.py <<'EOP'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
from npz import tensors
raw, train, test = (tensors(f) for f in ("raw.npz", "1.npz", "test.npz"))
def window(image, top, left, mirrored):  # exact: a division by a power of 2
    rows = [[(v - 10) / 16 for v in image[28 * y + left:28 * y + left + 24]] for y in range(top, top + 24)]
    return [v for row in rows for v in (reversed(row) if mirrored else row)]
seen = set()
for i in range(3):
    assert raw[f"label/{i}.npy"] == train[f"label/{i}.npy"] == test[f"label/{i}.npy"]
    for k in range(6):
        image = raw[f"data/{i}.npy"][784 * k:784 * k + 784]
        cut = {t: list(of[f"data/{i}.npy"][576 * k:576 * k + 576]) for t, of in (("train", train), ("test", test))}
        assert cut["test"] in (window(image, 2, 2, m) for m in (False, True))
        fits = [(y, x, m) for y in range(5) for x in range(5) for m in (False, True) if window(image, y, x, m) == cut["train"]]
        assert fits, (i, k)
        seen.update(fits)
assert len(seen) > 9, seen  # of 50 windows, 18 are drawn
EOP
    is by_definition python3 look.py "$ROOT"
else
    skip by_definition "python3 is not there"
fi

# ---- runs
runs train 0 'config: memory_data = digits/train.h5 \(command line\)' $JOB 2 "$CORTADO" train --solver=memory_solver.prototxt \
    $file --set=snapshot_after_train=true --set=snapshot_prefix=m
is no_warning sh -c '! grep -q "is to fill its tops" out'
runs test 0 'loss = ' "$CORTADO" test --model=memory.prototxt --weights=m_iter_8.caffemodel.h5 $file --iterations=3
runs unfilled 0 'to read them from a file, give --memory_data=FILE.h5' "$CORTADO" test --model=memory.prototxt \
    --weights=m_iter_8.caffemodel.h5 --iterations=1

# ---- files at fault
# fault NAME PATTERN FILE
fault() {
    runs "$1" "${4:-2}" "$2" "$CORTADO" train --solver=memory_solver.prototxt --memory_data="$3"
}
fault missing '--memory_data=none.h5: No such file or directory' none.h5
printf '\211HDF\r\n\032\nshort' >short.h5
fault short 'memory.prototxt:1.*layer "in" \(MemoryData\): short.h5: not an HDF5 file, or truncated' short.h5 3
runs nobody 2 '--memory_data=digits/train.h5: raw_solver.prototxt has no MemoryData layer to read it' \
    "$CORTADO" train --solver=raw_solver.prototxt $file
rows few.h5 5 data,label
fault few_samples 'few.h5 has 5 samples, fewer than a batch of all ranks, 6' few.h5
net wide "type: \"MemoryData\" memory_data_param { batch_size: 6 channels: 1 height: 24 width: 24 }"
runs shape 2 'layer "in" \(MemoryData\): digits/train.h5: samples of "data" are 1 28 28 .*, transformed 1 28 28 .*; memory_data_param says 1 24 24' \
    "$CORTADO" train --solver=wide_solver.prototxt $file
printf 'layer { name: "d" type: "DummyData" top: "data" top: "label"
        dummy_data_param { shape { dim: 6 dim: 1 dim: 28 dim: 28 } shape { dim: 6 dim: 3 } } }' >dummy.prototxt
runs three 0 '' "$CORTADO" extract --model=dummy.prototxt --blobs=data,label --to=three.h5 --iterations=1
fault labels 'layer "in" \(MemoryData\): three.h5: rows of "label" are 3 .*, expected one label each' three.h5
rows images.h5 6 data
fault no_label 'images.h5 has no data set "label" \(it has: data\)' images.h5 3
finish
