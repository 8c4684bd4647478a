# States in files on a disk that fails: each call that can fail does, at the first time or later, for
# once or for good. A job goes on with the same bits, or ends with 3 and one line. A library in front
# of the system's calls pretends it.
. "$ROOT/tests/cli/lib.sh"
if ldd "$CORTADO" | grep -Eq 'asan|tsan|ubsan'; then
    skip disk_faults "a sanitizer must come first"
    finish
fi
cat >faults.c <<'EOF'
/* FAULTS="CALL FIRST EVERY WHAT;…": of the calls CALL on nameless files the FIRST is met, and every
 * EVERY-th after it (0: no other). WHAT: a number of errno, or short, end, wrong, slow, kill, nofd. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHORT = -6, END, WRONG, SLOW, KILL, NOFD, N_CALL = 8, PAGE = 4096 };
static const char *const calls[N_CALL] = { "tmpfile", "named", "fallocate", "ftruncate",
                                           "pread",   "pwrite", "setup",    "enter" };
static atomic_long seen[N_CALL];
static atomic_bool ours[1024];
static struct io_uring_sqe *request;
static int ring = -1;
static unsigned n_request, handed;
/* what is written or read in place of what should be; no chunk holds it */
static _Alignas(PAGE) char garbage[1 << 16];

__attribute__((constructor)) static void fill(void)
{
    memset(garbage, 0x5a, sizeof(garbage));
}

static long sys(long n, long a, long b, long c, long d, long e, long f)
{
    static long (*real)(long, ...);

    if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(n, a, b, c, d, e, f);
}

/* What becomes of this call; 0: nothing. */
static int fault(const char *call)
{
    static const char *const words[] = { "short", "end", "wrong", "slow", "kill", "nofd" };
    const char *at = getenv("FAULTS");
    int k = 0;
    long n;

    while (strcmp(calls[k], call) != 0) k++;
    n = atomic_fetch_add(&seen[k], 1) + 1;
    for (; at != NULL; at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL) {
        size_t length = strlen(call);
        long first, every;
        char *end;

        if ((strncmp(at, call, length) != 0) || (at[length] != ' ')) continue;
        first = strtol(at + length, &end, 10);
        every = strtol(end, &end, 10);
        if ((n != first) && ((n < first) || (every == 0) || ((n - first) % every != 0))) continue;
        for (int w = 0; w < 6; w++)
            if (strncmp(end + 1, words[w], strlen(words[w])) == 0) {
                if (w == 3) usleep(3000);
                if (w == 4) kill(getpid(), SIGKILL);
                return SHORT + w;
            }
        return atoi(end);
    }
    return 0;
}

static int keep(int fd)
{
    if ((fd >= 0) && (fd < 1024)) ours[fd] = 1;
    return fd;
}

static int is_ours(int fd)
{
    return (fd >= 0) && (fd < 1024) && ours[fd];
}

int open(const char *name, int flags, ...)
{
    va_list list;
    int mode, nameless = (flags & O_TMPFILE) == O_TMPFILE, f = nameless ? fault("tmpfile") : 0, fd;

    va_start(list, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, int) : 0;
    va_end(list);
    if (f > 0) return errno = f, -1;
    fd = (int)sys(SYS_openat, AT_FDCWD, (long)name, flags, mode, 0, 0);
    return nameless ? keep(fd) : fd;
}

int mkostemp(char *name, int flags)
{
    int (*real)(char *, int) = (int (*)(char *, int))dlsym(RTLD_NEXT, "mkostemp");
    int mine = strstr(name, "/cortado.") != NULL, f = mine ? fault("named") : 0;

    if (f > 0) return errno = f, -1;
    return mine ? keep(real(name, flags)) : real(name, flags);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    int f = is_ours(fd) ? fault("fallocate") : 0;

    if (f > 0) return errno = f, -1;
    return (int)sys(SYS_fallocate, fd, mode, at, n, 0, 0);
}

int ftruncate(int fd, off_t n)
{
    int f = is_ours(fd) ? fault("ftruncate") : 0;

    if (f > 0) return errno = f, -1;
    return (int)sys(SYS_ftruncate, fd, n, 0, 0, 0, 0);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    int f = is_ours(fd) ? fault("pread") : 0;
    ssize_t got;

    if (f > 0) return errno = f, -1;
    if (f == END) return 0;
    if ((f == SHORT) && (n > PAGE)) n = PAGE;
    got = sys(SYS_pread64, fd, (long)data, (long)n, at, 0, 0);
    if (f == WRONG) ((char *)data)[got / 2] ^= 4;
    return got;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    int f = is_ours(fd) ? fault("pwrite") : 0;

    if (f > 0) return errno = f, -1;
    if (f == END) return 0;
    if ((f == SHORT) && (n > PAGE)) n = PAGE;
    return sys(SYS_pwrite64, fd, (long)((f == WRONG) ? garbage : data), (long)n, at, 0, 0);
}

