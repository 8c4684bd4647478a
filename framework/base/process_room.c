#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/base/thread.h"

static void *pass(void *arg)
{
    pthread_mutex_t *gate = arg;

    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many start at once, n at most; *rc_p: why no more do. */
static int start_all(pthread_t *thread, int n, int *rc_p)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int begun = 0;

    *rc_p = 0;
    pthread_mutex_lock(&gate);
    while ((begun < n) && (*rc_p == 0)) {
        *rc_p = ct_thread_start(pass, &gate, &thread[begun]);
        begun += (*rc_p == 0);
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < begun; i++) pthread_join(thread[i], NULL);
    return begun;
}

static ct_status refuse(int begun, int n, int rc)
{
    struct rlimit user = { RLIM_INFINITY, RLIM_INFINITY };
    ct_text limits = { 0 };
    double group = ct_process_limit();
    ct_status status;

    (void)getrlimit(RLIMIT_NPROC, &user);
    if (user.rlim_cur != RLIM_INFINITY)
        ct_text_add(&limits, "; the user may have %llu processes and threads (ulimit -u)",
                    (unsigned long long)user.rlim_cur);
    if (isfinite(group))
        ct_text_add(&limits, "; the control group may have %.0f (pids.max)", group);
    status = CT_FAIL(CT_ERR_CONFIG,
                     "of %d threads that a rank wants %d can start: %s%s; take a larger limit, or "
                     "fewer threads (OMP_NUM_THREADS)",
                     n, begun, strerror(rc), (limits.text != NULL) ? limits.text : "");
    ct_text_destroy(&limits);
    return status;
}

/* Of the whole machine, processes and threads; infinite where it does not say. */
static double most_of_machine(void)
{
    FILE *f = fopen("/proc/sys/kernel/threads-max", "re");
    double n = INFINITY;

    if ((f == NULL) || (fscanf(f, "%lf", &n) != 1)) n = INFINITY;
    if (f != NULL) fclose(f);
    return n;
}

ct_status ct_thread_room_check(int n)
{
    double most = most_of_machine();
    pthread_t *thread;
    int begun, rc;

    if (n >= most)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%d threads are more than the machine takes (%.0f): fewer of them "
                       "(OMP_NUM_THREADS)",
                       n, most);
    thread = calloc((size_t)n, sizeof(*thread));
    if (thread == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d threads", n);
    begun = start_all(thread, n, &rc);
    free(thread);
    return (rc == 0) ? CT_OK : refuse(begun, n, rc);
}

/* A number and B, K, M or G, kibibytes without, as OpenMP has it. What is none is OpenMP's to tell.
 */
static double bytes_of(const char *text)
{
    char *end;
    double n = strtod(text, &end);

    if (end == text) return INFINITY;
    switch (*end) {
    case 'B':
    case 'b':
        return n;
    case 'M':
    case 'm':
        return n * 0x1p20;
    case 'G':
    case 'g':
        return n * 0x1p30;
    default:
        return n * 0x1p10;
    }
}

/* The GNU library refuses to start threads with less than it needs for itself, and OpenMP ends. */
static ct_status check_team_stack(void)
{
    static const double least = 0x1p19;
    const char *stack = getenv("OMP_STACKSIZE");

    if ((stack == NULL) || (bytes_of(stack) >= least)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "OMP_STACKSIZE=%s: a thread needs %.0f KiB of stack", stack,
                   least / 0x1p10);
}

ct_status ct_process_room_check(void)
{
    static const struct {
        int which;
        rlim_t least;
        const char *what, *option;
    } limit[] = {
        { RLIMIT_NOFILE, 64, "open files", "-n" },
        { RLIMIT_STACK, 1 << 20, "bytes of stack", "-s" },
        { RLIMIT_FSIZE, 8 << 20, "bytes in a file", "-f" },
    };

    for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++) {
        struct rlimit now;

        if ((getrlimit(limit[i].which, &now) != 0) || (now.rlim_cur == RLIM_INFINITY) ||
            (now.rlim_cur >= limit[i].least))
            continue;
        return CT_FAIL(CT_ERR_CONFIG, "a process may have %llu %s (ulimit %s); a rank needs %llu",
                       (unsigned long long)now.rlim_cur, limit[i].what, limit[i].option,
                       (unsigned long long)limit[i].least);
    }
    return check_team_stack();
}
