#!/bin/sh
# cortado time: the profile that it writes, on one rank and on several.
. "$ROOT/tests/cli/lib.sh"
make_case
# four outputs: too few for blocks of any processor, so layers have the same numbers everywhere
sed -i 's/num_output: 6 /num_output: 4 /' net.prototxt
# count WORD FILE: how often
count() { grep -o -- "$1" "$2" | wc -l; }

runs one_rank 0 'images/s \(batch 16\)' "$CORTADO" time --model=net.prototxt --iterations=3 --json=t.json
command -v python3 >/dev/null && is profile_is_json python3 -m json.tool t.json /dev/null
is profile_head grep -Eq '"profile":1,"net_hash":"[0-9a-f]{16}","batch":16,"global_batch":16,"iterations":3,' t.json
is profile_of_net grep -q '"net":"Tiny"' t.json
# conv and ip: weights and bias each. ip's gradients are ready first, the weights of conv are read first
is params grep -q '"params":\[{"key":"ip\[0\]","offset":0,"count":[0-9]*,"rows":[0-9]*},{"key":"ip\[1\]"' t.json
is forward_list grep -Eq '"forward":\[\{"kind":"forward","layer":0,"ms":[0-9.e+-]+,"polls":[0-9]+\},\{"kind":"wait","param":2\},\{"kind":"wait","param":3\},\{"kind":"forward","layer":1,' t.json
is backward_list grep -Eq '"kind":"backward","layer":4,"ms":[0-9.e+-]+,"polls":[0-9]+\},\{"kind":"ready","param":0\},\{"kind":"ready","param":1\},\{"kind":"backward","layer":3,' t.json
is waits test "$(count '"kind":"wait"' t.json)" = 4
is readies test "$(count '"kind":"ready"' t.json)" = 4
is samples grep -Eq '"step_ms_samples":\[[0-9.e+-]+,[0-9.e+-]+,[0-9.e+-]+\]' t.json
is samples_of_parts grep -Eq '"forward":\{"ms":[0-9.e+-]+,"spread":[0-9.e+-]+,"flop":[0-9.e+-]+,"bytes":[0-9.e+-]+,"bound_ms":[0-9.e+-]+,"engine":"[a-z]+"\}' t.json
is limit_said grep -Eq '"limit":\{"simd":"[a-z0-9]+","threads":1,"flop_per_s":[0-9.e+]+,"read_bytes_per_s":' t.json
is conversions_said grep -Eq '"conversions":[0-9]+' t.json
is compute_left grep -Eq '"compute_ms":[0-9.]*[1-9]' t.json
is table grep -Eq '^conv +Convolution +[0-9]+ forward +[0-9.]+ +[0-9.]+ +[0-9.-]+ .* (direct|gemm|blocked)$' out
is table_backward grep -Eq '^ +backward +[0-9.]+ ' out
is limits_printed grep -Eq '^limits of 1 thread, [a-z0-9]+: [0-9.]+ GFLOP/s; memory' out
# the operations are those of check: both totals, in GFLOP
"$CORTADO" check --model=net.prototxt --phase=TRAIN --json=c.json >check.out 2>&1
flop() { sed 's/.*"layers"//' t.json | grep -o "\"$1\":{[^}]*" | grep -o '"flop":[0-9.e+-]*' | cut -d: -f2 | awk '{ s += $1 } END { printf "%.6g", s * 1e-9 }'; }
of_check() { grep -o "\"$1_gflop\":[0-9.e+-]*" c.json | cut -d: -f2 | awk '{ printf "%.6g", $1 }'; }
is flop_forward test "$(flop forward)" = "$(of_check forward)"
is flop_backward test "$(flop backward)" = "$(of_check backward)"
is flop_there test "$(flop forward)" != 0

