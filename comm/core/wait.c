/* Waiting, and the lock around MPI. A simulator has its own: there time passes only in MPI calls,
 * so that a loop of tests would cost what it simulates, and there is no second thread. */
#include "comm/core/node.h"

#include <pthread.h>
#include <sched.h>

enum {
    SPINS = 2000,     /* idle rounds before the core is given away: some tens of microseconds   */
    SHARED_SPINS = 2, /* … where others wait for the core                                       */
    YIELDS = 50,      /* rounds of that before sleeping, which may let the core halt: waking it
                         then takes tens of microseconds on a virtual machine                   */
    HEARS = 16        /* rounds until it is asked again what there is to wait for               */
};

static void relax(const ct_comm *c, int idle, bool may_sleep)
{
    ct_sleeper *sleeper = ct_node_sleeper(c->node_memory);
    int spins = c->oversubscribed ? SHARED_SPINS : SPINS;

    if (idle == 0) {
        ct_futex_leave(sleeper);
    } else if (idle > spins) {
        if (!may_sleep || (idle <= spins + YIELDS) || !ct_futex_wait(sleeper)) (void)sched_yield();
    } else {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

void ct_comm_relax(const ct_comm *c, int *idle)
{
    relax(c, *idle, true);
}

ct_status ct_comm_wait_any(ct_comm *c, MPI_Request **req, int n, int *idle)
{
    ct_status status;

    (void)req;
    /* messages ring no bell, and other requests may be posted meanwhile: look again */
    relax(c, *idle, n == 0);
    if (*idle % HEARS != 0) return CT_OK;
    ct_comm_lock(c);
    status = ct_comm_hear(c);
    ct_comm_unlock(c);
    return status;
}

/* Beside the log the one thing that is global: that one thread at a time may call MPI is a rule of
 * the process (MPI_THREAD_SERIALIZED), and holds across communicators that know nothing of each
 * other. */
static struct {
    pthread_once_t made;
    pthread_mutex_t lock;
} serial = { .made = PTHREAD_ONCE_INIT };

static void make_lock(void)
{
    pthread_mutexattr_t kind;

    (void)pthread_mutexattr_init(&kind); /* these fail only on bad arguments */
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&serial.lock, &kind);
    (void)pthread_mutexattr_destroy(&kind);
}

void ct_comm_lock(ct_comm *c)
{
    (void)c;
    (void)pthread_once(&serial.made, make_lock);
    (void)pthread_mutex_lock(&serial.lock);
}

void ct_comm_unlock(ct_comm *c)
{
    (void)c;
    (void)pthread_mutex_unlock(&serial.lock);
}

int ct_comm_test(MPI_Request *request, int *done_p)
{
    return MPI_Test(request, done_p, MPI_STATUS_IGNORE);
}

bool ct_comm_sends_in_turn(void)
{
    return false;
}

double ct_comm_leaves_s(const ct_comm *c, int to, int64_t bytes)
{
    (void)c, (void)to, (void)bytes;
    return 0;
}

ct_status ct_comm_alarm(double seconds, void *block, MPI_Request *alarm)
{
    (void)seconds, (void)block, (void)alarm;
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
