# The check of collectives: it passes, and fails by name for each place that a new one misses.
. "$ROOT/tests/cli/lib.sh"
check="$ROOT/scripts/check_collectives.sh"
runs as_it_is 0 '' "$check"

# what the check reads, with a collective in each of its places
mkdir -p tree/comm tree/docs
cp -r "$ROOT/comm/collective" tree/comm/
cp "$ROOT/docs/collectives.md" tree/docs/
add_source() { # MEMBERS
    printf 'const ct_coll_ops ct_coll_toy = {\n    .name = "toy",\n%s};\n' "$1" >tree/comm/collective/coll_toy.c
}
add_line() { sed -i 's/^    _do(impi)/    _do(toy) \\\n    _do(impi)/' tree/comm/collective/coll_types.h; }
add_row() { sed -i 's/^| `impi` |/| `toy` | all to all | | |\n&/' tree/docs/collectives.md; }

add_source '    .cost = \&toy_cost,
'
runs no_line 1 'collective toy: it is defined, CT_COLLECTIVES .* has it not' "$check" tree
add_line
runs no_row 1 'collective toy: the table of docs/collectives.md has no row' "$check" tree
add_row
runs complete 0 '' "$check" tree
add_source ''
runs no_cost 1 'collective toy: ct_coll_toy has no cost' "$check" tree
rm tree/comm/collective/coll_toy.c
runs no_source 1 'collective toy: no comm/collective/.* defines ct_coll_toy' "$check" tree
finish
