#!/bin/sh
# Average precision of detections: over all batches and ranks beside numpy; and a small SSD that learns to find
# coloured rectangles.
. "$ROOT/tests/cli/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1
python=$("$ROOT/scripts/test_venv.sh" numpy pillow==12.3.0 h5py) || { skip detection "no numpy, Pillow and h5py"; finish; }
"$python" "$ROOT/tests/cli/detection.py" make || not_ok made "h5py writes no file"

# net BATCH FIELDS
net() {
    cat >net.prototxt <<EOP
layer { name: "in" type: "HDF5Data" top: "found" top: "truth" include { phase: TEST }
  hdf5_data_param { source: "found.h5" batch_size: $1 shuffle: false } }
layer { name: "eval" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "eval" include { phase: TEST }
  detection_evaluate_param { num_classes: 4 $2 } }
layer { name: "x" type: "DummyData" top: "x" include { phase: TRAIN } dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" include { phase: TRAIN } inner_product_param { num_output: 1 } }
layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 1 include { phase: TRAIN } }
EOP
}
solver() { # BATCHES VERSION
    echo "net: \"net.prototxt\" test_iter: $1 test_interval: 1 base_lr: 0.1 lr_policy: \"fixed\" max_iter: 1 random_seed: 2
      eval_type: \"detection\" ap_version: \"$2\" snapshot_after_train: false" >solver.prototxt
}
for version in 11point MaxIntegral Integral; do
    for ranks in 1 2 3; do
        net $((12 / ranks)) ''
        solver 2 $version
        runs "tests_${version}_$ranks" 0 'Test net output #0: eval = 0\.' $JOB $ranks "$CORTADO" train --solver=solver.prototxt
        is "as_numpy_${version}_$ranks" "$python" "$ROOT/tests/cli/detection.py" same out $version
    done
done
net 4 'evaluate_difficult_gt: false'
solver 6 Integral
runs not_difficult 0 'eval = 0\.' $JOB 1 "$CORTADO" train --solver=solver.prototxt --set=show_per_class_result=true
is as_numpy_not_difficult "$python" "$ROOT/tests/cli/detection.py" same out Integral difficult
is each_class grep -q 'class2: 0\.' out
is none_without_truth sh -c '! grep -q "class3:" out'
# a layer with weights in both phases, for the file that `test` wants
learns() { sed -i '/name: "x"/s/include { phase: TRAIN }//; /name: "ip"/s/include { phase: TRAIN }//' net.prototxt; }
# each class, over batches that do not divide the set
runs first 0 '' "$CORTADO" train --solver=solver.prototxt --set=snapshot_after_train=true --set=snapshot_prefix=first
for ranks in 1 2 3; do
    net 5 '' && fields=
    [ $ranks = 2 ] && net 7 'evaluate_difficult_gt: false' && fields=difficult
    learns
    runs reports_$ranks 0 'mean_average_precision = 0\.[0-9]* \(11point\)' $JOB $ranks "$CORTADO" test --model=net.prototxt \
        --weights=first_iter_1.caffemodel.h5 --report=report$ranks.json
    is "report_as_numpy_$ranks" "$python" "$ROOT/tests/cli/detection.py" report report$ranks.json $fields
done
is same_by_ranks cmp report1.json report3.json
runs not_metrics 2 'report counts each sample of the test set once, and is all that is written: leave out --iterations' \
    "$CORTADO" test --model=net.prototxt --weights=first_iter_1.caffemodel.h5 --report=no.json --iterations=2
sed '1i class_name: "a" class_name: "b"' net.prototxt >named.prototxt
runs other_names 2 'the net has 2 class_name, expected 4, one for each class and the background' \
    "$CORTADO" test --model=named.prototxt --weights=first_iter_1.caffemodel.h5 --report=no.json
runs no_crops 2 'crops=2 takes crops of what Data, ImageData and HDF5Data read' "$CORTADO" test --model=net.prototxt \
    --weights=first_iter_1.caffemodel.h5 --crops=2
