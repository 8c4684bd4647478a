/* Pooling on CUDA. */
#include "framework/tensor/cuda/warp.cuh"
#include "layers/engine/cuda/wide.cuh"
#include "layers/engine/pool/pool.h"

/* ---- Pooling of planes in f32, four neighbours of a row a thread, means of whole
 * planes a warp; and which windows there are, for every kernel.
 */

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
           (d->planes * d->oh * d->ow < most) && (d->kh + d->kw < most) && (d->sh + d->sw < most) &&
           ((uintptr_t)a->mask % CT_WIDE == 0) && ct_is_wide(a->y, CT_F32) &&
           ct_is_wide(a->dx, CT_F32);
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

/* ---- Pooling on CUDA: a thread makes outputs forward, and inputs backward, where it gathers: four
 * of neighbouring channels where those come last, four of a row of a plane in f32, else one. */

static bool on_cuda(const ct_pool_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

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
        int64_t place = -1, step = (d.last > 0) ? d.last : 1;

        window(s.row, d.kh, d.sh, d.ph, d.h, &h0, &h1, &ph);
        window(s.column, d.kw, d.sw, d.pw, d.w, &w0, &w1, &pw);
        for (int64_t h = h0; h < h1; h++) {
            int64_t from = index_of(d, s, d.h, d.w, h, w0);

            for (int64_t w = w0; w < w1; w++, from += step) {
                float v = x[from];

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

/* ---- channels last, four at a time: what the index costs is shared by four */

/* Four marks in a mask of bytes or of int32_t. */
static __device__ void put_marks(const ct_pool_args &a, mask_form f, int64_t k, const int32_t *mark)
{
    if (f.bytes == 1) {
        uint32_t all = 0;

        for (int j = 0; j < CT_WIDE; j++) all |= (uint32_t)(uint8_t)mark[j] << 8 * j;
        ((uint32_t *)a.mask)[k] = all;
    } else {
        ct_four_words all;

        for (int j = 0; j < CT_WIDE; j++) all.w[j] = (uint32_t)mark[j];
        ((ct_four_words *)a.mask)[k] = all;
    }
}

static __device__ void get_marks(const ct_pool_args &a, mask_form f, int64_t k, int32_t *mark)
{
    if (f.bytes == 1) {
        uint32_t all = ((const uint32_t *)a.mask)[k];

        for (int j = 0; j < CT_WIDE; j++) mark[j] = (int32_t)(all >> 8 * j & 0xffu);
    } else {
        ct_four_words all = ((const ct_four_words *)a.mask)[k];

        for (int j = 0; j < CT_WIDE; j++) mark[j] = (int32_t)all.w[j];
    }
}

/* Group i of planes of h x w: its image, its channels' group, where it stands. */
static __device__ spot four_of(int64_t groups, int64_t i, int64_t h, int64_t w)
{
    int64_t place = i / groups, row = place / w;

    return { row / h, i - place * groups, row % h, place - row * w };
}

template <ct_dtype T>
static __global__ void forward_four_kernel(ct_pool_desc d, ct_pool_args a, mask_form f)
{
    int64_t groups = d.last / CT_WIDE;

    CT_CUDA_LOOP(i, d.planes / CT_WIDE * d.oh * d.ow)
    {
        spot s = four_of(groups, i, d.oh, d.ow);
        ct_four sum = {}, best = {};
        int32_t mark[CT_WIDE] = {};
        int64_t h0, h1, w0, w1, ph, pw;

        window(s.row, d.kh, d.sh, d.ph, d.h, &h0, &h1, &ph);
        window(s.column, d.kw, d.sw, d.pw, d.w, &w0, &w1, &pw);
        for (int64_t h = h0; h < h1; h++) {
            int64_t from = ((s.plane * d.h + h) * d.w + w0) * groups + s.channel;

            for (int64_t w = w0; w < w1; w++, from += groups) {
                ct_four v = ct_wide_get<T>(a.x, from);
                int32_t here = (int32_t)((h - h0) * f.pitch + w - w0);

                for (int j = 0; j < CT_WIDE; j++) {
                    bool nan = (v.v[j] != v.v[j]) && (best.v[j] == best.v[j]); /* NaN shows */

                    sum.v[j] += v.v[j];
                    if (((h == h0) && (w == w0)) || (v.v[j] > best.v[j]) || nan) {
                        best.v[j] = v.v[j];
                        mark[j] = here;
                    }
                }
            }
        }
        if (d.method == CT_POOL_AVE) {
            for (int j = 0; j < CT_WIDE; j++) sum.v[j] /= (float)(ph * pw);
            ct_wide_put<T>(a.y, i, sum);
            continue;
        }
        for (int j = 0; d.relu && (j < CT_WIDE); j++) {
            if (!(best.v[j] > 0.0f)) mark[j] = CT_POOL_NONE;
            best.v[j] = (best.v[j] < 0.0f) ? 0.0f : best.v[j];
        }
        ct_wide_put<T>(a.y, i, best);
        if (a.mask != NULL) put_marks(a, f, i, mark);
    }
}

template <ct_dtype T>
static __global__ void backward_four_kernel(ct_pool_desc d, ct_pool_args a, mask_form f)
{
    int64_t groups = d.last / CT_WIDE;

    CT_CUDA_LOOP(i, d.planes / CT_WIDE * d.h * d.w)
    {
        spot s = four_of(groups, i, d.h, d.w);
        int64_t oh0, oh1, ow0, ow1;
        ct_four sum = {};

        covering(s.row, d.kh, d.sh, d.ph, d.oh, &oh0, &oh1);
        covering(s.column, d.kw, d.sw, d.pw, d.ow, &ow0, &ow1);
        for (int64_t oh = oh0; oh < oh1; oh++) {
            for (int64_t ow = ow0; ow < ow1; ow++) {
                int64_t at = ((s.plane * d.oh + oh) * d.ow + ow) * groups + s.channel;
                int64_t top, left, hi, ph, pw;
                ct_four g = ct_wide_get<T>(a.dy, at);
                int32_t mark[CT_WIDE], mine;

                window(oh, d.kh, d.sh, d.ph, d.h, &top, &hi, &ph);
                window(ow, d.kw, d.sw, d.pw, d.w, &left, &hi, &pw);
                if (d.method == CT_POOL_AVE) {
                    for (int j = 0; j < CT_WIDE; j++) sum.v[j] += g.v[j] / (float)(ph * pw);
                    continue;
                }
                mine = (int32_t)((s.row - top) * f.pitch + s.column - left);
                get_marks(a, f, at, mark);
                for (int j = 0; j < CT_WIDE; j++) sum.v[j] += (mark[j] == mine) ? g.v[j] : 0.0f;
            }
        }
        ct_wide_put<T>(a.dx, i, sum);
    }
}

/* Whether four channels at a time run. */
static bool by_four(const ct_pool_desc *d, const ct_pool_args *a, mask_form f)
{
    return (d->last > 0) && (d->last % CT_WIDE == 0) && (a->mask_top == NULL) &&
           ((uintptr_t)a->mask % (CT_WIDE * (size_t)f.bytes) == 0) && ct_is_wide(a->x, d->dtype) &&
           ct_is_wide(a->y, d->dtype) && ct_is_wide(a->dy, d->dtype) && ct_is_wide(a->dx, d->dtype);
}

static mask_form form_of(const ct_pool_desc *d)
{
    return { ct_pool_mask_bytes(d), ct_pool_pitch(d) };
}

static ct_status forward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    mask_form f = form_of(d);
    int64_t n = d->planes * d->oh * d->ow;
    unsigned four = ct_cuda_grid(n / CT_WIDE);

    if (by_rows(d, a)) {
        row_desc r = rows_of(d, d->oh, d->ow, f);

        if (r.mean && (d->oh == 1) && (d->ow == 1))
            CT_CUDA_RUN_BLOCKS(plane_means_kernel, ct_cuda_grid(r.rows * CT_WARP), ex->stream, r,
                               a->x, a->y);
        else
            CT_CUDA_RUN(forward_rows_kernel, ct_cuda_grid(r.rows * r.quads), ex->stream, r, a->x,
                        a->y, (uint8_t *)a->mask);
    } else if (!by_four(d, a, f))
        CT_CUDA_RUN(forward_kernel, ct_cuda_grid(n), ex->stream, *d, *a, f);
    else if (d->dtype == CT_F32)
        CT_CUDA_RUN(forward_four_kernel<CT_F32>, four, ex->stream, *d, *a, f);
    else if (d->dtype == CT_BF16)
        CT_CUDA_RUN(forward_four_kernel<CT_BF16>, four, ex->stream, *d, *a, f);
    else
        CT_CUDA_RUN(forward_four_kernel<CT_F16>, four, ex->stream, *d, *a, f);
    return ct_cuda_launched("pooling");
}

static ct_status backward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    mask_form f = form_of(d);
    int64_t n = d->planes * d->h * d->w;
    unsigned four = ct_cuda_grid(n / CT_WIDE);

    if (by_rows(d, a)) {
        row_desc r = rows_of(d, d->h, d->w, f);

        CT_CUDA_RUN(backward_rows_kernel, ct_cuda_grid(r.rows * r.quads), ex->stream, r, a->dy,
                    (const uint8_t *)a->mask, a->dx);
    } else if (!by_four(d, a, f))
        CT_CUDA_RUN(backward_kernel, ct_cuda_grid(n), ex->stream, *d, *a, f);
    else if (d->dtype == CT_F32)
        CT_CUDA_RUN(backward_four_kernel<CT_F32>, four, ex->stream, *d, *a, f);
    else if (d->dtype == CT_BF16)
        CT_CUDA_RUN(backward_four_kernel<CT_BF16>, four, ex->stream, *d, *a, f);
    else
        CT_CUDA_RUN(backward_four_kernel<CT_F16>, four, ex->stream, *d, *a, f);
    return ct_cuda_launched("pooling backward");
}

const ct_pool_impl ct_pool_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_pool_impl ct_pool_cuda_backward = { "cuda", on_cuda, NULL, backward };