/* ---- io_uring: requests are changed before the kernel sees them */

void *mmap(void *want, size_t n, int prot, int flags, int fd, off_t at)
{
    void *p = (void *)sys(SYS_mmap, (long)want, (long)n, prot, flags, fd, at);

    if ((fd >= 0) && (fd == ring) && (at == (off_t)IORING_OFF_SQES)) request = p;
    return p;
}

static long hand_over(long a, long b, long c, long d, long e, long f)
{
    struct io_uring_sqe *r = &request[handed % n_request];
    int what = fault("enter");

    if (what > 0) return errno = what, -1;
    handed++;
    if ((what == SHORT) && (r->len > PAGE)) r->len = PAGE;
    if (what == END) r->off = 1L << 40;
    if (what == WRONG) r->addr = (unsigned long)garbage;
    if (what == NOFD) r->fd = -1;
    return sys(SYS_io_uring_enter, a, b, c, d, e, f);
}

long syscall(long n, ...)
{
    va_list list;
    long a[6];

    va_start(list, n);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (n == SYS_io_uring_setup) {
        int f = fault("setup");

        if (f > 0) return errno = f, -1;
        ring = (int)sys(n, a[0], a[1], a[2], a[3], a[4], a[5]);
        n_request = ((struct io_uring_params *)a[1])->sq_entries;
        return ring;
    }
    if ((n == SYS_io_uring_enter) && (a[1] > 0) && (request != NULL))
        return hand_over(a[0], a[1], a[2], a[3], a[4], a[5]);
    return sys(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}
EOF
${CC:-cc} -D_GNU_SOURCE -std=gnu11 -shared -fPIC -o faults.so faults.c -ldl 2>out || { skip disk_faults "no compiler, or no header of io_uring"; finish; }
make_case
sed -i 's/num_output: 6/num_output: 24/' net.prototxt
mkdir files
# chunks of two pages, 5 of 18 in memory
train="$CORTADO train --solver=solver.prototxt --global_batch_size=4 --set=type=Adam --set=base_lr=0.01 --set=max_iter=4"
train="$train --set=display=1 --set=test_interval=100 --set=test_iter=1 --set=snapshot=2"
file="--set=memory.state=FILE --set=memory.path=files --set=memory.chunk_mb=0.0078125 --set=memory.prefetch=1"
sum_of() { sed -n 's/.*weights after iteration \([0-9]*\): checksum \([0-9a-f]*\).*/\1 \2/p' out; }
more=

runs in_memory 0 'Optimization Done' $train
sum_of >sum_want
is there_are_sums test -s sum_want

# goes_on NAME FAULTS PATTERN: the same bits
goes_on() {
    runs "$1" 0 "$3" env LD_PRELOAD=./faults.so FAULTS="$2" $train $file $more
    sum_of >sum_got
    is "$1_same_bits" cmp sum_want sum_got
}
# ends NAME FAULTS PATTERN: 3 and one line
ends() {
    runs "$1" 3 "$3" env LD_PRELOAD=./faults.so FAULTS="$2" $train $file $more
    is "$1_one_line" test "$(grep -c '^E' out)" = 1
    is "$1_nothing_left" test -z "$(ls files)"
}

# numbers of errno on Linux
EPERM=1 EINTR=4 EIO=5 EAGAIN=11 EACCES=13 EINVAL=22 EFBIG=27 ENOSPC=28 ENOSYS=38 EOPNOTSUPP=95

# ---- the file itself
ends no_file "tmpfile 1 1 $EACCES;named 1 1 $EACCES" 'cannot make a file in "files": Permission denied'
goes_on named "tmpfile 1 1 $EOPNOTSUPP" 'lie in files in "files"'
ends no_room "fallocate 2 1 $ENOSPC" '"files" has no room for a file of .* MiB: No space left on device, .* MiB are free'
goes_on not_reserved "fallocate 1 1 $EOPNOTSUPP" 'does not reserve room'
ends too_large "fallocate 1 1 $EOPNOTSUPP;ftruncate 1 1 $EFBIG" 'cannot make a file in "files": File too large'
goes_on buffered "pwrite 1 0 $EINVAL;pwrite 2 0 $EINVAL" 'through the page cache'

# ---- threads
T="setup 1 1 $EPERM"
goes_on threads "$T" 'files are read and written by threads: io_uring is not to be had \(Operation not permitted\)'
is threads_say_so grep -q 'MiB by threads' out
goes_on old_kernel "setup 1 1 $ENOSYS" 'io_uring is not to be had \(Function not implemented\)'
goes_on short "$T;pread 4 3 short;pwrite 4 2 short" ''
goes_on interrupted "$T;pread 4 2 $EINTR;pwrite 4 2 $EINTR" ''
goes_on slow "$T;pread 4 4 slow;pwrite 4 3 slow" ''
ends read_fails "$T;pread 7 1 $EIO" 'cannot read bytes [0-9]* to [0-9]* of a file in "files": Input/output error; give another folder'
ends write_fails "$T;pwrite 6 1 $EIO" 'cannot write bytes [0-9]* to [0-9]* of a file in "files": Input/output error'
ends full_later "$T;fallocate 1 1 $EOPNOTSUPP;pwrite 9 1 $ENOSPC" 'cannot write bytes .*: No space left on device'
ends ends_before "$T;pread 8 1 end" 'cannot read bytes .*: the file is shorter than it was'
ends writes_nothing "$T;pwrite 8 1 end" 'cannot write bytes .*: No space left on device'
more=--set=memory.checksum=true
goes_on checked "$T" ''
ends read_wrong "$T;pread 9 0 wrong" 'bytes [0-9]* to [0-9]* of a file in "files" are not those that were written'
ends written_wrong "$T;pwrite 5 0 wrong" 'are not those that were written'
more=

# ---- killed while it writes: what was saved before goes on
rm -f s_iter_*
runs killed 137 '' env LD_PRELOAD=./faults.so FAULTS="$T;pwrite 110 1 kill" $train $file
is killed_nothing_left test -z "$(ls files)"
is killed_later test -f s_iter_2.solverstate.h5
runs again 0 'Optimization Done' $train $file --snapshot=s_iter_2.solverstate.h5
sum_of | tail -n 1 >sum_got
tail -n 1 sum_want >sum_last
is again_same_bits cmp sum_last sum_got

# ---- one of two ranks: the job ends, and goes on from what was saved
cat >second.sh <<'EOF'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 1 ] && export LD_PRELOAD=./faults.so
exec "$@"
EOF
two="$train $file --set=memory.zero=3 --set=memory.weights=FILE --set=snapshot_prefix=two --set=deterministic=true"
runs two_whole 0 'Optimization Done' $JOB 2 sh second.sh $two
sum_of | tail -n 1 >sum_last
rm -f two_iter_*
export FAULTS="$T;pwrite 9 1 $EIO"
runs two_write_fails 3 'cannot write bytes .*Input/output error' $JOB 2 sh second.sh $two
is two_write_fails_one_line test "$(grep -c '^E.*Input/output error' out)" = 1
rm -f two_iter_*
export FAULTS="$T;pwrite 90 1 kill"
runs two_killed 137 '' $JOB 2 sh second.sh $two
unset FAULTS
is two_nothing_left test -z "$(ls files)"
is two_killed_later test -f two_iter_2.solverstate.h5
is two_killed_before test ! -f two_iter_4.solverstate.h5
runs two_again 0 'Optimization Done' $JOB 2 sh second.sh $two --snapshot=two_iter_2.solverstate.h5
sum_of | tail -n 1 >sum_got
is two_again_same_bits cmp sum_last sum_got

