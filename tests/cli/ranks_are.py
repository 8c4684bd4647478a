"""ranks_are.py METRICS SAID [files]: what `check --parallel --json` says of each rank's memory in SAID is what
train planned and allocated, in the last line of METRICS; and whether something lies in files."""
import json
import sys

done = [json.loads(line) for line in open(sys.argv[1])][-1]
said = json.load(open(sys.argv[2]))["ranks"]
assert done["event"] == "done" and len(done["ranks"]) == len(said), done
for a, b in zip(done["ranks"], said):
    tiers = {t["tier"]: t["sum"] for t in b["memory"]["tiers"]}
    print(a, b)
    assert a["rank"] == b["rank"] and a["stage"] == b["stage"]
    assert a["memory_bytes"] == b["memory_bytes"] == tiers["host"] == a["allocated_bytes"] < a["resident_bytes"]
    assert ("file" in tiers) == (len(sys.argv) > 3), tiers
