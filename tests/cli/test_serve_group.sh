#!/bin/sh
# cortado serve --parallel: one net on several ranks. What one rank answers, other weights, and every way in which it ends.
# long: servers begin and end
. "$ROOT/tests/cli/lib.sh"
has libmicrohttpd || { skip serve_group "built without libmicrohttpd"; finish; }
command -v python3 >/dev/null || { skip serve_group "no python3"; finish; }
job_test=serve_group
. "$ROOT/tests/cli/serve_job.sh"
. "$ROOT/tests/cli/serve_groups.sh"

# ---- texts of the four kinds of blocks: those of one rank, and their scores
make_book
letters=data/warandpeace/tokenizer.json
for kind in standard parallel ladder kraken; do
    write 2
    make_weights
    net="--model=$kind/deploy.prototxt --weights=${kind}_iter_60.caffemodel.h5"
    up ${kind}_1 1 $net --tokenizer=$letters
    runs ${kind}_texts_1 0 '' python3 "$ask" "$at" texts one.txt
    mv out one.out
    down ${kind}_1
    for ranks in 2 4; do
        write $ranks
        parallel=$kind/deploy_parallel.prototxt
        [ $kind = kraken ] || [ $ranks = 2 ] || parallel=tensor:$ranks
        up ${kind}_$ranks $ranks $net --tokenizer=$letters --parallel=$parallel
        is ${kind}_${ranks}_told grep -q "One net on $ranks ranks" $log
        runs ${kind}_texts_$ranks 0 '' python3 "$ask" "$at" texts all.txt
        is ${kind}_${ranks}_same cmp one.out out
        is ${kind}_${ranks}_scores python3 "$ROOT/tests/cli/close.py" one.txt all.txt 1e-4 80
        down ${kind}_$ranks
    done
done
# ranks with unlike numbers of heads have room for as many tokens: three ways on two ranks
kind=kraken
write 2 3
runs unlike_weights 0 '' "$CORTADO" train --solver=kraken/solver.prototxt --set=max_iter=1 --set=snapshot=1 --set=warmup.iterations=0 \
    --set=test_interval=100 --set=test_iter=1 --set=snapshot_prefix=unlike
up unlike 2 --model=kraken/deploy.prototxt --weights=unlike_iter_1.caffemodel.h5 --tokenizer=$letters --parallel=kraken/deploy_parallel.prototxt --kv_mb=1
runs unlike_texts 0 '' python3 "$ask" "$at" texts all.txt
down unlike

# ---- all scores
kind=standard
net="--model=standard/deploy.prototxt --weights=standard_iter_60.caffemodel.h5"
up infer_1 1 $net
runs infer_one 0 '' python3 "$ask" "$at" infer
mv out one.txt
down infer_1
for ranks in 2 4; do
    write $ranks
    up infer_$ranks $ranks $net --parallel=standard/deploy_parallel.prototxt
    runs infer_all_$ranks 0 '' python3 "$ask" "$at" infer
    is infer_scores_$ranks python3 "$ROOT/tests/cli/close.py" one.txt out 1e-4 $((2 * 20 * 128))
    down infer_$ranks
done
write 2

# ---- embeddings of a net that sees both sides
make_bert
cat >bert_parallel.prototxt <<'END'
ranks: 2 global_batch: 1
stage { first: "in" last: "pool" rank: 0 rank: 1 tensor: 2
  layer { name: "in" split: REPLICATE }
  layer { name: "wte" split: REPLICATE }
  layer { name: "qkv" split: OUTPUT }
  layer { name: "attn" split: HEADS }
  layer { name: "proj" split: INPUT }
  layer { name: "row" split: REPLICATE }
  layer { name: "pool" split: REPLICATE }
}
END
for ranks in 1 2; do
    up bert_$ranks $ranks --model=bert.prototxt --weights=bert_iter_1.caffemodel.h5 $([ $ranks = 1 ] || echo --parallel=bert_parallel.prototxt)
    runs bert_rows_$ranks 0 '' python3 "$ask" "$at" embed
    [ $ranks != 1 ] || mv out one.txt
    [ $ranks = 1 ] || is bert_same python3 "$ROOT/tests/cli/close.py" one.txt out 1e-4 $((8 * 32))
    down bert_$ranks
done
up bert_tensor 2 --model=bert.prototxt --weights=bert_iter_1.caffemodel.h5 --parallel=tensor:2
is bert_tensor_told grep -q 'tensor:2: the ranks share 1 runs of products' $log
runs bert_tensor_rows 0 '' python3 "$ask" "$at" embed
is bert_tensor_same python3 "$ROOT/tests/cli/close.py" one.txt out 1e-4 $((8 * 32))
down bert_tensor