runs roofline 0 'images/s' "$CORTADO" time --model=net.prototxt --iterations=2 --roofline=r.svg
is roofline_is_svg grep -q '^<svg xmlns' r.svg
is roofline_whole grep -q '^</svg>' r.svg
is roofline_has_conv grep -q '<title>conv forward: ' r.svg
command -v python3 >/dev/null && is roofline_is_xml python3 -c "import xml.dom.minidom as m; m.parse('r.svg')"
runs without_limits 0 'images/s' "$CORTADO" time --model=net.prototxt --iterations=2 --limits=false --json=n.json
is no_limits_said sh -c '! grep -q "\"limit\"\|bound_ms" n.json'
runs roofline_needs_limits 2 'needs the limits' "$CORTADO" time --model=net.prototxt --limits=false --roofline=r.svg
runs roofline_no_folder 3 'nowhere' "$CORTADO" time --model=net.prototxt --roofline=nowhere/r.svg

for n in 2 3; do
    for overlap in true false; do
        runs ranks_${n}_overlap_$overlap 0 "images/s \(batch $((16 * n))\)" $JOB $n "$CORTADO" time \
            --model=net.prototxt --iterations=4 --overlap=$overlap --limits=$([ $n$overlap = 2true ] && echo true || echo false) --json=r.json
        is overlap_said_${n}_$overlap grep -q "\"forward_overlap\":$overlap" r.json
    done
done
# pairs of steps have a time where several ranks run: waits for weights, and sums of a layer. The layer's
# passes are in parts then
sed '/name: "ip"/i layer { name: "y" type: "SyncBN" bottom: "conv" top: "y" }
s/bottom: "conv" top: "ip"/bottom: "y" top: "ip"/' net.prototxt >synced.prototxt
runs pairs 0 'images/s' $JOB 2 "$CORTADO" time --model=synced.prototxt --iterations=3 --limits=false --json=p.json
is pairs_json grep -Eq '"kind":"wait","param":[0-9]+,"ms":[0-9.e+-]+\}' p.json
is pairs_ready grep -Eq '"kind":"ready","param":[0-9]+,"ms":[0-9.e+-]+\}' p.json
is pairs_sums test "$(count '"kind":"sum_begin","layer":[0-9]*,"pair":[0-9]*,"count":[0-9]*,"ms":' p.json)" = 3
is pairs_sum_waits test "$(count '"kind":"sum_wait","layer":[0-9]*,"pair":[0-9]*,"count":[0-9]*,"ms":' p.json)" = 3
is pairs_parts test "$(count '"layer":[0-9]*,"part":[0-9]*,"ms":' p.json)" = 5
is pairs_table grep -Eq '^y +forward, sum 2, 4 numbers +[0-9.]+ +[0-9.]+$' out
is pairs_table_weights grep -Eq '^conv\[0\] +gradient, then weights +[0-9.]+ +[0-9.]+$' out
is pairs_layer grep -Eq '^y +SyncBN +[0-9]+ forward +[0-9.]+ ' out
runs no_pairs 0 'images/s' "$CORTADO" time --model=synced.prototxt --iterations=3 --limits=false --json=o.json
is no_pairs_json sh -c '! grep -q "sum_begin\|sum_wait\|\"part\"\|\"param\":[0-9]*,\"ms\"" o.json'
is no_pairs_table sh -c '! grep -q "to other ranks" out'
# labels that are ignored: their count begins behind the data layer, and the loss waits for it
sed '/type: "SoftmaxWithLoss"/s/}[^}]*$/ loss_param { ignore_label: 1 } }/' net.prototxt >ignored.prototxt
runs counts 0 'images/s' $JOB 2 "$CORTADO" time --model=ignored.prototxt --iterations=3 --limits=false --json=c.json
is counts_begin grep -Eq '"forward":\[\{"kind":"forward","layer":0,[^]]*\},\{"kind":"forward","layer":[0-9]+,"part":0,[^}]*\},\{"kind":"sum_begin","layer":[0-9]+,"pair":[0-9]+,"count":1,"ms":' c.json
is counts_wait grep -Eq '"kind":"sum_wait","layer":[0-9]+,"pair":[0-9]+,"count":1,"ms":[^}]*\},\{"kind":"forward","layer":[0-9]+,"part":1,' c.json
is counts_table grep -Eq '^loss +forward, sum 1, 1 number +' out
runs backward_only 0 'images/s' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=2 --limits=false \
    --set=comm.forward_overlap=false --json=r.json
