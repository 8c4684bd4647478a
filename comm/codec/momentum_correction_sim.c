/* momentum_correction.c for a simulation: there is no content; the update takes its time. */
#include "comm/core/sim_codec.h"
#include "comm/codec/select.h"

void ct_momentum_correction_run(const ct_momentum_correction *a)
{
    double arrays = (a->u != NULL) ? 5 : 3;

    ct_sim_codec_pass(ct_sim_codec().update_s * (double)a->n * arrays / 5);
}

void ct_momentum_correction_all(const ct_momentum_correction *a, float *out)
{
    (void)out;
    ct_momentum_correction_run(a);
    ct_sim_codec_stream(4 * (double)a->n);
}

void ct_momentum_correction_apart(const ct_momentum_correction *a, float *out, double sum[2])
{
    ct_momentum_correction_all(a, out);
    sum[0] = sum[1] = 0;
}

bool ct_momentum_correction_holds(const float *v, int64_t n)
{
    (void)v;
    (void)n;
    return false;
}

void ct_momentum_correction_send(const ct_momentum_correction *a, float share, float *out)
{
    (void)share;
    (void)out;
    ct_sim_codec_stream(16 * (double)a->n);
}

double ct_momentum_correction_square(const float *v, int64_t n, int n_thread)
{
    (void)v;
    (void)n;
    (void)n_thread;
    return 0;
}

float ct_momentum_correction_limit(const float *v, int64_t n, double limit, int n_thread)
{
    (void)v;
    (void)limit;
    (void)n_thread;
    ct_sim_codec_stream(4 * (double)n);
    return 1;
}

void ct_momentum_correction_scale(float *v, int64_t n, float factor, int n_thread)
{
    (void)v;
    (void)factor;
    (void)n_thread;
    ct_sim_codec_stream(8 * (double)n);
}
