#include "framework/base/process_room.h"

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

ct_status ct_thread_room_check(int n)
{
    pthread_t *thread = calloc((size_t)n, sizeof(*thread));
    int begun, rc;

    if (thread == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d threads", n);
    begun = start_all(thread, n, &rc);
    free(thread);
    return (rc == 0) ? CT_OK : refuse(begun, n, rc);
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
    return CT_OK;
}