# ---- other weights: on all ranks or on none, while texts go on
cp standard_iter_60.caffemodel.h5 w.h5
group="--model=standard/deploy.prototxt --weights=w.h5 --tokenizer=$letters --parallel=standard/deploy_parallel.prototxt"
up reload 2 $group
runs reload_before 0 '' python3 "$ask" "$at" texts all.txt
mv out before.out
echo nonsense >w.h5
kill -HUP "$(rank 0)"
is reload_refused log_has 'w.h5: not taken; the weights are those from before'
runs reload_kept 0 '' python3 "$ask" "$at" texts all.txt
is reload_kept_same cmp before.out out
load reload
cp standard_iter_30.caffemodel.h5 w.h5
kill -HUP "$(rank 0)"
is reload_taken log_has 'w.h5: read again, and in use'
runs reload_after 0 '' python3 "$ask" "$at" texts all.txt
mv out after.out
kill -TERM "$(rank 0)"
ended reload_end = 0
wait $loading
is reload_lost_nothing sh -c "grep -q 200 load.reload && ! grep -Eq '500|504|Traceback' load.reload"
up afresh 2 $group
runs afresh_texts 0 '' python3 "$ask" "$at" texts all.txt
is reload_is_afresh cmp after.out out
# a rank that cannot read the net: the others keep theirs
down afresh
mkdir -p only.1/standard
cp standard/deploy.prototxt only.1/standard
up elsewhere 2 $group
rm only.1/standard/deploy.prototxt
kill -HUP "$(rank 0)"
is elsewhere_told log_has 'rank 1 says: .*deploy.prototxt'
is elsewhere_refused log_has 'w.h5: not taken'
runs elsewhere_still 0 '' python3 "$ask" "$at" texts all.txt
# without work they sleep: a wait that spins takes all of a core that it can get
sleep 1
spent() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
before=$(($(spent "$(rank 0)") + $(spent "$(rank 1)")))
sleep 2
after=$(($(spent "$(rank 0)") + $(spent "$(rank 1)")))
is idle_sleeps [ $((after - before)) -lt $(($(getconf CLK_TCK) / 4)) ]
down elsewhere
runs start_elsewhere 3 'deploy.prototxt' $JOB 2 sh rank.sh "$CORTADO" serve $group
is start_said_once [ "$(grep -c '^E.*deploy.prototxt' out)" = 1 ]
rm -r only.1

# ---- ends
runs no_job 4 '[-]-parallel=standard/deploy_parallel.prototxt is for the ranks of a job' env -u OMPI_COMM_WORLD_SIZE "$CORTADO" serve $group
runs checked 2 '[-]-check is not for a net that ranks run together' $JOB 2 "$CORTADO" serve $group --check
runs other_ranks 2 'deploy_parallel.prototxt: each net takes 2 ranks, and the job.s 3 are no multiple' $JOB 3 "$CORTADO" serve $group
runs other_tensor 2 '[-]-parallel=tensor:2: each net takes 2 ranks, and the job.s 3 are no multiple' $JOB 3 "$CORTADO" serve $group --parallel=tensor:2
runs bad_tensor 2 '[-]-parallel=tensor:1: expected a file, or tensor:N, N from 2 to 1024' $JOB 2 "$CORTADO" serve $group --parallel=tensor:1
runs no_products 2 'tensor:3: net "Bert" has no products that 3 ranks can share' $JOB 3 "$CORTADO" serve --model=bert.prototxt \
    --weights=bert_iter_1.caffemodel.h5 --parallel=tensor:3
runs no_file 3 'nowhere.prototxt' $JOB 2 "$CORTADO" serve $group --parallel=nowhere.prototxt
is no_file_once [ "$(grep -c '^E.*nowhere' out)" = 1 ]
runs no_weights 3 'nothing.h5' $JOB 2 "$CORTADO" serve $group --weights=nothing.h5
sed 's/layer { name: "input" split: REPLICATE }//' standard/deploy_parallel.prototxt >samples.prototxt
runs samples 2 'too few for layer "input" .Input., which is dealt out by samples' $JOB 2 "$CORTADO" serve $group --parallel=samples.prototxt
up taken 2 $group
runs port_taken 3 "listen=$at: Address already in use" $JOB 2 "$CORTADO" serve $group --listen="$at"
# its queue has a thread of its own
if can_preload && make_low_mpi MPI_THREAD_FUNNELED; then
    runs funneled 2 'parallel: this MPI gives less than MPI_THREAD_SERIALIZED' $JOB 2 env LD_PRELOAD="$PWD/MPI_THREAD_FUNNELED.so" "$CORTADO" serve $group
    is funneled_once [ "$(grep -c "^E" out)" = 1 ]
else
    skip funneled "no library can stand in front of MPI here"
fi
# a rank that dies takes the job with it
load dies
kill -KILL "$(rank 1)"
ended dies_end -ne 0
wait $loading
is dies_told grep -Eq '500|503|ended|refused' load.dies
# one that hangs in a pass is found; a server without work is none that hangs
up hangs 2 $group --watchdog_seconds=2
sleep 3
load hangs
kill -STOP "$(rank 1)"
is hangs_told log_has 'no progress for 2 s in texts that go on'
kill -CONT "$(rank 1)" 2>/dev/null
ended hangs_end = 6
wait $loading
is idle_lives grep -q 200 load.hangs
# … at the end, too
up ends_late 2 $group --watchdog_seconds=2
kill -STOP "$(rank 1)"
kill -TERM "$(rank 0)"
is ends_late_told log_has 'no progress for 2 s'
kill -CONT "$(rank 1)" 2>/dev/null
ended ends_late_end = 6
finish
