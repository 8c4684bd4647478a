/* low_rank.c for a simulation: matrices hold nothing; what is done to them takes its time: memory
 * traffic at three times the bandwidth of additions, or 8 multiplications in the time of a byte. */
#include "comm/low_rank.h"

#include "comm/reduce.h"

static void charge(const ct_low_rank *s, int64_t bytes, int n_thread)
{
    int64_t n = s->rows * s->cols, work = (bytes > s->r) ? bytes : s->r;

    ct_reduce_add(CT_U8, work * n / 3, NULL, NULL, n_thread);
}

int64_t ct_low_rank_scratch(const ct_low_rank *s)
{
    (void)s;
    return 0;
}

ct_status ct_low_rank_left(const ct_low_rank *s, const ct_accum *a, const float *q, float *p)
{
    (void)q;
    (void)p;
    ct_accum_run(a);
    charge(s, 0, a->n_thread);
    return CT_OK;
}

void ct_low_rank_right(const ct_low_rank *s, const float *v, const float *p, int n_thread,
                       float *scratch, float *q)
{
    (void)v;
    (void)p;
    (void)scratch;
    (void)q;
    charge(s, 4, n_thread);
}

void ct_low_rank_take(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    (void)p;
    (void)q;
    (void)v;
    charge(s, 8, n_thread);
}

void ct_low_rank_put(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    (void)p;
    (void)q;
    (void)v;
    charge(s, 4, n_thread);
}
