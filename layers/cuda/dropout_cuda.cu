/* Dropout: backward draws the same numbers again instead of reading a mask. A thread has a block of
 * Philox, four numbers. */
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/types/dropout.h"
}
#include "layers/engine/cuda/wide.cuh"

typedef struct dropping {
    uint32_t below;
    float scale;
    ct_dropout_numbers r;
    draw_key key;
} dropping;

template <ct_dtype T>
static ct_status drop_blocks(ct_exec *ex, const dropping &how, const float *x, float *y)
{
    dropping d = how;
    int64_t groups = d.r.row / 4 + 2; /* that a row may begin and end within */
    bool wide = ct_is_wide(x, T) && ct_is_wide(y, T);
    ct_numbers from = ct_numbers_at(x, T), to = ct_numbers_at(y, T);

    return ct_cuda_map(
        ex->stream, "Dropout", d.r.n_row * groups, KERNEL(int64_t i) {
            int64_t row = i / groups;
            uint64_t first = d.r.first + (uint64_t)row * d.r.stride;
            uint64_t block = first / 4 + (uint64_t)(i % groups);
            int64_t at = (int64_t)(block * 4 - first); /* of number 0 of the block, in its row */
            ct_rng_block b;

            if (at >= d.r.row) return;
            b = ct_philox(d.key.get(), 0, block);
            if (wide && (at >= 0) && (at + CT_WIDE <= d.r.row) &&
                ((row * d.r.row + at) % CT_WIDE == 0)) {
                int64_t four = (row * d.r.row + at) / CT_WIDE;
                ct_four v = ct_wide_get<T>(x, four);

                for (int k = 0; k < CT_WIDE; k++)
                    v.v[k] = (b.v[k] >= d.below) ? v.v[k] * d.scale : 0.0f;
                ct_wide_put<T>(y, four, v);
                return;
            }
            for (int k = 0; k < 4; k++) {
                int64_t e = row * d.r.row + at + k;

                if ((at + k < 0) || (at + k >= d.r.row)) continue;
                to.put(e, (b.v[k] >= d.below) ? from[e] * d.scale : 0.0f);
            }
        });
}

/* Channels last: neighbours in memory have numbers that are `places` apart, so each draws its own
 * block. */
static ct_status drop_last(ct_exec *ex, const dropping &how, int64_t n, int64_t channels,
                           int64_t places, ct_numbers from, ct_numbers to)
{
    dropping d = how;

    return ct_cuda_map(
        ex->stream, "Dropout", n, KERNEL(int64_t i) {
            int64_t sample = i / (channels * places), place = i / channels % places;
            int64_t plain = (sample * channels + i % channels) * places + place;
            uint64_t number =
                d.r.first + (uint64_t)(plain / d.r.row) * d.r.stride + (uint64_t)(plain % d.r.row);
            ct_rng_block b = ct_philox(d.key.get(), 0, number / 4);

            to.put(i, (b.v[number % 4] >= d.below) ? from[i] * d.scale : 0.0f);
        });
}

static ct_status drop(const ct_layer *l, const ct_instance *in, ct_exec *ex, const float *x,
                      float *y)
{
    const ct_dropout_state *s = (const ct_dropout_state *)l->state;
    const ct_tensor *t = &in->bottom[0]->data;
    int64_t n = ct_tensor_count(t), places = ct_shape_count(&t->shape, 2, -1);
    dropping d = { (uint32_t)s->drop_below, s->scale, ct_dropout_number(t, ex),
                   key_of(ex, s->name_hash) };

    if (l->phase == CT_TEST)
        return (x == y) ? CT_OK : ex->dev->copy(ex->stream, y, x, ct_tensor_bytes(t));
    if (ct_blob_is_last(in->bottom[0]) && (places > 1))
        return drop_last(ex, d, n, t->shape.dim[1], places, ct_numbers_at(x, t->dtype),
                         ct_numbers_at(y, t->dtype));
    return (t->dtype == CT_F32)    ? drop_blocks<CT_F32>(ex, d, x, y)
           : (t->dtype == CT_BF16) ? drop_blocks<CT_BF16>(ex, d, x, y)
                                   : drop_blocks<CT_F16>(ex, d, x, y);
}

static ct_status dropout_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return drop(l, in, ex, ct_blob_data(in->bottom[0]), ct_blob_data(in->top[0]));
}

static ct_status dropout_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return drop(l, in, ex, ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
}

static bool draws(const Ct__LayerParameter *)
{
    return true;
}

const ct_device_override ct_cuda_dropout = { "Dropout",        NULL,  dropout_forward,
                                        dropout_backward, false, draws };
