/** @file program_layer.h  Layers that the program around a net computes: type Python.
 *
 * Who hosts a run hands these calls over with ct_net_env.program, which outlives the net. They come
 * from the thread that makes and runs the net, one after the other: open and setup once per layer,
 * reshape once per instance, forward and backward any number of times, close.
 *
 * On several ranks each rank has its own layer, which sees the samples of that rank.
 *
 * A call that fails returns false, with a text in why[0 .. n_why), which ends with a NUL. The layer
 * logs it with its name, and where it stands in the net's file.
 */
#ifndef CT_PROGRAM_LAYER_H
#define CT_PROGRAM_LAYER_H

#include "framework/net/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CT_PROGRAM_WHY 1024 /* bytes of such a text */

/** A weight that a layer asks for. */
typedef struct ct_program_weight {
    ct_shape shape;
    Ct__FillerParameter *filler; /* the layer's from now on; NULL: `values` */
    const float *values; /* the first ones, until the layer's first forward; NULL: zeros. In a job
                          * rank 0's count */
} ct_program_weight;

/** What setup says of a layer. */
typedef struct ct_program_form {
    int n_weight;
    ct_program_weight weight[CT_MAX_WEIGHT];
    bool sums; /* of a layer with a loss_weight: its tops and gradients are sums over the samples
                * that it is given, not means, so those of several ranks add up */
} ct_program_form;

typedef struct ct_program_layers {
    void *ctx;
    /** Makes what the layer's python_param names, both names being there; *made_p goes to the other
     *  calls. */
    bool (*open)(void *ctx, const ct_layer *l, void **made_p, char *why, size_t n_why);
    /** Fills in *form, which is zeroed. bottom: shapes. What it has put there is the layer's also
     *  where it fails. */
    bool (*setup)(void *ctx, void *made, const ct_layer *l, const ct_shape *bottom,
                  ct_program_form *form, char *why, size_t n_why);
    /** Sets the shapes of all tops (ct_blob_set_shape()) from those of the bottoms. No blob has
     *  memory yet. */
    bool (*reshape)(void *ctx, void *made, ct_instance *in, char *why, size_t n_why);
    /** Writes the tops' data. Blobs lie on the host, f32 in plain order, as weights do. */
    bool (*forward)(void *ctx, void *made, const ct_instance *in, char *why, size_t n_why);
    /** Writes the bottoms' diffs, and gradients of weights to weight_diff[0 .. n_weight); NULL
     *  there: it is not wanted. At least one of all is; they are zero before. */
    bool (*backward)(void *ctx, void *made, const ct_instance *in, float *const *weight_diff,
                     char *why, size_t n_why);
    void (*close)(void *ctx, void *made);
} ct_program_layers;

#ifdef __cplusplus
}
#endif

#endif
