/* Silence: takes bottoms that nobody wants, so that they are no outputs; their gradient is zero. */
#include "layers/types/layer_types.h"

#include <string.h>

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    (void)in;
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    (void)in;
    (void)ex;
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    for (int i = 0; i < l->n_bottom; i++) {
        ct_blob *b = in->bottom[i];

        if (ct_blob_diff(b) == NULL) continue;
        CT_TRY(l->dev->zero(ex->stream, ct_blob_diff(b), ct_tensor_bytes(&b->diff)));
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_silence = {
    .type = "Silence",
    .min_bottom = 1,
    .max_bottom = -1,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
