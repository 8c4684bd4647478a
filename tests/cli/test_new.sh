# cortado new: models fitted to a set of photographs run as they are; the commands of the guide; every error in one
# line, after which nothing is left.
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
if ! has png lmdb; then
    skip new "built without libpng or LMDB"
    finish
fi
python3 "$ROOT/tests/cli/photographs.py" photos 12

# ---- the guide's commands, in their order
grep '^    cortado ' "$ROOT/docs/photographs.md" >commands
is some_commands [ "$(wc -l <commands)" -ge 6 ]
n=0
while read -r verb rest; do
    n=$((n + 1))
    runs guide_$n 0 '' "$CORTADO" $rest
done <commands
"$CORTADO" predict --run=run --format=csv photos >predicted.csv 2>out
is guide_is_right [ "$(grep -cE "^photos/([a-z]*)/.*,\1," predicted.csv)" -ge 30 ]
is classes [ "$(grep class_name work/train_val.prototxt | tr -d ' \n')" = 'class_name:"grass"class_name:"sand"class_name:"sea"' ]
is outputs grep -Pzq 'name: "ip2"(.|\n)*?num_output: 3' work/train_val.prototxt
is own_mean cmp work/mean.binaryproto set/mean.binaryproto
is whole_test_set grep -q 'test_iter: 1$' work/solver.prototxt
is slurm bash -n work/train.sbatch
is page_of_the_guide env PYTHONPATH="$ROOT/tests/cli" python3 -c "
from page_of import Page
p = Page('page.html')
p.alone()
assert 'Confusion, samples' in p.charts and p.charts[0] == 'loss', p.charts
assert [r[0] for r in p.rows('classes')] == ['grass', 'sand', 'sea']
"
# … and on two ranks, in a folder of its own: what is no job the first rank does
mkdir two && ln -s ../photos two/photos && cd two
n=0
while read -r verb rest; do
    n=$((n + 1))
    runs guide_${n}_on_2 0 '' $JOB 2 "$CORTADO" $rest
    case $rest in convert\ images*) is once [ "$(grep -c 'names in set/classes.txt' out)" = 1 ] ;; esac
    case $rest in new*) runs fails_on_2 2 'to=work: is there already' $JOB 2 "$CORTADO" $rest ;; esac
done <../commands
is set_on_2 cmp set/test_lmdb/data.mdb ../set/test_lmdb/data.mdb
is net_on_2 sh -c 'sed "s#/two/#/#" work/deploy.prototxt | cmp - ../work/deploy.prototxt'
is page_on_2 grep -q 'Confusion, samples' page.html
is onnx_on_2 test -s net.onnx
cd ..
runs on_two_ranks 0 'Optimization Done' $JOB 2 "$CORTADO" train --solver=work/solver.prototxt --run=run2 --iterations=2
mkdir elsewhere
(cd elsewhere && runs from_anywhere 0 'Optimization Done' "$CORTADO" train --solver=../work/solver.prototxt --run=run --iterations=1)

# ---- other models: they check, and learn from weights under another name
for m in lenet resnet20 resnet50 alexnet squeezenet mobilenet_v2; do
    runs fits_$m 0 '' "$CORTADO" new --from=$m --data=set --to=$m
    runs checks_$m 0 '' "$CORTADO" check --solver=$m/solver.prototxt
    runs deploy_$m 0 ' 1 3 \(3\)| 1 3 1 1 \(3\)' "$CORTADO" check --model=$m/deploy.prototxt --phase=TEST
