/* Calls on files that fail, stop short, never return, or break the heap; and a clock that jumps.
 * For tests of what a program makes of that: loaded in front of the C library by LD_PRELOAD. What
 * it does is in the environment:
 *
 *   FAULT_IN=NAME            files are meant whose path has a folder of this name, and it itself
 *   FAULT_LOG=FILE           gets a line for each call on such a file: NUMBER KIND CALL PATH
 *   FAULT="AT WHAT"          what becomes of the AT-th of them, from 1. WHAT: a number of errno;
 *                            short (half of what should be written), stall, heap, kill
 *   FAULT="AT WHAT KINDS"    and of each later one of these kinds; short is ENOSPC then
 *   FAULT_CLOCK="AFTER BY"   from AFTER seconds on the clock of the day is BY seconds off
 *
 * Kinds: W writes, C makes or names a file, R removes one, S syncs, X closes one that was open for
 * writing, I reads, or closes another one. Of streams those are seen that are opened, flushed and
 * closed; what their buffers do in between is not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SHORT = -1, STALL = -2, HEAP = -3, KILL = -4 };

static struct {
    char in[64];
    long at;
    int what;
    char kinds[8];
    int log;
} plan = { .log = -1 };

static atomic_long seen;

__attribute__((constructor)) static void read_plan(void)
{
    static const char *const word[] = { "short", "stall", "heap", "kill" };
    const char *in = getenv("FAULT_IN"), *log = getenv("FAULT_LOG"), *fault = getenv("FAULT");
    char what[16] = "";

    if (in == NULL) return;
    snprintf(plan.in, sizeof(plan.in), "%s", in);
    if (log != NULL)
        plan.log = (int)syscall(SYS_openat, AT_FDCWD, log,
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if ((fault == NULL) || (sscanf(fault, "%ld %15s %7s", &plan.at, what, plan.kinds) < 2)) return;
    plan.what = atoi(what);
    for (int i = 0; i < 4; i++)
        if (strcmp(what, word[i]) == 0) plan.what = SHORT - i;
}

static int is_meant(const char *path)
{
    size_t n = strlen(plan.in);

    if (n == 0) return 0;
    for (const char *p = path; (p = strstr(p, plan.in)) != NULL; p += n)
        if (((p == path) || (p[-1] == '/')) && ((p[n] == '/') || (p[n] == '\0'))) return 1;
    return 0;
}

/* The top of the heap says what it is not, so that one of the next blocks ends the program with the
 * heap's lock held. They are too small to have pages of their own. */
static void break_heap(void)
{
    size_t n = 1 << 16;

    for (int i = 0; i < 1000; i++) {
        char *volatile block = malloc(n);

        if (block != NULL) memset(block + n, 0x7f, 16);
    }
    _exit(99); /* nobody noticed */
}

/* What becomes of a call: a number of errno, SHORT, or 0 for nothing. */
static int meet(char kind, const char *call, const char *path)
{
    char line[512];
    long n;
    int what;

    if (!is_meant(path)) return 0;
    n = atomic_fetch_add(&seen, 1) + 1;
    if (plan.log >= 0) {
        int length = snprintf(line, sizeof(line), "%ld %c %s %s\n", n, kind, call, path);

        (void)!syscall(SYS_write, plan.log, line, length);
    }
    if ((plan.at == 0) || (n < plan.at)) return 0;
    what = plan.what;
    if (n > plan.at) {
        if (strchr(plan.kinds, kind) == NULL) return 0;
        if (what == SHORT) what = ENOSPC;
    }
    while (what == STALL) (void)syscall(SYS_pause);
    if (what == HEAP) break_heap();
    if (what == KILL) (void)syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    return what;
}

