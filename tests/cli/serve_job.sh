# Sourced: a server in a job of several ranks. Each rank says its process, and may look for its files in a folder of its own.
cat >rank.sh <<'END'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
echo $$ >pid.$rank
[ ! -d only.$rank ] || cd only.$rank || exit 1
exec "$@"
END
if ! $JOB 2 sh rank.sh true >out 2>&1 || [ ! -s pid.1 ]; then
    skip "$job_test" "no job of 2 ranks starts, or its ranks do not know their numbers"
    finish
fi

# start NAME N COMMAND...: a server of N ranks in the background; $pid of the launcher, $at, which is empty where none began, $log
start() {
    name=$1 log=$1.log n=$2
    shift 2
    rm -f pid.*
    $JOB "$n" sh rank.sh "$@" >"$name.at" 2>"$log" </dev/null &
    pid=$!
    i=0
    while ! grep -qs ' at ' "$name.at" && kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    at=$(sed -n 's/.* at //p' "$name.at")
}
rank() { cat "pid.$1"; }
log_has() {
    i=0
    while ! grep -Eq "$1" "$log" && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
    grep -Eq "$1" "$log"
}
# ended NAME TEST CODE: the job ends within a minute, and its exit code passes the test
ended() {
    i=0
    while kill -0 $pid 2>/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    [ $i -lt 600 ] || kill -KILL $pid
    wait $pid
    rc=$?
    is "$1" [ $rc "$2" "$3" ]
}
