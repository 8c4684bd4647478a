#!/bin/sh
# Runs one test program, keeps its output, prints one line, and notes how many tests passed.
#   scripts/run_test.sh RESULTS NAME COMMAND...     exits 0 even when the test failed, 1 with STRICT=1
# It understands cmocka's output and lines "ok NAME", "not ok NAME", "skip NAME: why".
# With CORTADO_TEST_REQUIRE=1 only what tests/may_skip lists may skip: any other skip is a failure.
set -u
results=$1 name=$2
shift 2
mkdir -p "$results"
key=$(echo "$name" | tr '/ ' '__')
log=$results/$key.log
start=$(date +%s)
"$@" >"$log" 2>&1 </dev/null
rc=$?
seconds=$(($(date +%s) - start))
# what it and its jobs took of processors: the second line of times, "XmY.Zs XmY.Zs"
times >"$results/$key.times" # a subshell has times of its own
cpu=$(awk 'NR == 2 { gsub("m", " "); gsub("s", ""); printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }' "$results/$key.times")

# Ranks of one job print the same names: each counts once.
fail=$(sed -n 's/^.*\[  FAILED  \] *\([a-zA-Z_][^:]*\).*$/\1/p; s/^not ok *//p' "$log" | sort -u | grep -c .)
pass=$(sed -n 's/^.*\[       OK \] *//p; s/^ok *//p' "$log" | sort -u | grep -c .)
sed -n 's/^.*\[  SKIPPED \] *\([a-zA-Z_][^:]*\).*$/\1/p; s/^skip  *//p' "$log" | sort -u >"$results/$key.skipped"
skip=$(grep -c . "$results/$key.skipped")
[ "$rc" = 0 ] || [ "$fail" != 0 ] || fail=1
[ "$rc" != 0 ] || [ $((pass + fail + skip)) != 0 ] || pass=1
# Where ranks list leaks at their end and do not fail by them (LSAN_OPTIONS=exitcode=0), most are MPI's
# own: those count that our code allocated itself. The rest of the list is not for the log.
case ${LSAN_OPTIONS:-} in
*exitcode=0*)
    mv "$log" "$results/$key.leaks"
    awk '/^(Direct|Indirect) leak of/ { skip = 1 } /^$/ { skip = 0 } !skip' "$results/$key.leaks" >"$log"
    folders='cli|comm|framework|layers|library|planner|runtime|serve|tests|topology'
    ours="#1 0x[0-9a-f]+ in [^ ]+ ([^ ]*/)?($folders)/[^ ]*[.][ch]:"
    grep -E -B 2 -A 5 "$ours" "$results/$key.leaks" >>"$log" && fail=$((fail + 1))
    ;;
esac
# may_skip NAME: prints why the list lets it
may_skip() {
    while read -r test one why; do
        case $test in '#'* | '') continue ;; esac
        # the list holds patterns
        # shellcheck disable=SC2254
        case ${name%.sh} in $test) case $1 in $one) echo "$why" && return 0 ;; esac ;; esac
    done <"$here/../tests/may_skip"
    return 1
}
here=$(dirname "$0")
while IFS= read -r line; do
    one=${line%%: *} why=${line#"${line%%: *}"}
    if listed=$(may_skip "$one"); then
        why=${why:-": $listed"}
    elif [ "${CORTADO_TEST_REQUIRE:-0}" = 1 ]; then
        echo "not ok $line: skipped, and CORTADO_TEST_REQUIRE=1 lets only that skip which tests/may_skip lists" >>"$log"
        fail=$((fail + 1)) skip=$((skip - 1))
        continue
    fi
    printf '%s\t%s\t%s\n' "$name" "$one" "${why#: }"
done <"$results/$key.skipped" >"$results/$key.skip"
rm -f "$results/$key.skipped"
echo "$pass $fail $skip" >"$results/$key.count"
verdict() {
    if [ "$rc" = 0 ] && [ "$fail" = 0 ]; then
        note="$pass passed"
        [ "$skip" = 0 ] || note="$note, $skip skipped"
        echo "PASS $name ($note, $seconds s, $cpu s of processors)"
        sed -n 's/^skip /     skipped: /p' "$log"
        return 0
    fi
    echo "FAIL $name (exit $rc, $seconds s, $cpu s of processors): $log"
    tail -n "${LINES_ON_FAILURE:-60}" "$log" | sed 's/^/    | /'
    [ "${STRICT:-0}" = 0 ]
}
# several may run at once: what one says stays together
{
    flock 9 2>/dev/null
    verdict
} 9>>"$results/said.lock"
