/* Depthwise convolution on CUDA: each output channel sees one channel of the input, so there is no
 * product to make, and a thread an output (or an input, a weight) moves what must be moved. */
#include "layers/engine/conv/conv.h"
#include "layers/engine/cuda/wide.cuh"

static bool on_cuda(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->group == d->c) && (d->n_front == 0) &&
           (d->x_block == 0) && (d->y_block == 0) && (d->x_last == d->y_last);
}

static ct_numbers numbers(const ct_conv_desc *d, const float *at)
{
    return ct_numbers_at(at, d->x_last ? ct_dtype_of(d->operand) : CT_F32);
}

/* Element i of images of channels x h x w, and where one is. */
typedef struct spot {
    int64_t n, c, h, w;
} spot;

static __device__ spot spot_of(bool last, int64_t i, int64_t channels, int64_t h, int64_t w)
{
    int64_t step = last ? channels : 1, place = i / step;

    return { i / (channels * h * w), last ? i % channels : i / (h * w) % channels, place / w % h,
             place % w };
}

static __device__ int64_t index_of(bool last, const spot &s, int64_t channels, int64_t h, int64_t w)
{
    return last ? ((s.n * h + s.h) * w + s.w) * channels + s.c
                : ((s.n * channels + s.c) * h + s.h) * w + s.w;
}

/* ---- channels last, windows of 3 x 3: a thread keeps four channels, whose weights stay in its
 * registers. Read for each output they would cost more than all else: those of channels side by
 * side lie apart. */

enum {
    SIDE = 3,
    TAPS = SIDE * SIDE,
    MOST_BLOCKS = 512 /* weights are read once for many outputs */
};

static bool by_three(const ct_conv_desc *d, const float *from, const float *to)
{
    ct_dtype type = ct_dtype_of(d->operand);
    const int64_t most = (int64_t)MOST_BLOCKS * CT_CUDA_BLOCK; /* groups: the threads of a grid */

    return d->x_last && (d->m == d->c) && (d->kh == SIDE) && (d->kw == SIDE) &&
           (d->c % CT_WIDE == 0) && (d->c / CT_WIDE <= most) && ct_is_wide(from, type) &&
           ct_is_wide(to, type);
}

/* Along an axis: what output `at` reads by tap k; back: the output that reads `at` so, -1: none. */
static __device__ inline int64_t tap_of(bool back, int64_t at, int64_t k, int64_t stride,
                                        int64_t pad, int64_t dilation)
{
    int64_t reach = at + pad - k * dilation;

    if (!back) return at * stride - pad + k * dilation;
    if ((reach < 0) || (stride == 1)) return reach;
    return (reach % stride == 0) ? reach / stride : -1;
}

/* y from x, or back dx from dy: the same walk. */
template <ct_dtype T, bool BACK> static __global__ void three_kernel(ct_conv_desc d, ct_conv_args a)
{
    const float *from = BACK ? a.dy : a.x;
    float *to = BACK ? a.dx : a.y, weight[TAPS][CT_WIDE], bias[CT_WIDE];
    int64_t height = BACK ? d.h : d.oh, width = BACK ? d.w : d.ow; /* of what is made */
    int64_t from_height = BACK ? d.oh : d.h, from_width = BACK ? d.ow : d.w;
    int64_t groups = d.c / CT_WIDE, all = (int64_t)gridDim.x * blockDim.x / groups;
    int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, g = t % groups;

    if (t >= all * groups) return; /* the others go on by whole places */
    for (int j = 0; j < CT_WIDE; j++) {
        int64_t c = g * CT_WIDE + j;

        for (int k = 0; k < TAPS; k++) weight[k][j] = a.weight[c * TAPS + k];
        bias[j] = (!BACK && (a.bias != NULL)) ? a.bias[c] : 0.0f;
    }
    for (int64_t place = t / groups; place < d.n * height * width; place += all) {
        int64_t line = place / width, image = line / height;
        int64_t row = line - image * height, column = place - line * width;
        ct_four sum;

        for (int j = 0; j < CT_WIDE; j++) sum.v[j] = bias[j];
        for (int p = 0; p < SIDE; p++) {
            int64_t h = tap_of(BACK, row, p, d.sh, d.ph, d.dh);
            int64_t first = (image * from_height + h) * from_width;

            for (int q = 0; q < SIDE; q++) {
                int64_t w = tap_of(BACK, column, q, d.sw, d.pw, d.dw);

                if ((h >= 0) && (h < from_height) && (w >= 0) && (w < from_width)) {
                    ct_four v = ct_wide_get<T>(from, (first + w) * groups + g);

                    for (int j = 0; j < CT_WIDE; j++) sum.v[j] += weight[p * SIDE + q][j] * v.v[j];
                }
            }
        }
        ct_wide_put<T>(to, place * groups + g, sum);
    }
}

