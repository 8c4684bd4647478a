#!/bin/sh
# Networks that go away between two hosts, for a while or for good (tests/faults/network.py); takes root and Open MPI.
# A second run goes on in RESULTS (build/network.jsonl).
. "$ROOT/tests/cli/lib.sh"
[ "$(id -u)" = 0 ] && command -v ip >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI' || {
    skip network "takes root, ip and Open MPI"
    finish
}
results=${RESULTS:-$ROOT/build/network.jsonl}
python3 "$ROOT/tests/faults/network.py" "$results" >out 2>&1
is every_job_goes_on_or_ends test $? = 0
cat out
finish
