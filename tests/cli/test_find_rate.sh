#!/bin/sh
# cortado find_rate: steps at rates that rise; what it suggests, and that nothing stays.
. "$ROOT/tests/cli/lib.sh"
make_case
echo 'best { metric: "accuracy" } patience: 2 max_epoch: 0.1 snapshot_minutes: 1e-6 warmup { iterations: 5 start_factor: 0.1 } average { type: EMA }' >>solver.prototxt
find="$CORTADO find_rate --solver=solver.prototxt --global_batch_size=16"
cat >rule.py <<'EOP'
# rule.py CSV JSON FROM TO STEPS: rates rise by one factor, means and suggestion are what the docs say.
import json, math, sys
rows = [l.split(",") for l in open(sys.argv[1]).read().split("\n")[1:] if l]
rate, loss, mean = ([float(r[k]) for r in rows] for k in range(3))
first, last, steps = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
h, n = max(1, steps // 20), len(rate)
assert n <= steps
for i in range(n):
    assert abs(rate[i] / (first * (last / first) ** (i / (steps - 1))) - 1) < 1e-4, (i, rate[i])
    near = [v for v in loss[max(0, i - h):i + h + 1] if math.isfinite(v)]
    assert abs(mean[i] - sum(near) / len(near)) < 1e-6 * abs(mean[i]), (i, mean[i])
good = max(i for i in range(n) if math.isfinite(loss[i]))
least = min(range(good + 1), key=lambda i: (mean[i], i))
def slope(i):
    a, b = max(0, i - h), min(good, i + h)
    return (mean[b] - mean[a]) / math.log(rate[b] / rate[a])
steep = min(range(h, least + 1), key=lambda i: (slope(i), i), default=None)
if steep is not None and slope(steep) >= 0: steep = None
o = json.load(open(sys.argv[2]))
assert (o["steepest"] is None) == (steep is None) and (steep is None or abs(o["steepest"] / rate[steep] - 1) < 1e-5), o["steepest"]
want = None if steep is None else rate[least] / 10
assert (o["suggested"] is None) == (want is None) and (want is None or abs(o["suggested"] / want - 1) < 1e-5), (o["suggested"], want)
assert len(o["points"]) == n and abs(o["least"]["rate"] / rate[least] - 1) < 1e-5 and o["mean_over"] == 2 * h + 1
print(want)
EOP
sed -i '/Dropout/d' net.prototxt
: >agree.py
ls >before
for p in 1 2; do
    runs finds_$p 0 'suggested base_lr: ' $JOB $p $find --csv=c$p.csv --json=c$p.json --plot=p$p.svg
    is rule_$p python3 rule.py c$p.csv c$p.json 1e-6 10 100
    is plot_$p python3 -c "import xml.dom.minidom as x; x.parse('p$p.svg')"
    is table_$p [ "$(grep -c '^ *[0-9.e-]* *[0-9.]* *[0-9.]*$' out)" -ge 20 ]
done
cat >agree.py <<'EOP'
# Samples are the same whatever the number of ranks; sums differ in their last bits, which small rates keep small.
a, b = ([float(l.split(",")[1]) for l in open(f).read().split()[1:]] for f in ("c1.csv", "c2.csv"))
print(max(abs(x - y) for x, y in zip(a[:50], b[:50])))
assert all(abs(x - y) < 1e-4 for x, y in zip(a[:50], b[:50])), (a[:3], b[:3])
EOP
is ranks_agree python3 agree.py
rm c1.* c2.* p1.svg p2.svg
ls >after
grep -v '^before$\|^after$\|^out$' before >b
grep -v '^before$\|^after$\|^out$\|^b$' after >a
is nothing_stays cmp a b

# the rate that it suggests teaches the net more than the one it began with
runs range 0 '' $find --json=r.json --csv=r.csv --from=1e-4 --to=1 --iterations=60
is rule_of_range python3 rule.py r.csv r.json 1e-4 1 60
rate=$(python3 rule.py r.csv r.json 1e-4 1 60)
loss() { "$CORTADO" train --solver=solver.prototxt --set=base_lr="$1" --set=max_epoch=0 --iterations=40 --set=patience=0 2>&1 | sed -n 's/.*Iteration 40, loss = //p'; }
is teaches python3 -c "import sys; assert float(sys.argv[1]) < 0.7 * float(sys.argv[2]), sys.argv" "$(loss "$rate")" "$(loss 1e-4)"

# it stops where the loss is far off, and says where there is nothing to suggest
runs diverges 0 'diverged at ' $find --to=1e5 --json=d.json --csv=d.csv
is rule_diverged python3 rule.py d.csv d.json 1e-6 1e5 100
is stopped_early [ "$(wc -l <d.csv)" -lt 101 ]
runs too_low 0 'the loss still falls at 0.02: a higher --to tells more' $find --from=0.019 --to=0.02 --iterations=40
echo 'layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 } data_filler { value: 0 } data_filler { value: 0 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "z" inner_product_param { num_output: 3 bias_term: false } }
layer { name: "loss" type: "EuclideanLoss" bottom: "z" bottom: "y" top: "loss" }' >flat.prototxt
runs flat 0 'no base_lr suggested: the loss does not fall' "$CORTADO" find_rate --solver=solver.prototxt --set=net=flat.prototxt --json=f.json
is no_rate grep -q '"suggested":null' f.json

for bad in 'from=0:--from=0: expected a learning rate over 0' 'to=x:--to=x: expected a learning rate over 0' 'from=20:--from=20 is not below --to=10' 'iterations=9:--iterations=9: expected 10 to 100000 steps'; do
    runs "refuses_${bad%%:*}" 2 "${bad#*:}" $find --"${bad%%:*}"
done
runs no_solver 2 'cortado find_rate needs --solver=FILE' "$CORTADO" find_rate
runs not_writable 3 'nowhere' $find --csv=nowhere/c.csv
finish
