#!/bin/sh
# One name, one thing: fails when two files define a type of the same name, when a word that the
# glossary has replaced comes back in a name, or when MPI's world is used where a group is asked.
# Usage: scripts/check_names.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

sources() {
    for d in framework layers comm topology planner serve runtime cli; do
        [ ! -d "$d" ] || find "$d" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \)
    done
}

# X_sim.c and the like take the place of X.c: of twins one is built
types=$(sources | grep -v '_sim\.[ch]$' | sort | xargs awk '
    function defined(name) {
        if (name !~ /^ct_/) return
        if (name in where && where[name] != FILENAME) print name " is defined in " where[name] " and in " FILENAME
        where[name] = FILENAME
    }
    FNR == 1 { tagged = "" }
    /^(typedef )?(struct|enum|union) [a-z_0-9]+ \{/ {
        tagged = $0
        sub(/^(typedef )?(struct|enum|union) /, "", tagged)
        sub(/ .*/, "", tagged)
        defined(tagged)
    }
    /^(typedef )?(struct|enum|union) *\{/ { tagged = "" }
    /^\} [a-z_0-9]+;/ {
        name = $2
        sub(/;.*/, "", name)
        if (name != tagged) defined(name)
        tagged = ""
    }
    /^typedef enum \{.*\} [a-z_0-9]+;/ {
        name = $NF
        sub(/;.*/, "", name)
        defined(name)
    }')

# old word, and the term that stands in its place: docs/glossary.md
words='coded:codec keep:error_feedback accum:momentum_correction drops:residual_return exch:sparse_allreduce
parcel:sized_message gather:allgatherv wire:payload bell:futex line:step_timeline watch:step_observer
choose:codec_planner ways:candidates late:residual_drain held:deferred_errors room:buffer form:device_override
tail:epilogue'
any=$(for pair in $words; do printf '%s|' "${pair%:*}"; done)
old=$(sources | xargs grep -nHoE "\b(ct|CT)_(${any%|}|$(echo "${any%|}" | tr a-z A-Z))(_[A-Za-z0-9_]+)?\b" /dev/null | awk -v words="$words" '
    BEGIN { for (n = split(words, pair); n > 0; n--) term[substr(pair[n], 1, index(pair[n], ":") - 1)] = substr(pair[n], index(pair[n], ":") + 1) }
    {
        word = tolower($0)
        sub(/^.*:ct_/, "", word)
        sub(/_.*/, "", word)
        print $0 ": the term is " term[word]
    }' | sort -u)

# who needs other ranks asks a group or a communicator, never MPI's world
world=$(sources | grep -v '^comm/core/' | xargs grep -nHE '(->|\.)world\b|^ +[A-Za-z_]+ \**([a-z_]+, \**)*world\b[^(]*;' /dev/null |
    sed 's/:[^:]*$/: a member or variable named world, outside of comm\/core/'
    sources | grep -vE '^(comm/core/.*|runtime/job\.c)$' | xargs grep -nHow MPI_COMM_WORLD /dev/null |
        sed 's/$/: outside of comm\/core and runtime\/job.c/')

bad="$types
$old
$world"
bad=$(echo "$bad" | sed '/^$/d')
[ -z "$bad" ] || { echo "$bad" | head -n 40 >&2; exit 1; }
