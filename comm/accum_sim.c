/* accum.c for a simulation: there is no content; the traffic takes its time, at three times the
 * bandwidth of additions. */
#include "comm/reduce.h"
#include "comm/select.h"

void ct_accum_run(const ct_accum *a)
{
    int64_t arrays = (a->u != NULL) ? 5 : 3;

    if ((a->u != NULL) && (a->weight != NULL)) arrays += 1;
    ct_reduce_add(CT_U8, arrays * (int64_t)sizeof(float) * a->n / 3, NULL, NULL, 1);
}

void ct_accum_all(const ct_accum *a, float *out)
{
    (void)out;
    ct_accum_run(a);
    ct_reduce_add(CT_U8, (int64_t)sizeof(float) * a->n / 3, NULL, NULL, 1);
}