static int meet_fd(char kind, const char *call, int fd)
{
    char name[40], path[400];
    ssize_t n;

    if (plan.in[0] == '\0') return 0;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    n = readlink(name, path, sizeof(path) - 1);
    if (n <= 0) return 0;
    path[n] = '\0';
    return meet(kind, call, path);
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define ALIAS(name)           __attribute__((alias(name)))
#define FAIL_IF(f)                                                                                 \
    do {                                                                                           \
        int reason = (f);                                                                          \
                                                                                                   \
        if (reason > 0) {                                                                          \
            errno = reason;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

/* ---- names */

static char open_kind(int flags)
{
    return (flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)) ? 'C' : 'I';
}

static int open_at(int folder, const char *name, int flags, int mode)
{
    FAIL_IF(meet(open_kind(flags), "open", name));
    return (int)syscall(SYS_openat, folder, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    va_list list;
    int mode;

    va_start(list, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, int) : 0;
    va_end(list);
    return open_at(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) ALIAS("open");

int openat(int folder, const char *name, int flags, ...)
{
    va_list list;
    int mode;

    va_start(list, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, int) : 0;
    va_end(list);
    return open_at(folder, name, flags, mode);
}
int openat64(int folder, const char *name, int flags, ...) ALIAS("openat");

FILE *fopen(const char *name, const char *mode)
{
    int why = meet((mode[0] == 'r') ? 'I' : 'C', "fopen", name);

    if (why > 0) return errno = why, NULL;
    return REAL(FILE *, "fopen", const char *, const char *)(name, mode);
}
FILE *fopen64(const char *name, const char *mode) ALIAS("fopen");

int mkdir(const char *name, mode_t mode)
{
    FAIL_IF(meet('C', "mkdir", name));
    return (int)syscall(SYS_mkdir, name, mode);
}

int rmdir(const char *name)
{
    FAIL_IF(meet('R', "rmdir", name));
    return (int)syscall(SYS_rmdir, name);
}

int unlink(const char *name)
{
    FAIL_IF(meet('R', "unlink", name));
    return (int)syscall(SYS_unlink, name);
}

int unlinkat(int folder, const char *name, int flags)
{
    FAIL_IF(meet_fd('R', "unlinkat", folder));
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

int rename(const char *from, const char *to)
{
    FAIL_IF(meet('C', "rename", to));
    return (int)syscall(SYS_rename, from, to);
}

int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned how)
{
    FAIL_IF(meet('C', "renameat2", to));
    return (int)syscall(SYS_renameat2, from_folder, from, folder, to, how);
}

int link(const char *from, const char *to)
{
    FAIL_IF(meet('C', "link", to));
    return (int)syscall(SYS_link, from, to);
}

int symlink(const char *from, const char *to)
{
    FAIL_IF(meet('C', "symlink", to));
    return (int)syscall(SYS_symlink, from, to);
}

/* ---- contents */

/* How much of n bytes is written where a call stops short. */
static size_t part_of(int what, size_t n)
{
    return ((what == SHORT) && (n > 1)) ? n / 2 : n;
}

ssize_t write(int fd, const void *data, size_t n)
{
    int what = meet_fd('W', "write", fd);

    FAIL_IF(what);
    return syscall(SYS_write, fd, data, part_of(what, n));
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    int what = meet_fd('W', "pwrite", fd);

    FAIL_IF(what);
    return syscall(SYS_pwrite64, fd, data, part_of(what, n), at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) ALIAS("pwrite");

/* Several blocks that stop short: half of the first. */
ssize_t writev(int fd, const struct iovec *v, int n)
{
    int what = meet_fd('W', "writev", fd);

    FAIL_IF(what);
    if ((what == SHORT) && (n > 0))
        return syscall(SYS_write, fd, v[0].iov_base, part_of(what, v[0].iov_len));
    return syscall(SYS_writev, fd, v, n);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at)
{
    int what = meet_fd('W', "pwritev", fd);

    FAIL_IF(what);
    if ((what == SHORT) && (n > 0))
        return syscall(SYS_pwrite64, fd, v[0].iov_base, part_of(what, v[0].iov_len), at);
    return syscall(SYS_pwritev, fd, v, n, at, 0L);
}
ssize_t pwritev64(int fd, const struct iovec *v, int n, off_t at) ALIAS("pwritev");

ssize_t read(int fd, void *data, size_t n)
{
    FAIL_IF(meet_fd('I', "read", fd));
    return syscall(SYS_read, fd, data, n);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    FAIL_IF(meet_fd('I', "pread", fd));
    return syscall(SYS_pread64, fd, data, n, at);
}
ssize_t pread64(int fd, void *data, size_t n, off_t at) ALIAS("pread");

size_t fread(void *data, size_t size, size_t n, FILE *f)
{
    if (meet_fd('I', "fread", fileno(f)) > 0) return 0;
    return REAL(size_t, "fread", void *, size_t, size_t, FILE *)(data, size, n, f);
}

int ftruncate(int fd, off_t n)
{
    FAIL_IF(meet_fd('W', "ftruncate", fd));
    return (int)syscall(SYS_ftruncate, fd, n);
}
int ftruncate64(int fd, off_t n) ALIAS("ftruncate");

int fallocate(int fd, int mode, off_t at, off_t n)
{
    FAIL_IF(meet_fd('W', "fallocate", fd));
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}
int fallocate64(int fd, int mode, off_t at, off_t n) ALIAS("fallocate");

int fsync(int fd)
{
    FAIL_IF(meet_fd('S', "fsync", fd));
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    FAIL_IF(meet_fd('S', "fdatasync", fd));
    return (int)syscall(SYS_fdatasync, fd);
}

/* Of what was opened to be read nothing is written at the close; so a folder. */
static char close_kind(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return ((flags >= 0) && ((flags & O_ACCMODE) == O_RDONLY)) ? 'I' : 'X';
}

/* As Linux does: whatever it returns, the number is free afterwards. */
int close(int fd)
{
    int why = meet_fd(close_kind(fd), "close", fd);
    int rc = (int)syscall(SYS_close, fd);

    FAIL_IF(why);
    return rc;
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *f)
{
    return REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *)(data, size, n, f);
}

int fflush(FILE *f)
{
    if (f != NULL) FAIL_IF(meet_fd('W', "fflush", fileno(f)));
    return REAL(int, "fflush", FILE *)(f);
}

int fclose(FILE *f)
{
    int why = meet_fd(close_kind(fileno(f)), "fclose", fileno(f));
    int rc = REAL(int, "fclose", FILE *)(f);

    FAIL_IF(why);
    return rc;
}

/* ---- the clock of the day */

static long off_by(void)
{
    static atomic_long start;
    const char *text = getenv("FAULT_CLOCK");
    struct timespec now;
    long none = 0, ms;
    double after, by;

    if ((text == NULL) || (sscanf(text, "%lf %lf", &after, &by) != 2)) return 0;
    (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    ms = (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    (void)atomic_compare_exchange_strong(&start, &none, ms);
    return ((double)(ms - atomic_load(&start)) >= 1000.0 * after) ? (long)by : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);

    if ((rc == 0) && ((clock == CLOCK_REALTIME) || (clock == CLOCK_REALTIME_COARSE)))
        t->tv_sec += off_by();
    return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (t != NULL) *t = now.tv_sec;
    return now.tv_sec;
}
