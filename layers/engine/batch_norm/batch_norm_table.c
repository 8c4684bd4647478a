#include "layers/engine/batch_norm/batch_norm.h"

#include <stddef.h>

const ct_batch_norm_engine *const ct_batch_norm_table[] = {
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
