#!/bin/sh
# snapshot_async: sets that threads write while training goes on are those that training waits for, and
# whatever happens meanwhile, a set is whole or not there.
. "$ROOT/tests/cli/lib.sh"
make_case
train="$CORTADO train --solver=solver.prototxt --global_batch_size=12 --set=snapshot=5 --set=test_interval=1000"
later=--set=snapshot_async=true

# same NAME RANKS OPTIONS…: both go on from a set alike. Bytes: tests/unit/framework/snapshot
sum_of() { sed -n 's/.*weights after iteration 20: checksum \([0-9a-f]*\).*/\1/p' out; }
same() {
    s_name=$1 n=$2
    shift 2
    mkdir -p now then
    runs "now_$s_name" 0 'Optimization Done' $JOB $n $train "$@" --set=snapshot_prefix=now/s
    s_want=$(sum_of)
    runs "later_$s_name" 0 'Optimization Done' $JOB $n $train "$@" --set=snapshot_prefix=then/s $later
    is "sum_$s_name" test "$(sum_of):" = "$s_want:"
    is "waits_little_$s_name" test "$(grep -c 'is being written, training waited' out)" = 4
    is "is_written_$s_name" test "$(grep -c 'snapshot of iteration .* was written in' out)" = 4
    is "says_size_$s_name" test "$(grep -c 'snapshot_async: .* MB for a copy' out)" = 1
    is "files_$s_name" test "$(ls now)" = "$(ls then)"
    runs "resumes_$s_name" 0 'resuming after 10 iterations' $JOB $n $train "$@" --set=snapshot_prefix=on --snapshot=then/s_iter_10.solverstate.h5
    is "goes_on_$s_name" test "$(sum_of):" = "$s_want:"
    rm -r now then on_iter_*
}
same shards 2 --set=memory.zero=1 --set=type=AdamW --set=base_lr=0.01 --set=average.type=EMA --set=average.decay=0.9
same weights_in_shards 2 --set=memory.zero=3
echo 'ranks: 2 global_batch: 12 stage { first: "conv" last: "drop" rank: 1 } stage { first: "ip" last: "loss" rank: 0 }' >stages.plan
same stages 2 --parallel=stages.plan --set=type=Adam --set=base_lr=0.01
echo 'ranks: 4 global_batch: 12 stage { first: "conv" last: "drop" rank: 1 rank: 3 } stage { first: "ip" last: "loss" rank: 0 rank: 2 }' >pairs.plan
same stages_in_shards 4 --parallel=pairs.plan --set=memory.zero=3 --set=deterministic=true
same whole 3 --set=type=Adam --set=base_lr=0.01
same codec 2 --compression=redsync:density=0.05,min_bytes=1024

# every fsync of a snapshot takes a tenth of a second: training is done long before
cat >slow.c <<'EOF2'
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    usleep(100000);
    return (int)syscall(SYS_fsync, fd);
}
/* A disk that is full when so many bytes of a file are written; other files know no limit. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    const char *most = getenv("MOST");

    if ((most != NULL) && (at + (off_t)n > atol(most))) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, n, at);
}
EOF2
if can_preload && mpicc -shared -fPIC slow.c -o slow.so 2>/dev/null && env LD_PRELOAD=./slow.so true 2>/dev/null; then
    slow="env LD_PRELOAD=$work/slow.so"
    # the next one and the end wait, and so does a stop
    runs waits 0 'Optimization Done' $slow $train $later --set=snapshot_prefix=w --set=display=1
    is all_there test "$(ls w_iter_*.solverstate.h5 | wc -l)" = 4
    is trains_meanwhile awk '/iteration 5 is being/ { a = NR } /Iteration 8/ { b = NR } /iteration 5 was written/ { c = NR } END { exit !(a < b && b < c) }' out
    $slow $train $later --set=snapshot_prefix=t --set=snapshot=0 --set=max_iter=1000000 >out 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 600); do grep -q 'Iteration 10' out && break; sleep 0.05; done
    kill -TERM $pid
    wait $pid
    is stop test $? = 75
    is stop_is_whole test "$(ls t_iter_*.solverstate.h5 | wc -l)" = 1
    # what diverges meanwhile leaves the set that was good
    runs diverges 5 'is not finite' $slow $train $later --set=snapshot_prefix=d --set=base_lr=1e30 --set=snapshot=1
    is kept_what_was_good test -f d_iter_1.solverstate.h5
    # killed while one is written: the older set is good, of the other there is no solver state
    $slow $train $later --set=snapshot_prefix=k --set=max_iter=1000000 --set=snapshot=200 >killed 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 600); do grep -q 'iteration 400 is being written' killed && break; sleep 0.05; done
    kill -9 $pid
    wait $pid 2>/dev/null
    is one_is_whole test -f k_iter_200.solverstate.h5
    is none_is_half test ! -f k_iter_400.solverstate.h5
    runs goes_on_from_it 0 'resuming after 200 iterations' $train --set=snapshot_prefix=k --snapshot=auto --iterations=205
    is clean test -z "$(ls | grep 'k_iter.*tmp')"
    # the thread finds a full disk: one line, 3, and no file is left
    for n in 1 2; do
        runs full_$n 3 'cannot write .*f_iter_5.*No space left' env $JOB $n env LD_PRELOAD="$work/slow.so" MOST=20000 $train $later --set=snapshot_prefix=f
        is one_line_$n test "$(grep -c '^E.*No space left' out)" = 1
        is nothing_left_$n test -z "$(ls | grep f_iter)"
    done
else
    skip slow_disk "no library can stand in front of the program here"
fi
finish
