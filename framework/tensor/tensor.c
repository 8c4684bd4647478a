#include "framework/tensor/tensor.h"

#include <string.h>

int64_t ct_tensor_stored(const ct_tensor *t)
{
    ct_shape padded = t->shape;
    int64_t block = t->layout.block;

    if ((block > 1) && (padded.ndim > 1))
        padded.dim[1] = (padded.dim[1] + block - 1) / block * block;
    return ct_shape_count(&padded, 0, -1);
}

size_t ct_tensor_bytes(const ct_tensor *t)
{
    return (size_t)ct_tensor_stored(t) * ct_dtype_size(t->dtype);
}

void ct_blob_set_storage(ct_blob *b, const ct_shape *shape, ct_layout layout, ct_dtype dtype)
{
    bool same = (shape->ndim < 2) || ((ct_shape_count(shape, 2, -1) == 1) && (layout.block > 0) &&
                                      (shape->dim[1] % layout.block == 0));

    if (same) layout.block = 0;
    b->data.shape = *shape;
    b->diff.shape = *shape;
    b->data.dtype = b->diff.dtype = dtype;
    b->data.layout = b->diff.layout = layout;
}

void ct_blob_set_layout(ct_blob *b, const ct_shape *shape, ct_layout layout)
{
    ct_blob_set_storage(b, shape, layout, CT_F32);
}

void ct_blob_set_shape(ct_blob *b, const ct_shape *shape)
{
    ct_blob_set_layout(b, shape, (ct_layout){ CT_ORDER_NCHW, 0 });
}
