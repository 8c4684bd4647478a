/** @file shape_demand.h  Which shape the readers of a top ask for; private to
 * framework/data/absent.
 */
#ifndef CT_SHAPE_DEMAND_H
#define CT_SHAPE_DEMAND_H

#include "framework/net/net.h"

/** The layers of a net in one phase, and a net made of some of them. */
typedef struct ct_demand_net {
    Ct__LayerParameter *const *layer; /* in the net's order */
    int n_layer;
    const ct_net *made;      /* NULL: nothing is known yet */
    const char *const *lack; /* names of blobs that are in it with shapes that stand for others */
    int n_lack;
} ct_demand_net;

/** The shape that the top `name` of layer `maker` must have by what reads it, batch axis included.
 *  Labels have it by the scores of their loss, targets by what they are compared with, and so on.
 *  It is found also behind Slice and layers that keep shapes. *reason_p: the layer that asks.
 *  Without a made net the answer is whether one may tell, and *shape_p means nothing. */
bool ct_shape_demanded(const ct_demand_net *d, int maker, const char *name, ct_shape *shape_p,
                       const Ct__LayerParameter **reason_p);

#endif
