/* Convolution on CUDA with channels last in 16 bits: windows become rows of a matrix, [image and
 * place][group][kernel][channel of the group], of as many images as the workspace holds, and one
 * product a group does the rest. With K = KH KW C/G, rows R = N OH OW:
 *   y = col W^T, dcol = dy W (folded onto dx), dW = dy^T col.
 * dy and y lie as products want them; x is read so, or as images in plain f32; W is rounded and
 * turned into the workspace. Sums are f32, and rounded once. */
#include "framework/base/memory.h"
#include "framework/math/cuda/math_cuda.h"
#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv.h"

static const int64_t WORK_MAX = (int64_t)256 << 20;

static bool on_cuda(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && d->y_last && (d->n_front == 0) && (d->x_block == 0) &&
           (d->y_block == 0) && (ct_operand_size(d->operand) == sizeof(uint16_t));
}

static int64_t row_of(const ct_conv_desc *d)
{
    return d->group * group_k(d);
}

/* Where things lie in the workspace, of so many images at once: rows of windows, then what the
 * product makes in f32 (y, dcol by data, dW), then the weights. */
typedef struct room {
    int64_t images;
    size_t made, weight, bytes;
} room;

static room room_of(const ct_conv_desc *d, ct_run_kind kind)
{
    bool data = (kind == CT_RUN_BACKWARD_DATA), grad = (kind == CT_RUN_BACKWARD_WEIGHT);
    int64_t places = out_size(d), weights = d->m * group_k(d), made, per;
    size_t col = data ? 0 : sizeof(uint16_t);
    room r;

    made = data ? row_of(d) * places : grad ? 0 : d->m * places; /* of an image */
    per = row_of(d) * places * (int64_t)col + made * (int64_t)sizeof(float);
    r.images = WORK_MAX / ((per > 0) ? per : 1);
    r.images = (r.images < 1) ? 1 : (r.images > d->n) ? d->n : r.images;
    r.made = ct_align_up((size_t)(r.images * row_of(d) * places) * col);
    r.weight = r.made + ct_align_up((size_t)(grad ? weights : r.images * made) * sizeof(float));
    r.bytes = r.weight + (grad ? 0 : ct_align_up((size_t)weights * sizeof(uint16_t)));
    return r;
}

static size_t work_forward(const ct_conv_desc *d)
{
    return room_of(d, CT_RUN_FORWARD).bytes;
}

static size_t work_data(const ct_conv_desc *d)
{
    return room_of(d, CT_RUN_BACKWARD_DATA).bytes;
}

static size_t work_weight(const ct_conv_desc *d)
{
    return room_of(d, CT_RUN_BACKWARD_WEIGHT).bytes;
}

/* Of x and dx: values of images from `first` on. */
static ct_numbers images_at(const ct_conv_desc *d, const float *x, int64_t first)
{
    ct_dtype type = d->x_last ? ct_dtype_of(d->operand) : CT_F32;

    return ct_numbers_at((const float *)((const char *)x + (size_t)(first * d->c * d->h * d->w) *
                                                               ct_dtype_size(type)),
                         type);
}

static __device__ int64_t index_of(const ct_conv_desc &d, int64_t n, int64_t c, int64_t h,
                                   int64_t w)
{
    return d.x_last ? ((n * d.h + h) * d.w + w) * d.c + c : ((n * d.c + c) * d.h + h) * d.w + w;
}

/* Columns of a row: group, tap, channel of the group. */
typedef struct column {
    int64_t channel, p, q;
} column;

static __device__ column column_of(const ct_conv_desc &d, int64_t i)
{
    int64_t own = d.c / d.group, tap = i / own % (d.kh * d.kw);

    return { i / (own * d.kh * d.kw) * own + i % own, tap / d.kw, tap % d.kw };
}

static ct_status unfold(const ct_conv_desc *desc, ct_exec *ex, int64_t n, ct_numbers x,
                        uint16_t *col)
{
    ct_conv_desc d = *desc;
    int64_t row = row_of(desc);

    return ct_cuda_map(
        ex->stream, "windows to rows", n * d.oh * d.ow * row, [=] __device__(int64_t i) {
            int64_t at = i / row, image = at / (d.oh * d.ow);
            column k = column_of(d, i % row);
            int64_t h = at / d.ow % d.oh * d.sh - d.ph + k.p * d.dh;
            int64_t w = at % d.ow * d.sw - d.pw + k.q * d.dw;
            bool inside = (h >= 0) && (h < d.h) && (w >= 0) && (w < d.w);

            col[i] = ct_narrow_bits(
                d.operand, inside ? x[index_of(d, image, k.channel, h, w)] : 0.0f);
        });
}

/* Each input gathers what windows hold of it. */
static ct_status fold(const ct_conv_desc *desc, ct_exec *ex, int64_t n, const float *col,
                      ct_numbers dx)
{
    ct_conv_desc d = *desc;
    int64_t row = row_of(desc), own = d.c / d.group;

    return ct_cuda_map(
        ex->stream, "rows to windows", n * d.h * d.w * d.c, [=] __device__(int64_t i) {
            int64_t c = i % d.c, w = i / d.c % d.w, h = i / (d.c * d.w) % d.h;
            int64_t image = i / (d.c * d.w * d.h);
            const float *from = col + c / own * own * d.kh * d.kw + c % own;
            float sum = 0.0f;

            for (int64_t p = 0; p < d.kh; p++) {
                int64_t top = h + d.ph - p * d.dh;

                if ((top < 0) || (top % d.sh != 0) || (top / d.sh >= d.oh)) continue;
                for (int64_t q = 0; q < d.kw; q++) {
                    int64_t left = w + d.pw - q * d.dw, at;

                    if ((left < 0) || (left % d.sw != 0) || (left / d.sw >= d.ow)) continue;
                    at = (image * d.oh + top / d.sh) * d.ow + left / d.sw;
                    sum += from[at * row + (p * d.kw + q) * own];
                }
            }
            dx.put(index_of(d, image, c, h, w), sum);
        });
}

