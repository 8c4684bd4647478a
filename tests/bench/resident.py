"""The most that one process had resident, in MiB, against what `cortado time` plans for a net.
Usage: resident.py CORTADO SOLVER BATCH OPTIONS…: one row; a row that ends in ! is above what is allowed."""
import os, re, resource, subprocess, sys

cortado, solver, batch = sys.argv[1:4]
net = os.path.basename(os.path.dirname(solver))
command = [cortado, "time", "--solver=" + solver, "--set=batch_size=" + batch, "--set=memory.zero=0", "--iterations=3", "--limits=false"]
ran = subprocess.run(command + sys.argv[4:], capture_output=True, text=True)
planned = re.search(r"memory: ([0-9.]+) MiB of a rank are planned", ran.stderr)
if ran.returncode or not planned:
    sys.exit(net + ": " + ran.stderr[-600:])
planned, peak = float(planned.group(1)), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
allowed = 1.05 * planned + 80
print("%-14s %10.1f %10.1f %10.1f%s" % (net, planned, peak, allowed, "" if peak <= allowed else " !"))