net 4 'evaluate_difficult_gt: false'
runs best 0 'eval' "$CORTADO" train --solver=solver.prototxt '--set=best.metric="eval"' --set=best.direction=HIGHER --set=snapshot_prefix=best

refuse() { # NAME PATTERN FIELDS
    net 4 "$3"
    runs "refuses_$1" 2 "net.prototxt:3.*layer \"eval\" \(DetectionEvaluate\): .*$2" "$CORTADO" check --model=net.prototxt --phase=TEST
}
refuse background 'background_label_id 4 is not below num_classes 4' 'background_label_id: 4'
refuse threshold 'overlap_threshold is 0, must be above 0' 'overlap_threshold: 0'
net 4 ''
sed -i 's/num_classes: 4//' net.prototxt
runs refuses_no_classes 2 'num_classes is missing or 0' "$CORTADO" check --model=net.prototxt --phase=TEST
net 4 ''
sed -i 's/num_classes: 4/num_classes: 2/' net.prototxt
solver 6 Integral
runs class_beyond 3 'layer "eval" \(DetectionEvaluate\): true box [0-9]+ of batch 0: class 2 of 2' "$CORTADO" train --solver=solver.prototxt
solver 1 12point
runs refuses_version 2 'solver.prototxt:2.*ap_version "12point": expected "11point", "MaxIntegral" or "Integral"' \
    "$CORTADO" train --solver=solver.prototxt
sed -i 's/12point/11point/; s/"detection"/"segmentation"/' solver.prototxt
runs refuses_type 2 'eval_type "segmentation": expected "classification" or "detection"' "$CORTADO" train --solver=solver.prototxt

# ---- a small SSD
"$python" "$ROOT/tests/cli/detection.py" pictures || not_ok pictures "Pillow writes no files"
for set in train test odd; do
    runs set_$set 0 '' "$CORTADO" convert annotated --list=$set.list --labelmap=labelmap.prototxt --to=$set
done
data() { # PHASE SET MORE
    echo "layer { name: \"data\" type: \"AnnotatedData\" top: \"data\" top: \"label\" include { phase: $1 }
      data_param { source: \"$2\" batch_size: 12 } annotated_data_param { max_boxes: 4 $3 }
      transform_param { scale: 0.0078125 mean_value: 60 $4 resize_param { height: 64 width: 64 } } }"
}
conv() { # BOTTOM TOP OUTPUTS STRIDE
    echo "layer { name: \"$2\" type: \"Convolution\" bottom: \"$1\" top: \"$2\" convolution_param { num_output: $3 kernel_size: 3 pad: 1
      stride: $4 weight_filler { type: \"msra\" } } } "
}
row() { # conv's top as one row a sample
    echo "layer { name: \"$1_p\" type: \"Permute\" bottom: \"$1\" top: \"$1_p\" permute_param { order: 0 order: 2 order: 3 order: 1 } }
      layer { name: \"$1_f\" type: \"Flatten\" bottom: \"$1_p\" top: \"$1_f\" }"
}
{
    data TRAIN train 'batch_sampler { max_sample: 1 max_trials: 1 } batch_sampler { sampler { min_scale: 0.7 max_scale: 1 }
      sample_constraint { min_object_coverage: 0.9 } max_sample: 1 max_trials: 20 }' \
        'mirror: true emit_constraint { } distort_param { brightness_prob: 0.5 brightness_delta: 16 }'
    data TEST test '' ''
    conv data c1 8 2
    echo 'layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }'
    conv c1 c2 16 2
    echo 'layer { name: "r2" type: "ReLU" bottom: "c2" top: "c2" }'
    conv c2 c3 24 2
    echo 'layer { name: "r3" type: "ReLU" bottom: "c3" top: "c3" }'
    conv c3 loc 12 1
    row loc
    conv c3 conf 9 1
    row conf
    echo 'layer { name: "priors" type: "PriorBox" bottom: "c3" bottom: "data" top: "priors"
      prior_box_param { min_size: 22 aspect_ratio: 1.4 flip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
    layer { name: "loss" type: "MultiBoxLoss" bottom: "loc_f" bottom: "conf_f" bottom: "priors" bottom: "label" top: "loss"
      include { phase: TRAIN } multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE mining_type: MAX_NEGATIVE overlap_threshold: 0.4 } }
    layer { name: "scores" type: "Reshape" bottom: "conf_f" top: "scores" include { phase: TEST }
      reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }
    layer { name: "prob" type: "Softmax" bottom: "scores" top: "prob" softmax_param { axis: 2 } include { phase: TEST } }
    layer { name: "prob_f" type: "Flatten" bottom: "prob" top: "prob_f" include { phase: TEST } }
    layer { name: "found" type: "DetectionOutput" bottom: "loc_f" bottom: "prob_f" bottom: "priors" top: "found" include { phase: TEST }
      detection_output_param { num_classes: 3 code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 top_k: 40 } keep_top_k: 20
        confidence_threshold: 0.01 } }
    layer { name: "eval" type: "DetectionEvaluate" bottom: "found" bottom: "label" top: "eval" include { phase: TEST }
      detection_evaluate_param { num_classes: 3 name_size_file: "none" } }'
} >ssd.prototxt
echo 'net: "ssd.prototxt" test_iter: 2 test_interval: 100 base_lr: 0.003 lr_policy: "fixed" type: "Adam" momentum: 0.9 max_iter: 200
  random_seed: 3 display: 100 eval_type: "detection" ap_version: "11point" snapshot_prefix: "ssd"' >ssd.solver
