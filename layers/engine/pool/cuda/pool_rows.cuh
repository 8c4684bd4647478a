/** @file pool_rows.cuh  Pooling of planes in f32, four neighbours of a row a thread, means of whole
 * planes a warp; and which windows there are, for every kernel. Included by pool_cuda.cu.
 */
#ifndef CT_POOL_ROWS_CUH
#define CT_POOL_ROWS_CUH

#include "framework/tensor/cuda/warp.cuh"
#include "layers/engine/cuda/wide.cuh"
#include "layers/engine/pool/pool_private.h"

/* As ct_pool_window(). */
template <class I>
static __device__ inline void window(I out, I kernel, I stride, I pad, I in, I *lo_p, I *hi_p,
                                     I *padded_p)
{
    I lo = out * stride - pad, hi = lo + kernel;

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

/* The outputs [*lo_p, *hi_p) whose windows may cover `in`. */
template <class I>
static __device__ inline void covering(I in, I kernel, I stride, I pad, I out, I *lo_p, I *hi_p)
{
    I hi = (in + pad) / stride + 1;

    *lo_p = (in + pad < kernel) ? 0 : (in + pad - kernel) / stride + 1;
    *hi_p = (hi < out) ? hi : out;
}

/* What the row costs is shared, and numbers of 32 bits say where things are within a plane. */

typedef struct row_desc {
    int h, w, oh, ow, kh, kw, sh, sw, ph, pw;
    int quads;    /* of a row of what is made */
    int64_t rows; /* of all planes            */
    bool whole;   /* rows are whole quads     */
    bool mean, relu;
    int pitch;
} row_desc;

/* Whether they fit, for rows of what has w numbers a row. */
static bool by_rows(const ct_pool_desc *d, const ct_pool_args *a)
{
    const int64_t most = 1 << 30;

    return (d->last == 0) && (d->dtype == CT_F32) && (a->mask_top == NULL) &&
           (ct_pool_mask_bytes(d) == 1) && (d->planes * d->h * d->w < most) &&
           (d->planes * d->oh * d->ow < most) && (d->kh + d->kw < most) &&
           (d->sh + d->sw < most) && ((uintptr_t)a->mask % CT_WIDE == 0) &&
           ct_is_wide(a->y, CT_F32) && ct_is_wide(a->dx, CT_F32);
}

static row_desc rows_of(const ct_pool_desc *d, int64_t h, int64_t w, mask_form f)
{
    row_desc r = { (int)d->h,  (int)d->w,  (int)d->oh, (int)d->ow, (int)d->kh,
                   (int)d->kw, (int)d->sh, (int)d->sw, (int)d->ph, (int)d->pw };

    r.quads = (int)((w + CT_WIDE - 1) / CT_WIDE);
    r.rows = d->planes * h;
    r.whole = (w % CT_WIDE == 0);
    r.mean = (d->method == CT_POOL_AVE);
    r.relu = d->relu;
    r.pitch = (int)f.pitch;
    return r;
}

/* Where quad i begins: in which plane, row and column, of rows h to a plane. */
typedef struct quad {
    int plane, row, column;
} quad;

static __device__ inline quad quad_of(const row_desc &d, int64_t i, int h)
{
    uint32_t row = (uint32_t)i / (uint32_t)d.quads;

    return { (int)(row / (uint32_t)h), (int)(row % (uint32_t)h),
             (int)((uint32_t)i % (uint32_t)d.quads) * CT_WIDE };
}

/* Four numbers, or as many as there are columns left. */
static __device__ inline void put_quad(const row_desc &d, float *y, int64_t at, int left,
                                       const ct_four &v)
{
    if (d.whole) {
        ct_wide_put<CT_F32>(y, at / CT_WIDE, v);
        return;
    }
    for (int j = 0; j < left; j++) y[at + j] = v.v[j];
}

/* One output; where its largest was, as marks say it. */
static __device__ inline float output_of(const row_desc &d, const float *plane, int h0, int h1,
                                         int ph, int column, uint32_t *mark)
{
    float sum = 0.0f, best = 0.0f;
    int w0, w1, pw;
    bool first = true;

    window(column, d.kw, d.sw, d.pw, d.w, &w0, &w1, &pw);
    for (int h = h0; h < h1; h++) {
        for (int w = w0; w < w1; w++) {
            float v = plane[h * d.w + w];

            sum += v;
            if (first || (v > best) || ((v != v) && (best == best))) { /* NaN shows */
                best = v;
                *mark = (uint32_t)((h - h0) * d.pitch + w - w0);
            }
            first = false;
        }
    }
    if (d.mean) return sum / (float)(ph * pw);
    if (!d.relu) return best;
    if (!(best > 0.0f)) *mark = (uint32_t)CT_POOL_NONE & 0xffu;
    return (best < 0.0f) ? 0.0f : best;
}

static __global__ void forward_rows_kernel(row_desc d, const float *x, float *y, uint8_t *mask)
{
    CT_CUDA_LOOP(i, d.rows * d.quads)
    {
        quad q = quad_of(d, i, d.oh);
        const float *plane = x + (int64_t)q.plane * (d.h * d.w);
        int64_t at = ((int64_t)q.plane * d.oh + q.row) * d.ow + q.column;
        int left = (d.ow - q.column < CT_WIDE) ? d.ow - q.column : CT_WIDE, h0, h1, ph;
        uint32_t mark[CT_WIDE] = {}, marks = 0;
        ct_four out = {};

        window(q.row, d.kh, d.sh, d.ph, d.h, &h0, &h1, &ph);
        CT_UNROLLED for (int j = 0; j < CT_WIDE; j++)
        {
            if (j < left) out.v[j] = output_of(d, plane, h0, h1, ph, q.column + j, &mark[j]);
            marks |= (mark[j] & 0xffu) << 8 * j;
        }
        put_quad(d, y, at, left, out);
        if ((mask == NULL) || d.mean) continue;
        if (d.whole) {
            ((uint32_t *)mask)[at / CT_WIDE] = marks;
        } else {
            for (int j = 0; j < left; j++) mask[at + j] = (uint8_t)mark[j];
        }
    }
}

/* The gradient of one input: of the outputs [oh0, oh1) x … of its plane that it is in. */
static __device__ inline float input_of(const row_desc &d, const float *dy, const uint8_t *mask,
                                        int oh0, int oh1, int row, int column)
{
    float sum = 0.0f;
    int ow0, ow1;

    covering(column, d.kw, d.sw, d.pw, d.ow, &ow0, &ow1);
    for (int oh = oh0; oh < oh1; oh++) {
        int top, left, hi, ph, pw;

        window(oh, d.kh, d.sh, d.ph, d.h, &top, &hi, &ph);
        for (int ow = ow0; ow < ow1; ow++) {
            int at = oh * d.ow + ow;

            window(ow, d.kw, d.sw, d.pw, d.w, &left, &hi, &pw);
            if (d.mean)
                sum += dy[at] / (float)(ph * pw);
            else if ((row - top) * d.pitch + column - left == (int)mask[at])
                sum += dy[at];
        }
    }
    return sum;
}

/* One mean a plane: by a warp, whose threads read side by side. */
static __global__ void plane_means_kernel(row_desc d, const float *x, float *y)
{
    int h0, h1, w0, w1, ph, pw;

    window(0, d.kh, d.sh, d.ph, d.h, &h0, &h1, &ph);
    window(0, d.kw, d.sw, d.pw, d.w, &w0, &w1, &pw);
    for (int64_t p = blockIdx.x * (int64_t)CT_WARPS + threadIdx.x / CT_WARP; p < d.rows;
         p += (int64_t)gridDim.x * CT_WARPS) {
        const float *plane = x + p * (d.h * d.w) + h0 * d.w + w0;
        float sum = 0.0f;

        for (int i = (int)ct_lane(); i < (h1 - h0) * (w1 - w0); i += CT_WARP)
            sum += plane[i / (w1 - w0) * d.w + i % (w1 - w0)];
        sum = ct_warp_add(sum);
        if (ct_lane() == 0) y[p] = sum / (float)(ph * pw);
    }
}

static __global__ void backward_rows_kernel(row_desc d, const float *dy, const uint8_t *mask,
                                            float *dx)
{
    CT_CUDA_LOOP(i, d.rows * d.quads)
    {
        quad q = quad_of(d, i, d.h);
        int64_t plane = (int64_t)q.plane * (d.oh * d.ow);
        int64_t at = ((int64_t)q.plane * d.h + q.row) * d.w + q.column;
        int left = (d.w - q.column < CT_WIDE) ? d.w - q.column : CT_WIDE, oh0, oh1;
        ct_four out = {};

        covering(q.row, d.kh, d.sh, d.ph, d.oh, &oh0, &oh1);
        CT_UNROLLED for (int j = 0; j < CT_WIDE; j++)
        {
            if (j < left)
                out.v[j] = input_of(d, dy + plane, (mask != NULL) ? mask + plane : NULL, oh0, oh1,
                                    q.row, q.column + j);
        }
        put_quad(d, dx, at, left, out);
    }
}

#endif
