#!/bin/sh
# Augmentation in jobs: the same bits on any number of ranks, threads and readers; what is refused; and the net
# for use that prepares pictures as tests do.
. "$ROOT/tests/cli/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1
command -v python3 >/dev/null || { skip augment "python3 is not there"; finish; }
python3 "$ROOT/tests/cli/photographs.py" pictures 12 40 30
runs convert 0 '' "$CORTADO" convert images --from=pictures --to=set --encoded
is sizes_differ sh -c '[ "$(for f in pictures/*/*.png; do head -c 24 "$f" | tail -c 8 | od -An -tx1; done | sort -u | wc -l)" -gt 4 ]'

# net FILE FIELDS: of the augmentation
net() {
    cat >"$1" <<EOP
layer { name: "in" type: "Data" top: "data" top: "label" data_param { source: "set/train_lmdb" batch_size: 12 threads: ${THREADS:-1} }
  transform_param { force_color: true scale: 0.0078125 mean_value: 104 mean_value: 117 mean_value: 123 $2 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOP
}
all='random_resized_crop { size: 32 } mirror: true color_jitter { brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 }
  lighting { } rotate { degrees: 10 } affine { translate: 0.1 scale_min: 0.8 scale_max: 1.2 shear: 5 } erase { }'
net net.prototxt "$all"
THREADS=3 net threads.prototxt "$all"
for n in net threads; do
    printf 'net: "%s.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 3 random_seed: 4 global_batch_size: 12\n' $n >$n.solver
done
dump() { # NAME RANKS SOLVER OPTION...
    name=$1 n=$2 solver=$3
    shift 3
    runs "$name" 0 'batches of 12 samples written' $JOB "$n" "$CORTADO" time --solver="$solver" --data --iterations=4 \
        --dump_batches="$name.npz" "$@"
}
for n in 1 2 4; do dump on_$n $n net.solver; done
dump by_each 3 net.solver --set=node_reader=false
dump by_threads 2 threads.solver
for d in on_2 on_4 by_each by_threads; do is same_bits_$d cmp on_1.npz $d.npz; done
dump other_seed 1 net.solver --set=random_seed=5
is seed_counts sh -c '! cmp -s on_1.npz other_seed.npz'
runs trains 0 '' $JOB 2 "$CORTADO" train --solver=net.solver --set=snapshot=0

# ---- mixing: pairs of the global batch, labels of three classes
mixed='random_resized_crop { size: 24 } rand_augment { } mixup { alpha: 0.2 } cutmix { } classes: 3'
net mixed.prototxt "$mixed"
sed 's/net.prototxt/mixed.prototxt/' net.solver >mixed.solver
for n in 1 2 3; do dump mixed_$n $n mixed.solver; done
for n in 2 3; do is same_mixed_$n cmp mixed_1.npz mixed_$n.npz; done
cat >labels.py <<'EOP'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
from npz import tensors
t = tensors("mixed_1.npz")
rows = [t[f"label/{i}.npy"][3 * k:3 * k + 3] for i in range(4) for k in range(12)]
assert all(abs(sum(r) - 1) < 1e-6 and min(r) >= 0 for r in rows), rows
mixed = 0
for a, b in zip(rows[::2], rows[1::2]):  # of two classes the shares change places
    assert sorted(a) == sorted(b) or abs(max(a) - max(b)) < 1e-6, (list(a), list(b))
    mixed += max(a) < 0.999
assert mixed > 4, mixed
EOP
is labels_mixed python3 labels.py "$ROOT"
runs trains_mixed 0 '' $JOB 2 "$CORTADO" train --solver=mixed.solver --set=snapshot=0
runs odd_share 2 'mix pairs of samples, but of the batch of 12 a rank has 3, from [0-9]+ on: give each rank an even number' \
    $JOB 4 "$CORTADO" time --solver=mixed.solver --data --iterations=1
net few.prototxt 'crop_size: 24 mixup { } classes: 2'
runs label_beyond 3 'label 2 is not a whole number in 0..1: transform_param.classes is 2' "$CORTADO" time \
    --model=few.prototxt --data --iterations=4

# ---- each sample three times in a batch, all of them in turn
net once.prototxt ''
sed 's/net.prototxt/once.prototxt/; s/global_batch_size: 12/global_batch_size: 4/' net.solver >once.solver
net again.prototxt 'repeat: 3'
sed 's/net.prototxt/again.prototxt/' net.solver >again.solver
for n in once again; do
    sed -i 's/"set\/train_lmdb"/"even\/train_lmdb"/' $n.prototxt
done
runs even 0 '' "$CORTADO" convert images --from=pictures --to=even --resize=16x16
runs dump_once 0 'batches of 4 samples written' "$CORTADO" time --solver=once.solver --data --iterations=4 --dump_batches=once.npz
dump again 1 again.solver
cat >again.py <<'EOP'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
from npz import tensors
once, again = tensors("once.npz"), tensors("again.npz")
assert all(list(once[k]) * 3 == list(again[k]) for k in once), "not three times"
EOP
is three_times python3 again.py "$ROOT"
net drawn.prototxt 'repeat: 3 random_resized_crop { size: 16 } mixup { } classes: 3'
sed 's/net.prototxt/drawn.prototxt/' net.solver >drawn.solver
for n in 1 2 3; do dump drawn_$n $n drawn.solver; done
for n in 2 3; do is same_drawn_$n cmp drawn_1.npz drawn_$n.npz; done
cat >drawn.py <<'EOP'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
from npz import tensors
t = tensors("drawn_1.npz")
assert all(len({tuple(t[k][768 * i:768 * i + 768]) for i in range(12)}) == 12 for k in t if k.startswith("data")), "equal draws"
EOP
is drawn_apart python3 drawn.py "$ROOT"
net odd.prototxt 'repeat: 5 random_resized_crop { size: 16 }'
runs odd_repeat 2 'transform_param.repeat is 5, which does not divide the batch of 12' "$CORTADO" time --model=odd.prototxt --data
net none.prototxt 'repeat: 0 random_resized_crop { size: 16 }'
runs no_repeat 2 'transform_param.repeat is 0: at least 1' "$CORTADO" time --model=none.prototxt --data

# refused, with file and layer
refuse() { # NAME PATTERN FIELDS
    net bad.prototxt "$3"
    runs "refuses_$1" 2 "bad.prototxt:1.*layer \"in\" \(Data\): $2" "$CORTADO" check --model=bad.prototxt
}
refuse no_size 'transform_param.random_resized_crop.size is 0, must be 1 to' 'random_resized_crop { }'
refuse hue 'transform_param.color_jitter.hue is 0.7, must be 0 to 0.5' 'random_resized_crop { size: 9 } color_jitter { hue: 0.7 }'
sed 's/ top: "label"//; /"loss"/d' mixed.prototxt >unlabelled.prototxt
runs refuses_unlabelled 2 'the second top must be one label a sample' "$CORTADO" time --model=unlabelled.prototxt --data
refuse no_classes 'transform_param.classes is 0: mixup and cutmix make distributions' 'crop_size: 9 mixup { }'
refuse crop_twice 'transform_param has both crop_size and random_resized_crop' 'crop_size: 9 random_resized_crop { size: 9 }'

# the net for use: any picture, its middle
net use.prototxt 'random_resized_crop { size: 32 test_resize: 36 } color_jitter { hue: 0.1 }'
runs deploys 0 '' "$CORTADO" convert net --deploy --from=use.prototxt --to=deploy.prototxt
is keeps_crop sh -c 'tr -d " \n" <deploy.prototxt | grep -q "random_resized_crop{size:32test_resize:36}}}"'
is input_is_crop sh -c 'tr -d " \n" <deploy.prototxt | grep -q "dim:3dim:32dim:32"'
sed 's/random_resized_crop/color_jitter { } random_resized_crop/' deploy.prototxt >both.prototxt
sed 's/random_resized_crop.*{/color_jitter {/; /test_resize/d; /size: 32/d' deploy.prototxt >jitter.prototxt
printf 'net: "use.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1 random_seed: 4 snapshot_prefix: "use"\n' >use.solver
runs trains_use 0 '' "$CORTADO" train --solver=use.solver
runs predicts 0 'sea 00.png' "$CORTADO" predict --model=deploy.prototxt --weights=use_iter_1.caffemodel.h5 pictures/sea
runs serve_refuses 2 'serve.transform_param.color_jitter: pictures that are asked for are not augmented' \
    "$CORTADO" predict --model=jitter.prototxt --weights=use_iter_1.caffemodel.h5 pictures/sea
finish
