/** @file inner_product.h  InnerProduct's state, and what it does with values of 16 bits
 * (inner_product_narrow.c). Private to layers/.
 *
 * Values of 16 bits, channels last, it multiplies as they lie, and hands on such where a reader
 * takes them. Of several places each they are turned to plain order first, which is what weights
 * are for: a batch is less to turn than weights and their gradients. Where operands have 16 bits
 * weights are rounded once a pass, for forward and for the bottom's gradient.
 */
#ifndef CT_INNER_PRODUCT_H
#define CT_INNER_PRODUCT_H

#include "layers/types/product.h"

typedef struct ip_state {
    int axis;
    int64_t n, k;   /* outputs, inputs                                      */
    bool transpose; /* weight is K x N instead of N x K                     */
    bool bias;
} ip_state;

typedef struct ip_instance {
    int64_t m;
    int64_t places; /* > 1: of a bottom that is turned */
    ct_product forward, backward_data, backward_weight;
    const ct_relu_impl *relu_backward; /* of the tail                            */
    ct_status status;                  /* of what was made behind reshape's back */
    ct_instance *sums_of; /* whose bias's gradient backward_data makes; NULL: nobody's         */
    bool bias_done;       /* this one's is made so by the reader of its group's top            */
} ip_instance;

/** Buffers: of the products; where the tail's ReLU passed, for who reads the top; the bottom in
 *  plain order, and its gradient; weight 0 in 16 bits. */
enum { IP_WORK, IP_BITS, IP_PLAIN, IP_PLAIN_DIFF, IP_WEIGHT };

/** As ct_layer_ops.takes. */
bool ct_ip_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot);
/** reshape, with r->m set: the top's shape, and the buffers but for the products'. */
void ct_ip_prepare(const ct_layer *l, ct_instance *in, const ct_shape *top);
/** Which matrices of a product have 16 bits, behind ct_ip_prepare(): CT_NARROW_… */
unsigned ct_ip_narrow(const ct_layer *l, const ct_instance *in, ct_run_kind kind);

/** Bottom and weight as products read them, once ct_ip_lay() has brought them there. */
ct_status ct_ip_lay(const ct_layer *l, ct_instance *in, ct_exec *ex);
const float *ct_ip_rows(const ct_instance *in);
const float *ct_ip_weight(const ct_instance *in);
/** The bottom's gradient from IP_PLAIN_DIFF to its place, where the bottom is turned. */
ct_status ct_ip_turn_back(ct_instance *in, ct_exec *ex);

#endif
