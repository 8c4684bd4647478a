#!/bin/sh
# Files made to hurt, of every kind that is read, through every verb that reads it: tests/fuzz/hostile.py.
. "$ROOT/tests/cli/lib.sh"
can_preload && loose= || loose=--loose
# shellcheck disable=SC2086 # nothing, or an option
python3 "$ROOT/tests/fuzz/hostile.py" $loose || failed=1
finish
