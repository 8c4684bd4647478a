# The installed library: users' programs build against it and give what the verbs do; nobody sees its
# other symbols; it goes away again.
. "$ROOT/tests/cli/lib.sh"
built=$(dirname "$CORTADO")/lib
runs installs 0 'cortado is in ' "$ROOT/scripts/install.sh" install "$CORTADO" "$work/prefix"
home=$work/prefix share=$work/prefix/share/cortado
export PKG_CONFIG_PATH=$home/lib/pkgconfig
is version test "$(pkg-config --modversion cortado)" = "$(cat "$ROOT/VERSION")"
is header_is_there test -f "$home/include/cortado/cortado.h"

# symbols: every public one begins with cortado_, of both forms, and the header's are all there
nm -D --defined-only "$home/lib/libcortado.so" | awk '$2 ~ /[TDBRVWi]/ { sub(/@.*/, "", $3); print $3 }' | sort >dynamic
nm -g --defined-only "$home/lib/libcortado.a" 2>/dev/null | awk '$2 ~ /[TDBRVWi]/ { print $3 }' | sort >archived
grep -oE '\bcortado_[a-z_]+\(' "$home/include/cortado/cortado.h" | tr -d '(' | sort -u >promised
is many_symbols test "$(wc -l <promised)" -gt 20
is dynamic_ones_are_those_promised diff promised dynamic
is archived_ones_are_those_promised diff promised archived
is soname sh -c 'readelf -d "$1" | grep -q "SONAME.*\[libcortado\.so\.0\]"' - "$home/lib/libcortado.so"

# the examples, built as their first lines say
cc=${CC:-cc}
for example in values learn steps; do
    runs "builds_$example" 0 '' $cc -Wall -Werror "$share/examples/$example.c" $(pkg-config --cflags --libs cortado) -o "$example"
done
runs builds_from_the_archive 0 '' $cc "$share/examples/values.c" -I"$home/include" "$home/lib/libcortado.a" $(pkg-config --libs --static cortado | sed 's/-lcortado//; s/-Wl,-rpath[^ ]*//') -o values_static
runs header_is_cpp 0 '' sh -c 'printf "#include <cortado/cortado.h>\nint main() { return cortado_net_open(0, 0, CORTADO_TEST, 0) == CORTADO_OK; }\n" >c.cc && ${CXX:-c++} -Wall -Werror c.cc $(pkg-config --cflags --libs cortado) -o cpp && ./cpp'

# what `cortado extract` gives, bit for bit: inner values, those of layers in place, the last ones
"$CORTADO" convert digits --to=digits --count=128 --seed=1 >/dev/null 2>&1
sed "s#data/mnist/\(train\|test\)_lmdb#digits/\1_lmdb#; s/batch_size: [0-9]*/batch_size: 8/" "$ROOT/models/lenet/train_val.prototxt" >net.prototxt
printf 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 4 snapshot_prefix: "lenet" random_seed: 1 test_iter: 1 test_interval: 100\n' >solver.prototxt
runs trains 0 '' "$CORTADO" train --solver=solver.prototxt
weights=lenet_iter_4.caffemodel.h5
[ -f $weights ] || weights=$(ls lenet_iter_4.caffemodel* | head -1)
runs extracts 0 '' "$CORTADO" extract --model=net.prototxt --weights="$weights" --blobs=conv1,pool2,ip1,ip2 --iterations=1 --to=blobs.h5
for blob in conv1 pool2 ip1 ip2; do
    runs "values_of_$blob" 0 '' sh -c './values net.prototxt "$1" "$2" >"$2.txt"' - "$weights" $blob
    echo "layer { name: 'f' type: 'HDF5Data' top: '$blob' hdf5_data_param { source: 'blobs.h5' batch_size: 8 } }" >read.prototxt
    ./values read.prototxt - $blob >"$blob.want"
    is "equals_extract_$blob" sh -c 'test -s "$1.want" && cmp "$1.txt" "$1.want"' - $blob
    is "archive_does_too_$blob" sh -c './values_static net.prototxt "$2" "$1" | cmp - "$1.want"' - $blob "$weights"
done
runs no_such_blob 1 'the net has no blob "ip3"; did you mean "ip' ./values net.prototxt "$weights" ip3
runs no_such_weights 1 'nowhere.npz' ./values net.prototxt nowhere.npz ip2

# a loop of one's own learns, and what it saves is read by the verbs
runs learns 0 'step 59, loss' sh -c './learn net.prototxt 60 0.05 learned.safetensors >learn.txt && tail -1 learn.txt'
is loss_falls awk -F'= ' 'NR <= 10 { first += $2 } NR > 50 { last += $2 } END { exit !(last < 0.8 * first) }' learn.txt
runs verbs_read_it 0 'accuracy' "$CORTADO" test --model=net.prototxt --weights=learned.safetensors --iterations=1

