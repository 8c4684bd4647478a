/** @file affine.cuh  A vector along one axis, times and plus, both ways (layers/layer_util.h): four
 * numbers at a time where they are of one channel, or of four. Included by kernels_cuda.cu.
 */
#ifndef CT_AFFINE_CUH
#define CT_AFFINE_CUH

#include "framework/math/cuda/narrow.cuh"
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/cuda/wide.cuh"

/* How a view's numbers are taken. */
enum { ONE_BY_ONE, FOUR_OF_ONE /* channel */, FOUR_CHANNELS };

static inline int way_of(const ct_view &v, const float *a, const float *b, const float *c)
{
    bool wide = ct_is_wide(a, v.dtype) && ct_is_wide(b, v.dtype) && ct_is_wide(c, v.dtype) &&
                (v.outer * v.mid * v.inner < INT64_C(1) << 31); /* places in 32 bits */

    if (wide && (v.inner % CT_WIDE == 0)) return FOUR_OF_ONE;
    return (wide && (v.inner == 1) && (v.mid % CT_WIDE == 0)) ? FOUR_CHANNELS : ONE_BY_ONE;
}

template <ct_dtype T>
static ct_status affine_four(ct_exec *ex, const ct_view &v, bool one, const float *x,
                             const float *scale, const float *bias, float *y)
{
    uint32_t mid = (uint32_t)v.mid, each = (uint32_t)(one ? v.inner / CT_WIDE : v.mid / CT_WIDE);

    return ct_cuda_map(
        ex->stream, "scale and bias", v.outer * v.mid * v.inner / CT_WIDE, KERNEL(int64_t k) {
            uint32_t d = one ? (uint32_t)k / each % mid : (uint32_t)k % each * CT_WIDE;
            ct_four f = ct_wide_get<T>(x, k);

            for (int j = 0; j < CT_WIDE; j++) {
                uint32_t c = one ? d : d + (uint32_t)j;

                f.v[j] = f.v[j] * ((scale != NULL) ? scale[c] : 1.0f) +
                         ((bias != NULL) ? bias[c] : 0.0f);
            }
            ct_wide_put<T>(y, k, f);
        });
}

static ct_status affine(ct_exec *ex, const ct_view *view, const float *x, const float *scale,
                        const float *bias, float *y)
{
    ct_view v = *view;
    ct_numbers from = ct_numbers_at(x, v.dtype), to = ct_numbers_at(y, v.dtype);
    int way = way_of(v, x, y, NULL);
    bool one = (way == FOUR_OF_ONE);

    if (way != ONE_BY_ONE)
        return (v.dtype == CT_F32)    ? affine_four<CT_F32>(ex, v, one, x, scale, bias, y)
               : (v.dtype == CT_BF16) ? affine_four<CT_BF16>(ex, v, one, x, scale, bias, y)
                                      : affine_four<CT_F16>(ex, v, one, x, scale, bias, y);
    return ct_cuda_map(
        ex->stream, "scale and bias", v.outer * v.mid * v.inner, KERNEL(int64_t i) {
            int64_t d = i / v.inner % v.mid;

            to.put(i, from[i] * ((scale != NULL) ? scale[d] : 1.0f) +
                          ((bias != NULL) ? bias[d] : 0.0f));
        });
}

/* Sums of dy x and of dy of each channel, to put(c, sum). */
template <ct_dtype T, class P>
static ct_status scale_sums_four(ct_exec *ex, const ct_view &v, bool one, const float *x,
                                 const float *dy, P put)
{
    int64_t quarter = v.inner / CT_WIDE, mid = v.mid;
    auto add = KERNEL(int64_t k, int, double *sum)
    {
        ct_four f = ct_wide_get<T>(x, k), g = ct_wide_get<T>(dy, k);

        for (int j = 0; j < CT_WIDE; j++) {
            sum[2 * j] += (double)g.v[j] * (double)f.v[j];
            sum[2 * j + 1] += (double)g.v[j];
        }
    };

    if (!one)
        return ct_cuda_wide_columns<2>(
            ex->stream, "gradients of a scale", v.outer, v.mid,
            KERNEL(int64_t, int64_t) { return 0; }, add, put);
    return ct_cuda_sums<2>(
        ex->stream, "gradients of a scale", v.mid, v.outer * quarter,
        KERNEL(int64_t d, int64_t i, double *sum) {
            double part[2 * CT_WIDE] = {};

            add((i / quarter * mid + d) * quarter + i % quarter, 0, part);
            for (int j = 0; j < CT_WIDE; j++) {
                sum[0] += part[2 * j];
                sum[1] += part[2 * j + 1];
            }
        },
        put);
}

template <class P>
static ct_status scale_sums(ct_exec *ex, const ct_view &v, const float *x, const float *dy, P put)
{
    ct_numbers from = ct_numbers_at(x, v.dtype), g = ct_numbers_at(dy, v.dtype);

    if ((v.inner == 1) && (v.mid > 1))
        return ct_cuda_column_sums<2>(
            ex->stream, "gradients of a scale", v.mid, v.outer,
            KERNEL(int64_t d, int64_t o, double *sum) {
                int64_t i = o * v.mid + d;

                sum[0] += (double)g[i] * (double)from[i];
                sum[1] += (double)g[i];
            },
            put);
    return ct_cuda_sums<2>(
        ex->stream, "gradients of a scale", v.mid, v.outer * v.inner,
        KERNEL(int64_t d, int64_t k, double *sum) {
            int64_t i = (k / v.inner * v.mid + d) * v.inner + k % v.inner;

            sum[0] += (double)g[i] * (double)from[i];
            sum[1] += (double)g[i];
        },
        put);
}

static ct_status scale_back(ct_exec *ex, const ct_view *view, const ct_scale_back *args)
{
    ct_view v = *view;
    ct_scale_back a = *args;
    int way = way_of(v, a.x, a.dy, NULL);
    bool one = (way == FOUR_OF_ONE), few = one || (v.mid <= CT_WIDE_COLUMNS);
    auto put = KERNEL(int64_t d, const double *sum)
    {
        a.dscale[d] = (float)(sum[0] + (a.add_scale ? (double)a.dscale[d] : 0.0));
        if (a.dbias != NULL)
            a.dbias[d] = (float)(sum[1] + (a.add_bias ? (double)a.dbias[d] : 0.0));
    };

    if ((way == ONE_BY_ONE) || !few)
        CT_TRY(scale_sums(ex, v, a.x, a.dy, put));
    else if (v.dtype == CT_F32)
        CT_TRY(scale_sums_four<CT_F32>(ex, v, one, a.x, a.dy, put));
    else if (v.dtype == CT_BF16)
        CT_TRY(scale_sums_four<CT_BF16>(ex, v, one, a.x, a.dy, put));
    else
        CT_TRY(scale_sums_four<CT_F16>(ex, v, one, a.x, a.dy, put));
    return (a.dx != NULL) ? affine(ex, &v, a.dy, a.scale, NULL, a.dx) : CT_OK;
}

#endif
