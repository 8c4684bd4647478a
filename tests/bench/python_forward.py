"""Forwards of a net through the Python package beside those of `cortado time --phase=TEST`: pairs, one after the other.
Usage: python_forward.py CORTADO [MODEL [BATCH [PAIRS [FORWARDS]]]], with cortado to be imported; nothing else runs meanwhile.
A row a pair: medians in ms, and Python's over the verb's; then the median of these with its 95 % interval, the least and largest. A forward of Python
has in it that the picture is written, and the outputs are taken; the verb's is a step of its own loop. OMP_NUM_THREADS counts for
both. The verb may run other kernels of OpenBLAS, which it then says: give OPENBLAS_CORETYPE to both."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import cortado

from paired import median_interval

program = sys.argv[1]
model, batch, pairs, forwards = (sys.argv[2:] + ["models/resnet50/deploy.prototxt", "8", "40", "5"][len(sys.argv) - 2:])[:4]
WARM = 3


def verb():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "time.json")
        command = [program, "time", "--model=" + model, "--phase=TEST", "--set=batch_size=" + batch, "--iterations=" + forwards,
                   "--limits=false", "--json=" + out]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(ran.stderr[-600:])
        with open(out) as f:
            return statistics.median(json.load(f)["step_ms_samples"])


def package(text):
    """A new net each time, as the verb has: where a net's memory happens to lie changes its speed."""
    net = cortado.Net.from_text(text)
    name = net.inputs[0]
    picture = numpy.random.default_rng(1).standard_normal(net.blobs[name].data.shape, dtype=numpy.float32)
    samples = []
    for i in range(WARM + int(forwards)):
        start = time.perf_counter()
        net.blobs[name].data[...] = picture
        net.forward()
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples[WARM:])


with open(model) as f:
    text, n = re.subn(r"(input_param \{ shape \{ dim: )\d+", r"\g<1>" + batch, f.read())
if n != 1:
    sys.exit(model + ": expected one Input with one shape")
print(f"{model}, batch {batch}, {forwards} forwards a run, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}")
ratios = []
for pair in range(int(pairs)):
    if pair % 2 == 0:
        v, p = verb(), package(text)
    else:
        p, v = package(text), verb()
    ratios.append(p / v)
    print(f"{pair + 1:4d} verb {v:9.3f}  python {p:9.3f}  ratio {p / v:.4f}", flush=True)
median, low, high = median_interval(ratios)
print(f"python / verb: median {median:.4f}, 95 % interval {low:.4f} to {high:.4f}; pairs {min(ratios):.4f} to {max(ratios):.4f}")
