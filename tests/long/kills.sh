#!/bin/sh
# Kills at the system calls of snapshots, in every mode of tests/faults/kills.py: KILLS a mode (50; "all": each call).
# A second run goes on in RESULTS (build/kills.jsonl).
. "$ROOT/tests/cli/lib.sh"
command -v strace >/dev/null || {
    echo "skip kills: no strace"
    exit 0
}
results=${RESULTS:-$ROOT/build/kills.jsonl}
[ "${KILLS:=50}" = all ] && most= || most=--most=$KILLS
# shellcheck disable=SC2086 # nothing, or an option
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/kills.py" "$results" $most >out 2>&1
is every_kill_goes_on test $? = 0
cat out
finish
