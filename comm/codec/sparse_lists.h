/** @file sparse_lists.h  Exchanges that run on the host between lists that were selected on a
 * device.
 *
 * A payload comes down and is what the exchange (sparse_allreduce.h) takes for this rank's entries,
 * as if they had been selected here. What that makes goes up: the sum as a payload, which the
 * device writes, and what the exchange dropped, which is added to V there, in the same order and
 * with the same bits. gtopk and oktopk work on lists alone. hier adds the gradients of a node
 * first, on the host: they come down whole, and a slice of their sum goes up. Private to comm/.
 */
#ifndef CT_LISTS_H
#define CT_LISTS_H

#include "comm/codec/error_feedback.h"
#include "comm/codec/device_codec.h"
#include "comm/sparse/sparse_allreduce.h"

typedef enum { CT_LISTS_NODE_U, CT_LISTS_NODE_V, CT_LISTS_NODE_GRAD } ct_lists_node_phase;

typedef struct ct_lists {
    const ct_codec_setup *setup; /* borrowed */
    const ct_device_codec *codec;
    ct_stream stream;
    const ct_sparse_allreduce_ops *exch;
    ct_sparse_allreduce_req req; /* first, length, k_own and copies say what to select from */
    ct_sparse own, list;
    ct_residual_return_list drops; /* its entries lie in the block */
    char *block;   /* on the host, for copies: payload, sum, indices and values of drops */
    void *payload; /* this rank's comes down here */
    void *sum;
    char *there, *drops_there; /* on the device: the sum as a payload, and drops */
    bool dirty;                /* setup->host is not zeros */
    bool spread_u, spread_v;   /* hier: elements outside of the slice may not be 0 */
    bool running;              /* node_start was called */
    ct_lists_node_phase phase;
} ct_lists;

/** Collective; release it in any case. */
ct_status ct_lists_prepare(ct_lists *x, const ct_codec_setup *setup, const ct_coder_setup *size,
                           const ct_device_codec *codec, ct_stream stream, const char *name);
/** Nothing of it may be under way on the device. Collective. */
void ct_lists_release(ct_lists *x);
/** Gradients of a node are added up first: they are to come down to setup->host, whole. */
bool ct_lists_has_nodes(const ct_lists *x);
/** The gradient, its norm limited, is in setup->host: adds up what ranks of the node have.
 *  CT_INPROGRESS; CT_OK: this rank's slice of the sum is under way to setup->grad. */
ct_status ct_lists_node_start(ct_lists *x);
ct_status ct_lists_node_progress(ct_lists *x, ct_error_feedback *keep);
/** The payload, of so many bytes, is there; 0: nothing was to be selected. */
ct_status ct_lists_start(ct_lists *x, size_t bytes);
ct_status ct_lists_progress(ct_lists *x);
/** Queues what makes setup->grad the sum, and gives back to v what was dropped. coder: of all n. */
ct_status ct_lists_deliver(ct_lists *x, ct_device_coder *coder, float *v);

#endif
