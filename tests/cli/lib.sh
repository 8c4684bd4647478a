# What the tests of the command share. Sourced by tests/cli/test_*.sh, which `make test-cli` runs
# with CORTADO (the program), MPIRUN, MPIRUN_FLAGS and ROOT (of the sources) set.
# A test prints "ok NAME", "not ok NAME" or "skip NAME: why"; scripts/run_test.sh counts them.
set -u
: "${CORTADO:?}" "${ROOT:?}" "${MPIRUN:=mpirun}" "${MPIRUN_FLAGS:=}"
unset CORTADO_SET CORTADO_LOG CORTADO_METRICS CORTADO_COMPRESSION CORTADO_ITERATIONS 2>/dev/null
# many tests train several times in one folder; test_overwrite.sh looks at what happens without
export CORTADO_OVERWRITE=true
# threads are few: the tests are about behaviour
export OMP_NUM_THREADS=1

work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-cli.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
failed=0

ok() { echo "ok $1"; }
not_ok() { # NAME WHY
    echo "not ok $1"
    echo "    $2"
    [ ! -f out ] || sed 's/^/    | /' out | tail -n 25
    failed=1
}
skip() { echo "skip $1: $2"; }
finish() { exit $failed; }

# runs NAME EXIT-CODE PATTERN COMMAND...: both streams go to ./out; PATTERN is grep -E, "" for none
runs() {
    name=$1 want=$2 pattern=$3
    shift 3
    timeout -k 5 "${LIMIT:-120}" "$@" >out 2>&1 </dev/null
    rc=$?
    if [ $rc != "$want" ]; then
        not_ok "$name" "exit code $rc instead of $want: $*"
    elif [ -n "$pattern" ] && ! grep -Eq -- "$pattern" out; then
        not_ok "$name" "no line matches: $pattern"
    else
        ok "$name"
    fi
}
# has FEATURE...: the program was built with them all
has() {
    built=" $("$CORTADO" info --limits=false 2>/dev/null | sed -n 's/^features //p') "
    for feature in "$@"; do case $built in *" $feature "*) ;; *) return 1 ;; esac; done
}
# in a job of N ranks: $JOB N COMMAND...
JOB="$MPIRUN $MPIRUN_FLAGS -np"
# is NAME CONDITION...: a shell command that must succeed
is() {
    name=$1
    shift
    if "$@"; then ok "$name"; else not_ok "$name" "false: $*"; fi
}
# Words by chance as data/warandpeace, for nets that read characters. Needs python3.
make_book() {
    mkdir book
    python3 - <<'EOP'
import random
random.seed(2)
words = "the prince went home and said nothing of war . peace snow".split()
for name, n in ("train", 4000), ("valid", 600):
    open(f"book/{name}.txt", "w").write(" ".join(random.choice(words) for _ in range(n)))
EOP
    runs text 0 '' "$CORTADO" convert text --from=book --to=data/warandpeace --tokenizer=char
}
# A small data set and net: digits, a tiny LeNet, solver.prototxt.
make_case() {
    "$CORTADO" convert digits --to=data --count=600 --seed=3 >out 2>&1 || { not_ok convert "digits"; finish; }
    cat >net.prototxt <<'EOF'
name: "Tiny"
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 }
  data_param { source: "data/train_lmdb" backend: LMDB batch_size: 16 } }
layer { name: "in" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 }
  data_param { source: "data/test_lmdb" backend: LMDB batch_size: 20 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 6 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" dropout_param { dropout_ratio: 0.2 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
EOF
    cat >solver.prototxt <<'EOF'
net: "net.prototxt"
test_iter: 2 test_interval: 20 test_initialization: false
base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005
max_iter: 20 display: 10 snapshot_prefix: "s" snapshot: 10
solver_mode: CPU random_seed: 7 deterministic: true
EOF
}

# LEVEL.so stands in front of an MPI and says that it gives only that thread level. It fails where mpicc makes no such library.
make_low_mpi() { # LEVEL
    cat >low.c <<'EOF'
#include <mpi.h>
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *given)
{
    int rc = PMPI_Init_thread(argc, argv, wanted, given);

    *given = LEVEL;
    return rc;
}
int MPI_Query_thread(int *given)
{
    *given = LEVEL;
    return MPI_SUCCESS;
}
EOF
    mpicc -shared -fPIC -DLEVEL="$1" low.c -o "$1.so" 2>/dev/null
}
# A sanitizer wants to be loaded first.
can_preload() { ! ldd "$CORTADO" | grep -Eq 'lib[at]san'; }
# make_hold: "./hold COMMAND…" is a command for which no file below a folder "slow" ever opens. Needs can_preload.
make_hold() {
    mkdir -p slow
    ${CC:-cc} -D_GNU_SOURCE -std=gnu11 -shared -fPIC -o stall.so "$ROOT/tests/faults/faults.c" -ldl
    printf '#!/bin/sh\nexec env LD_PRELOAD=%s/stall.so FAULT_IN=slow "FAULT=1 stall WCRSXI" "$@"\n' "$PWD" >hold
    chmod +x hold
}
