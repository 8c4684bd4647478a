# --trace: one file for all ranks, that programs can read, in which spans lie inside each other.
. "$ROOT/tests/cli/lib.sh"
make_case
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=snapshot=0"

# a checker: FILE RANKS FIRST LAST WORD...: the words are kinds of spans that every rank must have
cat >check.py <<'EOF'
import json, re, sys
file, ranks, first, last = sys.argv[1], *map(int, sys.argv[2:5])
trace = json.load(open(file))
spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
other = trace["otherData"]
assert other["ranks"] == ranks and other["lost"] == 0 and other["spans"] == len(spans), other
assert 0 <= other["clock_error_us"] < 1e6, other
assert {e["pid"] for e in spans} == set(range(ranks)), "ranks"
assert {e["args"]["iteration"] for e in spans} == set(range(first, last + 1)), "iterations"
rows = {}
for e in spans:
    assert e["ts"] >= 0 and e["dur"] >= 0, e
    rows.setdefault((e["pid"], e["tid"]), []).append(e)
for row in rows.values():  # what begins inside another ends inside it
    open_until = []
    for e in sorted(row, key=lambda e: (e["ts"], -e["dur"])):
        end = e["ts"] + e["dur"]
        while open_until and open_until[-1] <= e["ts"] + 0.0015:
            open_until.pop()
        assert not open_until or end <= open_until[-1] + 0.0015, ("not inside", e)
        open_until.append(end)
for word in sys.argv[5:]:
    have = {e["pid"] for e in spans if e["args"]["kind"] == word}
    assert have == set(range(ranks)), (word, have)
buckets = [e for e in spans if e["cat"] == "bucket"]
assert all(e["args"]["bytes"] > 0 and e["args"]["algorithm"] for e in buckets)
# a bucket of one step is under way on all ranks at some moment, if their clocks agree: the last to
# leave leaves before the first lands, as nobody has the sum before everybody has sent
slack = 2 * other["clock_error_us"]
for key in {(e["args"]["iteration"], e["args"]["bucket"]) for e in buckets}:
    same = [e for e in buckets if (e["args"]["iteration"], e["args"]["bucket"]) == key]
    assert len(same) == ranks, (key, len(same))
    assert max(e["ts"] for e in same) <= min(e["ts"] + e["dur"] for e in same) + slack, key
# a bucket leaves after the backward of the layers that its name tells, and has landed before their
# next forward reads the weights, and before the wait for one of its parameters ends
def end(e): return e["ts"] + e["dur"]
def of(kind, e, iteration):
    return [s for s in spans if s["args"]["kind"] == kind and s["pid"] == e["pid"] and s["args"]["iteration"] == iteration]
n_checked = 0
for e in buckets:
    i = e["args"]["iteration"]
    keys = set(re.findall(r"[\w/.-]+\[\d+\]", e["name"]))
    layers = {k[:k.index("[")] for k in keys}
    assert keys, e
    for b in of("backward", e, i):
        if b["name"] in layers:
            n_checked += 1
            assert e["ts"] >= end(b) - 0.001, ("leaves before it is ready", e, b)
    for f in of("forward", e, i + 1):
        assert f["name"] not in layers or f["ts"] >= end(e) - 0.001, ("read before it landed", e, f)
    for w in of("wait for gradients", e, i + 1):
        assert w["args"].get("parameter") not in keys or end(w) >= end(e) - 0.001, ("waited too short", e, w)
assert n_checked >= len(buckets), n_checked
EOF
checks() { # NAME FILE RANKS FIRST LAST WORD...
    name=$1
    shift
    command -v python3 >/dev/null || { skip "$name" "no python3"; return; }
    if python3 check.py "$@" >why 2>&1; then ok "$name"; else not_ok "$name" "$(tail -1 why)"; fi
}

