# Files that are broken or forged, all with sizes and hashes that fit: each is refused with exit code
# 3 (2 where shapes are not the net's), one line that names the file and the data set, at once and
# without much memory.
. "$ROOT/tests/cli/lib.sh"
: "${FORGE:?}"
LIMIT=60 # a guard: what hangs would do so for ever
MIB=1024

# refused NAME EXIT-CODE PATTERN COMMAND...
refused() {
    refused_name=$1
    runs "$@"
    [ "$(grep -c '^E' out)" = 1 ] || not_ok "${refused_name}_one_line" "$(grep -c '^E' out) lines of errors"
}
within="$FORGE within $MIB $CORTADO"
make_case
runs trains 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --iterations=10
cp s_iter_10.solverstate.h5 good.state
cp s_iter_10.caffemodel.h5 good.weights

# ---- solver states
# state NAME EXIT-CODE PATTERN FORGE-ARGUMENTS...: the set with one array of its state forged
state() {
    name=$1 want=$2 pattern=$3
    shift 3
    cp good.state s_iter_10.solverstate.h5
    "$FORGE" s_iter_10.solverstate.h5 "$@" && "$FORGE" s_iter_10.solverstate.h5 seal || not_ok "forge_$name" "$*"
    refused "$name" "$want" "s_iter_10.solverstate.h5: $pattern" \
        $within train --solver=solver.prototxt --snapshot=s_iter_10.solverstate.h5
}
state many_names 3 '/learned_net has 100000 strings, expected one' text /learned_net 8 100000
state many_parts 3 '/parts has 100000 strings, expected one' text /parts 8 100000
state many_plans 3 '/plan has 100000 strings, expected one' text /plan 8 100000
state no_name 3 'holds no array /learned_net' delete /learned_net
state long_parts 3 '/parts is a text of 100000000 bytes, at most' text /parts 100000000 0
state variable_name 3 '/learned_net cannot be read as text' variable /learned_net s_iter_10.caffemodel.h5
state name_is_number 3 '/learned_net cannot be read as text' int /learned_net 5
state part_elsewhere 3 'its list of parts is broken' string /parts '../../../../dev/zero 5 0'
state part_missing 3 'its part none cannot be read' string /parts 'none 5 0'
state last_iter 3 '/iter is 9223372036854775807, expected 0 to' int /iter 9223372036854775807
state negative_iter 3 '/iter is -5, expected 0 to' int /iter -5
state iter_is_text 3 '/iter holds no numbers' string /iter 10
state iter_is_many 3 '/iter has 7 elements, expected 1' floats /iter 7
state iter_is_null 3 '/iter holds nothing' null /iter
state negative_step 3 '/current_step is -1, expected 0 to' int /current_step -1
state many_ranks 3 '/n_rank is 2147483647, expected 1 to' int /n_rank 2147483647
state no_ranks 3 '/n_rank is 0, expected 1 to' int /n_rank 0
state next_loss 3 '/next_loss is 99, expected 0 to' int /next_loss 99
state losses 3 '/loss_window has 4294967296 elements, expected at most' floats /loss_window 4294967296
state huge_history 3 '/history/momentum/.* has an impossible size' floats "/history/momentum/ip[0]" 4611686018427387904 8
state claimed_history 3 '/history/momentum/.* claims [0-9]* bytes, more than the file can hold' floats "/history/momentum/ip[0]" 1048576 1024
state axes_of_history 3 '/history/momentum/.* has 9 dimensions, at most 8' floats "/history/momentum/ip[0]" 1 1 1 1 1 1 1 1 1
state shape_of_history 2 '/history/momentum/.* has shape 3 \(3\), but ip\[0\] has' floats "/history/momentum/ip[0]" 3
state scale 3 '/loss_scale is -?nan, expected a positive number' double /loss_scale nan
mkfifo pipe
state history_in_pipe 3 '/history/momentum/.* lies in other files' external "/history/momentum/ip[0]" 8 "$PWD/pipe"
state link_to_pipe 3 '/learned_net is a link to another file' link /learned_net "$PWD/pipe" /x

# the newest set is taken, and one that is damaged is passed over
cp good.state s_iter_10.solverstate.h5
"$FORGE" s_iter_10.solverstate.h5 text /parts 8 100000 && "$FORGE" s_iter_10.solverstate.h5 seal
runs auto_passes_over 0 'snapshot skipped: s_iter_10.solverstate.h5: /parts has 100000 strings' \
    $within train --solver=solver.prototxt --iterations=1 --snapshot=auto --set=snapshot_after_train=false