# ---- io_uring
goes_on uring '' 'lie in files in "files"'
if grep -q 'MiB by io_uring' out; then
    goes_on uring_short 'enter 1 2 short' 'MiB by io_uring'
    goes_on uring_busy "enter 1 3 $EAGAIN" 'MiB by io_uring'
    ends uring_fails 'enter 9 1 nofd' 'cannot (read|write) bytes [0-9]* to [0-9]* of a file in "files": Bad file descriptor'
    more=--set=memory.checksum=true
    goes_on uring_checked '' 'MiB by io_uring'
    # all from the fifth on: which one reads what is no longer in memory is a matter of time
    ends uring_wrong 'enter 5 1 wrong' 'are not those that were written'
    more=
else
    skip uring_faults "this kernel has no io_uring"
fi

# ---- a sample of tests/faults/disk.py: who cannot write says so in one line, and leaves nothing
if command -v python3 >/dev/null; then
    # disk NAME MODES WAY CALLS
    disk() {
        MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs "$1" 0 '^\| all \| \| [1-9]' python3 "$ROOT/tests/faults/disk.py" "$1.jsonl" \
            --modes="$2" --ways="$3" --calls="$4" --most=1
    }
    # a stop while the owner of the prefix is made leaves nothing
    ${CC:-cc} -D_GNU_SOURCE -std=gnu11 -shared -fPIC -o stall.so "$ROOT/tests/faults/faults.c" -ldl
    mkdir -p owned
    owned="env LD_PRELOAD=./stall.so FAULT_IN=owned $train --set=snapshot_prefix=owned/s"
    FAULT_LOG=calls runs owner_is_made 0 'Optimization Done' $owned
    for call in 'C open owned/s.probe' 'W write .*owned/s.owner[.]' 'R unlink owned/s.owner[.].*'; do
        at=$(sed -n "s#^\([0-9]*\) $call.*#\1#p" calls | tail -n 1)
        rm -rf owned calls.$at
        mkdir owned
        FAULT="$at stall" FAULT_LOG=calls.$at $owned >out 2>&1 </dev/null &
        pid=$!
        for _ in $(seq 600); do
            grep -q "^$at " calls.$at 2>/dev/null && break
            sleep 0.05
        done
        kill -USR1 $pid
        wait $pid
        is stopped_as_owner_$at test $? = 76
        is nothing_left_of_owner_$at test -z "$(ls owned)"
    done
    # the log on a disk that never answers again: whoever watches writes there, too
    rm -rf owned
    logged="$train --run=owned/r --start_seconds=2 --set=watchdog_seconds=2"
    FAULT_LOG=calls.r env LD_PRELOAD=./stall.so FAULT_IN=owned $logged >out 2>&1 </dev/null
    at=$(sed -n 's#^\([0-9]*\) W write .*/log.txt$#\1#p' calls.r | sed -n 10p)
    rm -rf owned
    runs log_hangs 6 'no progress for 2 s' env LD_PRELOAD=./stall.so FAULT_IN=owned FAULT="$at stall WCRSXI" $logged
    # and stderr beside it
    rm -rf owned
    mkdir owned
    runs output_hangs 6 '' sh -c "exec env LD_PRELOAD=./stall.so FAULT_IN=owned FAULT='$at stall WCRSXI' $logged 2>owned/err"

    disk closes_fail 'metrics,events,digits,digits in HDF5' EIO 'close (m.jsonl|events|data.mdb|train.h5)'
    disk set_not_renamed 'set of 2 ranks' EIO '^rename s_iter_8.solverstate'
    disk folder_not_synced 'digits' EIO '^fsync d$'
    disk weights_not_renamed 'weights' ENOSPC '^rename'
    disk plan_on_a_full_disk 'plan of ranks' ENOSPC '^fflush'

    # ---- a sample of tests/faults/combinations.py
    MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs combinations 0 '^\| all \| \| [1-9]' env -u CORTADO_OVERWRITE \
        python3 "$ROOT/tests/faults/combinations.py" combinations.jsonl --seed=3 --cases=1

    # ---- a sample of tests/faults/feed.py
    MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs feed 0 '^\| all \| \| [1-9]' env -u CORTADO_OVERWRITE \
        python3 "$ROOT/tests/faults/feed.py" feed.jsonl --seed=4 --first=1 --cases=1

    # ---- a sample of tests/faults/fields.py
    MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs fields 0 '^\| all \| \| [1-9]' env -u CORTADO_OVERWRITE \
        python3 "$ROOT/tests/faults/fields.py" fields.jsonl --seed=2 --cases=3 --kinds=layer/net

    # ---- a sample of tests/faults/commands.py
    MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs commands 0 '^\| all \| \| [1-9]' env -u CORTADO_OVERWRITE \
        python3 "$ROOT/tests/faults/commands.py" commands.jsonl --seed=8 --cases=8

    # ---- a sample of tests/faults/kill_files.py: the next one goes on, and leaves nothing of the one that was killed
    # killed NAME MODES CALLS
    killed() {
        MPIRUN="$MPIRUN $MPIRUN_FLAGS" runs "$1" 0 '^\| all \| \| [1-9]' python3 "$ROOT/tests/faults/kill_files.py" "$1.jsonl" \
            --modes="$2" --calls="$3" --most=1
    }
    killed killed_before_its_name 'digits in shards,weights,stage of 2 ranks,plan of ranks' '^rename (train_lmdb|w.safetensors|p.plan)'
    killed killed_at_a_swap 'digits by force,digits in HDF5 by force' '^(rename|renameat2) te'
    killed killed_beginning 'run folder that goes on' '^rename net.prototxt'
    killed killed_at_rows 'metrics that go on' '^fflush m.jsonl'
else
    skip disk_sample "no python3"
fi
finish