LIMIT=300 runs learns 0 'name_size_file and resize_param have no effect' "$CORTADO" train --solver=ssd.solver --run=ssd
cat >rises.py <<'EOP'
import re
text = open("out").read()
ap = [float(v) for v in re.findall(r"Test net output #0: eval = ([-0-9.e]+)", text)]
loss = [float(v) for v in re.findall(r"Iteration \d+.*loss = ([-0-9.e]+)", text)]
assert len(ap) == 3 and ap[-1] > 0.6 and ap[-1] > ap[0] + 0.4, ap
assert loss[-1] < loss[0] / 3, loss
EOP
is precision_rises "$python" rises.py
# without a phase it is an output of training, too, and has no value there
sed '/name: "scores"/,$s/include { phase: TEST }//' ssd.prototxt >always.prototxt
sed 's/ssd.prototxt/always.prototxt/; s/max_iter: 200/max_iter: 2/; s/display: 100/display: 1/; s/snapshot_prefix: "ssd"/snapshot_prefix: "always"/' ssd.solver >always.solver
runs no_value_in_steps 0 'Train net output #[01]: eval = nan' "$CORTADO" train --solver=always.solver
runs test_verb 0 '^eval = (1|0\.[5-9])' "$CORTADO" test --model=ssd.prototxt --weights=ssd/snapshots/snapshot_iter_200.caffemodel.h5 --iterations=2
# the run's report and page
sed -i '1i class_name: "none" class_name: "red" class_name: "green"' ssd/net.prototxt ssd/deploy.prototxt
runs report_verb 0 '^mean_average_precision = (1|0\.[5-9]).* \(Integral\)' "$CORTADO" test --run=ssd --report=ssd/report.json
is no_batches sh -c '! grep -q "Batch 0, eval" out'
# boxes in files, in their own pixels, beside the blob that the set gives and numpy
names='class_name: "none" class_name: "red" class_name: "green"'
weights=ssd/snapshots/snapshot_iter_200.caffemodel.h5
for how in warp pad crop; do
    case $how in
        warp) resize='resize_param { height: 64 width: 64 }' ;;
        pad) resize='resize_param { height: 64 width: 64 resize_mode: FIT_LARGE_SIZE_AND_PAD }' ;;
        crop) resize='crop_size: 64 resize_param { height: 80 width: 80 resize_mode: FIT_SMALL_SIZE }' ;;
    esac
    sed "s/source: \"test\" batch_size: 12/source: \"odd\" batch_size: 5/; s/resize_param .*/$resize } }/; 1i $names" ssd.prototxt >$how.prototxt
    runs ${how}_net 0 '' "$CORTADO" convert net --deploy --from=$how.prototxt --to=$how.deploy
    runs ${how}_blob 0 '' "$CORTADO" extract --model=$how.prototxt --weights=$weights --blobs=found --iterations=1 --to=$how.h5
    "$CORTADO" predict --model=$how.deploy --weights=$weights --format=json files >$how.json 2>out || not_ok predicts_$how "predict fails"
