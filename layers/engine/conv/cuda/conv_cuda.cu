/* Convolution on CUDA: im2col of as many images as the workspace holds, then one batched product.
 * Per image and group, with K = C/G KH KW and S = OH OW:
 *   y = W col, dcol = W^T dy (folded onto dx), dW += sum over images of dy col^T.
 * What products read in 16 bits is rounded on its way: col as it is unfolded, W and dy into the
 * workspace. */
#include "framework/math/cuda/math_cuda.h"
#include "framework/math/cuda/narrow.cuh"
#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/conv/conv.h"

static const int64_t WORK_MAX = (int64_t)256 << 20;

static bool on_cuda(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->x_block == 0) && (d->y_block == 0) && !d->x_last &&
           !d->y_last;
}

/* Floats of one image's column block; of all groups. */
static int64_t col_floats(const ct_conv_desc *d)
{
    return d->group * group_k(d) * out_size(d);
}

static int64_t weight_floats(const ct_conv_desc *d)
{
    return d->m * group_k(d);
}

static bool narrows(const ct_conv_desc *d)
{
    return ct_operand_size(d->operand) == sizeof(uint16_t);
}

/* Bytes of n numbers that a product reads. */
static size_t read_bytes(const ct_conv_desc *d, int64_t n)
{
    return ct_align_up((size_t)n * ct_operand_size(d->operand));
}

static int64_t dy_floats(const ct_conv_desc *d)
{
    return d->m * out_size(d);
}

static int64_t images_at_once(const ct_conv_desc *d, int64_t floats_per_image)
{
    int64_t n = WORK_MAX / (int64_t)sizeof(float) / floats_per_image;

    return (n < 1) ? 1 : (n > d->n) ? d->n : n;
}

/* Where things lie in the workspace: col, parts of the weight gradient (f32), rounded W and dy. */
typedef struct room {
    int64_t images;
    size_t part, weight, dy, bytes;
} room;

