/** @file residual_drain.h  Updates that a run before this one had left behind, on their way to the
 * weights.
 *
 * Codecs with momentum correction keep V (comm/codec/codec.h): updates that were made and not sent.
 * A run in which such a parameter travels in another way has no codec to send them. Its weights
 * take them as dense steps of a compressed run would (comm/codec/codec_side.h, where the reason
 * stands). In each step they take as much of V, summed over the ranks, as goes no farther than the
 * step's own update,
 *
 *     share = min(1, |update| / |V|)        weight = weight - share V        V = (1 - share) V
 *
 * without that file's root of the number of ranks, since both are sums here already. V counts at
 * the rate of the step: it is multiplied by the new rate over the old one where that changes. All
 * ranks hold the same V, and their weights stay equal.
 */
#ifndef CT_RESIDUAL_DRAIN_H
#define CT_RESIDUAL_DRAIN_H

#include "framework/net/net.h"

typedef struct ct_residual_drain {
    float *v;    /* as the gradient arena, on the net's device; NULL: there is nothing         */
    float *rate; /* [n_param] in which V counts; 0: this parameter has nothing, < 0: not known */
    int n_param; /* that have something                                                        */
    float *room; /* [most] on the device: a parameter's weights before a step                  */
    int64_t most;
} ct_residual_drain;

/** Adds v[count of the parameter], on the host, that counts in `rate` (0: not known). All ranks
 *  alike. CT_ERR_NOMEM. */
ct_status ct_residual_drain_add(const ct_net *net, ct_residual_drain *l, int param, float rate,
                                const float *v);
void ct_residual_drain_close(const ct_net *net, ct_residual_drain *l); /* zeroed ones allowed */
static inline bool ct_residual_drain_has(const ct_residual_drain *l, int param)
{
    return (l->v != NULL) && (l->rate[param] != 0);
}

/** Around the update of a parameter that has something: `begin` before it, and after it `end`,
 *  which takes what is due to the weights; rate: the parameter's in this step. What has arrived
 *  altogether is released, and that is said. */
ct_status ct_residual_drain_begin(const ct_net *net, ct_residual_drain *l, ct_stream st, int param);
ct_status ct_residual_drain_end(const ct_net *net, ct_residual_drain *l, ct_stream st, int param,
                                float rate);

#endif
