# Folders of runs written by hand, so that their figures are known: a/first with all that a page shows but pictures,
# b/first of a run that is not at its end. Sourced.
mkdir -p a/first b/first
cat >a/first/metrics.jsonl <<'EOF2'
{"event":"run","version":"1","net":"Tiny <b>&","host":"h1","ranks":2,"threads":3,"started":"2026-01-02","config":{"base_lr":0.1,"type":"SGD","momentum":0.9}}
{"event":"train","iter":10,"loss":2.5,"lr":0.1,"images_per_s":100,"wait_data_ms":1,"compute_ms":6,"comm_exposed_ms":3,"bytes_sent":4000000,"epoch":0.1,"time":1}
{"event":"train","iter":20,"loss":9,"lr":0.1,"images_per_s":300,"wait_data_ms":1,"compute_ms":6,"comm_exposed_ms":3,"bytes_sent":4000000,"epoch":0.2,"time":2}
{"event":"test","iter":20,"net":0,"outputs":{"accuracy":0.5,"loss":1.75,"each":[1,2]},"epoch":0.2,"time":2}
{"event":"test","iter":20,"net":1,"outputs":{"accuracy":0.25},"epoch":0.2,"time":2}
{"event":"run","version":"2","net":"Tiny <b>&","host":"h2","ranks":2,"threads":3,"started":"2026-01-03","config":{"base_lr":0.1,"type":"SGD","momentum":0.9}}
{"event":"train","iter":20,"loss":1.5,"lr":0.01,"images_per_s":200,"wait_data_ms":1,"compute_ms":6,"comm_exposed_ms":3,"bytes_sent":4000000,"epoch":0.2,"time":3}
{"event":"train","iter":30,"loss":null,"lr":0.01,"images_per_s":400,"wait_data_ms":1,"compute_ms":6,"comm_exposed_ms":3,"bytes_sent":4000000,"epoch":0.3,"time":4}
{"event":"test","iter":40,"net":0,"outputs":{"accuracy":0.75,"loss":1.25},"epoch":0.4,"time":5}
{"event":"compression","total":{"steps":4,"bytes_dense":34560,"bytes_coded":3488,"density":0.05,"filled":0.0934,"select_ms":0.02,"saved_ms":-3.07},"buckets":[{"bucket":"ip[0]","codec":"redsync","exchange":"allgather","bytes_dense":34560,"bytes_coded":3488}]}
{"event":"done","iter":40,"status":"finished","seconds":12.5,"checksum":"0"}
EOF2
cat >b/first/metrics.jsonl <<'EOF2'
{"event":"run","version":"2","net":"Tiny","host":"h2","ranks":4,"threads":3,"started":"2026-01-04","config":{"base_lr":0.2,"type":"SGD","momentum":0.9,"gamma":0.5}}
{"event":"train","iter":10,"loss":2.25,"lr":0.2,"images_per_s":800,"wait_data_ms":0,"compute_ms":5,"comm_exposed_ms":4,"bytes_sent":4000000,"epoch":0.1,"time":1}
EOF2
printf '{"event":"train","iter":20,"loss":1' >>b/first/metrics.jsonl # the run is not at its end
cat >a/first/report.json <<'EOF2'
{"classes":["grass","sand <i>","sea"],"samples":10,"accuracy":0.7,"loss":0.5,
"confusion":[[4,1,0],[0,3,0],[2,0,0]],"precision":[0.6667,0.75,0],"recall":[0.8,1,0],
"calibration":{"error":0.125,"bins":[{"from":0.5,"to":0.6,"samples":4,"probability":0.55,"accuracy":0.5},
{"from":0.9,"to":1.0,"samples":6,"probability":0.95,"accuracy":0.8333}]},
"worst":[{"file":"sea/<script>.jpg","sample":7,"true":"sea","predicted":"grass","probability":0.97}]}
EOF2
# two steps of rank 0, the second all forward, and one of rank 1; by hand: of rank 0's first 1000 us wait for data, 400
# of the wait for gradients are an update, buckets are under way from 5000 to 8800
python3 - <<'EOF2'
import json
rows = [(0, 0, "iteration", 0, 10000), (0, 0, "forward", 0, 3000), (0, 0, "wait for data", 0, 1000), (0, 0, "backward", 3000, 6000),
        (0, 0, "move messages", 6000, 6500), (0, 0, "backward", 6500, 7500), (0, 0, "wait for gradients", 7500, 9000),
        (0, 0, "update", 8000, 8400), (0, 1, "bucket", 5000, 8800), (0, 2, "bucket", 5500, 8200), (0, 1, "encode", 5000, 5100),
        (0, 0, "iteration", 10000, 14000), (0, 0, "forward", 10000, 14000), (0, 0, "test", 14000, 20000),
        (1, 0, "iteration", 100, 8100), (1, 0, "backward", 100, 8100), (1, 65, "device", 100, 9000)]
events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}]
events += [{"ph": "X", "pid": p, "tid": t, "ts": a, "dur": b - a, "name": "x<", "args": {"kind": k, "iteration": 10}} for p, t, k, a, b in rows]
json.dump({"displayTimeUnit": "ms", "traceEvents": events, "otherData": {"ranks": 2, "iterations": "10-11"}}, open("a/first/trace.json", "w"))
EOF2
