#include "layers/engine/batch_norm/batch_norm.h"

#include <omp.h>
#include <stddef.h>

const ct_batch_norm_engine *const ct_batch_norm_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_batch_norm_cuda,
#endif
    &ct_batch_norm_omp,
    &ct_batch_norm_blocked,
    &ct_batch_norm_ref, /* last: written to be read, oracle of the others */
    NULL,
};

const ct_batch_norm_engine *ct_batch_norm_choose(const ct_batch_norm_desc *d)
{
    for (int i = 0; ct_batch_norm_table[i] != NULL; i++) {
        if (ct_batch_norm_table[i]->supports(d)) return ct_batch_norm_table[i];
    }
    return NULL;
}

int64_t ct_batch_norm_piece(const ct_batch_norm_desc *d, int arrays)
{
    static const int64_t CACHE = 8 << 20;
    int64_t step = (d->block > 0) ? d->block : 1, threads = omp_get_max_threads();
    int64_t bytes = d->n * d->spatial * step * arrays * (int64_t)sizeof(float);
    int64_t fit = CACHE / ((bytes > 0) ? bytes : 1);
    int64_t least = (d->block > 0) ? (threads + 7) / 8 : 4 * threads; /* work for all */

    if (fit < least) fit = least;
    return fit * step;
}
