# A rank that crashes, a rank that is frozen, a stderr that nobody reads: the job ends.
# long: it waits for watchdogs
. "$ROOT/tests/cli/lib.sh"
make_case
wait_for() { # PATTERN FILE
    for _ in $(seq 1200); do
        grep -q "$1" "$2" 2>/dev/null && return 0
        sleep 0.05
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
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12"
long="--iterations=10000000 --set=display=100 --set=snapshot=0 --set=test_interval=100000000"
# ends NAME PID LOG CODE...: PID ends within a minute, with one of these
ends() {
    name=$1 pid=$2 log=$3
    shift 3
    (sleep 60; kill -9 "$pid" 2>/dev/null) &
    guard=$!
    wait "$pid"
    rc=$?
    kill $guard 2>/dev/null
    cp "$log" out
    for want in "$@"; do
        [ $rc = "$want" ] && ok "$name" && return
    done
    not_ok "$name" "exit code $rc instead of $*"
}

# each signal of a crash, sent to one rank of two
for pair in SEGV:139 ABRT:134 BUS:135 FPE:136 ILL:132; do
    s=${pair%:*}
    $JOB 2 $train $long --set=snapshot_prefix=crash_$s >crash_$s.log 2>&1 </dev/null &
    pid=$!
    wait_for 'Iteration 100 ' crash_$s.log
    rank=$(ranks_of snapshot_prefix=crash_$s | tail -1)
    kill -$s "$rank"
    ends crash_$s $pid crash_$s.log "${pair#*:}"
    is line_of_$s grep -Eq "^E rank [01] on .*: process $rank ends by SIG$s, sent by process [0-9]+ in " out
    is alone_speaks_of_$s test "$(grep -c '^E' out)" = 1
    is no_trace_of_mpi_$s test "$(grep -c 'Process received signal' out)" = 0
done
for n in 1 2 3; do
    [ -z "$(ranks_of snapshot_prefix=crash_)" ] && break
    sleep 1
done
is nobody_is_left test -z "$(ranks_of snapshot_prefix=crash_)"

# alone, too: a shell sees the signal
"$CORTADO" train --solver=solver.prototxt $long --set=snapshot_prefix=alone >alone.log 2>&1 </dev/null &
pid=$!
wait_for 'Iteration 100 ' alone.log
kill -SEGV $pid
ends crash_alone $pid alone.log 139
is line_of_one grep -Eq "^E process $pid ends by SIGSEGV, sent by process" out

# stderr is a pipe that is full and that nobody reads: the watchdog ends the rank all the same.
# The other end stays open in this shell, and a frozen rank 1 keeps rank 0 waiting.
mkfifo full
exec 9<>full
$MPIRUN $MPIRUN_FLAGS -np 2 sh -c "exec $train $long --set=watchdog_seconds=4 --set=snapshot_prefix=full 2>full" >full.log 2>&1 &
pid=$!
for _ in $(seq 600); do # until it trains; then nobody reads any more
    read -r line <&9 || break
    case $line in *'Iteration 100 '*) break ;; esac
done
dd if=/dev/zero of=full bs=4096 oflag=nonblock count=64 2>/dev/null
dd if=/dev/zero of=full bs=1 oflag=nonblock count=8192 2>/dev/null
stopped=$(ranks_of snapshot_prefix=full | tail -1)
kill -STOP "$stopped"
ends full_pipe $pid full.log 6
kill -CONT "$stopped" 2>/dev/null
# a crash does not wait for a reader, either
"$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=full2 $long --set=display=0 >full.log 2>full &
pid=$!
sleep 2
kill -SEGV $pid
ends crash_full_pipe $pid full.log 139
exec 9>&-

# whoever reads the log may end first: the training goes on
("$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=unread --set=display=1 --iterations=200 2>&1
    echo $? >unread.code) | head -n 1 >out
is reader_ends test "$(cat unread.code)" = 0
is reader_ends_and_set_is_there test -s unread_iter_200.solverstate.h5

# a rank that is frozen before MPI_Init, and one between MPI_Init and the first step
$MPIRUN $MPIRUN_FLAGS -np 1 $train --start_seconds=3 --set=snapshot_prefix=init : \
    -np 1 sh -c "kill -STOP \$\$; exec $train --start_seconds=3 --set=snapshot_prefix=init" >init.log 2>&1 </dev/null &
pid=$!
ends frozen_before_init $pid init.log 6
is frozen_in_init_is_told grep -Eq '^E.*no progress for 3 s in the start: ' out
# rank 0 waits for the text of the solver, so rank 1 waits for rank 0
if can_preload; then
    make_hold
    cp solver.prototxt slow
    $JOB 2 ./hold $CORTADO train --solver=slow/solver.prototxt --start_seconds=4 --set=snapshot_prefix=begun >begun.log 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 600); do
        [ "$(ranks_of snapshot_prefix=begun | wc -l)" = 2 ] && break
        sleep 0.05
    done
    kill -STOP "$(ranks_of snapshot_prefix=begun | tail -1)"
    ends frozen_in_start $pid begun.log 6
    is frozen_in_start_is_told grep -Eq '^E.*rank [01] on .*no progress for 4 s in the start: ' out
else
    skip frozen_in_start "a sanitizer must come first"
fi
# other verbs have a start, too; afterwards they take the time that they need
$MPIRUN $MPIRUN_FLAGS -np 1 "$CORTADO" time --model=net.prototxt --start_seconds=2 : \
    -np 1 sh -c "kill -STOP \$\$; exec $CORTADO time --model=net.prototxt --start_seconds=2" >time.log 2>&1 </dev/null &
pid=$!
ends frozen_time $pid time.log 6
finish
