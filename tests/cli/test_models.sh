# The nets under models/: solver, train and test net, deploy net, and the parameters that their papers count.
. "$ROOT/tests/cli/lib.sh"
LIMIT=60
for model in "$ROOT"/models/*/; do
    net=$(basename "$model") # "name" is the helpers'
    runs "$net" 0 '^traffic' "$CORTADO" check --solver="$model/solver.prototxt" --ranks=4
    is "${net}_has_test" grep -q 'phase TEST' out
    case $net in lstm* | gpt* | llama* | bert* | minilm) says=SoftmaxWithLoss ;; ssd*) says=MultiBoxLoss ;; *) says='accuracy|top-1' ;; esac # its measure is the loss
    is "${net}_measure" grep -Eq "$says" out
    is "${net}_data" grep -q 'name: "data"' "$model/train_val.prototxt"
    is "${net}_readme" test -s "$model/README.md"
done
"$CORTADO" check --model="$ROOT/models/googlenet/train_val.prototxt" --json=g.json >out 2>&1
is json_counts_parameters grep -q '"parameters":13378280' g.json
if command -v python3 >/dev/null; then
    is generated python3 "$ROOT/scripts/make_models.py" --check
    python3 "$ROOT/scripts/make_models.py" --counts >counts
    is all_counted test "$(wc -l <counts)" = "$(ls -d "$ROOT"/models/*/ | wc -l)"
    while read -r name count; do
        "$CORTADO" check --model="$ROOT/models/$name/deploy.prototxt" --phase=TEST >out 2>&1
        is "${name}_deploy_has_$count" grep -Eq "^parameters  $count," out
    done <counts
    # nets that are no models here: of scripts/nets/public.py
    mkdir public
    python3 "$ROOT/scripts/make_models.py" --public=public
    is public_there test "$(wc -l <public/counts)" -ge 29
    while read -r name count; do
        "$CORTADO" check --model="public/$name.prototxt" --phase=TEST >out 2>&1
        is "public_${name}_has_$count" grep -Eq "^parameters  $count," out
    done <public/counts
    # a net with BatchNorm: no statistics among them
    is inception_with_head sh -c '"$1" check --model="$2/models/inception_v3/train_val.prototxt" | grep -q "^parameters  27161264,"' sh "$CORTADO" "$ROOT"
else
    skip counts "needs python3"
fi
finish
