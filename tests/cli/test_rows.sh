#!/bin/sh
# Gradients of tables that Embed reads: ranks send rows in place of a dense sum, or beside that of a
# head which has the same table. The numbers are those of dense sums.
# long: many jobs of several ranks
. "$ROOT/tests/cli/lib.sh"
mkdir text
words() { awk -v n="$1" -v s="$2" 'BEGIN { srand(s); for (i = 0; i < n; i++) for (k = 0; k < 9; k++) printf "w%d%s", (rand() < 0.5) ? int(rand() * 20) : int(rand() * 790), (k < 8) ? " " : "\n" }'; }
words 2000 1 >text/my.train.txt
words 40 2 >text/my.valid.txt
words 5 3 >text/my.test.txt
"$CORTADO" convert text --from=text --to=data >out 2>&1 || { not_ok convert text; finish; }
data='layer { name: "data" type: "TextData" top: "w" top: "cont" top: "y" text_data_param { source: "data/train.h5" batch_size: 3 steps: 5 } }'
hidden='layer { name: "f" type: "InnerProduct" bottom: "e" top: "f" inner_product_param { num_output: 12 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "t" type: "TanH" bottom: "f" top: "f" }'
loss='layer { name: "loss" type: "SoftmaxWithLoss" bottom: "h" bottom: "y" top: "loss" softmax_param { axis: 2 } }'
net() { # TIED: "param { … }" of both
    cat <<EOF2
name: "Rows"
$data
layer { name: "e" type: "Embed" bottom: "w" top: "e" $1 embed_param { input_dim: 800 num_output: 12 bias_term: false weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
$hidden
layer { name: "h" type: "InnerProduct" bottom: "f" top: "h" $1 inner_product_param { num_output: 800 axis: 2 bias_term: false weight_filler { type: "xavier" } } }
$loss
EOF2
}
net 'param { name: "wte[0]" }' >tied.prototxt
net '' >apart.prototxt
for n in tied apart; do
    cat >$n.solver.prototxt <<EOF2
net: "$n.prototxt" display: 1 max_iter: 12 solver_mode: CPU random_seed: 3 base_lr: 0.2 momentum: 0.9 lr_policy: "fixed"
weight_decay: 0.001 deterministic: true checksum_interval: 1 snapshot_prefix: "s" global_batch_size: 12
EOF2
done
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
bytes_of() { sed -n 's/.*"event":"train".*"bytes_sent":\([0-9]*\).*/\1/p' "$1" | tail -1; }
close() { paste -d' ' "$1" "$2" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 2e-5 * $2) bad = 1; n++ } END { exit bad || n != 12 }'; }
job() { # NAME NET RANKS OPTIONS: losses and checksum of it
    name=$1 net=$2 ranks=$3
    shift 3
    runs $name 0 'Optimization Done' $JOB $ranks "$CORTADO" train --solver=$net.solver.prototxt --metrics=$name.jsonl \
        --set=snapshot_prefix=$name "$@"
    cp out $name.log
    sum_of >$name.sum
    losses $name.jsonl >$name.losses
}

for net in tied apart; do
    for more in "" "--set=clip_gradients=0.5 --set=iter_size=2"; do
        tag=$net$(echo "$more" | sed 's/--set=/_/g; s/=[^ ]*//g; s/ //g')
        job ${tag}_1 $net 1 $more
        for n in 2 3 4; do
            job ${tag}_dense_$n $net $n $more --set=comm.send_rows=false
            job ${tag}_rows_$n $net $n $more --set=comm.allreduce=ring
            is ${tag}_said_$n grep -Eq 'gradient of (wte\[0\]|e\[0\]): up to [0-9]+ of its 800 rows a rank travel as a list' ${tag}_rows_$n.log
            is ${tag}_unsaid_$n sh -c "! grep -q 'travel as a list' ${tag}_dense_$n.log"
            is ${tag}_as_dense_$n close ${tag}_dense_$n.losses ${tag}_rows_$n.losses
            is ${tag}_as_alone_$n close ${tag}_1.losses ${tag}_rows_$n.losses
            for how in overlap=false forward_overlap=false progress=THREAD; do
                job ${tag}_${how}_$n $net $n $more --set=comm.allreduce=ring --set=comm.$how
                is ${tag}_same_${how}_$n cmp ${tag}_rows_$n.sum ${tag}_${how}_$n.sum
            done
        done
    done
done
is sums_are_there test -s tied_rows_2.sum

# with sums that do not depend on it, no cut of the gradients shows, also of the table in parts
for mb in 0 0.003 64; do
    job cut_$mb tied 3 --reproducible_sum --set=comm.bucket_mb=$mb --set=clip_gradients=0.5
    is cut_same_$mb cmp cut_0.sum cut_$mb.sum
done

# the bytes: a ring sends an array 2 (p - 1) / p times, lists p - 1 times. 38 400 of the table, 600 of
# the layer between; a list has at most 30 rows of 48 bytes. All of a step is sent in it: bytes that
# travel during the next forward count there
job ring_dense apart 2 --set=comm.send_rows=false --set=comm.allreduce=ring --set=comm.forward_overlap=false
job ring_rows apart 2 --set=comm.allreduce=ring --set=comm.forward_overlap=false
is apart_sends_less awk "BEGIN { d = $(bytes_of ring_dense.jsonl) - $(bytes_of ring_rows.jsonl); exit !(d > 38400 - 64 - 128 - 30 * 48 - 1 && d < 38400) }"
check() { "$CORTADO" check --solver=$1.solver.prototxt --ranks=2 --json=- --set=comm.send_rows=$2 2>/dev/null </dev/null | sed 's/.*"bytes_sent":\([0-9.e+]*\).*/\1/'; }
is check_counts awk "BEGIN { dense = $(check apart false); rows = $(check apart true); tied = $(check tied false); both = $(check tied true); exit !(dense - rows == 38400 - 30 * 52 && both - tied == 30 * 52) }"

# a tied table leaves when the head's backward is over, before those below it; the list is a third of it
# at most, and the only part that leaves after the last backward
if command -v python3 >/dev/null; then
    runs trace 0 'spans of 2 ranks' $JOB 2 "$CORTADO" train --solver=tied.solver.prototxt --trace=t.json --trace_iterations=5-8 \
        --set=snapshot_prefix=tr --set=comm.progress=POLL --set=comm.tune_iterations=0 --set=deterministic=false
    cat >early.py <<'EOF2'
import json, sys
spans = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
for rank in range(2):
    for i in range(5, 9):
        def of(kind): return [e for e in spans if e["pid"] == rank and e["args"]["kind"] == kind and e["args"]["iteration"] == i]
        backward = {e["name"]: e for e in of("backward")}
        table = [e for e in of("bucket") if "wte[0]" in e["name"] and e["args"]["algorithm"] != "rows"]
        rows = [e for e in of("bucket") if e["args"]["algorithm"] == "rows"]
        assert len(rows) == 1 and "wte[0]" in rows[0]["name"], rows
        assert min(e["ts"] for e in table) < backward["f"]["ts"] + 0.001, ("leaves late", rank, i)
        assert rows[0]["ts"] >= backward["e"]["ts"] - 0.001, ("rows leave early", rank, i)
        assert 3 * rows[0]["args"]["bytes"] <= sum(e["args"]["bytes"] for e in table), ("bytes", rank, i)
EOF2
    python3 early.py t.json >out 2>&1 && ok table_leaves_early || not_ok table_leaves_early "$(tail -1 out)"
fi
runs times 0 'images/s' $JOB 2 "$CORTADO" time --solver=tied.solver.prototxt --iterations=3 --limits=false --json=t.json
is time_lists_it_first grep -Eq '"params":\[\{"key":"wte\[0\]","offset":0,.*"backward":\[\{"kind":"backward","layer":[0-9]+,"ms":[^]]*"kind":"ready","param":0,.*"kind":"ready","param":1,' t.json

# goes on exactly, and on other numbers of ranks, and where codecs have left residuals behind
job straight tied 3
job half tied 3 --iterations=6
job resumed tied 3 --snapshot=half_iter_6.solverstate.h5
is resumed_exactly cmp straight.sum resumed.sum
job elsewhere tied 2 --snapshot=half_iter_6.solverstate.h5
tail -6 straight.losses >a
tail -6 elsewhere.losses >b
is elsewhere_alike awk 'NR == FNR { w[$1] = $2; next } { d = $2 - w[$1]; if (d < 0) d = -d; if (d > 2e-5 * $2) bad = 1; n++ } END { exit bad || n != 6 }' a b
for net in tied apart; do
    job ${net}_coded $net 2 --compression=topk:density=0.05,min_bytes=1024 --iterations=6
    is ${net}_coded_dense sh -c "! grep -q 'travel as a list' ${net}_coded.log"
    for rows in true false; do
        job ${net}_after_$rows $net 2 --snapshot=${net}_coded_iter_6.solverstate.h5 --set=comm.send_rows=$rows
        tail -6 ${net}_after_$rows.losses >${net}_after_$rows.last
    done
    is ${net}_after_alike awk 'NR == FNR { w[$1] = $2; next } { d = $2 - w[$1]; if (d < 0) d = -d; if (d > 2e-5 * $2) bad = 1; n++ } END { exit bad || n != 6 }' ${net}_after_true.last ${net}_after_false.last
done

# where the batch has too many words, sums are dense
job many apart 2 --set=global_batch_size=400
is many_are_dense sh -c "! grep -q 'travel as a list' many.log"
# … and where too many micro-batches make a step
job micro apart 2 --set=iter_size=40 --iterations=2
is micro_is_dense sh -c "! grep -q 'travel as a list' micro.log"
finish
