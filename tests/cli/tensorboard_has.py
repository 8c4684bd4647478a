"""tensorboard_has.py FOLDER METRICS: TensorBoard's own reader finds in FOLDER each number of the train and test events
of METRICS, and nothing else. Of an iteration that a run did again the last counts. Prints how many there are."""
import json, math, struct, sys

from tensorboard.backend.event_processing import event_accumulator

folder, metrics = sys.argv[1:3]
f32 = lambda v: struct.unpack("f", struct.pack("f", v))[0]
wanted, first = {}, {}


def want(tag, step, value):
    points = wanted.setdefault(tag, {})
    for later in [s for s in points if s >= step]:
        del points[later]
    points[step] = float("nan") if value is None else value


def drop(step):
    for points in wanted.values():
        for later in [s for s in points if s >= step]:
            del points[later]


begins = False
for line in open(metrics):
    e = json.loads(line)
    begins = begins or e["event"] == "run"
    if e["event"] not in ("train", "test"):
        continue
    step = e["iter"]
    if begins:  # a run that goes on: what earlier ones had from its first event on is dropped
        drop(step)
        begins = False
    group = "train" if e["event"] == "train" else "test" if e["net"] == 0 else "test_%d" % e["net"]
    for key, v in e.items():
        if key in ("event", "iter", "net", "time"):
            continue
        if key == "compression":
            for k, x in v.items():
                if k != "parameters":
                    want("compression/" + k, step, x)
        elif key == "outputs":
            for k, x in v.items():
                for i, y in enumerate(x if isinstance(x, list) else [x]):
                    want("%s/%s%s" % (group, k, "/%d" % i if isinstance(x, list) else ""), step, y)
        else:
            want("%s/%s" % (group, key), step, v)

board = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0})
board.Reload()
tags = {t for t in board.Tags()["scalars"] if board.Scalars(t)}
wanted = {t: p for t, p in wanted.items() if p}
assert tags == set(wanted), (sorted(tags - set(wanted)), sorted(set(wanted) - tags))
n = 0
for tag, points in wanted.items():
    got = {s.step: s.value for s in board.Scalars(tag)}
    assert set(got) == set(points), (tag, got, points)
    for step, v in points.items():
        same = math.isnan(got[step]) if math.isnan(v) else math.isclose(got[step], f32(v), rel_tol=2e-7, abs_tol=1e-37)
        assert same or (math.isnan(v) and math.isinf(got[step])), (tag, step, got[step], v)
        n += 1
print(n, "numbers in", len(wanted), "curves")
