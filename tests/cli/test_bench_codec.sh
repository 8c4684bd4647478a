#!/bin/sh
# cortado bench codec: runs, writes JSON with true figures, refuses nonsense.
. "$ROOT/tests/cli/lib.sh"

small="--count=100000 --density=0.01 --repeat=2 --threads=1"
runs codec_table 0 'selected .* ratio' "$CORTADO" bench codec $small --log=error
runs codec_json 0 '' "$CORTADO" bench codec $small --json=c.json
is codec_rows sh -c '[ $(wc -l <c.json) -ge 7 ] && [ $(grep -vc "^{\"codec\":.*}$" c.json) = 0 ]'
for s in bf16 fp16 onebit powersgd int8 int4; do
    is codec_has_$s grep -q "\"codec\":\"$s\",\"selection\":\"none\"" c.json
done
for s in exact trimmed search sampled; do
    is codec_has_$s grep -q "\"selection\":\"$s\"" c.json
done
is codec_exact_selects_k sh -c '! grep "\"selection\":\"exact\"" c.json | grep -qv "\"selected\":1000,"'
is codec_history sh -c 'grep -q "\"exact\".*\"history\":true" c.json && grep -q "\"exact\".*\"history\":false" c.json'
if command -v python3 >/dev/null; then
    is codec_figures python3 -c '
import json
for line in open("c.json"):
    r = json.loads(line)
    assert abs(r["update_gbs"] * r["update_ms"] / (20e-6 * r["count"]) - 1) < 1e-2, r
    assert min(r["encode_ms"], r["decode_ms"], r["triad_gbs"]) > 0, r
    if r["selection"] == "none":
        assert r["selected"] == r["count"] and r["bytes"] <= {"bf16": 2, "fp16": 2, "onebit": 0.14, "powersgd": 0.11, "int8": 1.016, "int4": 0.516}[r["codec"]] * r["count"], r
        continue
    assert 1000 <= r["selected"] <= 2000 or (r["selection"] == "sampled" and r["selected"] >= 500), r
    assert r["bytes"] >= 2 * r["selected"], r'
fi
runs codec_one_selection 0 '^."codec":"redsync","selection":"search"' "$CORTADO" bench codec $small --selection=search --log=error --json
is codec_only_that sh -c '[ $(wc -l <out) = 1 ]'
runs codec_two_ranks 0 'topk +exact' $JOB 2 "$CORTADO" bench codec --count=1 --density=1 --repeat=1 --threads=1
runs codec_bad_count 2 'expected 1 to 4294967295' "$CORTADO" bench codec --count=0
runs codec_bad_repeat 2 'expected 1 to' "$CORTADO" bench codec --repeat=0
for d in 0 -1 1.5 nan x 0.1x; do
    runs codec_bad_density_$d 2 'expected a number over 0' "$CORTADO" bench codec --density=$d
done
runs codec_bad_option 2 'density' "$CORTADO" bench codec --densty=0.1
runs codec_bad_selection 2 'exact' "$CORTADO" bench codec --selection=sort
finish
