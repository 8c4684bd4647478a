#include "comm/core/futex.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST_NS = 500000 };

static void sleep_unless(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec most = { 0, LONGEST_NS };

    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}
#else
static void sleep_unless(_Atomic uint32_t *word, uint32_t value)
{
    if (atomic_load(word) == value) (void)sched_yield();
}

static void wake(_Atomic uint32_t *word, int n)
{
    (void)word;
    (void)n;
}
#endif

void ct_futex_count(ct_sleeper *s, int change)
{
    (void)atomic_fetch_add_explicit(&s->waits, change, memory_order_relaxed);
    if (change < 0) ct_futex_leave(s);
}

void ct_futex_leave(ct_sleeper *s)
{
    if (!atomic_load_explicit(&s->announced, memory_order_relaxed)) return;
    if (atomic_exchange(&s->announced, false)) (void)atomic_fetch_sub(&s->bell->sleepers, 1);
}

bool ct_futex_wait(ct_sleeper *s)
{
    if ((s->bell == NULL) || (atomic_load_explicit(&s->waits, memory_order_relaxed) == 0))
        return false;
    if (!atomic_exchange(&s->announced, true)) {
        atomic_store(&s->seen, atomic_load(&s->bell->rings));
        (void)atomic_fetch_add(&s->bell->sleepers, 1);
        atomic_thread_fence(memory_order_seq_cst);
        return true;
    }
    sleep_unless(&s->bell->rings, atomic_load(&s->seen));
    ct_futex_leave(s);
    return true;
}

void ct_futex_wake_now(ct_futex *bell, int n)
{
    (void)atomic_fetch_add(&bell->rings, 1);
    wake(&bell->rings, n);
}
