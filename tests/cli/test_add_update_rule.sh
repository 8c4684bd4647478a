# The check of update rules: it passes, and fails by name for each place that a new one misses.
. "$ROOT/tests/cli/lib.sh"
check="$ROOT/scripts/check_update_rules.sh"
runs as_it_is 0 '' "$check"

# what the check reads, with a rule in each of its places
mkdir -p tree/framework/math tree/docs tree/tests/unit/framework/math
cp "$ROOT/framework/math/update_math.h" tree/framework/math/
cp "$ROOT/docs/config-reference.md" tree/docs/
cp "$ROOT/tests/unit/framework/math/test_update.c" tree/tests/unit/framework/math/
math=tree/framework/math/update_math.h
add_function() { # in front of the ratio
    sed -i 's/^CT_UPDATE_FN float ct_update_trust(/CT_UPDATE_FN void ct_update_toy_at(const ct_update *u, int64_t i)\n{\n}\n\n&/' $math
}
add_row() { # FACTS
    sed -i '/^    X(toy,/d' $math
    sed -i "s/^    X(sgd,/    X(toy, TOY, $1) \\\\\\n&/" $math
}
add_reference() { sed -i 's/{ "SGD", sgd },/{ "Toy", toy }, &/' tree/tests/unit/framework/math/test_update.c; }
add_docs() { sed -i 's/^| `SGD` |/| `Toy` | | | w -= lr g | |\n&/' tree/docs/config-reference.md; }

add_function
runs no_row 1 'update rule toy: it is defined, CT_UPDATE_LIST .* has it not' "$check" tree
facts='.type = "Toy", .n_state = 0, .state_name = { NULL }, .formula = "w -= lr g"'
add_row "$facts"
runs no_source 1 'update rule toy: its row .* has no .source' "$check" tree
add_row "$facts, .source = \"none\""
runs no_reference 1 'update rule toy: references\[\] of .* has no row for "Toy"' "$check" tree
add_reference
runs no_docs 1 'update rule toy: docs/config-reference.md has no row for `Toy`' "$check" tree
add_docs
runs complete 0 '' "$check" tree
add_row '.n_state = 0'
runs no_type 1 'update rule toy: its row .* has no .type' "$check" tree
add_row "$facts, .source = \"none\""
sed -i '/ct_update_toy_at(/d' $math
runs no_function 1 'update rule toy: .* does not define ct_update_toy_at' "$check" tree
finish
