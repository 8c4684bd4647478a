#include "framework/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "framework/base/text.h"

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

/* pids.max of this process's control group: of version 2, or of version 1's own tree. */
static bool group_limit(long *most_p)
{
    FILE *groups = fopen("/proc/self/cgroup", "r");
    char line[4096], name[4300];
    bool found = false;

    while ((groups != NULL) && !found && (fgets(line, sizeof(line), groups) != NULL)) {
        char *list = strchr(line, ':'), *path = (list != NULL) ? strchr(list + 1, ':') : NULL;
        FILE *f;

        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if ((list[1] != '\0') && (strcmp(list + 1, "pids") != 0)) continue;
        snprintf(name, sizeof(name), "/sys/fs/cgroup%s%s/pids.max", list[1] ? "/pids" : "", path);
        f = fopen(name, "r");
        found = (f != NULL) && (fscanf(f, "%ld", most_p) == 1); /* or "max" */
        if (f != NULL) fclose(f);
    }
    if (groups != NULL) fclose(groups);
    return found;
}

static ct_status refuse(int begun, int n, int rc)
{
    struct rlimit user = { RLIM_INFINITY, RLIM_INFINITY };
    ct_text limits = { 0 };
    ct_status status;
    long most;

    (void)getrlimit(RLIMIT_NPROC, &user);
    if (user.rlim_cur != RLIM_INFINITY)
        ct_text_add(&limits, "; the user may have %llu processes and threads (ulimit -u)",
                    (unsigned long long)user.rlim_cur);
    if (group_limit(&most))
        ct_text_add(&limits, "; the control group may have %ld (pids.max)", most);
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
