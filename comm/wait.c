/* Waiting, and the lock around MPI. A simulator has its own: there time passes only in MPI calls,
 * so that a loop of tests would cost what it simulates, and there is no second thread. */
#include "comm/comm.h"

#include <sched.h>

enum { SPINS = 2000 /* idle rounds before the core is given away: some tens of microseconds */ };

void ct_comm_relax(const ct_comm *c, int *idle)
{
    if (*idle == 0) return;
    if (c->oversubscribed || (*idle > SPINS)) {
        (void)sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

ct_status ct_comm_wait_any(ct_comm *c, MPI_Request **req, int n, int *idle)
{
    (void)req; /* shared memory moves without messages, and other requests may be posted: look again
                */
    (void)n;
    ct_comm_relax(c, idle);
    return CT_OK;
}

bool ct_comm_may_thread(const ct_comm *c, const char **why_p)
{
    int level = MPI_THREAD_SINGLE;

    (void)c;
    if ((MPI_Query_thread(&level) == MPI_SUCCESS) && (level >= MPI_THREAD_SERIALIZED)) return true;
    *why_p = "this MPI gives less than MPI_THREAD_SERIALIZED";
    return false;
}
