/** @file program_layer.h  Layers that the program around a net computes: type Python.
 *
 * Who hosts a run hands these calls over with ct_net_env.program, which outlives the net. They come
 * from the thread that makes and runs the net, one after the other: open once per layer, reshape
 * once per instance, forward and backward any number of times, close.
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

typedef struct ct_program_layers {
    void *ctx;
    /** Makes what the layer's python_param names; *made_p goes to the other calls. Both names are
     *  there, and the layer runs on one rank. */
    bool (*open)(void *ctx, const ct_layer *l, void **made_p, char *why, size_t n_why);
    /** Sets the shapes of all tops (ct_blob_set_shape()) from those of the bottoms. No blob has
     *  memory yet. */
    bool (*reshape)(void *ctx, void *made, ct_instance *in, char *why, size_t n_why);
    /** Writes the tops' data. Blobs lie on the host, f32 in plain order. */
    bool (*forward)(void *ctx, void *made, const ct_instance *in, char *why, size_t n_why);
    /** Writes the bottoms' diffs, at least one of which is there; those are zero before. */
    bool (*backward)(void *ctx, void *made, const ct_instance *in, char *why, size_t n_why);
    void (*close)(void *ctx, void *made);
} ct_program_layers;

#ifdef __cplusplus
}
#endif

#endif