is backward_only_said grep -q '"forward_overlap":false' r.json
runs with_topk 0 'images/s' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=4 --limits=false \
    --compression=topk:density=0.05,min_bytes=1024
runs clipped 0 'iter_size 3' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=2 --limits=false \
    --set=iter_size=3 --set=clip_gradients=1 --json=r.json
is clipped_overlaps grep -q '"forward_overlap":true' r.json
is clipped_said grep -q '"after_all":true' r.json
is clipped_norm_shown grep -Eq ' \+ norm [0-9.]+ \+ the rest' out
is clipped_norm awk 'BEGIN { RS = "," } /"norm_ms":/ { sub(/.*:/, ""); ms = $0 } END { exit !(ms > 0) }' r.json
is unclipped_said grep -q '"norm_ms":0,"after_all":false' p.json
# the threads' shares, where those that wait sleep
runs balance 0 'images/s' env OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2 "$CORTADO" time --model=net.prototxt --iterations=3 \
    --limits=false --balance --json=b.json
is balance_of_two grep -q '^balance of 2 threads' out
is balance_row grep -Eq '^  conv +Convolution +forward +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' out
is balance_sum grep -Eq '^balance +layers: a thread [0-9.]+ ms in the mean' out
is balance_said grep -Eq '"thread_mean_ms":[0-9.e+-]+,"thread_most_ms":[0-9.e+-]+,"thread_first_ms":[0-9.e+-]+' b.json
# nobody has more than all together, and the mean no more than the most
is balance_in_order sh -c "grep -o '\"thread_mean_ms\":[^}]*' b.json | sed 's/\"[a-z_]*\"://g' | awk -F, '(\$1 > \$2) || (\$3 > \$2) || (\$2 > 2.0001 * \$1) { bad = 1 } END { exit bad || NR < 4 }'"
is no_balance_unasked sh -c '! grep -q thread_mean_ms t.json'
# no region has a part of the team: threads that it leaves over would end, and their clocks with them
runs team_stays_whole 0 'images/s' env OMP_WAIT_POLICY=passive OMP_NUM_THREADS=24 "$CORTADO" time \
    --model="$ROOT/models/lenet/train_val.prototxt" --set=batch_size=256 --iterations=2 --limits=false --balance
is balance_of_24 grep -q '^balance of 24 threads' out
runs balance_needs_sleep 2 'OMP_WAIT_POLICY=passive' env -u OMP_WAIT_POLICY "$CORTADO" time --model=net.prototxt --balance
runs no_steps 2 'at least 1' "$CORTADO" time --model=net.prototxt --iterations=0
runs no_folder 3 'nowhere' "$CORTADO" time --model=net.prototxt --iterations=1 --json=nowhere/t.json

# the data layers alone
runs data_alone 0 'data layers alone: 30 batches of 16' "$CORTADO" time --model=net.prototxt --data --iterations=30 --json=d.json
is data_json grep -Eq '"batches":30,"batch":16,"wall_s":[0-9.e+-]+,"cpu_s":[0-9.e+-]+,.*"images_per_cpu_s":[0-9.e+-]+}$' d.json
runs data_two_ranks 0 'batches of 16' $JOB 2 "$CORTADO" time --model=net.prototxt --data --iterations=3
sed 's/data\/train_lmdb/nowhere/' net.prototxt >absent.prototxt
runs data_absent 3 'nowhere' "$CORTADO" time --model=absent.prototxt --data
cat >input.prototxt <<'EOF'
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
EOF
runs data_none 2 'no layer of net .* reads a data set' "$CORTADO" time --model=input.prototxt --data
runs data_no_batches 2 'at least 1' "$CORTADO" time --model=net.prototxt --data --iterations=0
finish
