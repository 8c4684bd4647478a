# What stands for Caffe's smaller tools: extract, convert mean, the plot of a log, parse_log on our log.
. "$ROOT/tests/cli/lib.sh"
make_case
"$CORTADO" train --solver=solver.prototxt --set=test_interval=10 --metrics=m.jsonl >train.log 2>&1 || not_ok trains "training failed"
weights=s_iter_20.caffemodel.h5

# ---- extract
extract="$CORTADO extract --model=net.prototxt --weights=$weights"
runs extracts 0 'f.h5: conv, 60 6 12 12' $extract --blobs=conv,ip,label --to=f.h5 --iterations=3
runs extract_again 0 "g.h5: ip, 40 10" $extract --blobs=ip,accuracy --to=g.h5 --iterations=2
runs scalar 0 'g.h5: accuracy, 2 \(2\)' $extract --blobs=accuracy --to=g.h5 --iterations=2
runs unknown_blob 2 'no blob "cnv"; did you mean "conv"' $extract --blobs=cnv --to=g.h5
runs blob_without_name 2 '--blobs=ip,: a name is missing' $extract --blobs=ip, --to=g.h5
runs no_blobs 2 'needs --blobs' $extract --to=g.h5
runs no_weights 2 'needs --weights: the net has weights' "$CORTADO" extract --model=net.prototxt --blobs=ip --to=g.h5
runs no_folder 3 'nowhere' $extract --blobs=ip --to=nowhere/f.h5
runs no_batches 2 'at least 1' $extract --blobs=ip --to=g.h5 --iterations=0
runs one_rank_only 2 'one rank, not on 2' $JOB 2 $extract --blobs=ip --to=g.h5
# the classifier on the extracted features says what the net said: the same scores, the same loss
cat >on_ip.prototxt <<'NET'
layer { name: "f" type: "HDF5Data" top: "ip" top: "label" hdf5_data_param { source: "f.h5" batch_size: 20 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
NET
cat >on_conv.prototxt <<'NET'
layer { name: "f" type: "HDF5Data" top: "conv" top: "label" hdf5_data_param { source: "f.h5" batch_size: 20 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
NET
loss_of() { "$CORTADO" test --model=$1 --weights=$weights --iterations=3 2>&1 | sed -n 's/.*\] Loss: //p; s/.*\] accuracy = //p'; }
loss_of net.prototxt >whole
is loss_said test -s whole
loss_of on_conv.prototxt >out
is same_from_conv cmp out whole
runs check_on_ip 0 "HDF5Data" "$CORTADO" check --model=on_ip.prototxt --phase=TEST

# ---- convert mean: that of convert digits --mean
"$CORTADO" convert digits --to=again --count=600 --seed=3 --mean=want.binaryproto >out 2>&1
runs mean 0 'got.binaryproto: the mean of 600 images of 1 28 28' "$CORTADO" convert mean --from=data/train_lmdb --to=got.binaryproto
is mean_of_channel grep -q 'mean value of channel 0: ' out
is mean_is_equal cmp want.binaryproto got.binaryproto
runs mean_there 2 'got.binaryproto.*force' "$CORTADO" convert mean --from=data/train_lmdb --to=got.binaryproto
runs mean_nothing 3 'nowhere' "$CORTADO" convert mean --from=nowhere --to=x.binaryproto
"$CORTADO" convert digits --to=h5 --count=600 --seed=3 --backend=hdf5 >out 2>&1
runs mean_hdf5 0 'the mean of 600 images' "$CORTADO" convert mean --from=h5/train.h5 --backend=hdf5 --to=h5.binaryproto
is mean_hdf5_is_equal cmp want.binaryproto h5.binaryproto

# ---- the log
if command -v python3 >/dev/null; then
    export PYTHONPATH="$ROOT/tests/cli"
    runs page_of_log 0 'a page of 1 run' "$CORTADO" report train.log --to=log.html
    runs page_of_metrics 0 'a page of 1 run' "$CORTADO" report m.jsonl --to=metrics.html
    is log_is_metrics python3 -c "
from page_of import Page
log, metrics = Page('log.html'), Page('metrics.html')
log.alone()
assert 'loss' in log.charts and 'learning rate' in log.charts, log.charts
rows = log.table('runs')
assert rows['loss, last'] and rows['learning rate, last'] == metrics.table('runs')['learning rate, last'], rows
"
    runs page_of_nothing 3 'net.prototxt: no iteration in it; expected a file of --metrics, or a log' "$CORTADO" report net.prototxt --to=x.html
    printf 'a\0b' >nul.log
    runs page_of_bytes 3 'nul.log: no text; expected a file of --metrics, or a log' "$CORTADO" report nul.log --to=x.html
    # Caffe's own lines, of two nets that are tested
    cat >caffe.log <<'LOG'
I0101 10:00:00.000000     1 solver.cpp:330] Iteration 0, Testing net (#0)
I0101 10:00:00.100000     1 solver.cpp:397]     Test net output #0: accuracy <b> = 0.125
I0101 10:00:00.200000     1 solver.cpp:330] Iteration 0, Testing net (#1)
I0101 10:00:00.300000     1 solver.cpp:397]     Test net output #0: accuracy <b> = 0.25
I0101 10:00:01.000000     1 solver.cpp:218] Iteration 20 (9.5 iter/s, 2.1s/20 iters), loss = 1.5
I0101 10:00:01.000000     1 solver.cpp:237]     Train net output #0: loss = 1.5 (* 1 = 1.5 loss)
I0101 10:00:01.000000     1 sgd_solver.cpp:105] Iteration 20, lr = 0.01
I0101 10:00:02.000000     1 solver.cpp:218] Iteration 40 (9.5 iter/s, 2.1s/20 iters), loss = nan
LOG
    runs page_of_caffe 0 '' "$CORTADO" report caffe.log --to=caffe.html
    is caffe_curves python3 -c "
