#!/bin/sh
# A training with a fault every minute (tests/faults/soak.py) for SECONDS_OF_SOAK (3600), and a server under load that misbehaves
# (tests/faults/soak_serve.py) for REQUESTS (1000000). A second run goes on in RESULTS.training.jsonl and RESULTS.serving.jsonl (build/soak).
. "$ROOT/tests/cli/lib.sh"
results=${RESULTS:-$ROOT/build/soak}
MPIRUN="$MPIRUN $MPIRUN_FLAGS" python3 "$ROOT/tests/faults/soak.py" "$results.training.jsonl" --seconds="${SECONDS_OF_SOAK:-3600}" >out 2>&1
is training_goes_on test $? = 0
cat out
python3 "$ROOT/tests/faults/soak_serve.py" "$results.serving.jsonl" --requests="${REQUESTS:-1000000}" \
    --load="${HTTP_LOAD:-$ROOT/build/mpicc/tests/bench/http_load}" >out 2>&1
is server_answers test $? = 0
cat out
finish
