# Broken images: the run stops, or goes on with others in their place, the same for every number of ranks; what
# conversions say about labels.
. "$ROOT/tests/cli/lib.sh"
i=0
for f in plain.jpg halved.jpg progressive.jpg cmyk.jpg gray.jpg rgba.png palette.png bits.png exif6.jpg exif3.jpg; do
    cp "$ROOT/tests/golden/images/$f" . && echo "$f $((i % 3))" >>list
    [ $i != 0 ] || echo "nowhere.png 2" >>list
    i=$((i + 1))
done
echo "no image" >broken.jpg
head -c 300 plain.jpg >cut.jpg
printf 'broken.jpg 1\ncut.jpg 0\n' >>list
cat >net.prototxt <<'EOF'
layer { name: "in" type: "ImageData" top: "data" top: "label" transform_param { mirror: true scale: 0.01 }
  image_data_param { source: "list" batch_size: 2 new_height: 8 new_width: 8 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF
echo 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 26 display: 13 snapshot_after_train: false
  random_seed: 5 solver_mode: CPU global_batch_size: 6' >solver.prototxt # 12 epochs of 13
train="$CORTADO train --solver=solver.prototxt"
runs stops 3 'layer "in" \(ImageData\): (broken|cut)\.jpg \(line 1[23] of list\)|nowhere\.png' $train
layer='layer[in].transform_param.skip_broken'
for p in 1 2 3; do
    runs skips_$p 0 'training: others stood in for [0-9]+ broken samples' $JOB $p $train --set="$layer=3" --metrics=m$p.jsonl
    grep -o 'others stood in for [0-9]*' out >count$p
    is told_$p grep -Eq 'broken.jpg \(line 12 of list\): no JPEG, PNG, WebP or TIFF .*; skipped, .* stands in for it' out
    runs too_many_$p 3 'more broken samples in an epoch than skip_broken, 2, allows' $JOB $p $train --set="$layer=2"
    sed -n 's/.*"event":"train","iter":13.*"broken_samples":\([0-9]*\).*/\1/p' m$p.jsonl >metric$p
done
# 26 iterations of 6 are 12 epochs with 3 each; and the pass of the final loss
is count_of_epochs grep -Eq 'for (3[6-9]|4[0-2])$' count1
is same_on_2 cmp count1 count2
is same_on_3 cmp count1 count3
is metric grep -Eq '^1[0-9]|2[0-9]$' metric1
is metric_on_2 cmp metric1 metric2
is in_done grep -q '"event":"done".*"broken_samples":' m1.jsonl

# a batch that holds the set three times, and one that has each sample four times: still 3 in an epoch
for how in global_batch_size=40 "global_batch_size=8 --set=layer[in].transform_param.repeat=4"; do
    for p in 1 2; do
        runs "skips_$p $how" 0 'training: others stood in for [0-9]+ broken samples' $JOB $p $train --set="$layer=3" --set=$how
        grep -o 'others stood in for [0-9]*' out >count_$p
        runs "too_many_$p $how" 3 'more broken samples in an epoch than skip_broken, 2, allows' $JOB $p $train --set="$layer=2" --set=$how
    done
    is "same_on_2 $how" cmp count_1 count_2
done

# ---- conversions
runs convert_stops 3 'list:2: nowhere.png: cannot open nowhere.png' "$CORTADO" convert images --list=list --to=sets/a --resize=8x8
runs convert_skips 0 '3 of 13 images are broken and left out' "$CORTADO" convert images --list=list --to=sets/a --resize=8x8 --skip-broken=3
is convert_count grep -q 'sets/a: 10 images' out
is convert_classes grep -q 'sets/a: 3 classes up to label 2, of 3 (class 1) to 4 (class 0) samples' out
runs convert_too_many 3 'more broken images than --skip-broken=2 allows' "$CORTADO" convert images --list=list --to=sets/b --resize=8x8 --skip-broken=2
is nothing_left test ! -e sets/b
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do echo "plain.jpg 4"; done >uneven
printf 'gray.jpg 0\nbits.png 1\nrgba.png 3\nrgba.png -1\n' >>uneven
runs convert_uneven 0 'the classes are uneven \(samples of each: 0: 1, 1: 1, 3: 1, 4: 23\)' "$CORTADO" convert images --list=uneven --to=sets/u
is convert_missing grep -q 'no sample of class 2, though labels go up to 4' out
is convert_negative grep -q '1 labels are below 0' out
# a label that the net has no output for
sed 's/rgba.png 3/rgba.png 7/; /rgba.png -1/d' uneven >seven
sed -e 's/source: "list"/source: "seven"/' -e 's/num_output: 3/num_output: 5/' net.prototxt >seven.prototxt
sed 's/net.prototxt/seven.prototxt/' solver.prototxt >seven_solver.prototxt
runs label_beyond 3 'seven.prototxt:[0-9]+: layer "loss" \(SoftmaxWithLoss\): label 7 .* not a whole number in 0..4: there are 5 classes' \
    "$CORTADO" train --solver=seven_solver.prototxt
finish