is auto_logs_no_error test "$(grep -c '^E' out)" = 0
cp good.state s_iter_10.solverstate.h5
"$FORGE" s_iter_10.solverstate.h5 text /learned_net 8 100000 && "$FORGE" s_iter_10.solverstate.h5 seal
refused auto_is_checked 3 's_iter_10.solverstate.h5: /learned_net has 100000 strings' \
    $within train --solver=solver.prototxt --snapshot=auto

# states of Caffe
caffe() { # NAME EXIT-CODE PATTERN FORGE-ARGUMENTS...
    name=$1 want=$2 pattern=$3
    shift 3
    cp "$ROOT"/tests/golden/caffe/adam_h5_iter_4.solverstate.h5 caffe.solverstate.h5
    "$FORGE" caffe.solverstate.h5 "$@" || not_ok "forge_$name" "$*"
    refused "$name" "$want" "caffe.solverstate.h5: $pattern" \
        $within train --solver=caffe.prototxt --snapshot=caffe.solverstate.h5
}
cp "$ROOT"/tests/golden/caffe/adam_h5_iter_4.caffemodel.h5 .
cp "$ROOT"/tests/golden/caffe/net.prototxt caffe_net.prototxt
echo 'net: "caffe_net.prototxt" base_lr: 0.05 lr_policy: "fixed" max_iter: 8 type: "Adam" momentum: 0.9' >caffe.prototxt
caffe caffe_last_iter 3 '/iter is 9223372036854775807, expected 0 to' int /iter 9223372036854775807
caffe caffe_negative_iter 3 '/iter is -1, expected 0 to' int /iter -1
caffe caffe_many_names 3 '/learned_net has 100000 strings' text /learned_net 8 100000
caffe caffe_loop 3 '/history has groups more than' loop /history
caffe caffe_deep 3 '/history has groups more than' deep /history 5000
caffe caffe_shape 2 'history 0 has shape 7 \(7\), but' floats /history/0 7

# ---- weights
# weights NAME EXIT-CODE PATTERN FORGE-ARGUMENTS...: asked for by train and by convert
weights() {
    array=$1 code=$2 reason=$3
    shift 3
    cp good.weights forged.caffemodel.h5
    "$FORGE" forged.caffemodel.h5 "$@" || not_ok "forge_$array" "$*"
    refused "$array" "$code" "forged.caffemodel.h5: $reason" \
        $within train --solver=solver.prototxt --weights=forged.caffemodel.h5
    [ "$code" = 3 ] || return 0
    refused "${array}_converted" 3 "forged.caffemodel.h5: $reason" \
        $within convert model --from=forged.caffemodel.h5 --to=x.npz --force
}
weights claimed 3 '/data/ip/0 claims 4294967296 bytes, more than the file can hold' floats /data/ip/0 1048576 1024
weights impossible 3 '/data/ip/0 has an impossible size' floats /data/ip/0 0 4611686018427387904 4611686018427387904
weights one_chunk 3 '/data/ip/0 has compressed chunks of more than 512 MiB' chunk /data/ip/0 16384 16384
weights axes 3 '/data/ip/0 has 9 dimensions' floats /data/ip/0 1 1 1 1 1 1 1 1 1
weights are_text 3 '/data/ip/0 holds no numbers' text /data/ip/0 8 100000
weights variable 3 '/data/ip/0 holds no numbers' variable /data/ip/0 abc
weights null 3 '/data/ip/0 holds nothing' null /data/ip/0
weights in_pipe 3 '/data/ip/0 lies in other files' external /data/ip/0 8 "$PWD/pipe"
# a file that is there and would do is not opened either
cp good.weights other.h5
weights in_file 3 '/data/ip/0 is a link to another file' link /data/ip/0 other.h5 /data/ip/0
weights group_in_file 3 '/data/ip is a link to another file' link /data/ip other.h5 /data/ip
weights in_loop 3 '/data has groups more than' loop /data/ip/a
weights deep 3 '/data has groups more than' deep /data/a 5000
weights no_group 3 '/data is no group' int /data 5
weights other_shape 2 'blob 0 of layer "ip" has shape 3 \(3\) in the file' floats /data/ip/0 3
refused weights_from_pipe 3 'pipe: not a regular file' $within train --solver=solver.prototxt --weights=pipe
refused state_from_pipe 3 'pipe: not a regular file' $within train --solver=solver.prototxt --snapshot=pipe

