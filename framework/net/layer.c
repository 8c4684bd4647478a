#include "framework/net/layer.h"

#include <string.h>

const ct_layer_ops *ct_layer_find(const char *type)
{
    for (int i = 0; ct_layer_table[i] != NULL; i++) {
        if (strcmp(ct_layer_table[i]->type, type) == 0) return ct_layer_table[i];
    }
    return NULL;
}

ct_weight_spec *ct_layer_add_weight(ct_layer *l, const ct_shape *shape,
                                    const Ct__FillerParameter *filler)
{
    ct_weight_spec *w;

    if (l->n_weight == CT_MAX_WEIGHT) return NULL;
    w = &l->weight[l->n_weight++];
    *w = (ct_weight_spec){ .shape = *shape, .filler = filler, .default_lr_mult = 1.0f };
    return w;
}

void ct_instance_buffer(ct_instance *in, int slot, ct_keep keep, size_t bytes)
{
    in->buffer[slot].keep = keep;
    in->buffer[slot].bytes = bytes;
    in->buffer[slot].row = 0;
}

void ct_instance_carry(ct_instance *in, int slot, int64_t rows, int64_t row)
{
    ct_instance_buffer(in, slot, CT_KEEP_ALWAYS, (size_t)(rows * row) * sizeof(float));
    in->buffer[slot].row = row;
}

ct_blob *ct_instance_top(const ct_instance *in)
{
    return ((in->tail != NULL) ? in->tail->last : in)->top[0];
}

float ct_weight_beta(const ct_instance *in, const ct_exec *ex, int i)
{
    return (ex->accumulate || in->add_weight_diff[i]) ? 1.0f : 0.0f;
}
