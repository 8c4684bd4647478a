/* PriorBox: a number a thread. They are made anew in each step: that costs less than a copy of what
 * would have to lie somewhere else meanwhile. */
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/cuda/wide.cuh"

extern "C" {
#include "layers/types/prior_box.h"
}

static ct_status prior_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_prior_state *s = (const ct_prior_state *)l->state;
    ct_prior_frame f = ct_prior_frame_of(l, in);
    int64_t n = dim_of(in->top[0], 2), in_cell = 4 * s->n_prior;
    const float *side = s->there;
    float *y = ct_blob_data(in->top[0]);
    ct_four variance;

    memcpy(variance.v, s->variance, sizeof(variance.v));
    return ct_cuda_map(
        ex->stream, "PriorBox", n, KERNEL(int64_t k) {
            int64_t box = k % in_cell / 4;
            int i = (int)(k % 4);

            y[k] = ct_prior_number(&f, k / in_cell, side + 2 * box, i);
            y[n + k] = variance.v[i];
        });
}

const ct_device_override ct_cuda_prior_box = { "PriorBox", NULL, prior_forward, NULL };
