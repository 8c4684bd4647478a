/* accum.c for a simulation: there is no content; the update takes its time. */
#include "comm/coding_sim.h"
#include "comm/select.h"

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

double ct_accum_square(const float *v, int64_t n)
{
    (void)v;
    (void)n;
    return 0;
}
