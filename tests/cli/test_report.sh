# cortado test --report: confusion, precision, recall, calibration and mistakes are those counted from what `predict`
# says of the same files; each sample counts once, with any batch and number of ranks; every error in one line.
. "$ROOT/tests/cli/lib.sh"
if ! has png lmdb; then
    skip report "built without libpng or LMDB"
    finish
fi
python3 "$ROOT/tests/cli/photographs.py" photos 30 16 0
# some pictures lie in the wrong folder, so that there are mistakes
for i in 00 04 09 13 17 21 25 28; do mv "photos/sea/sea $i.png" "photos/grass/wet $i.png"; done
for i in 02 11; do mv "photos/sand/sand $i.png" "photos/sea/dune $i.png"; done
"$CORTADO" convert images --from=photos --to=set --validation=0.4 --seed=3 --resize=16x16 >out 2>&1 || not_ok converts ''
cat >net.prototxt <<'NET'
class_name: "grass" class_name: "sand" class_name: "sea"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.004 mean_file: "set/mean.binaryproto" }
  data_param { source: "set/train_lmdb" backend: LMDB batch_size: 12 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.004 mean_file: "set/mean.binaryproto" }
  data_param { source: "set/test_lmdb" backend: LMDB batch_size: 7 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
echo 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 20 random_seed: 5 solver_mode: CPU' >solver.prototxt
runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --run=r
n=$("$CORTADO" info --data=set/test_lmdb | sed -n 's/^data set.* \([0-9]*\) samples/\1/p')
strings -a set/test_lmdb/data.mdb | grep -oE '(grass|sand|sea)/[a-z]+ [0-9]+\.png' | sort -u | sed 's#^#photos/#' >files
is no_whole_batches [ $((n % 7)) != 0 ]
is names_found [ "$(wc -l <files)" = "$n" ]
tr '\n' '\0' <files | xargs -0 "$CORTADO" predict --run=r --format=csv >tested.csv 2>out

for p in 1 2 3; do
    runs reports_$p 0 '^accuracy = 0\.[0-9]+' $JOB $p "$CORTADO" test --run=r --report=r$p.json
    runs counted_$p 0 ' right, [1-9]' "${CORTADO_SKLEARN:-python3}" "$ROOT/tests/cli/check_report.py" r$p.json tested.csv
done
is same_on_2 python3 -c "
import json
a, b = json.load(open('r1.json')), json.load(open('r2.json'))
assert a['confusion'] == b['confusion'] and a['worst'] == b['worst'] and abs(a['loss'] - b['loss']) < 1e-7
"
# the loss of one batch with the whole set is what plain `test` says
"$CORTADO" test --run=r --set=batch_size=$n --iterations=1 >plain 2>out
is loss_as_test python3 -c "
import json
said = {l.split('=')[0].strip(): float(l.split('=')[1].split('(')[0]) for l in open('plain') if '=' in l}
r = json.load(open('r1.json'))
assert abs(said['loss'] - r['loss']) < 1e-5 and abs(said['accuracy'] - r['accuracy']) < 1e-6, (said, r['loss'])
"
# without --iterations `test` runs over the whole set, and begins it again in the last batch
runs whole_set 0 "Running for $(((n + 6) / 7)) iterations of 7 samples" "$CORTADO" test --run=r
# from probabilities, without names, as image lists; labels that do not count
sed -e 's/class_name: "[a-z]*"//g' -e 's/layer { name: "accuracy".*//' -e 's/layer { name: "loss".*//' net.prototxt >prob.prototxt
cat >>prob.prototxt <<'NET'
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
layer { name: "accuracy" type: "Accuracy" bottom: "prob" bottom: "label" top: "accuracy" include { phase: TEST } }
NET
weights=--weights=r/snapshots/snapshot_iter_20.caffemodel.h5
runs of_probabilities 0 '' "$CORTADO" test --model=prob.prototxt $weights --report=prob.json
is same_numbers python3 -c "
import json
a, b = json.load(open('r1.json')), json.load(open('prob.json'))
assert b['classes'] == ['0', '1', '2'] and a['confusion'] == b['confusion'] and abs(a['loss'] - b['loss']) < 1e-6
assert [w['file'] for w in a['worst']] == [w['file'] for w in b['worst']]
"
sed 's#^photos/grass/.*#& 0#; s#^photos/sand/.*#& 1#; s#^photos/sea/.*#& 2#' files | sed '1s/ 0$/ 7/' >list
sed 's/type: "Data" top: "data" top: "label" include { phase: TEST }/type: "ImageData" top: "data" top: "label" include { phase: TEST }/; s#data_param { source: "set/test_lmdb" backend: LMDB batch_size: 7 }#image_data_param { source: "list" batch_size: 5 }#; s/top: "accuracy"/top: "accuracy" accuracy_param { ignore_label: 7 }/' prob.prototxt >list.prototxt
runs of_a_list 0 '1 labels are of no class and do not count' "$CORTADO" test --model=list.prototxt $weights --report=list.json
is paths python3 -c "
import json
r = json.load(open('list.json'))
assert r['samples'] == $n - 1 and all(w['file'].startswith('photos/') for w in r['worst'])
"

# what is wrong
sed 's/layer { name: "accuracy".*//; s/layer { name: "loss".*//' net.prototxt >none.prototxt
runs no_labels 2 'none.prototxt: --report needs the scores and labels of an Accuracy or a SoftmaxWithLoss' "$CORTADO" test --model=none.prototxt $weights --report=x.json
runs with_iterations 2 '--report counts each sample of the test set once.*: leave out --iterations' "$CORTADO" test --run=r --report=x.json --iterations=3
runs with_metrics 2 'leave out --metrics' "$CORTADO" test --run=r --report=x.json --metrics=m
sed 's/class_name: "sea"//' net.prototxt >two.prototxt
runs few_names 2 'the net has 2 class_name, expected 3' "$CORTADO" test --model=two.prototxt $weights --report=x.json
runs no_place 3 'nowhere/x.json' "$CORTADO" test --run=r --report=nowhere/x.json
sed 's/type: "Data" top: "data" top: "label" include { phase: TEST }/type: "DummyData" top: "data" top: "label" include { phase: TEST }/; s#data_param { source: "set/test_lmdb" backend: LMDB batch_size: 7 }#dummy_data_param { shape { dim: 2 dim: 3 dim: 16 dim: 16 } shape { dim: 2 } }#; s/transform_param {[^}]*}//' net.prototxt >endless.prototxt
runs no_end 2 'the net reads no set that has an end' "$CORTADO" test --model=endless.prototxt $weights --report=x.json
is nothing_written test ! -e x.json
finish
