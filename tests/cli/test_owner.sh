# Two jobs with one snapshot prefix: the second names the first and ends; what is gone blocks nobody.
# alone: it waits for other jobs
. "$ROOT/tests/cli/lib.sh"
make_case
wait_for() { # PATTERN FILE
    for _ in $(seq 1200); do
        grep -q "$1" "$2" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}
train="$CORTADO train --solver=solver.prototxt --set=snapshot_prefix=dir/p"
long="--iterations=10000000 --set=display=20 --set=snapshot=5 --set=snapshot_keep=2 --set=test_interval=100000000"
first() { # starts one that trains on
    rm -f log # waited for is what this run says
    SLURM_JOB_ID=${1:-} "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=dir/p $long --snapshot=auto >log 2>&1 </dev/null &
    pid=$!
    wait_for 'snapshot of iteration' log
}

first 4711
is owner_is_there test -f dir/p.owner
runs second_is_refused 2 "^E.*\"dir/p\" belongs to another training that runs: host $(hostname), process $pid, SLURM job 4711, since " \
    $train --set=snapshot=1
is said_once test "$(grep -c '^E' out)" = 1
runs job_is_refused 2 "process $pid, SLURM job 4711" $JOB 2 $train --set=snapshot=1 --metrics=second.jsonl
is job_said_once test "$(grep -c '^E' out)" = 1
is wrote_nothing test ! -e second.jsonl
is first_goes_on kill -0 $pid
runs other_prefix 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=dir/q
kill -USR1 $pid
wait $pid
is first_ends_75 test $? = 75
is gave_back test ! -e dir/p.owner

# every end gives it back: a good one, an error, a stop in the start, a crash
runs good_end 0 'Optimization Done' $train
is good_end_gave_back test ! -e dir/p.owner
runs error_end 5 '' $train --set=base_lr=1e30
is error_end_gave_back test ! -e dir/p.owner
first
kill -SEGV $pid
wait $pid 2>/dev/null
is crash_gave_back test ! -e dir/p.owner

# one that was killed leaves its file; its process is gone, so the next one takes it at once
first
kill -9 $pid
wait $pid 2>/dev/null
is killed_left_it test -f dir/p.owner
before=$(date +%s)
runs next_takes_it 0 'its owner on host .*, process [0-9]+, is gone' $train --snapshot=auto
is without_waiting test $(($(date +%s) - before)) -lt 50
# requeued on another host, whose processes cannot be seen
printf 'host elsewhere\nspace x/y\nprocess 1\nstart 5\njob 4711\nrestart 0\nsince then\n' >dir/p.owner
before=$(date +%s)
runs requeued 0 'its owner on host elsewhere, process 1, is gone' env SLURM_JOB_ID=4711 SLURM_RESTART_COUNT=1 $train --snapshot=auto
is requeued_without_waiting test $(($(date +%s) - before)) -lt 50
# long without a sign
printf 'host elsewhere\nspace x/y\nprocess 1\nstart 5\njob 1\nrestart 0\nsince then\n' >dir/p.owner
touch -d '10 minutes ago' dir/p.owner
runs silent_is_gone 0 'Optimization Done' $train --snapshot=auto
is nothing_is_left test -z "$(ls dir | grep owner)"
# a place where nothing can be written, as ever
runs not_a_folder 3 'net.prototxt' $train --set=snapshot_prefix=net.prototxt/s
finish
