#!/bin/sh
# Images with boxes: sets of PASCAL VOC's files, what AnnotatedData makes of them by SSD's fields beside arithmetic
# in numpy, the same bits on any number of ranks, and every refusal.
. "$ROOT/tests/cli/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1
python=$("$ROOT/scripts/test_venv.sh" numpy pillow==12.3.0) || { skip annotated "no numpy and Pillow"; finish; }
"$python" "$ROOT/tests/cli/boxes.py" make || not_ok made "Pillow writes no files"

# ---- sets
runs by_list 0 'set: 12 images' "$CORTADO" convert annotated --list=list --labelmap=labelmap.prototxt --to=set
runs again 2 'set' "$CORTADO" convert annotated --list=list --labelmap=labelmap.prototxt --to=set
mkdir -p voc/ImageSets/Main
ln -s ../JPEGImages ../Annotations voc/
seq -f %03g 0 8 >voc/ImageSets/Main/trainval.txt
seq -f %03g 9 11 >voc/ImageSets/Main/test.txt
runs by_folder 0 'voc: 4 classes with the background, their names in sets/classes.txt' "$CORTADO" convert annotated --from=voc --to=sets
is class_names sh -c '[ "$(tr "\n" " " <sets/classes.txt)" = "background blue green red " ]'
is has_nine grep -q 'sets/train_lmdb: 9 images' out
is has_three grep -q 'sets/test_lmdb: 3 images' out
runs for_boxes 0 'sets/train_lmdb: annotated, 9 samples' "$CORTADO" info --data=sets/train_lmdb --picture=own.png
is has_picture sh -c 'grep -qE "own.png: 9 samples, evenly spread, with [0-9]+ boxes" out && test -s own.png'
rm -r voc/ImageSets
runs whole_folder 0 '12 images' "$CORTADO" convert annotated --from=voc --to=whole --labelmap=sets/classes.txt

# net FILE TRANSFORM ANNOTATED
net() {
    cat >"$1" <<EOP
layer { name: "in" type: "AnnotatedData" top: "data" top: "label"
  transform_param { mean_value: 104 mean_value: 117 mean_value: 123 $2 }
  data_param { source: "set" batch_size: 8 shuffle: false threads: ${THREADS:-1} }
  annotated_data_param { label_map_file: "labelmap.prototxt" anno_type: BBOX max_boxes: ${BOXES:-6} ${3:-} } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 1 }
layer { name: "quiet" type: "Silence" bottom: "label" }
EOP
    printf 'net: "%s" base_lr: 0.01 lr_policy: "fixed" max_iter: 3 random_seed: 4 global_batch_size: 8\n' "$1" >"$1.solver"
}
dump() { # NAME RANKS NET OPTION...
    name=$1 n=$2 net=$3
    shift 3
    runs "dumps_$name" 0 'batches of 8 samples written' $JOB "$n" "$CORTADO" time --solver="$net.solver" --data --iterations=${STEPS:-3} \
        --dump_batches="$name.npz" "$@"
}
size='height: 48 width: 64'
samplers='batch_sampler { max_sample: 1 max_trials: 1 }'
for c in 'min_jaccard_overlap: 0.1' 'min_jaccard_overlap: 0.5' 'max_jaccard_overlap: 0.6' \
    'min_sample_coverage: 0.2 max_sample_coverage: 0.7' 'min_object_coverage: 0.9'; do
    samplers="$samplers batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
      sample_constraint { $c } max_trials: 50 max_sample: 1 }"
done
recipe="mirror: true emit_constraint { emit_type: CENTER } expand_param { prob: 0.7 max_expand_ratio: 3 }
  distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5
    hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 saturation_upper: 1.5 random_order_prob: 0.25 }
  resize_param { prob: 1 resize_mode: WARP $size
    interp_mode: LINEAR interp_mode: AREA interp_mode: NEAREST interp_mode: CUBIC interp_mode: LANCZOS4 }"
net plain "mirror: true resize_param { $size }"
net pad "mirror: true resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 9 $size }"
net small "mirror: true crop_h: 40 crop_w: 56 resize_param { resize_mode: FIT_SMALL_SIZE $size }"
net recipe "$recipe" "$samplers"
for m in LINEAR AREA NEAREST CUBIC LANCZOS4; do
    net $(echo $m | tr A-Z a-z) "mirror: true resize_param { interp_mode: $m $size }"
done
# the reference takes its time: the first batch tells how pictures are resized
for way in plain pad small recipe linear area nearest cubic lanczos4; do
    case $way in plain | recipe) STEPS=3 ;; *) STEPS=1 ;; esac
    dump $way 1 $way
    is as_reference_$way "$python" "$ROOT/tests/cli/boxes.py" same $way $way.npz
done
STEPS=3
THREADS=3 net threads "$recipe" "$samplers"
dump by_threads 1 threads
is same_by_threads cmp recipe.npz by_threads.npz
for way in plain recipe; do
    runs draws_$way 0 'drawn.png: 12 samples, evenly spread, with [0-9]+ boxes' "$CORTADO" info --data=set --picture=drawn.png --model=$way
    is as_drawn_$way "$python" "$ROOT/tests/cli/boxes.py" drawn $way drawn.png
