/** @file codec_sparse_device.h  topk and redsync of gradients on a device: one parameter. Private
 * to comm/coded_sparse_device*.c.
 */
#ifndef CT_CODEC_SPARSE_DEVICE_H
#define CT_CODEC_SPARSE_DEVICE_H

#include "comm/codec/codec_sparse.h"
#include "comm/codec/device_side.h"
#include "comm/collective/allgatherv.h"
#include "comm/codec/sparse_lists.h"

typedef enum {
    CT_SPARSE_NODE_DOWN, /* hier: the gradient comes down, … */
    CT_SPARSE_NODE,      /* … and is added up on the node    */
    CT_SPARSE_DOWN,      /* the payload comes down           */
    CT_SPARSE_EXCHANGE
} ct_sparse_phase;

typedef struct ct_sparse_device {
    ct_codec_setup setup;
    ct_device_side side;
    ct_coder_setup size;
    ct_sparse_warmup warmup;
    int64_t k;  /* elements that all of this rank's n have now */
    bool warms; /* this step is of the warm-up */
    ct_device_coder
        *picker;           /* of what this rank selects from: side.coder, but for a hier's slice */
    ct_allgatherv *gather; /* of an allgather; else … */
    int me;                /* among its members */
    ct_lists lists;        /* … lists.exch; none: one rank */
    ct_momentum_correction accum; /* a hier's, until the node's sum is there */
    int sign;
    const void **payload; /* [members] on the device, in the order in which they are added */
    bool quantize;
    ct_sparse_phase phase;
    ct_coll_where where;
    ct_codec_stats stats;
    int64_t bytes_sent;
    double left_at;
} ct_sparse_device;

/** plain: topk. As ct_codec_ops has them. */
ct_status ct_sparse_device_prepare(ct_sparse_device *x, const ct_codec_setup *setup, bool plain);
void ct_sparse_device_destroy(void *obj);

#endif
