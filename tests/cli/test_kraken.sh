# Nets of scripts/nets/kraken.py: their formulas, their parameters, what it refuses.
. "$ROOT/tests/cli/lib.sh"
make_net="$ROOT/scripts/nets/kraken.py"
learned() { # FOLDER
    "$CORTADO" check --model="$1/train_val.prototxt" 2>&1 | sed -n 's/^parameters .*learned \([0-9]*\)$/\1/p' | head -1
}
# like A B: within 2 %
alike() { [ -n "$1" ] && [ -n "$2" ] && [ $((50 * ($1 > $2 ? $1 - $2 : $2 - $1))) -le "$2" ]; }

# ---- parameters
for like in gpt_char gpt2; do
    runs $like 0 '' "$make_net" --kind=standard --like=$like --to=$like
    wanted=$(learned $like)
    is ${like}_same [ "$wanted" = "$(learned "$ROOT/models/$like")" ]
    for kind in parallel ladder kraken:2 kraken:3 kraken:4 kraken:8; do
        ways=${kind#*:}
        [ "$ways" != "$kind" ] || ways=1
        "$make_net" --kind=${kind%:*} --ways=$ways --like=$like --to=net || not_ok "${like}_$kind" made
        is ${like}_${kind}_parameters alike "$(learned net)" "$wanted"
    done
done
runs deploy 0 'head .*InnerProduct' "$CORTADO" check --model=net/deploy.prototxt
is solver_named grep -q 'snapshot_prefix: "kraken"' net/solver.prototxt

# ---- what it refuses
runs no_kind 2 'required: --kind' "$make_net" --to=x
runs bad_kind 2 "invalid choice: 'krake'" "$make_net" --kind=krake --to=x
runs bad_ways 2 '[-]-ways must be 1 or more' "$make_net" --kind=kraken --ways=0 --to=x
runs bad_heads 2 '[-]-heads must divide the width: 384 by 5' "$make_net" --kind=kraken --heads=5 --to=x
runs too_narrow 1 '16 ways of width 8 have [0-9]+ parameters at the nearest, the standard net [0-9]+: more than 2%' \
    "$make_net" --kind=kraken --width=8 --heads=1 --blocks=1 --ways=16 --tokens=8 --seq_len=4 --to=x
is nothing_written [ ! -e x ]

# ---- ways on ranks: losses, and snapshots that other ranks go on from
make_book
small="--blocks=3 --width=96 --heads=4 --seq_len=24 --batch=4"
train() { # RANKS NAME OPTIONS...
    n=$1 name=$2
    shift 2
    runs "train_$name" 0 'checksum' $JOB $n "$CORTADO" train --solver=ways/solver.prototxt --set=random_seed=7 --set=base_lr=1e-3 \
        --set=display=1 --set=warmup.iterations=0 --set=max_iter=6 --set=snapshot=3 --set=test_iter=2 --set=test_interval=3 --set=deterministic=true \
        --set=snapshot_prefix="$name" --metrics="$name.jsonl" "$@"
}
losses() { # NAME [FIRST]: of steps and tests from iteration FIRST on
    python3 -c "
import json, sys
for line in open('$1.jsonl'):
    e = json.loads(line)
    loss = e.get('loss', e.get('outputs', {}).get('loss'))
    if e['event'] in ('train', 'test') and e['iter'] >= ${2:-0}: print(e['event'], e['iter'], repr(loss))"
}
near() { # A B: the same events, losses within 1e-5: some ten roundings of numbers near 4
    paste -d' ' "$1" "$2" | awk '{ if ($1 != $4 || $2 != $5 || ($3 - $6)^2 > 1e-10) exit 1; n++ } END { exit n < 2 }'
}
"$make_net" --kind=kraken --ways=4 --to=ways $small
train 1 one
losses one >one.txt
losses one 4 >one_late.txt
for ranks in 2 3 4; do
    "$make_net" --kind=kraken --ways=4 --ranks=$ranks --to=ways $small
    train $ranks ranks$ranks --parallel=ways/parallel.prototxt
    losses ranks$ranks >found.txt
    is ranks${ranks}_losses near one.txt found.txt
done
train 1 from4 --snapshot=ranks4_iter_3.solverstate.h5
losses from4 4 >found.txt
is from4_losses near one_late.txt found.txt
train 4 from1 --snapshot=one_iter_3.solverstate.h5 --parallel=ways/parallel.prototxt
losses from1 4 >found.txt
is from1_losses near one_late.txt found.txt
runs ranks_and_heads 2 '[-]-ranks must divide the heads: 6 by 4' "$make_net" --kind=ladder --ranks=4 --to=x
runs too_many_ranks 2 '[-]-ranks deals out the ways of --kind=kraken: 1 to 2' "$make_net" --kind=kraken --ways=2 --ranks=3 --to=x

# ---- answers of several ranks: the norm of all scores, and how often a block sums
norm() { # RANKS FOLDER OPTIONS...
    n=$1 folder=$2
    shift 2
    $JOB $n "$CORTADO" bench serve --model="$folder/deploy.prototxt" --weights=first_iter_1.caffemodel.h5 --shapes=1x24,3x7,2x3@9 --repeat=3 --threads=1 \
        --log=error --json=norm.json "$@" >out 2>&1 || { cat out; return; }
    sed 's/.*"norm":\([^}]*\)}/\1/' norm.json
}
alike_norms() { # tolerance: as of losses, of the sums of each layer in another order
    paste "$1" "$2" | awk '{ d = $1 / $2 - 1; n++; if (!($2 > 0) || d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || n != 3 }'
}
sums() { # FOLDER: of a forward on its ranks
    "$CORTADO" check --model="$1/deploy.prototxt" --parallel="$1/deploy_parallel.prototxt" --phase=TEST --machine=ethernet_100g \
        --limits=10,10 --log=error | sed -n 's/^transfers *\([0-9]*\) of.*/\1/p'
}
for kind in standard:6 parallel:3 ladder:6 kraken:3; do
    a_net=${kind#*:} kind=${kind%:*}
    for ranks in 2 4; do
        "$make_net" --kind=$kind --ways=4 --ranks=$ranks --to=ways $small
        if [ $ranks = 2 ]; then
            runs "first_$kind" 0 '' "$CORTADO" train --solver=ways/solver.prototxt --set=random_seed=7 --set=max_iter=1 --set=warmup.iterations=0 --set=test_interval=9 \
                --set=test_initialization=false --set=snapshot=0 --set=snapshot_prefix=first
            norm 1 ways >one.norm
        fi
        norm $ranks ways --parallel=ways/deploy_parallel.prototxt >found.norm
        is ${kind}_${ranks}_scores alike_norms one.norm found.norm
        is ${kind}_${ranks}_sums [ "$(sums ways)" = $a_net ]
    done
    rm -f first*
done

# ---- formulas
python=$("$ROOT/scripts/test_venv.sh" numpy h5py 2>venv.log) || {
    skip formulas "no virtual environment with numpy and h5py: $(grep -v '^ *$' venv.log | tail -n 1)"
    finish
}
mkdir nets
runs compared 0 'kraken_4_scores' "$python" "$ROOT/tests/golden/run_kraken.py" "$CORTADO" nets
grep -E '^(ok|not ok) ' out
is all_are_near sh -c '! grep -q "^not ok" out'
finish
