# cortado predict: classes of pictures by name, as a table, CSV and JSON, on one and two ranks; the numbers of
# onnxruntime; what cannot be read, and every error in one line.
. "$ROOT/tests/cli/lib.sh"
if ! has png lmdb; then
    skip predict "built without libpng or LMDB"
    finish
fi
python3 "$ROOT/tests/cli/photographs.py" photos 16 40 0
"$CORTADO" convert images --from=photos --to=set --validation=0.25 --seed=3 --resize=40x40 >out 2>&1 || not_ok converts ''
cat >net.prototxt <<'NET'
class_name: "grass" class_name: "sand, yellow" class_name: "sea"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.004 mean_file: "set/mean.binaryproto" }
  data_param { source: "set/train_lmdb" backend: LMDB batch_size: 12 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.004 mean_file: "set/mean.binaryproto" }
  data_param { source: "set/test_lmdb" backend: LMDB batch_size: 4 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
echo 'net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 60 random_seed: 5 solver_mode: CPU' >solver.prototxt
runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --run=r

predict="$CORTADO predict --run=r"
for p in 1 2; do
    $JOB $p $predict --format=csv photos >all$p.csv 2>out </dev/null
    is predicts_$p [ $? = 0 ]
done
is same_on_2 cmp all1.csv all2.csv
is head [ "$(head -n 1 all1.csv)" = file,class,probability ]
is every_file [ "$(wc -l <all1.csv)" = 49 ]
is names_as_csv grep -q '^photos/sand/sand [0-9]*.png,"sand, yellow",[01]' all1.csv
is right_ones [ "$(grep -cE '^photos/(grass|sand|sea)/.*,"?(grass|sand|sea)' all1.csv)" = 48 ]
# as many of the files of the test set are right as `test` says
"$CORTADO" test --run=r --iterations=3 >score 2>out
strings -a set/test_lmdb/data.mdb | grep -oE '(grass|sand|sea)/[a-z]+ [0-9]+\.png' | sort -u | sed 's#^#photos/#' >files
tr '\n' '\0' <files | xargs -0 $predict --format=csv >tested.csv 2>out
is counted_as_test python3 - <<'PY'
import csv
rows = list(csv.DictReader(open("tested.csv")))
assert len(rows) == 12
right = sum(r["class"].split(",")[0] == r["file"].split("/")[1] for r in rows)
said = float([l for l in open("score") if l.startswith("accuracy")][0].split("=")[1])
assert abs(right / 12 - said) < 1e-6, (right, said)
PY
runs table 0 '^ +[01]\.[0-9]{4}  sea  +photos/sea/sea 00.png' $predict "photos/sea/sea 00.png"
$predict --format=json photos/sea "photos/grass/grass 03.png" >some.json 2>out
is json python3 -c "
import json
d = json.load(open('some.json'))
assert d['classes'] == ['grass', 'sand, yellow', 'sea'] and len(d['predictions']) == 17
for p in d['predictions']:
    assert abs(sum(p['all']) - 1) < 1e-5 and p['probability'] == max(p['all'])
    assert p['class'] == d['classes'][p['all'].index(p['probability'])]
assert d['predictions'][-1]['file'] == 'photos/grass/grass 03.png'
"
python=$("$ROOT/scripts/test_venv.sh" numpy onnxruntime 2>venv.log)
if [ -x "${python:-}" ]; then
    runs to_onnx 0 '' "$CORTADO" convert model --from=r/snapshots/snapshot_iter_60.caffemodel.h5 --net=r/deploy.prototxt --to=net.onnx
    $predict --format=json photos >all.json 2>out
    runs as_onnxruntime 0 '^48 files, largest difference' "$python" "$ROOT/tests/cli/onnx_probabilities.py" net.onnx set/mean.binaryproto all.json
else
    skip as_onnxruntime "no onnxruntime"
fi

# files by other ways, numbers in place of names, scores in place of probabilities
runs by_files 0 'sea 00.png' "$CORTADO" predict --model=r/deploy.prototxt --weights=r/snapshots/snapshot_iter_60.caffemodel.h5 photos/sea
sed 's/class_name.*//' r/deploy.prototxt >plain.prototxt
weights=--weights=r/snapshots/snapshot_iter_60.caffemodel.h5
runs numbers 0 '^photos/sea/sea 00.png,2,' "$CORTADO" predict --model=plain.prototxt $weights --format=csv photos/sea
python3 - <<'PY'
text = open("plain.prototxt").read()
at = text.rindex("layer {", 0, text.index('name: "prob"'))
end = text.index("\n}", at) + 2
open("cut.prototxt", "w").write(text[:at] + text[end:])
PY
runs scores 0 '^file,class,score' "$CORTADO" predict --model=cut.prototxt $weights --format=csv photos/sea

# what is wrong
mkdir odd
head -c 300 "photos/sea/sea 03.png" >odd/cut.png
cp "photos/sea/sea 04.png" odd/good.png
runs broken 3 'odd/cut.png: bad PNG: file ends early' $predict --format=csv odd
is others_said grep -q '^odd/good.png,sea,' out
is counted grep -q '1 of 2 files could not be read' out
runs broken_alone 3 'odd/cut.png: bad PNG: file ends early' $predict odd/cut.png
is alone_one_line test "$(grep -c '^E' out)" = 1
runs missing 3 'nowhere.png: No such file' $predict nowhere.png
mkdir empty
runs empty_folder 3 'empty: no image in it, expected files' $predict empty
runs one_folder_empty 3 'empty: no image in it, expected files .*webp' $predict photos/sea empty
runs no_files 2 'cortado predict: give files, or folders of files' $predict
runs no_net 2 'cortado predict needs --run=DIR, or --model=FILE and --weights=FILE' "$CORTADO" predict photos
runs bad_format 2 'format=xml: expected one of table\|csv\|json' $predict --format=xml photos
runs bad_option 2 'unknown option --fromat; did you mean --format' $predict --fromat=csv photos
runs other_verbs 2 '"photos" is no option; they begin with --' "$CORTADO" test photos
sed 's/class_name: "sea"//' r/deploy.prototxt >two.prototxt
runs few_names 2 'has 2 class_name, expected 3, one for each class' "$CORTADO" predict --model=two.prototxt $weights photos
finish
