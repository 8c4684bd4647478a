/* Interp, Upsample, ROIPooling, PSROIPooling and PriorBox on CUDA. Gradients are gathered, each
 * element by one thread, in a fixed order: no atomics. */
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/cuda/wide.cuh"

extern "C" {
#include "layers/types/resize.h"
}

/* ---- Interp */

static ct_status interp_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_interp_plan p = *(const ct_interp_plan *)in->state;
    int64_t height = dim_of(in->bottom[0], 2), width = dim_of(in->bottom[0], 3);
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);

    (void)l;
    return ct_cuda_map(
        ex->stream, "Interp", count_of(in->top[0]), KERNEL(int64_t e) {
            int64_t top, down, left, right;
            float v = ct_interp_between(&p.h, e / p.w.out % p.h.out, &top, &down);
            float u = ct_interp_between(&p.w, e % p.w.out, &left, &right);
            const float *a = x + e / (p.w.out * p.h.out) * height * width + top * width;
            const float *b = a + down * width;

            y[e] = (1.0f - v) * ((1.0f - u) * a[left] + u * a[left + right]) +
                   v * ((1.0f - u) * b[left] + u * b[left + right]);
        });
}

/* The places of the top [*from_p, *to_p) that may touch place `at` of the bottom: one more on
 * either side than exact numbers would say. */
static __device__ void touching(const ct_interp_axis &a, int64_t at, int64_t *from_p, int64_t *to_p)
{
    float step = ct_interp_step(&a), place = (float)(at - a.beg);
    float from = (step > 0.0f) ? floorf((place - 1.0f) / step) - 1.0f : 0.0f;
    float to = (step > 0.0f) ? ceilf((place + 1.0f) / step) + 2.0f : (float)a.out;

    *from_p = (from > 0.0f) ? (int64_t)from : 0;
    *to_p = (to < (float)a.out) ? (int64_t)to : a.out;
}

/* How much of place k of the top comes from place `at`. */
static __device__ float share_of(const ct_interp_axis &a, int64_t k, int64_t at)
{
    int64_t lo, step;
    float next = ct_interp_between(&a, k, &lo, &step), share = 0.0f;

    if (lo == at) share += 1.0f - next;
    if (lo + step == at) share += next;
    return share;
}

static ct_status interp_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_interp_plan p = *(const ct_interp_plan *)in->state;
    int64_t height = dim_of(in->bottom[0], 2), width = dim_of(in->bottom[0], 3);
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l;
    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "Interp backward", count_of(in->bottom[0]), KERNEL(int64_t e) {
            int64_t row = e / width % height, column = e % width, i0, i1, j0, j1;
            const float *g = dy + e / (width * height) * p.h.out * p.w.out;
            float sum = 0.0f;

            touching(p.h, row, &i0, &i1);
            touching(p.w, column, &j0, &j1);
            for (int64_t i = i0; i < i1; i++) {
                float v = share_of(p.h, i, row);

                for (int64_t j = j0; (v != 0.0f) && (j < j1); j++)
                    sum += v * share_of(p.w, j, column) * g[i * p.w.out + j];
            }
            dx[e] = sum;
        });
}

const ct_device_override ct_cuda_interp = { "Interp", NULL, interp_forward, interp_backward };

/* ---- Upsample: by repetition; or to places, which the host checks only where one is wrong */

typedef struct up {
    int64_t h, w, oh, ow, sh, sw;
} up;

static up up_of(const ct_layer *l, const ct_instance *in)
{
    const ct_upsample_state *s = (const ct_upsample_state *)l->state;

    return { dim_of(in->bottom[0], 2),
             dim_of(in->bottom[0], 3),
             dim_of(in->top[0], 2),
             dim_of(in->top[0], 3),
             s->scale_h,
             s->scale_w };
}

static __device__ bool is_place(float place, int64_t n)
{
    return (place >= 0.0f) && (place < (float)n) && (place == floorf(place));
}

static ct_status place_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                            int64_t m, int64_t)
{
    return CT_LAYER_FAIL(l, CT_ERR_DATA,
                         "value %lld of batch %lld has the place %g, planes of the top have "
                         "%lld: the places come from a pooling of a larger or smaller input",
                         (long long)at, (long long)ex->micro_step, (double)value, (long long)m);
}