runs trains 0 'trace of iterations 9 to 11: .* spans of 2 ranks' $JOB 2 $train --trace=t.json --trace_iterations=9-11
checks trace t.json 2 9 11 iteration forward backward bucket update 'wait for data' agree display
runs hosts 0 'spans of 4 ranks' $JOB 4 $train --trace=h.json --trace_iterations=9-12 --topology=4x1 --set=comm.bucket_mb=0.002
checks pretended_hosts h.json 4 9 12 bucket 'wait for gradients'
runs weights_in_files 0 '' $train --trace=f.json --trace_iterations=5-6 --set=memory.weights=FILE
checks files f.json 1 5 6 iteration forward backward update
# a net that ranks divide, with micro-batches
echo 'ranks: 2 global_batch: 12 micro_batches: 3
stage { first: "conv" last: "drop" rank: 0 } stage { first: "ip" last: "loss" rank: 1 }' >two.plan
runs stages 0 'trace of iterations 5 to 6: .* spans of 2 ranks' $JOB 2 $train --trace=p.json --trace_iterations=5-6 --parallel=two.plan
checks divided p.json 2 5 6 iteration forward backward update 'begin sum'
echo 'ranks: 2 global_batch: 12 stage { first: "conv" last: "loss" rank: 0 rank: 1 share: 8 share: 4 }' >shares.plan
runs shares 0 'trace of iterations 5 to 6: .* spans of 2 ranks' $JOB 2 $train --trace=s.json --trace_iterations=5-6 --parallel=shares.plan
checks shared s.json 2 5 6 iteration forward backward update bucket
runs codec 0 '' $JOB 3 $train --trace=c.json --trace_iterations=5-6 --compression=topk:density=0.1,min_bytes=1024
checks coded c.json 3 5 6 bucket encode decode
runs integers 0 '' $JOB 2 $train --trace=r.json --trace_iterations=5-6 --reproducible_sum --overlap=false
checks reproducible r.json 2 5 6 bucket encode decode 'wait for gradients'
runs others 0 '' $JOB 2 $train --trace=o.json --trace_iterations=0-19 --set=test_interval=5 --set=snapshot=4 --set=checksum_interval=3
checks everything o.json 2 0 19 test snapshot checksum
runs alone 0 'iterations 3 to 7' $train --trace=a.json
checks one_rank a.json 1 3 7 iteration forward backward update
runs times 0 'spans of 2 ranks' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=5 --limits=false --trace=m.json --trace_iterations=2-4
checks time m.json 2 2 4 iteration forward backward bucket

# a layer's sums over the ranks
sed '/name: "ip"/i layer { name: "y" type: "SyncBN" bottom: "conv" top: "y" }
s/bottom: "conv" top: "ip"/bottom: "y" top: "ip"/' net.prototxt >synced.prototxt
runs sums 0 'spans of 2 ranks' $JOB 2 "$CORTADO" time --model=synced.prototxt --iterations=5 --limits=false --trace=y.json --trace_iterations=2-4
checks sums_drawn y.json 2 2 4 iteration forward backward 'begin sum' 'wait for sum'

# with clip_gradients: gradients leave while backward goes on; the next forward runs its data layer and then
# waits for all of them and updates all weights, before it reads the first
cat >clipped.py <<'EOF2'
import json, sys
trace = json.load(open(sys.argv[1]))
spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
def end(e): return e["ts"] + e["dur"]
for rank in range(trace["otherData"]["ranks"]):
    for i in range(*map(int, sys.argv[2:4])):
        def of(kind, i): return sorted((e for e in spans if e["pid"] == rank and e["args"]["kind"] == kind and e["args"]["iteration"] == i), key=lambda e: e["ts"])
        bucket, backward, forward, update = of("bucket", i), of("backward", i), of("forward", i + 1), of("update", i + 1)
        assert len(bucket) > 1 and min(e["ts"] for e in bucket) < end(backward[-1]), ("leaves late", rank, i)
        assert len(update) == 1, ("updates", rank, i, update)
        reads = [f for f in forward if f["name"] in ("conv", "ip")]
        assert forward[0]["name"] == "in" and end(forward[0]) <= update[0]["ts"] + 0.001, ("data waits", rank, i)
        assert max(map(end, bucket)) <= update[0]["ts"] + 0.001, ("updated before all landed", rank, i)
        assert end(update[0]) <= reads[0]["ts"] + 0.001, ("read before the update", rank, i)
EOF2
runs clips 0 'spans of 2 ranks' $JOB 2 $train --set=clip_gradients=0.1 --trace=g.json --trace_iterations=9-12 \
    --set=comm.bucket_mb=0.002 --set=comm.progress=POLL --set=comm.tune_iterations=0
checks clipped g.json 2 9 12 bucket update forward
if command -v python3 >/dev/null; then
    python3 clipped.py g.json 9 12 >out 2>&1 && ok clipped_overlaps || not_ok clipped_overlaps "$(tail -1 out)"
fi

runs nothing_ran 0 'no iteration from 90 to 95 ran' $JOB 2 $train --trace=n.json --trace_iterations=90-95
for window in 5 5-4 -1-4 5-x 5- a; do
    runs window_$window 2 "trace_iterations=$window" $train --trace=w.json --trace_iterations=$window
done
runs window_alone 2 'without --trace' $train --trace_iterations=1-2
runs window_too_long 2 'too many' $train --trace=w.json --trace_iterations=0-99999999
runs no_folder 3 'nowhere/t.json' $JOB 2 $train --trace=nowhere/t.json
finish