static room room_of(const ct_conv_desc *d, ct_run_kind kind)
{
    int64_t col = col_floats(d), weight = weight_floats(d);
    bool data = (kind == CT_RUN_BACKWARD_DATA), grad = (kind == CT_RUN_BACKWARD_WEIGHT);
    room r;

    r.images = images_at_once(d, col + (grad ? weight : 0));
    /* by data col is what the product makes: f32 */
    r.part = data ? ct_align_up((size_t)(r.images * col) * sizeof(float))
                  : read_bytes(d, r.images * col);
    r.weight = r.part + (grad ? ct_align_up((size_t)(r.images * weight) * sizeof(float)) : 0);
    r.dy = r.weight + ((narrows(d) && !grad) ? read_bytes(d, weight) : 0);
    r.bytes =
        r.dy +
        ((narrows(d) && (kind != CT_RUN_FORWARD)) ? read_bytes(d, r.images * dy_floats(d)) : 0);
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

/* n numbers as products read them: x itself, or rounded `at` bytes into the workspace. */
static ct_status operand(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a, int64_t n,
                         const float *x, size_t at, const char **there_p)
{
    char *room = (char *)a->work + at;

    *there_p = narrows(d) ? room : (const char *)x;
    return narrows(d) ? ct_cuda_narrow(ex->stream, d->operand, n, x, room) : CT_OK;
}

/* One thread per entry of col: [image][channel kh kw][oh ow]. */
static __global__ void im2col_kernel(ct_conv_desc d, ct_operand to, int64_t n, const float *x,
                                     void *col)
{
    int64_t kernel = d.kh * d.kw, s = d.oh * d.ow;

    CT_CUDA_LOOP(i, n * d.c * kernel * s)
    {
        int64_t at = i % s, row = i / s % (d.c * kernel), image = i / (s * d.c * kernel);
        int64_t c = row / kernel, p = row % kernel / d.kw, q = row % d.kw;
        int64_t h = at / d.ow * d.sh - d.ph + p * d.dh, w = at % d.ow * d.sw - d.pw + q * d.dw;
        bool inside = (h >= 0) && (h < d.h) && (w >= 0) && (w < d.w);

        ct_narrow_put(to, col, i, inside ? x[((image * d.c + c) * d.h + h) * d.w + w] : 0.0f);
    }
}

/* One thread per entry of dx, which gathers: no atomics, so the sum has a fixed order. */
static __global__ void col2im_kernel(ct_conv_desc d, int64_t n, const float *col, float *dx)
{
    int64_t kernel = d.kh * d.kw, s = d.oh * d.ow;

    CT_CUDA_LOOP(i, n * d.c * d.h * d.w)
    {
        int64_t w = i % d.w, h = i / d.w % d.h, c = i / (d.w * d.h) % d.c;
        int64_t image = i / (d.w * d.h * d.c);
        const float *from = col + (image * d.c + c) * kernel * s;
        float sum = 0.0f;

        for (int64_t p = 0; p < d.kh; p++) {
            int64_t top = h + d.ph - p * d.dh;

            if ((top < 0) || (top % d.sh != 0) || (top / d.sh >= d.oh)) continue;
            for (int64_t q = 0; q < d.kw; q++) {
                int64_t left = w + d.pw - q * d.dw;

                if ((left < 0) || (left % d.sw != 0) || (left / d.sw >= d.ow)) continue;
                sum += from[(p * d.kw + q) * s + top / d.sh * d.ow + left / d.sw];
            }
        }
        dx[i] = sum;
    }
}

/* bias NULL: none. */
static __global__ void finish_kernel(int64_t n, int64_t m, int64_t s, const float *bias, bool relu,
                                     float *y)
{
    CT_CUDA_LOOP(i, n)
    {
        float v = y[i] + ((bias != NULL) ? bias[i / s % m] : 0.0f);

        y[i] = (relu && (v < 0.0f)) ? 0.0f : v; /* NaN stays */
    }
}

/* The same over any number of axes, outermost first. */
enum { MAX_AXIS = CT_CONV_FRONT + 2 };

typedef struct axes {
    int n;
    ct_conv_axis axis[MAX_AXIS];
    int64_t taps, in, out; /* products over the axes */
} axes;

static axes axes_of(const ct_conv_desc *d)
{
    axes a = {};

    for (; a.n < d->n_front; a.n++) a.axis[a.n] = d->front[a.n];
    a.axis[a.n++] = { d->h, d->oh, d->kh, d->sh, d->ph, d->dh };
    a.axis[a.n++] = { d->w, d->ow, d->kw, d->sw, d->pw, d->dw };
    a.taps = d->kh * d->kw * front_taps(d);
    a.in = in_size(d);
    a.out = out_size(d);
    return a;
}

/* Where output `at` of tap `tap` reads in its channel; -1: outside. */
static __device__ int64_t input_of(const axes &a, int64_t tap, int64_t at)
{
    int64_t place = 0, step = 1;

    for (int i = a.n - 1; i >= 0; i--) {
        const ct_conv_axis &x = a.axis[i];
        int64_t k = at % x.out * x.stride - x.pad + tap % x.kernel * x.dilation;

        if ((k < 0) || (k >= x.in)) return -1;
        place += k * step;
        step *= x.in;
        at /= x.out;
        tap /= x.kernel;
    }
    return place;
}

/* The output that reads `place` by tap `tap`; -1: none. */
static __device__ int64_t output_of(const axes &a, int64_t tap, int64_t place)
{
    int64_t at = 0, step = 1;

    for (int i = a.n - 1; i >= 0; i--) {
        const ct_conv_axis &x = a.axis[i];
        int64_t k = place % x.in + x.pad - tap % x.kernel * x.dilation;

        if ((k < 0) || (k % x.stride != 0) || (k / x.stride >= x.out)) return -1;
        at += k / x.stride * step;
        step *= x.out;
        place /= x.in;
        tap /= x.kernel;
    }
    return at;
}

ct_status ct_cuda_im2col(ct_exec *ex, const ct_conv_desc *d, ct_operand to, int64_t n,
                         const float *x, void *col)
{
    int64_t channels = d->c;

    if (d->n_front > 0) {
        axes a = axes_of(d);

        return ct_cuda_map(
            ex->stream, "im2col", n * channels * a.taps * a.out, [=] __device__(int64_t i) {
                int64_t row = i / a.out, at = input_of(a, row % a.taps, i % a.out);

                ct_narrow_put(to, col, i, (at >= 0) ? x[row / a.taps * a.in + at] : 0.0f);
            });
    }
    CT_CUDA_RUN(im2col_kernel, ct_cuda_grid(n * col_floats(d)), ex->stream, *d, to, n, x, col);
    return ct_cuda_launched("im2col");
}

ct_status ct_cuda_col2im(ct_exec *ex, const ct_conv_desc *d, int64_t n, const float *col, float *dx)
{
    int64_t count = n * d->c * in_size(d);

    if (d->n_front > 0) {
        axes a = axes_of(d);

        return ct_cuda_map(ex->stream, "col2im", count, [=] __device__(int64_t e) {
            float sum = 0.0f;

            for (int64_t tap = 0; tap < a.taps; tap++) {
                int64_t at = output_of(a, tap, e % a.in);

                if (at >= 0) sum += col[(e / a.in * a.taps + tap) * a.out + at];
            }
            dx[e] = sum;
        });
    }
    CT_CUDA_RUN(col2im_kernel, ct_cuda_grid(count), ex->stream, *d, n, col, dx);
    return ct_cuda_launched("col2im");
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    room r = room_of(d, CT_RUN_FORWARD);
    int64_t m = group_m(d), k = group_k(d), s = out_size(d);
    size_t size = ct_operand_size(d->operand);
    char *col = (char *)a->work;
    const char *weight;

    CT_TRY(operand(d, ex, a, weight_floats(d), a->weight, r.weight, &weight));
    for (int64_t first = 0; first < d->n; first += r.images) {
        int64_t n = (d->n - first < r.images) ? d->n - first : r.images;
        float *y = a->y + first * d->m * s;

        CT_TRY(ct_cuda_im2col(ex, d, d->operand, n, a->x + first * d->c * in_size(d), col));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, d->operand, false, false, m, s, k, 1.0f,
                                           weight + (size_t)(g * m * k) * size, k, 0,
                                           col + (size_t)(g * k * s) * size, s, col_floats(d), 0.0f,
                                           y + g * m * s, s, d->m * s, n));
        if ((a->bias == NULL) && !a->relu) continue;
        CT_CUDA_RUN(finish_kernel, ct_cuda_grid(n * d->m * s), ex->stream, n * d->m * s, d->m, s,
                    a->bias, a->relu, y);
        CT_TRY(ct_cuda_launched("convolution bias"));
    }
    return CT_OK;
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    room r = room_of(d, CT_RUN_BACKWARD_DATA);
    int64_t m = group_m(d), k = group_k(d), s = out_size(d);
    size_t size = ct_operand_size(d->operand);
    float *col = (float *)a->work;
    const char *weight, *dy;

    CT_TRY(operand(d, ex, a, weight_floats(d), a->weight, r.weight, &weight));
    for (int64_t first = 0; first < d->n; first += r.images) {
        int64_t n = (d->n - first < r.images) ? d->n - first : r.images;

        CT_TRY(operand(d, ex, a, n * dy_floats(d), a->dy + first * dy_floats(d), r.dy, &dy));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, d->operand, true, false, k, s, m, 1.0f,
                                           weight + (size_t)(g * m * k) * size, k, 0,
                                           dy + (size_t)(g * m * s) * size, s, d->m * s, 0.0f,
                                           col + g * k * s, s, col_floats(d), n));
        CT_TRY(ct_cuda_col2im(ex, d, n, col, a->dx + first * d->c * in_size(d)));
    }
    return CT_OK;
}

