#!/bin/sh
# Plans of engines: timed, kept, replayed, noticed where they do not fit, resumed from.
. "$ROOT/tests/cli/lib.sh"
make_case
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' "${1:-out}"; }
time="$CORTADO time --model=net.prototxt --iterations=1 --limits=false"

# four outputs: too few for blocks of any processor, so conv has direct and gemm, forward and by weights
sed -i 's/num_output: 6 /num_output: 4 /' net.prototxt
runs fills 0 'plan: 2 computations with a choice of engines: 0 replayed, 2 timed' $time --plan=p.plan
is has_forward grep -Eq '^conv forward n16 .* \| (direct|gemm) [0-9.e-]+ (direct|gemm) [0-9.e-]+$' p.plan
is has_weight grep -q '^conv backward_weight n16 ' p.plan
is has_machine grep -Eq '^machine "[^"]*" [a-z0-9]+ threads 1 version "[^"]+"$' p.plan
is has_end grep -qx 'end 2' p.plan
cp p.plan first.plan
runs replays 0 'plan: 2 computations with a choice of engines: 2 replayed, 0 timed' $time --plan=p.plan
is replay_changes_nothing cmp p.plan first.plan
is no_temporary_left test "$(ls p.plan* | wc -l)" = 1
runs completes 0 '2 replayed, 0 timed' $time --plan=p.plan
runs another_batch 0 '0 replayed, 2 timed' $time --plan=p.plan --set=batch_size=8
is both_batches grep -qx 'end 4' p.plan

# what a plan says is what runs
swap() { sed -E "s/^(conv [^|]*) \|.*/\1 | $1 1 $2 2/" first.plan >"$3"; }
swap gemm direct gemm.plan
swap direct gemm direct.plan
runs gemm_runs 0 '^conv .* forward .* gemm$' $time --plan=gemm.plan
runs direct_runs 0 '^conv .* forward .* direct$' $time --plan=direct.plan

runs engines_told 0 'conv forward n16 [^(]*\(conv\):  (direct|gemm)\*? [0-9.e-]+  (direct|gemm)\*? [0-9.e-]+' $time --engines --json=e.json
is engines_in_json grep -Eq '"engines":\[\{"key":"conv forward n16 [^"]*","layer":"conv","layers":1,"engine":"direct","ms":\{"[a-z]+":[0-9.e-]+,' e.json
runs survey_changes_nothing 0 '; 0 not by the static rules' $time --engines

# stale, foreign, damaged
sed -E 's/version ".*"/version "0.0.1-gone"/' gemm.plan >stale.plan
runs stale_is_told 0 'stale.plan is stale: .* version 0.0.1-gone' $time --plan=stale.plan
is stale_is_replaced sh -c '! grep -q gone stale.plan && grep -qx "end 2" stale.plan'
sed -E 's/^machine "[^"]*"/machine "Babbage Engine"/' gemm.plan >foreign.plan
runs foreign_is_told 0 'foreign.plan is of another machine: "Babbage Engine"' $time --plan=foreign.plan
is foreign_is_kept grep -q 'Babbage' foreign.plan
is foreign_is_completed grep -qx 'end 4' foreign.plan
sed '$d' first.plan >cut.plan
runs cut_short 3 'cut.plan:5: damaged plan: it ends before' $time --plan=cut.plan
sed -E '3s/\|/:/' first.plan >row.plan
runs bad_row 3 'row.plan:3: damaged plan: expected KEY' $time --plan=row.plan
cp row.plan kept.plan
is damaged_is_left cmp row.plan kept.plan
runs no_folder 3 'nowhere' $time --plan=nowhere/p.plan
sed 's/| gemm 1/| warp 1/' gemm.plan >warp.plan
runs unknown_engine 0 'engine "warp" cannot run "conv forward' $time --plan=warp.plan

# deterministic: nothing is timed, what is there is replayed
train="$CORTADO train --solver=solver.prototxt --set=test_interval=1000"
runs deterministic_needs_it 3 'none.plan' $train --plan=none.plan
runs static 0 'Optimization Done' $train --set=snapshot_prefix=static
static=$(sum_of)
is nothing_without sh -c '! grep -q "plan:" out'
runs deterministic 0 '2 replayed, 0 timed' $train --plan=gemm.plan --set=snapshot_prefix=straight
gemm=$(sum_of)
is plan_is_told grep -q 'gemm instead of direct' out
# with AVX2 both engines add in one order, so their bits are equal
"$CORTADO" info | grep -q 'multiply-adds, avx2,' || is plan_matters test "$static" != "$gemm"
runs repeats 0 '' $train --plan=gemm.plan --set=snapshot_prefix=again
is same_bits test "$(sum_of)" = "$gemm"

# a snapshot keeps the plan: the file may be gone, or say something else
$train --plan=gemm.plan --iterations=10 --set=snapshot_prefix=half >out 2>&1
runs resumes_without 0 '2 replayed, 0 timed' $train --set=snapshot_prefix=half --snapshot=half_iter_10.solverstate.h5
is resume_is_exact test "$(sum_of)" = "$gemm"
rm -f half_iter_20.*
runs resumes_auto 0 '2 replayed, 0 timed' $train --set=snapshot_prefix=half --snapshot=auto --plan=direct.plan
is auto_is_exact test "$(sum_of)" = "$gemm"
rm -f half_iter_20.*
runs threads_differ 0 'is of another machine: .* 2 threads' env OMP_NUM_THREADS=2 $train --set=snapshot_prefix=half --snapshot=auto

# without deterministic a plan is timed before training, and resumed from
free="$train --set=deterministic=false"
# the test net's forward is a third computation
runs free 0 '0 replayed, 3 timed' $free --plan=free.plan --set=snapshot_prefix=free
free_sum=$(sum_of)
is free_wrote grep -qx 'end 3' free.plan
runs free_again 0 '3 replayed, 0 timed' $free --plan=free.plan --set=snapshot_prefix=free2
is free_is_exact test "$(sum_of)" = "$free_sum"

# ranks take rank 0's
for n in 2 3; do
    runs ranks_$n 0 '0 replayed, 3 timed' $JOB $n $free --set=batch_size=8 --plan=r$n.plan --set=checksum_interval=5 --set=snapshot_prefix=r$n
    is ranks_${n}_wrote grep -qx 'end 3' r$n.plan
done
# 3 ranks share 16 samples as 6, 5, 5: one choice for all
runs uneven 0 '3 timed' $JOB 3 $free --global_batch_size=16 --plan=u.plan --set=snapshot_prefix=u
is uneven_is_rank_0s grep -q '^conv forward n6 ' u.plan
finish
