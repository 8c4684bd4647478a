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
