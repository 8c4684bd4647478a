#include "layers/engine/softmax/softmax.h"

#include "framework/base/memory.h"

#include <stddef.h>

const ct_softmax_engine *const ct_softmax_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_softmax_cuda,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_softmax_cudnn, /* by name or plan */
#endif
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

size_t ct_softmax_scratch(const ct_softmax_desc *d)
{
    return ct_align_up((size_t)(d->outer * d->inner) * sizeof(float)) + sizeof(double);
}