/* Weight i of rows [output][tap][channel], in the order that weights have. */
static __device__ int64_t weight_of(int64_t own, int64_t taps, int64_t i)
{
    int64_t c = i % own, tap = i / own % taps;

    return (i / (own * taps) * own + c) * taps + tap;
}

static ct_status round_weights(const ct_conv_desc *d, ct_exec *ex, const float *weight,
                               uint16_t *to)
{
    int64_t own = d->c / d->group, taps = d->kh * d->kw;
    ct_operand operand = d->operand;

    return ct_cuda_map(ex->stream, "rounding", d->m * own * taps, [=] __device__(int64_t i) {
        to[i] = ct_narrow_bits(operand, weight[weight_of(own, taps, i)]);
    });
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    room r = room_of(d, CT_RUN_FORWARD);
    int64_t own = d->m / d->group, k = group_k(d), s = out_size(d), outputs = d->m;
    uint16_t *col = (uint16_t *)a->work, *weight = (uint16_t *)((char *)a->work + r.weight);
    float *made = (float *)((char *)a->work + r.made);
    const float *bias = a->bias;
    bool relu = a->relu;

    CT_TRY(round_weights(d, ex, a->weight, weight));
    for (int64_t first = 0; first < d->n; first += r.images) {
        int64_t n = (d->n - first < r.images) ? d->n - first : r.images;
        uint16_t *y = (uint16_t *)a->y + first * s * outputs;
        ct_numbers to = { y, ct_dtype_of(d->operand) };

        CT_TRY(unfold(d, ex, n, images_at(d, a->x, first), col));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, d->operand, false, true, n * s, own, k, 1.0f,
                                           col + g * k, row_of(d), 0, weight + g * own * k, k, 0,
                                           0.0f, made + g * own, outputs, 0, 1));
        CT_TRY(ct_cuda_map(
            ex->stream, "convolution bias", n * s * outputs, [=] __device__(int64_t i) {
                float v = made[i] + ((bias != NULL) ? bias[i % outputs] : 0.0f);

                to.put(i, (relu && (v < 0.0f)) ? 0.0f : v); /* NaN stays */
            }));
    }
    return CT_OK;
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    room r = room_of(d, CT_RUN_BACKWARD_DATA);
    int64_t own = d->m / d->group, k = group_k(d), s = out_size(d);
    uint16_t *weight = (uint16_t *)((char *)a->work + r.weight);
    float *made = (float *)((char *)a->work + r.made);

    CT_TRY(round_weights(d, ex, a->weight, weight));
    for (int64_t first = 0; first < d->n; first += r.images) {
        int64_t n = (d->n - first < r.images) ? d->n - first : r.images;
        const uint16_t *dy = (const uint16_t *)a->dy + first * s * d->m;

        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, d->operand, false, false, n * s, k, own,
                                           1.0f, dy + g * own, d->m, 0, weight + g * own * k, k, 0,
                                           0.0f, made + g * k, row_of(d), 0, 1));
        CT_TRY(fold(d, ex, n, made, images_at(d, a->dx, first)));
    }
    return CT_OK;
}

static ct_status backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    room r = room_of(d, CT_RUN_BACKWARD_WEIGHT);
    int64_t own = d->m / d->group, k = group_k(d), s = out_size(d), count = d->m * k;
    int64_t channels = d->c / d->group, taps = d->kh * d->kw;
    uint16_t *col = (uint16_t *)a->work;
    float *made = (float *)((char *)a->work + r.made), *dw = a->dweight, beta = a->beta;

    if (d->n == 0) /* a rank without samples */
        return (beta == 0.0f) ? ex->dev->zero(ex->stream, dw, (size_t)count * sizeof(float))
                              : CT_OK;
    for (int64_t first = 0; first < d->n; first += r.images) {
        int64_t n = (d->n - first < r.images) ? d->n - first : r.images;
        const uint16_t *dy = (const uint16_t *)a->dy + first * s * d->m;

        CT_TRY(unfold(d, ex, n, images_at(d, a->x, first), col));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, d->operand, true, false, own, k, n * s, 1.0f,
                                           dy + g * own, d->m, 0, col + g * k, row_of(d), 0,
                                           (first == 0) ? 0.0f : 1.0f, made + g * own * k, k, 0, 1));
    }
    return ct_cuda_map(ex->stream, "weight gradient", count, [=] __device__(int64_t i) {
        int64_t to = weight_of(channels, taps, i);

        dw[to] = made[i] + ((beta == 0.0f) ? 0.0f : beta * dw[to]);
    });
}

const ct_conv_impl ct_conv_cuda_last_forward = {
    "cuda", on_cuda, work_forward, forward, NULL, CT_CONV_CAN_BF16 | CT_CONV_CAN_RELU
};
const ct_conv_impl ct_conv_cuda_last_backward_data = { "cuda",        on_cuda, work_data,
                                                       backward_data, NULL,    CT_CONV_CAN_BF16 };
const ct_conv_impl ct_conv_cuda_last_backward_weight = {
    "cuda", on_cuda, work_weight, backward_weight, NULL, CT_CONV_CAN_BF16
};