/* dw = beta dw + the sum of n blocks, in their order. */
static __global__ void sum_blocks_kernel(int64_t count, int64_t n, const float *part, float beta,
                                         float *dw)
{
    CT_CUDA_LOOP(i, count)
    {
        float sum = (beta == 0.0f) ? 0.0f : beta * dw[i];

        for (int64_t k = 0; k < n; k++) sum += part[k * count + i];
        dw[i] = sum;
    }
}

static ct_status backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    room r = room_of(d, CT_RUN_BACKWARD_WEIGHT);
    int64_t count = weight_floats(d), m = group_m(d), k = group_k(d), s = out_size(d);
    size_t size = ct_operand_size(d->operand);
    char *col = (char *)a->work;
    float *part = (float *)(col + r.part);
    const char *dy;

    if (d->n == 0) /* a rank without samples */
        return (a->beta == 0.0f)
                   ? ex->dev->zero(ex->stream, a->dweight, (size_t)count * sizeof(float))
                   : CT_OK;
    for (int64_t first = 0; first < d->n; first += r.images) {
        int64_t n = (d->n - first < r.images) ? d->n - first : r.images;

        CT_TRY(ct_cuda_im2col(ex, d, d->operand, n, a->x + first * d->c * in_size(d), col));
        CT_TRY(operand(d, ex, a, n * dy_floats(d), a->dy + first * dy_floats(d), r.dy, &dy));
        for (int64_t g = 0; g < d->group; g++)
            CT_TRY(ct_math_cuda_gemm_batch(ex->stream, d->operand, false, true, m, k, s, 1.0f,
                                           dy + (size_t)(g * m * s) * size, s, d->m * s,
                                           col + (size_t)(g * k * s) * size, s, col_floats(d), 0.0f,
                                           part + g * m * k, k, count, n));
        CT_CUDA_RUN(sum_blocks_kernel, ct_cuda_grid(count), ex->stream, count, n, part,
                    (first == 0) ? a->beta : 1.0f, a->dweight);
        CT_TRY(ct_cuda_launched("weight gradient"));
    }
    return CT_OK;
}

const ct_conv_impl ct_conv_cuda_forward = { "cuda",  on_cuda, work_forward,
                                            forward, NULL,    CT_CONV_CAN_BF16 | CT_CONV_CAN_RELU };
const ct_conv_impl ct_conv_cuda_backward_data = { "cuda",        on_cuda, work_data,
                                                  backward_data, NULL,    CT_CONV_CAN_BF16 };
const ct_conv_impl ct_conv_cuda_backward_weight = { "cuda",          on_cuda, work_weight,
                                                    backward_weight, NULL,    CT_CONV_CAN_BF16 };
