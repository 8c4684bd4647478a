/** @file pass.h  One pass of a net: what a micro-batch needs for itself.
 *
 * A net has the layers, the weights, the gradients and the list of steps. A pass has the values:
 * the blobs with their memory, an instance of each layer with its buffers, and the exec. So several
 * micro-batches can be under way in one net, each in a pass of its own. Their gradients go into the
 * one arena of the net, as ct_exec.accumulate says.
 *
 * State that a layer carries from batch to batch belongs to a pass. Weights that are statistics are
 * the net's, so passes change them in the order in which they run. A data layer has a loader in
 * each pass, and gives the batch that the micro-step of that pass asks for.
 *
 * With ct_net_options.in_flight passes each have memory of their own for what lives from forward to
 * backward, and share the rest. So what the other values of a pass are is known until another pass
 * runs: outputs are among what stays.
 *
 * A pass runs on the weights of the net, or on a second set of them (ct_weight_set), which needs no
 * net of its own.
 *
 * Calls on passes of one net come one after the other, in any order.
 */
#ifndef CT_PASS_H
#define CT_PASS_H

#include "framework/net/exec.h"
#include "framework/net/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_net ct_net;

typedef struct ct_pass {
    ct_net *net;
    ct_exec exec; /* at first device and phase of the net; the caller's between calls, but for the
                   * batch fields and addresses on the device, which forward sets */
    ct_instance **instance; /* net->n_layer of them */
    ct_blob **blob;         /* net->n_blob of them  */
    void *impl;             /* private to framework/net */
} ct_pass;

/** Other values for the weights of a net: an arena on its device, in the order of weight_arena. It
 * is the caller's, who keeps it as long as a pass runs on it. */
typedef struct ct_weight_set {
    const ct_net *net;
    float *arena;
    int64_t count; /* elements of it, whole weights: the first ones of weight_arena, such as all
                    * that learn (grad_count). The others are the net's own */
} ct_weight_set;

/** Called when parameter `param` has its final gradient of this micro-step; never blocks. */
typedef ct_status (*ct_ready_fn)(void *ctx, int param);

/** A further pass of a net, whose options must still hold (plan of engines, data group). The caller
 *  frees it before the net. Collective where making the net is. CT_ERR_CONFIG where a layer would
 *  not run as it does in the first pass, or what a reshape says. */
ct_status ct_pass_create(ct_net *net, ct_pass **pass_p);
void ct_pass_destroy(ct_pass *pass); /* NULL allowed */

/** From now on the pass runs on the weights of `set`, which is of its net or of the net whose
 * weights that one uses (ct_net_options.share). NULL: on the net's own, as at first. Gradients
 * still go into the net's arena. Waits for the device, and ends what it has recorded of the pass.
 * CT_ERR_ARG: the set is of another net, or ends within a weight. */
ct_status ct_pass_use_weights(ct_pass *pass, const ct_weight_set *set);

/** Gives an input (a top of Input with `varies`) another shape, which holds until the next call: as
 *  many axes as the net's and at most as many elements, for which memory is planned. Its data are
 *  the caller's to write, afterwards. CT_ERR_SHAPE where it is larger, or the Input does not vary;
 *  CT_ERR_ARG: the net has no such input. */
ct_status ct_pass_set_input(ct_pass *pass, const char *name, const ct_shape *shape);
/** Shapes what follows the inputs at once, where forward would do so layer by layer: what a layer
 *  does not take is said now. */
ct_status ct_pass_reshape(ct_pass *pass);

/** Runs forward; *loss_p is this rank's share of the weighted loss. loss_p may be NULL. */
ct_status ct_pass_forward(ct_pass *pass, double *loss_p);
/** The same in two halves: a device still computes when the first returns, and its losses, and
 *  whatever was wrong with labels or indices (CT_ERR_DATA, logged), cross beside what it is given
 *  next. The second waits for them; once for each first, before the next of this pass. */
ct_status ct_pass_forward_begin(ct_pass *pass);
ct_status ct_pass_forward_end(ct_pass *pass, double *loss_p);
/** Begins to receive what other ranks send to the pass's next forward, or its next backward. It may
 *  be called at any time, of passes in the order in which they will run so; their steps begin what
 *  did not begin. Never blocks. */
ct_status ct_pass_receive_ahead(ct_pass *pass, bool forward);
/** Runs backward after a forward of the same batch in this pass; ready may be NULL. */
ct_status ct_pass_backward(ct_pass *pass, ct_ready_fn ready, void *ready_ctx);

/** Layers `from` to `to` alone, both included, on what lies in the other layers' tops. For nets
 * made with ct_net_options.unshared and no_fuse; CT_ERR_ARG otherwise. The loss is that of all
 * outputs, as they are now. */
ct_status ct_pass_forward_layers(ct_pass *pass, int from, int to, double *loss_p);
/** Likewise, on the diffs of the other layers' bottoms; a loss within them begins anew. */
ct_status ct_pass_backward_layers(ct_pass *pass, int from, int to);

#ifdef __cplusplus
}
#endif

#endif
