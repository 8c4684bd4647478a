#!/bin/sh
# Every header must compile alone. Usage: scripts/check_headers.sh COMPILER FLAGS...
set -u
cd "$(dirname "$0")/.."
status=0
for h in $(find framework layers comm topology -name '*.h' | sort); do
    printf '#include "%s"\n' "$h" | "$@" -x c -fsyntax-only - || {
        echo "$h does not stand alone" >&2
        status=1
    }
done
exit $status
