#!/bin/sh
# Every header must compile alone. Usage: scripts/check_headers.sh COMPILER FLAGS...
set -u
cd "$(dirname "$0")/.."
find framework layers comm topology planner serve runtime library include cli -name '*.h' | sort | xargs -P "$(nproc 2>/dev/null || echo 2)" -I{} sh -c '
    h=$1
    shift
    printf "#include \"%s\"\n" "$h" | "$@" -x c -fsyntax-only - || {
        echo "$h does not stand alone" >&2
        exit 1
    }' sh {} "$@"
