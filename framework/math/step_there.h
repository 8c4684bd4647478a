/** @file step_there.h  The numbers of a training step, on the device.
 *
 * Work that a device is given once and then again as one (graphs) cannot carry numbers that change
 * from step to step. And the host would have to wait for a number that the device itself finds,
 * such as the norm of all gradients. So kernels read them here, in the order of the stream on which
 * they are written. The host writes rates and corrections at the start of a step. The device writes
 * the loss's scale, and whether the gradients can be used.
 */
#ifndef CT_STEP_THERE_H
#define CT_STEP_THERE_H

#include "framework/base/simd.h"
#include "framework/math/update.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The loss times a power of two, so that small gradients stay numbers of 16 bits: what becomes of
 *  it after each step. */
typedef struct ct_loss_scale {
    bool on;        /* otherwise scale is 1 for good       */
    float scale;    /* of the step under way, or the next  */
    int64_t good;   /* steps since the scale last changed  */
    int64_t window; /* of them until it doubles; 0: never  */
} ct_loss_scale;

/** Beyond the most, f32 sums of gradients are in danger, and nothing is gained. */
#define CT_LOSS_SCALE_MOST  0x1p24f
#define CT_LOSS_SCALE_LEAST 0x1p-14f

/** After a step's gradients are known: whether they may change weights. */
CT_HD static inline bool ct_loss_scale_next(ct_loss_scale *s, bool finite)
{
    if (!s->on) return true;
    if (!finite) {
        s->good = 0;
        if (s->scale > CT_LOSS_SCALE_LEAST) s->scale *= 0.5f;
        return false;
    }
    if ((++s->good >= s->window) && (s->window > 0)) {
        s->good = 0;
        if (s->scale < CT_LOSS_SCALE_MOST) s->scale *= 2.0f;
    }
    return true;
}

/** What changes from step to step of ct_update's numbers, before a parameter's multipliers. */
typedef struct ct_step_numbers {
    float scale, rate, correction, correction2;
    float average; /* share of the new weights in their average; 0: it stays */
} ct_step_numbers;

/** Lies on the device; one a net, whose passes read it (ct_exec.numbers_there). */
typedef struct ct_step_there {
    ct_loss_scale loss;
    ct_step_numbers now;
    double norm;  /* of the last step's summed gradients, without the loss's scale          */
    bool refused; /* they are not finite, and 16 bits were too few: nothing is changed      */
} ct_step_there;

/** Everything in the order of the stream; nothing waits. */
typedef struct ct_step_there_ops {
    /** y[0..n) = value times the scale of the loss. */
    ct_status (*loss_diff)(ct_stream st, const ct_step_there *at, int64_t n, float value, float *y);
    /** All summed gradients: their norm, whether they are refused, the loss's next scale. now.scale
     *  loses the scale that they came with, and is lowered where the norm is beyond `limit`
     *  (negative: none). */
    ct_status (*decide)(ct_stream st, ct_step_there *at, int64_t n, const float *grad,
                        double limit);
    /** ratio[k] of parameter k = all->part[k], with elements [offset, offset + count) of the arenas
     *  of u: the trust ratio by its norms. CT_UPDATE_RATIO_STEP moves m and v on, where has_ratio
     *  is false that alone. local: LARS's factor. */
    ct_status (*trust)(ct_stream st, ct_update_ratio by, const ct_update *u,
                       const ct_update_all *all, int k, int64_t offset, int64_t count,
                       bool has_ratio, double local, float *ratio);
    /** average = share weight + (1 - share) average, share = now.average, over [from, to). */
    ct_status (*average)(ct_stream st, const ct_step_there *at, int64_t from, int64_t to,
                         const float *weight, float *average);
} ct_step_there_ops;

/** Of a device; NULL: its updates get their numbers from the host. */
const ct_step_there_ops *ct_step_there_of(const ct_device *dev);

extern const ct_step_there_ops ct_step_there_cuda;

#ifdef __cplusplus
}
#endif

#endif
