/* momentum_correction.c for a simulation: there is no content; the update takes its time. */
#include "comm/core/coding_sim.h"
#include "comm/codec/select.h"

void ct_accum_run(const ct_accum *a)
{
    double arrays = (a->u != NULL) ? 5 : 3;

    ct_coding_sim_pass(ct_coding_sim().update_s * (double)a->n * arrays / 5);
}

void ct_accum_all(const ct_accum *a, float *out)
{
    (void)out;
    ct_accum_run(a);
    ct_coding_sim_stream(4 * (double)a->n);
}

void ct_accum_apart(const ct_accum *a, float *out, double sum[2])
{
    ct_accum_all(a, out);
    sum[0] = sum[1] = 0;
}

bool ct_accum_holds(const float *v, int64_t n)
{
    (void)v;
    (void)n;
    return false;
}

void ct_accum_send(const ct_accum *a, float share, float *out)
{
    (void)share;
    (void)out;
    ct_coding_sim_stream(16 * (double)a->n);
}

double ct_accum_square(const float *v, int64_t n, int n_thread)
{
    (void)v;
    (void)n;
    (void)n_thread;
    return 0;
}

float ct_accum_limit(const float *v, int64_t n, double limit, int n_thread)
{
    (void)v;
    (void)limit;
    (void)n_thread;
    ct_coding_sim_stream(4 * (double)n);
    return 1;
}

void ct_accum_scale(float *v, int64_t n, float factor, int n_thread)
{
    (void)v;
    (void)factor;
    (void)n_thread;
    ct_coding_sim_stream(8 * (double)n);
}