static ct_status upsample_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    up u = up_of(l, in);
    int64_t n = u.h * u.w, m = u.oh * u.ow;
    const float *x = ct_blob_data(in->bottom[0]), *place;
    float *y = ct_blob_data(in->top[0]);
    fault_word fault;

    if (l->n_bottom == 1)
        return ct_cuda_map(
            ex->stream, "Upsample", count_of(in->top[0]), KERNEL(int64_t e) {
                int64_t i = e / u.ow % u.oh / u.sh, j = e % u.ow / u.sw;

                y[e] = x[e / m * n + i * u.w + j];
            });
    place = ct_blob_data(in->bottom[1]);
    CT_TRY(check_begin(in, ex, &fault));
    /* of values with one place the last wins, as on the CPU, since pooling windows may overlap: the
     * top first holds the largest index that has a place, then its value */
    CT_TRY(ct_cuda_map(
        ex->stream, "Upsample", count_of(in->top[0]),
        KERNEL(int64_t e) { ((int32_t *)y)[e] = -1; }));
    CT_TRY(ct_cuda_map(
        ex->stream, "Upsample", count_of(in->bottom[0]), KERNEL(int64_t e) {
            if (is_place(place[e], m))
                (void)atomicMax((int32_t *)y + e / n * m + (int64_t)place[e], (int32_t)(e % n));
            else
                fault.put(e, place[e]);
        }));
    CT_TRY(checked(l, in, ex, &fault, m, 0, place_fail));
    return ct_cuda_map(
        ex->stream, "Upsample", count_of(in->top[0]), KERNEL(int64_t e) {
            int32_t k = ((const int32_t *)y)[e];

            y[e] = (k < 0) ? 0.0f : x[e / m * n + k];
        });
}

static ct_status upsample_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    up u = up_of(l, in);
    int64_t n = u.h * u.w, m = u.oh * u.ow;
    const float *dy = ct_blob_diff(in->top[0]), *place;
    float *dx = ct_blob_diff(in->bottom[0]);

    if (dx == NULL) return CT_OK;
    if (l->n_bottom == 1)
        return ct_cuda_map(
            ex->stream, "Upsample backward", count_of(in->bottom[0]), KERNEL(int64_t e) {
                int64_t i0 = e / u.w % u.h * u.sh, j0 = e % u.w * u.sw;
                float sum = 0.0f;

                for (int64_t i = i0; (i < i0 + u.sh) && (i < u.oh); i++) {
                    for (int64_t j = j0; (j < j0 + u.sw) && (j < u.ow); j++)
                        sum += dy[e / n * m + i * u.ow + j];
                }
                dx[e] = sum;
            });
    place = ct_blob_data(in->bottom[1]);
    return ct_cuda_map(
        ex->stream, "Upsample backward", count_of(in->bottom[0]), KERNEL(int64_t e) {
            dx[e] = is_place(place[e], m) ? dy[e / n * m + (int64_t)place[e]] : 0.0f;
        });
}

const ct_device_override ct_cuda_upsample = { "Upsample", NULL, upsample_forward,
                                              upsample_backward };

/* ---- regions */

typedef struct planes {
    int64_t samples, channels, h, w;
} planes;

static planes planes_of(const ct_blob *b)
{
    return { dim_of(b, 0), dim_of(b, 1), dim_of(b, 2), dim_of(b, 3) };
}

/* The host looks. */
static ct_status check_regions(const ct_layer *l, const ct_instance *in, ct_exec *ex)
{
    int64_t n = dim_of(in->bottom[1], 0);
    const float *roi;
    void *more;

    CT_TRY(read_values(ex, ct_blob_data(in->bottom[1]), 5 * n, 0, &roi, &more));
    return ct_roi_check(l, ex, roi, n, dim_of(in->bottom[0], 0));
}

static ct_status roi_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_roi_state s = *(const ct_roi_state *)l->state;
    planes p = planes_of(in->bottom[0]);
    const float *x = ct_blob_data(in->bottom[0]), *roi = ct_blob_data(in->bottom[1]);
    int32_t *winner = (int32_t *)in->buffer[0].data;
    float *y = ct_blob_data(in->top[0]);
    int64_t bins = s.h * s.w;

    CT_TRY(check_regions(l, in, ex));
    return ct_cuda_map(
        ex->stream, "ROIPooling", count_of(in->top[0]), KERNEL(int64_t e) {
            int64_t o = e % bins, c = e / bins % p.channels;
            ct_roi_region r = ct_roi_region_of(&s, roi + e / (bins * p.channels) * 5);
            ct_roi_bin b = ct_roi_bin_of(&r, o / s.w, o % s.w, p.h, p.w);
            const float *from = x + (r.sample * p.channels + c) * p.h * p.w;
            int32_t best = ct_roi_largest(from, p.w, &b);

            winner[e] = best;
            y[e] = (best >= 0) ? from[best] : 0.0f;
        });
}

/* Whether a bin of a region may hold place (i, j), or its neighbour: most regions are elsewhere,
 * and need not be looked through. */
static __device__ bool is_near(const ct_roi_state *s, const float *roi, const planes &p, int64_t i,
                               int64_t j)
{
    ct_roi_region r = ct_roi_region_of(s, roi);
    ct_roi_bin a = ct_roi_bin_of(&r, 0, 0, p.h, p.w);
    ct_roi_bin b = ct_roi_bin_of(&r, s->h - 1, s->w - 1, p.h, p.w);

    return (i >= a.top - 1) && (i <= b.bottom) && (j >= a.left - 1) && (j <= b.right);
}

