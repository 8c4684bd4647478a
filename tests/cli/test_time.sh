#!/bin/sh
# cortado time: the profile that it writes, on one rank and on several.
. "$ROOT/tests/cli/lib.sh"
make_case
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

for n in 2 3; do
    for overlap in true false; do
        runs ranks_${n}_overlap_$overlap 0 "images/s \(batch $((16 * n))\)" $JOB $n "$CORTADO" time \
            --model=net.prototxt --iterations=4 --overlap=$overlap --json=r.json
        is overlap_said_${n}_$overlap grep -q "\"forward_overlap\":$overlap" r.json
    done
done
runs backward_only 0 'images/s' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=2 \
    --set=comm.forward_overlap=false --json=r.json
is backward_only_said grep -q '"forward_overlap":false' r.json
runs with_topk 0 'images/s' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=4 \
    --compression=topk:density=0.05,min_bytes=1024
runs clipped 0 'iter_size 3' $JOB 2 "$CORTADO" time --model=net.prototxt --iterations=2 \
    --set=iter_size=3 --set=clip_gradients=1 --json=r.json
is clipped_waits grep -q '"forward_overlap":false' r.json
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
