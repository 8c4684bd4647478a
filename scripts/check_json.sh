#!/bin/sh
# JSON is written by framework/base/json_writer.h, or by jansson where it is whole: fails where a
# string literal holds a member or the beginning of an object, and where strings and numbers of JSON
# are put down outside of framework/base. Tests may write what they like.
# Usage: scripts/check_json.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

sources() {
    for d in framework layers comm topology planner serve runtime cli library python; do
        [ ! -d "$d" ] || find "$d" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \)
    done
}

# "key":value, {"key", { "key" and , "key": as a literal of C has them
found=$(sources | sort | xargs awk '
    /^ *(\/\*|\*|\/\/)/ { next } # a comment
    /\\"[A-Za-z_%][^"\\]*\\":([^ ]|$)/ || /[{] ?\\"[A-Za-z_%][^"\\]*\\"/ || /, \\"[A-Za-z_]+\\": / ||
    (FILENAME !~ /^framework\/base\// && /ct_text_add_(json|json_bytes|number)[(]/) {
        print FILENAME ":" FNR ": JSON by hand"
    }')
[ -z "$found" ] || {
    printf '%s\n' "$found" 'ct_json_begin_object() and its like write it: framework/base/json_writer.h' >&2
    exit 1
}
