# The check of verbs: it passes, and fails by name for each place that a new one misses.
. "$ROOT/tests/cli/lib.sh"
check="$ROOT/scripts/check_verbs.sh"
runs as_it_is 0 '' "$check"

# what the check reads, with a verb in each of its places
mkdir -p tree/tests/cli tree/docs
cp -r "$ROOT/cli" tree/
cp "$ROOT"/tests/cli/test_*.sh tree/tests/cli/
rm tree/tests/cli/test_add_verb.sh # which names the toy
cp "$ROOT"/docs/*.md tree/docs/
mkdir tree/cli/toy
echo 'ct_status ct_verb_toy(ct_call *call)' >tree/cli/toy/verb_toy.c
runs no_row 1 'verb toy: it has a source, ct_verb_table in cli/verb.c has no row' "$check" tree
sed -i 's/^const ct_verb ct_verb_table\[\] = {/&\n    { "toy", "a toy", "cortado toy", CT_VERB_ALONE, NULL, ct_verb_toy },/' tree/cli/verb.c
runs no_test 1 'verb toy: no tests/cli/test_.*.sh runs it' "$check" tree
runs no_page 1 'verb toy: no page of docs shows `cortado toy`' "$check" tree
echo 'runs it 0 "" $CORTADO toy --all' >tree/tests/cli/test_toy.sh
echo '    cortado toy --all' >>tree/docs/timing.md
runs complete 0 '' "$check" tree
rm tree/cli/toy/verb_toy.c
runs no_source 1 'verb toy: no cli/.*/verb_toy.c defines ct_verb_toy()' "$check" tree
finish