template <bool BACK>
static ct_status three(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t places = BACK ? d->n * d->h * d->w : d->n * d->oh * d->ow;
    unsigned blocks = ct_cuda_grid(places * d->c / CT_WIDE);
    ct_dtype type = ct_dtype_of(d->operand);

    if (places == 0) return CT_OK;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    if (type == CT_F32)
        CT_CUDA_RUN((three_kernel<CT_F32, BACK>), blocks, ex->stream, *d, *a);
    else if (type == CT_BF16)
        CT_CUDA_RUN((three_kernel<CT_BF16, BACK>), blocks, ex->stream, *d, *a);
    else
        CT_CUDA_RUN((three_kernel<CT_F16, BACK>), blocks, ex->stream, *d, *a);
    return ct_cuda_launched(BACK ? "depthwise by data" : "depthwise");
}

/* The weights' gradients: a thread has all taps of four channels, and reads dy once for them.
 * Block: part of the places, tile after tile of channels; its threads are added up in the order of
 * places, a tap at a time. scratch[tap][channel][part]. */
template <ct_dtype T>
static __global__ void __launch_bounds__(CT_CUDA_BLOCK, 2)
    three_weight_kernel(ct_conv_desc d, ct_conv_args a, int64_t parts, double *scratch)
{
    __shared__ double all[CT_WIDE][CT_CUDA_BLOCK];
    int64_t groups = d.c / CT_WIDE, places = d.n * d.oh * d.ow;
    int64_t first = blockIdx.x / parts * CT_CUDA_BLOCK, part = blockIdx.x % parts;
    int mine = (int)((groups - first < CT_CUDA_BLOCK) ? groups - first : CT_CUDA_BLOCK);
    int side = CT_CUDA_BLOCK / mine, turn = (int)threadIdx.x / mine;
    int64_t group = first + (int)threadIdx.x % mine;
    double sum[TAPS][CT_WIDE] = {};

    /* threads that are left over have no place, but come to the barriers */
    for (int64_t place = (turn < side) ? part * side + turn : places; place < places;
         place += parts * side) {
        int64_t line = place / d.ow, image = line / d.oh;
        int64_t row = line - image * d.oh, column = place - line * d.ow;
        ct_four g = ct_wide_get<T>(a.dy, place * groups + group);

        for (int k = 0; k < TAPS; k++) {
            int64_t h = tap_of(false, row, k / SIDE, d.sh, d.ph, d.dh);
            int64_t w = tap_of(false, column, k % SIDE, d.sw, d.pw, d.dw);

            if ((h >= 0) && (h < d.h) && (w >= 0) && (w < d.w)) {
                ct_four v = ct_wide_get<T>(a.x, ((image * d.h + h) * d.w + w) * groups + group);

                for (int j = 0; j < CT_WIDE; j++) sum[k][j] += (double)g.v[j] * (double)v.v[j];
            }
        }
    }
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int k = 0; k < TAPS; k++) {
        for (int j = 0; j < CT_WIDE; j++) all[j][threadIdx.x] = sum[k][j];
        __syncthreads();
        for (int o = (int)threadIdx.x; o < CT_WIDE * mine; o += CT_CUDA_BLOCK) {
            int c = o % mine, j = o / mine;
            double v = 0.0;

            for (int q = 0; q < side; q++) v += all[j][q * mine + c];
            scratch[(k * d.c + (first + c) * CT_WIDE + j) * parts + part] = v;
        }
        __syncthreads();
    }
}

template <class P>
static ct_status three_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a, P put)
{
    enum { MOST_PARTS = 256, PLACES = 16 };
    const char *what = "depthwise weights";
    int64_t groups = d->c / CT_WIDE, tiles = (groups + CT_CUDA_BLOCK - 1) / CT_CUDA_BLOCK;
    int64_t side = CT_CUDA_BLOCK / ((groups < CT_CUDA_BLOCK) ? groups : CT_CUDA_BLOCK);
    int64_t parts = d->n * d->oh * d->ow / (side * PLACES), room = CT_CUDA_SCRATCH / (d->c * TAPS);
    ct_dtype type = ct_dtype_of(d->operand);
    unsigned blocks;

    if (parts > MOST_PARTS / tiles) parts = MOST_PARTS / tiles;
    if (parts > room) parts = room;
    if (parts < 1) parts = 1;
    blocks = (unsigned)(tiles * parts);
    if (type == CT_F32)
        CT_CUDA_RUN_BLOCKS(three_weight_kernel<CT_F32>, blocks, ex->stream, *d, *a, parts,
                           ct_cuda_scratch());
    else if (type == CT_BF16)
        CT_CUDA_RUN_BLOCKS(three_weight_kernel<CT_BF16>, blocks, ex->stream, *d, *a, parts,
                           ct_cuda_scratch());
    else
        CT_CUDA_RUN_BLOCKS(three_weight_kernel<CT_F16>, blocks, ex->stream, *d, *a, parts,
                           ct_cuda_scratch());
    CT_TRY(ct_cuda_launched(what));
    return ct_cuda_add_parts<1>(ex->stream, what, d->c * TAPS, parts, put);
}