# ---- data
cat >data_net.prototxt <<'END'
layer { name: "in" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "data.h5" batch_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
END
echo 'net: "data_net.prototxt" base_lr: 0.05 lr_policy: "fixed" max_iter: 2 snapshot_after_train: false' >data_solver.prototxt
data() { # NAME EXIT-CODE PATTERN FORGE-ARGUMENTS...
    name=$1 want=$2 pattern=$3
    shift 3
    rm -f data.h5
    "$FORGE" data.h5 create && "$FORGE" data.h5 floats /data 8 5 && "$FORGE" data.h5 floats /label 8 &&
        { [ $# = 0 ] || "$FORGE" data.h5 "$@"; } || not_ok "forge_$name" "$*"
    [ "$want" = 0 ] || { refused "$name" "$want" "data.h5:? ?$pattern" $within train --solver=data_solver.prototxt; return; }
    runs "$name" "$want" "$pattern" $within train --solver=data_solver.prototxt
}
data data_good 0 'Optimization Done'
data data_claimed 3 'data set "data" claims [0-9]* bytes, more than the file can hold' floats /data 8 1048576 1024
data data_rows 3 'data set "data" has an impossible size' floats /data 35184372088832 1
data data_empty_axis 3 'data set "data" has an impossible size' floats /data 8 0 1099511627776 1099511627776
data data_chunk 3 'data set "data" has compressed chunks of more' chunk /data 8 33554432
data data_text 3 'data set "data" holds no numbers' text /data 8 8
data data_variable 3 'data set "label" holds no numbers' variable /label abc
data data_axes 3 'data set "data" has 10 dimensions' floats /data 8 1 1 1 1 1 1 1 1 1
data data_number 3 'data set "label" has no rows' int /label 5
data data_link_to_pipe 3 'data set "label" is a link to another file' link /label "$PWD/pipe" /x
"$FORGE" other_data.h5 create && "$FORGE" other_data.h5 floats /label 8 || not_ok forge_other "$*"
head -c 32 /dev/zero >label.raw
data data_link 3 'data set "label" is a link to another file' link /label other_data.h5 /label
data data_external 3 'data set "label" lies in other files' external /label 8 label.raw
cp data_net.prototxt alone_net.prototxt
sed -i 's/batch_size: 4/& other_files: true/' data_net.prototxt
data data_link_allowed 0 'Optimization Done' link /label other_data.h5 /label
data data_external_allowed 0 'Optimization Done' external /label 8 label.raw
data data_pipe_allowed 3 'has no data set "label"' link /label "$PWD/pipe" /x
cp alone_net.prototxt data_net.prototxt
mkfifo data2.h5
sed 's/data.h5/data2.h5/' data_net.prototxt >data2_net.prototxt
sed 's/data_net/data2_net/' data_solver.prototxt >data2_solver.prototxt
refused data_from_pipe 3 'data2.h5: not a regular file' $within train --solver=data2_solver.prototxt
mkdir -p shots/a
mkfifo shots/a/1.png
echo 'a/1.png 0' >shots.txt
refused image_is_a_pipe 3 'cannot open shots/a/1.png: not a regular file' $within convert images --list=shots.txt --root=shots --to=shots_set
refused solver_is_a_pipe 3 'shots/a/1.png: not a regular file' $within train --solver=shots/a/1.png

# ---- words
printf 'the cat sat\nthe dog sat\n' >text.txt
runs words_made 0 '' "$CORTADO" convert text --from=text.txt --to=good_words.h5
words() { # NAME PATTERN FORGE-ARGUMENTS...
    name=$1 pattern=$2
    shift 2
    cp good_words.h5 words.h5
    "$FORGE" words.h5 "$@" || not_ok "forge_$name" "$*"
    refused "$name" 3 "words.h5.*$pattern" $within convert text --from=text.txt --to=x.h5 --vocabulary=words.h5 --force
}
words words_claimed 'vocabulary claims 1099511627776 bytes, more than' bytes /vocabulary 1099511627776
words words_floats 'vocabulary is no list of integers of 8 bits' floats /vocabulary 3
words words_text 'words holds no numbers' text /words 8 100000
words words_missing 'words is not there' delete /words
words words_axes 'words is no list of integers of 32 bits' floats /words 3 4

# ---- temporary names
echo untouched >victim
cp good.weights w.caffemodel.h5
for end in npz caffemodel caffemodel.h5; do
    ln -sf victim "linked.$end.tmp"
    runs "convert_past_link_$end" 0 'wrote' "$CORTADO" convert model --from=w.caffemodel.h5 --to="linked.$end"
    is "written_$end" test -f "linked.$end" -a ! -h "linked.$end"
done
is victim_untouched grep -qx untouched victim
# ---- some of the files of every kind that tests/long/hostile.sh makes
can_preload && loose= || loose=--loose
if command -v python3 >/dev/null; then
    # shellcheck disable=SC2086 # nothing, or an option
    python3 "$ROOT/tests/fuzz/hostile.py" --sample $loose >hostile || failed=1
    cat hostile
else
    skip hostile "no python3"
fi
finish
