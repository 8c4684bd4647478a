/** @file task_loop.h  Loops whose tasks the threads of a team take over from one another.
 *
 * Each thread begins with the tasks that schedule(static) would give it, so what it reads is where
 * it was. A thread that has no more takes those of others, one by one (work stealing): so a loop
 * does not wait for a thread whose core runs another program. Only for tasks whose results do not
 * depend on the thread. A task should take a microsecond at least.
 *
 *     ct_task_team team;
 *
 *     ct_task_team_init(&team, n_thread);
 *     #pragma omp parallel num_threads(n_thread)
 *     {
 *         ct_task_loop loop = ct_task_loop_of(&team);
 *
 *         for (int64_t i = ct_task_first(&loop, n); i >= 0; i = ct_task_next(&loop)) run(i);
 *     #pragma omp barrier
 *         ... more loops, each with the same n on all threads and a barrier behind it
 *     }
 */
#ifndef CT_TASK_LOOP_H
#define CT_TASK_LOOP_H

#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    CT_TASK_PARTS = 128,     /* of a loop at most; more threads share them */
    CT_TASK_INDEX_BITS = 40, /* of a part's state; what is above counts loops */
};

/** The next task of a part of a loop, in a cache line of its own. It says which loop it is of, so
 *  nobody has to be there to begin a part: a thread without a core may be late for that, too. */
typedef struct ct_task_part {
    _Alignas(64) atomic_uint_least64_t state;
} ct_task_part;

/** Shared by the threads; on the stack of the one that opens the parallel region. */
typedef struct ct_task_team {
    int n_thread, n_part;
    ct_task_part part[CT_TASK_PARTS];
} ct_task_team;

/** A thread's own. */
typedef struct ct_task_loop {
    ct_task_team *team;
    uint64_t count; /* of loops, this one with them */
    int64_t n;      /* tasks                        */
    int own, part;  /* where it began, and is       */
    int64_t first, end;
} ct_task_loop;

/** Before the parallel region, by one thread. */
static inline void ct_task_team_init(ct_task_team *t, int n_thread)
{
    t->n_thread = (n_thread > 1) ? n_thread : 1;
    t->n_part = (t->n_thread < CT_TASK_PARTS) ? t->n_thread : CT_TASK_PARTS;
    for (int i = 0; i < t->n_part; i++) atomic_init(&t->part[i].state, 0);
}

/** Inside the region, by each thread. The region may have fewer threads than t, and not more. */
static inline ct_task_loop ct_task_loop_of(ct_task_team *t)
{
    return (ct_task_loop){ .team = t, .own = omp_get_thread_num() * t->n_part / t->n_thread };
}

static inline void ct_task_go_to(ct_task_loop *l, int part)
{
    l->part = part;
    l->first = l->n * part / l->team->n_part;
    l->end = l->n * (part + 1) / l->team->n_part;
}

/** The next task of the part where it is; -1: there is none. */
static inline int64_t ct_task_take(ct_task_loop *l)
{
    atomic_uint_least64_t *state = &l->team->part[l->part].state;
    uint64_t seen = atomic_load_explicit(state, memory_order_relaxed);
    int64_t i;

    do {
        /* of a loop before: nobody has begun this part */
        i = (seen >> CT_TASK_INDEX_BITS == l->count)
                ? (int64_t)(seen & ((UINT64_C(1) << CT_TASK_INDEX_BITS) - 1))
                : l->first;
        if (i >= l->end) return -1;
    } while (!atomic_compare_exchange_weak_explicit(
        state, &seen, (l->count << CT_TASK_INDEX_BITS) | (uint64_t)(i + 1), memory_order_relaxed,
        memory_order_relaxed));
    return i;
}

/** -1: no thread has any left to begin; some may still run. */
static inline int64_t ct_task_next(ct_task_loop *l)
{
    for (;;) {
        int64_t i = ct_task_take(l);

        if (i >= 0) return i;
        if ((l->part + 1) % l->team->n_part == l->own) return -1;
        ct_task_go_to(l, (l->part + 1) % l->team->n_part);
    }
}

/** Begins the next loop, of n tasks below 2^40, and takes the first. */
static inline int64_t ct_task_first(ct_task_loop *l, int64_t n)
{
    l->n = n;
    l->count++;
    ct_task_go_to(l, l->own);
    return ct_task_next(l);
}

#endif