# 200 steps, in four calls: the losses and weights of `cortado train`, bit for bit
sed 's/max_iter: 4/max_iter: 200 display: 50/; s/snapshot_prefix: "lenet"/snapshot_prefix: "long"/' solver.prototxt >long.prototxt
runs trains_200 0 '' "$CORTADO" train --solver=long.prototxt --metrics=long.jsonl
runs steps_200 0 'iteration 200, loss = ' ./steps long.prototxt 4 50 steps.npz
cat >weights.c <<'EOF'
#include <stdio.h>
#include <cortado/cortado.h>
int main(int argc, char **argv)
{
    cortado_net *net;
    if ((argc != 3) || (cortado_net_open(argv[1], argv[2], CORTADO_TEST, &net) != CORTADO_OK)) return 1;
    for (int l = 0; l < cortado_net_layer_count(net); l++)
        for (int i = 0; i < cortado_net_weight_count(net, l); i++) {
            cortado_blob w;
            if (cortado_net_weight(net, cortado_net_layer_name(net, l), i, &w) != CORTADO_OK) return 1;
            for (int64_t k = 0; k < w.count; k++) printf("%a\n", (double)w.data[k]);
        }
    cortado_net_close(net);
    return 0;
}
EOF
runs builds_weights 0 '' $cc weights.c $(pkg-config --cflags --libs cortado) -o weights
./weights net.prototxt "$(ls long_iter_200.caffemodel* | head -1)" >train.txt
./weights net.prototxt steps.npz >steps.txt
is many_weights test "$(wc -l <train.txt)" -gt 400000
is weights_are_those_of_train cmp train.txt steps.txt

# on the ranks of a program that runs MPI: what a job of `cortado train` has, bit for bit, with codecs
# and shards, too
runs builds_ranks 0 '' "${MPICC:-mpicc}" -Wall -Werror "$share/examples/ranks.c" $(pkg-config --cflags --libs cortado) -o ranks
base=$(sed 's/max_iter: 4/max_iter: 20 snapshot_after_train: false deterministic: true/' solver.prototxt)
for kind in plain zero topk; do
    case $kind in zero) more='memory { zero: 3 }' ;; topk) more='compression { type: TOPK density: 0.05 }' ;; *) more= ;; esac
    printf '%s %s\n' "$base" "$more" >$kind.prototxt
    for n in 1 2 3; do
        runs "trains_${kind}_$n" 0 'checksum' $JOB $n "$CORTADO" train --solver=$kind.prototxt
        want=$(sed -n 's/.*iteration 20: checksum //p' out)
        is "has_a_checksum_${kind}_$n" test "${#want}" = 16
        runs "ranks_${kind}_$n" 0 "iteration 20: checksum $want\$" $JOB $n ./ranks $kind.prototxt 20
    done
done
echo 'tpye: "SGD"' >wrong.prototxt
runs wrong_solver 2 'rank 1: CORTADO_ERR_CONFIG: rank 0 says: .*did you mean "type"' $JOB 2 ./ranks wrong.prototxt 20
cat >early.c <<'EOF'
#include <mpi.h>
#include <stdio.h>
#include <cortado/cortado.h>
int main(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    cortado_solver *solver;
    cortado_status status = cortado_solver_open_on("plain.prototxt", NULL, CORTADO_KEEP_OUTPUTS, &comm, &solver);
    printf("%s: %s\n", cortado_status_name(status), cortado_error());
    return 0;
}
EOF
runs builds_early 0 '' "${MPICC:-mpicc}" early.c $(pkg-config --cflags --libs cortado) -o early
runs mpi_must_run 0 'CORTADO_ERR_ARG: .*MPI_Init_thread comes first' ./early

# ---- a sample of tests/faults/forward.py
if can_preload; then
    CORTADO_LIBRARY="$home/lib/libcortado.so" MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs drawn_nets 0 '^\| all \| \| [1-9]' \
        env -u CORTADO_OVERWRITE python3 "$ROOT/tests/faults/forward.py" drawn.jsonl --seed=3 --first=2 --cases=2
else
    skip drawn_nets "a sanitizer wants to be loaded first"
fi

# ---- a sample of tests/faults/answers.py
if ! has libmicrohttpd; then
    skip drawn_requests "built without libmicrohttpd"
elif can_preload; then
    CORTADO_LIBRARY="$home/lib/libcortado.so" MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs drawn_requests 0 '^\| all \| \| [1-9]' \
        python3 "$ROOT/tests/faults/answers.py" requests.jsonl --seed=3 --first=4 --cases=1 --requests=15
else
    skip drawn_requests "a sanitizer wants to be loaded first"
fi

runs uninstalls 0 'cortado is gone from' "$ROOT/scripts/install.sh" uninstall "$work/prefix"
is nothing_is_left test -z "$(find "$work/prefix" -mindepth 1)"
