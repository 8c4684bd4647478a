#!/usr/bin/env python3
"""What communication a training step can at best not hide.

    overlap_theory.py PROFILE off|backward|both RANKS RATE [WIRE_BYTES_PER_ELEMENT]

PROFILE is what `cortado time --json` wrote: the real list of steps, when each gradient gets ready,
which forward waits for it, and how long each layer took with the transfer's own load on the cores.
RATE is that of a host's link in bits/s, each way, as `tc` counts it (frames of 1514 bytes carry 1448).

The link is one resource. The sum of a gradient of b bytes needs it for 2 (P - 1) / P b / rate, the
least that any allreduce sends. It may start when the gradient is ready, must have ended and the
weights be updated when the forward reads them, and of those ready the one that forward reads first
has the link (which is best: earliest deadline first); no latency, any gradient can be cut anywhere.
`off`: nothing starts before backward has ended. `off`, `backward`: forward starts after the last.

The main thread's time that the list of layers does not hold (it moves messages, adds, waits for data)
is spread over the layers in proportion to theirs. Prints milliseconds a step:
    step  exposed  compute  communication  least-exposed
"""
import json
import sys


def jobs_of(profile, ranks, rate, bytes_each):
    """Seconds of the link per parameter, and its share of the updates."""
    goodput = rate / 8 * 1448 / 1514
    count = [p["count"] for p in profile["params"]]
    link = [2 * (ranks - 1) / ranks * bytes_each * c / goodput for c in count]
    update = [profile["update_ms"] * 1e-3 * c / sum(count) for c in count]
    return link, update


def stretch(profile):
    """Factor by which layers' times make the whole compute of a step, updates apart."""
    layers = sum(s.get("ms", 0) for s in profile["forward"] + profile["backward"])
    rest = profile["step_ms"] - profile["comm_exposed_ms"] - profile["update_ms"]
    return rest / layers


def land(link, ready, order):
    """When each lands: one link, preemptive, the first in `order` of those ready goes first."""
    left, landed, now = list(link), {}, 0.0
    rank = {p: i for i, p in enumerate(order)}
    waiting = sorted(ready, key=lambda p: ready[p])
    active = []
    while waiting or active:
        if not active:
            now = max(now, ready[waiting[0]])
        while waiting and ready[waiting[0]] <= now:
            active.append(waiting.pop(0))
        p = min(active, key=lambda q: rank[q])
        until = ready[waiting[0]] if waiting else float("inf")
        if now + left[p] <= until:
            now += left[p]
            landed[p] = now
            active.remove(p)
        else:
            left[p] -= until - now
            now = until
    return landed


def steady_exposed(profile, mode, link, update):
    """Seconds that the main thread waits in a step that begins with its backward, at time 0, and
    ends with the next forward: nothing is under way when it ends, so all steps are alike."""
    factor = 1e-3 * stretch(profile)
    now, ready, waits = 0.0, {}, []
    for s in profile["backward"]:
        if s["kind"] == "ready":
            if s["param"] < len(link):
                ready[s["param"]] = now
        else:
            now += s["ms"] * factor
    if mode == "off":
        ready = {p: now for p in ready}
    need = [s["param"] for s in profile["forward"] if s["kind"] == "wait" and s["param"] < len(link)]
    need += [p for p in ready if p not in need]
    landed = land(link, ready, need)
    exposed = 0.0

    def wait(p):
        nonlocal now, exposed
        if p in waits or p not in landed:
            return
        waits.append(p)
        exposed += max(0.0, landed[p] - now)
        now = max(now, landed[p]) + update[p]

    if mode != "both":
        for p in sorted(landed, key=lambda q: landed[q]):
            wait(p)
    for s in profile["forward"]:
        if s["kind"] == "wait":
            wait(s["param"])
        else:
            now += s["ms"] * factor
    for p in list(landed):
        wait(p)
    return exposed


def main():
    if len(sys.argv) not in (5, 6) or sys.argv[2] not in ("off", "backward", "both"):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        profile = json.load(f)
    ranks, rate = int(sys.argv[3]), float(sys.argv[4])
    link, update = jobs_of(profile, ranks, rate, float(sys.argv[5]) if len(sys.argv) > 5 else 4.0)
    least = steady_exposed(profile, sys.argv[2], link, update)
    step, exposed = profile["step_ms"], profile["comm_exposed_ms"]
    print(f"{step:.2f} {exposed:.2f} {step - exposed:.2f} {1e3 * sum(link):.2f} {1e3 * least:.2f}")


if __name__ == "__main__":
    main()
