# Parallel input: one reader a node, shards, staged copies; the samples are the same in all ways.
. "$ROOT/tests/cli/lib.sh"
make_case
export OMPI_MCA_rmaps_base_oversubscribe=1

# sum NAME RANKS OPTION...: trains; the checksum goes to ./NAME.sum
sum() {
    name=$1 ranks=$2
    shift 2
    timeout -k 5 120 $JOB "$ranks" "$CORTADO" train --solver="${SOLVER:-solver.prototxt}" --set=snapshot=0 "$@" >"$name.out" 2>&1 </dev/null
    grep -o 'checksum [0-9a-f]*' "$name.out" | tail -n 1 >"$name.sum"
    [ -s "$name.sum" ] || { cp "$name.out" out; not_ok "$name" "no checksum"; }
}
same() { # NAME A B
    is "$1" sh -c "[ -s $2.sum ] && cmp -s $2.sum $3.sum"
}

for n in 1 2 3 4; do
    sum one$n $n --global_batch_size=12
    sum each$n $n --global_batch_size=12 --set=node_reader=false
    same one_reader_same_weights_$n one$n each$n
done
sum pretended 4 --global_batch_size=12 --topology=2x2
sum pretended_each 4 --global_batch_size=12 --topology=2x2 --set=node_reader=false
same one_reader_on_each_of_two_nodes pretended pretended_each

# ---- shards
runs convert_shards 0 '' "$CORTADO" convert digits --to=striped --count=600 --seed=3 --shards=4 --stripe=20
is shard_files sh -c '[ -e striped/train_lmdb/shard-00003.mdb ] && [ -e striped/train_lmdb/shards.txt ]'
runs convert_shards_hdf5 2 '--shards is for --backend=lmdb' "$CORTADO" convert digits --to=no --count=600 --shards=4 --backend=hdf5
runs convert_shards_many 0 '20 records fill 20 stripes and as many files, not 31' "$CORTADO" convert digits --to=few --count=100 --shards=31
is nothing_left sh -c '[ -z "$(ls no 2>/dev/null)" ]'
sed 's,data/,striped/,' net.prototxt >striped.prototxt
sed 's,net.prototxt,striped.prototxt,' solver.prototxt >striped_solver.prototxt
SOLVER=striped_solver.prototxt
sum shards 3 --global_batch_size=12
SOLVER=
sum stripes 3 --global_batch_size=12 '--set=layer[in].data_param.stripes=30'
same shards_are_stripes_of_the_plain_set shards stripes
SOLVER=striped_solver.prototxt
sum shuffled_whole 2 --global_batch_size=12 '--set=layer[in].data_param.stripes=1'
SOLVER=
same shards_shuffled_whole shuffled_whole one2
sum ordered 2 --global_batch_size=12 '--set=layer[in].data_param.shuffle=false'
SOLVER=striped_solver.prototxt
sum ordered_shards 2 --global_batch_size=12 '--set=layer[in].data_param.shuffle=false'
SOLVER=
same shards_in_order ordered ordered_shards
is shards_are_told grep -q 'stripes of 20: a batch of 4 touches at most 2 files, of 3 ranks at most' shards.out
runs info_shards 0 'shards +4 files, 30 stripes of 20' "$CORTADO" info --data=striped/train_lmdb
runs info_plain 0 'lmdb, 600 samples' "$CORTADO" info --data=data/train_lmdb
runs info_nothing 3 'No such file' "$CORTADO" info --data=nothing
runs check_shards 0 'touches at most' "$CORTADO" check --solver=striped_solver.prototxt

# ---- staged
sum staged 2 --global_batch_size=12 --stage=disk
same staged_same_weights staged one2
is staged_copied grep -q 'copying .*train_lmdb' staged.out
SOLVER=striped_solver.prototxt
sum again 2 --global_batch_size=12 --stage=disk '--set=layer[in].data_param.stripes=1'
SOLVER=
same staged_shards_same_weights again one2
sum reused 2 --global_batch_size=12 --stage=disk
is staged_reused sh -c 'grep -q "is staged already" reused.out && ! grep -q "copying" reused.out'
is staged_nothing_half_made sh -c '[ $(ls disk | wc -l) = 4 ]'
runs stage_missing_parent 3 'stage=no/such/disk: No such file' $JOB 2 "$CORTADO" train --solver=solver.prototxt --stage=no/such/disk
runs stage_time 0 'images/s' "$CORTADO" time --model=net.prototxt --data --iterations=3 --stage_dir=disk

# ---- failures: one exit code, and every rank's own line or rank 0's for all
rm -rf broken && cp -r data broken && rm -f broken/train_lmdb/*.index
sed 's,data/,broken/,' net.prototxt >broken.prototxt
sed 's,net.prototxt,broken.prototxt,' solver.prototxt >broken_solver.prototxt
runs index_first 0 '' "$CORTADO" info --data=broken/train_lmdb
# records are overwritten where the index says that they lie: the pages behind the middle
touch -r broken/train_lmdb/data.mdb stamp
size=$(wc -c <broken/train_lmdb/data.mdb)
dd if=/dev/zero of=broken/train_lmdb/data.mdb bs=4096 seek=$((size / 8192)) count=$((size / 16384)) conv=notrunc 2>/dev/null
touch -r stamp broken/train_lmdb/data.mdb
runs broken_record 3 'record [0-9]+.* of broken/train_lmdb' $JOB 3 "$CORTADO" train --solver=broken_solver.prototxt
rm -rf broken/train_lmdb
runs absent_set 3 'broken/train_lmdb: No such file' $JOB 3 "$CORTADO" train --solver=broken_solver.prototxt
finish
