# What is promised to be bitwise the same: weights after training, over placements, algorithms,
# buckets and overlap with reproducible_sum, and over runs with deterministic.
. "$ROOT/tests/cli/lib.sh"
make_case
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=snapshot=0 --set=snapshot_after_train=false"
# A BatchNorm layer, whose statistics are averaged over the ranks, and gradients that get clipped.
sed 's/^layer { name: "relu"/layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }\n&/' net.prototxt >bn.prototxt
sed -i 's/net.prototxt/bn.prototxt/' solver.prototxt
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' out; }

# same NAME N OPTION...: the weights of `first` again, under other options
same() {
    name=$1 n=$2
    shift 2
    runs "$name" 0 'reproducible sums: .* 64-bit integers' $JOB "$n" $train --reproducible_sum "$@"
    is "${name}_bits" test "$(sum_of)" = "$first"
}
for n in 2 3 4; do
    runs first_of_$n 0 'Optimization Done' $JOB $n $train --reproducible_sum
    first=$(sum_of)
    is sum_of_$n test -n "$first"
    case $n in
    2) maps='1x2 2x1' ;;
    3) maps='map:010 3x1' ;;
    4) maps='map:0010 2x2 map:0122 map:abab/0011' ;;
    esac
    k=0
    for map in $maps; do
        for a in $(echo auto ring rhd hier impi | tr ' ' '\n' | awk -v k=$k '(NR + k) % 2 == 0'); do
            k=$((k + 1))
            same "np${n}_${map}_$a" $n --topology=$map --allreduce=$a --overlap=$([ $((k % 2)) = 0 ] && echo true || echo false) \
                --set=comm.bucket_mb=$(echo 4 0.001 0.01 | cut -d' ' -f$((k % 3 + 1)))
        done
    done
done
runs clipped 0 'Gradient clipping' $JOB 4 $train --reproducible_sum --set=clip_gradients=0.5
first=$(sum_of)
same clipped_elsewhere 4 --set=clip_gradients=0.5 --topology=map:0110 --allreduce=rhd

# a plain sum keeps its promise for one placement only: here the order of additions shows
runs plain 0 'Optimization Done' $JOB 4 $train --allreduce=ring
plain=$(sum_of)
runs plain_again 0 'Optimization Done' $JOB 4 $train --allreduce=ring --overlap=false
is deterministic test "$(sum_of)" = "$plain"
runs plain_other 0 'Optimization Done' $JOB 4 $train --allreduce=rhd
is order_shows test "$(sum_of)" != "$plain"

runs with_compression 2 'reproducible_sum: true, but compression bf16' $JOB 2 $train --reproducible_sum --compression=bf16
runs deterministic_impi 2 'deterministic: true, but MPI does not promise' $JOB 2 $train --allreduce=impi
finish
