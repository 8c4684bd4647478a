/* low_rank.c for a simulation: matrices hold nothing; what is done to them takes its time. */
#include "comm/core/sim_codec.h"
#include "comm/codec/low_rank.h"

/* A quarter of what columns take, and this part of the rest. */
static void charge(const ct_low_rank *s, double part)
{
    ct_codec_speed speed = ct_sim_codec();
    double n = (double)s->rows * (double)s->cols;

    ct_sim_codec_pass(n * (part * speed.factor_s + s->r * speed.column_s / 4));
}

int64_t ct_low_rank_scratch(const ct_low_rank *s)
{
    (void)s;
    return 0;
}

ct_status ct_low_rank_left(const ct_low_rank *s, const ct_momentum_correction *a, const float *q,
                           float *p)
{
    (void)q;
    (void)p;
    ct_momentum_correction_run(a);
    charge(s, 0);
    return CT_OK;
}

void ct_low_rank_right(const ct_low_rank *s, const float *v, const float *p, int n_thread,
                       float *scratch, float *q)
{
    (void)v;
    (void)p;
    (void)scratch;
    (void)q;
    (void)n_thread;
    charge(s, 0.25);
}

void ct_low_rank_take(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    (void)p;
    (void)q;
    (void)v;
    (void)n_thread;
    charge(s, 0.5);
}

void ct_low_rank_put(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    (void)p;
    (void)q;
    (void)v;
    (void)n_thread;
    charge(s, 0.25);
}
