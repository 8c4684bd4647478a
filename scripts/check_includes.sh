#!/bin/sh
# Fails when a folder includes another that it may not. Usage: scripts/check_includes.sh
set -eu
cd "$(dirname "$0")/.."

# "from to": from may include to. framework/tools, the verbs, may include everything.
allowed='framework framework
layers layers
layers framework
topology topology
topology framework/base
topology framework/proto
comm comm
comm topology
comm framework/base
comm framework/tensor
comm framework/math'

bad=$(find framework layers comm topology \( -name '*.[ch]' -o -name '*.cu' \) ! -path 'framework/tools/*' \
    -exec grep -Ho '#include "[^"]*"' {} + | sed 's/:#include "/ /; s/"$//' |
    while read -r file header; do
        ok=
        while read -r from to; do
            case "$file $header" in "$from/"*" $to/"*) ok=1 ;; esac
        done <<EOF
$allowed
EOF
        [ -n "$ok" ] || echo "$file may not include $header"
    done)
[ -z "$bad" ] || { echo "$bad" >&2; exit 1; }
