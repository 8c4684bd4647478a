/* Pooling on CUDA: one thread an output forward, one thread an input backward (it gathers). */
#include <cfloat>

#include "framework/math/cuda/narrow.cuh"
#include "layers/engine/pool/pool_private.h"

static bool on_cuda(const ct_pool_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

/* As ct_pool_window(). */
static __device__ void window(int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t in,
                              int64_t *lo_p, int64_t *hi_p, int64_t *padded_p)
{
    int64_t lo = out * stride - pad, hi = lo + kernel;

    if (hi > in + pad) hi = in + pad;
    *padded_p = hi - lo;
    *lo_p = (lo > 0) ? lo : 0;
    *hi_p = (hi < in) ? hi : in;
}

/* How a mask is written: ct_pool_mask_bytes(), ct_pool_pitch(), which are the host's. */
typedef struct mask_form {
    int bytes;
    int64_t pitch;
} mask_form;

/* Element i of planes of h x w: which plane or image it is of, its channel (0 in planes), where it
 * stands. Places are `step` apart in memory. */
typedef struct spot {
    int64_t plane, channel, row, column;
} spot;

static __device__ spot spot_of(const ct_pool_desc &d, int64_t i, int64_t h, int64_t w)
{
    int64_t step = (d.last > 0) ? d.last : 1, place = i / step;

    return { place / w / h, i % step, place / w % h, place % w };
}

static __device__ int64_t index_of(const ct_pool_desc &d, const spot &s, int64_t h, int64_t w,
                                   int64_t row, int64_t column)
{
    int64_t step = (d.last > 0) ? d.last : 1;

    return ((s.plane * h + row) * w + column) * step + s.channel;
}

static __global__ void forward_kernel(ct_pool_desc d, ct_pool_args a, mask_form f)
{
    CT_CUDA_LOOP(i, d.planes * d.oh * d.ow)
    {
        int64_t h0, h1, w0, w1, ph, pw;
        ct_numbers x = ct_numbers_at(a.x, d.dtype), y = ct_numbers_at(a.y, d.dtype);
        spot s = spot_of(d, i, d.oh, d.ow);
        float sum = 0.0f, best = 0.0f;
        int64_t place = -1;

        window(s.row, d.kh, d.sh, d.ph, d.h, &h0, &h1, &ph);
        window(s.column, d.kw, d.sw, d.pw, d.w, &w0, &w1, &pw);
        for (int64_t h = h0; h < h1; h++) {
            for (int64_t w = w0; w < w1; w++) {
                float v = x[index_of(d, s, d.h, d.w, h, w)];

                sum += v;
                if ((place < 0) || (v > best) || ((v != v) && (best == best))) { /* NaN shows */
                    best = v;
                    place = h * d.w + w;
                }
            }
        }
        if (d.method == CT_POOL_AVE) {
            y.put(i, sum / (float)(ph * pw));
            continue;
        }
        y.put(i, (d.relu && (best < 0.0f)) ? 0.0f : best);
        if (a.mask != NULL) {
            int32_t mark = (int32_t)((place / d.w - h0) * f.pitch + place % d.w - w0);

            if (d.relu && !(best > 0.0f)) mark = CT_POOL_NONE;
            if (f.bytes == 1)
                ((uint8_t *)a.mask)[i] = (uint8_t)mark;
            else
                ((int32_t *)a.mask)[i] = mark;
        }
        if (a.mask_top != NULL) a.mask_top[i] = (float)place;
    }
}

/* The outputs [*lo_p, *hi_p) whose windows may cover `in`. */
static __device__ void covering(int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                                int64_t out, int64_t *lo_p, int64_t *hi_p)
{
    int64_t hi = (in + pad) / stride + 1;

    *lo_p = (in + pad < kernel) ? 0 : (in + pad - kernel) / stride + 1;
    *hi_p = (hi < out) ? hi : out;
}

static __global__ void backward_kernel(ct_pool_desc d, ct_pool_args a, mask_form f)
{
    CT_CUDA_LOOP(i, d.planes * d.h * d.w)
    {
        ct_numbers dy = ct_numbers_at(a.dy, d.dtype), dx = ct_numbers_at(a.dx, d.dtype);
        spot s = spot_of(d, i, d.h, d.w);
        int64_t oh0, oh1, ow0, ow1;
        float sum = 0.0f;

        covering(s.row, d.kh, d.sh, d.ph, d.oh, &oh0, &oh1);
        covering(s.column, d.kw, d.sw, d.pw, d.ow, &ow0, &ow1);
        for (int64_t oh = oh0; oh < oh1; oh++) {
            for (int64_t ow = ow0; ow < ow1; ow++) {
                int64_t at = index_of(d, s, d.oh, d.ow, oh, ow), top, left, hi, ph, pw, mark;

                window(oh, d.kh, d.sh, d.ph, d.h, &top, &hi, &ph);
                window(ow, d.kw, d.sw, d.pw, d.w, &left, &hi, &pw);
                if (d.method == CT_POOL_AVE) {
                    sum += dy[at] / (float)(ph * pw);
                    continue;
                }
                mark = (s.row - top) * f.pitch + s.column - left;
                if (mark == ((f.bytes == 1) ? (int64_t)((const uint8_t *)a.mask)[at]
                                            : (int64_t)((const int32_t *)a.mask)[at]))
                    sum += dy[at];
            }
        }
        dx.put(i, sum);
    }
}

static mask_form form_of(const ct_pool_desc *d)
{
    return { ct_pool_mask_bytes(d), ct_pool_pitch(d) };
}

static ct_status forward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    CT_CUDA_RUN(forward_kernel, ct_cuda_grid(d->planes * d->oh * d->ow), ex->stream, *d, *a,
                form_of(d));
    return ct_cuda_launched("pooling");
}

static ct_status backward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    CT_CUDA_RUN(backward_kernel, ct_cuda_grid(d->planes * d->h * d->w), ex->stream, *d, *a,
                form_of(d));
    return ct_cuda_launched("pooling backward");
}

const ct_pool_impl ct_pool_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_pool_impl ct_pool_cuda_backward = { "cuda", on_cuda, NULL, backward };
