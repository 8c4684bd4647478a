#!/bin/sh
# Kills at the calls on files of conversions, plans, stages, metrics: KILLS a mode (50; "all": each call).
# A second run goes on in RESULTS (build/kill_files.jsonl).
. "$ROOT/tests/cli/lib.sh"
can_preload || {
    skip kill_files "a sanitizer must come first"
    finish
}
results=${RESULTS:-$ROOT/build/kill_files.jsonl}
[ "${KILLS:=50}" = all ] && most= || most=--most=$KILLS
# shellcheck disable=SC2086 # nothing, or an option
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/kill_files.py" "$results" $most >out 2>&1
is every_command_goes_on test $? = 0
cat out
finish
