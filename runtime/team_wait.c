#include "runtime/team_wait.h"

#include <inttypes.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/thread.h"

struct ct_team_wait {
    int n_thread, n_beside; /* of the team; of that beside, more than cores with it */
    pthread_t looker, beside;
    pthread_mutex_t lock;
    pthread_cond_t over, beside_made, beside_over;
    bool ends, is_short, is_made, beside_ends;
};

/* clang's has it, gcc's has not. */
extern void kmp_set_blocktime(int ms) __attribute__((weak));

/* ---- the team beside */

static void *stay_beside(void *arg)
{
    ct_team_wait *t = arg;
    int met = 0;

#pragma omp parallel num_threads(t->n_beside) reduction(+ : met)
    met += 1;
    pthread_mutex_lock(&t->lock);
    t->is_made = true;
    pthread_cond_signal(&t->beside_made);
    while (!t->beside_ends) pthread_cond_wait(&t->beside_over, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return (met > 0) ? NULL : arg;
}

ct_status ct_team_wait_set(ct_team_wait *t, bool is_short)
{
    if (is_short == t->is_short) return CT_OK;
    if (is_short) {
        t->is_made = t->beside_ends = false;
        if (ct_thread_start(stay_beside, t, &t->beside) != 0)
            return CT_FAIL(CT_ERR_NOMEM, "no thread to make waits short");
        pthread_mutex_lock(&t->lock);
        while (!t->is_made) pthread_cond_wait(&t->beside_made, &t->lock);
        pthread_mutex_unlock(&t->lock);
    } else {
        pthread_mutex_lock(&t->lock);
        t->beside_ends = true;
        pthread_cond_signal(&t->beside_over);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->beside, NULL);
    }
    t->is_short = is_short;
    return CT_OK;
}

/* ---- looking */

/* Nanoseconds that a thread of this process was ready and had no core; -1: the kernel does not say.
 */
static int64_t waited_by(const char *task)
{
    char name[64];
    int64_t ran, waited;
    int n = snprintf(name, sizeof(name), "/proc/self/task/%s/schedstat", task);
    FILE *f = ((n > 0) && ((size_t)n < sizeof(name))) ? fopen(name, "r") : NULL;
    bool told = (f != NULL) && (fscanf(f, "%" SCNd64 " %" SCNd64, &ran, &waited) == 2);

    if (f != NULL) fclose(f);
    return told ? waited : -1;
}

/* Of all threads together. One that has ended no longer counts: then less is seen than there was.
 */
static int64_t waited_in_all(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int64_t sum = (tasks != NULL) ? 0 : -1;

    for (const char *name; (name = ct_folder_next(tasks, NULL)) != NULL;) {
        int64_t one = waited_by(name);

        if (one > 0) sum += one;
    }
    if (tasks != NULL) closedir(tasks);
    return sum;
}

bool ct_team_wait_decide(double share, bool is_short, int *looks)
{
    enum { CALM = 30 }; /* looks: a program that pauses is not gone */
    static const double much = 0.05, little = 0.01;

    if (!is_short) {
        *looks = 0;
        return share > much;
    }
    *looks = (share < little) ? *looks + 1 : 0;
    return *looks < CALM;
}

static void look(ct_team_wait *t, double share, int *looks)
{
    bool is_short = ct_team_wait_decide(share, t->is_short, looks);

    if (is_short == t->is_short) return;
    if (is_short)
        CT_INFO("threads waited %.0f %% of the last second for a core: other programs run there, "
                "too. Threads that wait for one another leave their core at once",
                100.0 * share);
    else
        CT_INFO("the cores are free again: threads that wait for one another keep them a while");
    (void)ct_team_wait_set(t, is_short);
}

static void *look_on(void *arg)
{
    ct_team_wait *t = arg;
    int64_t before = waited_in_all();
    double since = ct_clock_s();
    int looks = 0;

    pthread_mutex_lock(&t->lock);
    while (!t->ends) {
        int64_t now;
        double at;

        (void)ct_cond_wait_for(&t->over, &t->lock, 1.0);
        if (t->ends) break;
        pthread_mutex_unlock(&t->lock);
        now = waited_in_all();
        at = ct_clock_s();
        if (at > since) look(t, 1e-9 * (double)(now - before) / (at - since) / t->n_thread, &looks);
        before = now;
        since = at;
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

ct_status ct_team_wait_start(int n_thread, int n_core, ct_team_wait **t_p)
{
    ct_team_wait *t;

    *t_p = NULL;
    if ((n_thread < 2) || (kmp_set_blocktime != NULL) ||
        (access("/proc/self/schedstat", R_OK) != 0) || (getenv("OMP_WAIT_POLICY") != NULL) ||
        (getenv("GOMP_SPINCOUNT") != NULL))
        return CT_OK;
    t = calloc(1, sizeof(*t));
    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to look at threads");
    t->n_thread = n_thread;
    t->n_beside = (n_core > n_thread) ? n_core - n_thread + 2 : 2;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->beside_made, NULL);
    pthread_cond_init(&t->beside_over, NULL);
    if ((ct_cond_init(&t->over) != 0) || (ct_thread_start(look_on, t, &t->looker) != 0)) {
        free(t);
        return CT_FAIL(CT_ERR_NOMEM, "no thread to look at threads");
    }
    *t_p = t;
    return CT_OK;
}

void ct_team_wait_stop(ct_team_wait *t)
{
    if (t == NULL) return;
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    pthread_cond_signal(&t->over);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->looker, NULL);
    (void)ct_team_wait_set(t, false);
    pthread_cond_destroy(&t->over);
    pthread_cond_destroy(&t->beside_made);
    pthread_cond_destroy(&t->beside_over);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
