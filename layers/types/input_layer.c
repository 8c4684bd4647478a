/* Input: tops of given shapes, which the caller fills before forward. MemoryData: the same, a batch
 * of images and one of labels. */
#include <stdlib.h>

#include "framework/base/rng.h"
#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"

static const Ct__BlobShape *shape_of(const ct_layer *l, int top)
{
    const Ct__InputParameter *p = l->param->input_param;

    return p->shape[(p->n_shape == 1) ? 0 : top];
}

static ct_status input_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InputParameter *p = l->param->input_param;

    (void)bottom;
    if ((p == NULL) || ((p->n_shape != 1) && (p->n_shape != (size_t)l->n_top))) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu shapes for %d tops: give one, or one each",
                             (p != NULL) ? p->n_shape : (size_t)0, l->n_top);
    }
    for (int i = 0; i < l->n_top; i++) {
        const Ct__BlobShape *s = shape_of(l, i);

        if (s->n_dim > CT_MAX_DIM) {
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "shape of %zu dimensions, at most %d", s->n_dim,
                                 CT_MAX_DIM);
        }
        for (size_t k = 0; k < s->n_dim; k++) {
            if (s->dim[k] < 1) {
                return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "dimension %zu of top \"%s\" is %lld", k,
                                     l->param->top[i], (long long)s->dim[k]);
            }
        }
    }
    return CT_OK;
}

static ct_status input_reshape(const ct_layer *l, ct_instance *in)
{
    for (int i = 0; i < l->n_top; i++) {
        const Ct__BlobShape *s = shape_of(l, i);
        ct_shape shape = { .ndim = (int)s->n_dim };

        for (size_t k = 0; k < s->n_dim; k++) shape.dim[k] = s->dim[k];
        CT_TRY(ct_data_check_size(l, &shape));
        ct_blob_set_shape(in->top[i], &shape);
        if (i == 0) ct_data_set_even_batch(l, in, ct_shape_legacy(&shape, 0));
    }
    return CT_OK;
}

/* Where data is to be made up, uniform numbers; else what the caller put there stays. */
static ct_status input_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if (!l->env->synthetic) return CT_OK;
    for (int i = 0; i < l->n_top; i++) {
        int64_t n = ct_tensor_count(&in->top[i]->data);
        float *values = malloc((size_t)n * sizeof(float));
        ct_status status;

        if (values == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory");
        for (int64_t k = 0; k < n; k++) values[k] = (float)(k % 251) / 251.0f;
        status = ct_data_put(ex, in->top[i], values, n);
        free(values);
        CT_TRY(status);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_input = {
    .type = "Input",
    .min_top = 1,
    .max_top = -1,
    .is_data = true,
    .keeps_top = true,
    .setup = input_setup,
    .reshape = input_reshape,
    .forward = input_forward,
    .on_cuda = true,
};

static ct_status memory_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__MemoryDataParameter *p = l->param->memory_data_param;

    (void)bottom;
    if ((p == NULL) || (p->batch_size == 0) || (p->channels == 0) || (p->height == 0) ||
        (p->width == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "memory_data_param.batch_size, channels, height and width must be "
                             "given, at least 1");
    if (l->param->transform_param != NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "transform_param: who fills the blobs transforms, too");
    if (!l->env->synthetic && !l->env->no_data)
        CT_WARN("%s%slayer \"%s\" (%s): the program that made the net is to fill its tops; to read "
                "files, use Data, HDF5Data or ImageData",
                l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
    return CT_OK;
}

static ct_status memory_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__MemoryDataParameter *p = l->param->memory_data_param;
    ct_shape data = { 4, { p->batch_size, p->channels, p->height, p->width } };

    CT_TRY(ct_data_check_size(l, &data));
    ct_blob_set_shape(in->top[0], &data);
    ct_blob_set_shape(in->top[1], &(ct_shape){ 1, { p->batch_size } });
    ct_data_set_even_batch(l, in, p->batch_size);
    return CT_OK;
}

const ct_layer_ops ct_layer_memory_data = {
    .type = "MemoryData",
    .min_top = 2,
    .max_top = 2,
    .is_data = true,
    .keeps_top = true,
    .setup = memory_setup,
    .reshape = memory_reshape,
    .forward = input_forward,
    .on_cuda = true,
};
