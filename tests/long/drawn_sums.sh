#!/bin/sh
# Sums, halves of sums, broadcasts and sparse exchanges by chance, on machines by chance, at 2 to 9 ranks: CASES of SEED (200 of 1).
. "$ROOT/tests/cli/lib.sh"
tests=$(dirname "$CORTADO")/tests/mpi
for n in 2 3 4 5 6 7 8 9; do
    runs "sums_$n" 0 'PASSED' env CORTADO_DRAW="${SEED:-1} ${CASES:-200}" "$MPIRUN" $MPIRUN_FLAGS -np $n "$tests/test_drawn_sums"
    runs "sparse_$n" 0 'PASSED' env CORTADO_DRAW="${SEED:-1} $((${CASES:-200} / 10))" "$MPIRUN" $MPIRUN_FLAGS -np $n "$tests/test_sparse_allreduce"
done
finish
