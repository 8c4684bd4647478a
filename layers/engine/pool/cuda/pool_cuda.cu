/* Pooling on CUDA: a thread makes outputs forward, and inputs backward, where it gathers: four of
 * neighbouring channels where those come last, four of a row of a plane in f32, else one. */
#include "layers/engine/pool/cuda/pool_rows.cuh"

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
