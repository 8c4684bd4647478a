# Signals before the first step: exit code 76 at once, from main's first lines on.
# alone: it waits for signals in the start
. "$ROOT/tests/cli/lib.sh"
make_case
# mask PID FIELD: SigBlk or SigCgt of a process, as hexadecimal digits
mask() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status" 2>/dev/null; }
# caught PID: USR1 (0x200) is blocked or has a handler, so main has begun
caught() { [ $(((0x0$(mask "$1" SigBlk) | 0x0$(mask "$1" SigCgt)) & 0x200)) != 0 ]; }
until_true() {
    for _ in $(seq 1200); do
        "$@" && return 0
        sleep 0.01
    done
    return 1
}
# ranks_of WORD: process ids of the ranks whose command line holds WORD
ranks_of() {
    for d in /proc/[0-9]*; do
        [ "$(cat "$d/comm" 2>/dev/null)" = cortado ] || continue
        tr '\0' ' ' <"$d/cmdline" 2>/dev/null | grep -q -- "$1" && echo "${d#/proc/}"
    done
}
# ends NAME PID CODE: PID ends within half a minute, with this code
ends() {
    (sleep 30; kill -9 "$2" 2>/dev/null) &
    guard=$!
    wait "$2"
    rc=$?
    kill $guard 2>/dev/null
    if [ $rc = "$3" ]; then ok "$1"; else not_ok "$1" "exit code $rc instead of $3"; fi
}

is help_lists_76 sh -c '"$CORTADO" --help | grep -q "76  stopped before the first step"'

can_preload || {
    skip start "a sanitizer must come first"
    finish
}
# as soon as main runs; a solver that never opens keeps the run in its start
make_hold
cp solver.prototxt net.prototxt slow
start() {
    ./hold "$CORTADO" train --solver=slow/solver.prototxt "$@" >out 2>&1 </dev/null &
    pid=$!
    until_true caught $pid
}
for s in USR1 TERM INT; do
    start
    kill -$s $pid
    ends early_$s $pid 76
    is early_${s}_told grep -q "^I SIG$s before the first step: stopped, nothing to save, exit code 76" out
done
# later in the start: the process waits for the solver, behind MPI_Init
for s in USR1 TERM; do
    start
    sleep 1
    kill -$s $pid
    ends later_$s $pid 76
done
# effects hold in the start, too: HUP asks for a snapshot, which nothing is there for; none ignores
start --sigint_effect=none
kill -HUP $pid
kill -INT $pid
sleep 0.5
is hup_waits kill -0 $pid
kill -TERM $pid
ends term_after_hup $pid 76
# one rank of a job ends the job
$JOB 2 ./hold "$CORTADO" train --solver=slow/solver.prototxt --set=snapshot_prefix=pair >out 2>&1 </dev/null &
pid=$!
both() { [ "$(ranks_of snapshot_prefix=pair | wc -l)" = 2 ]; }
until_true both
rank=$(ranks_of snapshot_prefix=pair | tail -1)
until_true caught "$rank"
kill -USR1 "$rank"
ends job_ends $pid 76

# a launcher's TERM to the others, where one fails, is not told as a stop
runs failure_is_no_stop 2 '^E' $JOB 2 "$CORTADO" train --solver=solver.prototxt --snapshot=no.h5 --weights=no.h5
is no_stop_is_told test "$(grep -c 'before the first step' out)" = 0

# from the first step on a stop is a snapshot and 75 as ever; a resumed run has its own first step
"$CORTADO" train --solver=solver.prototxt --iterations=100000 --set=snapshot_prefix=run --set=display=20 \
    --set=test_interval=1000000 --set=snapshot=0 >log 2>&1 </dev/null &
