#include "layers/engine/softmax/softmax.h"

#include <stddef.h>

const ct_softmax_engine *const ct_softmax_table[] = {
    &ct_softmax_omp,
    &ct_softmax_ref, /* last: written to be read, oracle of the others */
    NULL,
};

const ct_softmax_engine *ct_softmax_choose(const ct_softmax_desc *d)
{
    for (int i = 0; ct_softmax_table[i] != NULL; i++) {
        if (ct_softmax_table[i]->supports(d)) return ct_softmax_table[i];
    }
    return NULL;
}