done
for ranks in 2 4; do
    dump ranks_$ranks $ranks recipe
    is same_on_$ranks cmp recipe.npz ranks_$ranks.npz
done
dump by_each 2 recipe --set=node_reader=false
is same_by_each cmp recipe.npz by_each.npz
dump other_seed 1 recipe --set=random_seed=5
is seed_counts sh -c '! cmp -s recipe.npz other_seed.npz'

# ---- refused, with file and layer
refuse() { # NAME PATTERN TRANSFORM ANNOTATED
    net bad "$3" "${4:-}"
    runs "refuses_$1" 2 "bad:1.*layer \"in\" \(AnnotatedData\): .*$2" "$CORTADO" check --model=bad
}
BOXES=0 refuse boxes 'annotated_data_param.max_boxes is 0, must be 1 to 65536' "resize_param { $size }"
refuse trials 'batch_sampler\[0\].max_trials is 200000, at most' "resize_param { $size }" 'batch_sampler { max_trials: 200000 }'
refuse scale 'batch_sampler\[0\].sampler: scale 0.5 to 2, aspect_ratio 1 to 1: above 0' "resize_param { $size }" \
    'batch_sampler { sampler { min_scale: 0.5 max_scale: 2 } }'
refuse no_size 'resize_param has height 0 and width 0: each must be 1' 'resize_param { }'
refuse chance 'resize_param.prob is 0.5' "resize_param { prob: 0.5 $size }"
refuse pad_value 'resize_param.pad_value is 300, must be 0 to 255' "resize_param { pad_value: 300 $size }"
refuse pad_values 'resize_param has 2 pad_value: give one' "resize_param { pad_value: 3 pad_value: 3 $size }"
refuse distort 'distort_param.hue_prob is 2, must be 0 to 1' "resize_param { $size } distort_param { hue_prob: 2 }"
refuse delta 'distort_param.brightness_delta is -1, must be 0 to 255' "resize_param { $size } distort_param { brightness_delta: -1 }"
refuse factors 'distort_param: contrast_lower is 2 and contrast_upper 1' \
    "resize_param { $size } distort_param { contrast_prob: 1 contrast_lower: 2 contrast_upper: 1 }"
refuse expand_alone 'expand_param makes images of many sizes: give resize_param or crop_size' "expand_param { max_expand_ratio: 2 }"
refuse expand 'expand_param.max_expand_ratio is 0.5, must be 1 to 100' "resize_param { $size } expand_param { max_expand_ratio: 0.5 }"
refuse crop_h 'crop_h is 3 and crop_w 0: give both or neither' 'crop_h: 3'
refuse crops 'has both crop_size and crop_h' 'crop_h: 3 crop_w: 3 crop_size: 3'
refuse moved 'transform_param.rotate moves pixels, and boxes do not follow' "resize_param { $size } rotate { degrees: 3 }"
sed 's/ top: "label"//; /Silence/d' recipe >one_top
runs refuses_one_top 2 'batch_sampler goes by the boxes: give the layer its second top' "$CORTADO" check --model=one_top
sed '1i layer { name: "d" type: "Data" top: "x" data_param { source: "set" batch_size: 1 } }' plain >for_data
runs as_data 3 'not a Datum .*; images with boxes are for AnnotatedData layers' "$CORTADO" check --model=for_data
BOXES=1 net few "resize_param { $size }"
runs too_many_boxes 3 'record [0-9]+ .*it has more than 1 boxes: raise annotated_data_param.max_boxes' \
    "$CORTADO" time --solver=few.solver --data --iterations=2
net sizes ''
runs sizes_differ 3 'its shape is .*crop_size must fix their size' "$CORTADO" time --solver=sizes.solver --data --iterations=2
printf 'layer { name: "in" type: "AnnotatedData" top: "data" data_param { source: "plain_set" batch_size: 1 } }\n' >not_boxes
mkdir one one/a one/b
cp JPEGImages/000.png one/a/
cp JPEGImages/001.png one/b/
runs plain_set 0 '' "$CORTADO" convert images --from=one --to=plain_sets --encoded
mv plain_sets/train_lmdb plain_set
cat >cropped <<'EOP'
layer { name: "in" type: "Data" top: "data" top: "label" data_param { source: "plain_set" batch_size: 1 }
  transform_param { mean_value: 104 mean_value: 117 mean_value: 123 random_resized_crop { size: 48 } force_color: true } }
EOP
runs draws_crop 0 'cropped.png: 2 samples' "$CORTADO" info --data=plain_set --picture=cropped.png --model=cropped
is as_cropped "$python" "$ROOT/tests/cli/boxes.py" cropped cropped.png
runs not_boxes 3 'not an AnnotatedDatum' "$CORTADO" time --model=not_boxes --data --iterations=1

