#!/bin/sh
# cortado plan of a net that is only run: the groups in which ranks answer, and the file of one.
. "$ROOT/tests/cli/lib.sh"
command -v python3 >/dev/null || { skip plan_groups "no python3"; finish; }

"$ROOT/scripts/nets/kraken.py" --kind=standard --ways=4 --to=net --blocks=2 --width=64 --heads=4 --seq_len=96 --batch=4 >out 2>&1 ||
    not_ok net "no net"
model=net/deploy.prototxt
plan="$CORTADO plan --model=$model --limits=100,10"

# ---- the fastest groups of what was reckoned
runs four 0 '^plan +tensor [24], [12] group' $plan --ranks=4 --out=four.prototxt
mv out four.out
is degrees [ "$(sed -n 's/^\([0-9][0-9]*\) .*/\1/p' four.out | tr '\n' ' ')" = "1 2 4 " ]
is runs_shared [ "$(awk '$1 == 2 { print $3 }' four.out)" = 4 ]
is fastest awk '/^[0-9]/ && $1 > 1 && (best == 0 || $4 < least) { best = $1; least = $4 } /^plan/ { exit $3 + 0 != best }' four.out
is file_ranks grep -q "^ranks: $(awk '/^plan/ { print $3 + 0 }' four.out) " four.prototxt
# no two ranks of a group on parts of nodes
runs on_nodes 0 '^plan' $plan --ranks=6 --machine=ethernet_100g --ranks_per_node=2
is whole_nodes [ "$(sed -n 's/^\([0-9][0-9]*\) .*/\1/p' out | tr '\n' ' ')" = "1 2 6 " ]

# ---- one kind of group: check reckons the same of the file, and JSON has it
runs two 0 '^written: two.prototxt, for cortado serve --parallel=two.prototxt$' $plan --fix=tensor=2 --machine=ethernet_100g --out=two.prototxt
mv out two.out
runs checked 0 '^forward' "$CORTADO" check --model=$model --parallel=two.prototxt --phase=TEST --machine=ethernet_100g --limits=100,10
is same_forward [ "$(awk '/^forward/ { print $2 }' out)" = "$(awk '$1 == 2 { print $4 }' two.out)" ]
$plan --fix=tensor=2 --json >two.json 2>err || not_ok json "no JSON"
is json python3 - <<'END'
import json
p = json.load(open("two.json"))
assert p["parallel"] == open("two.prototxt").read()
assert (p["tensor"], p["groups"], p["runs"]) == (2, 1, 4) and 0 < p["exposed_s"] < p["forward_s"] and p["one_rank_s"] > 0
END
# where products take no time sums cost more than they spare
runs fast_ranks 0 'one rank alone is as fast: without a file ranks are replicas' "$CORTADO" plan --model=$model --limits=1e6,1e5 --ranks=2 --machine=ethernet_100g

# ---- what is refused
fails() { # NAME PATTERN OPTION...
    n=$1 p=$2
    shift 2
    runs "$n" 2 "$p" "$CORTADO" plan --model=$model --limits=100,10 "$@"
    is "${n}_line" [ "$(grep -c '^E' out)" = 1 ]
}
fails too_few '\-\-fix=tensor=1: expected 2 to 64' --ranks=4 --fix=tensor=1
fails not_dealt '\-\-fix=tensor=3: 4 ranks on nodes of 4 cannot be dealt into such groups' --ranks=4 --fix=tensor=3
fails other_fix '\-\-fix: of a net that is only run, .* a plan has tensor=K alone' --ranks=4 --fix=stages=2
fails memory '\-\-memory_gib is for plans of training, and no layer of this net runs backward' --ranks=4 --memory_gib=1
cat >one.prototxt <<'END'
name: "One"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 8 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
END
model=one.prototxt
fails nothing_fixed 'tensor=2: net "One" has no products that 2 ranks can share' --fix=tensor=2
fails nothing 'net "One" has no products that groups of 2 to 64 of the 4 ranks can share: serve it whole on each' --ranks=4
finish
