#!/bin/sh
# Too little memory, shared memory, processes and threads (tests/faults/memory_limits.py), as root.
# A second run goes on in RESULTS (build/memory_limits.jsonl). CLASSES: those without known faults (docs/results/2026-11-29-faults.md).
. "$ROOT/tests/cli/lib.sh"
[ "$(id -u)" = 0 ] && [ -d /sys/fs/cgroup ] && unshare -m true 2>/dev/null || {
    skip memory_limits "no root, no control groups"
    finish
}
results=${RESULTS:-$ROOT/build/memory_limits.jsonl}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/memory_limits.py" "$results" --classes="${CLASSES:-killer/shm}" >out 2>&1
is every_limit_is_told test $? = 0
cat out
finish
