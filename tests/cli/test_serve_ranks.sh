# cortado serve in a job: a replica on each rank behind one queue. The same bytes from any of them, work for all,
# other weights on all or none, and every way in which such a job ends.
# long: servers begin and end
. "$ROOT/tests/cli/lib.sh"
has libmicrohttpd || { skip serve_ranks "built without libmicrohttpd"; finish; }

# net INPUT HEAD: sums over the texts' bytes, of whose embeddings each has a place
net() {
    cat <<END
name: "Tiny" $1
layer { name: "wte" type: "Embed" bottom: "tokens" top: "wte"
  embed_param { input_dim: 257 num_output: 24 bias_term: false weight_filler { type: "gaussian" std: 1 } } }
layer { name: "wpe" type: "Position" bottom: "wte" top: "y"
  position_param { max_length: 64 weight_filler { type: "gaussian" std: 0.3 } } }
$2
END
}
net 'layer { name: "in" type: "Input" top: "tokens" top: "mask"
  input_param { shape { dim: 1 dim: 64 } shape { dim: 1 dim: 64 } varies: true } }' '
layer { name: "row" type: "Reshape" bottom: "mask" top: "row" reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }
layer { name: "pool" type: "MatMul" bottom: "row" bottom: "y" top: "pool" }' >deploy.prototxt
printf 'the weights of a net that has seen next to nothing of this text, which is not the point.\n' >t.txt
"$CORTADO" convert text --from=t.txt --to=t.bin --tokenizer=bytes >out 2>&1 || not_ok text "no tokens"
net 'layer { name: "data" type: "TokenData" top: "tokens" top: "next"
  token_data_param { source: "t.bin" batch_size: 1 seq_len: 32 vocabulary: 257 } }' '
