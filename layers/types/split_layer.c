/* Split and Silence: a blob with several readers, and one with none. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/math/math.h"
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

/* ---- Split: every top is the bottom; the bottom's gradient is the sum of the tops'. A top without
 * a diff counts as zero. Values are copied, unless the net has given a top the bottom's memory. */

static ct_status split_reshape(const ct_layer *l, ct_instance *in)
{
    in->over = 1;
    for (int i = 0; i < l->n_top; i++) {
        ct_blob_set_like(in->top[i], &in->bottom[0]->data.shape, &in->bottom[0]->data);
        in->top[i]->restarts_first = in->bottom[0]->restarts_first;
        in->top[i]->ids = in->bottom[0]->ids;
    }
    return CT_OK;
}

static bool as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    (void)p;
    *kind_p = CT_EPILOGUE_SPLIT;
    return true;
}

static ct_status split_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]);

    for (int i = 0; i < l->n_top; i++) {
        float *y = ct_blob_data(in->top[i]);

        if (y != x) CT_TRY(ex->dev->copy(ex->stream, y, x, ct_tensor_bytes(&in->bottom[0]->data)));
    }
    return CT_OK;
}

CT_SIMD_CLONES static void add_f32(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

CT_SIMD_CLONES static void add_bf16(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        ct_num_put(y, true, i, ct_num_get(a, true, i) + ct_num_get(b, true, i));
}

static void add(int64_t n, bool bf16, const float *a, const float *b, float *y)
{
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i += CT_PARALLEL_MIN)
        (bf16 ? add_bf16 : add_f32)((n - i < CT_PARALLEL_MIN) ? n - i : CT_PARALLEL_MIN,
                                    ct_num_at(a, bf16, i), ct_num_at(b, bf16, i),
                                    ct_num_to(y, bf16, i));
}

/* y = a + b, where y may be a: one pass on the CPU. */
static ct_status sum(ct_exec *ex, int64_t n, ct_dtype type, const float *a, const float *b,
                     float *y)
{
    if (ex->dev->kind == CT_DEVICE_CPU) {
        add(n, type == CT_BF16, a, b, y);
        return CT_OK;
    }
    if (type != CT_F32) return ct_kernels(ex)->add(ex, n, type, a, b, y);
    if (y != a) CT_TRY(ex->dev->copy(ex->stream, y, a, (size_t)n * sizeof(*y)));
    return ex->dev->math->axpy(ex->stream, n, 1.0f, b, y);
}

static ct_status split_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t n = ct_tensor_stored(&in->bottom[0]->data);
    size_t bytes = ct_tensor_bytes(&in->bottom[0]->diff);
    float *dx = ct_blob_diff(in->bottom[0]);
    const float *first = NULL; /* the sum so far: one top's diff, later dx itself */

    if (dx == NULL) return CT_OK;
    for (int i = 0; i < l->n_top; i++) {
        const float *dy = ct_blob_diff(in->top[i]);

        if (dy == NULL) continue;
        if (first != NULL) {
            CT_TRY(
                sum(ex, n, in->bottom[0]->data.dtype, first, dy, dx)); /* dx may be the first dy */
            first = dx;
        } else {
            first = dy;
        }
    }
    if (first == NULL) return ex->dev->zero(ex->stream, dx, bytes);
    return (first == dx) ? CT_OK : ex->dev->copy(ex->stream, dx, first, bytes);
}

static const ct_fusion_ops split_fusion = {
    .as_epilogue = as_epilogue,
};

const ct_layer_ops ct_layer_split = {
    .type = "Split",
    .splits = CT_SPLIT_EACH,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = -1,
    .alias = CT_ALIAS_DATA,
    .null_top_diff = true,
    .reshape = split_reshape,
    .forward = split_forward,
    .backward = split_backward,
    .on_cuda = true,
    .layout = &ct_layout_all,
    .fusion = &split_fusion,
    .sequence = &ct_sequence_apart,
};

/* ---- Silence: takes bottoms that nobody wants, so that they are no outputs; their gradient is
 * zero. */

static ct_status silence_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    (void)in;
    return CT_OK;
}

static ct_status silence_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    (void)in;
    (void)ex;
    return CT_OK;
}

static ct_status silence_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .splits = CT_SPLIT_EACH,
    .min_bottom = 1,
    .max_bottom = -1,
    .reshape = silence_reshape,
    .forward = silence_forward,
    .backward = silence_backward,
    .on_cuda = true,
};
