#!/bin/sh
# cortado test and predict over several crops of each picture: the probabilities of numpy and Pillow, for each number
# of crops, from lists and LMDB, on one and two ranks; and every refusal.
. "$ROOT/tests/cli/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1
if ! has png lmdb; then
    skip crops "built without libpng or LMDB"
    finish
fi
python=$("$ROOT/scripts/test_venv.sh" numpy pillow==12.3.0) || { skip crops "no numpy and Pillow"; finish; }
"$python" "$ROOT/tests/cli/crops.py" make || not_ok made "Pillow writes no files"
"$CORTADO" convert images --list=list --root=. --to=set >out 2>&1 || not_ok converts ''

crop='crop_size: 16 mirror: true'
resize='random_resized_crop { size: 16 test_resize: 19 }'
values='scale: 0.0078125 mean_value: 104 mean_value: 117 mean_value: 123'
net() { # FILE SOURCE TRANSFORM
    cat >"$1" <<EOP
name: "linear"
layer { name: "data" $2 top: "data" top: "label" transform_param { $values $3 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOP
}
lmdb='type: "Data" data_param { source: "set" backend: LMDB batch_size: 4 }'
net crop "$lmdb" "$crop"
net resize "$lmdb" "$resize"
net listed 'type: "ImageData" image_data_param { source: "list" batch_size: 5 threads: 2 }' "$crop"
try="$CORTADO test --weights=linear.caffemodel"
is_as() { # NAME VERB WAY CROPS FILE
    if said=$("$python" "$ROOT/tests/cli/crops.py" "$2" "$3" "$4" "$5" 2>&1); then ok "$1"; else not_ok "$1" "$said"; fi
}
for case in crop:1 crop:2 crop:5 crop:10 resize:10; do
    way=${case%:*} n=${case#*:}
    runs "test_${way}_$n" 0 '^accuracy = ' $try --model=$way --crops=$n --report=$way$n.json
    is_as "report_${way}_$n" report $way $n $way$n.json
done
runs on_two 0 '^accuracy = ' $JOB 2 $try --model=resize --crops=10 --report=ranks.json
is_as report_on_two report resize 10 ranks.json
is same_worst "$python" -c "
import json
a, b = json.load(open('resize10.json')), json.load(open('ranks.json'))
assert a['worst'] == b['worst'] and a['confusion'] == b['confusion']"
runs by_each 0 '' $JOB 2 $try --model=crop --crops=10 --report=each.json --set=node_reader=false
is_as report_by_each report crop 10 each.json
runs by_list 0 '' $try --model=listed --crops=10 --report=list.json
is_as report_by_list report crop 10 list.json
$try --model=crop --crops=10 >said 2>out
is without_report grep -q '^loss = ' said
is same_loss sh -c "grep -q \"\$(sed 's/loss = //; s/.\$//' said | tail -n 1)\" crop10.json"

# predict: batches with room for all crops of a picture, and of some
deploy() { # FILE BATCH TRANSFORM
    cat >"$1" <<EOP
name: "linear" serve { transform_param { $values $3 } }
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: $2 dim: 3 dim: 16 dim: 16 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
EOP
}
say="$CORTADO predict --weights=linear.caffemodel --format=json"
for case in crop:2 crop:10 resize:5; do
    way=${case%:*} n=${case#*:} part='crop_size: 16'
    [ $way = crop ] || part=$resize
    deploy large 40 "$part"
    $say --model=large --crops=$n photos >said.json 2>out </dev/null
    is_as "predict_${way}_$n" predict $way $n said.json
done
deploy small 3 "$part"
$say --model=small --crops=10 photos >few.json 2>out </dev/null
is_as predict_few predict resize 10 few.json
$JOB 2 $say --model=small --crops=10 photos >both.json 2>out </dev/null
is predict_on_two cmp few.json both.json
cp list broken.png
runs broken 3 'broken.png: ' $say --model=large --crops=5 broken.png photos/a
is others_said sh -c '[ "$(grep -c "photos/a/" out)" = 7 ]'

# refused
runs other_number 2 'crops=3: expected one of 1\|2\|5\|10' $try --model=crop --crops=3
net whole "$lmdb" ''
runs no_corners 2 'layer "data".*--crops=5: transform_param has no crop_size' $try --model=whole --crops=5
deploy whole_deploy 4 ''
runs no_corners_predict 2 '--crops=10: serve.transform_param of the net has no crop_size' $say --model=whole_deploy --crops=10 photos
runs with_iterations 2 'leave out --iterations' $try --model=crop --crops=2 --iterations=3
net dummy 'type: "DummyData" dummy_data_param { shape { dim: 4 dim: 3 dim: 16 dim: 16 } shape { dim: 4 } }' ''
runs made_up 2 'layer "data" is of type DummyData' $try --model=dummy --crops=2
finish
