#include <cmath>

#include "framework/math/cuda/math_cuda.h"
#include "framework/math/step_there.h"
#include "framework/math/update_math.h"
#include "framework/tensor/cuda/launch.cuh"

/* The step's numbers in place of those that came with the kernel; false: nothing is to be done. */
static __device__ bool take_numbers(ct_update *u, const ct_step_there *at)
{
    if (at == NULL) return true;
    u->scale = at->now.scale;
    u->rate = at->now.rate;
    u->correction = at->now.correction;
    u->correction2 = at->now.correction2;
    return !at->refused;
}

/* The range alone, or [from, to) of the arena, where a line's parameter says the multipliers. */
template <class F>
static ct_status over_all(ct_stream st, const char *what, const ct_update *update,
                          const ct_update_all *all, F f)
{
    ct_update u = *update;
    ct_update_all a;

    if (all == NULL) return ct_cuda_map(st, what, u.count, [=] __device__(int64_t i) { f(&u, i); });
    a = *all;
    return ct_cuda_map(st, what, a.to - a.from, [=] __device__(int64_t k) {
        int64_t i = a.from + k;
        uint16_t which = a.part_of_line[i / CT_UPDATE_LINE];
        ct_update_part part = a.part[which];
        ct_update mine = u;

        if (i - part.offset >= part.count) return; /* between two parameters */
        if (!take_numbers(&mine, a.at)) return;
        if (a.trust != NULL) mine.trust = a.trust[which];
        mine.rate *= part.lr_mult;
        mine.decay_l2 *= part.decay_mult;
        mine.decay_l1 *= part.decay_mult;
        f(&mine, i);
    });
}

#define CASE_OF(_name, _kind, ...)                                                                 \
    case CT_UPDATE_##_kind:                                                                        \
        return over_all(st, #_name, u, all, [] __device__(const ct_update *v, int64_t i) {         \
            ct_update_##_name##_at(v, i);                                                          \
        });

extern "C" ct_status ct_update_cuda_all(ct_stream st, int kind, const ct_update *u,
                                        const ct_update_all *all)
{
    switch (kind) {
        CT_UPDATE_LIST(CASE_OF)
    default:
        return CT_FAIL(CT_ERR_ARG, "update rule %d on CUDA", kind);
    }
}

extern "C" ct_status ct_update_cuda(ct_stream st, int kind, const ct_update *u)
{
    return ct_update_cuda_all(st, kind, u, NULL);
}

/* ---- with the step's numbers on the device */

static ct_status loss_diff(ct_stream st, const ct_step_there *at, int64_t n, float value, float *y)
{
    return ct_cuda_map(st, "gradient of the loss", n,
                       [=] __device__(int64_t i) { y[i] = value * at->loss.scale; });
}

static ct_status decide(ct_stream st, ct_step_there *at, int64_t n, const float *grad, double limit)
{
    return ct_cuda_sums<1>(
        st, "norm of all gradients", 1, n,
        [=] __device__(int64_t, int64_t i, double *sum) { *sum += (double)grad[i] * grad[i]; },
        [=] __device__(int64_t, const double *sum) {
            double norm = sqrt(*sum) / (double)at->loss.scale;
            float scale = at->now.scale / at->loss.scale; /* a power of two: exact */

            at->norm = norm;
            at->refused = !ct_loss_scale_next(&at->loss, isfinite(norm));
            if ((limit >= 0.0) && (norm > limit)) scale *= (float)(limit / norm);
            at->now.scale = scale;
        });
}

/* By the gradient or by the step, which moves m and v on. */
static ct_status trust(ct_stream st, ct_update_ratio by, const ct_update *update,
                       const ct_update_all *all, int k, int64_t offset, int64_t count,
                       bool has_ratio, double local, float *ratio)
{
    ct_update u = *update;
    const ct_step_there *at = all->at;
    const ct_update_part *part = all->part + k;
    bool steps = (by == CT_UPDATE_RATIO_STEP);

    if (!steps && !has_ratio) return CT_OK;
    return ct_cuda_sums<2>(
        st, "norms of a parameter", 1, count,
        [=] __device__(int64_t, int64_t e, double *sum) {
            ct_update mine = u;
            int64_t i = offset + e;
            double w = (double)u.weight[i], r;

            if (!take_numbers(&mine, at)) return;
            mine.decay_l2 *= part->decay_mult;
            r = steps ? (double)ct_update_moments_at(&mine, i) : (double)u.grad[i];
            sum[0] += w * w;
            sum[1] += r * r;
        },
        [=] __device__(int64_t, const double *sum) {
            double scale = steps ? 1.0 : (double)at->now.scale;
            double decay = (double)(u.decay_l2 * part->decay_mult);
            double step = sqrt(scale * scale * sum[1]);

            if (has_ratio)
                ratio[k] = ((sum[0] > 0.0) && (step > 0.0))
                               ? ct_update_trust(by, local, decay, sqrt(sum[0]), step)
                               : 1.0f;
        });
}

static ct_status average(ct_stream st, const ct_step_there *at, int64_t from, int64_t to,
                         const float *weight, float *mean)
{
    return ct_cuda_map(st, "average of the weights", to - from, [=] __device__(int64_t k) {
        float share = at->now.average, rest = 1.0f - share;
        int64_t i = from + k;

        if ((share <= 0.0f) || at->refused) return;
        mean[i] = share * weight[i] + ((rest == 0.0f) ? 0.0f : rest * mean[i]);
    });
}

extern "C" const ct_step_there_ops ct_step_there_cuda = { loss_diff, decide, trust, average };
