# What a run does about files of an earlier one, which net it takes, and where results go.
. "$ROOT/tests/cli/lib.sh"
unset CORTADO_OVERWRITE
make_case
train() { "$CORTADO" train --solver=solver.prototxt "$@" >out 2>&1 </dev/null; }

runs first_run 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --metrics=m.jsonl
cp m.jsonl first.jsonl
state=$(cksum s_iter_20.solverstate.h5)
runs metrics_are_spared 2 'm.jsonl holds the metrics of an earlier run: --overwrite .* --snapshot=auto' \
    "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=other --metrics=m.jsonl
is one_line sh -c 'test "$(grep -c "^E" out)" = 1'
is metrics_are_as_they_were cmp m.jsonl first.jsonl
is nothing_was_written sh -c '! ls other* 2>/dev/null'
runs snapshots_are_spared 2 's_iter_20.solverstate.h5 is there from an earlier run: --snapshot=auto .*--overwrite' \
    "$CORTADO" train --solver=solver.prototxt
is one_line_too sh -c 'test "$(grep -c "^E" out)" = 1'
is snapshot_is_as_it_was test "$(cksum s_iter_20.solverstate.h5)" = "$state"
runs in_a_job_too 2 's_iter_20.solverstate.h5 is there' $JOB 2 "$CORTADO" train --solver=solver.prototxt
is one_line_of_a_job sh -c 'test "$(grep -c "s_iter_20.solverstate.h5 is there" out)" = 1'
mkdir half
cp s_iter_10.caffemodel.h5 half/s_iter_10.caffemodel.h5
runs weights_alone_are_spared 2 'half/s_iter_10.caffemodel.h5 is there' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=half/s
: >empty.jsonl
runs an_empty_file_is_free 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=new --metrics=empty.jsonl
runs a_device_is_free 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=dev --metrics=/dev/null
runs overwrites 0 '^W.*s_iter_20.solverstate.h5 and earlier snapshots stay' \
    "$CORTADO" train --solver=solver.prototxt --metrics=m.jsonl --overwrite --iterations=10
is metrics_are_new sh -c 'test "$(grep -c \"event\":\"run\" m.jsonl)" = 1 && grep -q "\"done\",\"iter\":10" m.jsonl'
runs by_environment 0 'Optimization Done' env CORTADO_OVERWRITE=true "$CORTADO" train --solver=solver.prototxt --metrics=m.jsonl

# a job that is queued again has the same command: it goes on, and appends
requeue="--solver=solver.prototxt --set=snapshot_prefix=again --metrics=again.jsonl --snapshot=auto"
runs starts 0 'no snapshot at again yet' "$CORTADO" train $requeue --iterations=10
runs goes_on 0 'resuming after 10 iterations' "$CORTADO" train $requeue
is appends sh -c 'test "$(grep -c \"event\":\"run\" again.jsonl)" = 2'
runs goes_on_with_overwrite 0 'resuming after 20 iterations' "$CORTADO" train $requeue --overwrite
is overwrite_keeps_what_goes_on sh -c 'test "$(grep -c \"event\":\"run\" again.jsonl)" = 3'
# one that fell over before its first snapshot has metrics, and starts anew behind them
runs starts_behind 0 'no snapshot at none yet' "$CORTADO" train --solver=solver.prototxt --set=snapshot_prefix=none --metrics=again.jsonl --snapshot=auto
is appends_there_too sh -c 'test "$(grep -c \"event\":\"run\" again.jsonl)" = 4'

# train and test events say when: passes over 600 samples, 16 in an iteration; seconds since 1970
when() { sed -n "s/.*\"event\":\"$1\",\"iter\":$2,.*\"epoch\":\([0-9.]*\),\"time\":\([0-9.]*\)}\$/\1 \2/p" first.jsonl; }
near() { # EPOCH VALUE-AND-TIME
    echo "$2" | awk -v epoch="$1" -v now="$(date +%s)" 'NF == 2 && $1 - epoch < 1e-4 && epoch - $1 < 1e-4 && $2 > now - 600 && $2 < now + 600 { n++ }
        END { exit n != 1 }'
}
is train_says_when near 0.266667 "$(when train 10)"
is test_says_when near 0.533333 "$(when test 20)"

# the format that is written is the one that the header names
train --set=snapshot_prefix=format
is header_says_hdf5 grep -q 'config: default .*snapshot_format = HDF5' out
is hdf5_is_written test -s format_iter_20.caffemodel.h5
train --set=snapshot_prefix=binary --set=snapshot_format=BINARYPROTO
is header_says_binary grep -q 'config: snapshot_format = BINARYPROTO (command line)' out
is binary_is_written test -s binary_iter_20.caffemodel

