/** @file net_chain.h  A net as a chain of blocks: what each takes, kept or made again.
 *
 * A net is cut where one value is alive in forward: all that follows reads what came before through
 * this value alone. What layers without bottoms make (data, labels) is there all the time and does
 * not count. A Split that the net made stays with the maker of its value, a Reorder or Cast with
 * its reader. Layers that run as one are not cut, but for a norm behind a sum that others read,
 * too: there the sum is the value (framework/net/recompute.c).
 *
 * Bytes are those of the net's own plan of memory: of a net that keeps everything, and of one that
 * makes again whatever it may. Seconds are symbolic: of a layer's operations and bytes
 * (ct_net_estimate()) the larger time at the machine's limits.
 */
#ifndef CT_NET_CHAIN_H
#define CT_NET_CHAIN_H

#include "framework/net/net.h"

/** What the machine does at most, a second; both above 0. */
typedef struct ct_net_limits {
    double flop, bytes;
} ct_net_limits;

typedef struct ct_net_block {
    const char *first, *last;  /* layers of the net's message, as a parallel file names segments  */
    int first_file, last_file; /* their places in it; it begins behind the last of the block before
                                * (sources in front of first_file belong to it)                   */
    double forward_s, backward_s;
    double again_s;       /* of the steps that make it again: in a segment of its own …       */
    double joint_s;       /* … and in one that goes on behind it                              */
    int64_t weight_bytes; /* of weights that no block before has: with gradients, without states  */
    int64_t fixed_bytes; /* kept for backward even where the block is made again                  */
    int64_t
        kept_bytes; /* what else is, where it is not; what it reads among it, if backward does */
    int64_t input_bytes; /* what it reads of the block before, kept for a segment that begins here;
                          * 0: that is kept anyway                                                */
    int like;            /* the first block with the same layers and figures: itself, if none     */
} ct_net_block;

typedef struct ct_net_chain {
    int n_block;
    ct_net_block *block;
} ct_net_chain;

/** Cuts the net of phase TRAIN that `param` and `options` (no_data) make, whatever its `recompute`.
 *  param must outlive the chain. CT_ERR_CONFIG: the net has no gradients; or what making it says.
 */
ct_status ct_net_chain_make(const Ct__NetParameter *param, const ct_net_options *options,
                            const ct_net_limits *limits, ct_net_chain *c);
void ct_net_chain_destroy(ct_net_chain *c); /* zeroed ones too */

/** The block of each layer of a net of the same message, of those that the net made, too:
 *  block [n_layer]. CT_ERR_NOMEM. */
ct_status ct_net_chain_blocks(const ct_net_chain *c, const Ct__NetParameter *param,
                              const ct_net *net, int *block);
/** Bytes of such a net's plan of memory by block, [n_block] each: what is kept from forward to
 *  backward, and all else (of which not all is there at a time). Values count value[l] times, l the
 *  layer that makes them, buffers buffer[l] times. CT_ERR_NOMEM. */
ct_status ct_net_chain_weigh(const ct_net_chain *c, const Ct__NetParameter *param,
                             const ct_net *net, const double *value, const double *buffer,
                             double *kept, double *other);

/** Makes a net that keeps everything but the segments; n 0: everything. They must outlive it. */
ct_status ct_net_make_again(const Ct__NetParameter *param, const ct_net_options *options,
                            const ct_net_segment *again, int n, ct_net **net_p);
typedef struct ct_net_seconds {
    double forward_s, backward_s;
    double again_s;  /* of the steps of backward that make values again */
    double update_s; /* of the weights: bytes of weights, gradients and states */
} ct_net_seconds;
/** The whole net, with its own lists of steps; options.state_bytes has the states. */
ct_net_seconds ct_net_seconds_of(const ct_net *net, const ct_net_limits *limits);
/** Bytes of the net's plan of memory that are kept from forward to backward. */
int64_t ct_net_kept_bytes(const ct_net *net);

#endif
