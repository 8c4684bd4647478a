#!/bin/sh
# cortado serve --parallel on more ranks than the net takes: groups of ranks as replicas behind one queue. What one rank
# answers, from each of them; other weights on all or none; and every way in which such a job ends.
. "$ROOT/tests/cli/lib.sh"
has libmicrohttpd || { skip serve_groups "built without libmicrohttpd"; finish; }
command -v python3 >/dev/null || { skip serve_groups "no python3"; finish; }
job_test=serve_groups
. "$ROOT/tests/cli/serve_job.sh"
. "$ROOT/tests/cli/serve_groups.sh"

make_book
letters=data/warandpeace/tokenizer.json
kind=standard
write 2
make_weights
net="--model=standard/deploy.prototxt --weights=w.h5 --tokenizer=$letters"
cp standard_iter_60.caffemodel.h5 w.h5

# ---- texts and embeddings: those of one rank, from two groups of two
up one 1 $net
runs texts_one 0 '' python3 "$ask" "$at" texts one.txt
mv out one.out
down one
runs plan 0 'for cortado serve --parallel=planned.prototxt' "$CORTADO" plan --model=standard/deploy.prototxt --fix=tensor=2 --limits=100,10 --out=planned.prototxt
for way in tensor:2 planned.prototxt standard/deploy_parallel.prototxt; do
    by=${way%%[:/.]*}
    up by_$by 4 $net --parallel=$way
    is told_$by grep -q 'Replicas: 2, each one net on 2 ranks' $log
    runs texts_$by 0 '' python3 "$ask" "$at" texts all.txt 2
    is same_$by cmp one.out out
    is scores_$by python3 "$ROOT/tests/cli/close.py" one.txt all.txt 1e-4 80
    down by_$by
    mv all.txt $by.txt
done
# tensor:N is short for the file that is planned: not a bit differs
is plan_is_tensor cmp tensor.txt planned.txt
for ranks in 1 4; do
    up infer_$ranks $ranks --model=standard/deploy.prototxt --weights=w.h5 $([ $ranks = 1 ] || echo --parallel=tensor:2)
    runs infer_of_$ranks 0 '' python3 "$ask" "$at" infer
    [ $ranks != 1 ] || mv out infer.txt
    [ $ranks = 1 ] || is infer_same python3 "$ROOT/tests/cli/close.py" infer.txt out 1e-4 $((2 * 20 * 128))
    down infer_$ranks
done
make_bert
up rows_one 1 --model=bert.prototxt --weights=bert_iter_1.caffemodel.h5
runs rows_of_one 0 '' python3 "$ask" "$at" embed
mv out one.txt
down rows_one
up rows 4 --model=bert.prototxt --weights=bert_iter_1.caffemodel.h5 --parallel=tensor:2
runs rows_of_groups 0 '' python3 "$ask" "$at" embed
is rows_same python3 "$ROOT/tests/cli/close.py" one.txt out 1e-4 $((8 * 32))
down rows

# ---- other weights: on all groups or on none, while texts go on
groups="$net --parallel=tensor:2"
up reload 4 $groups
runs reload_before 0 '' python3 "$ask" "$at" texts all.txt 2
mv out before.out
mv all.txt before.txt
echo nonsense >w.h5
kill -HUP "$(rank 0)"
is reload_refused log_has 'w.h5: not taken; the weights are those from before'
runs reload_kept 0 '' python3 "$ask" "$at" texts all.txt 2
is reload_kept_same cmp before.out out
load reload
cp standard_iter_30.caffemodel.h5 w.h5
kill -HUP "$(rank 0)"
is reload_taken log_has 'w.h5: read again, and in use'
runs reload_after 0 '' python3 "$ask" "$at" texts all.txt 2
mv out after.out
is reload_is_another sh -c '! cmp -s before.txt all.txt'
kill -TERM "$(rank 0)"
ended reload_end = 0
wait $loading
is reload_lost_nothing sh -c "grep -q 200 load.reload && ! grep -Eq '500|504|Traceback' load.reload"
up afresh 4 $groups
runs afresh_texts 0 '' python3 "$ask" "$at" texts all.txt 2
is reload_is_afresh cmp after.out out
down afresh
# a rank of the second group that cannot read the net: all keep theirs. Its folder has no tokenizer: rank 0 reads it
mkdir -p only.3/standard
cp standard/deploy.prototxt only.3/standard
up elsewhere 4 $groups
rm only.3/standard/deploy.prototxt
kill -HUP "$(rank 0)"
is elsewhere_told log_has 'rank 2 says: rank 3 says: .*deploy.prototxt'
is elsewhere_refused log_has 'w.h5: not taken'
runs elsewhere_still 0 '' python3 "$ask" "$at" texts all.txt 2
down elsewhere
runs start_elsewhere 3 'deploy.prototxt' $JOB 4 sh rank.sh "$CORTADO" serve $groups
is start_said_once [ "$(grep -c '^E.*deploy.prototxt' out)" = 1 ]
rm -r only.3
# the first rank of the second group reads for it
mkdir -p only.2/standard
cp standard/deploy.prototxt only.2/standard
cp standard_iter_60.caffemodel.h5 only.2/w.h5
runs other_weights 3 'the ranks have read weights that differ' $JOB 4 sh rank.sh "$CORTADO" serve $groups
cp w.h5 only.2/w.h5
up apart 4 $groups
cp standard_iter_60.caffemodel.h5 w.h5
kill -HUP "$(rank 0)"
is apart_told log_has 'rank 2 has read other weights than rank 0'
runs apart_still 0 '' python3 "$ask" "$at" texts all.txt 2
is apart_same cmp after.out out
down apart
rm -r only.2

# ---- ends
runs no_multiple 2 '[-]-parallel=tensor:3: each net takes 3 ranks, and the job.s 4 are no multiple' $JOB 4 "$CORTADO" serve $groups --parallel=tensor:3
up dies 4 $groups
load dies
kill -KILL "$(rank 3)"
ended dies_end -ne 0
wait $loading
is dies_told grep -Eq '500|503|ended|refused' load.dies
# a rank that hangs: of its group, or the one that rank 0 waits for
for r in 3 2; do
    up hangs_$r 4 $groups --watchdog_seconds=2
    load hangs_$r
    kill -STOP "$(rank $r)"
    is hangs_${r}_told log_has 'no progress for 2 s in texts that go on|rank 2 has not answered a batch for 2 s'
    kill -CONT "$(rank $r)" 2>/dev/null
    ended hangs_${r}_end = 6
    wait $loading
done
# … at the end, too
up ends_late 4 $groups --watchdog_seconds=2
kill -STOP "$(rank 3)"
kill -TERM "$(rank 0)"
is ends_late_told log_has 'no progress for 2 s'
kill -CONT "$(rank 3)" 2>/dev/null
ended ends_late_end = 6
finish
