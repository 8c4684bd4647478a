# cortado report: the page of one and of several runs, from their own files alone; what stands in it; every error in
# one line.
. "$ROOT/tests/cli/lib.sh"
export PYTHONPATH="$ROOT/tests/cli"

# ---- runs as they are kept: the figures are known
. "$ROOT/tests/cli/made_runs.sh"
for p in 1 2; do runs page_$p 0 'a page of 1 run: p[0-9].html' $JOB $p "$CORTADO" report a/first --to=p$p.html; done
is same_on_2 cmp p1.html p2.html
is what_stands python3 - <<'EOF2'
from page_of import Page
p = Page("p1.html")
p.alone()
assert p.headings[0] == "first", p.headings
t = p.table("runs")
assert t["net"] == ["Tiny <b>&"] and t["host"] == ["h2"] and t["ranks"] == ["2"] and t["how it ended"] == ["finished"]
assert t["iterations"] == ["40"] and t["seconds"] == ["12.5"]
# the run went on from iteration 20: what was there counts no more
assert t["images/s, median"] == ["200"], t
assert t["test accuracy, last"] == ["0.75"] and t["test accuracy, least"] == ["0.5"] and t["test accuracy, most"] == ["0.75"]
assert t["test accuracy (net 1), last"] == ["0.25"] and t["test loss, last"] == ["1.25"]
assert p.charts[:4] == ["loss", "accuracy", "accuracy (net 1)", "learning rate"], p.charts
assert "Confusion, samples" in p.charts and "Calibration" in p.charts and "Where a step goes" in p.charts
assert p.rows("pairs") == [["sea", "grass", "2", "100"], ["grass", "sand <i>", "1", "20"]], p.rows("pairs")
assert p.rows("classes")[1] == ["sand <i>", "3", "0.75", "1"], p.rows("classes")
assert p.rows("mistakes") == [["sea/<script>.jpg", "7", "sea", "grass", "0.97"]]
assert "grass as sand <i>: 1, 20.0 %" in p.titles and "first, 10: 2.5" in p.titles and "first, 20: 1.5" in p.titles
assert "first, 20: 9" not in p.titles, "an event that was taken back"
assert p.rows("trace") == [["0", "7", "5.2", "0.5", "0.55", "0.25", "0.5", "1.9", "1.45"], ["1", "8", "8", "0", "0", "0", "0", "0", "0"]], p.rows("trace")
assert "Steps by the trace" in p.charts and "Communication of a step" in p.charts, p.charts
assert p.table("times")["exposed communication, ms"] == ["3"] and p.table("times")["MB that a rank sends"] == ["4"]
assert p.rows("compression")[0][:5] == ["ip[0]", "redsync", "allgather", "34.56", "3.488"], p.rows("compression")
assert p.rows("compression")[1][5] == "5" and p.rows("compression")[1][11] == "-3.07"
EOF2

runs two 0 'a page of 2 runs' "$CORTADO" report --to=two.html a/first b/first/metrics.jsonl
is side_by_side python3 - <<'EOF2'
from page_of import Page
p = Page("two.html")
p.alone()
t = p.table("runs")
assert t[""] == ["first", "metrics.jsonl"] and t["ranks"] == ["2", "4"], t
assert t["how it ended"] == ["finished", "goes on, or was cut off"] and t["loss, last"][1] == "2.25"
assert t["test accuracy, last"] == ["0.75", "\u2013"]
assert p.table("settings") == {"field": ["first", "metrics.jsonl"], "base_lr": ["0.1", "0.2"], "gamma": ["\u2013", "0.5"]}, p.table("settings")
EOF2
runs same_names 0 '' "$CORTADO" report --to=three.html a/first b/first
is told_apart python3 -c "
from page_of import Page
assert Page('three.html').table('runs')[''] == ['a/first', 'b/first']
"

# ---- a run that was made now
make_case
runs trains 0 'Optimization Done' $JOB 2 "$CORTADO" train --solver=solver.prototxt --run=r --compression=bf16 --trace=r/trace.json
runs scores 0 '' "$CORTADO" test --run=r --report=r/report.json
runs page_of_run 0 'r.html' "$CORTADO" report r --to=r.html
is as_the_run python3 - <<'EOF2'
import json
from page_of import Page
p = Page("r.html")
p.alone()
events = [json.loads(l) for l in open("r/metrics.jsonl")]
done, test = [e for e in events if e["event"] == "done"][-1], [e for e in events if e["event"] == "test"][-1]
t = p.table("runs")
assert t["iterations"] == [str(done["iter"])] and t["how it ended"] == ["finished"]
spans = [e for e in json.load(open("r/trace.json"))["traceEvents"] if e["ph"] == "X" and e["args"]["kind"] == "iteration"]
steps = [[e["dur"] / 1000 for e in spans if e["pid"] == rank] for rank in (0, 1)]
traced = p.rows("trace")
assert [r[0] for r in traced] == ["0", "1"] and len(steps[0]) == len(steps[1]) > 0, traced
for row, step in zip(traced, steps): # the parts are all of the step
    of = [float(v) for v in row[1:]]
    assert abs(of[0] / (sum(step) / len(step)) - 1) < 0.001 and abs(sum(of[1:6]) / of[0] - 1) < 0.002, (row, step)
    assert of[1] > 0 and 0 < of[7] <= of[6] <= of[0] * 1.001, row
