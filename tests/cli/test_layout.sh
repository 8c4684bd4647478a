# The check of include directions: it passes, and a planted violation of each kind fails by name.
. "$ROOT/tests/cli/lib.sh"
check="$ROOT/scripts/check_includes.sh"
runs as_it_is 0 '' "$check"

mkdir whole
(cd "$ROOT" && find framework layers comm topology planner serve runtime cli \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    tar -cf - --null -T -) | tar -xf - -C whole
fresh() { # FILE...: what the check reads, as links; the files named are copies, which may be written
    rm -rf tree && cp -al whole tree || exit 1
    for file in "$@"; do cp --remove-destination "whole/$file" "tree/$file"; done
}
plant() { # NAME FILE LINE PATTERN: the line in the file must make the check fail
    fresh "$2"
    echo "$3" >>"tree/$2"
    runs "$1" 1 "$4" "$check" tree
}
fresh
runs copy_passes 0 '' "$check" tree
plant reverse comm/core/comm.c '#include "comm/sync/grad_pipe.h"' \
    'comm/core/comm.c may not include comm/sync/grad_pipe.h'
plant within_framework framework/tensor/tensor.c '#include "framework/math/math.h"' \
    'framework/tensor/tensor.c may not include framework/math/math.h'
plant in_a_kernel layers/engine/relu/cuda/relu_cuda.cu '#include "layers/types/layer_types.h"' \
    'may not include layers/types/layer_types.h'
plant up_to_jobs framework/solver/solver.h '#include "runtime/job.h"' \
    'framework/solver/solver.h may not include runtime/job.h'
plant a_source comm/core/comm.c '#include "comm/core/node.c"' 'includes the source comm/core/node.c'
fresh
mkdir tree/comm/other
echo '#include "comm/core/comm.h"' >tree/comm/other/other.c
runs unknown_folder 1 'comm/other is not in the table' "$check" tree
fresh
for i in 1 2 3 4 5 6 7 8 9; do echo >"tree/comm/file$i.c"; done
runs too_many 1 'comm has 9 sources directly in it' "$check" tree

# names
names="$ROOT/scripts/check_names.sh"
runs names_are_one 0 '' "$names"
fresh
printf 'typedef struct ct_comm {\n    int a;\n} ct_comm;\n' >tree/layers/other.h
runs two_types 1 'ct_comm is defined in comm/core/comm.h and in layers/other.h' "$names" tree
fresh comm/core/comm.h
echo 'void ct_exch_run(void);' >>tree/comm/core/comm.h
runs old_word 1 'comm/core/comm.h:[0-9]+:ct_exch_run: the term is sparse_allreduce' "$names" tree

for line in 'int n(const ct_comm *c) { return use(c->world); }' 'int n(ct_comm c) { return use(c.world); }' \
    '    MPI_Comm world;' '    MPI_Comm sums, world; /* all ranks */'; do
    fresh comm/collective/coll.c
    echo "$line" >>tree/comm/collective/coll.c
    runs "world_of_$line" 1 'comm/collective/coll.c:[0-9]+: a member or variable named world' "$names" tree
done
fresh runtime/call.c
echo 'int all(void) { return use(MPI_COMM_WORLD); }' >>tree/runtime/call.c
runs mpi_comm_world 1 'runtime/call.c:[0-9]+:MPI_COMM_WORLD: outside of comm/core and runtime/job.c' "$names" tree
fresh comm/core/comm.c runtime/job.c # where it may be used, and words that only look like it
echo 'int all(ct_comm *c) { return use(c->world, MPI_COMM_WORLD); }' >>tree/comm/core/comm.c
echo 'int all(void) { return use(MPI_COMM_WORLD, "OMPI_COMM_WORLD_SIZE", "hello world;"); }' >>tree/runtime/job.c
runs world_where_it_may 0 '' "$names" tree

# the exchange stays small
exchange="$ROOT/scripts/check_exchange.sh"
runs exchange_is_small 0 'the exchange has [0-9]+ lines of 1330' "$exchange"
small() { # a copy of what that check reads
    fresh runtime/group_mpi.c framework/exchange/group.h
    mkdir tree/docs && cp "$ROOT/docs/architecture.md" tree/docs
}
small
seq 1200 >>tree/runtime/group_mpi.c
runs exchange_grows 1 'the exchange has 2[0-9]+ lines, 1330 are allowed' "$exchange" tree
small
echo >tree/runtime/exchange/other.c
runs exchange_not_listed 1 'runtime/exchange/other.c is not among' "$exchange" tree
small
rm tree/framework/exchange/group.h
runs exchange_lacks_one 1 'lists framework/exchange/group.h, which is not there' "$exchange" tree
small
awk '{ print } /^typedef struct ct_group_ops/ { for (i = 0; i < 12; i++) print "    int (*more)(void *ctx);" }' \
    "$ROOT/framework/exchange/group.h" >tree/framework/exchange/group.h
runs exchange_calls 1 'ct_group_ops has 2[0-9] callbacks, 12 are allowed' "$exchange" tree

# sizes
sizes="$ROOT/scripts/check_sizes.sh"
runs sizes_hold 0 'sources, [0-9]+ with fewer than 40 lines' "$sizes"
fresh
{ printf 'void ct_long(void)\n{\n' && seq 61 && echo '}'; } >tree/comm/core/long.c
runs long_function 1 'comm/core/long.c:2: a function of 61 lines, 60 are allowed' "$sizes" tree
fresh
for i in $(seq 60); do echo >"tree/cli/small$i.c"; done
runs small_files 1 'sources have fewer than 40 lines, [0-9]+ may' "$sizes" tree
fresh
touch tree/comm/a.h tree/comm/b.h tree/comm/c.h
runs headers_of_comm 1 'comm has 3 headers directly in it, 2 may be' "$sizes" tree

# JSON by hand: members, objects with and without blanks, strings and numbers; what only looks so
json="$ROOT/scripts/check_json.sh"
runs json_is_written 0 '' "$json"
fresh cli/main.c framework/base/stream.c
cat >>tree/cli/main.c <<'END'
    ct_text_add(out, ",\"nodes\":%d", n);
    printf(",\"%s\":", name);
    printf("{\"%s\"", name);
    ct_text_add(out, "{ \"id\": %d }", id);
    ct_text_add(out, ", \"id\": %d", id);
    ct_text_add_json(out, name);
    ct_text_add_number(out, 1.5);
    fail("level \"%s\": size is %d, \"node\" or \"rack\"", name, n);
 * {"event":"run"} goes with ct_text_add_json(), as {\"event\":1}
END
echo '    ct_text_add_number(out, 1.5);' >>tree/framework/base/stream.c
runs json_by_hand 1 'cli/main.c:[0-9]+: JSON by hand' "$json" tree
lines=$(wc -l <tree/cli/main.c) # the seven before the last two
is json_of_each_kind test "$(grep -o 'main.c:[0-9]*' out | cut -d: -f2 | tr '\n' ' ')" = \
    "$(seq -s ' ' $((lines - 8)) $((lines - 2))) "
is json_of_no_other test "$(grep -c 'JSON by hand' out)" = 7

fresh
runs copy_is_whole 0 '' "$check" tree
runs names_of_copy 0 '' "$names" tree
runs json_of_copy 0 '' "$json" tree

# the table itself: a folder that includes one behind it closes a circle
sed 's#^comm/core: #&comm/codec #' "$check" >circle.sh
runs circle 1 'the table has comm/codec behind comm/core' sh circle.sh "$ROOT"
finish
