#!/bin/sh
# Signals at many moments of trainings (tests/faults/signals.py): MOMENTS a mode and signal (20), under srun where root has Slurm.
# A second run goes on in RESULTS (build/signals.jsonl).
. "$ROOT/tests/cli/lib.sh"
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/signals.py" "${RESULTS:-$ROOT/build/signals.jsonl}" \
    --moments="${MOMENTS:-20}" >out 2>&1
is every_signal_ends_well test $? = 0
cat out
finish