from page_of import Page
p = Page('caffe.html')
p.alone()
t = p.table('runs')
assert t['test accuracy <b>, last'] == ['0.125'] and t['test accuracy <b> (net 1), last'] == ['0.25'], t
assert 'caffe.log, 20: 1.5' in p.titles and t['learning rate, last'] == ['0.01'], t
"
    # what Caffe's parse_log.py, extract_seconds.py and parse_log.sh look for: these forms, and nothing else
    cat >forms.py <<'PY'
import re
import sys

HEAD = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+) +\d+ \S+\] ")
TRAIN = re.compile(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)")
TEST = re.compile(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)")
RATE = re.compile(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)")
solving, iteration, rows, rates, last = False, None, {}, {}, None
for line in open(sys.argv[1]):
    head = HEAD.match(line)
    if "Solving" in line:  # where seconds are counted from
        assert head, line
        solving = True
    at = re.search(r"Iteration (\d+)", line)
    if at:
        assert solving and head, line  # a time before each, and a start before the first
        iteration = int(at.group(1))
        rates.update({iteration: float(RATE.search(line).group(1))} if RATE.search(line) else {})
    for kind, form in (("train", TRAIN), ("test", TEST)):
        output = form.search(line)
        if output:
            assert head and iteration is not None, line
            rows.setdefault((kind, iteration), {})[output.group(2)] = float(output.group(3))
    if head:
        moment = tuple(int(v) for v in head.groups()[:5]) + (float("0." + head.group(6)),)
        assert last is None or moment >= last, line
        last = moment
assert ("train", 0) in rows and ("train", 10) in rows, rows
assert all(set(r) == {"loss"} for (kind, _), r in rows.items() if kind == "train"), rows
assert all(set(r) == {"loss", "accuracy"} for (kind, _), r in rows.items() if kind == "test"), rows
assert len([k for k in rows if k[0] == "test"]) >= 2 and rates[10] == 0.05, (rows, rates)
PY
    runs log_forms 0 '' python3 forms.py train.log
fi
if [ -n "${CORTADO_PARSE_LOG:-}" ] && command -v python3 >/dev/null; then
    # Caffe's own script, which an older Python wrote: print statements become calls, nothing else
    cat >run.py <<'PY'
import os, re, sys
p = sys.argv[1]
sys.path.insert(0, os.path.dirname(p))
text = re.sub(r"print ('[^']*' % \w+)", r"print(\1)", open(p).read())
sys.argv = sys.argv[1:]
exec(compile(text, p, "exec"))
PY
    runs parse_log 0 '' python3 -W ignore run.py "$CORTADO_PARSE_LOG" train.log .
    is parse_log_train grep -q '^NumIters,Seconds,LearningRate,loss' train.log.train
    is parse_log_test test "$(wc -l <train.log.test)" -ge 2
    is parse_log_rate grep -q '^10.0,.*,0.05,' train.log.train
else
    skip parse_log "CORTADO_PARSE_LOG names no copy of Caffe's parse_log.py"
fi
# ---- a folder of nets, some of which fail
if command -v python3 >/dev/null; then
    mkdir -p zoo/sub
    echo 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }' >zoo/sub/good.prototxt
    echo 'layer { name: "p" type: "Python" top: "x" python_param { module: "m" layer: "L" } }' >zoo/python.prototxt
    echo 'layer { name: "d" type: "Data" top: "x" data_param { source: "none" batch_size: 3 } }
layer { name: "r" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 0 dim: 4 } } }' >zoo/sub/small.pt
    echo 'net: "sub/small.pt" base_lr: 1 lr_policy: "fixed"' >zoo/solver.prototxt
    folder="python3 $ROOT/scripts/check_folder.py --cortado=$CORTADO"
    runs folder 1 '^3 of 4 files pass' $folder zoo --failed=failed.txt --data-shape=nowhere:3,3,3 --data-shape=s:1,2,2
    is folder_reason grep -Eq '^ +1  layer \(Python\): it runs in programs of Python alone' out
    is folder_failed grep -Eq '^zoo/python.prototxt	2	python.prototxt:1: layer "p"' failed.txt
    runs folder_other_shape 1 '^1 of 4 files pass' $folder zoo --data-shape=1,3,3
    rm zoo/python.prototxt
    runs folder_good 0 '^3 of 3 files pass' $folder zoo --data-shape=1,2,2
    runs no_such_folder 1 'nowhere is no folder' $folder nowhere
else
    skip folder "needs python3"
fi

finish