# ---- annotations that are wrong
bad_xml() { # NAME LINE PATTERN TEXT
    printf "$4" >bad.xml
    printf 'JPEGImages/000.png bad.xml\n' >bad.list
    runs "xml_$1" 3 "bad.xml:$2: $3" "$CORTADO" convert annotated --list=bad.list --labelmap=labelmap.prototxt --to=no_set
}
object='<annotation>\n<object>\n<name>red</name><bndbox><xmin>1</xmin><ymin>1</ymin>'
bad_xml root 1 '<html>: expected <annotation>' '<html></html>'
bad_xml cut_off 2 '<object> does not end' '<annotation>\n<object>\n'
bad_xml crossed 3 '</annotation> ends what does not begin: open is object' '<annotation>\n<object>\n</annotation>'
bad_xml unended_tag 2 'the tag "<object" does not end' '<annotation>\n<object'
bad_xml unended_comment 2 '"<!-- ' '<annotation>\n<!-- '
bad_xml entity 2 'unknown entity "&lol;' '<annotation>\n<filename>&lol;</filename></annotation>'
bad_xml number 3 '<xmin>: expected a number, found "1e999"' '<annotation>\n<object>\n<bndbox><xmin>1e999</xmin></bndbox></object></annotation>'
bad_xml no_corner 2 'object "red": its <bndbox> has no <xmax>' "$object</bndbox></object></annotation>"
bad_xml no_name 1 'the object has no <name>' '<annotation><object></object></annotation>'
bad_xml names 2 'a second <name>' '<annotation><object><name>red</name>\n<name>blue</name></object></annotation>'
bad_xml upside_down 2 'object "red": xmin 1, ymin 1, xmax 0, ymax 9: xmin must be' "$object<xmax>0</xmax><ymax>9</ymax></bndbox></object></annotation>"
sed 's/"red"/"rouge"/; s/"green"/"vert"/; s/"blue"/"bleu"/' labelmap.prototxt >french.prototxt
runs nobodys_classes 3 'has no such class' env OMP_NUM_THREADS=8 "$CORTADO" convert annotated --list=list --labelmap=french.prototxt --to=none
is told_once test "$(grep -c '^E' out)" = 1
bad_xml nobodys_class 1 'object "dog": labelmap.prototxt has no such class' \
    '<annotation><object><name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object></annotation>'
bad_xml outside 1 'object "red" at 900 1 903 3 lies outside of the image of width' \
    '<annotation><object><name>red</name><bndbox><xmin>900</xmin><ymin>1</ymin><xmax>903</xmax><ymax>3</ymax></bndbox></object></annotation>'
bad_xml background 1 'object "background": class 0 is the background' \
    '<annotation><object><name>background</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object></annotation>'
bad_xml broken_name 2 '<name> has a line end or a control character within it' '<annotation><object><name>red\n blue</name></object></annotation>'
bad_xml far 3 '<xmin> is -1e[+]300; expected a pixel' '<annotation>\n<object>\n<bndbox><xmin>-1e300</xmin></bndbox></object></annotation>'
bad_xml below_0 2 '<width> is -1; expected 0 or more' '<annotation>\n<size><width>-1</width></size></annotation>'
bad_xml deep 1 'elements are nested deeper than 32' "<annotation>$(printf '<a>%.0s' $(seq 40))"
printf '<annotation><size><width>7</width><height>7</height></size></annotation>' >bad.xml
runs other_size 3 'bad.xml says that the image has width 7 and height 7; JPEGImages/000.png has' \
    "$CORTADO" convert annotated --list=bad.list --labelmap=labelmap.prototxt --to=no_set
: >bad.xml
runs empty_xml 3 'bad.xml: no <annotation> in it' "$CORTADO" convert annotated --list=bad.list --labelmap=labelmap.prototxt --to=no_set
echo alone >bad.list
runs list_form 3 'bad.list:1: expected "image annotation", found "alone"' "$CORTADO" convert annotated --list=bad.list --to=no_set
echo 'a.png nowhere.xml' >bad.list
runs list_file 3 'bad.list:1: cannot read nowhere.xml' "$CORTADO" convert annotated --list=bad.list --to=no_set
echo 'item { name: "red" label: 2 }' >gap.prototxt
runs map_gap 2 'gap.prototxt: no item has label 0; labels go up to 2' "$CORTADO" convert annotated --list=list --labelmap=gap.prototxt --to=no_set
echo 'item { name: "red" label: 0 } item { name: "blue" label: 0 }' >twice.prototxt
runs map_twice 2 'twice.prototxt: two items have label 0' "$CORTADO" convert annotated --list=list --labelmap=twice.prototxt --to=no_set
mkdir -p named/Annotations
cp -r JPEGImages named/
printf '<annotation>\n<filename>000.png</filename><object><name>background</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object></annotation>' >named/Annotations/000.xml
runs named_background 3 'named/Annotations/000.xml:2: object "background": class 0 is the background' "$CORTADO" convert annotated --from=named --to=named_sets
is named_no_set test ! -e named_sets
runs no_source 2 'give --from=DIR, a folder as PASCAL VOC' "$CORTADO" convert annotated --to=no_set
is nothing_left test ! -e no_set
finish
