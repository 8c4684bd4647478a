/** @file thread_ranks.h  Ranks as threads of one process, for tests of what ranks do together
 *  without MPI.
 *
 * Each has a ct_exchange whose collectives meet at a barrier; sums are taken in rank order. A rank
 * that fails breaks the job: the others' collectives return CT_ERR_COMM instead of hanging.
 */
#ifndef CT_THREAD_RANKS_H
#define CT_THREAD_RANKS_H

#include <pthread.h>

#include "framework/net/net.h"
#include "framework/exchange/exchange.h"

enum { THREAD_RANKS_MAX = 8 };

struct thread_rank;

typedef struct thread_ranks {
    int n;
    bool residuals; /* every learned parameter keeps a state "residual" per rank */
    bool absorbs;   /* … that counts in updates: there is a state "residual_rate" with it */
    int all_from;   /* > 0: from this step on nothing is held back */
    int landing;    /* in which order buckets land, a parameter each: any number is another one */
    int lost;       /* > 0: the bucket of parameter lost - 1 fails to land */
    ct_status (*run)(struct thread_rank *r);
    void *ctx;
    /* private */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int arrived;
    long round;
    bool broken;
    const void *slot[THREAD_RANKS_MAX];
} thread_ranks;

typedef struct thread_rank {
    thread_ranks *job;
    int rank;
    ct_net *net;
    int n_learned;
    float *residual; /* as long as the gradient arena, where the job keeps residuals */
    float rate;      /* that the residual counts in, where the job absorbs */
    int64_t ready_count;
    int64_t step;   /* begun so far */
    bool *reported; /* [n_learned] in this step */
    int n_reported;
    int n_wait;       /* how often wait was called */
    ct_status status; /* of run */
    void *out;        /* the test's */
} thread_rank;

/** Fits ct_solver_options.open_exchange; ctx is the thread_rank. */
ct_status thread_rank_open(void *ctx, ct_net *net, ct_exchange *out);
/** Runs job->run on job->n threads, rank[0..n) theirs; returns the worst status. */
ct_status thread_ranks_run(thread_ranks *job, thread_rank *rank);

#endif