done
"$CORTADO" predict --model=warp.deploy --weights=$weights --format=csv files >warp.csv 2>out
is boxes_of_files "$python" "$ROOT/tests/cli/detection.py" boxes
# a picture without a box, on one and two ranks; what has no sense
sed 's/confidence_threshold: .*/confidence_threshold: 0.9995/' warp.deploy >sure.deploy
for f in table csv json; do
    "$CORTADO" predict --model=sure.deploy --weights=$weights --format=$f files pictures/test0.png >sure.$f 2>out
    is predicts_$f [ $? = 0 ]
done
$JOB 2 "$CORTADO" predict --model=sure.deploy --weights=$weights --format=csv files pictures/test0.png >sure2.csv 2>out </dev/null
is same_on_2 cmp sure.csv sure2.csv
is without_a_box "$python" -c "
import csv, json
said = json.load(open('sure.json'))['predictions']
rows = list(csv.DictReader(open('sure.csv')))
empty = [p['file'] for p in said if not p['boxes']]
assert len(said) == 6 and 0 < len(empty) < 6 and len(rows) == sum(len(p['boxes']) for p in said), said
assert not set(empty) & {r['file'] for r in rows}, (empty, rows)
lines = open('sure.table').read().split('\n')[1:-1]
assert [l.split()[-1] for l in lines if 'no box' in l] == empty and len(lines) == len(rows) + len(empty), lines
"
predict="$CORTADO predict --weights=$weights"
runs no_crops_of_boxes 2 'crops=2: the net finds boxes \(layer "found"\), of which there is no mean over crops' $predict --model=warp.deploy --crops=2 files
sed 's/class_name: "red"//' warp.deploy >two.deploy
runs two_names 2 'has 2 class_name, expected 3, one for each class and the background' $predict --model=two.deploy files
sed 's/resize_param {/random_resized_crop { size: 64 } resize_param {/' warp.deploy >moves.deploy
runs boxes_do_not_follow 2 'serve.transform_param.random_resized_crop of the net moves pixels, and boxes do not follow' $predict --model=moves.deploy files
unserved='sure.deploy:[0-9]+: layer "found" \(DetectionOutput\): the net finds boxes, .*: such a net is not served; cortado predict says'
runs not_served 2 "$unserved" "$CORTADO" serve --model=sure.deploy --weights=$weights --listen=unix:sock --name=sure
runs not_benched 2 "$unserved" "$CORTADO" bench serve --model=sure.deploy --shapes=1
is has_deploy sh -c 'grep -q "type: \"Input\"" ssd/deploy.prototxt && grep -q DetectionOutput ssd/deploy.prototxt'
runs page 0 '' "$CORTADO" report ssd --to=ssd.html
is page_has "$python" - <<'EOP'
import json, re
r, page = json.load(open("ssd/report.json")), open("ssd.html").read()
assert r["classes"] == ["red", "green"] and r["samples"] == 24, r
table = re.search(r'<table class="detections">.*?</table>', page, re.S).group()
rows = [re.findall(r"<td[^>]*>([^<]*)</td>", line) for line in table.splitlines() if "<td" in line]
assert [row[0] for row in rows] == ["red", "green", "mean"], rows
for k, row in enumerate(rows[:2]):
    want = [r["boxes"][k], r["detections"][k], r["right"][k] / r["boxes"][k]] + [r["average_precision"][v][k] for v in r["average_precision"]]
    assert all(abs(float(a) - b) < 6e-4 * max(b, 1) for a, b in zip(row[1:], want)) and len(row) == 7, (row, want)
