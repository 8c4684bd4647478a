"""Whether what `check` planned of a rank is what `train` then had: CHECK is of check --json, METRICS of train
--metrics. Usage: tiers_are.py CHECK METRICS [TIER USE BYTES]: and of this tier and use so many are planned.
"""
import json, sys

memory = json.load(open(sys.argv[1]))["memory"]
done = [e for e in map(json.loads, open(sys.argv[2])) if e["event"] == "done"][0]
tiers = {t["tier"]: t for t in memory["tiers"]}
uses = ("weights", "gradients", "states", "window", "activations", "logits", "communication")
host = sum(tiers["host"][use] for use in uses if use != "communication")
bad = done["ranks"][0]["allocated_bytes"] != host or done["ranks"][0]["memory_bytes"] != host
bad = bad or host <= 0 or tiers["host"]["logits"] <= 0
for tier in tiers.values():
    bad = bad or tier["sum"] != sum(v for k, v in tier.items() if k not in ("tier", "sum", "limit"))
if len(sys.argv) > 3:
    bad = bad or tiers[sys.argv[3]][sys.argv[4]] != int(sys.argv[5])
if bad:
    print(memory, done["ranks"])
sys.exit(bad)