layer { name: "head" type: "InnerProduct" bottom: "y" top: "head" inner_product_param { num_output: 257 axis: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "next" top: "loss" softmax_param { axis: 2 } }' >net.prototxt
echo 'net: "net.prototxt" type: "Adam" base_lr: 0.001 lr_policy: "fixed" max_iter: 2 snapshot: 1 snapshot_prefix: "w"
  random_seed: 4' >solver.prototxt
runs weights 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt

job_test=serve_ranks
. "$ROOT/tests/cli/serve_job.sh"
cp w_iter_1.caffemodel.h5 w.h5
serve="$CORTADO serve --model=$work/deploy.prototxt --listen=127.0.0.1:0 --name=tiny"

# up NAME N OPTION...
up() {
    up=$1 ranks=$2
    shift 2
    start "$up" "$ranks" $serve --weights=w.h5 "$@"
    is "$up" [ -n "$at" ]
}
# load NAME: asks in the background until nobody listens; returns once it has an answer
load() {
    rm -f asks
    python3 ask.py "$at" load >load.$1 2>&1 &
    loading=$!
    i=0
    while [ ! -e asks ] && kill -0 $loading 2>/dev/null && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
}

cat >ask.py <<'END'
"""ask.py ADDRESS RANKS: embeddings, until each of so many replicas has run some of them; prints the first of them.
ask.py ADDRESS load: asks until nobody listens; prints which statuses came.
ask.py ADDRESS texts: asks for a text, which there is not; prints status and message."""
import json, sys, threading, urllib.error, urllib.request
at = "http://" + sys.argv[1]

def embed(texts):
    r = urllib.request.Request(at + "/v1/embeddings", json.dumps({"model": "tiny", "input": texts}).encode())
    with urllib.request.urlopen(r, timeout=60) as f:
        return [d["embedding"] for d in json.load(f)["data"]]

def batches():
    text = urllib.request.urlopen(at + "/metrics", timeout=60).read().decode()
    name = 'cortado_replica_batches_total{replica="'
    return {line.split('"')[1]: int(line.split()[-1]) for line in text.splitlines() if line.startswith(name)}

texts = [list(range(1 + k, 2 + 5 * k)) for k in range(1, 12)]

def everywhere(ranks):
    alone = [embed([t])[0] for t in texts]
    begin, wrong = batches(), []
    assert len(begin) == ranks, begin

    def client():
        for _ in range(2000):
            if embed(texts) != alone:
                wrong.append(1)
            if all(n > begin[r] for r, n in batches().items()):
                return
        wrong.append(2)

    threads = [threading.Thread(target=client) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong
    code = {"inputs": [{"name": "tokens", "shape": [1, 3], "datatype": "INT32", "data": [1, 2, 3]}]}
    r = urllib.request.Request(at + "/v2/models/tiny/infer", json.dumps(code).encode())
    answers = [json.load(urllib.request.urlopen(r, timeout=60))["outputs"][0] for _ in range(20)]
    assert answers[0]["shape"] == [1, 24] and all(a == answers[0] for a in answers)
    print(alone[0])

def load():
    seen = set()

    def client():
        while True:
            try:
                embed(texts)
                seen.add(200)
                open("asks", "w").close()
            except urllib.error.HTTPError as e:
                seen.add(e.code)
            except OSError as e:
                why = getattr(e, "reason", e)
                seen.add("refused" if isinstance(why, ConnectionRefusedError) else "ended")
                return

    threads = [threading.Thread(target=client) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(sorted(seen, key=str))

def no_texts():
    r = urllib.request.Request(at + "/v1/completions", json.dumps({"model": "tiny", "prompt": "x"}).encode())
    try:
        urllib.request.urlopen(r, timeout=60)
    except urllib.error.HTTPError as e:
        print(e.code, json.load(e)["error"]["message"])

{"load": load, "texts": no_texts}.get(sys.argv[2], lambda: everywhere(int(sys.argv[2])))()
END

for n in 1 2 3; do
    up start_$n $n
    runs bytes_$n 0 '^\[' python3 ask.py "$at" $n
    cp out said.$n
    runs no_texts_$n 0 '^404 the model tiny makes no texts: the server has no --tokenizer$' python3 ask.py "$at" texts
    # an end while others ask: nothing that was admitted is lost
    load $n
    kill -TERM "$(rank 0)"
    ended end_$n = 0
    wait $loading
    is answered_$n sh -c "grep -q 200 load.$n && ! grep -Eq '500|504|Traceback' load.$n"
    is drained_$n log_has 'Terminated: what was asked for is still answered'
done
is same_2 cmp said.1 said.2
is same_3 cmp said.1 said.3

# other weights: on all ranks or on none
up reload 3
echo nonsense >w.h5
kill -HUP "$(rank 0)"
is reload_refused log_has 'w.h5: not taken; the weights are those from before'
runs reload_kept 0 '^\[' python3 ask.py "$at" 3
is reload_kept_same cmp out said.1
cp w_iter_2.caffemodel.h5 w.h5
kill -HUP "$(rank 0)"
is reload_taken log_has 'w.h5: read again, and in use'
runs reload_all 0 '^\[' python3 ask.py "$at" 3
is reload_differs sh -c '! cmp -s out said.1'
# without work they sleep: a wait that spins takes all of a core that it can get
sleep 1
spent() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
before=$(($(spent "$(rank 0)") + $(spent "$(rank 1)") + $(spent "$(rank 2)")))
sleep 2
after=$(($(spent "$(rank 0)") + $(spent "$(rank 1)") + $(spent "$(rank 2)")))
is idle_sleeps [ $((after - before)) -lt $(($(getconf CLK_TCK) / 2)) ]
kill -INT "$(rank 0)"
ended reload_end = 0
cp w_iter_1.caffemodel.h5 w.h5

# ranks whose files differ, or are not there: at the start, and later
mkdir only.1
cp w_iter_2.caffemodel.h5 only.1/w.h5
runs files_differ 3 'rank 0.*--weights: the ranks have read weights that differ' $JOB 2 sh rank.sh $serve --weights=w.h5
rm only.1/w.h5
runs file_missing 3 'rank 1 on .*w.h5' $JOB 2 sh rank.sh $serve --weights=w.h5
is said_once [ "$(grep -c '^E.* w.h5' out)" = 1 ]
cp w.h5 only.1/w.h5
up elsewhere 2
rm only.1/w.h5
kill -HUP "$(rank 0)"
is elsewhere_told log_has 'rank 1 says: w.h5'
is elsewhere_refused log_has 'w.h5: not taken'
cp w_iter_2.caffemodel.h5 only.1/w.h5
kill -HUP "$(rank 0)"
is elsewhere_differs log_has 'rank 1 has read other weights than rank 0'
runs elsewhere_still 0 '^\[' python3 ask.py "$at" 2
is elsewhere_same cmp out said.1
kill -TERM "$(rank 0)"
ended elsewhere_end = 0
rm -r only.1

# bad starts: one line, and the code of every verb
runs bad_option 2 'max_queue=0: expected 1 to 100000' $JOB 2 $serve --weights=w.h5 --max_queue=0
is bad_option_once [ "$(grep -c max_queue out)" = 1 ]
runs no_file 3 'nothing.h5' $JOB 3 $serve --weights=nothing.h5
is no_file_once [ "$(grep -c 'nothing.h5' out)" = 1 ]
runs bad_keys 3 'nothing.keys' $JOB 2 $serve --weights=w.h5 --api_key_file=nothing.keys
up taken 1
runs port_taken 3 "listen=$at: Address already in use" $JOB 2 "$CORTADO" serve --model=deploy.prototxt --weights=w.h5 --listen="$at"
kill -TERM "$(rank 0)"
ended taken_end = 0

# the job file for Slurm, with an srun that starts the job by the launcher that is here
mkdir bin
cat >bin/srun <<EOF2
#!/bin/sh
while case \$1 in --*) true ;; *) false ;; esac do shift; done
exec $JOB 2 sh $work/rank.sh "\$@"
EOF2
chmod +x bin/srun
name=sbatch log=sbatch.log
echo 'a-key' >keys
MODEL=deploy.prototxt WEIGHTS=w.h5 TOKENIZER=bytes KEYS=keys LISTEN=127.0.0.1:0 CORTADO=$CORTADO PATH=$PWD/bin:$PATH \
    bash "$ROOT/scripts/slurm/serve.sbatch" >sbatch.at 2>sbatch.log </dev/null &
pid=$!
is sbatch log_has 'Replicas: 2, one a rank'
kill -USR1 "$(rank 0)"
ended sbatch_end = 0

# a rank that dies takes the job with it
up dies 3
load dies
kill -KILL "$(rank 1)"
ended dies_end -ne 0
wait $loading
is dies_told grep -Eq '500|503|ended|refused' load.dies

# one that hangs in a batch is found; a server without work is none that hangs
up hangs 2 --watchdog_seconds=2
sleep 3
load hangs
kill -STOP "$(rank 1)"
is hangs_told log_has 'rank 1 has not answered a batch for 2 s'
kill -CONT "$(rank 1)" 2>/dev/null
ended hangs_end = 6
wait $loading
is idle_lives grep -q 200 load.hangs
# … at the end, too
up ends_late 2 --watchdog_seconds=2
kill -STOP "$(rank 1)"
kill -TERM "$(rank 0)"
is ends_late_told log_has 'rank 1 has not answered a word of rank 0 for 2 s'
kill -CONT "$(rank 1)" 2>/dev/null
ended ends_late_end = 6

# a second signal does not wait for what hangs
up twice 2 --watchdog_seconds=0
load twice
kill -STOP "$(rank 1)"
sleep 0.5
kill -TERM "$(rank 0)"
is twice_drains log_has 'what was asked for is still answered'
kill -TERM "$(rank 0)"
kill -CONT "$(rank 1)" 2>/dev/null
ended twice_end -ne 0
wait $loading
finish