static ct_status forward(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c; /* outputs of a channel */
    ct_numbers x = numbers(desc, a.x), y = numbers(desc, a.y);

    if (by_three(desc, a.x, a.y)) return three<false>(desc, ex, args);
    return ct_cuda_map(ex->stream, "depthwise", d.n * d.m * d.oh * d.ow, [=] __device__(int64_t i) {
        spot at = spot_of(d.y_last, i, d.m, d.oh, d.ow);
        const float *k = a.weight + at.c * d.kh * d.kw;
        float sum = (a.bias != NULL) ? a.bias[at.c] : 0.0f;

        for (int64_t p = 0; p < d.kh; p++) {
            int64_t row = at.h * d.sh - d.ph + p * d.dh;

            if ((row < 0) || (row >= d.h)) continue;
            for (int64_t q = 0; q < d.kw; q++) {
                int64_t column = at.w * d.sw - d.pw + q * d.dw;
                spot from = { at.n, at.c / per, row, column };

                if ((column >= 0) && (column < d.w))
                    sum += k[p * d.kw + q] * x[index_of(d.x_last, from, d.c, d.h, d.w)];
            }
        }
        y.put(i, sum);
    });
}

static ct_status backward_data(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c;
    ct_numbers dy = numbers(desc, a.dy), dx = numbers(desc, a.dx);

    if (by_three(desc, a.dy, a.dx)) return three<true>(desc, ex, args);
    return ct_cuda_map(
        ex->stream, "depthwise by data", d.n * d.c * d.h * d.w, [=] __device__(int64_t i) {
            spot at = spot_of(d.x_last, i, d.c, d.h, d.w);
            float sum = 0.0f;

            for (int64_t m = at.c * per; m < (at.c + 1) * per; m++) {
                const float *k = a.weight + m * d.kh * d.kw;

                for (int64_t p = 0; p < d.kh; p++) {
                    int64_t top = at.h + d.ph - p * d.dh;

                    if ((top < 0) || (top % d.sh != 0) || (top / d.sh >= d.oh)) continue;
                    for (int64_t q = 0; q < d.kw; q++) {
                        int64_t left = at.w + d.pw - q * d.dw;
                        spot from = { at.n, m, top / d.sh, left / d.sw };

                        if ((left < 0) || (left % d.sw != 0) || (left / d.sw >= d.ow)) continue;
                        sum += k[p * d.kw + q] * dy[index_of(d.y_last, from, d.m, d.oh, d.ow)];
                    }
                }
            }
            dx.put(i, sum);
        });
}

/* Sums of weight [m][tap] over images and outputs; channels last, threads side by side have m. */
static ct_status backward_weight(const ct_conv_desc *desc, ct_exec *ex, const ct_conv_args *args)
{
    ct_conv_desc d = *desc;
    ct_conv_args a = *args;
    int64_t per = d.m / d.c, taps = d.kh * d.kw, out = d.oh * d.ow;
    ct_numbers x = numbers(desc, a.x), dy = numbers(desc, a.dy);
    auto add = [=] __device__(int64_t r, int64_t i, double *sum) {
        int64_t m = d.y_last ? r % d.m : r / taps, tap = d.y_last ? r / d.m : r % taps;
        spot at = { i / out, m, i % out / d.ow, i % out % d.ow }, from = { i / out, m / per, 0, 0 };

        from.h = at.h * d.sh - d.ph + tap / d.kw * d.dh;
        from.w = at.w * d.sw - d.pw + tap % d.kw * d.dw;
        if ((from.h < 0) || (from.h >= d.h) || (from.w < 0) || (from.w >= d.w)) return;
        *sum += (double)dy[index_of(d.y_last, at, d.m, d.oh, d.ow)] *
                (double)x[index_of(d.x_last, from, d.c, d.h, d.w)];
    };
    auto put = [=] __device__(int64_t r, const double *sum) {
        int64_t to = d.y_last ? r % d.m * taps + r / d.m : r;

        a.dweight[to] = (float)(*sum + ((a.beta != 0.0f) ? (double)(a.beta * a.dweight[to]) : 0.0));
    };

    if (by_three(desc, a.x, a.dy) && (d.c * TAPS <= CT_CUDA_SCRATCH))
        return three_weight(desc, ex, args, put);
    if (d.y_last)
        return ct_cuda_column_sums<1>(ex->stream, "depthwise weights", d.m * taps, d.n * out, add,
                                      put);
    return ct_cuda_sums<1>(ex->stream, "depthwise weights", d.m * taps, d.n * out, add, put);
}

const ct_conv_impl ct_conv_cuda_depth_forward = { "depthwise", on_cuda, NULL, forward };
const ct_conv_impl ct_conv_cuda_depth_backward_data = { "depthwise", on_cuda, NULL, backward_data };
const ct_conv_impl ct_conv_cuda_depth_backward_weight = { "depthwise", on_cuda, NULL,
                                                          backward_weight };