# a net on the command line takes the place of the solver's, however that names its own
sed 's/name: "Tiny"/name: "Other"/' net.prototxt >other.prototxt
takes() { # NAME SOLVER OPTION...
    name=$1 solver=$2
    shift 2
    runs "$name" 0 'net Other: ' "$CORTADO" train --solver="$solver" --set=snapshot_prefix="$name" --iterations=2 "$@"
}
takes net_for_net solver.prototxt --set=net=other.prototxt
is header_names_it grep -q 'config: net = other.prototxt (command line)' out
CORTADO_SET=net=nothere.prototxt
export CORTADO_SET
takes command_line_beats solver.prototxt --set=net=other.prototxt
unset CORTADO_SET
takes train_net_for_net solver.prototxt --set=test_interval=2 --set=train_net=other.prototxt --set=test_net=net.prototxt
is tests_the_other grep -q 'Test net output #0: accuracy' out
sed 's/^net:/train_net:/; s/^test_iter/test_net: "net.prototxt" test_iter/' solver.prototxt >parts.prototxt
takes net_for_train_net parts.prototxt --set=net=other.prototxt
takes test_net_for_test_net parts.prototxt --set=train_net=other.prototxt --set=test_net=other.prototxt
{ printf 'net_param {\n'; cat net.prototxt; printf '}\n'; sed 1d solver.prototxt; } >inline.prototxt
takes net_for_net_param inline.prototxt --set=net=other.prototxt
takes field_of_the_new_net solver.prototxt --set=net=other.prototxt '--set=layer[conv].convolution_param.num_output=4'
is new_field_counts grep -q 'config: layer\[conv\].convolution_param.num_output = 4' out
mkdir beside
cp other.prototxt beside/beside.prototxt
sed 's#net.prototxt#../net.prototxt#' solver.prototxt >beside/solver.prototxt
takes beside_the_solver beside/solver.prototxt --set=net=beside.prototxt
runs no_such_net 3 'nothere.prototxt' "$CORTADO" check --solver=solver.prototxt --set=net=nothere.prototxt
runs net_of_a_model 2 'net=other.prototxt: the net is that of --model=net.prototxt' "$CORTADO" check --model=net.prototxt --set=net=other.prototxt

# results go to standard output, the log to the other stream
score="test --model=net.prototxt --weights=format_iter_20.caffemodel.h5 --iterations=3 --metrics=t.jsonl"
$JOB 2 "$CORTADO" $score >result 2>log </dev/null
is test_ends_well test $? = 0
is result_once sh -c 'test "$(grep -c "^accuracy = [0-9.]*$" result)" = 1 && grep -q "^Loss: " result && grep -q "^loss = " result'
is result_alone sh -c '! grep -q "Batch\|Running\|^I" result'
is result_is_logged grep -q '\] accuracy = ' log
cp log out
runs test_spares_metrics 2 't.jsonl holds the metrics of an earlier run: --overwrite replaces them$' "$CORTADO" $score
runs test_overwrites 0 'accuracy' "$CORTADO" $score --overwrite
is test_metrics_say_when grep -Eq '"event":"test".*"epoch":0,"time":[0-9]+' t.jsonl
if [ -w /dev/full ]; then
    runs full_output 3 'cannot write the result to standard output: No space left' sh -c '"$0" test --model=net.prototxt --weights=format_iter_20.caffemodel.h5 --iterations=1 >/dev/full' "$CORTADO"
else
    skip full_output "no /dev/full"
fi

# another job writes the file at this time: it is named, and nothing changes
if command -v python3 >/dev/null; then
    holds() { # FILE: a process that has locked it; $holder
        python3 -c 'import fcntl, sys, time
f = open(sys.argv[1], "a")
fcntl.lockf(f, fcntl.LOCK_EX)
open("held", "w").close()
time.sleep(60)' "$1" &
        holder=$!
        until [ -e held ]; do sleep 0.02; done
        rm held
    }
    free() { kill $holder && wait $holder 2>/dev/null; }
    named="belongs to another job that runs: host $(hostname), process"
    own="$CORTADO train --solver=solver.prototxt --set=snapshot_prefix=shared"
    cp m.jsonl before.jsonl
    holds m.jsonl
    runs metrics_of_another_job 2 "^E.*m.jsonl $named $holder" $own --metrics=m.jsonl --overwrite
    runs metrics_named_first 2 "^E.*m.jsonl $named $holder" $JOB 2 $own --metrics=m.jsonl
    is named_in_one_line sh -c 'test "$(grep -c "^E" out)" = 1'
    is its_metrics_stay cmp m.jsonl before.jsonl
    free
    mkdir kept
    echo 'a line of the first' >kept/log.txt
    holds kept/log.txt
    runs run_of_another_job 2 "^E.*kept/log.txt $named $holder" "$CORTADO" train --solver=solver.prototxt --run=kept --overwrite
    runs run_named_first 2 "^E.*kept/log.txt $named $holder" "$CORTADO" train --solver=solver.prototxt --run=kept
    is its_log_stays grep -q 'a line of the first' kept/log.txt
    free
    holds set.tmp.lock
    runs set_of_another_job 2 "^E.*set $named $holder" "$CORTADO" convert digits --to=set --count=40
    is made_nothing test ! -e set
    free
    runs set_is_free 0 '' "$CORTADO" convert digits --to=set --count=40
    is no_lock_stays test ! -e set.tmp.lock
else
    skip shared "no python3"
fi
finish