assert "Precision over recall" in page and page.count('class="detections"') == 1
EOP
"$CORTADO" predict --run=ssd --format=json pictures >all.json 2>out
is page_draws_boxes env PYTHONPATH="$ROOT/tests/cli" "$python" "$ROOT/tests/cli/detection.py" drawn ssd.html all.json

# ---- a net of six classes, fitted to the set of three, is the one above
mkdir small boxes
ln -s ../train boxes/train_lmdb
ln -s ../test boxes/test_lmdb
printf 'none\nred\ngreen\n' >boxes/classes.txt
sed 's/num_classes: 3/num_classes: 6/; s/num_output: 9/num_output: 18/; s/dim: -1 dim: 3/dim: -1 dim: 6/' ssd.prototxt >small/train_val.prototxt
sed 's/ssd.prototxt/train_val.prototxt/' ssd.solver >small/solver.prototxt
new="$CORTADO new --from=./small --data=boxes"
runs fits 0 '200 steps, 25.0 passes over 96 images with boxes' $new --to=fitted
runs as_text 0 '' "$CORTADO" convert net --from=ssd.prototxt --to=wanted.prototxt
is fitted_as_made sh -c "grep -vE 'source:|backend:|class_name:|^#' fitted/train_val.prototxt >fitted.text; grep -v source: wanted.prototxt | cmp - fitted.text"
is fitted_names [ "$(grep class_name fitted/train_val.prototxt | tr -d ' \n')" = 'class_name:"none"class_name:"red"class_name:"green"' ]
"$CORTADO" predict --model=fitted/deploy.prototxt --weights=$weights --format=csv files >fitted.csv 2>out
is fitted_predicts cmp fitted.csv warp.csv
runs fitted_learns 0 'Optimization Done' "$CORTADO" train --solver=fitted/solver.prototxt --run=six --iterations=1 --set=net='"small/train_val.prototxt"'
runs other_weights 0 'layer "conf" makes 18 outputs in .*, and 9 for the classes of the set: it starts anew' \
    $new --to=tuned --weights=six/snapshots/snapshot_iter_1.caffemodel.h5
runs tunes 0 'weights of 4 layers' "$CORTADO" train --solver=tuned/solver.prototxt --run=tunes --iterations=1 --set=batch_size=3
is other_batch [ "$(grep -cE '^    batch_size: (3|12)$' tunes/net.prototxt)$(grep -c 'batch_size: 3$' tunes/net.prototxt)" = 21 ]
runs same_weights 0 '' $new --to=kept --weights=$weights
is starts_anew sh -c 'grep -q "name: \"conf_new\"" tuned/train_val.prototxt && ! grep -q _new kept/train_val.prototxt'
rm boxes/classes.txt
sed -i 's/num_classes: 6 code/num_classes: 6 share_location: false code/; s/mining_type: MAX_NEGATIVE/mining_type: NONE/; s/num_output: 12/num_output: 72/' small/train_val.prototxt
runs own_locations 0 '' $new --to=own
is own_outputs sh -c "grep -Pzq 'top: \"loc\"\n  convolution_param \{\n    num_output: 36' own/train_val.prototxt && ! grep -q class_name own/train_val.prototxt"
runs fits_ssd300 0 '' "$CORTADO" new --from=ssd300 --data=boxes --to=large
is outputs_of_ssd300 [ "$(grep -cE '^    num_output: (12|18)$' large/train_val.prototxt)" = 6 ]
runs not_pictures 2 'data=boxes: a set of images with boxes, and the net reads pictures \(Data\): give a set that cortado convert images made' \
    "$CORTADO" new --from=quick --data=boxes --to=no
sed -i 's/num_output: 18/num_output: 20/' small/train_val.prototxt
runs odd_outputs 2 'layer "conf" makes 20 outputs, expected a multiple of the 6 classes' $new --to=no
sed -i 's/type: "Permute"/type: "Power"/; s/permute_param.*}/}/' small/train_val.prototxt
runs unknown_between 2 'layer "conf_p" \(Power\) stands between scores and what makes them' $new --to=no
is none_is_left test ! -e no
finish
