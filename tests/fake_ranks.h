/** @file fake_ranks.h  Sums over ranks that run one after the other in one process.
 *
 * Each pretended rank runs twice: first with replay false, which only collects what it sends, then
 * with replay true, when every call gets the sum of all ranks. Layers call in the same order both
 * times.
 */
#ifndef CT_TEST_FAKE_RANKS_H
#define CT_TEST_FAKE_RANKS_H

#include "framework/net/exec.h"

#include <string.h>

typedef struct fake_ranks {
    double sum[4][64]; /* of each call that a pass makes */
    int call;          /* set to 0 before each pass */
    int n_call;        /* of all ranks, while collecting */
    bool replay;
} fake_ranks;

/** ct_exec.sum_ranks with a fake_ranks as context; a pass may call it 4 times, n <= 64. */
static inline ct_status fake_sum_ranks(void *ctx, double *v, int n)
{
    fake_ranks *f = ctx;
    double *sum = f->sum[f->call++];

    for (int i = 0; !f->replay && (i < n); i++) sum[i] += v[i];
    if (!f->replay) f->n_call++;
    memcpy(v, sum, (size_t)n * sizeof(double));
    return CT_OK;
}

/** Rank r of p that share a batch of n: its samples and the first of them. */
static inline void fake_share(int64_t n, int r, int p, int64_t *local_p, int64_t *first_p)
{
    int64_t more = (r < n % p) ? r : n % p;

    *local_p = n / p + ((r < n % p) ? 1 : 0);
    *first_p = r * (n / p) + more;
}

#endif
