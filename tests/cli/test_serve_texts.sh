# cortado serve in a job: texts that go on, on all ranks. The same texts whichever replica makes them, prefixes where they are,
# clients that go, deadlines, other weights in the middle, a full cache, and every way in which such a job ends.
# long: servers begin and end
. "$ROOT/tests/cli/lib.sh"
has libmicrohttpd || { skip serve_texts "built without libmicrohttpd"; finish; }
. "$ROOT/tests/cli/learnt_net.sh"
sed 's/dim: 256/dim: 20000/' deploy.prototxt >long.prototxt

job_test=serve_texts
. "$ROOT/tests/cli/serve_job.sh"

# up NAME N OPTION...
up() {
    up=$1 ranks=$2
    shift 2
    start "$up" "$ranks" "$CORTADO" serve $all --listen=127.0.0.1:0 --tokenizer=bytes "$@"
    port=${at##*:}
    is "up_$up" [ -n "$port" ]
}
# asks NAME CASE [ARGUMENT]
asks() {
    name=$1
    shift
    runs "$name" 0 '' timeout -k 5 120 python3 "$ROOT/tests/cli/completions.py" "$port" "$@"
}

"$CORTADO" generate $all --tokenizer=bytes --prompt='The quick' --max_tokens=40 --log=error >text.out || not_ok generate "failed"
for n in 1 2 3; do
    up texts_$n $n
    asks everywhere_$n everywhere $n
    cp out said.$n
    asks greedy_$n greedy "$(cat text.out)"
    [ $n = 1 ] || for case in draws equal_prompts logprobs prefix times pool; do asks ${case}_$n $case; done
    kill -TERM "$(rank 0)"
    ended end_$n = 0
done
is same_2 cmp said.1 said.2
is same_3 cmp said.1 said.3

# texts that are long enough to be caught in the middle
short="$all"
all="--model=long.prototxt --weights=w_iter_150.caffemodel.h5"
up long 2
asks prefix_there prefix_there 2 one
asks gone_there gone_there 2
asks swap_all swap_all "$(rank 0)" "$log" 2
asks prefix_after prefix_there 2 two
# without work they sleep, also after texts
spent() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
sleep 1
before=$(spent "$(rank 1)")
sleep 2
is idle_sleeps [ $(($(spent "$(rank 1)") - before)) -lt $(($(getconf CLK_TCK) / 4)) ]
asks drains drains "$(rank 0)"
ended drained = 0
up late 2 --deadline_ms=1500
asks deadline deadline 2
kill -TERM "$(rank 0)"
ended late_end = 0
up full 2 --kv_mb=1
asks cache cache "$(room_of "$log")" 2
kill -TERM "$(rank 0)"
ended full_end = 0

# a rank that dies takes the job with it; one that hangs is found
up dies 3
rm -f asks
python3 "$ROOT/tests/cli/completions.py" "$port" until_it_ends >load.out 2>&1 &
loading=$!
i=0
while [ ! -e asks ] && kill -0 $loading 2>/dev/null && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
kill -KILL "$(rank 1)"
ended dies_end -ne 0
wait $loading
up hangs 2 --watchdog_seconds=2
rm -f asks
python3 "$ROOT/tests/cli/completions.py" "$port" until_it_ends >load.out 2>&1 &
loading=$!
i=0
while [ ! -e asks ] && kill -0 $loading 2>/dev/null && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
kill -STOP "$(rank 1)"
i=0
while ! grep -q 'rank 1 has not answered a batch for 2 s' "$log" && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
is hangs_told grep -q 'rank 1 has not answered a batch for 2 s' "$log"
kill -CONT "$(rank 1)" 2>/dev/null
ended hangs_end = 6
wait $loading
finish