pid=$!
trains() { grep -q 'Iteration 20 ' log; }
until_true trains
# no thread has the mask of the start (HUP, INT, USR1, USR2, TERM), the main thread none
cat /proc/$pid/task/*/status | sed -n 's/^SigBlk:[[:space:]]*//p' >masks
is main_unblocked test "$(mask $pid SigBlk)" = 0000000000000000
is no_thread_has_the_start_mask test "$(grep -c '4a03$' masks)" = 0
kill -USR1 $pid
ends run_ends $pid 75
is run_left_a_set test -n "$(ls run_iter_*.solverstate.h5 2>/dev/null)"

# programs that we start get no mask: a stand-in for Graphviz's notes its own
mkdir bin
cat >bin/dot <<'END'
#!/bin/sh
sed -n 's/^SigBlk:[[:space:]]*//p' /proc/self/status >mask
END
chmod +x bin/dot
PATH=$PWD/bin:$PATH "$CORTADO" check --model=net.prototxt --phase=TEST --dot=net.svg >out 2>&1
is dot_unblocked test "$(cat mask 2>/dev/null)" = 0000000000000000
# verbs without steps keep the default actions
./hold "$CORTADO" time --model=slow/net.prototxt >out 2>&1 </dev/null &
pid=$!
sleep 1
kill -TERM $pid
ends time_ends $pid 143

# the job file puts the job back into the queue after 75 and 76, and after nothing else
cat >bin/srun <<'END'
#!/bin/sh
exit "$RC"
END
cat >bin/scontrol <<'END'
#!/bin/sh
echo "$@" >>requeued
END
chmod +x bin/srun bin/scontrol
for rc in 0 2 6 75 76; do
    RC=$rc SLURM_JOB_ID=4$rc PATH=$PWD/bin:$PATH bash "$ROOT/scripts/slurm/train.sbatch" >out 2>&1
    is job_file_$rc test $? = $rc
done
is requeued_after_75_and_76 test "$(cat requeued)" = "requeue 475
requeue 476"

# the same of PBS, whose file of nodes has a line a rank; the alarm stops a job that runs long
cat >bin/launcher <<'END'
#!/bin/sh
echo "$@" >started
[ "$RC" = long ] || exit "$RC"
trap 'exit 75' USR1
while :; do sleep 0.1; done
END
cat >bin/qrerun <<'END'
#!/bin/sh
echo "$@" >>rerun
END
chmod +x bin/launcher bin/qrerun
printf 'a\na\nb\nb\n' >nodes
for rc in 0 2 6 75 76; do
    RC=$rc PBS_JOBID=4$rc PBS_NODEFILE=nodes MPIRUN=launcher PATH=$PWD/bin:$PATH bash "$ROOT/scripts/pbs/train.pbs" >out 2>&1
    is pbs_file_$rc test $? = $rc
done
is pbs_starts_a_rank_a_line grep -q '^-np 4 .*cortado train --solver=solver.prototxt --snapshot=auto' started
RC=long SECONDS_BEFORE_STOP=0.5 PBS_JOBID=5 PBS_NODEFILE=nodes MPIRUN=launcher PATH=$PWD/bin:$PATH bash "$ROOT/scripts/pbs/train.pbs" >out 2>&1
is pbs_alarm test $? = 75
is pbs_runs_again test "$(cat rerun)" = "475
476
5"
PBS_JOBID=5 bash "$ROOT/scripts/pbs/train.pbs" >out 2>&1
is pbs_needs_a_job grep -q 'PBS_NODEFILE: this is no job of PBS' out
# two ranks of a launcher that MPI does not know
if command -v mpirun >/dev/null; then
    printf 'a\na\n' >nodes
    cat >bin/singles <<'END'
#!/bin/sh
shift 2
PMI_SIZE=2 exec "$@"
END
    chmod +x bin/singles
    PBS_JOBID=6 PBS_NODEFILE=nodes MPIRUN=singles CORTADO=$CORTADO PATH=$PWD/bin:$PATH bash "$ROOT/scripts/pbs/train.pbs" >out 2>&1
    is pbs_launch_is_checked test $? = 4
fi
finish
