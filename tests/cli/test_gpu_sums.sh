# Gradients of two ranks added up by NCCL, a GPU each: within a graph from the loss to the new weights,
# kernel by kernel, and through the host. The sum of two numbers has no order, so all have the same bits.
# Needs two GPUs, or a build whose GPUs and NCCL are stand-ins (make CUDA=emulated).
. "$ROOT/tests/cli/lib.sh"
gpus=$("$CORTADO" info --gpus 2>/dev/null)
emulated=
case $gpus in *"emulated on the host"*) emulated=1 CORTADO_EMULATED_GPUS=2 CORTADO_EMULATED_NCCL=1 ;; esac
if [ -z "$emulated" ] && [ "$(echo "$gpus" | grep -c '^gpu [0-9]')" -lt 2 ]; then
    skip gpu_sums "needs two GPUs"
    finish
fi
[ -z "$emulated" ] || export CORTADO_EMULATED_GPUS CORTADO_EMULATED_NCCL
make_case
checksum() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "$1.log" | tail -1; }
two() { # NAME PATTERN SUM ARGUMENTS...: trains on two ranks
    which=$1 text=$2
    sed "s/net.prototxt/$net/" solver.prototxt >two.prototxt && echo "comm { gpu_sum: $3 }" >>two.prototxt
    shift 3
    runs "$which" 0 "$text" $JOB 2 "$CORTADO" train --solver=two.prototxt --solver_mode=gpu --iterations=5 "$@"
    cp out "$which.log"
}
net=net.prototxt
for more in "" "--set=clip_gradients=0.5 --set=iter_size=2 --set=precision=FP16"; do
    tag=$(echo "$more" | sed 's/--set=/_/g; s/=[^ ]*//g; s/ //g')
    two graph$tag 'backward: [0-9]+ of [0-9]+ steps in 1 graph, with the update' NCCL $more
    is recorded$tag test -z "$(grep 'would not record' graph$tag.log)"
    two plain$tag 'added up on the GPUs, by nccl' NCCL $more --set=cuda_graph=false
    two host$tag 'Optimization Done' HOST $more
    others="plain host"
    if [ -n "$emulated" ]; then
        export CORTADO_EMULATED_CAPTURE=one # forward; not backward with its sums
        two refused$tag 'the device would not record the step' NCCL $more
        unset CORTADO_EMULATED_CAPTURE
        others="$others refused"
    fi
    for other in $others; do
        is ${other}_same$tag test -n "$(checksum graph$tag)" -a "$(checksum graph$tag)" = "$(checksum $other$tag)"
    done
done
# a layer on the host between two gradients: what leaves before it is summed outside of graphs
net=middle.prototxt
sed '/name: "ip"/i layer { name: "y" type: "SyncBN" bottom: "conv" top: "y" }
s/bottom: "conv" top: "ip"/bottom: "y" top: "ip"/' net.prototxt >$net
two graph_middle 'backward: [0-9]+ of [0-9]+ steps in [0-9]+ graphs?$' NCCL
two plain_middle 'added up on the GPUs, by nccl' NCCL --set=cuda_graph=false
two host_middle 'Optimization Done' HOST
for other in plain host; do
    is ${other}_same_middle test -n "$(checksum graph_middle)" -a "$(checksum graph_middle)" = "$(checksum ${other}_middle)"
done
net=net.prototxt
# each step counts its bytes, whether they are in a graph or not
two counts '' NCCL --set=display=1 --metrics=counts.json
is counts_bytes test "$(sed -n 's/.*"bytes_sent":\([0-9]*\).*/\1/p' counts.json | sed -n '2,$p' | sort -u | grep -c '[1-9]')" = 1
# no graph is left when the group of ranks ends
runs time 0 'with the update' $JOB 2 "$CORTADO" time --solver=two.prototxt --solver_mode=gpu --iterations=3
finish
