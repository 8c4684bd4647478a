/** @file batch_norm.h  What BatchNorm keeps of an instance, and its passes on devices, which an
 * engine of device_norm.h runs whole; private to layers/.
 */
#ifndef CT_BATCH_NORM_LAYER_H
#define CT_BATCH_NORM_LAYER_H

#include "layers/engine/batch_norm/device_norm.h"

typedef struct ct_batch_norm_state {
    bool use_global;
    float decay, eps;
} ct_batch_norm_state;

typedef struct ct_batch_norm_plan {
    ct_batch_norm_desc desc;
    const ct_batch_norm_engine *engine;
    ct_device_norm_desc device; /* on devices, with what runs it */
    const ct_device_norm_impl *forward, *backward;
    ct_status status; /* of what a group asked for behind reshape's back */
} ct_batch_norm_plan;

/* Weights; buffers. */
enum { CT_NORM_MEAN, CT_NORM_VARIANCE, CT_NORM_FACTOR, CT_NORM_N_STATISTIC };
enum { CT_NORM_BATCH_MEAN, CT_NORM_INV_STD, CT_NORM_NORMAL, CT_NORM_SUMS, CT_NORM_WORK };

/** The group's pass as it stands: its map, and where gradients lie. */
void ct_batch_norm_fill(const ct_layer *l, const ct_instance *in, ct_batch_norm_back *b);
/** At reshape: the engines of a device, and what they work in; nothing on the CPU. */
ct_status ct_batch_norm_pick(const ct_layer *l, ct_instance *in);
/** In join: the same for the group; false where those that ct_kernel names cannot run it. */
bool ct_batch_norm_pick_group(const ct_layer *l, ct_instance *in);
/** Whether the bottom's gradient may lie where the top's does. */
bool ct_batch_norm_over(const ct_batch_norm_plan *p);
ct_status ct_batch_norm_forward_device(const ct_layer *l, ct_instance *in, ct_exec *ex);
ct_status ct_batch_norm_backward_device(const ct_layer *l, ct_instance *in, ct_exec *ex);

#endif