static ct_status roi_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_roi_state s = *(const ct_roi_state *)l->state;
    planes p = planes_of(in->bottom[0]);
    const float *roi = ct_blob_data(in->bottom[1]), *dy = ct_blob_diff(in->top[0]);
    const int32_t *winner = (const int32_t *)in->buffer[0].data;
    float *dx = ct_blob_diff(in->bottom[0]);
    int64_t n = dim_of(in->top[0], 0), bins = s.h * s.w;

    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "ROIPooling backward", count_of(in->bottom[0]), KERNEL(int64_t e) {
            int64_t at = e % (p.h * p.w), c = e / (p.h * p.w) % p.channels;
            int64_t sample = e / (p.h * p.w * p.channels);
            float sum = 0.0f;

            for (int64_t r = 0; r < n; r++) {
                int64_t first = (r * p.channels + c) * bins;

                if (((int64_t)roi[5 * r] != sample) ||
                    !is_near(&s, roi + 5 * r, p, at / p.w, at % p.w))
                    continue;
                for (int64_t o = first; o < first + bins; o++) {
                    if (winner[o] == at) sum += dy[o];
                }
            }
            dx[e] = sum;
        });
}

const ct_device_override ct_cuda_roi_pooling = { "ROIPooling", NULL, roi_forward, roi_backward };

/* Channel c of the bottom is that of bin c % bins. */
static ct_status psroi_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_roi_state s = *(const ct_roi_state *)l->state;
    planes p = planes_of(in->bottom[0]);
    const float *x = ct_blob_data(in->bottom[0]), *roi = ct_blob_data(in->bottom[1]);
    float *y = ct_blob_data(in->top[0]);
    int64_t bins = s.h * s.w;

    CT_TRY(check_regions(l, in, ex));
    return ct_cuda_map(
        ex->stream, "PSROIPooling", count_of(in->top[0]), KERNEL(int64_t k) {
            int64_t c = k % p.channels, o = c % bins;
            ct_roi_region r = ct_roi_region_of(&s, roi + k / p.channels * 5);
            ct_roi_bin b = ct_roi_bin_of(&r, o / s.w, o % s.w, p.h, p.w);
            const float *from = x + (r.sample * p.channels + c) * p.h * p.w;
            double sum = 0.0;

            for (int64_t i = b.top; i < b.bottom; i++) {
                for (int64_t j = b.left; j < b.right; j++) sum += (double)from[i * p.w + j];
            }
            y[k] = ct_roi_is_empty(&b)
                       ? 0.0f
                       : (float)(sum / (double)((b.bottom - b.top) * (b.right - b.left)));
        });
}

static ct_status psroi_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_roi_state s = *(const ct_roi_state *)l->state;
    planes p = planes_of(in->bottom[0]);
    const float *roi = ct_blob_data(in->bottom[1]), *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    int64_t n = dim_of(in->top[0], 0), bins = s.h * s.w;

    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "PSROIPooling backward", count_of(in->bottom[0]), KERNEL(int64_t e) {
            int64_t i = e / p.w % p.h, j = e % p.w, c = e / (p.h * p.w) % p.channels, o = c % bins;
            int64_t sample = e / (p.h * p.w * p.channels);
            float sum = 0.0f;

            for (int64_t k = 0; k < n; k++) {
                ct_roi_region r = ct_roi_region_of(&s, roi + k * 5);
                ct_roi_bin b = ct_roi_bin_of(&r, o / s.w, o % s.w, p.h, p.w);

                if ((r.sample != sample) || (i < b.top) || (i >= b.bottom) || (j < b.left) ||
                    (j >= b.right))
                    continue;
                sum += dy[k * p.channels + c] / (float)((b.bottom - b.top) * (b.right - b.left));
            }
            dx[e] = sum;
        });
}

const ct_device_override ct_cuda_psroi_pooling = { "PSROIPooling", NULL, psroi_forward,
                                                   psroi_backward };

/* ---- PriorBox: a number a thread. They are made anew in each step: that costs less than a copy of
 * what would have to lie somewhere else meanwhile. */

extern "C" {
#include "layers/types/box.h"
}

static ct_status prior_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_prior_state *s = (const ct_prior_state *)l->state;
    ct_prior_frame f = ct_prior_frame_of(l, in);
    int64_t n = dim_of(in->top[0], 2), in_cell = 4 * s->n_prior;
    const float *side = s->there;
    float *y = ct_blob_data(in->top[0]);
    ct_four variance;

    memcpy(variance.v, s->variance, sizeof(variance.v));
    return ct_cuda_map(
        ex->stream, "PriorBox", n, KERNEL(int64_t k) {
            int64_t box = k % in_cell / 4;
            int i = (int)(k % 4);

            y[k] = ct_prior_number(&f, k / in_cell, side + 2 * box, i);
            y[n + k] = variance.v[i];
        });
}

const ct_device_override ct_cuda_prior_box = { "PriorBox", NULL, prior_forward, NULL };