assert abs(float(t["test accuracy, last"][0]) - test["outputs"]["accuracy"]) < 1e-5
scores = json.load(open("r/report.json"))
assert [int(float(r[1])) for r in p.rows("classes")] == [sum(row) for row in scores["confusion"]]
EOF2

# ---- a net without pictures says so
cat >dummy.prototxt <<'EOF2'
layer { name: "in" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 6 dim: 5 } shape { dim: 6 } data_filler { type: "gaussian" std: 1 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF2
echo 'net: "dummy.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 4 display: 2 random_seed: 5 solver_mode: CPU' >dummy_solver.prototxt
runs trains_dummy 0 'Optimization Done' "$CORTADO" train --solver=dummy_solver.prototxt --run=dummy
runs page_of_dummy 0 '' "$CORTADO" report dummy --to=dummy.html
is says_why python3 -c "
from page_of import Page
p = Page('dummy.html')
assert 'No pictures: the run has no net of pictures for use, in deploy.prototxt.' in p.text
assert 'For training the net reads no set' in p.text and 'For tests the net reads no set' in p.text and p.images == []
"

# ---- pictures: predictions are those of `predict` on the same files; filters, activations, statistics of the sets
if has png; then
    python3 "$ROOT/tests/cli/photographs.py" photos 8 40 0
    for i in 1 3 6; do mv "photos/sea/sea 0$i.png" "photos/grass/wet 0$i.png"; done # so there are mistakes
    "$CORTADO" convert images --from=photos --to=set --validation=0.5 --seed=3 --resize=40x40 >out 2>&1 || not_ok converts ''
    cat >net.prototxt <<'NET'
class_name: "grass <b>" class_name: "sand" class_name: "sea"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.004 mean_file: "set/mean.binaryproto" crop_size: 36 }
  data_param { source: "set/train_lmdb" backend: LMDB batch_size: 12 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.004 mean_file: "set/mean.binaryproto" crop_size: 36 }
  data_param { source: "set/test_lmdb" backend: LMDB batch_size: 4 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "conv2" type: "Convolution" bottom: "conv" top: "conv2"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
    echo 'net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 30 random_seed: 5 solver_mode: CPU' >solver.prototxt
    runs trains_pictures 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --run=p
    for n in 1 2; do runs pictures_$n 0 '' $JOB $n "$CORTADO" report p --to=p$n.html; done
    is pictures_on_2 cmp p1.html p2.html
    "$CORTADO" predict --run=p --format=json photos >predicted.json 2>out
    is pictures_are python3 - <<'EOF2'
import json
from page_of import Page
p = Page("p1.html")
p.alone()
said = {q["file"].split("/", 1)[1]: q for q in json.load(open("predicted.json"))["predictions"]}
assert len(p.figures) == 13, len(p.figures)
wrong = 0
for f in p.figures:
    name, what = f.split("\n")
    label, _, is_ = what.partition(", is ")
    predicted, score = label.rsplit(" ", 1)
    assert predicted == said[name]["class"] and abs(float(score) - said[name]["probability"]) < 1e-3, (f, said[name])
    true = {"grass": "grass <b>"}.get(name.split("/")[0], name.split("/")[0])
    assert (is_ or predicted) == true, f
    wrong += is_ != ""
sizes = [q[:2] for q in p.pictures()]
# the samples with a frame of 2; 6 filters of 5 x 5, ten times as large; 6 and 4 channels of 16 x 16 and 14 x 14 in rows of 8
assert sizes == [(44, 44)] * 13 + [(6 * 52 + 2, 54), (6 * 50 + 2, 52), (4 * 58 + 2, 60)], sizes
assert "6 of 6 filters of &#34;conv&#34;, 5 x 5" in p.text and "4 of 4 channels of &#34;conv2&#34;, 14 x 14" in p.text
assert "<code>snapshot_iter_30.caffemodel.h5</code>" in p.text
tables = p.rows("set")
assert [t[0] for t in tables] == ["11", "13"] and tables[0][1].startswith("3 40 40"), tables
import os
count = [len(os.listdir("photos/" + c)) for c in ("grass", "sand", "sea")]
titles = [t for t in p.titles if t.endswith(tuple("samples: %d" % n for n in range(20)))]
assert sum(int(t.rsplit(" ", 1)[1]) for t in titles) == sum(count) == 24, titles
assert all(float(r[1]) > 20 for r in p.rows("channels")) and len(p.rows("channels")) == 6
EOF2
    is sample_is_the_photograph python3 - <<'EOF2'
import struct, zlib
from page_of import Page, png
p = Page("p1.html")
for figure, (width, height, rows) in zip(p.figures, p.pictures()):
    photo = png(open("photos/" + figure.split("\n")[0], "rb").read())
    assert [r[6:-6] for r in rows[2:-2]] == photo[2], figure
EOF2
    runs scores_of_pictures 0 '' "$CORTADO" test --run=p --report=p/report.json
    runs with_mistakes 0 '' "$CORTADO" report p --to=mistakes.html
    is mistakes_are_those python3 -c "
import json
from page_of import Page
p = Page('mistakes.html')
worst = json.load(open('p/report.json'))['worst']
assert worst and len(p.figures) == 13 + min(12, len(worst)), (len(p.figures), len(worst))
for figure, w in zip(p.figures[13:], worst):
    name, what = figure.split(chr(10))
    said, true = what.split(', is ')
    assert name == w['file'] and said.rsplit(' ', 1)[0] == w['predicted'] and true == w['true'], (figure, w)
    assert abs(float(said.rsplit(' ', 1)[1]) - w['probability']) < 1e-3, (figure, w)
"
    rm p/report.json
    runs times 0 'images/s' "$CORTADO" time --model=p/net.prototxt --iterations=3 --limits=false --json=p/time.json
    runs page_with_times 0 '' "$CORTADO" report p --to=times.html
    is layers_are_those python3 -c "
import json
from page_of import Page
p = Page('times.html')
layers = {l['name']: l for l in json.load(open('p/time.json'))['layers']}
rows = p.rows('layers')
assert {'conv', 'conv2', 'ip'} <= {r[0] for r in rows} and len(rows) <= 20, rows
for r in rows:
    l = layers[r[0]]
    assert r[1] == l['type'] and abs(float(r[2]) - l['forward']['ms']) <= 1e-3 * l['forward']['ms'], (r, l)
    assert r[4] == l['forward'].get('engine', chr(0x2013)), (r, l)
assert 'Layers that take longest' in p.charts
"
    echo '{}' >p/time.json
    runs times_other 3 'p/time.json: no member "layers"; expected what cortado time --json writes' "$CORTADO" report p --to=x.html
    rm p/time.json
    mv set away
    runs without_sets 0 '' "$CORTADO" report p --to=gone.html
    is says_so python3 -c "
from page_of import Page
t = Page('gone.html').text
assert 'No pictures: the set of tests is not here: ' in t and 'The set of training is not here: <code>' in t and '<figure>' not in t
"
    "$CORTADO" convert images --from=photos --to=set --validation=0.5 --seed=3 --resize=30x30 >out 2>&1 || not_ok converts ''
    runs other_shape 3 'data: the sample is 30 x 30, pad 0, crop_size 36' "$CORTADO" report p --to=x.html
    rm -r set
    mv away set

    # ---- the same samples as one picture
    runs info_picture 0 'picture +grid.png: 11 samples, evenly spread' "$CORTADO" info --data=set/train_lmdb --picture=grid.png
    is grid python3 - <<'EOF2'
from page_of import png
width, height, rows = png(open("grid.png", "rb").read())
# 4 x 3 tiles of 40 x 40, twice as large, with a gap of 2 and 14 for the label
assert (width, height) == (4 * 82 + 2, 3 * 96 + 2), (width, height)
def inked(column, row):  # the places of a label's dots
    return [(x, y) for y in range(14) for x in range(82)
            if rows[2 + 96 * row + 80 + y][3 * (2 + 82 * column + x) : 3 * (3 + 82 * column + x)] == b"\x22\x22\x22"]
labels = [tuple(inked(i % 4, i // 4)) for i in range(11)]
assert len(set(labels)) == 3 and all(len(l) > 40 for l in labels), [len(l) for l in labels]
EOF2
    runs info_as_the_net 0 '' "$CORTADO" info --data=set/train_lmdb --picture=cropped.png --model=net.prototxt
    is cropped python3 -c "
from page_of import png
assert png(open('cropped.png', 'rb').read())[:2] == (4 * 74 + 2, 3 * 88 + 2)
"
    # the same of HDF5: digits, as a picture, and as the set of a run
    "$CORTADO" convert digits --to=h5 --count=60 --seed=3 --backend=hdf5 >out 2>&1
    "$CORTADO" convert digits --to=lmdb --count=60 --seed=3 >out 2>&1
    runs info_hdf5 0 'picture +h5.png: 60 samples, evenly spread' "$CORTADO" info --data=h5/train.h5 --picture=h5.png
    runs info_lmdb 0 '' "$CORTADO" info --data=lmdb/train_lmdb --picture=lmdb.png
    is same_picture cmp h5.png lmdb.png
    cat >h5net.prototxt <<'NET'
name: "H5"
layer { name: "in" type: "HDF5Data" top: "data" top: "label" include { phase: TRAIN }
  hdf5_data_param { source: "h5/train.h5" batch_size: 10 } }
layer { name: "in" type: "HDF5Data" top: "data" top: "label" include { phase: TEST }
  hdf5_data_param { source: "h5/test.h5" batch_size: 4 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 5 stride: 4 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
    echo 'net: "h5net.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: 3 random_seed: 5 solver_mode: CPU' >h5solver.prototxt
    runs h5_trains 0 'Optimization Done' "$CORTADO" train --solver=h5solver.prototxt --run=h5run
    runs h5_test 0 '' "$CORTADO" test --run=h5run --report=h5run/report.json
    runs h5_page 0 'a page of 1 run' "$CORTADO" report h5run --to=h5.html
    is h5_pictures python3 -c "
from page_of import Page
p = Page('h5.html')
p.alone()
assert len(p.figures) >= 12 and len(p.images) >= 12, (len(p.figures), len(p.images))
assert [r[0] for r in p.rows('set')] == ['60', '12'], p.rows('set')
assert p.charts.count('Classes') == 2, p.charts
"
    runs picture_of_nothing 2 'picture shows samples of a set: give it by --data' "$CORTADO" info --picture=x.png
    runs picture_nowhere 3 'nowhere/x.png' "$CORTADO" info --data=set/train_lmdb --picture=nowhere/x.png
    runs picture_no_layer 2 'none.prototxt; expected a layer of type Data, AnnotatedData, ImageData or HDF5Data in phase TRAIN' \
        sh -c "echo 'name: \"none\"' >none.prototxt; '$CORTADO' info --data=set/train_lmdb --picture=x.png --model=none.prototxt"
else
    skip pictures "built without libpng"
fi

# ---- what is wrong
runs no_runs 2 'cortado report: give folders of train --run, or files of --metrics' "$CORTADO" report --to=x.html
runs no_to 2 'cortado report needs --to=FILE.html' "$CORTADO" report r
runs no_place 3 'nowhere/x.html' "$CORTADO" report r --to=nowhere/x.html
runs no_run 3 'missing: No such file' "$CORTADO" report missing --to=x.html
mkdir empty
runs no_metrics 3 'empty/metrics.jsonl: No such file.*; expected the folder of a training with --run' "$CORTADO" report empty --to=x.html
echo '{"event":"run"}' >bad.jsonl
echo 'loss = 3' >>bad.jsonl
runs no_json 3 'bad.jsonl:2:4: not JSON' "$CORTADO" report bad.jsonl --to=x.html
echo '[1]' >list.jsonl
runs no_object 3 'list.jsonl:1: expected a JSON object' "$CORTADO" report list.jsonl --to=x.html
echo '{"iter":1}' >other.jsonl
runs no_event 3 'other.jsonl:1: no member "event"; expected an event of --metrics' "$CORTADO" report other.jsonl --to=x.html
: >none.jsonl
runs no_events 3 'none.jsonl: no event of a training in it' "$CORTADO" report none.jsonl --to=x.html
wrong() { # NAME PATTERN JSON: as the scores of a run
    rm -rf w
    cp -r r w
    echo "$3" >w/report.json
    runs "$1" 3 "$2" $JOB 2 "$CORTADO" report w --to=x.html
}
wrong scores_text 'w/report.json:1:6: not JSON' 'scores'
wrong scores_other 'w/report.json: no member "confusion"; expected what cortado test --report writes' '{"classes":["a"]}'
wrong scores_rows '"confusion" has 1 rows, expected one for each of 2 "classes"' '{"classes":["a","b"],"confusion":[[1,2]]}'
wrong scores_row 'row 1 of "confusion" has 1 numbers, expected 2' '{"classes":["a","b"],"confusion":[[1,2],[1]]}'
wrong scores_count '"confusion"\[0\]\[1\]: expected a count' '{"classes":["a","b"],"confusion":[[1,"x"],[1,2]]}'
wrong scores_name '"classes"\[1\]: expected a name' '{"classes":["a",2],"confusion":[[1,2],[1,2]]}'
rm -rf w && cp -r r w && echo '[]' >w/trace.json # as a run has it while it goes on
runs trace_to_come 0 '' "$CORTADO" report w --to=w.html
is no_trace_yet sh -c '! grep -q "Steps by the trace" w.html'
echo '{"spans":3}' >w/trace.json
runs trace_other 3 'w/trace.json: no member "traceEvents"; expected what cortado train --trace writes' "$CORTADO" report w --to=x.html
is nothing_written test ! -e x.html
finish