done
is no_top5 sh -c '! grep -q top_k resnet50/train_val.prototxt'
is no_crop sh -c '! grep -q crop_size resnet50/train_val.prototxt resnet50/deploy.prototxt'
is statistics_keep_up [ "$(grep -c 'moving_average_fraction: 0.9$' resnet20/train_val.prototxt)" = "$(grep -c '"BatchNorm"' resnet20/train_val.prototxt)" ]
is crop_of_the_set [ "$(grep -c 'crop_size: 40' resnet20/train_val.prototxt)" = 1 ]
is steps_move_along grep -Pzq 'max_iter: 1000\n(.|\n)*stepvalue: 500\n(.|\n)*stepvalue: 750\n' resnet20/solver.prototxt
weights=run/snapshots/snapshot_iter_60.caffemodel.h5
runs with_weights 0 '' "$CORTADO" new --from=quick --data=set --to=tuned --weights=$weights
runs tunes 0 'ip2_new' "$CORTADO" train --solver=tuned/solver.prototxt --run=run3 --iterations=1
is faster grep -Pzq 'name: "ip2_new"(.|\n)*?lr_mult: 10\n(.|\n)*?lr_mult: 20\n' tuned/train_val.prototxt
# one channel, no names of classes, no mean, no set for tests; and a folder in place of a model's name
"$CORTADO" convert digits --to=digits --count=64 --seed=3 >out 2>&1
rm -r digits/test_lmdb
runs digits 0 '' "$CORTADO" new --from=quick --data=digits --to=grey
is ten_classes grep -Pzq 'name: "ip2"(.|\n)*?num_output: 10' grey/train_val.prototxt
is made_mean test -s grey/mean.binaryproto
is no_tests sh -c '! grep -qE "test_iter|test_interval" grey/solver.prototxt; ! grep -q "phase: TEST" grey/train_val.prototxt'
runs trains_digits 0 'Optimization Done' "$CORTADO" train --solver=grey/solver.prototxt --iterations=2
runs of_a_folder 0 '' "$CORTADO" new --from=./work --data=digits --to=grey2
runs one_mean 0 '' "$CORTADO" new --from=resnet50 --data=digits --to=grey3
is grey_mean grep -Pzq 'mean_value: 114.6[0-9]*\n +\}' grey3/train_val.prototxt

# ---- what is wrong
new="$CORTADO new --data=set --to=bad"
runs exists 2 'to=work: is there already; give a new folder' "$CORTADO" new --from=quick --data=set --to=work
runs no_model 2 'from=nowhere: no such model in' $new --from=nowhere
runs near_model 2 'from=quik: no such model; did you mean "quick"' $new --from=quik
runs no_text 2 'data=set: a set of pictures, and the net reads tokens \(TokenData\): give a set that cortado convert text --tokenizer=FILE made' $new --from=gpt_char
runs no_tokenizer 2 'tokenizer and --pattern are of tokens, and the net reads pictures' $new --from=quick --tokenizer=bytes
runs no_boxes 2 'data=set: a set of pictures, and the net reads images with boxes \(AnnotatedData\): give a set that cortado convert annotated made' $new --from=ssd300
runs too_small 2 'googlenet does not fit pictures of 3 40 40 .*: convert them to another size' $new --from=googlenet
is which_layer grep -q 'layer "loss1/ave_pool"' out
runs no_set 3 'data=nowhere: No such file' "$CORTADO" new --from=quick --data=nowhere --to=bad
runs a_part 2 'data=set/train_lmdb: one part of a set; give the folder above it' "$CORTADO" new --from=quick --data=set/train_lmdb --to=bad
runs no_train 3 'data=photos: no train_lmdb in it; expected a folder that cortado convert images made' "$CORTADO" new --from=quick --data=photos --to=bad
runs no_weights 3 'weights=nowhere: No such file' $new --from=quick --weights=nowhere
for o in from data to; do
    runs needs_$o 2 "cortado new needs --$o" "$CORTADO" new $(echo --from=quick --data=set --to=bad | tr ' ' '\n' | grep -v "^--$o=")
done
is nothing_left sh -c '! ls -d bad*'

# ---- killed at a call on what it writes: nothing under the name, and the next one takes away what is left
if can_preload; then
    make_hold
    mkdir made
    grey="$CORTADO new --from=quick --data=digits"
    runs calls 0 'made/work/mean.binaryproto: the mean' env LD_PRELOAD=./stall.so FAULT_IN=made FAULT_LOG=calls $grey --to=made/work
    is own_paths grep -q "mean_file: \"$PWD/made/work/mean.binaryproto\"" made/work/train_val.prototxt
    n=$(wc -l <calls)
    is last_call grep -q "^$n C rename .*made/work$" calls
    cp -r made/work whole
    for k in 1 7 13 $((n - 1)) "$n"; do
        rm -r made/work
        runs killed_$k 137 '' env LD_PRELOAD=./stall.so FAULT_IN=made "FAULT=$k kill" $grey --to=made/work
        is no_part_$k test ! -e made/work
        runs after_kill_$k 0 '' $grey --to=made/work/
        is whole_$k diff -r whole made/work
        is alone_$k [ "$(ls made)" = work ]
    done
    rm -r made/work
    runs disk_full 3 'cannot write .*No space left' env LD_PRELOAD=./stall.so FAULT_IN=made "FAULT=14 28" $grey --to=made/work
    is nothing_of_a_full_disk [ -z "$(ls made)" ]
    runs taken 2 'to=made/work: is there already' env LD_PRELOAD=./stall.so FAULT_IN=made "FAULT=$n 39" $grey --to=made/work
else
    skip killed "a sanitizer wants to be loaded first"
fi
finish
