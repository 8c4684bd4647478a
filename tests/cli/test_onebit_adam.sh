# 1-bit Adam from the command line: it learns, goes on exactly after a stop, and says what it refuses.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
losses() { sed -n 's/.*"event":"train","iter":\([0-9]*\),"loss":\([^,]*\),.*/\2/p' "$1"; }
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=base_lr=0.002 --iterations=40"
one="--compression=onebit:min_bytes=1024,warmup_iter=15"

for type in Adam AdamW; do
    # until the warm-up ends it is the rule itself; then what is sent is a thirtieth, and the loss still falls
    $JOB 2 $train --set=type=$type --metrics=dense.jsonl --set=display=1 --set=snapshot_prefix=d >out 2>&1 </dev/null
    losses dense.jsonl >dense
    runs trains_$type 0 'Optimization Done' $JOB 2 $train --set=type=$type $one --metrics=one.jsonl --set=display=1 --set=snapshot_prefix=o
    losses one.jsonl >one
    is warm_up_is_dense_$type sh -c "paste -d' ' dense one | head -15 | awk '{ d = \$1 - \$2; if (d < 0) d = -d; if (d > 1e-4 * \$1) bad = 1 } END { exit bad || NR != 15 }'"
    # over the last ten as good as dense within a fifth, and better than over the ten before the freeze
    is learns_$type sh -c "paste -d' ' dense one | awk '{ if (NR > 5 && NR <= 15) warm += \$2; if (NR > 30) { a += \$1; b += \$2 } if (\$2 != \$2) bad = 1 } END { exit !(NR == 40 && !bad && b < 1.2 * a && b < warm) }'"
    is sends_bits_$type grep -Eq 'compression of ip.0., .* \(onebit' out
    runs dense_again_$type 0 'Optimization Done' $JOB 2 $train --set=type=$type $one,resync_iter=10 --set=snapshot_prefix=r
done

# stopped before the warm-up ends, as it ends, and behind it: the same bits
with="$one --set=type=AdamW --set=iter_size=2"
$JOB 2 $train $with --set=snapshot_prefix=whole >out 2>&1 </dev/null
whole=$(sum_of)
is sum_is_there test -n "$whole"
for at in 10 15 30; do
    $JOB 2 $train $with --set=snapshot_prefix=part$at --iterations=$at >out 2>&1 </dev/null
    runs resumes_at_$at 0 "resuming after $at iterations, written by 2 ranks" $JOB 2 $train $with --set=snapshot_prefix=part$at --snapshot=auto
    is resumes_exactly_at_$at test "$(sum_of) of 40" = "$whole of 40"
done
for n in 1 3; do
    mkdir -p n$n
    cp part30_iter_30.* n$n/ 2>/dev/null
    runs resumes_on_$n 0 'resuming after 30 iterations, written by 2 ranks' $JOB $n $train $with --set=snapshot_prefix=n$n/part30 --snapshot=n$n/part30_iter_30.solverstate.h5
done

refused() { # NAME PATTERN OPTION...
    name=$1 pattern=$2
    shift 2
    runs "refuses_$name" 2 "$pattern" $JOB 2 $train "$@"
}
refused clip_of_the_sum 'clip_gradients: 1 .* freeze_variance sums signs of a mean: take compression { local_clip: 1 }' $one --set=type=AdamW --set=clip_gradients=1
refused no_warm_up 'freeze_variance keeps the variance that the warm-up finds: give warmup_iter' --compression=onebit:freeze_variance=true --set=type=Adam
refused other_rule 'freeze_variance keeps the variance of Adam and AdamW .* type "SGD" has none' $one,freeze_variance=true
refused other_codec 'freeze_variance means nothing to int8; it is for ONEBIT' --compression=int8:freeze_variance=true --set=type=Adam
refused auto 'freeze_variance means nothing to what AUTO may take here' --compression=auto:freeze_variance=true --set=type=Adam
refused fp16 'freeze_variance .* precision: FP16' $one --set=type=Adam --set=precision=FP16
runs clips_locally 0 'Optimization Done' $JOB 2 $train $one,local_clip=1 --set=type=AdamW --set=clip_gradients=1 --set=snapshot_prefix=lc
runs plain_residual 0 'Optimization Done' $JOB 2 $train $one,freeze_variance=false --set=type=AdamW --set=clip_gradients=1 --set=snapshot_prefix=pr
runs outer_has_none 0 'Optimization Done' $JOB 2 $train --set=type=AdamW --set=outer.local_iter=5 --set=outer.groups=2 --set=outer.compression.type=ONEBIT \
    --set=outer.compression.warmup_iter=10 --set=snapshot_prefix=ou
finish
