#!/bin/sh
# Fails when a folder includes another that it may not, when the table below has a circle, when a
# source includes a source, or when too many files lie directly in a large folder.
# Usage: scripts/check_includes.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

# folder: what it may include besides itself. Folders are two levels deep: layers/engine/conv counts
# as layers/engine. A folder stands behind those that it includes, so the table has no circle.
table='
framework/base:
framework/proto: framework/base
framework/tensor: framework/base
framework/math: framework/base framework/tensor
framework/net: framework/base framework/proto framework/tensor framework/math
framework/text: framework/base
framework/exchange: framework/base framework/tensor framework/math framework/net
framework/data: framework/base framework/proto framework/tensor framework/text framework/net framework/exchange
framework/report: framework/base framework/net
framework/snapshot: framework/base framework/proto framework/tensor framework/math framework/net framework/exchange
framework/solver: framework/base framework/proto framework/tensor framework/math framework/net framework/exchange framework/report framework/snapshot
topology: framework/base framework/proto
layers: framework/base framework/proto framework/tensor framework/math framework/net
layers/engine: framework/base framework/tensor framework/math framework/net layers
layers/types: framework/base framework/proto framework/tensor framework/math framework/net framework/text framework/data layers layers/engine
layers/cuda: framework/base framework/proto framework/tensor framework/math framework/net framework/data layers layers/engine layers/types
comm/core: framework/base framework/tensor topology
comm/cost: framework/base topology
comm/collective: framework/base framework/tensor comm/core comm/cost
comm/sparse: framework/base framework/tensor topology comm/core comm/cost comm/collective
comm/codec: framework/base framework/tensor framework/math comm/core comm/cost comm/collective comm/sparse
comm/sync: framework/base framework/tensor comm/core comm/collective comm/sparse comm/codec
comm/autotune: framework/base framework/tensor comm/core comm/cost comm/collective comm/sparse comm/codec comm/sync
planner: framework/base framework/proto framework/tensor framework/math framework/net topology comm/cost
serve/schedule: framework/base
serve/api: framework/base framework/text serve/schedule
serve/http: framework/base serve/api
serve/ranks: framework/base framework/net comm/core serve/api
serve/net: framework/base framework/proto framework/tensor framework/net framework/text framework/exchange framework/data framework/snapshot serve/schedule serve/api
runtime/config: framework/* topology comm/*
runtime: framework/* layers topology comm/* planner runtime/config
runtime/exchange: framework/* topology comm/* runtime/config runtime
runtime/division: framework/* comm/* planner serve/net runtime/config runtime runtime/exchange
runtime/outer: framework/* topology comm/* runtime/config runtime runtime/exchange
runtime/training: framework/* planner runtime/config runtime runtime/exchange runtime/division runtime/outer
include/cortado:
library: framework/* runtime/config runtime runtime/training include/cortado
cli: framework/* runtime/config runtime
cli/profile: framework/* comm/*
cli/simulate: framework/* topology comm/* planner runtime/config runtime cli/profile
cli/info: framework/* topology comm/* runtime/config runtime cli
cli/bench: framework/* topology comm/* planner serve/net runtime/config runtime runtime/division cli
cli/onnx: framework/*
cli/convert: framework/* runtime/config runtime cli cli/onnx
cli/generate: framework/* runtime/config runtime cli
cli/new: framework/* runtime/config runtime cli
cli/report: framework/* serve/net runtime/config runtime cli
cli/predict: framework/* serve/net runtime/config runtime cli cli/generate
cli/serve: framework/* comm/core serve/* runtime/config runtime runtime/division cli cli/generate
cli/time: framework/* planner runtime/config runtime runtime/exchange runtime/division cli
cli/train: framework/* comm/* planner runtime/config runtime runtime/exchange runtime/division runtime/training cli
cli/plan: framework/* topology comm/* planner runtime/config runtime runtime/division cli
cli/scale: framework/* topology comm/* planner runtime/config runtime cli cli/bench cli/profile cli/simulate
cli/sweep: framework/* runtime/config runtime cli cli/scale
cli/check: framework/* topology comm/* planner runtime/config runtime/division runtime/outer runtime cli cli/plan cli/scale
'

folders='framework layers comm topology planner serve runtime library include cli'
list() { # PATTERN...: of sources and headers
    for d in $folders; do [ ! -d "$d" ] || find "$d" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \); done
}

bad=$(list | xargs grep -H '^ *# *include "' /dev/null | sed 's/: *# *include "/ /; s/".*//' | awk -v table="$table" '
function folder(path,  part, n) {
    n = split(path, part, "/")
    return (n < 2) ? "" : (n == 2) ? part[1] : part[1] "/" part[2]
}
BEGIN {
    n_line = split(table, line, "\n")
    for (i = 1; i <= n_line; i++) {
        if (line[i] == "") continue
        name = line[i]
        sub(/:.*/, "", name)
        sub(/^[^:]*: */, "", line[i])
        n_may = split(line[i], may, " ")
        for (k = 1; k <= n_may; k++) {
            allowed[name, may[k]] = 1
            if (may[k] !~ /\*$/ && !(may[k] in known)) print "the table has " may[k] " behind " name ", which includes it"
        }
        known[name] = 1
    }
}
{
    from = folder($1)
    to = folder($2)
    if ($2 ~ /\.(c|cu)$/) print $1 " includes the source " $2
    if (!(from in known)) print from " is not in the table of scripts/check_includes.sh: " $1
    if (to == "" || to == from) next # build_info.h is made
    top = to
    sub(/\/.*/, "/*", top)
    if (!((from, to) in allowed) && !((from, top) in allowed)) print $1 " may not include " $2
}' | sort -u)

most=8
for d in framework layers comm; do
    n=$(find "$d" -maxdepth 1 \( -name '*.c' -o -name '*.cu' \) | wc -l)
    [ "$n" -le $most ] || bad="$bad
$d has $n sources directly in it, $most are allowed: they belong into its folders"
done
[ -z "$bad" ] || { echo "$bad" | sed '/^$/d' >&2; exit 1; }
