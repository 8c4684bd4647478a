# From photographs to predictions, step by step: folders of classes as sets, drawn the same for the same seed, what
# is broken or no image, and every error in one line.
. "$ROOT/tests/cli/lib.sh"
if ! has png lmdb; then
    skip photographs "built without libpng or LMDB"
    finish
fi
python3 "$ROOT/tests/cli/photographs.py" photos 20
images="$CORTADO convert images --from=photos --resize=40x40"

# ---- the sets
runs converts 0 '3 classes, their names in set/classes.txt' $images --to=set --validation=0.2 --seed=3
is names [ "$(tr '\n' ' ' <set/classes.txt)" = "grass sand sea " ]
is train_count grep -q 'set/train_lmdb: 3 classes up to label 2, of 16 .* to 16 ' out
is test_count grep -q 'set/test_lmdb: 3 classes up to label 2, of 4 .* to 4 ' out
is mean test -s set/mean.binaryproto
runs stops_at_set 2 'set/classes.txt exists already; --force replaces it' $images --to=set
# keys of the test set: the same for the seed, others for another, none in both sets
keys() { strings -a "$1/data.mdb" | grep -oE '(grass|sand|sea)/[a-z]+ [0-9]+\.png' | sort -u; }
runs again 0 '' $images --to=again --validation=0.2 --seed=3
is same_train cmp set/train_lmdb/data.mdb again/train_lmdb/data.mdb
is same_test cmp set/test_lmdb/data.mdb again/test_lmdb/data.mdb
OMP_NUM_THREADS=3 runs threads 0 '' $images --to=threads --validation=0.2 --seed=3
is same_threads cmp set/test_lmdb/data.mdb threads/test_lmdb/data.mdb
runs other 0 '' $images --to=other --validation=0.2 --seed=4
keys set/test_lmdb >test
keys set/train_lmdb >train
keys other/test_lmdb >other_test
is drawn [ "$(wc -l <test)" = 12 ]
is apart [ "$(sort train test | uniq -d | wc -l)" = 0 ]
is whole [ "$(cat train test | wc -l)" = 60 ]
is seed_counts sh -c '! cmp -s test other_test'
runs one_set 0 'set1/train_lmdb: 60 images' $images --to=set1
is no_test test ! -e set1/test_lmdb

# ---- what is no image, and what is broken
mkdir few few/a few/b few/b/deep
cp "photos/sea/sea 00.png" few/a/one.png
cp "photos/sea/sea 01.png" few/b/deep/TWO.PNG
cp "photos/sea/sea 02.png" few/b/three.png
echo words >few/notes.txt
echo words >few/b/.hidden.png
head -c 300 "photos/sea/sea 03.png" >few/b/cut.png
few="$CORTADO convert images --from=few --resize=20x30"
runs broken 3 'few/b/cut.png: bad PNG: file ends early' $few --to=f1
is nothing_left test ! -e f1/train_lmdb
runs skips 0 'few: 1 of 4 images are broken and left out' $few --to=f1 --skip_broken --validation=0.5
is told grep -q 'few/b/cut.png: bad PNG: file ends early; left out' out
is other_file grep -q 'few: 1 file left out, no image of a class by the name: few/notes.txt' out
is kept_one grep -q 'class "a" has one image, which is kept for training' out
is counted grep -q 'f1/test_lmdb: 1 images' out
runs skips_so_many 3 'few: more broken images than --skip-broken=0 allows|bad PNG' $few --to=f2 --skip_broken=0
runs class_broken 3 'few: no image of class "b" can be used' sh -c "rm -r few/b/deep few/b/three.png; $few --to=f3 --skip_broken"
rm few/b/cut.png
runs class_empty 3 'few/b: no image in it, expected files \*.jpg' $few --to=f4
rm -r few/b
runs one_class 3 'few: 1 folder, expected one for each class, and two classes at least' $few --to=f4
runs no_folder 3 'cannot read the folder nowhere: No such file' "$CORTADO" convert images --from=nowhere --to=f4
mkdir few/$(printf 'a\001')
cp few/a/one.png few/$(printf 'a\001')
runs class_name 3 'the name of a class must be UTF-8 without control characters' $few --to=f4

# ---- names of classes go with the weights
cat >net.prototxt <<'NET'
class_name: "grass" class_name: "sand" class_name: "sea"
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.004 }
  data_param { source: "set/train_lmdb" backend: LMDB batch_size: 12 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
echo 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 2 random_seed: 5 solver_mode: CPU snapshot_prefix: "w"' >solver.prototxt
runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt
runs to_binary 0 '' "$CORTADO" convert model --from=w_iter_2.caffemodel.h5 --to=w.caffemodel
runs back 0 '' "$CORTADO" convert model --from=w.caffemodel --to=w.h5
runs to_safetensors 0 '' "$CORTADO" convert model --from=w.caffemodel --to=w.safetensors
runs of_safetensors 0 '' "$CORTADO" convert model --from=w.safetensors --to=u.h5
for f in w_iter_2.caffemodel.h5 w.h5 w.caffemodel w.safetensors u.h5; do is names_in_$f [ "$(strings -a -n 3 $f | grep -oE 'grass|sand|sea' | sort -u | wc -l)" = 3 ]; done
runs to_onnx 0 '' "$CORTADO" convert model --from=w.h5 --net=net.prototxt --to=w.onnx
is names_in_onnx grep -aq '"grass","sand","sea"' w.onnx
sed 1d net.prototxt >plain.prototxt
runs to_onnx_of_weights 0 '' "$CORTADO" convert model --from=w.h5 --net=plain.prototxt --to=v.onnx
is names_of_weights grep -aq '"grass","sand","sea"' v.onnx

# ---- options
runs no_source 2 'give --list=FILE, a list of images, or --from=DIR' "$CORTADO" convert images --to=x
runs two_sources 2 'give --list=FILE, a list of images, or --from=DIR' $images --list=l --to=x
runs root_of_list 2 '--root is of --list; --from=photos has its own paths' $images --root=r --to=x
runs list_is_one 2 '--validation is of --from: a list is one set' "$CORTADO" convert images --list=l --to=x --validation=0.1
for share in 0 1 -0.1 x 0.2x; do
    runs share_$share 2 "validation=$share: expected a share between 0 and 1" $images --to=x --validation=$share
done
runs bad_skip 2 'skip_broken=-3: expected a whole number' $images --to=x --skip_broken=-3
runs skip_with_unit 2 'skip_broken=9223372036854775807x: expected a whole number' \
    $images --to=x --skip_broken=9223372036854775807x
finish
